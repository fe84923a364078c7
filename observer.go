package redsync

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"time"
	"weak"

	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/journal"
	"github.com/seed14bd9ef4/redsync/internal/lease"
	"github.com/seed14bd9ef4/redsync/internal/notice"
	"github.com/seed14bd9ef4/redsync/internal/queue"
	"github.com/seed14bd9ef4/redsync/internal/quorum"
	"github.com/seed14bd9ef4/redsync/observe"
)

// This file turns what internal packages report into the events of package observe, and tells the observers of them.

// observers is a list of observers. It is immutable, because a Redsync and those that its With returns
// share it. A nil *observers is an empty list.
type observers struct {
	all   []any
	votes bool // one of them is an observe.VoteObserver
}

// with returns a copy of o with one more observer at the end, unless o has it: nobody is told twice.
func (o *observers) with(observer any) *observers {
	if o != nil && reflect.ValueOf(observer).Comparable() && slices.Contains(o.all, observer) {
		return o
	}
	_, votes := observer.(observe.VoteObserver)
	more := &observers{all: []any{observer}, votes: votes}
	if o != nil {
		more.all = append(slices.Clone(o.all), observer)
		more.votes = votes || o.votes
	}
	return more
}

// loggers returns the loggers of WithLogger.
func (o *observers) loggers() (all []*slog.Logger) {
	if o == nil {
		return nil
	}
	for _, observer := range o.all {
		if l, ok := observer.(*logObserver); ok {
			all = append(all, l.log)
		}
	}
	return all
}

// tell calls method, the method of the interface O, on each observer that implements O. If one of them panics, the
// others are told all the same.
func tell[O, E any](ctx context.Context, to *observers, method func(O, context.Context, E), event E) {
	if to != nil {
		tellEach(ctx, to.all, method, event, nil)
	}
}

// tellEach is tell for some observers. If they are told by notices, it stops when Close has given up waiting.
func tellEach[O, E any](ctx context.Context, all []any, method func(O, context.Context, E), event E, notices *notice.Queue) {
	told := 0
	defer func() {
		if told < len(all) { // the last one has panicked
			tellEach(ctx, all[told:], method, event, notices)
		}
	}()
	for _, o := range all {
		told++
		if o, ok := o.(O); ok && !(notices != nil && notices.IsSilent()) {
			method(o, ctx, event)
		}
	}
}

// Dropped implements notice.Receiver.
func (o *observers) Dropped(events int) {
	tell(context.Background(), o, observe.EventsDroppedObserver.ObserveEventsDropped, observe.EventsDropped{Events: events})
}

// isObserver reports whether v has a method of an observer.
func isObserver(v any) bool {
	switch v.(type) {
	case observe.AttemptObserver, observe.VoteObserver, observe.WaitingObserver, observe.AcquiredObserver, observe.NotAcquiredObserver,
		observe.ExtendedObserver, observe.ReleasedObserver, observe.DetachedObserver, observe.LostObserver,
		observe.ReleaseUnconfirmedObserver, observe.WakeUpDeniedObserver, observe.NodeDownObserver,
		observe.NodeUpObserver, observe.OneServerObserver, observe.TwoServersObserver, observe.RegisterIgnoredObserver,
		observe.EventsDroppedObserver:
		return true
	}
	return false
}

// events turns what internal packages report of one Mutex into events for its observers. It implements
// lease.Events and queue.Events.
type events struct {
	to      *observers    // not nil
	notices *notice.Queue // for events whose sender must not wait for observers
	name    string        // of the Mutex
	mode    observe.Mode  // of its locks

	mu   sync.Mutex      // guards what follows
	held any             // the *lease.Lease that was acquired last; nil once it has ended
	ctx  context.Context //nolint:containedctx // of the call that acquired held: for the watchdog's extensions
}

// heldSince notes the context of the call that acquired h, unless h is over at now.
func (e *events) heldSince(ctx context.Context, h *lease.Lease, now clock.Instant) {
	e.mu.Lock()
	e.held, e.ctx = h, ctx
	e.mu.Unlock()
	if h.NotHeld(now) != nil { // over may have come before
		e.over(h)
	}
}

// over notes that h has ended. The Mutex may have another lock by then: it gets one while Detach waits for replies.
func (e *events) over(h any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.held == h {
		e.held, e.ctx = nil, nil
	}
}

// ofWatchdog returns the context for an extension of the watchdog: the values of the context of the call that acquired
// the lock.
func (e *events) ofWatchdog() context.Context {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ctx == nil {
		return context.Background()
	}
	return context.WithoutCancel(e.ctx)
}

// eventsOf returns the events of locks with these terms, if somebody listens: t.Events is not nil.
func eventsOf(t *lease.Terms) *events {
	return t.Events.(*events) //nolint:forcetypeassert // termsBy has made it
}

