package lease

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/quorum"
	"github.com/seed14bd9ef4/redsync/internal/script"
	"github.com/seed14bd9ef4/redsync/pool"
)

// An Outcome is how an attempt has ended. The zero Outcome says that no attempt was made.
type Outcome struct {
	Kind      Kind
	Result    quorum.Result     // of the last round; zero if there was none
	Duplicate *quorum.Duplicate // for Duplicates
	Err       error             // for Unusable
	Told      error             // the error that observers were told; nil if nobody listens
	Validity  time.Duration     // for Late: the length of the validity that had ended
	Lines     []string          // of the claim
	Touched   bool              // in some round a node has granted the lock, even if not the fencing token
}

// A Kind is how an attempt can end.
type Kind uint8

// The kinds of outcomes.
const (
	NotAsked   Kind = iota // no attempt was made
	Waiting                // no attempt was made, because others of this process wait for the claim
	Won                    // the lease can begin
	NotWon                 // no quorum granted
	Late                   // a quorum granted, after the validity had ended
	Duplicates             // two nodes are one server, and too few servers are left
	Unusable               // the generator made no usable value
)

// Mends reports whether another attempt can end otherwise. It reports false if the nodes, or the generator
// of values, are set up wrongly, or if the clients are closed.
func (o Outcome) Mends() bool {
	failed := o.Result.Count.Failed
	return o.Kind != Duplicates && o.Kind != Unusable && (failed == 0 || !o.Result.Severed())
}

// Taken reports whether the attempt failed because something else is in the way, and not because too many
// nodes failed: see quorum.Result.NotFree.
func (o Outcome) Taken() bool { return o.Kind == NotWon && o.Result.NotFree() }

// MayWinAtOnce reports whether a new attempt may win although nothing has been released: see claim.LateTally.
func (o Outcome) MayWinAtOnce() bool {
	t, ok := o.Result.Tally.(claim.LateTally)
	return ok && o.Kind == NotWon && t.MayWinAtOnce()
}

// IsSplit reports whether the votes were split: some nodes have granted, and something else is in the way on others.
// Several attempts may have been made at the same moment, and none of them has won. Or another lease may hold the lock
// on just a quorum of the nodes. The answers do not tell which, because they do not say whose value is there.
func (o Outcome) IsSplit() bool { return o.Touched && o.Taken() }

// MayMix reports whether nodes may grant different things: see claim.LateTally.
func (o Outcome) MayMix() bool {
	_, ok := o.Result.Tally.(claim.LateTally)
	return ok
}

// IsMixed reports whether a quorum of nodes has granted, but not the same thing: see claim.LateTally.
func (o Outcome) IsMixed() bool {
	return o.MayMix() && o.Kind == NotWon && o.Result.Rule.Quorum(o.Result.Count.Granted)
}

// IsCut reports whether the caller's context has ended the attempt before a quorum of nodes had answered. Such an attempt
// proves nothing.
func (o Outcome) IsCut() bool { return o.Kind == NotWon && o.Result.Cut && !o.Heard() }

// Heard reports whether a quorum of nodes has granted or refused.
func (o Outcome) Heard() bool {
	return o.Result.Rule != nil && o.Result.Rule.Quorum(o.Result.Count.Answered())
}

// KeptBackBy returns the index of the claim's line that has kept the attempt back: see Sight.KeptBackBy. The Result must
// have a Rule.
func (o Outcome) KeptBackBy() int { return o.Sight().KeptBackBy(0) }

// Sight returns what the attempt has seen of the claim's lines. The Result must have a Rule.
func (o Outcome) Sight() *Sight {
	s := NewSight(o.Result.Rule, len(o.Lines))
	s.failed = o.Result.Count.Failed
	for i, v := range o.Result.Votes {
		if v.Choice == claim.Granted || v.Choice == claim.Refused {
			s.Add(i, v.FreeIn())
		}
	}
	return s
}

// A Sight is what an attempt has seen of the lines of its claim: on which nodes nothing was in its way in each line.
type Sight struct {
	rule             claim.Rule
	answered, failed claim.Nodes
	free             []claim.Nodes // by line
}

