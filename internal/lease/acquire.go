package lease

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/quorum"
	"github.com/seed14bd9ef4/redsync/internal/script"
	"github.com/seed14bd9ef4/redsync/internal/wire"
)

// shortExpiry is the least expiry half of which is usually enough to open a connection. With less, the attempt begins
// after a PING.
const shortExpiry = 100 * time.Millisecond

// connecting bounds that PING, as with an expiry of 8 s.
var connecting = quorum.Limits{
	Decide: 400 * time.Millisecond, Node: 400 * time.Millisecond, Open: 4 * time.Second, Reach: time.Second, Far: 750 * time.Millisecond,
}

// Acquire makes one attempt. Its validity counts from start, and at is its place in the queues. turn, which may be nil,
// is told what nodes answer. Unless the attempt is Won, the caller releases what the lease may have left. The lease is
// nil if nothing was sent for it.
func Acquire(ctx context.Context, t *Terms, start clock.Instant, try int, at script.Place, turn Turn) (*Lease, Outcome) {
	value, err := t.newValue(start)
	if err != nil {
		return nil, Outcome{Kind: Unusable, Err: err}
	}
	start, limits, failed := meetNodes(ctx, t, start)
	if failed != nil {
		return nil, *failed
	}
	l := New(t, value, start)
	l.Try = int32(try) //nolint:gosec // few
	l.needRare(at, turn)
	if t.UserValues && !l.mayUse(ctx, limits) {
		return nil, t.takenHere()
	}
	op := (*acquire)(l)
	if t.Fencing {
		op.rare.fence = fence(t.Keeper.Tokens.proposal(t.Claim.Lines(), start)).Kept()
	}
	set, waitAll, within := t.Keeper.Set, t.WaitAll, limits
	first := set.FirstToIdentify()
	if first && !waitAll {
		waitAll, within.Node = true, quorum.IdentifyTimeout(ctx, limits.Node)
	}
	res := set.Start(ctx, op, waitAll).Wait(ctx, within)
	if first && !res.Won && ctx.Err() == nil {
		set.IdentifyLater() // a failed attempt keeps others from the nodes that have granted
	}
	touched := touches(&res)
	if t.Fencing {
		res, touched = op.catchUp(ctx, limits, res, touched)
	}
	o := l.outcome(res, op.rare.fence.Token)
	o.Touched = touched
	return l, o
}

// meetNodes asks the nodes first, where an attempt needs to know them, and returns from when its validity counts.
func meetNodes(ctx context.Context, t *Terms, start clock.Instant) (clock.Instant, quorum.Limits, *Outcome) {
	set, limits := t.Keeper.Set, t.Timing.limits()
	// Two nodes of joint sets may be one server, which then counts in neither set.
	if !set.IsIdentified() && set.Identify(ctx, t.Timing.NodeTimeout) {
		start = clock.Now()
	}
	if t.Timing.Expiry < shortExpiry && !set.HasOpenQuorum() {
		res := set.Start(ctx, quorum.Ping{}, false).Wait(ctx, connecting)
		if !res.Won && !slices.ContainsFunc(res.Votes, func(v claim.Vote) bool { return wire.IsRefusal(v.Err) }) {
			return start, limits, &Outcome{Kind: NotWon, Result: res, Lines: t.Claim.Lines()}
		}
		start = clock.Now()
	}
	if _, guard := set.Guard(); guard != 0 && t.Fencing {
		// Tokens stay in order only if a proposal is no older than margin says.
		if !set.IsOpen() {
			set.Start(ctx, quorum.Ping{}, false).Wait(ctx, limits)
			start = clock.Now()
		}
		limits.Open = 0
	}
	if set.Duplicate() != nil {
		if d := stillDuplicate(ctx, t); d != nil {
			return start, limits, &Outcome{Kind: Duplicates, Duplicate: d}
		}
		start = clock.Now()
	}
	return start, limits, nil
}

// catchUp repeats an attempt whose token was behind a register, with a higher one.
func (a *acquire) catchUp(ctx context.Context, limits quorum.Limits, res quorum.Result, touched bool) (quorum.Result, bool) {
	t, l := a.terms, (*Lease)(a)
	for range maxCatchUps {
		if ctx.Err() != nil || l.NotHeld(clock.Now()) != nil {
			break
		}
		next := a.beyondRegisters(res, t.Keeper.Tokens.highest(t.Claim.Lines()))
		if next == 0 {
			break
		}
		a.rare.far.Store(0)
		a.rare.fence = fence(next).Kept()
		res = t.Keeper.Set.Start(ctx, a, t.WaitAll).Wait(ctx, limits)
		touched = touched || touches(&res)
	}
	return res, touched
}

