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

// observers are the hooks and the loggers that are told of events. Mutexes share them, so they are immutable. nil tells
// nobody.
type observers struct {
	hooks   []*observe.Hooks
	loggers []*slog.Logger

	// These tell all hooks and loggers, in the order of the options. A function is nil if nobody listens.
	now       observe.Hooks
	later     observe.Hooks                           // silent once Close has given up waiting
	stillDown func(context.Context, observe.NodeDown) // only loggers
}

// withHooks returns a copy of o that also tells h. until may be nil.
func (o *observers) withHooks(h *observe.Hooks, until *notice.Queue) *observers {
	if reflect.ValueOf(*h).IsZero() || o != nil && slices.Contains(o.hooks, h) {
		return o
	}
	more := o.with(h, until)
	more.hooks = append(slices.Clip(more.hooks), h)
	return more
}

func (o *observers) withLogger(log *slog.Logger, j *journal.Journal, until *notice.Queue) *observers {
	if o != nil && slices.Contains(o.loggers, log) {
		return o
	}
	lines := &logLines{log, j}
	more := o.with(lines.hooks(), until)
	more.loggers = append(slices.Clip(more.loggers), log)
	more.stillDown = then(more.stillDown, lines.nodeDown, until)
	return more
}

func (o *observers) with(h *observe.Hooks, until *notice.Queue) *observers {
	more := &observers{}
	if o != nil {
		*more = *o
	}
	more.now, more.later = join(&more.now, h, nil), join(&more.later, h, until)
	return more
}

func join(a, b *observe.Hooks, until *notice.Queue) observe.Hooks {
	return observe.Hooks{
		Attempt:            then(a.Attempt, b.Attempt, until),
		Vote:               then(a.Vote, b.Vote, until),
		Waiting:            then(a.Waiting, b.Waiting, until),
		Acquired:           then(a.Acquired, b.Acquired, until),
		NotAcquired:        then(a.NotAcquired, b.NotAcquired, until),
		Extended:           then(a.Extended, b.Extended, until),
		Released:           then(a.Released, b.Released, until),
		Detached:           then(a.Detached, b.Detached, until),
		Lost:               then(a.Lost, b.Lost, until),
		ReleaseUnconfirmed: then(a.ReleaseUnconfirmed, b.ReleaseUnconfirmed, until),
		WakeUpDenied:       then(a.WakeUpDenied, b.WakeUpDenied, until),
		NodeDown:           then(a.NodeDown, b.NodeDown, until),
		NodeUp:             then(a.NodeUp, b.NodeUp, until),
		OneServer:          then(a.OneServer, b.OneServer, until),
		TwoServers:         then(a.TwoServers, b.TwoServers, until),
		RegisterIgnored:    then(a.RegisterIgnored, b.RegisterIgnored, until),
		EventsDropped:      then(a.EventsDropped, b.EventsDropped, until),
	}
}

// then returns a function that calls a and then b, even if a panics, unless until is silent.
func then[E any](a, b func(context.Context, E), until *notice.Queue) func(context.Context, E) {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	return func(ctx context.Context, event E) {
		defer func() {
			if until == nil || !until.IsSilent() {
				b(ctx, event)
			}
		}()
		a(ctx, event)
	}
}

func tell[E any](ctx context.Context, hook func(context.Context, E), event E) {
	if hook != nil {
		hook(ctx, event)
	}
}

func (o *observers) Dropped(events int) {
	tell(context.Background(), o.later.EventsDropped, observe.EventsDropped{Events: events})
}

// events turns what internal packages report of one Mutex into events for its observers. It implements lease.Events and
// quorum.Tracer.
type events struct {
	to      *observers    // not nil
	notices *notice.Queue // for events whose sender must not wait
	name    string
	mode    observe.Mode

	mu   sync.Mutex      // guards what follows
	held any             // the last *lease.Lease, nil once it has ended
	ctx  context.Context //nolint:containedctx // of the call that acquired held: for the watchdog's extensions
}