// Waits implements queue.Events.
func (e *events) Waits(ctx context.Context, start clock.Instant, number uint64) {
	tell(ctx, e.to, observe.WaitingObserver.ObserveWaiting,
		observe.Waiting{Name: e.name, Mode: e.mode, Start: start.Wall, Call: number})
}

// tellLater queues an event. The goroutine of e.notices tells it to the observers.
func tellLater[O, E any](ctx context.Context, e *events, method func(O, context.Context, E), event E) {
	e.notices.Add(e.to, func() { tellEach(ctx, e.to.all, method, event, e.notices) })
}

// tellOfNoCall queues an event that is part of no call.
func tellOfNoCall[O, E any](e *events, method func(O, context.Context, E), event E) {
	tellLater(context.Background(), e, method, event)
}

// TracesVotes implements quorum.Tracer.
func (e *events) TracesVotes() bool { return e.to.votes }

// Voted implements quorum.Tracer.
func (e *events) Voted(ctx context.Context, v quorum.Voted, later bool) {
	event := observe.Vote{
		Name: e.name, Mode: e.mode, Start: v.Start, Took: v.Took, Node: v.Node.Index, Op: v.Op.String(), Late: v.Late,
		Err: explain(v.Node, v.Vote),
	}
	if later {
		tellLater(ctx, e, observe.VoteObserver.ObserveVote, event)
		return
	}
	tell(ctx, e.to, observe.VoteObserver.ObserveVote, event)
}

// NodeDown implements quorum.Tracer.
func (e *events) NodeDown(n *quorum.Node, omitted int, err error) {
	tellOfNoCall(e, observe.NodeDownObserver.ObserveNodeDown,
		observe.NodeDown{Node: n.Index, Address: n.Address(), Omitted: omitted, Err: err})
}

// NodeStillDown implements quorum.Tracer. Of the observers only the log is told: for the others a NodeUp follows each
// NodeDown, so that they can count.
func (e *events) NodeStillDown(n *quorum.Node, err error) {
	tellOfNoCall(e, stillDownObserver.observeNodeStillDown, observe.NodeDown{Node: n.Index, Address: n.Address(), Err: err})
}

// A stillDownObserver is told that a node is still down, perhaps for another reason.
type stillDownObserver interface {
	observeNodeStillDown(ctx context.Context, d observe.NodeDown)
}

// NodeUp implements quorum.Tracer.
func (e *events) NodeUp(n *quorum.Node, down time.Duration) {
	tellOfNoCall(e, observe.NodeUpObserver.ObserveNodeUp, observe.NodeUp{Node: n.Index, Address: n.Address(), Down: down})
}

// OneServer implements quorum.Tracer.
func (e *events) OneServer(a, b *quorum.Node, runID string) {
	tellOfNoCall(e, observe.OneServerObserver.ObserveOneServer,
		observe.OneServer{Nodes: [2]int{a.Index, b.Index}, Addresses: [2]string{a.Address(), b.Address()}, RunID: runID})
}

// TwoServers implements quorum.Tracer.
func (e *events) TwoServers(a, b *quorum.Node) {
	tellOfNoCall(e, observe.TwoServersObserver.ObserveTwoServers,
		observe.TwoServers{Nodes: [2]int{a.Index, b.Index}, Addresses: [2]string{a.Address(), b.Address()}})
}

// Ignored implements lease.Events.
func (e *events) Ignored(n *quorum.Node, err error) {
	tellOfNoCall(e, observe.RegisterIgnoredObserver.ObserveRegisterIgnored,
		observe.RegisterIgnored{Name: e.name, Node: n.Index, Address: n.Address(), Err: err})
}

// Lost implements lease.Events.
func (e *events) Lost(of any, held time.Duration, err error) {
	e.over(of)
	tellOfNoCall(e, observe.LostObserver.ObserveLost, observe.Lost{Name: e.name, Mode: e.mode, Held: held, Err: err})
}

// A hold is a lease as the journal knows it. It does not keep the lease in memory.
type hold struct{ lease weak.Pointer[lease.Lease] }

// IsHeld implements journal.Hold.
func (h hold) IsHeld() bool {
	l := h.lease.Value()
	return l != nil && l.NotHeld(clock.Now()) == nil
}

// holdKey is the key of the hold in the context of an extension: the log counts holds, and an observe.Extended names none.
type holdKey struct{}

func withHold(ctx context.Context, of *lease.Lease) context.Context {
	return context.WithValue(ctx, holdKey{}, hold{weak.Make(of)})
}

// extendedBy returns the hold of the extension with the context ctx, nil if it has none.
func extendedBy(ctx context.Context) journal.Hold {
	h, _ := ctx.Value(holdKey{}).(journal.Hold)
	return h
}

