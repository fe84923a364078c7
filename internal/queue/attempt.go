package queue

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/jitter"
	"github.com/seed14bd9ef4/redsync/internal/lease"
	"github.com/seed14bd9ef4/redsync/internal/quorum"
	"github.com/seed14bd9ef4/redsync/internal/script"
	"github.com/seed14bd9ef4/redsync/internal/wire"
)

// A turn is one attempt of a waiter.
type turn struct {
	group      *Group
	waiter     *waiter
	number     uint16
	place      script.Place
	began      time.Time
	conclusive bool // a failure is no reason to repeat it at once
	leaves     bool // it is the waiter's last one
	patient    bool // waits for late nodes
	few        bool // caused by too few nodes: see areFewLocked
	hasty      bool // caused by news, and not by the time

	denied  atomic.Bool
	noQueue atomic.Bool // a node has a key of another type in place of its queue

	room lease.Room
}

// Room implements lease.Turn.
func (u *turn) Room() *lease.Room { return &u.room }

func (u *turn) enters() bool { return !u.place.Ticket.IsZero() }

// Heard implements lease.Turn. If the attempt fails, its release leaves the names free on node i.
func (u *turn) Heard(i int, names claim.Lines, counts bool) {
	w, ls := u.waiter, &u.group.lines
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if w.attempts != u.number {
		return
	}
	if !counts {
		w.unfit = w.unfit.With(i)
		return
	}
	w.unfit = w.unfit.Without(i)
	for at := range w.news {
		if names.Has(at) {
			w.news[at].freed = w.news[at].freed.With(i)
		} else {
			w.news[at].taken = w.news[at].taken.With(i)
		}
	}
	if w.sight != nil {
		w.sight.add(i, names)
		ls.reconsiderLocked(w)
	}
	if !w.agenda.graceEnd.IsZero() {
		w.lookAgain()
	}
}

// attempt makes one attempt, whose validity counts from start. After a failure it releases what it has left on the
// nodes. u is nil if no waiter makes it. final says that no attempt with a ticket follows.
func (g *Group) attempt(
	ctx context.Context, t *lease.Terms, start clock.Instant, try int, u *turn, final bool,
) (*lease.Lease, lease.Outcome) {
	var l *lease.Lease
	var o lease.Outcome
	if u != nil {
		l, o = u.acquire(ctx, start, try)
	} else {
		l, o = lease.Acquire(ctx, t, start, try, script.Place{}, nil)
	}
	if l == nil {
		if o.Kind == lease.NotWon && u != nil && u.enters() && !u.leaves { // its value is in use: nothing was sent
			g.showTicket(u.waiter)
		}
		return nil, o
	}
	corrects := final && l.AskKinds(o)
	switch {
	case o.Kind == lease.Won:
	case u != nil:
		u.rollBack(l, o, ctx.Err() != nil)
	default:
		l.Release(lease.Releasing{})
		if o.Touched {
			g.Nudge(t.Claim.Lines())
		}
	}
	if corrects {
		o = l.Correct(ctx, o)
	}
	joins := u == nil && !final // if the attempt fails
	if t.Events != nil {
		o.Told = tell(ctx, t, l, o, u, joins)
	}
	if o.Kind != lease.Won {
		return nil, o
	}
	return l, o
}

func (u *turn) acquire(ctx context.Context, start clock.Instant, try int) (*lease.Lease, lease.Outcome) {
	defer u.keepTicket()() // also after a panic
	return lease.Acquire(ctx, u.waiter.terms, start, try, u.place, u)
}

// keepTicket shows the waiter's ticket again and again during a long attempt, so that the waiter keeps its place. It
// shows nothing once stop has returned.
//
// A waiter in one of several queues keeps no ticket, because only the end of the attempt tells in which.
func (u *turn) keepTicket() (stop func()) {
	if !u.enters() || u.leaves || u.isShort() || u.waiter.standsInOneOfSeveral() {
		return func() {}
	}
	var mu sync.Mutex // guards ended and timer; held while the ticket is shown
	var ended bool
	var timer *time.Timer
	mu.Lock()
	defer mu.Unlock()
	timer = time.AfterFunc(showEvery, func() {
		mu.Lock()
		defer mu.Unlock()
		if !ended {
			u.group.showTicket(u.waiter)
			timer.Reset(showEvery)
		}
	})
	return func() {
		timer.Stop()
		mu.Lock()
		defer mu.Unlock()
		ended = true
	}
}

