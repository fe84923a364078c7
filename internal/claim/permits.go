package claim

import (
	"math/bits"
	"slices"
	"sync/atomic"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/jitter"
	"github.com/seed14bd9ef4/redsync/internal/script"
)

// A Permits is the claim of some permits of a semaphore: so many leases have it at a time as there are permits. Each
// permit is a slot on every node, and a node grants slots that are free there. A lease has the permits if a quorum of
// nodes has granted the same slots. Counting would not do: if each node counted its grants, a quorum of N/2 + 1 of N
// nodes could be had for more leases than there are permits.
//
// Which slots a lease has is known when it has won: from then on its claim is a Permit.
type Permits struct {
	*semaphore
	value  any // a string
	enters script.Entering
}

// A semaphore is what the claims of one Mutex have in common.
type semaphore struct {
	*script.Semaphore
	weight int // how many permits a lease has
	lines  []string
	next   atomic.Pointer[script.Entering] // what the next attempt asks for; nil if no attempt was made
}

// NewPermits returns the claim of weight permits of a semaphore with n permits. It has no value yet. A claim that is
// sent to a node must have 1 to script.MaxPermits permits, and a weight from 1 to n.
func NewPermits(name string, n, weight int) *Permits {
	s := script.NewSemaphore(name, n)
	return &Permits{semaphore: &semaphore{Semaphore: s, weight: weight, lines: []string{s.Queue()}}, value: ""}
}

// Weight returns how many permits a lease has.
func (s *semaphore) Weight() int { return s.weight }

// Lines implements Claim. All who want permits of a semaphore stand in one line.
func (s *semaphore) Lines() []string { return s.lines }

// Shares implements Claim.
func (s *semaphore) Shares() bool { return false }

// HoldsAlone implements Claim.
func (s *semaphore) HoldsAlone() bool { return false }

// PassesTo implements Claim.
func (s *semaphore) PassesTo(Claim) bool { return false }

// With implements Claim. Nodes that agree on who has which slots grant the same slots, because all try them in the
// same order.
func (p *Permits) With(value string, _ *Room) Claim {
	if e := p.next.Load(); e != nil {
		return &Permits{p.semaphore, value, *e}
	}
	return &Permits{p.semaphore, value, p.enter()}
}

// enter returns what an attempt asks for that knows nothing: a free slot, in cyclic order from a random one on.
func (s *semaphore) enter() script.Entering {
	return script.Entering{Wants: s.weight, Order: script.Order{First: jitter.Int(s.Permits())}}
}

// Value implements Claim.
func (p *Permits) Value() string { return p.value.(string) }

// Acquire implements Claim.
func (p *Permits) Acquire(ttl time.Duration, at script.Place, _ script.Fence) Call {
	return Call{script.EnterPermits(p.Semaphore, p.value, ttl.Milliseconds(), p.enters, at), p.read}
}

// read reads the reply of enter_permits.lua. The Own of the answer is a script.EnteredPermits.
func (p *Permits) read(reply any) (Answer, error) {
	entered, err := p.enters.Parse(reply, p.Permits())
	if err != nil {
		return Answer{}, err
	}
	d := &Detail{Wait: Never, WasThere: entered.WasThere, Own: entered}
	if entered.Granted && entered.Slots.Len() == p.weight {
		return Answer{Found: Mine, Detail: d}, nil
	}
	if entered.Wait > 0 {
		d.Wait = time.Duration(entered.Wait) * time.Millisecond
	}
	return Answer{Found: Other, Detail: d}, nil
}

// Extend implements Claim. A Permits is replaced before it is extended. It does not know which slots it has. So a node
// has the claim only if it has all slots, and sets none.
func (p *Permits) Extend(ttl time.Duration, _ bool) Call {
	return p.Of(p.AllBut(script.Slots{})).Extend(ttl, false)
}

// Check implements Claim. See Extend.
func (p *Permits) Check() Call { return p.Of(p.AllBut(script.Slots{})).Check() }

// Release implements Claim. It gives back all slots that have the value.
func (p *Permits) Release(process script.Process, t script.Turnover, _ script.Fence) Call {
	return Call{script.ReleaseSlots(p.Semaphore, p.value, p.weight, p.AllBut(script.Slots{}), script.Slots{}, process, t), readFound}
}

// ReleaseQuietly implements Claim.
func (p *Permits) ReleaseQuietly(script.Fence) Call {
	return Call{script.ReleaseSlotsQuietly(p.Semaphore, p.value, p.weight, p.AllBut(script.Slots{})), readFound}
}