// NewSight returns the Sight of an attempt on that many lines. It has seen nothing yet.
func NewSight(rule claim.Rule, lines int) *Sight {
	return &Sight{rule: rule, free: make([]claim.Nodes, lines)}
}

// Add adds the answer of a node: the lines in which nothing was in the way.
func (s *Sight) Add(node int, lines claim.Lines) {
	s.answered = s.answered.With(node)
	for at := range s.free {
		if lines.Has(at) {
			s.free[at] = s.free[at].With(node)
		}
	}
}

// AddLate adds the answers of other that s does not have, except those of nodes that have failed.
func (s *Sight) AddLate(other *Sight) {
	late := other.answered &^ s.answered &^ s.failed
	s.answered |= late
	for at := range s.free {
		s.free[at] |= other.free[at] & late
	}
}

// KeptBackBy returns the index of the line that has kept the attempt back. That is a line that is not free on a quorum
// of nodes, even if it is free on all nodes that have not answered. If there is no such line, some nodes have refused
// because of one line and some because of another. Then KeptBackBy returns a line because of which a node has refused.
//
// was is the index of the line for which the waiter has waited. KeptBackBy returns it if it is among the lines from
// which it must choose, and otherwise the first of them. So the choice seldom depends on which nodes have answered
// first, and the waiter does not move back and forth between two lines.
func (s *Sight) KeptBackBy(was int) int {
	for _, is := range []func(at int) bool{s.keepsBack, s.isTaken} {
		if is(was) {
			return was
		}
		for at := range s.free {
			if is(at) {
				return at
			}
		}
	}
	return was
}

// keepsBack reports whether a line is not free on a quorum of nodes. Nodes that have not answered count as free.
func (s *Sight) keepsBack(at int) bool {
	return !s.rule.Quorum(s.rule.All() &^ s.failed &^ s.takenOn(at))
}

// isTaken reports whether a node has refused because of a line.
func (s *Sight) isTaken(at int) bool { return s.takenOn(at) != 0 }

// takenOn returns the nodes on which something was in the way in a line.
func (s *Sight) takenOn(at int) claim.Nodes { return s.answered &^ s.free[at] }

// Acquire makes one attempt. Its validity counts from start, and at is its place in the queues of the nodes.
// turn, which may be nil, is told what nodes answer. If the attempt is Won, the lease can begin. Otherwise
// the caller releases what the lease may have left on the nodes. The lease is nil if nothing was sent for it.
func Acquire(ctx context.Context, t *Terms, start clock.Instant, try int, at script.Place, turn Turn) (*Lease, Outcome) {
	value, err := t.newValue()
	if err != nil {
		return nil, Outcome{Kind: Unusable, Err: err}
	}
	set := t.Keeper.Set
	if !set.IsIdentified() && set.Identify(ctx, t.Timing.NodeTimeout) {
		start = clock.Now() // nothing has been sent for the lock yet
	}
	if set.Duplicate() != nil {
		if d := stillDuplicate(ctx, t); d != nil {
			return nil, Outcome{Kind: Duplicates, Duplicate: d}
		}
		start = clock.Now() // stillDuplicate took a while, and nothing has been sent for the lock yet
	}
	l := New(t, value, start)
	l.Try = try
	l.specialize(at, turn)
	op := (*acquire)(l)
	if t.Fencing {
		op.special.fence = fence(t.Keeper.Tokens.proposal(t.Claim.Lines(), start)).Kept()
	}
	waitAll, limits := t.WaitAll, t.Timing.limits()
	first := set.FirstToIdentify()
	if first && !waitAll {
		waitAll, limits.Node = true, quorum.IdentifyTimeout(ctx, limits.Node)
	}
	res := set.Start(ctx, op, waitAll).Wait(ctx, limits)
	if first && !res.Won && ctx.Err() == nil {
		set.IdentifyLater() // a failed attempt does not wait: it would keep others from the nodes that have granted
	}
	touched := touches(res)
	for range maxCatchUps { // while only the token is in the way
		if !t.Fencing || ctx.Err() != nil || l.NotHeld(clock.Now()) != nil {
			break
		}
		next := op.beyondRegisters(res, t.Keeper.Tokens.highest(t.Claim.Lines()))
		if next == 0 {
			break
		}
		op.special.far.Store(0)
		op.special.fence = fence(next).Kept() // Start asks op for a new Brief, which has this proposal
		res = set.Start(ctx, op, t.WaitAll).Wait(ctx, t.Timing.limits())
		touched = touched || touches(res)
	}
	o := l.outcome(res, op.special.fence.Token)
	o.Touched = touched
	return l, o
}

