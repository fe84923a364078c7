package script_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/seed14bd9ef4/redsync/internal/script"
	"github.com/seed14bd9ef4/redsync/internal/testlength"
)

// This file compares the scripts of permits with a reference in Go, together with those of locks that are used
// for slots. It uses the reference of multi_fuzz_test.go where a slot is a lock: the slots of a semaphore are
// the names of a world, and there is one queue for all of them.

// A permitsWorld is what the reference expects on a node.
type permitsWorld struct {
	slots world     // only the locks
	line  worldName // only the queue
}

var three = script.NewSemaphore("s", 3)

const threeQueue = "{s}:slots"

func threeSlot(i int) string { return fmt.Sprintf("{s}:slot:%d", i) }

// A permitsAction is one command, and what the reference says about it.
type permitsAction struct {
	what    string
	command script.Command
	expect  func(w *permitsWorld) expected
	parse   func(reply any) (any, error)
}

// An entering is an EnterPermits.
type entering struct {
	script.Entering

	value, ticket string
	strict        bool
}

// preference returns n slots in the order of preference.
func preference(o script.Order, n int) (order []int) {
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

func (e entering) expect(w *permitsWorld) expected {
	if e.ticket != "" {
		if w.line.queueOdd {
			return expected{refused: true}
		}
		w.line.with(e.ticket)
		w.line.living()
		w.line.cut(w.line.queue[0].ticket)
		if e.strict && w.line.at(0) != processOf(e.ticket) {
			return expected{reply: script.EnteredPermits{Wait: w.line.queue[0].left}}
		}
	}
	isFree := func(slot int) bool { return !w.slots[slot].lockOdd && w.slots[slot].lock == "" }
	order := preference(e.Order, 3)
	// Without a ticket, a node that finds the first slot free looks no further.
	plain := e.ticket == "" && e.Wants == 1 && isFree(order[0])
	var reply script.EnteredPermits
	var free []int
	for _, slot := range order {
		if n := w.slots[slot]; !n.lockOdd && n.lock == e.value && !plain {
			reply.Slots = reply.Slots.With(slot)
		}
		if isFree(slot) {
			free = append(free, slot)
			reply.Free = reply.Free.With(slot)
		}
	}
	lists := 0
	for _, n := range w.slots {
		if n.lockOdd {
			lists++
		}
	}
	switch {
	case reply.Slots.Len() == 0 && len(w.slots)-lists < e.Wants:
		return expected{refused: true}
	case reply.Slots.Len() > 0:
		reply.Granted, reply.WasThere, reply.Free = true, true, script.Slots{}
	case len(free) >= e.Wants:
		reply.Granted, reply.Slots = true, slots(free[:e.Wants]...)
		for _, slot := range free[:e.Wants] {
			w.slots[slot] = worldName{lock: e.value, lockTTL: worldTTL}
		}
		if e.ticket == "" && e.Wants == 1 {
			reply.Free = reply.Slots
		}
	default:
		reply.Wait = -1
		for _, n := range w.slots {
			if e.ticket != "" && n.lock != "" && n.lockTTL > 0 && (reply.Wait < 0 || n.lockTTL < reply.Wait) {
				reply.Wait = n.lockTTL
			}
		}
	}
	return expected{reply: reply}
}

func (e entering) action() permitsAction {
	place := script.Place{Ticket: script.TicketOf(e.ticket), Alive: worldAlive, Strict: e.strict}
	return permitsAction{
		fmt.Sprintf("enter %+v", e), script.EnterPermits(three, e.value, worldTTL, e.Entering, place), e.expect,
		func(reply any) (any, error) { return e.Parse(reply, 3) },
	}
}

// A turning is what a release of slots does with the queue.
type turning struct {
	value, process string
	quiet          bool
	enters         string
	leave          []string
}

// turn turns the queue over. If waiters must look, it notes that in the reply, and returns who is told about a slot.
func (r turning) turn(w *permitsWorld, look bool, about string, reply *script.Released) (told []string) {
	l := &w.line
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
func (r turning) by() (script.Process, script.Turnover) {
	if r.quiet {
		return script.Process{}, quietly
	}
	return script.ProcessOf(r.process), script.Turnover{Enters: script.TicketOf(r.enters), Alive: worldAlive, Leave: ticketsOf(r.leave)}
}

// A giving is a ReleaseSlots.
type giving struct {
	turning

	gives, keeps script.Slots
	weight       int
}

func (r giving) expect(w *permitsWorld) (e expected) {
	var had int
	var free bool
	changes := r.enters != "" || len(r.leave) > 0
	about := ""
	for _, part := range []script.Slots{r.gives, r.keeps} {
		for slot := range part.All() {
			if about == "" {
				about = threeSlot(slot)
			}
			n := &w.slots[slot]
			if n.lockOdd {
				continue
			}
			if n.lock == r.value {
				had++
				if r.gives.Has(slot) {
					*n = worldName{}
					changes = true
				}
			}
			free = free || n.lock == ""
		}
	}
	reply := script.Released{Found: script.Missing}
	if had >= r.weight {
		reply.Found = script.Mine
	}
	if changes {
		e.told = r.turn(w, free, about, &reply)
	}
	e.reply = reply
	return e
}

func (r giving) action() permitsAction {
	keeps := r.keeps
	if r.quiet {
		keeps = script.Slots{}
	}
	process, turnover := r.by()
	command := script.ReleaseSlots(three, r.value, r.weight, r.gives, keeps, process, turnover)
	return permitsAction{fmt.Sprintf("release %+v", r), command, r.expect, parseReleasedOne}
}

// A resting is a ShortenSlots.
type resting struct {
	turning

	slots script.Slots
	rest  int64
}

func (r resting) expect(w *permitsWorld) (e expected) {
	list := slices.Collect(r.slots.All())
	reply := script.Released{Found: found(&w.slots, list, r.value)}
	changes := r.enters != "" || len(r.leave) > 0
	looks := false
	for _, slot := range list {
		switch n := &w.slots[slot]; {
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

func (r resting) action() permitsAction {
	process, turnover := r.by()
	command := script.ShortenSlots(three, r.slots, r.value, r.rest, process, turnover)
	return permitsAction{fmt.Sprintf("shorten %+v", r), command, r.expect, parseReleasedOne}
}

// A givingOne is the release of a slot as a lock.
type givingOne struct {
	leave

	slot int
}

func (r givingOne) expect(w *permitsWorld) expected {
	as := world{w.line}
	as[0].lock, as[0].lockTTL, as[0].lockOdd = w.slots[r.slot].lock, w.slots[r.slot].lockTTL, w.slots[r.slot].lockOdd
	e := r.leave.expect(&as)
	w.slots[r.slot] = worldName{lock: as[0].lock, lockTTL: as[0].lockTTL, lockOdd: as[0].lockOdd}
	as[0].lock, as[0].lockTTL, as[0].lockOdd = "", 0, false
	w.line = as[0]
	for i, told := range e.told {
		e.told[i] = told[:17] + threeSlot(r.slot)
	}
	return e
}

func (r givingOne) action() permitsAction {
	lock := three.Lock(r.slot, r.value)
	a := permitsAction{what: fmt.Sprintf("release one %+v", r), expect: r.expect, parse: parseReleasedOne}
	process, turnover := script.ProcessOf(r.process), r.turnover()
	if r.quiet {
		process, turnover = script.Process{}, quietly
	}
	a.command = script.ReleaseSlot(three, lock, process, turnover)
	if r.rest != 0 {
		a.command = script.ShortenSlot(three, lock, r.rest, process, turnover)
	}
	return a
}

// lookAt returns an extend, a heal or a valid of slots.
func lookAt(l look) permitsAction {
	a := permitsAction{what: fmt.Sprintf("%+v", l), parse: func(reply any) (any, error) { return reply, nil }}
	a.expect = func(w *permitsWorld) expected { return l.expect(&w.slots) }
	if len(l.names) == 1 {
		lock := three.Lock(l.names[0], l.value)
		a.command = map[string]script.Command{"extend": script.Extend(lock, worldTTL), "heal": script.Heal(lock, worldTTL), "valid": script.Valid(lock)}[l.kind]
		return a
	}
	m := three.Multi(slots(l.names...), l.value)
	a.command = map[string]script.Command{"extend": script.ExtendMulti(m, worldTTL), "heal": script.HealMulti(m, worldTTL), "valid": script.ValidMulti(m)}[l.kind]
	return a
}

// setPermits brings the node into the state w.
func (p *play) setPermits(w *permitsWorld) {
	p.pipe.FlushAll(p.Context())
	for i, n := range w.slots {
		p.put(threeSlot(i), n.lock, n.lockTTL, n.lockOdd)
	}
	p.put(threeQueue, p.text(w.line.queue), w.line.queueTTL, w.line.queueOdd)
}

// doPermits plays an action. The failure names from if the node does not do what the reference says.
func (p *play) doPermits(w *permitsWorld, a permitsAction, from string) {
	c := p.Context()
	reply := p.pipe.Do(c, a.command.InFull()...)
	want := a.expect(w)
	after := *w
	after.line.queue = slices.Clone(after.line.queue)
	p.pipe.Publish(c, script.ProcessOf(us).Channel(), "end")
	state := p.pipe.Eval(c, dump, []string{threeSlot(0), threeSlot(1), threeSlot(2), threeQueue})
	p.checks = append(p.checks, func(messages []string) {
		if wrong := p.permitsDiffer(a, want, reply, after, state, messages); wrong != "" {
			p.Fatalf("%s\n%s\nfrom %s", wrong, a.what, from)
		}
	})
}

// permitsDiffer says how the node differs from the reference, "" if it does not.
func (p *play) permitsDiffer(a permitsAction, want expected, reply *redis.Cmd, after permitsWorld, state *redis.Cmd, messages []string) string {
	if wrong := want.differs(a.parse, reply, messages); wrong != "" {
		return wrong
	}
	values := state.Val().([]any)
	for i, n := range after.slots {
		if wrong := differs(values[2*i:], n.lock, n.lockTTL, n.lockOdd); wrong != "" {
			return fmt.Sprintf("slot %d: %s", i, wrong)
		}
	}
	if wrong := p.queueDiffers(values[6:], after.line); wrong != "" {
		return "queue " + wrong
	}
	return ""
}

func anyPermitsWorld(r *rand.Rand) *permitsWorld {
	w := &permitsWorld{}
	for i := range w.slots {
		switch n := &w.slots[i]; r.IntN(9) {
		case 0, 1:
			n.lock, n.lockTTL = "v", pick[int64](r, worldTTL/2, 2*worldTTL, -1)
		case 2, 3, 4:
			n.lock, n.lockTTL = "w", pick[int64](r, worldTTL/4, worldTTL/2, 2*worldTTL, -1)
		case 5:
			n.lockOdd = r.IntN(2) == 0
		}
	}
	for _, t := range some(r, worldTickets) {
		w.line.queue = append(w.line.queue, worldWaiter{t, pick(r, worldDead, 3*worldAlive, 5*worldAlive), false})
		w.line.queueTTL = pick[int64](r, 150_000, 400_000)
	}
	if r.IntN(20) == 0 {
		w.line = worldName{queueOdd: true}
	}
	return w
}

func anySlots(r *rand.Rand) (set script.Slots) { return slots(some(r, []int{0, 1, 2})...) }

func anyPermitsAction(r *rand.Rand) permitsAction {
	value, process := pick(r, "v", "v", "w", "x"), pick(r, us, they, "")
	switch r.IntN(8) {
	case 0, 1:
		e := entering{wants(pick(r, 1, 1, 2, 3), r.IntN(3)), value, pick(r, append([]string{"", ""}, worldTickets...)...), r.IntN(2) == 0}
		e.Order.Front = anySlots(r)
		return e.action()
	case 2:
		s := resting{turning{value: value, process: process, quiet: r.IntN(6) == 0}, anySlots(r), max(anyRest(r), worldTTL/5)}
		if s.slots.Len() < 2 {
			s.slots = slots(0, 2)
		}
		if !s.quiet {
			s.leave = some(r, worldTickets)
			if r.IntN(3) == 0 {
				s.enters = pick(r, worldTickets...)
			}
		}
		return s.action()
	case 3, 4:
		g := giving{turning: turning{value: value, process: process, quiet: r.IntN(6) == 0}, gives: slots(0, 1, 2), weight: 1 + r.IntN(3)}
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
		return g.action()
	case 5, 6:
		l := leave{names: []int{0}, value: value, process: process, quiet: r.IntN(6) == 0, all: some(r, worldTickets), rest: anyRest(r)}
		if r.IntN(3) == 0 {
			l.enters, l.leaves = []string{pick(r, worldTickets...)}, [][]string{nil}
		}
		return givingOne{l, r.IntN(3)}.action()
	}
	return lookAt(look{pick(r, []int{r.IntN(3)}, []int{0, 1}, []int{1, 2}, []int{0, 1, 2}), value, pick(r, "extend", "heal", "valid")})
}

// TestPermitScriptsDoWhatTheReferenceSays plays commands of permits, and of locks on their slots, on nodes of both kinds.
func TestPermitScriptsDoWhatTheReferenceSays(t *testing.T) {
	onBoth(t, func(g ground) {
		for seed := range testlength.InGate(5, 20, 40, 4000) {
			r := rand.New(rand.NewPCG(uint64(seed), 2)) //nolint:gosec // it is to be repeatable
			p := g.play()
			for range 10 {
				w := anyPermitsWorld(r)
				p.setPermits(w)
				for range 6 {
					p.doPermits(w, anyPermitsAction(r), fmt.Sprintf("seed %d: %+v", seed, *w))
				}
			}
			p.end()
		}
	})
}