// Of returns the claim of a lease that has these slots and the value of p.
func (p *Permits) Of(slots script.Slots) *Permit {
	w := &Permit{Permits: p, slots: slots}
	if slots.Len() == 1 {
		for slot := range slots.All() {
			w.lock = p.Lock(slot, p.value)
		}
		return w
	}
	w.locks = p.Multi(slots, p.Value())
	return w
}

// A Permit is the claim of a lease that has won permits: the slots that it has.
type Permit struct {
	*Permits // by which it was acquired
	slots    script.Slots
	lock     script.Lock  // of the slot, if it is one
	locks    script.Multi // of the slots, if they are several
}

// Slots returns the slots.
func (w *Permit) Slots() script.Slots { return w.slots }

func (w *Permit) isOne() bool { return w.lock != script.Lock{} }

// With implements Claim.
func (w *Permit) With(value string, room *Room) Claim {
	return w.Permits.With(value, room).(*Permits).Of(w.slots) //nolint:forcetypeassert // it is what With returns
}

// PassesTo implements Claim. A lease may be handed over to a waiter for as many of the same permits.
func (w *Permit) PassesTo(other Claim) bool {
	o, same := other.(*Permits)
	return same && o.Name() == w.Name() && o.Permits() == w.Permits.Permits() && o.weight == w.weight
}

// Extend implements Claim. A node extends all slots or none.
func (w *Permit) Extend(ttl time.Duration, heal bool) Call {
	ms := ttl.Milliseconds()
	switch {
	case w.isOne() && heal:
		return Call{script.Heal(w.lock, ms), readFound}
	case w.isOne():
		return Call{script.Extend(w.lock, ms), readFound}
	case heal:
		return Call{script.HealMulti(w.locks, ms), readFoundAll}
	}
	return Call{script.ExtendMulti(w.locks, ms), readFoundAll}
}

// Check implements Claim.
func (w *Permit) Check() Call {
	if w.isOne() {
		return Call{script.Valid(w.lock), readFound}
	}
	return Call{script.ValidMulti(w.locks), readFoundAll}
}

// Release implements Claim.
func (w *Permit) Release(process script.Process, t script.Turnover, _ script.Fence) Call {
	if w.isOne() {
		return Call{script.ReleaseSlot(w.Semaphore, w.lock, process, t), readFound}
	}
	return Call{script.ReleaseSlots(w.Semaphore, w.value, w.weight, w.slots, script.Slots{}, process, t), readFoundAll}
}

// ReleaseQuietly implements Claim.
func (w *Permit) ReleaseQuietly(f script.Fence) Call {
	if w.isOne() {
		return Call{script.ReleaseQuietly(w.lock, f), readFound}
	}
	return Call{script.ReleaseSlotsQuietly(w.Semaphore, w.value, w.weight, w.slots), readFoundAll}
}

// IsSurplus implements Winner. A lease that has all permits can have nothing beyond them.
func (w *Permit) IsSurplus(a Answer) bool {
	entered, answered := a.Details().Own.(script.EnteredPermits)
	return w.slots.Len() < w.Semaphore.Permits() && (!answered || entered.Granted && entered.Slots != w.slots)
}

// Surplus implements Winner.
func (w *Permit) Surplus() Claim { return &surplus{w} }

// A surplus is the claim of the slots that nodes have granted to a lease beyond those that it has won. Only its
// releases are used: they give back all slots but those.
type surplus struct{ *Permit }

// Release implements Claim.
func (s *surplus) Release(process script.Process, t script.Turnover, _ script.Fence) Call {
	return Call{script.ReleaseSlots(s.Semaphore, s.value, s.weight, s.AllBut(s.slots), s.slots, process, t), readFound}
}

// ReleaseQuietly implements Claim.
func (s *surplus) ReleaseQuietly(script.Fence) Call {
	return Call{script.ReleaseSlotsQuietly(s.Semaphore, s.value, s.weight, s.AllBut(s.slots)), readFound}
}

// Tally implements Tallier.
func (p *Permits) Tally(r Rule) Tally {
	t := &permitTally{rule: r, permits: p}
	t.groups, t.free = t.roomOfGroups[:0], t.roomOfFree[:0]
	return t
}

// A permitTally adds up the votes of nodes that grant slots. A quorum must have granted the same.
type permitTally struct {
	rule    Rule
	permits *Permits
	count   Count
	groups  []slotGroup // the largest comes first
	free    []slotGroup // by node: the slots that were free there, as far as the node has said

	roomOfGroups [1]slotGroup
	roomOfFree   [UsualNodes]slotGroup
}

// A slotGroup is some slots, and the nodes that have granted them, or the node on which they were free.
type slotGroup struct {
	slots script.Slots
	nodes Nodes
}

// node returns the only node.
func (g slotGroup) node() int { return bits.TrailingZeros64(uint64(g.nodes)) }

