package redsyncotel

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/observe"
)

// scopeName is the name of the instrumentation scope.
const scopeName = "github.com/seed14bd9ef4/redsync/redsyncotel"

// version returns the version of the instrumentation scope: that of this module, as the go command has noted it in the
// program. It is "(devel)", as the go command calls it, for a checkout, and where nothing is noted.
var version = sync.OnceValue(func() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return devel
	}
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path == scopeName && m.Replace == nil && m.Version != "" {
			return m.Version
		}
	}
	return devel
})

const devel = "(devel)"

// An Option is an option of NewHooks.
type Option func(*settings)

type settings struct {
	meters         metric.MeterProvider
	tracers        trace.TracerProvider
	rename         func(string) string
	watchdogSilent bool
	errs           []error
}

// WithMeterProvider sets the provider of the instruments. The default is that of otel.GetMeterProvider. With nil,
// NewHooks fails.
func WithMeterProvider(p metric.MeterProvider) Option {
	return func(s *settings) {
		if p == nil {
			s.errs = append(s.errs, errors.New("redsyncotel: WithMeterProvider(nil): it needs a provider"))
		}
		s.meters = p
	}
}

// WithTracerProvider sets the provider of the spans. The default is that of otel.GetTracerProvider. With nil, NewHooks
// fails.
func WithTracerProvider(p trace.TracerProvider) Option {
	return func(s *settings) {
		if p == nil {
			s.errs = append(s.errs, errors.New("redsyncotel: WithTracerProvider(nil): it needs a provider"))
		}
		s.tracers = p
	}
}

// WithName adds the attribute redsync.name to the metrics of locks, and to spans. name makes it from the name of the
// lock, which is what Mutex.Name returns. Each result has series of its own, so there must be few: cut the ID from
// "order:17". By default the SDK puts all series of a metric beyond 2,000 into one. Without this option, no name of a
// lock appears anywhere. With nil, NewHooks fails.
//
// name must return the same for the same lock each time: otherwise the up-down counters do not come back to 0. Many
// goroutines may call it at once, and it delays the call of the lock. If it panics or returns "", the measurement has no
// redsync.name. The metrics of nodes never have a name.
func WithName(name func(lock string) string) Option {
	return func(s *settings) {
		if name == nil {
			s.errs = append(s.errs, errors.New("redsyncotel: WithName(nil): it needs a function"))
		}
		s.rename = name
	}
}

// WithoutWatchdogSpans makes no spans of the watchdog's extensions. By default each is a root span with a link to the
// span in whose context the lock was acquired.
func WithoutWatchdogSpans() Option {
	return func(s *settings) { s.watchdogSilent = true }
}

// An observer records metrics and spans of locks. Many goroutines call it at once.
type observer struct {
	spans  spans
	tables tables // of the metrics of locks
	nodes  *table // of the metrics of nodes

	acquire, hold, node                  metric.Float64Histogram
	held, waiting                        metric.Int64UpDownCounter
	lost, extend, nodeDown, eventDropped metric.Int64Counter
	nodeFailing                          metric.Int64Gauge
}

// NewHooks returns Hooks that record metrics and spans of locks. Pass them to redsync.WithHooks. They may serve all locks
// of a program. NewHooks fails if an option is wrong, or if the meter provider makes no instruments. It starts nothing.
func NewHooks(options ...Option) (*observe.Hooks, error) {
	s := settings{meters: otel.GetMeterProvider(), tracers: otel.GetTracerProvider()}
	for _, option := range options {
		if option == nil {
			return nil, errors.New("redsyncotel: NewHooks: a nil Option")
		}
		option(&s)
	}
	if err := errors.Join(s.errs...); err != nil {
		return nil, err
	}
	o := &observer{nodes: newTable("")}
	o.tables = tables{nameless: newTable(""), rename: s.rename, named: map[string]*table{}}
	tracer := s.tracers.Tracer(scopeName, trace.WithInstrumentationVersion(version()))
	o.spans = spans{tracer: tracer, watchdogSilent: s.watchdogSilent}
	if err := o.makeInstruments(s.meters.Meter(scopeName, metric.WithInstrumentationVersion(version()))); err != nil {
		return nil, fmt.Errorf("redsyncotel: NewHooks: %w", err)
	}
	return o.hooks(), nil
}

func (o *observer) hooks() *observe.Hooks {
	return &observe.Hooks{
		Vote:          o.onVote,
		Waiting:       o.onWaiting,
		Acquired:      o.onAcquired,
		NotAcquired:   o.onNotAcquired,
		Extended:      o.onExtended,
		Released:      o.onReleased,
		Detached:      o.onDetached,
		Lost:          o.onLost,
		NodeDown:      o.onNodeDown,
		NodeUp:        o.onNodeUp,
		EventsDropped: o.onEventsDropped,
	}
}

