package script

import (
	_ "embed" // the sources
	"fmt"
	"iter"
	"math/bits"
	"strconv"
)

// This file makes the commands of a semaphore, which has a slot for each of its permits. A slot is a key that
// one holder at a time can set, as the key of a lock is. So the commands of locks serve for a slot that is
// held: Extend, Heal and Valid for a single slot, and ExtendMulti, HealMulti and ValidMulti for several.

//go:embed enter_permits.lua
var enterPermits string

//go:embed release_permits.lua
var releasePermits string

var (
	enterPermitsScript   = newScript(enterPermits)
	releasePermitsScript = newScript(releasePermits)
)

// MaxPermits is the greatest number of permits that a semaphore can have.
const MaxPermits = 256

// Slots is a set of slots. The slots of a semaphore are numbered from 0.
type Slots [MaxPermits / 64]uint64

// With returns s with a slot added.
func (s Slots) With(slot int) Slots {
	s[slot/64] |= 1 << (slot % 64)
	return s
}

// Has reports whether a slot is in s.
func (s Slots) Has(slot int) bool { return s[slot/64]>>(slot%64)&1 != 0 }

// Or returns the slots that are in s or in t, or in both.
func (s Slots) Or(t Slots) Slots {
	for i := range s {
		s[i] |= t[i]
	}
	return s
}

// And returns the slots that are in both s and t.
func (s Slots) And(t Slots) Slots {
	for i := range s {
		s[i] &= t[i]
	}
	return s
}

// Len returns how many slots s has.
func (s Slots) Len() (n int) {
	for _, word := range s {
		n += bits.OnesCount64(word)
	}
	return n
}

// First returns the first slot of s, which is not empty.
func (s Slots) First() int {
	for slot := range s.All() {
		return slot
	}
	return 0
}

// All returns the slots in ascending order.
func (s Slots) All() iter.Seq[int] {
	return func(yield func(int) bool) {
		for i, word := range s {
			for ; word != 0; word &= word - 1 {
				if !yield(64*i + bits.TrailingZeros64(word)) {
					return
				}
			}
		}
	}
}

// A Semaphore has the keys of a semaphore. They are of the type any, as the arguments of commands are, which
// saves an allocation for each command.
type Semaphore struct {
	name  string
	n     int
	slots []any // the keys of all slots in order, twice over: each cyclic order is a part of it
	queue any
}

// NewSemaphore returns the Semaphore of a name with n permits. Before a command is made of it, n must be 1 to
// MaxPermits.
func NewSemaphore(name string, n int) *Semaphore {
	s := &Semaphore{name: name, n: n, slots: make([]any, 2*n), queue: SlotQueueKey(name)}
	prefix := sideKey(name, slotSide)
	for i := range n {
		s.slots[i] = prefix + strconv.Itoa(i)
		s.slots[n+i] = s.slots[i]
	}
	return s
}

// Name returns the name.
func (s *Semaphore) Name() string { return s.name }

// Permits returns how many permits s has.
func (s *Semaphore) Permits() int { return s.n }

// Queue returns the key of the queue.
func (s *Semaphore) Queue() string { return s.queue.(string) }

// key returns the key of a slot. The number of the slot may exceed those of s: a process that uses more permits
// may have given its hold to this one.
func (s *Semaphore) key(slot int) any {
	if slot < s.n {
		return s.slots[slot]
	}
	return slotKey(s.name, slot)
}

// Lock returns a slot with a value, which must be a string, as a Lock.
func (s *Semaphore) Lock(slot int, value any) Lock { return Lock{key: s.key(slot), value: value} }

// keysOf returns the keys of slots.
func (s *Semaphore) keysOf(slots Slots) (keys []any) {
	for slot := range slots.All() {
		keys = append(keys, s.key(slot))
	}
	return keys
}

// Multi returns slots with a value as a Multi, for ExtendMulti, HealMulti and ValidMulti.
func (s *Semaphore) Multi(slots Slots, value string) Multi {
	return Multi{&multiNames{locks: s.keysOf(slots)}, value}
}

// An Order is the order in which a node tries the slots of a semaphore. If Front is empty, that is the cyclic
// order from First on. Otherwise the slots of Front come before the others, each part in that cyclic order.
type Order struct {
	First int
	Front Slots
}

// slots returns the n slots of a semaphore in the order o.
func (o Order) slots(n int) []int {
	all := make([]int, 0, n)
	for _, front := range []bool{true, false} {
		for i := range n {
			if slot := (o.First + i) % n; o.Front.Has(slot) == front {
				all = append(all, slot)
			}
		}
	}
	return all
}

// at returns the i-th of n slots in the order o, counted from 0.
func (o Order) at(i, n int) int {
	if o.Front == (Slots{}) {
		return (o.First + i) % n
	}
	return o.slots(n)[i]
}

// An Entering is what EnterPermits asks for.
type Entering struct {
	Order Order
	Wants int // how many slots
}