// isShort reports whether the attempt lasts no longer than a ticket may go unseen.
func (u *turn) isShort() bool {
	t := u.waiter.terms
	return t.Timing.NodeTimeout <= showEvery && t.Keeper.Set.IsNear(showEvery)
}

// tell tells observers how the attempt for l has ended, and returns the error that they were told. If one panics, tell
// releases what was acquired.
func tell(ctx context.Context, t *lease.Terms, l *lease.Lease, o lease.Outcome, u *turn, joins bool) (why error) {
	told := false
	defer func() {
		if told || o.Kind != lease.Won {
			return
		}
		if u != nil && u.enters() {
			l.LeaveQueuesOnRelease(u.place.Ticket)
		}
		l.Abandon(t.Keeper.Errors.Failed)
	}()
	why = t.Events.Attempted(ctx, l, o, joins)
	told = true
	return why
}

// rollBack releases what the attempt for l has left on the nodes. over says that the waiter waits no longer.
//
// The waiter leaves the queues if it gives up, if it has heard no quorum, or, unless it is fair, if a node denies it a
// queue. It enters them later with another ticket, because a late release removes the former one.
//
// A waiter for several names that is not fair stays in the queue of one of them, the same on every node. Otherwise it
// could keep others from a free name while it waits for another one.
func (u *turn) rollBack(l *lease.Lease, o lease.Outcome, over bool) {
	w, ls := u.waiter, &u.group.lines
	ls.mu.Lock()
	goesOn := !u.leaves && !over && o.Heard()
	if u.noQueue.Load() && !o.Heard() { // the others are too few to wait in their queues
		u.Denied()
	}
	if goesOn && len(w.names) > 1 && (u.enters() || !w.isQueued()) {
		late := w.sight
		w.sight = sightOf(o)
		w.sight.addLate(late)
		ls.moveLocked(w, w.sight.keptBackBy(w.at), u.enters() && (w.terms.Fair || !u.denied.Load()))
	}
	switch {
	case !u.enters():
	case !goesOn, u.denied.Load() && !w.terms.Fair:
		l.LeaveQueuesOnRelease(w.ticket)
		w.ticket, w.entered = script.Ticket{}, w.entered[:0]
	default:
		w.entered = append(w.entered[:0], l)
		if w.standsInOneOfSeveral() {
			l.StayInOneQueueOnRelease(w.ticket, w.at)
		}
	}
	ls.mu.Unlock()
	l.Release(lease.Releasing{Undoes: true})
}

// IsPatient implements lease.Turn.
func (u *turn) IsPatient() bool { return u.patient }

// Denied implements lease.Turn.
func (u *turn) Denied() { u.denied.Store(true) }

// NoQueue implements lease.Turn.
func (u *turn) NoQueue() { u.noQueue.Store(true) }

// Barred implements lease.Turn. It is also called for answers that came too late to count.
func (u *turn) Barred(i int, err error) {
	u.group.lines.mu.Lock()
	defer u.group.lines.mu.Unlock()
	u.waiter.denials.hear(i, claim.Failure(err), u.mayDoWithoutQueue(), u.waiter.terms.EndsIfDenied)
}

func (u *turn) mayDoWithoutQueue() bool { return u.enters() && !u.waiter.terms.Fair }

// Wake implements lease.Waiters.
func (g *Group) Wake(line string, node int, undoes lease.Turn) {
	var failed *waiter
	if u, ok := undoes.(*turn); ok {
		failed = u.waiter
	}
	g.lines.wake(line, node, false, failed)
}

