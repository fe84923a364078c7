package script

import (
	_ "embed" // the sources
	"fmt"
	"iter"
	"math/bits"
	"strconv"
)

// This file makes the commands of a semaphore. It has a slot for each permit: a key that one holder at a time can set.
// Extend, Valid and Shorten serve for slots, too.

//go:embed enter_permits.lua
var enterPermits string

//go:embed release_permits.lua
var releasePermits string

var (
	enterPermitsScript   = newScript(enterPermits)
	releasePermitsScript = newScript(releasePermits)
)

// MaxPermits limits the permits of a semaphore.
const MaxPermits = 256

// Slots is a set of slots, numbered from 0.
type Slots [MaxPermits / 64]uint64

// With returns s with slot added.
func (s Slots) With(slot int) Slots {
	s[slot/64] |= 1 << (slot % 64)
	return s
}

// Has reports whether slot is in s.
func (s Slots) Has(slot int) bool { return s[slot/64]>>(slot%64)&1 != 0 }

// Or returns the union.
func (s Slots) Or(t Slots) Slots {
	for i := range s {
		s[i] |= t[i]
	}
	return s
}

// And returns the intersection.
func (s Slots) And(t Slots) Slots {
	for i := range s {
		s[i] &= t[i]
	}
	return s
}

// Len returns the number of slots.
func (s Slots) Len() (n int) {
	for _, word := range s {
		n += bits.OnesCount64(word)
	}
	return n
}

// First returns the first slot of s, or 0.
func (s Slots) First() int {
	for slot := range s.All() {
		return slot
	}
	return 0
}

// All yields the slots in ascending order.
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

// A Semaphore has the keys of a semaphore, as arguments, which saves allocations.
type Semaphore struct {
	keys  Keys // the name and the queue
	n     int
	slots []any // the keys of all slots, twice over: each cyclic order is a part of it
	queue any
}

// NewSemaphore returns the Semaphore of a name with n permits, 1 to MaxPermits for a command.
func NewSemaphore(name string, n int) *Semaphore {
	s := &Semaphore{keys: Keys{name: [1]string{name}}, n: n, slots: make([]any, 2*n), queue: SlotQueueKey(name)}
	s.keys.queue.key.Store(&s.queue)
	prefix := sideKey(name, slotSide)
	for i := range n {
		s.slots[i] = prefix + strconv.Itoa(i)
		s.slots[n+i] = s.slots[i]
	}
	return s
}

// Name returns the name.
func (s *Semaphore) Name() string { return s.keys.Name() }

// Permits returns the number of permits.
func (s *Semaphore) Permits() int { return s.n }

// Queue returns the key of the queue.
func (s *Semaphore) Queue() string { return s.queue.(string) }

// key returns the key of a slot, even beyond n: a process with more permits may have given its hold to this one.
func (s *Semaphore) key(slot int) any {
	if slot < s.n {
		return s.slots[slot]
	}
	return slotKey(s.Name(), slot)
}

// Keys returns the keys of slots.
func (s *Semaphore) Keys(slots Slots) (keys []any) {
	if first := slots.First(); slots.Len() == 1 && first < s.n {
		return s.slots[first : first+1]
	}
	for slot := range slots.All() {
		keys = append(keys, s.key(slot))
	}
	return keys
}

// Lock returns the Lock of slots, by what Keys returns.
func (s *Semaphore) Lock(keys []any, value any) Lock { return Lock{keys, value, &s.keys} }

// An Order is the order in which a node tries slots: those of Front, then the others, each cyclically from First on.
type Order struct {
	First int
	Front Slots
}

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

// EnterPermits sets the first free slots to value for ttl milliseconds: as many as e wants, or none. A ticket of place
// enters the queue first. See enter_permits.lua.
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
		r.queues(&s.keys)
	}
	r.args(value, lockTTL.argument(ttl), e.Wants)
	if !place.Ticket.IsZero() {
		r.args(place.Ticket.argument(), place.Alive, bit(place.Strict))
	}
	return r.command()
}

// An EnteredPermits is what a node answers to EnterPermits.
type EnteredPermits struct {
	Granted  bool
	WasThere bool  // with Granted: some slots had the value before, and no others were granted
	Slots    Slots // those that have the value now
	Free     Slots // those that were free before, as far as the node says
	Wait     int64 // of a refusal: after how many milliseconds it may end by itself, -1 if never or unknown
}

// Parse reads a reply to EnterPermits on n permits.
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

// parseSlots reports false if an index in e.Order is out of range or comes twice.
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

// AllBut returns the slots of s without some.
func (s *Semaphore) AllBut(some Slots) (all Slots) {
	for slot := range s.n {
		if !some.Has(slot) {
			all = all.With(slot)
		}
	}
	return all
}

// ReleaseSlots gives back the slots of gives that have the value, and changes the queue: see release_permits.lua. Slots
// of keeps count, but stay. The reply is Mine if at least weight slots, as many as a lease has, had the value, else
// Missing.
func ReleaseSlots(s *Semaphore, value any, weight int, gives, keeps Slots, process Process, turnover Turnover) Command {
	r := newRequest(releasePermitsScript, keyCount+1+s.n+8+len(turnover.Leave))
	r.keys(s.Keys(gives)...)
	if turnover.Quietly {
		r.args(value, weight, 0, noQueue)
		return r.command()
	}
	kept := s.Keys(keeps)
	r.keys(kept...)
	r.queues(&s.keys)
	r.args(value, weight, len(kept), process.argument())
	return r.turnover(turnover)
}