// EnterPermits sets the first free slots to value for ttl milliseconds: as many as e wants, or none. If place
// has a ticket, it first puts that in the queue of s, where it stays even after a grant. If place is strict,
// the node grants only if the first in the queue is a waiter of the ticket's process. With a ticket, a grant
// also says which other slots are free.
//
// Entering.Parse reads the reply.
func EnterPermits(s *Semaphore, value any, ttl int64, e Entering, place Place) Command {
	r := newRequest(enterPermitsScript, keyCount+1+s.n+8)
	if e.Order.Front == (Slots{}) {
		r.keys(s.slots[e.Order.First : e.Order.First+s.n]...)
	} else {
		for _, slot := range e.Order.slots(s.n) {
			r.keys(s.slots[slot])
		}
	}
	if !place.Ticket.IsZero() {
		r.keys(s.queue)
	}
	r.args(value, lockTTL.argument(ttl), e.Wants)
	if !place.Ticket.IsZero() {
		strict := 0
		if place.Strict {
			strict = 1
		}
		r.args(place.Ticket.argument(), place.Alive, strict)
	}
	return r.command()
}

// An EnteredPermits is what a node answers to EnterPermits.
type EnteredPermits struct {
	Granted  bool
	WasThere bool  // with Granted: some slots had the value before the command, which has granted no others
	Slots    Slots // the slots that have the value now
	Free     Slots // the slots that were free before the command, as far as the node says, including those it has granted
	Wait     int64 // of a refusal: after how many milliseconds it may end by itself, or -1 for never or not known
}

// Parse reads a reply to the EnterPermits of e on a semaphore with n permits.
func (e Entering) Parse(reply any, n int) (EnteredPermits, error) {
	switch reply := reply.(type) {
	case int64:
		if e.Wants == 1 && reply >= 0 && reply < int64(n) {
			slots := Slots{}.With(e.Order.at(int(reply), n))
			return EnteredPermits{Granted: true, Slots: slots, Free: slots}, nil
		}
	case []any:
		if len(reply) == 4 {
			if entered, ok := e.parseFour(reply, n); ok {
				return entered, nil
			}
		}
	}
	return EnteredPermits{}, fmt.Errorf("redsync: odd answer to an acquire: %s", Describe(reply))
}

// parseFour reads a reply that has four parts: see enter_permits.lua.
func (e Entering) parseFour(parts []any, n int) (entered EnteredPermits, ok bool) {
	const refused, granted, wasThere = 0, 1, 2
	what, isWhat := parts[0].(int64)
	wait, isWait := parts[1].(int64)
	slots, areSlots := e.parseSlots(parts[2], n)
	free, areFree := e.parseSlots(parts[3], n)
	switch {
	case !isWhat || !isWait || !areSlots || !areFree || slots.And(free) != (Slots{}):
	case what == refused:
		return EnteredPermits{Free: free, Wait: wait}, (wait == -1 || wait > 0) && slots.Len() == 0
	case what == granted:
		return EnteredPermits{Granted: true, Slots: slots, Free: free.Or(slots)}, wait == 0 && slots.Len() == e.Wants
	case what == wasThere:
		return EnteredPermits{Granted: true, WasThere: true, Slots: slots}, wait == 0 && slots.Len() > 0 && free.Len() == 0
	}
	return EnteredPermits{}, false
}

// parseSlots reads an array of indexes in e.Order. It reports false if an index is not that of a slot, or
// comes twice.
func (e Entering) parseSlots(part any, n int) (slots Slots, ok bool) {
	indexes, ok := part.([]any)
	if len(indexes) == 0 {
		return Slots{}, ok
	}
	order := e.Order.slots(n)
	for _, index := range indexes {
		i, isIndex := index.(int64)
		if !isIndex || i < 0 || i >= int64(n) || slots.Has(order[i]) {
			return Slots{}, false
		}
		slots = slots.With(order[i])
	}
	return slots, true
}

// AllBut returns all slots of s except some.
func (s *Semaphore) AllBut(some Slots) (all Slots) {
	for slot := range s.n {
		if !some.Has(slot) {
			all = all.With(slot)
		}
	}
	return all
}

// ReleaseSlots gives back those slots of gives that have the value. The slots of keeps stay as they are. It lets the
// tickets of turnover enter and leave the queue. The node tells the first waiter as for Release if a slot of gives or
// keeps is free afterwards, and if the command has given back a slot or a ticket enters or leaves. If nothing has
// changed, it tells nobody: the first waiter may want more slots than are free, and would try again and again.
//
// The node replies as to Release. The reply is Mine if at least weight slots of gives and keeps had the
// value: as many as a lease has. Otherwise it is Missing. A quiet release does not look at keeps.
func ReleaseSlots(s *Semaphore, value any, weight int, gives, keeps Slots, process Process, turnover Turnover) Command {
	r := newRequest(releasePermitsScript, keyCount+1+s.n+8+len(turnover.Leave))
	r.keys(s.keysOf(gives)...)
	if turnover.Quietly {
		r.args(value, weight, 0, noQueue)
		return r.command()
	}
	kept := s.keysOf(keeps)
	r.keys(kept...)
	r.keys(s.queue)
	r.args(value, weight, len(kept), process.argument())
	return r.turnover(turnover)
}

// ReleaseSlot gives back one slot if it has the value. It is Release for that slot, with the queue of s.
func ReleaseSlot(s *Semaphore, slot Lock, process Process, turnover Turnover) Command {
	return releaseOf(releaseScript, slot, s.queue, process, turnover, Fence{})
}