// showTicket puts the ticket of w into the queues of its lines, or keeps it alive there, without an attempt.
func (g *Group) showTicket(w *waiter) {
	ls := &g.lines
	ls.mu.Lock()
	w.agenda.refresh = time.Now().Add(showEvery)
	if w.state != trying {
		w.vain = false
		w.agenda.shown++
	}
	ticket, at := g.ticketLocked(w), w.at
	l := w.terms.Nobody()
	w.entered = append(w.entered[:0], l)
	ls.mu.Unlock()
	enters := make([]script.Ticket, len(w.names))
	for i := range enters {
		if w.terms.Fair || i == at {
			enters[i] = ticket
		}
	}
	l.Release(lease.Releasing{Enters: enters})
}

// runOutJitter keeps waiters apart for which the same TTL runs out.
const runOutJitter = 10 * time.Millisecond

// runsOut returns when the lock may become free on a quorum without a release, zero if that is unknown or past.
func runsOut(o lease.Outcome, now clock.Instant) time.Time {
	type free struct {
		node int
		at   time.Duration // by the monotonic clock
	}
	var all []free
	for i, v := range o.Result.Votes {
		switch d := v.Answer.Details(); {
		case v.Answer.Found == claim.Unknown:
		case v.Answer.Found == claim.Mine: // its release is under way
			at := d.At
			if counts, guarded := v.Err.(quorum.Guarding); guarded { //nolint:errorlint // it is not wrapped
				at = now.Mono + counts.CountsFrom().Sub(now.Wall)
			}
			all = append(all, free{i, at})
		case d.Wait != claim.Never:
			all = append(all, free{i, d.At + d.Wait})
		}
	}
	slices.SortFunc(all, func(a, b free) int { return cmp.Compare(a.at, b.at) })
	var nodes claim.Nodes
	for _, f := range all {
		nodes = nodes.With(f.node)
		if !o.Result.Rule.Quorum(nodes) {
			continue
		}
		if f.at <= now.Mono {
			break
		}
		return now.After(f.at - now.Mono + time.Millisecond + jitter.N(runOutJitter))
	}
	return time.Time{}
}

// denials are those that a call has heard. It must not wait for a key of another type in the lock's place, which stays.
// With lease.Policy.EndsIfDenied other denials count, too. Those of several attempts add up, because an attempt may be
// decided before a denial arrives.
type denials struct {
	nodes claim.Nodes
	votes []claim.Vote // by node; as long as needed
	at    []time.Time  // by node
}

// denialLasts is how long a denial counts while the node does not answer. A node may break the connection after it.
const denialLasts = 5 * time.Second

// note notes the votes of a failed attempt, and reports whether the nodes that deny the lock leave no quorum.
func (d *denials) note(o lease.Outcome, queued, all bool) bool {
	switch {
	case o.Result.Rule == nil, !all && o.Result.Count.Failed == 0:
		return false
	case o.Result.Won: // too late, and without votes
		*d = denials{}
		return false
	}
	for i, v := range o.Result.Votes {
		d.hear(i, v, queued, all)
	}
	return d.nodes != 0 && o.Result.Rule.Blocks(d.nodes)
}

// hear notes the vote of node i. queued: the waiter can do without the queue, and a node may forbid only that key.
// Unless all is set, only a key of another type counts.
func (d *denials) hear(i int, v claim.Vote, queued, all bool) {
	for len(d.votes) <= i {
		d.votes, d.at = append(d.votes, claim.Vote{}), append(d.at, time.Time{})
	}
	now, counts := time.Now(), all || wire.IsWrongType(v.Err)
	switch {
	case counts && queued && quorum.IsForbidden(v.Err):
	case counts && v.Choice == claim.Failed && wire.IsPermanent(v.Err):
		d.nodes, d.votes[i], d.at[i] = d.nodes.With(i), v, now
	case v.Choice == claim.Granted || v.Choice == claim.Refused || now.Sub(d.at[i]) > denialLasts:
		d.nodes, d.votes[i] = d.nodes.Without(i), claim.Vote{}
	}
}
