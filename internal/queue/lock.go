// Package queue waits for a claim that is taken.
//
// The waiters of one process for one name stand in a line, and only the first of them talks to the nodes. It puts its
// ticket in the queue of each node. It tries again when a node wakes it, this process has released the claim, what
// stood in its way has run out, or its retry delay is over. A released lock may also pass to it by direct hand-off.
package queue

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/jitter"
	"github.com/seed14bd9ef4/redsync/internal/lease"
	"github.com/seed14bd9ef4/redsync/internal/script"
)

// Lock acquires the claim of t for a user's call that began at start. It shares a hold of this process if it can.
// Otherwise it makes a first attempt, unless others wait: see mayBarge. If that fails, it waits in line until it wins,
// limit tries are used up (0 is no limit), or ctx is done. With limit 1 it joins no line: see tryPastSplit. waits notes
// that the call has waited, also if it panics.
//
// A call that may share a hold waits in line without a first attempt, so that one of many such calls tries for all.
func (g *Group) Lock(
	ctx context.Context, t *lease.Terms, start clock.Instant, limit int, waits *Wait,
) (*lease.Lease, *Failure) {
	if ctx.Err() != nil {
		return nil, &Failure{Interrupted: true}
	}
	if t.Joins {
		if l := g.sharing.joinHold(t); l != nil {
			return l, nil
		}
	}
	var l *lease.Lease
	var o lease.Outcome
	var denied denials
	begins := start
	if t.Timing.MinHold > 0 {
		begins = clock.Now() // not start: a wait for the caller's own hold must not count
	}
	switch {
	case limit == 1:
		l, o = single{g, t, start}.tryPastSplit(ctx, begins)
	case !t.Fair && !t.Joins && g.lines.mayBarge(t.Claim.Lines()):
		l, o = g.attempt(ctx, t, begins, 1, nil, false)
	default:
		return g.wait(ctx, t, start, limit, lease.Outcome{}, waits)
	}
	switch {
	case l != nil:
		return l, nil
	case !o.Mends():
		return nil, &Failure{Last: o}
	case denied.note(o, false, t.EndsIfDenied):
		return nil, &Failure{Last: o, Denied: denied.votes}
	case limit == 1 || ctx.Err() != nil:
		if o.Kind == lease.NotAsked || o.IsCut() {
			if why := g.lines.whyTaken(t.Claim.Lines()); why.Kind != lease.NotAsked || !o.IsUnopened() {
				o = why
			}
		}
		return nil, &Failure{Last: o, Interrupted: true}
	}
	return g.wait(ctx, t, start, limit, o, waits)
}

// wait waits in line. first is the outcome of a first attempt, if there was one.
func (g *Group) wait(
	ctx context.Context, t *lease.Terms, start clock.Instant, limit int, first lease.Outcome, waits *Wait,
) (*lease.Lease, *Failure) {
	if t.Events != nil {
		waits.Begin(ctx, t.Events, start)
	}
	c := newCall(g, t, start)
	if !c.join(limit, first) {
		return nil, &Failure{Delay: c.pace.last}
	}
	return c.run(ctx)
}

// A single is a call with limit 1, which stands in no line.
type single struct {
	group  *Group
	terms  *lease.Terms
	called clock.Instant
}