func (e *events) heldSince(ctx context.Context, h *lease.Lease, now clock.Instant) {
	e.mu.Lock()
	e.held, e.ctx = h, ctx
	e.mu.Unlock()
	if h.NotHeld(now) != nil { // over may have come before
		e.over(h)
	}
}

// over notes that h has ended. The Mutex may have another lock already.
func (e *events) over(h any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.held == h {
		e.held, e.ctx = nil, nil
	}
}

func (e *events) ofWatchdog() context.Context {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ctx == nil {
		return context.Background()
	}
	return context.WithoutCancel(e.ctx)
}

func eventsOf(t *lease.Terms) *events {
	return t.Events.(*events) //nolint:forcetypeassert // termsBy has made it
}

func (e *events) Waits(ctx context.Context, start clock.Instant, number uint64) {
	tell(ctx, e.to.now.Waiting,
		observe.Waiting{Name: e.name, Mode: e.mode, Start: start.Wall, Call: number})
}

func tellLater[E any](ctx context.Context, e *events, hook func(context.Context, E), event E) {
	if hook != nil {
		e.notices.Add(e.to, func() { hook(ctx, event) })
	}
}

func tellOfNoCall[E any](e *events, hook func(context.Context, E), event E) {
	tellLater(context.Background(), e, hook, event)
}

func (e *events) TracesVotes() bool { return e.to.now.Vote != nil }

func (e *events) Voted(ctx context.Context, v quorum.Voted, later bool) {
	event := observe.Vote{
		Name: e.name, Mode: e.mode, Start: v.Start, Took: v.Took, Node: v.Node.Index, Op: v.Op.String(), Late: v.Late,
		Err: explain(v.Node, v.Vote),
	}
	if later {
		tellLater(ctx, e, e.to.later.Vote, event)
		return
	}
	tell(ctx, e.to.now.Vote, event)
}

func (e *events) NodeDown(n *quorum.Node, omitted int, err error) {
	tellOfNoCall(e, e.to.later.NodeDown,
		observe.NodeDown{Node: n.Index, Address: n.Address(), Omitted: omitted, Err: err})
}

// NodeStillDown tells only the log, which may not know of it: another Redsync was told, or the event was dropped. Hooks
// count a NodeUp for each NodeDown.
func (e *events) NodeStillDown(n *quorum.Node, err error) {
	tellOfNoCall(e, e.to.stillDown, observe.NodeDown{Node: n.Index, Address: n.Address(), Err: err})
}

func (e *events) NodeUp(n *quorum.Node, down time.Duration) {
	tellOfNoCall(e, e.to.later.NodeUp, observe.NodeUp{Node: n.Index, Address: n.Address(), Down: down})
}

func (e *events) OneServer(a, b *quorum.Node, runID string) {
	tellOfNoCall(e, e.to.later.OneServer,
		observe.OneServer{Nodes: [2]int{a.Index, b.Index}, Addresses: [2]string{a.Address(), b.Address()}, RunID: runID})
}

func (e *events) TwoServers(a, b *quorum.Node) {
	tellOfNoCall(e, e.to.later.TwoServers,
		observe.TwoServers{Nodes: [2]int{a.Index, b.Index}, Addresses: [2]string{a.Address(), b.Address()}})
}

func (e *events) Ignored(n *quorum.Node, err error) {
	tellOfNoCall(e, e.to.later.RegisterIgnored,
		observe.RegisterIgnored{Name: e.name, Node: n.Index, Address: n.Address(), Err: err})
}

func (e *events) Lost(l *lease.Lease, held time.Duration, err error) {
	e.over(l)
	tellOfNoCall(e, e.to.later.Lost, observe.Lost{Name: e.name, Mode: e.mode, Held: held, Err: err})
}

// A hold is a lease as the journal knows it, without keeping it in memory.
type hold struct{ lease weak.Pointer[lease.Lease] }

func (h hold) IsHeld() bool {
	l := h.lease.Value()
	return l != nil && l.NotHeld(clock.Now()) == nil
}

