package claim

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/jitter"
	"github.com/seed14bd9ef4/redsync/internal/script"
)

// A Permits is the claim of a lease that tries to acquire permits. Each permit is a slot on every node: a key that one
// lease at a time can set. A lease needs the same slots on a quorum: otherwise each node might have a free slot,
// although every slot is held on some quorum. A lease that has won has a Permit.
type Permits struct {
	*semaphore
	value any // a string
	asks  script.Entering
	usual atomic.Pointer[Detail] // see readAlike
	won   Permit                 // room for what the lease wins
}

// A semaphore is what the claims of one Mutex have in common.
type semaphore struct {
	*script.Semaphore
	weight   int // permits of a lease
	lines    []string
	nextAsks atomic.Pointer[script.Entering] // what the next attempt asks for; nil at first
}

// NewPermits returns a claim without a value. To send it, n must be 1 to script.MaxPermits, and weight 1 to n.
func NewPermits(name string, n, weight int) *Permits {
	s := script.NewSemaphore(name, n)
	return &Permits{semaphore: &semaphore{Semaphore: s, weight: weight, lines: []string{s.Queue()}}, value: ""}
}

// Lines implements Claim.
func (s *semaphore) Lines() []string { return s.lines }

// Shares implements Claim.
func (s *semaphore) Shares() bool { return false }

// HoldsAlone implements Claim.
func (s *semaphore) HoldsAlone() bool { return false }

// PassesTo implements Claim.
func (s *semaphore) PassesTo(Claim) bool { return false }

// With implements Claim. All nodes try the slots in one order, so those with the same free slots grant the same.
func (p *Permits) With(value string, _ *Room) Claim {
	if e := p.nextAsks.Load(); e != nil {
		return &Permits{semaphore: p.semaphore, value: value, asks: *e}
	}
	return &Permits{semaphore: p.semaphore, value: value, asks: p.asksAny()}
}

// asksAny asks for free slots, in cyclic order from a random one on.
func (s *semaphore) asksAny() script.Entering {
	return script.Entering{Wants: s.weight, Order: script.Order{First: jitter.Int(s.Permits())}}
}

func (s *semaphore) askNext(e script.Entering) {
	if next := s.nextAsks.Load(); next == nil || *next != e {
		stored := e // &e would allocate in each call
		s.nextAsks.Store(&stored)
	}
}

// Value implements Claim.
func (p *Permits) Value() string { return p.value.(string) }

// Acquire implements Claim.
func (p *Permits) Acquire(ttl time.Duration, at script.Place, _ script.Fence) Call {
	command := script.EnterPermits(p.Semaphore, p.value, ttl.Milliseconds(), p.asks, at)
	if at.Ticket.IsZero() {
		return Call{command, p.readAlike}
	}
	return Call{command, p.read}
}

func (p *Permits) read(reply any) (Answer, error) {
	entered, err := p.asks.Parse(reply, p.Permits())
	if err != nil {
		return Answer{}, err
	}
	return p.answer(entered, detailOf(entered)), nil
}

// readAlike is read without a ticket. Equal answers share a Detail, which must not change.
func (p *Permits) readAlike(reply any) (Answer, error) {
	entered, err := p.asks.Parse(reply, p.Permits())
	if err != nil {
		return Answer{}, err
	}
	d := p.usual.Load()
	if d == nil || *d.Own.(*script.EnteredPermits) != entered {
		d = detailOf(entered)
		p.usual.Store(d)
	}
	return p.answer(entered, d), nil
}

func detailOf(entered script.EnteredPermits) *Detail {
	d := &struct { // one allocation for both
		Detail
		own script.EnteredPermits
	}{Detail{Wait: Never, WasThere: entered.WasThere}, entered}
	d.Own = &d.own
	if entered.Wait > 0 {
		d.Wait = script.DurationOf(entered.Wait)
	}
	return &d.Detail
}

func (p *Permits) answer(entered script.EnteredPermits, d *Detail) Answer {
	if entered.Granted && entered.Slots.Len() == p.weight {
		return Answer{Found: Mine, Detail: d}
	}
	return Answer{Found: Other, Detail: d}
}