// The bounds of the histograms' buckets, in seconds.
var (
	acquireBounds = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}
	holdBounds    = []float64{.001, .005, .01, .05, .1, .5, 1, 5, 10, 30, 60, 300, 1800, 7200}
	nodeBounds    = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5}
)

func (o *observer) makeInstruments(m metric.Meter) error {
	var errs []error
	histogram := func(name, about string, bounds []float64) metric.Float64Histogram {
		h, err := m.Float64Histogram(name, metric.WithDescription(about), metric.WithUnit("s"),
			metric.WithExplicitBucketBoundaries(bounds...))
		errs = append(errs, err)
		return h
	}
	upDown := func(name, about, unit string) metric.Int64UpDownCounter {
		c, err := m.Int64UpDownCounter(name, metric.WithDescription(about), metric.WithUnit(unit))
		errs = append(errs, err)
		return c
	}
	counter := func(name, about, unit string) metric.Int64Counter {
		c, err := m.Int64Counter(name, metric.WithDescription(about), metric.WithUnit(unit))
		errs = append(errs, err)
		return c
	}
	o.acquire = histogram("redsync.acquire.duration", "How long Lock and TryLock took.", acquireBounds)
	o.hold = histogram("redsync.hold.duration", "How long locks were held. Each lock counts once, at its end.", holdBounds)
	o.node = histogram("redsync.node.duration", "How long a node took to answer.", nodeBounds)
	o.held = upDown("redsync.held", "Locks that are held.", "{lock}")
	o.waiting = upDown("redsync.waiting", "Calls of Lock that wait.", "{call}")
	o.lost = counter("redsync.lost", "Locks that ended before Unlock and Detach.", "{lock}")
	o.extend = counter("redsync.extend", "Extensions by Extend, Downgrade and the watchdog.", "{extension}")
	o.nodeDown = counter("redsync.node.down", "How often a node began to fail.", "{outage}")
	o.eventDropped = counter("redsync.events.dropped", "Events that were dropped, because a hook was too slow.", "{event}")
	var err error
	o.nodeFailing, err = m.Int64Gauge("redsync.node.failing", metric.WithDescription("1 while a node is down, otherwise 0."), metric.WithUnit("{node}"))
	if err := errors.Join(append(errs, err)...); err != nil {
		return err
	}
	o.onEventsDropped(context.Background(), observe.EventsDropped{}) // otherwise a query for an increase misses the first
	return nil
}

// Outcomes. README.md says what each means.
const (
	outcomeAcquired    = "acquired"
	outcomeTaken       = "taken"
	outcomeCanceled    = "canceled"
	outcomeFailed      = "failed"
	outcomeReleased    = "released"
	outcomeUnconfirmed = "unconfirmed"
	outcomeDetached    = "detached"
	outcomeLost        = "lost"
	outcomeExtended    = "extended"
	outcomeGranted     = "granted"
	outcomeRefused     = "refused"
)

// caught keeps a panic of a provider from the caller. Defer it. What a user's Error method would say is not called.
func caught() {
	if v := recover(); v != nil {
		report(v)
	}
}

// report tells otel.Handle of a panic, and survives a handler that panics itself.
func report(v any) {
	defer func() { _ = recover() }()
	otel.Handle(fmt.Errorf("redsyncotel: a provider of OpenTelemetry has panicked with a %T", v))
}

// onVote records how long a node took. It runs on the goroutine that reads the node's replies, where no function of
// the user's may run: WithName has no part in it.
func (o *observer) onVote(ctx context.Context, v observe.Vote) {
	defer caught()
	p := point{op: v.Op, node: v.Node + 1, outcome: outcomeRefused}
	switch v.Err.(type) { //nolint:errorlint // the types that observe.Vote names, and no walk through what they wrap
	case nil:
		p.outcome = outcomeGranted
	case *redsync.RedisError:
		p.outcome = outcomeFailed
	}
	o.node.Record(ctx, v.Took.Seconds(), o.nodes.options(p).record...)
}

// onWaiting counts a call that begins to wait.
func (o *observer) onWaiting(ctx context.Context, w observe.Waiting) {
	defer caught()
	o.waiting.Add(ctx, 1, o.tables.of(w.Name).options(point{mode: w.Mode}).add...)
}