// holdKey is the key of the hold in the context of an extension: the log counts holds.
type holdKey struct{}

func withHold(ctx context.Context, of *lease.Lease) context.Context {
	return context.WithValue(ctx, holdKey{}, hold{weak.Make(of)})
}

func extendedBy(ctx context.Context) journal.Hold {
	h, _ := ctx.Value(holdKey{}).(journal.Hold)
	return h
}

// joinsKey is the key of true in the context of a failed attempt whose call is about to wait in a line.
type joinsKey struct{}

func (e *events) Extended(l *lease.Lease, res quorum.Result, lost bool, start time.Time, took, left time.Duration) {
	event := observe.Extended{Name: e.name, Mode: e.mode, Start: start, Took: took, Watchdog: true, Left: max(left-took, 0)}
	switch {
	case lost:
		event.Err = ends.Rejected(e.name, res)
	case !res.Won:
		event.Err = fail("", "", ErrExtendFailed, unconfirmed(e.name, res))
	}
	ctx := withHold(e.ofWatchdog(), l)
	tellLater(ctx, e, e.to.later.Extended, event)
}

func (e *events) Unconfirmed(n *quorum.Node, pending int, givenUp bool, err error) {
	tellOfNoCall(e, e.to.later.ReleaseUnconfirmed, observe.ReleaseUnconfirmed{
		Name: e.name, Mode: e.mode, Node: n.Index, Address: n.Address(), Pending: pending, GivenUp: givenUp, Err: err,
	})
}

func (e *events) Left(n *quorum.Node, releases int, within time.Duration, err error) {
	tellOfNoCall(e, e.to.later.ReleaseUnconfirmed, observe.ReleaseUnconfirmed{
		Node: n.Index, Address: n.Address(), Pending: releases, GivenUp: true, Within: within, Err: err,
	})
}

func (e *events) Audience() any { return e.to }

func (e *events) Denied(n *quorum.Node, lock string, err error) {
	tellOfNoCall(e, e.to.later.WakeUpDenied,
		observe.WakeUpDenied{Name: lock, Node: n.Index, Address: n.Address(), Err: err})
}

func (e *events) notAcquired(ctx context.Context, start clock.Instant, waits queue.Wait, err error) {
	tell(ctx, e.to.now.NotAcquired, observe.NotAcquired{
		Name: e.name, Mode: e.mode, Start: start.Wall, Took: clock.Now().Since(start), Call: waits.Number, Err: err,
	})
}

// errPanicked is what observers are told of a call that panics.
var errPanicked = errors.New("redsync: an observer or the function of an option has panicked")

func (e *events) panicked(ctx context.Context, start clock.Instant, waits *queue.Wait, returned *bool) {
	if !*returned && waits.Number != 0 {
		e.notAcquired(ctx, start, *waits, errPanicked)
	}
}

func (e *events) extended(ctx context.Context, h *lease.Lease, start clock.Instant, left time.Duration, err error) {
	took := clock.Now().Since(start)
	tell(withHold(ctx, h), e.to.now.Extended, observe.Extended{
		Name: e.name, Mode: e.mode, Start: start.Wall, Took: took, Left: max(left-took, 0), Err: err,
	})
}

// Attempted tells of an attempt. If its context has cut it, there is no other reason.
func (e *events) Attempted(ctx context.Context, l *lease.Lease, o lease.Outcome, joins bool) error {
	count, why := o.Result.Count, contextErrors(ctx)
	if !o.IsCut() {
		why = verdict(e.name, o.Lines, o)
	}
	if joins && errors.Is(why, ErrNoQuorum) {
		ctx = context.WithValue(ctx, joinsKey{}, true)
	}
	tell(ctx, e.to.now.Attempt, observe.Attempt{
		Name: e.name, Mode: e.mode, Start: l.First.Wall, Took: clock.Now().Since(l.First), Try: int(l.Try), Err: why,
		Granted: count.Granted.Len(), Refused: count.Refused.Len(), Failed: count.Failed.Len(),
	})
	return why
}