// Add implements Tally.
func (t *permitTally) Add(i int, v Vote) {
	t.count = t.count.With(i, v.Choice)
	if entered, answered := v.Answer.Details().Own.(script.EnteredPermits); answered {
		if v.Choice == Granted {
			t.addGrant(i, entered.Slots)
		}
		t.free = append(t.free, slotGroup{entered.Free, Nodes(0).With(i)})
	}
	if s := t.Standing(); s.Decided() {
		next := t.next(s.Won)
		t.permits.next.Store(&next)
	}
}

func (t *permitTally) addGrant(i int, slots script.Slots) {
	at := slices.IndexFunc(t.groups, func(g slotGroup) bool { return g.slots == slots })
	if at < 0 {
		at = len(t.groups)
		t.groups = append(t.groups, slotGroup{slots: slots})
	}
	t.groups[at].nodes = t.groups[at].nodes.With(i)
	for ; at > 0 && t.groups[at].nodes.Len() > t.groups[at-1].nodes.Len(); at-- {
		t.groups[at], t.groups[at-1] = t.groups[at-1], t.groups[at]
	}
}

// next returns what the next attempt asks for. After a success it prefers the slots that this one had. After a
// failure it prefers slots that are free together on a quorum of nodes, as far as these have said.
func (t *permitTally) next(won bool) script.Entering {
	e := t.permits.enter()
	if won {
		for slot := range t.groups[t.chosen()].slots.All() {
			e.Order.First = slot
			break
		}
		return e
	}
	e.Order.Front = t.freeTogether(t.count.Answered())
	return e
}

// freeTogether returns slots, as many as a lease has or more, that were all free on each node of one quorum among some
// nodes, as far as these have said. It returns none if there are none. That each slot is free on some quorum is not
// enough: if a lease wants two of three slots, and three nodes lack a different one each, they grant three different
// pairs, again and again.
func (t *permitTally) freeTogether(among Nodes) script.Slots {
	steps := 0
	var search func(nodes []slotGroup, chosen Nodes, slots script.Slots) script.Slots
	search = func(nodes []slotGroup, chosen Nodes, slots script.Slots) script.Slots {
		if t.rule.Quorum(chosen) {
			return slots
		}
		for i, n := range nodes {
			if steps++; steps > maxSearch {
				break
			}
			both := n.slots
			if chosen != 0 {
				both = slots.And(n.slots)
			}
			if !among.Has(n.node()) || both.Len() < t.permits.weight {
				continue
			}
			if found := search(nodes[i+1:], chosen|n.nodes, both); found != (script.Slots{}) {
				return found
			}
		}
		return script.Slots{}
	}
	return search(t.free, 0, script.Slots{})
}

// maxSearch bounds the search for a quorum: nine nodes have 126 of five.
const maxSearch = 10_000

// Standing implements Tally.
func (t *permitTally) Standing() Standing {
	s := t.rule.Standing(t.count)
	s.Won = false
	if len(t.groups) == 0 {
		return s
	}
	s.Blocked, s.Rejected = true, true
	answered, voted := t.count.Answered(), t.count.Voted()
	for _, g := range t.groups {
		s.Won = s.Won || t.rule.Quorum(g.nodes)
		s.Blocked = s.Blocked && t.rule.Blocks(voted&^g.nodes)
		s.Rejected = s.Rejected && t.rule.Blocks(answered&^g.nodes)
	}
	return s
}

// Won implements LateTally.
func (t *permitTally) Won() Winner {
	return t.permits.Of(t.groups[t.chosen()].slots)
}

// chosen returns the index of the group that has won, or of the largest if none has. By the rule of joint sets, a group
// that has won may be smaller than another.
func (t *permitTally) chosen() int {
	return max(0, slices.IndexFunc(t.groups, func(g slotGroup) bool { return t.rule.Quorum(g.nodes) }))
}

// MayWinAtOnce implements LateTally. It is so if a quorum of nodes has granted different slots, and others are free
// together on a quorum of these nodes, which the next attempt then prefers. Nobody would tell the caller: this needs no
// rival. For example, some holders may have won without two of five nodes, on which others have their slots. Nodes that
// have refused do not count: with them the caller could try for ever while another's ticket leads their queues.
func (t *permitTally) MayWinAtOnce() bool { return t.freeTogether(t.count.Granted) != (script.Slots{}) }

// Astray implements LateTally. If rivals take slots at the same time, or nodes differ in which slots are free, they
// grant different slots.
func (t *permitTally) Astray() (nodes Nodes) {
	chosen := t.chosen()
	for i, g := range t.groups {
		if i != chosen {
			nodes |= g.nodes
		}
	}
	return nodes
}
