// Package queue waits for a claim that is taken.
//
// The waiters of one process for one name stand in a line, and only the first of them talks to the nodes.
// It puts its ticket in the queue of each node, and tries again when it has reason to: a node has woken it,
// this process has released the claim, what stood in its way has run out, or its retry delay has elapsed.
// A released lock may also pass to it by direct hand-off, without the nodes knowing.
package queue

import (
	"context"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/jitter"
	"github.com/seed14bd9ef4/redsync/internal/lease"
	"github.com/seed14bd9ef4/redsync/internal/quorum"
	"github.com/seed14bd9ef4/redsync/internal/script"
)

// Terms are what the Locks of one Mutex have in common.
type Terms struct {
	lease.Terms
	*Policy
	Group    *Group
	Attempts Events // told of attempts; nil if nobody listens
}

// A Policy is how the Locks of all Mutexes with the same options wait. It does not change.
type Policy struct {
	Fair     bool // nobody is overtaken
	Priority int  // the higher comes first
	Delay    func(tries int) time.Duration
	Mean     time.Duration // the mean of what Delay returns; OfUser if Delay is a function of the user's

	// EndsIfDenied ends a Lock once so many nodes deny it the lock that no quorum can grant: see denials.
	EndsIfDenied bool
}

// OfUser stands for the mean of delays that a function of the user's returns, which is not known.
const OfUser time.Duration = -1

// Events is told what becomes of attempts.
type Events interface {
	// Attempted tells how an attempt has ended, and returns why it has failed. It may panic.
	Attempted(ctx context.Context, l *lease.Lease, o lease.Outcome) error

	// Refused tells that a node denies us a subscription.
	Refused(n *quorum.Node, err error)
}

// A Failure is why Lock has acquired nothing.
type Failure struct {
	// Last is the last attempt of this call that its context has not cut. If there was none, it is the last one of the
	// call's line, without what observers of that attempt were told.
	Last        lease.Outcome
	Interrupted bool          // the context, Close or the limit of tries has ended the call
	Tries       int           // how many tries the call has made while it waited in line; 0 if it did not wait
	Delay       time.Duration // the negative retry delay that has ended the call; 0 if none has
	Denied      []claim.Vote  // by node, with Policy.EndsIfDenied: the denials that have ended the call; nil if none have
}

// Lock acquires the claim of t. If it can share a hold of this process, it needs no attempt. Otherwise it makes a
// first attempt at once if the call may overtake the line (see mayBarge). If it may not, or if the attempt fails,
// the call joins the line and waits until it wins, until limit tries are used up, or until ctx is done. Limit 0 is
// no limit. With limit 1 the call does not join the line: see tryPastSplit. start is when the user called.
//
// A call that may share a hold always joins the line, if its limit allows. If many such calls come at once, one of them
// makes an attempt, and all share its hold. With limit 1 the call waits for the end of such an attempt that is under
// way, and then shares its hold or makes its own.
func (t *Terms) Lock(ctx context.Context, start clock.Instant, limit int) (*lease.Lease, *Failure) {
	if ctx.Err() != nil {
		return nil, &Failure{Interrupted: true}
	}
	ls := &t.Group.lines
	if l := ls.joinHold(t); l != nil {
		return l, nil
	}
	var l *lease.Lease
	var o lease.Outcome
	var denied denials
	begins := start // when the first attempt begins
	if t.Timing.MinHold > 0 {
		begins = clock.Now() // not start: the caller may have waited for its own hold, and that must not count
	}
	switch {
	case limit == 1:
		l, o = t.tryPastSplit(ctx, start, begins)
	case !t.Fair && !t.Joins && ls.mayBarge(t.Claim.Lines()):
		l, o = t.attempt(ctx, begins, 1, nil)
	default:
		return t.wait(ctx, start, limit, lease.Outcome{})
	}
	switch {
	case l != nil:
		return l, nil
	case !o.Mends():
		return nil, &Failure{Last: o}
	case t.EndsIfDenied && denied.note(o, false):
		return nil, &Failure{Last: o, Denied: denied.votes}
	case limit == 1 || ctx.Err() != nil:
		if o.Kind == lease.NotAsked || o.IsCut() {
			o = ls.whyTaken(t.Claim.Lines())
		}
		return nil, &Failure{Last: o, Interrupted: true}
	}
	return t.wait(ctx, start, limit, o)
}