// onAcquired counts a lock, and the end of the wait for it.
func (o *observer) onAcquired(ctx context.Context, a observe.Acquired) {
	defer caught()
	t := o.tables.of(a.Name)
	plain := t.options(point{mode: a.Mode})
	o.held.Add(ctx, 1, plain.add...)
	if a.Call != 0 {
		o.waiting.Add(ctx, -1, plain.add...)
	}
	p := point{mode: a.Mode, outcome: outcomeAcquired}
	o.acquire.Record(ctx, a.Took.Seconds(), t.options(p).record...)
	o.spans.lock(ctx, t, p, a.Start, a.Took, nil)
}

// onNotAcquired counts a call that got no lock, and the end of its wait.
func (o *observer) onNotAcquired(ctx context.Context, n observe.NotAcquired) {
	defer caught()
	t := o.tables.of(n.Name)
	if n.Call != 0 {
		o.waiting.Add(ctx, -1, t.options(point{mode: n.Mode}).add...)
	}
	p := point{mode: n.Mode, errorType: reason(ctx, n.Err), outcome: outcomeFailed}
	switch p.errorType {
	case typeTaken:
		p.outcome = outcomeTaken
	case typeCanceled, typeDeadlineExceeded:
		p.outcome = outcomeCanceled
		if isTaken(n.Err) {
			p.outcome = outcomeTaken
		}
	}
	o.acquire.Record(ctx, n.Took.Seconds(), t.options(p).record...)
	o.spans.lock(ctx, t, p, n.Start, n.Took, n.Err)
}

// onExtended counts an extension.
func (o *observer) onExtended(ctx context.Context, e observe.Extended) {
	defer caught()
	t := o.tables.of(e.Name)
	p := point{mode: e.Mode, errorType: errorType(ctx, e.Err), outcome: outcomeFailed}
	switch {
	case e.Err == nil:
		p.outcome = outcomeExtended
	case isOver(e.Err):
		p.outcome = outcomeLost
	}
	o.extend.Add(ctx, 1, t.options(p).add...)
	o.spans.extend(ctx, t, p, e)
}

// onReleased counts the end of a lock, unless a Lost tells of it. An Unlock that finds that the nodes have the lock
// no more has no Lost: its lock counts as lost.
func (o *observer) onReleased(ctx context.Context, r observe.Released) {
	defer caught()
	t := o.tables.of(r.Name)
	p := point{mode: r.Mode, errorType: errorType(ctx, r.Err), outcome: outcomeReleased}
	switch {
	case isOver(r.Err):
		p.outcome = outcomeLost
	case r.Err != nil:
		p.outcome = outcomeUnconfirmed
	}
	if r.Ended {
		o.ended(ctx, t, p.mode, p.outcome, r.Held)
		if p.outcome == outcomeLost {
			o.lost.Add(ctx, 1, t.options(point{mode: p.mode, errorType: p.errorType}).add...)
		}
	}
	o.spans.unlock(ctx, t, p, r)
}

// onDetached counts a lock that was given away.
func (o *observer) onDetached(ctx context.Context, d observe.Detached) {
	defer caught()
	o.ended(ctx, o.tables.of(d.Name), d.Mode, outcomeDetached, d.Held)
}

// onLost counts a lock that was lost.
func (o *observer) onLost(ctx context.Context, l observe.Lost) {
	defer caught()
	t := o.tables.of(l.Name)
	o.ended(ctx, t, l.Mode, outcomeLost, l.Held)
	o.lost.Add(ctx, 1, t.options(point{mode: l.Mode, errorType: reason(ctx, l.Err)}).add...)
}

// ended counts the end of a lock, once for each lock.
func (o *observer) ended(ctx context.Context, t *table, mode observe.Mode, outcome string, held time.Duration) {
	o.held.Add(ctx, -1, t.options(point{mode: mode}).add...)
	o.hold.Record(ctx, held.Seconds(), t.options(point{mode: mode, outcome: outcome}).record...)
}

// onNodeDown notes that a node has begun to fail, and counts how often it has.
func (o *observer) onNodeDown(ctx context.Context, n observe.NodeDown) {
	defer caught()
	of := o.nodes.options(point{node: n.Node + 1})
	o.nodeDown.Add(ctx, int64(1+n.Omitted), of.add...)
	o.nodeFailing.Record(ctx, 1, of.record...)
}

// onNodeUp notes that a node works again.
func (o *observer) onNodeUp(ctx context.Context, n observe.NodeUp) {
	defer caught()
	o.nodeFailing.Record(ctx, 0, o.nodes.options(point{node: n.Node + 1}).record...)
}

// onEventsDropped counts events that were dropped.
func (o *observer) onEventsDropped(ctx context.Context, d observe.EventsDropped) {
	defer caught()
	o.eventDropped.Add(ctx, int64(d.Events))
}