// specialize gives l a special of its own if its acquire needs one.
func (l *Lease) specialize(at script.Place, turn Turn) {
	switch _, tallies := l.claim.(claim.Tallier); {
	case tallies:
		l.special = newSurplus(len(l.writes.nodes))
	case turn != nil:
		l.special = &turn.Room().special
	case l.terms.Fencing || at != (script.Place{}):
		l.special = &special{}
	default:
		return
	}
	l.special.place, l.special.turn = at, turn
}

// touches reports whether a node has granted the lock, even if its grant does not count.
func touches(res quorum.Result) bool {
	return res.Count.Granted != 0 ||
		slices.ContainsFunc(res.Votes, func(v claim.Vote) bool { return v.Answer.Found == claim.Mine })
}

// stillDuplicate asks all nodes again which servers they are, because too few of them were different servers. It returns
// two nodes that are one server if that is still so, otherwise nil. It must ask, because the address of a node may
// lead to another server by now, and an attempt sends nothing else that would show it.
func stillDuplicate(ctx context.Context, t *Terms) *quorum.Duplicate {
	set := t.Keeper.Set
	set.Forget()
	set.Start(ctx, quorum.Ping{}, true).Wait(ctx, t.Timing.limits())
	return set.Duplicate()
}

// outcome returns how the attempt for l has ended. res is the result of its last round. Unless the outcome is
// Won, nothing is held, and the caller must release what the round may have set.
func (l *Lease) outcome(res quorum.Result, proposal uint64) Outcome {
	o := Outcome{Kind: NotWon, Result: res, Lines: l.terms.Claim.Lines()}
	switch d := l.terms.Keeper.Set.Duplicate(); {
	case d != nil:
		o.Kind, o.Duplicate = Duplicates, d
	case res.Won && l.NotHeld(clock.Now()) == nil:
		o.Kind = Won
		l.won(res, proposal)
	case res.Won:
		o.Kind = Late
		o.Validity = l.validity.Length
	}
	return o
}

// won gives l what its round has won: the token, and the claim if only the tally knows which one it is.
func (l *Lease) won(res quorum.Result, proposal uint64) {
	if t, ok := res.Tally.(claim.LateTally); ok {
		won := t.Won()
		l.Replace(won)
		l.special.surplus.wins(l, won)
	}
	if proposal != 0 {
		l.takeToken(proposal)
	}
}

// takeToken gives l a fencing token that a quorum has stored.
func (l *Lease) takeToken(token uint64) {
	l.mu.Lock()
	if l.special == &plain { // it is adopted
		l.special = &special{}
	}
	l.special.token = token
	l.mu.Unlock()
	l.terms.Keeper.Tokens.Raise(l.terms.Claim.Lines(), token)
}

// brief returns the brief of an operation on l. Its Purpose is Looking; operations that grant set another.
func (l *Lease) brief(op quorum.Op, call claim.Call) quorum.Brief {
	return quorum.Brief{Op: op, Call: call, Within: l.terms.Timing.NodeTimeout, Tracer: l.terms.tracer()}
}

// An acquire is the operation that sets a lease's value. It is the lease itself, which saves an allocation. It is no
// quorum.Winner, because its caller checks after the round whether the nodes answered in time.
type acquire Lease

// A special is what few acquires need. It stands apart, because every lease would have room for it.
type special struct {
	place   script.Place  // in the queues of the nodes; without a ticket it enters none
	turn    Turn          // nil if nobody waits
	surplus *surplus      // nil if the claim can have none
	fence   script.Fence  // with the proposed token; zero for none; only the goroutine that runs Acquire changes it
	far     atomic.Uint64 // the nodes whose fencing register is far ahead, but can be followed: see tokens.go
	token   uint64        // the fencing token of the lease, once it is won; guarded by Lease.mu
}