// tryPastSplit makes the only attempt of a call. It repeats the attempt if the votes were split, because otherwise
// several calls that come in the same moment may all fail, although the claim was free. A random delay before each
// repetition keeps these calls from splitting the votes again. The delays grow with the time that an attempt takes:
// if they were much shorter, the attempts would still overlap. Each delay ends before the node deadline, counted from
// the first attempt.
//
// A call that hears a quorum of refusals before the first grant does not know of the split, and gives up. Mostly that
// does no harm, because its rivals try again.
//
// The votes can also be split without a rival, because nodes differ in which permits are free. They then grant
// different permits, although some permit may be free on a quorum of nodes. Only an attempt with a ticket is told which
// permits are free. So the first repetition learns that, and the second one takes the free permit. Both are made
// without a delay, even after the node deadline.
//
// called is when the user called, and start is when the first attempt begins.
func (t *Terms) tryPastSplit(ctx context.Context, called, start clock.Instant) (l *lease.Lease, o lease.Outcome) {
	l, o = t.tryOnce(ctx, called, start, false, nil)
	var left *splits // keys that were in the way of earlier calls, too
	if o.Result.Split {
		left = t.Group.leftovers.of(t.Claim.Lines()[0])
	}
	var took time.Duration // the first attempt
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
		l, again = t.tryOnce(ctx, called, clock.Now(), o.MayMix() || left != nil, left)
		if again.Kind != lease.NotAsked && !again.IsCut() {
			o = again // otherwise the attempt before says why the call fails
		}
	}
	return l, o
}

// tryOnce makes one attempt without joining the line. called is when the user called, and start is when the attempt
// begins. ticket says that the attempt needs a ticket, to learn which permits are free, or what is in the way. split, which
// may be nil, is what earlier attempts have seen.
func (t *Terms) tryOnce(
	ctx context.Context, called, start clock.Instant, ticket bool, split *splits,
) (l *lease.Lease, o lease.Outcome) {
	ls := &t.Group.lines
	l, done := ls.joinOrOpen(ctx, t)
	if l != nil {
		return l, lease.Outcome{Kind: lease.Won}
	}
	defer func() { done(l != nil) }() // also if a function of the user's has panicked
	switch {
	case ctx.Err() != nil: // while it waited
	case t.Fair:
		l, o = t.tryFairly(ctx, called, split)
	case ticket:
		l, o = t.tryQueued(ctx, called, split)
	default:
		l, o = t.attempt(ctx, start, 1, nil)
	}
	if l != nil {
		ls.share(l)
	}
	return l, o
}

// tryFairly makes one attempt that overtakes nobody already waiting.
func (t *Terms) tryFairly(ctx context.Context, start clock.Instant, split *splits) (*lease.Lease, lease.Outcome) {
	if why := t.Group.lines.whyTaken(t.Claim.Lines()); why.Kind != lease.NotAsked {
		return nil, why
	}
	return t.tryQueued(ctx, start, split)
}

// tryQueued makes one attempt with a ticket, which respects the order of the queues in fair mode. The ticket leaves the
// queues after the attempt.
func (t *Terms) tryQueued(ctx context.Context, start clock.Instant, split *splits) (*lease.Lease, lease.Outcome) {
	w := newWaiter(t, start) // it is in no line, so that ticketLocked needs no lock
	w.split = split
	at := script.Place{Ticket: w.ticketLocked(), Alive: lease.AliveFor.Milliseconds(), Strict: t.Fair}
	// leaves is set, so that waiter.end does not look for w in a line.
	l, o := w.try(ctx, 1, &turn{waiter: w, place: at, began: time.Now(), leaves: true})
	if l != nil {
		t.leaveOnWin(l, at.Ticket)
	}
	return l, o
}

// wait waits for the claim. first is the outcome of a first attempt. It is zero if there was no attempt.
func (t *Terms) wait(ctx context.Context, start clock.Instant, limit int, first lease.Outcome) (*lease.Lease, *Failure) {
	w := newWaiter(t, start)
	w.pace = pace{delay: t.Delay, mean: t.Mean, limit: limit, try: 1}
	if !w.pace.begin(0) {
		return nil, &Failure{Delay: w.pace.last}
	}
	t.Group.lines.join(w, first)
	return w.run(ctx)
}
