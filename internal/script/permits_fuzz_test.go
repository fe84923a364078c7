package script

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
)

// This file compares the scripts of permits with a reference in Go, together with those of locks that are used
// for slots. It uses the reference of multi_fuzz_test.go where a slot is a lock: the slots of a semaphore are
// the names of a world, and the queue of the first name is the one for all of them.

var three = NewSemaphore("s", 3)

const threeQueue = "{s}:slots"

func threeSlot(i int) string { return fmt.Sprintf("{s}:slot:%d", i) }

// An entering is an EnterPermits.
type entering struct {
	Entering

	value, ticket string
	strict        bool
}

// preference returns n slots in the order of preference.
func preference(o Order, n int) (order []int) {
	rank := func(slot int) int {
		r := (slot - o.First + n) % n
		if !o.Front.Has(slot) {
			r += n
		}
		return r
	}
	for slot := range n {
		order = append(order, slot)
	}
	slices.SortFunc(order, func(a, b int) int { return rank(a) - rank(b) })
	return order
}

func (e entering) expect(w *world) expected {
	if e.ticket != "" {
		if w[0].queueOdd {
			return expected{refused: true}
		}
		w[0].with(e.ticket)
		w[0].living()
		w[0].cut(w[0].queue[0].ticket)
		if e.strict && w[0].at(0) != processOf(e.ticket) {
			return expected{reply: EnteredPermits{Wait: w[0].queue[0].left}}
		}
	}
	isFree := func(slot int) bool { return !w[slot].lockOdd && w[slot].lock == "" }
	order := preference(e.Order, 3)
	// Without a ticket, a node that finds the first slot free looks no further.
	plain := e.ticket == "" && e.Wants == 1 && isFree(order[0])
	var reply EnteredPermits
	var free []int
	for _, slot := range order {
		if n := w[slot]; !n.lockOdd && n.lock == e.value && !plain {
			reply.Slots = reply.Slots.With(slot)
		}
		if isFree(slot) {
			free = append(free, slot)
			reply.Free = reply.Free.With(slot)
		}
	}
	lists := 0
	for _, n := range w {
		if n.lockOdd {
			lists++
		}
	}
	switch {
	case reply.Slots.Len() == 0 && len(w)-lists < e.Wants:
		return expected{refused: true}
	case reply.Slots.Len() > 0:
		reply.Granted, reply.WasThere, reply.Free = true, true, Slots{}
	case len(free) >= e.Wants:
		reply.Granted, reply.Slots = true, slotsOf(free[:e.Wants]...)
		for _, slot := range free[:e.Wants] {
			w[slot].lock, w[slot].lockTTL = e.value, worldTTL
		}
		if e.ticket == "" && e.Wants == 1 {
			reply.Free = reply.Slots
		}
	default:
		reply.Wait = -1
		for _, n := range w {
			if e.ticket != "" && n.lock != "" && n.lockTTL > 0 && (reply.Wait < 0 || n.lockTTL < reply.Wait) {
				reply.Wait = n.lockTTL
			}
		}
	}
	return expected{reply: reply}
}

func (e entering) command() Command {
	place := Place{Ticket: TicketOf(e.ticket), Alive: worldAlive, Strict: e.strict}
	return EnterPermits(three, e.value, worldTTL, e.Entering, place)
}

func (e entering) parse(reply any) (any, error) { return e.Parse(reply, 3) }

// A turning is what a release of slots does with the queue.
type turning struct {
	value, process string
	quiet          bool
	enters         string
	leave          []string
}

// turn turns the queue over. If waiters must look, it notes that in the reply, and returns who is told about a slot.
func (r turning) turn(w *world, look bool, about string, reply *Released) (told []string) {
	l := &w[0]
	if r.quiet || l.queueOdd {
		return nil
	}
	l.without(r.leave...)
	l.with(r.enters)
	l.living()
	l.settle()
	if !look || len(l.queue) == 0 {
		return nil
	}
	told, first, others := l.tells(r.process, false)
	for i, process := range told {
		told[i] = process + " " + about
	}
	if first {
		reply.First = 1
	}
	if others {
		reply.Others = 1
	}
	return told
}

// by returns by whom, and with which turnover, the slots are released.
func (r turning) by() (Process, Turnover) {
	if r.quiet {
		return noProcess, quietly
	}
	return ProcessOf(r.process), Turnover{Enters: TicketOf(r.enters), Alive: worldAlive, Leave: ticketsOf(r.leave)}
}

func (turning) parse(reply any) (any, error) { return parseReleasedOne(reply) }

// A giving is a ReleaseSlots.
type giving struct {
	turning

	gives, keeps Slots
	weight       int
}

func (r giving) expect(w *world) (e expected) {
	var had int
	var free bool
	changes := r.enters != "" || len(r.leave) > 0
	about := ""
	for _, part := range []Slots{r.gives, r.keeps} {
		for slot := range part.All() {
			if about == "" {
				about = threeSlot(slot)
			}
			n := &w[slot]
			if n.lockOdd {
				continue
			}
			if n.lock == r.value {
				had++
				if r.gives.Has(slot) {
					n.lock, n.lockTTL = "", 0
					changes = true
				}
			}
			free = free || n.lock == ""
		}
	}
	reply := Released{Found: Missing}
	if had >= r.weight {
		reply.Found = Mine
	}
	if changes {
		e.told = r.turn(w, free, about, &reply)
	}
	e.reply = reply
	return e
}

func (r giving) command() Command {
	keeps := r.keeps
	if r.quiet {
		keeps = Slots{}
	}
	process, turnover := r.by()
	return ReleaseSlots(three, r.value, r.weight, r.gives, keeps, process, turnover)
}