func (s *semaphore) allSlots() script.Slots { return s.AllBut(script.Slots{}) }

// AcquireAgain implements Claim.
func (p *Permits) AcquireAgain(ttl time.Duration, at script.Place, f script.Fence, _ bool) Call {
	return p.Acquire(ttl, at, f)
}

// Extend is for the interface, because a lease that has won has a Permit. It sets no slot.
func (p *Permits) Extend(ttl time.Duration, _ bool) Call {
	return p.Of(p.allSlots()).Extend(ttl, false)
}

// Fill implements Claim.
func (p *Permits) Fill(ttl time.Duration) Call { return p.Extend(ttl, false) }

// Check implements Claim.
func (p *Permits) Check() Call { return p.Of(p.allSlots()).Check() }

// Release implements Claim.
func (p *Permits) Release(process script.Process, t script.Turnover, _ script.Fence) Call {
	return Call{script.ReleaseSlots(p.Semaphore, p.value, p.weight, p.allSlots(), script.Slots{}, process, t), readFound}
}

// Of returns the claim of a lease that has won slots.
func (p *Permits) Of(slots script.Slots) *Permit {
	w := p.of(slots)
	return &w
}

func (p *Permits) of(slots script.Slots) Permit {
	return Permit{Permits: p, slots: slots, keys: p.Keys(slots)}
}

// A Permit is the claim of a lease that has won these slots. Several slots are handled as a lock on several names.
type Permit struct {
	*Permits // the claim that has acquired it
	slots    script.Slots
	keys     []any // of the slots
}

// Slots returns the slots of the lease.
func (w *Permit) Slots() script.Slots { return w.slots }

func (w *Permit) isOne() bool { return len(w.keys) == 1 }

func (w *Permit) lock() script.Lock { return w.Lock(w.keys, w.value) }

func (w *Permit) reads(c script.Command) Call {
	if w.isOne() {
		return Call{c, readFound}
	}
	return Call{c, readFoundAll}
}

// With implements Claim.
func (w *Permit) With(value string, room *Room) Claim {
	return w.Permits.With(value, room).(*Permits).Of(w.slots) //nolint:forcetypeassert // it is what With returns
}

// PassesTo implements Claim.
func (w *Permit) PassesTo(other Claim) bool {
	o, same := other.(*Permits)
	return same && o.Name() == w.Name() && o.Permits() == w.Permits.Permits() && o.weight == w.weight
}

// Extend implements Claim.
func (w *Permit) Extend(ttl time.Duration, heal bool) Call {
	return w.reads(script.Extend(w.lock(), ttl.Milliseconds(), heal))
}

// Fill implements Claim.
func (w *Permit) Fill(ttl time.Duration) Call { return w.Extend(ttl, true) }

// Check implements Claim.
func (w *Permit) Check() Call { return w.reads(script.Valid(w.lock())) }

// Release implements Claim.
func (w *Permit) Release(process script.Process, t script.Turnover, _ script.Fence) Call {
	if w.isOne() {
		return w.reads(script.Release(w.lock(), process, t, script.Fence{}))
	}
	return w.reads(script.ReleaseSlots(w.Semaphore, w.value, w.weight, w.slots, script.Slots{}, process, t))
}

// Shorten implements Shortener.
func (w *Permit) Shorten(rest time.Duration, process script.Process, t script.Turnover, _ script.Fence) Call {
	return w.reads(script.Shorten(w.lock(), rest.Milliseconds(), process, t, script.Fence{}))
}

// IsSurplus implements Winner.
func (w *Permit) IsSurplus(a Answer) bool {
	entered, answered := a.Details().Own.(*script.EnteredPermits)
	return w.slots.Len() < w.Semaphore.Permits() && (!answered || entered.Granted && entered.Slots != w.slots)
}

// Surplus implements Winner.
func (w *Permit) Surplus() Claim { return &surplus{w} }

// A surplus is what nodes have granted beyond a Permit. Only its Release is used.
type surplus struct{ *Permit }