// plain is the special of all acquires that need none. It never changes.
var plain special

// Brief implements quorum.Operation. It sets Explain, because the caller must tell a taken lock from nodes
// that are down.
func (a *acquire) Brief() quorum.Brief {
	l := (*Lease)(a)
	c := l.Claim()
	b := l.brief(quorum.Lock, a.call(c, a.special.place))
	b.Explain, b.Purpose = true, quorum.Granting
	b.Patient = a.special.turn != nil && a.special.turn.IsPatient()
	if !a.special.place.Ticket.IsZero() {
		b.Purpose = quorum.Queueing
	}
	_, b.Tallies = c.(claim.Tallier)
	return b
}

// Tally implements claim.Tallier. It is called only if the claim is one.
func (a *acquire) Tally(r claim.Rule) claim.Tally {
	return (*Lease)(a).Claim().(claim.Tallier).Tally(r)
}

// call returns the command that acquires c, from a place in the queues.
func (a *acquire) call(c claim.Claim, at script.Place) claim.Call {
	timing := &a.terms.Timing
	ttl, _ := timing.AtAge(0)
	return c.Acquire(max(ttl, timing.MinHold), at, a.special.fence)
}

// CanDoWithout implements quorum.Fallback. A node that denies its queue to a reader without a ticket lets the reader in
// without a look at the queue. The other nodes look.
func (a *acquire) CanDoWithout() bool {
	return a.terms.Claim.Shares() && a.special.place.Ticket.IsZero()
}

// Lacks implements quorum.Fallback.
func (a *acquire) Lacks(i int) bool { return (*Lease)(a).lacksQueue(i) }

// Without implements quorum.Fallback.
func (a *acquire) Without() claim.Call { return a.call((*Lease)(a).Claim(), script.Place{Blind: true}) }

// lacksQueue reports whether node i has just denied the queue of l's lock. l's claim must have only one line.
func (l *Lease) lacksQueue(i int) bool {
	return l.terms.Keeper.Set.Nodes[i].DeniesQueueOf(l.terms.Claim.Lines()[0])
}

// Began implements quorum.Timed.
func (a *acquire) Began() time.Duration { return a.First.Mono }

// Sending implements quorum.Recorder.
func (a *acquire) Sending(i int) { a.writes.sending(i) }

// Unsent implements quorum.Recorder.
func (a *acquire) Unsent(i int) { a.writes.unsent(i) }

// Judge implements quorum.Operation.
func (a *acquire) Judge(i int, reply pool.Reply, v claim.Vote) claim.Vote {
	l := (*Lease)(a)
	if k := a.terms.Keeper; k.unreached.Load() != 0 && reply.Fate == pool.Answered {
		k.answered(i)
	}
	if a.special.surplus != nil {
		defer a.special.surplus.heard(l, i, reply, v.Answer) // at the end: its release needs what writes notes below
	}
	if a.terms.Claim.Shares() {
		a.noteBlind(i, reply, v)
	}
	if a.special.turn != nil && v.Choice == claim.Failed && pool.IsPermanent(reply.Err) {
		a.special.turn.Barred(i, reply.Err)
	}
	if !a.special.place.Ticket.IsZero() {
		a.tellWaiter(i, reply, v)
		if d := v.Answer.Detail; d != nil {
			d.At = clock.Now().Mono
		}
	}
	if pool.IsNoScript(reply.Err) {
		a.writes.unsent(i) // nothing was executed
	} else {
		a.writes.answered(i, reply.Fate)
	}
	switch {
	case v.Choice == claim.Refused && v.Taken():
		l.refusedBy(i)
		return v
	case v.Choice != claim.Granted:
		return v
	case v.Answer.Detail != nil && v.Answer.Detail.WasThere && a.writes.onNode(i).sent() < 2:
		// The node has been sent the value only once, so the value that it found there is not ours, or the server has
		// been sent it at another address.
		l.refusedBy(i)
		return claim.Vote{Choice: claim.Refused, Answer: claim.Answer{Found: claim.Other, Detail: v.Answer.Detail}}
	}
	if a.terms.Fencing {
		a.writes.grants(i) // it may have refused an earlier round
		if v = a.judgeRegister(i, v); v.Choice != claim.Granted {
			return v
		}
	}
	l.failIfRestarted(&v, i, reply.Server, a.First)
	return v
}