// touches reports whether a node has granted the lock, even if its grant does not count.
func touches(res *quorum.Result) bool {
	return res.Count.Granted != 0 ||
		slices.ContainsFunc(res.Votes, func(v claim.Vote) bool { return v.Answer.Found == claim.Mine })
}

// stillDuplicate asks again, because an address may lead to another server by now.
func stillDuplicate(ctx context.Context, t *Terms) *quorum.Duplicate {
	set := t.Keeper.Set
	set.Forget()
	set.Start(ctx, quorum.Ping{}, true).Wait(ctx, t.Timing.limits())
	return set.Duplicate()
}

func (l *Lease) outcome(res quorum.Result, proposal uint64) Outcome {
	o := Outcome{Kind: NotWon, Result: res, Lines: l.terms.Claim.Lines()}
	switch d := l.terms.Keeper.Set.Duplicate(); {
	case d != nil:
		o.Kind, o.Duplicate = Duplicates, d
	case res.Won && l.NotHeld(clock.Now()) == nil:
		o.Kind = Won
		if t, ok := res.Tally.(claim.LateTally); ok {
			won := t.Won()
			l.Replace(won)
			l.keepOnly(won)
		}
		if proposal != 0 {
			l.takeToken(proposal)
		}
	case res.Won:
		o.Kind = Late
		o.Validity = l.validity.Length
	}
	return o
}

func (l *Lease) keepOnly(won claim.Winner) {
	nodes, others := l.rare.surplus.wins(won)
	for i := range l.writes.nodes {
		if others.Has(i) {
			l.refusedBy(i)
		}
	}
	if nodes != 0 {
		l.giveBack(won, nodes)
	}
}

func (l *Lease) needRare(at script.Place, turn Turn) {
	switch _, tallies := l.claim.(claim.Tallier); {
	case tallies:
		l.rare = rareWithSurplus(len(l.writes.nodes))
	case turn != nil:
		l.rare = &turn.Room().rareLease
	case l.terms.Fencing || at != (script.Place{}):
		l.rare = &rareLease{}
	default:
		return
	}
	l.rare.place, l.rare.turn = at, turn
}

// rareWithSurplus is for a claim.Tallier on n nodes. Of other claims a node grants all, or nothing.
func rareWithSurplus(n int) *rareLease {
	type both struct {
		rareLease
		room surplus
	}
	s, early, _ := claim.WithRoom[both, claim.Answer, struct{}](n)
	s.surplus, s.room.early = &s.room, early
	return &s.rareLease
}

// An acquire is the operation that sets a lease's value: the lease itself, which saves an allocation.
type acquire Lease

var _ interface {
	quorum.Operation
	quorum.Fallback
	quorum.Guarded
	quorum.Recorder
	quorum.Repeater
	quorum.Timed
	quorum.Waiter
	claim.Tallier
} = (*acquire)(nil)

// Brief sets Explain, to tell a taken lock from nodes that are down.
func (a *acquire) Brief() quorum.Brief {
	l := (*Lease)(a)
	c := l.Claim()
	b := l.terms.brief(quorum.Lock, a.call(c, a.rare.place))
	b.Explain, b.Purpose = true, quorum.Granting
	b.Patient = a.rare.turn != nil && a.rare.turn.IsPatient()
	if !a.rare.place.Ticket.IsZero() {
		b.Purpose = quorum.Queueing
	}
	_, b.Tallies = c.(claim.Tallier)
	return b
}

func (a *acquire) Tally(r claim.Rule) claim.Tally {
	return (*Lease)(a).Claim().(claim.Tallier).Tally(r)
}

func (a *acquire) call(c claim.Claim, at script.Place) claim.Call {
	timing := &a.terms.Timing
	ttl, _ := timing.AtAge(0)
	return c.Acquire(max(ttl, timing.MinHold), at, a.rare.fence)
}

// Repeat accepts only a free claim if a user has made the value, which may be another lease's.
func (a *acquire) Repeat() (claim.Call, bool) {
	timing := &a.terms.Timing
	ttl, _ := timing.AtAge(0)
	return (*Lease)(a).Claim().AcquireAgain(max(ttl, timing.MinHold), a.rare.place, a.rare.fence, !a.terms.UserValues), true
}