// Release implements Claim.
func (s *surplus) Release(process script.Process, t script.Turnover, _ script.Fence) Call {
	return Call{script.ReleaseSlots(s.Semaphore, s.value, s.weight, s.AllBut(s.slots), s.slots, process, t), readFound}
}

// Tally implements Tallier.
func (p *Permits) Tally(r Rule) Tally {
	t := &permitTally{rule: r, permits: p}
	t.groups, t.free = t.roomOfGroups[:0], t.roomOfFree[:0]
	return t
}

// A permitTally adds up grants of slots.
type permitTally struct {
	rule    Rule
	permits *Permits
	count   Count
	groups  []slotGroup // of nodes that have granted; the biggest comes first
	free    []freeSlots // in the order of the answers

	roomOfGroups [1]slotGroup
	roomOfFree   [UsualNodes]freeSlots
}

// A slotGroup is the nodes that have granted these slots.
type slotGroup struct {
	slots script.Slots
	nodes Nodes
}

// A freeSlots is what a node has called free.
type freeSlots struct {
	slots script.Slots
	node  int
}

// Add implements Tally.
func (t *permitTally) Add(i int, v Vote) {
	t.count = t.count.With(i, v.Choice)
	if entered, answered := v.Answer.Details().Own.(*script.EnteredPermits); answered {
		if v.Choice == Granted {
			t.addGrant(i, entered.Slots)
		}
		t.free = append(t.free, freeSlots{entered.Free, i})
	}
	if s := t.Standing(); s.Decided() || s.Explained { // when explained, a round may be given up: no vote follows then
		t.permits.askNext(t.nextAsks(s.Won))
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

// nextAsks asks first for the slots of this attempt if it has won, else for slots that are free on a quorum.
func (t *permitTally) nextAsks(won bool) script.Entering {
	e := t.permits.asksAny()
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

// freeTogether returns enough slots that are all free on each node of some quorum among these nodes, or none. Free on a
// quorum each is not enough: three nodes that each lack another of three slots always grant different pairs.
func (t *permitTally) freeTogether(among Nodes) script.Slots {
	steps := 0
	// search adds nodes to those chosen until they are a quorum. slots are free on all of these.
	var search func(nodes []freeSlots, chosen Nodes, slots script.Slots) script.Slots
	search = func(nodes []freeSlots, chosen Nodes, slots script.Slots) script.Slots {
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
			if !among.Has(n.node) || both.Len() < t.permits.weight {
				continue
			}
			if found := search(nodes[i+1:], chosen.With(n.node), both); found != (script.Slots{}) {
				return found
			}
		}
		return script.Slots{}
	}
	return search(t.free, 0, script.Slots{})
}

// maxSearch limits the steps of freeTogether, which then finds nothing. Nine nodes have only 126 quorums of five.
const maxSearch = 10_000

// Standing implements Tally. It judges the groups that there are: a later one has even fewer nodes left.
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
	p := t.permits
	p.won = p.of(t.groups[t.chosen()].slots)
	p.usual.Store(nil) // p lasts as long as the hold
	return &p.won
}

// chosen returns the index of the group that has won, or else of the biggest. With several sets these can differ.
func (t *permitTally) chosen() int {
	return max(0, slices.IndexFunc(t.groups, func(g slotGroup) bool { return t.rule.Quorum(g.nodes) }))
}

// MayWinAtOnce implements LateTally: slots are free together on a quorum of nodes that have granted. The next attempt
// tries those first: they are free already, so nobody would wake a caller that waited. Nodes that have refused do not
// count: another waiter may lead their queues, and the caller would try in vain until that one has left.
func (t *permitTally) MayWinAtOnce() bool { return t.freeTogether(t.count.Granted) != (script.Slots{}) }

// Astray implements LateTally.
func (t *permitTally) Astray() (nodes Nodes) {
	chosen := t.chosen()
	for i, g := range t.groups {
		if i != chosen {
			nodes |= g.nodes
		}
	}
	return nodes
}