// errBlind is why a reader is let in without a look at the queue.
var errBlind = errors.New("redsync: the user may not read the queue")

// noteBlind notes that node i denies a reader without a ticket access to the queue. Such a reader does not see
// writers that wait there.
func (a *acquire) noteBlind(i int, reply pool.Reply, v claim.Vote) {
	l := (*Lease)(a)
	switch {
	case a.special.place.Ticket.IsZero() && quorum.IsForbidden(reply.Err):
		l.deny(i, reply.Err, pool.IsDenied(reply.Err))
	case v.Answer.Details().Blind:
		l.deny(i, errBlind, true)
	}
}

// tellWaiter tells the waiter of the attempt what node i has found free, or that it denies access to its queues.
func (a *acquire) tellWaiter(i int, reply pool.Reply, v claim.Vote) {
	l := (*Lease)(a)
	denied := quorum.IsForbidden(reply.Err)
	if denied {
		l.deny(i, reply.Err, pool.IsDenied(reply.Err))
	}
	switch {
	case a.special.turn == nil:
	case denied && quorum.IsNoQueue(reply.Err):
		a.special.turn.NoQueue()
	case denied:
		a.special.turn.Denied()
	default:
		several := len(a.terms.Claim.Lines()) > 1
		if free := v.FreeIn(); free != 0 || several && v.Answer.Found == claim.Other {
			a.special.turn.Free(i, free)
		}
	}
}

// deny notes that the client cannot use the queue of l's lock on node i. ofUser says that its user lacks a permission.
// Otherwise the queue is a key of another type, or a cluster keeps it on another node than the lock. If the claim has
// several lines, the cluster may instead keep their names apart, which says nothing of the queue of one name.
func (l *Lease) deny(i int, err error, ofUser bool) {
	name := ""
	switch lines := l.terms.Claim.Lines(); {
	case len(lines) == 1:
		name = lines[0]
	case pool.IsCrossSlot(err):
		return
	}
	n := l.terms.Keeper.Set.Nodes[i]
	if n.Deny(name, ofUser) && l.terms.Events != nil {
		l.terms.Events.Denied(n, err)
	}
}

// failIfRestarted makes v, which is a grant of node i in a round that began at start, a failure if the node's server may
// have forgotten what it granted to others.
func (l *Lease) failIfRestarted(v *claim.Vote, i int, s *pool.Server, start clock.Instant) {
	t := l.terms
	if err := t.Keeper.Set.Nodes[i].Distrust(s, start.Wall, t.Timing.Drift, t.margin()); err != nil {
		*v = v.Fails(err)
	}
}

// Check asks the nodes whether they hold the claim of l.
func (l *Lease) Check(ctx context.Context) quorum.Result {
	for {
		limits, c := l.terms.Timing.limits(), l.Claim()
		limits.Decide = min(limits.Decide, l.Remaining(clock.Now()))
		limits.Over = l.Done()
		res := l.terms.Keeper.Set.Start(ctx, check{l, c}, l.terms.WaitAll).Wait(ctx, limits)
		if res.Won || l.Claim() == c || ctx.Err() != nil { // otherwise a Downgrade came between: ask again, for the reader's claim
			return res
		}
	}
}

// A check is the operation that asks the nodes whether they hold a lease's claim.
type check struct {
	lease *Lease
	claim claim.Claim
}

// Brief implements quorum.Operation.
func (c check) Brief() quorum.Brief {
	b := c.lease.brief(quorum.Valid, c.claim.Check())
	b.Disproves, b.Heals = true, c.lease.terms.Heals
	return b
}

// Judge implements quorum.Operation.
func (c check) Judge(_ int, _ pool.Reply, v claim.Vote) claim.Vote {
	return c.lease.unlessReplaced(c.claim, v)
}