// CanDoWithout lets a reader without a ticket in, although the node denies it the queue. The other nodes look there.
func (a *acquire) CanDoWithout() bool {
	return a.terms.Claim.Shares() && a.rare.place.Ticket.IsZero()
}

func (a *acquire) Lacks(i int) bool { return a.terms.lacksQueue(i) }

func (a *acquire) Without() claim.Call { return a.call((*Lease)(a).Claim(), script.Place{Blind: true}) }

func (a *acquire) Began() time.Duration { return a.First.Mono }

func (a *acquire) Sending(i int) {
	if u := a.rare.use; u != nil {
		u.sending(i)
	}
	a.writes.sending(i)
}

func (a *acquire) Unsent(i int) {
	a.writes.unsent(i)
	a.rare.use.ended(i, wire.NotSent)
}

// MayWait keeps the round going while a quorum of nodes can turn out to be far ahead. The missing nodes then show how
// high a quorum is.
func (a *acquire) MayWait(rule claim.Rule, missing claim.Nodes) bool {
	far := claim.Nodes(a.rare.far.Load())
	return missing != 0 && rule.Quorum(far|missing)
}

// beyondRegisters returns the next proposal if the last round failed only because its proposal was too low; otherwise
// 0. known is the highest token seen so far.
func (a *acquire) beyondRegisters(res quorum.Result, known uint64) (next uint64) {
	switch {
	case res.Won:
		return 0
	case !res.Rule.Blocks(res.Taken | res.Count.Failed):
		if !isFar(known, a.First) {
			next = known + 1
		}
		for _, v := range res.Votes {
			if r := v.Answer.Details().Register; v.Answer.Found == claim.Mine && !isFar(r, a.First) {
				next = max(next, r+1)
			}
		}
	case res.Rule.Quorum(claim.Nodes(a.rare.far.Load()) & res.Count.Failed):
		next = shownByQuorum(res) + 1
	}
	if next <= a.rare.fence.Token || next >= endOfTokens {
		return 0
	}
	return next
}

// Check asks the nodes whether they hold the claim of l.
func (l *Lease) Check(ctx context.Context) quorum.Result { return l.check(ctx, l.terms.Heals) }

// check does what Check does. If heals, a missing claim disproves nothing.
func (l *Lease) check(ctx context.Context, heals bool) quorum.Result {
	for {
		limits, c := l.terms.Timing.limits(), l.Claim()
		limits.Decide = min(limits.Decide, l.Remaining(clock.Now()))
		limits.Over = l.Done()
		res := l.terms.Keeper.Set.Start(ctx, check{l, c, heals}, l.terms.WaitAll).Wait(ctx, limits)
		if res.Won || l.Claim() == c || ctx.Err() != nil { // otherwise a Downgrade came between: ask again, as a reader
			return res
		}
	}
}

type check struct {
	lease *Lease
	claim claim.Claim
	heals bool
}

func (c check) Repeat() (claim.Call, bool) { return c.claim.Check(), true }

func (c check) Brief() quorum.Brief {
	b := c.lease.terms.brief(quorum.Valid, c.claim.Check())
	b.Disproves, b.Heals = true, c.heals
	return b
}

// A Turn is an attempt of a waiter with a place in the queues. It hears every answer, also one too late to count.
type Turn interface {
	// Room returns memory, zero and used once, for the lease of the attempt.
	Room() *Room

	// Heard tells in which lines nothing was in the way on a node. counts says whether a grant of the node would count:
	// not if it has failed, or its restart guard ignores it.
	Heard(node int, lines claim.Lines, counts bool)

	// IsPatient reports whether the attempt waits for late nodes even if the votes are split.
	IsPatient() bool

	// Denied tells that a node denies the client's user the queue.
	Denied()

	// NoQueue tells that a node has a key of another type in place of the queue.
	NoQueue()

	// Barred tells of a failure that a repetition does not change: see wire.IsPermanent.
	Barred(node int, err error)
}

// Room is memory for a rareLease.
type Room struct{ rareLease }

// A rareLease is for few leases: those that wait, are fenced, or have a tally. Its address is fixed once others see the
// lease.
type rareLease struct {
	place   script.Place
	turn    Turn // nil if nobody waits
	surplus *surplus
	fence   script.Fence  // with the proposed token; only the goroutine of Acquire changes it
	far     atomic.Uint64 // nodes far ahead that can be followed: see tokens.go
	use     *use          // of a value that may come back; fixed once a command is sent
	token   uint64        // once won; guarded by Lease.mu
}

// noRareLease is shared, and never changes.
var noRareLease rareLease