// joinsKey is the key of true in the context of a failed attempt whose call waits from now on, but is in no line yet.
type joinsKey struct{}

// Extended implements lease.Events.
func (e *events) Extended(of any, res quorum.Result, lost bool, start time.Time, took, left time.Duration) {
	event := observe.Extended{Name: e.name, Mode: e.mode, Start: start, Took: took, Watchdog: true, Left: max(left-took, 0)}
	switch {
	case lost:
		event.Err = ends.Rejected(e.name, res)
	case !res.Won:
		event.Err = fail("", "", ErrExtendFailed, unconfirmed(e.name, res))
	}
	ctx := withHold(e.ofWatchdog(), of.(*lease.Lease)) //nolint:forcetypeassert // see lease.Events
	tellLater(ctx, e, observe.ExtendedObserver.ObserveExtended, event)
}

// Unconfirmed implements lease.Events.
func (e *events) Unconfirmed(n *quorum.Node, pending int, givenUp bool, err error) {
	tellOfNoCall(e, observe.ReleaseUnconfirmedObserver.ObserveReleaseUnconfirmed, observe.ReleaseUnconfirmed{
		Name: e.name, Mode: e.mode, Node: n.Index, Address: n.Address(), Pending: pending, GivenUp: givenUp, Err: err,
	})
}

// Left implements lease.Events.
func (e *events) Left(n *quorum.Node, releases int, within time.Duration, err error) {
	tellOfNoCall(e, observe.ReleaseUnconfirmedObserver.ObserveReleaseUnconfirmed, observe.ReleaseUnconfirmed{
		Node: n.Index, Address: n.Address(), Pending: releases, GivenUp: true, Within: within, Err: err,
	})
}

// Audience implements lease.Events.
func (e *events) Audience() any { return e.to }

// Denied implements lease.Events.
func (e *events) Denied(n *quorum.Node, err error) {
	tellOfNoCall(e, observe.WakeUpDeniedObserver.ObserveWakeUpDenied,
		observe.WakeUpDenied{Name: e.name, Node: n.Index, Address: n.Address(), Err: err})
}

// Refused implements queue.Events.
func (e *events) Refused(n *quorum.Node, err error) {
	tellOfNoCall(e, observe.WakeUpDeniedObserver.ObserveWakeUpDenied,
		observe.WakeUpDenied{Node: n.Index, Address: n.Address(), Err: err})
}

// notAcquired tells that a call that began at start has acquired nothing.
func (e *events) notAcquired(ctx context.Context, start clock.Instant, waits queue.Wait, err error) {
	tell(ctx, e.to, observe.NotAcquiredObserver.ObserveNotAcquired, observe.NotAcquired{
		Name: e.name, Mode: e.mode, Start: start.Wall, Took: clock.Now().Since(start), Call: waits.Number, Err: err,
	})
}

// errPanicked is what observers are told of a call that panics: its caller gets no error.
var errPanicked = errors.New("redsync: an observer or the function of an option has panicked")

// panicked tells that a call that began at start has ended, if it has waited and does not return.
func (e *events) panicked(ctx context.Context, start clock.Instant, waits *queue.Wait, returned *bool) {
	if !*returned && waits.Number != 0 {
		e.notAcquired(ctx, start, *waits, errPanicked)
	}
}

// extended tells how an Extend of the lease h has ended. left is how long the lock was valid at start.
func (e *events) extended(ctx context.Context, h *lease.Lease, start clock.Instant, left time.Duration, err error) {
	took := clock.Now().Since(start)
	tell(withHold(ctx, h), e.to, observe.ExtendedObserver.ObserveExtended, observe.Extended{
		Name: e.name, Mode: e.mode, Start: start.Wall, Took: took, Left: max(left-took, 0), Err: err,
	})
}

// Attempted implements queue.Events. An attempt that its context has cut failed for no other reason.
func (e *events) Attempted(ctx context.Context, l *lease.Lease, o lease.Outcome, joins bool) error {
	count, why := o.Result.Count, contextErrors(ctx)
	if !o.IsCut() {
		why = verdict(e.name, o.Lines, o)
	}
	if joins && errors.Is(why, ErrNoQuorum) {
		ctx = context.WithValue(ctx, joinsKey{}, true)
	}
	tell(ctx, e.to, observe.AttemptObserver.ObserveAttempt, observe.Attempt{
		Name: e.name, Mode: e.mode, Start: l.First.Wall, Took: clock.Now().Since(l.First), Try: int(l.Try), Err: why,
		Granted: count.Granted.Len(), Refused: count.Refused.Len(), Failed: count.Failed.Len(),
	})
	return why
}