// tryPastSplit makes the only attempt of a call, and repeats it after a split. Otherwise all calls of one moment may
// fail, although the claim was free. Random delays, longer if attempts take longer, keep their repetitions apart. They
// end before the node deadline of the first attempt.
//
// A call that hears a quorum of refusals before the first grant does not know of the split, and fails.
//
// Votes are also split if nodes differ in which permits are free. Only an attempt with a ticket is told which are. So
// the first repetition learns that, and the second takes one, both without a delay.
func (s single) tryPastSplit(ctx context.Context, start clock.Instant) (l *lease.Lease, o lease.Outcome) {
	t := s.terms
	l, o = s.tryOnce(ctx, start, false, nil)
	var left *splits // keys in the way of earlier calls
	if o.Result.Split {
		left = s.group.leftovers.of(t.Claim.Lines()[0])
	}
	var took time.Duration
	for n := 0; n < maxRepeats && l == nil && o.IsSplit() && o.Mends(); n++ {
		elapsed := clock.Now().Since(start)
		if n == 0 {
			took = elapsed
		}
		var delay time.Duration
		atOnce := o.MayWinAtOnce() || n == 0 && o.IsMixed() && !t.Fair // in fair mode the first attempt had a ticket
		if !atOnce {
			left := t.Timing.NodeTimeout - elapsed
			if left <= 0 {
				break
			}
			delay = jitter.N(min(max(2*took, minJitter)<<n, left))
		}
		if !t.Keeper.Pause(ctx, delay, nil) {
			break
		}
		var again lease.Outcome
		l, again = s.tryOnce(ctx, clock.Now(), o.MayMix() || left != nil, left)
		if again.Kind != lease.NotAsked && !again.IsCut() {
			o = again // otherwise the earlier one says why the call fails
		}
	}
	return l, o
}

// tryOnce makes one attempt. ticket says that it needs a ticket, to learn what is in the way. split is what earlier
// attempts have seen; it may be nil.
func (s single) tryOnce(
	ctx context.Context, start clock.Instant, ticket bool, split *splits,
) (l *lease.Lease, o lease.Outcome) {
	t := s.terms
	if t.Joins {
		var done func(won bool)
		if l, done = s.group.sharing.joinOrOpen(ctx, t); l != nil {
			return l, lease.Outcome{Kind: lease.Won}
		}
		defer func() { done(l != nil) }() // also after a panic
	}
	switch {
	case ctx.Err() != nil:
	case t.Fair:
		if o = s.group.lines.whyTaken(t.Claim.Lines()); o.Kind == lease.NotAsked { // it overtakes nobody
			l, o = s.tryQueued(ctx, split)
		}
	case ticket:
		l, o = s.tryQueued(ctx, split)
	default:
		l, o = s.group.attempt(ctx, t, start, 1, nil, true)
	}
	if l != nil && l.BeginSharing() {
		s.group.sharing.share(l, nil)
	}
	return l, o
}

// tryQueued makes one attempt with a ticket, which leaves the queues afterwards.
func (s single) tryQueued(ctx context.Context, split *splits) (*lease.Lease, lease.Outcome) {
	c := newCall(s.group, s.terms, s.called) // in no line, so ticketLocked needs no lock
	c.split = split
	at := script.Place{Ticket: s.group.ticketLocked(&c.waiter), Alive: script.AliveFor, Strict: s.terms.Fair}
	// leaves keeps call.end from looking for c in a line.
	l, o := c.try(ctx, 1, &turn{group: s.group, waiter: &c.waiter, place: at, began: time.Now(), leaves: true})
	if l != nil {
		s.group.leaveOnWin(l, at.Ticket)
	}
	return l, o
}

// A Wait is what observers know of how one call of Lock waits.
type Wait struct {
	Number uint64 // unique in this process; 0 if observers know of no wait
}

var calls atomic.Uint64

// Begin tells observers, once, that the call that began at start waits.
func (w *Wait) Begin(ctx context.Context, to lease.Events, start clock.Instant) {
	if w.Number == 0 {
		w.Number = calls.Add(1)
		to.Waits(ctx, start, w.Number)
	}
}

// A Failure is why Lock has acquired nothing.
type Failure struct {
	// Last is the last attempt of this call that its context has not cut. If there was none, it is that of the call's
	// line, without Told.
	Last        lease.Outcome
	Interrupted bool          // by the context, Close or the limit of tries
	Tries       int           // made while the call waited in line
	Delay       time.Duration // the negative retry delay that has ended the call
	Denied      []claim.Vote  // by node, the denials that have ended the call
}

// maxChain bounds chain. It is much longer than an acquire takes.
const maxChain = 20 * time.Millisecond

// chain returns for how long after its acquire a lock may be handed on or joined within the process.
func chain(t *lease.Terms) time.Duration { return min(t.Timing.Expiry/10, maxChain) }