// A resting is a Shorten of several slots.
type resting struct {
	turning

	slots Slots
	rest  int64
}

func (r resting) expect(w *world) (e expected) {
	list := slices.Collect(r.slots.All())
	reply := Released{Found: found(w, list, r.value)}
	changes := r.enters != "" || len(r.leave) > 0
	looks := false
	for _, slot := range list {
		switch n := &w[slot]; {
		case n.lockOdd:
			e.refused = true
		case n.lock == r.value:
			looks = n.shorten(r.rest) || changes || looks
		default:
			looks = looks || n.lock == ""
		}
	}
	if looks || changes {
		e.told = r.turn(w, looks, threeSlot(list[0]), &reply)
	}
	e.reply = reply
	return e
}

func (r resting) command() Command {
	process, turnover := r.by()
	return Shorten(three.Lock(three.Keys(r.slots), r.value), r.rest, process, turnover, noFence)
}

// A givingOne is the release of a slot as a lock.
type givingOne struct {
	leave

	slot int
}

func (r givingOne) expect(w *world) expected {
	as, n := world{w[0]}, &w[r.slot]
	as[0].lock, as[0].lockTTL, as[0].lockOdd = n.lock, n.lockTTL, n.lockOdd
	e := r.leave.expect(&as)
	n.lock, n.lockTTL = as[0].lock, as[0].lockTTL
	w[0].queue, w[0].queueTTL = as[0].queue, as[0].queueTTL
	for i, told := range e.told {
		e.told[i] = told[:17] + threeSlot(r.slot)
	}
	return e
}

func (r givingOne) command() Command {
	lock := slotsWith(three, r.value, r.slot)
	process, turnover := r.by()
	if r.rest != 0 {
		return Shorten(lock, r.rest, process, turnover, noFence)
	}
	return Release(lock, process, turnover, noFence)
}

// A lookAtSlots is a look at slots.
type lookAtSlots struct{ look }

func (l lookAtSlots) command() Command { return l.at(slotsWith(three, l.value, l.names...)) }

func anyPermitsWorld(r *rand.Rand, p *play) *world {
	w := &world{}
	p.keys = [3][3]string{{threeSlot(0), threeQueue, "none"}, {threeSlot(1), "none", "none"}, {threeSlot(2), "none", "none"}}
	for i := range w {
		switch n := &w[i]; r.IntN(9) {
		case 0, 1:
			n.lock, n.lockTTL = "v", pick[int64](r, worldTTL/2, 2*worldTTL, -1)
		case 2, 3, 4:
			n.lock, n.lockTTL = "w", pick[int64](r, worldTTL/4, worldTTL/2, 2*worldTTL, -1)
		case 5:
			n.lockOdd = r.IntN(2) == 0
		}
	}
	for _, t := range some(r, worldTickets) {
		w[0].queue = append(w[0].queue, worldWaiter{t, pick(r, worldDead, 3*worldAlive, 5*worldAlive), false})
		w[0].queueTTL = pick[int64](r, 150_000, 400_000)
	}
	if r.IntN(20) == 0 {
		w[0].queueOdd, w[0].queue, w[0].queueTTL = true, nil, 0
	}
	return w
}

func anySlots(r *rand.Rand) (set Slots) { return slotsOf(some(r, []int{0, 1, 2})...) }

func anyPermitsMove(r *rand.Rand) move {
	value, process := pick(r, "v", "v", "w", "x"), pick(r, us, they, "")
	switch r.IntN(8) {
	case 0, 1:
		e := entering{wants(pick(r, 1, 1, 2, 3), r.IntN(3)), value, pick(r, append([]string{"", ""}, worldTickets...)...), r.IntN(2) == 0}
		e.Order.Front = anySlots(r)
		return e
	case 2:
		s := resting{turning{value: value, process: process, quiet: r.IntN(6) == 0}, anySlots(r), max(anyRest(r), worldTTL/5)}
		if s.slots.Len() < 2 {
			s.slots = slotsOf(0, 2)
		}
		if !s.quiet {
			s.leave = some(r, worldTickets)
			if r.IntN(3) == 0 {
				s.enters = pick(r, worldTickets...)
			}
		}
		return s
	case 3, 4:
		g := giving{turning: turning{value: value, process: process, quiet: r.IntN(6) == 0}, gives: slotsOf(0, 1, 2), weight: 1 + r.IntN(3)}
		if r.IntN(2) == 0 {
			g.gives = anySlots(r)
		}
		if !g.quiet {
			g.keeps = anySlots(r)
			for slot := range g.gives.All() {
				g.keeps = three.AllBut(three.AllBut(g.keeps).With(slot))
			}
			g.leave = some(r, worldTickets)
			if r.IntN(3) == 0 {
				g.enters = pick(r, worldTickets...)
			}
		}
		return g
	case 5, 6:
		l := leave{names: []int{0}, value: value, process: process, quiet: r.IntN(6) == 0, all: some(r, worldTickets), rest: anyRest(r)}
		if r.IntN(3) == 0 {
			l.enters, l.leaves = []string{pick(r, worldTickets...)}, [][]string{nil}
		}
		return givingOne{l, r.IntN(3)}
	}
	return lookAtSlots{look{pick(r, []int{r.IntN(3)}, []int{0, 1}, []int{1, 2}, []int{0, 1, 2}), value, pick(r, "extend", "heal", "valid")}}
}

// TestPermitScriptsDoWhatTheReferenceSays plays commands of permits, and of locks on their slots, on nodes of both kinds.
func TestPermitScriptsDoWhatTheReferenceSays(t *testing.T) {
	atRandom(t, testlength.InGate(5, 20, 40, 4000), anyPermitsMove, anyPermitsWorld)
}
