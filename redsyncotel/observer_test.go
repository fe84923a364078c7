package redsyncotel_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/observe"
	"github.com/seed14bd9ef4/redsync/redsyncotel"
	"github.com/seed14bd9ef4/redsync/redsynctest"
)

func TestNewHooksRefusesNil(t *testing.T) {
	for want, option := range map[string]redsyncotel.Option{
		"WithMeterProvider(nil)":  redsyncotel.WithMeterProvider(nil),
		"WithTracerProvider(nil)": redsyncotel.WithTracerProvider(nil),
		"WithName(nil)":           redsyncotel.WithName(nil),
		"a nil Option":            nil,
	} {
		hooks, err := redsyncotel.NewHooks(option)
		assert.ErrorContains(t, err, want)
		assert.Nil(t, hooks)
	}
	_, err := redsyncotel.NewHooks()
	require.NoError(t, err) // the global providers are the default
}

// modes are all of a lock's.
var modes = []observe.Mode{observe.Plain, observe.Names, observe.Shared, observe.Permits}

// errs are the errors of package redsync, alone and together, with what they must be counted as while the context is live.
var errs = map[error]string{
	redsync.ErrFailed:             "taken",
	redsync.ErrMaxHold:            "max_hold",
	redsync.ErrClosed:             "closed",
	redsync.ErrNested:             "nested",
	redsync.ErrDuplicateNode:      "duplicate_node",
	redsync.ErrNoPools:            "no_pools",
	redsync.ErrNoQuorum:           "no_quorum",
	context.Canceled:              "_OTHER", // an error of a node, or of the user's function
	context.DeadlineExceeded:      "_OTHER",
	redsync.ErrNotHeld:            "not_held",
	redsync.ErrLockAlreadyExpired: "expired",
	redsync.ErrLockLost:           "lost",
	redsync.ErrExtendFailed:       "extend_failed",
	errors.New("10.0.0.1:6379"):   "_OTHER",
	&redsync.ErrTaken{}:           "taken",
}

// play tells o of every event with every mode, every two errors at once, and every state of the context.
func play(o *observe.Hooks, name string, nodes int) {
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	late, end := context.WithDeadline(context.Background(), time.Now())
	defer end()
	all := []error{nil}
	for a := range errs {
		all = append(all, a)
		for b := range errs {
			all = append(all, fmt.Errorf("the lock %q: %w", name, errors.Join(a, b)))
		}
	}
	for _, ctx := range []context.Context{context.Background(), canceled, late} {
		for _, mode := range modes {
			o.Detached(ctx, observe.Detached{Name: name, Mode: mode})
			o.Waiting(ctx, observe.Waiting{Name: name, Mode: mode, Call: 1})
			o.Acquired(ctx, observe.Acquired{Name: name, Mode: mode, Call: 1})
			for _, err := range all {
				o.NotAcquired(ctx, observe.NotAcquired{Name: name, Mode: mode, Err: err})
				o.Extended(ctx, observe.Extended{Name: name, Mode: mode, Err: err})
				o.Released(ctx, observe.Released{Name: name, Mode: mode, Ended: true, Err: err})
				o.Lost(ctx, observe.Lost{Name: name, Mode: mode, Err: err})
			}
		}
		for i := range nodes {
			for _, op := range []string{"lock", "extend", "valid", "unlock"} {
				for _, err := range []error{nil, all[1], all[2], &redsync.RedisError{Err: context.DeadlineExceeded}, &redsync.ErrNodeTaken{}} {
					o.Vote(ctx, observe.Vote{Name: name, Op: op, Node: i, Err: err})
				}
			}
			o.NodeDown(ctx, observe.NodeDown{Node: i, Address: "10.0.0.1:6379", Err: all[1]})
		}
		o.EventsDropped(ctx, observe.EventsDropped{Events: 3})
	}
}

// limits is how many series each metric has at most, with n nodes and k names, counting none as one: see README.md.
func limits(n, k int) map[string]int {
	return map[string]int{
		"redsync.acquire.duration": 72 * k,
		"redsync.hold.duration":    16 * k,
		"redsync.node.duration":    12 * n,
		"redsync.held":             4 * k,
		"redsync.waiting":          4 * k,
		"redsync.lost":             60 * k,
		"redsync.extend":           124 * k,
		"redsync.node.down":        n,
		"redsync.node.failing":     n,
		"redsync.events.dropped":   1,
	}
}

// The number of series does not depend on what happens.
func TestTheNumberOfSeriesIsBounded(t *testing.T) {
	for _, names := range []int{0, 3} {
		var options []redsyncotel.Option
		if names > 0 {
			options = append(options, redsyncotel.WithName(func(lock string) string { return lock[:1] }))
		}
		o, reader := observer(t, append(options, redsyncotel.WithTracerProvider(sdktrace.NewTracerProvider()))...)
		const nodes = 5
		for i := range 3 {
			play(o, fmt.Sprintf("%d:secret", i), nodes)
		}
		found, limit := collect(t, reader), limits(nodes, max(names, 1))
		for name, all := range found {

			assert.LessOrEqual(t, len(all), limit[name], name)
			for _, s := range all {
				for key, value := range s.attributes {
					assert.NotContains(t, value, "secret", key)
					assert.NotContains(t, value, "10.0.0.1", key)
				}
			}
		}
		assert.Len(t, found, len(limit))
		for name := range strings.FieldsSeq("redsync.hold.duration redsync.node.duration redsync.held redsync.waiting redsync.node.down redsync.node.failing") {
			assert.Len(t, found[name], limit[name], name) // the formula is exact
		}
	}
}

// observer returns Hooks with a reader.
func observer(t *testing.T, options ...redsyncotel.Option) (*observe.Hooks, *sdkmetric.ManualReader) {
	reader := sdkmetric.NewManualReader()
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader), sdkmetric.WithCardinalityLimit(0))
	hooks, err := redsyncotel.NewHooks(append(options, redsyncotel.WithMeterProvider(meters))...)
	require.NoError(t, err)
	return hooks, reader
}

func TestErrorTypes(t *testing.T) {
	for err, want := range errs {
		o, reader := observer(t)
		o.Lost(t.Context(), observe.Lost{Mode: observe.Plain, Err: err})
		assert.Equal(t, map[string]string{"redsync.mode": "plain", "error.type": want}, collect(t, reader)["redsync.lost"][0].attributes)
	}
}

// What a Lock that fails counts as: the error of a node is none of the caller's context.
func TestOutcomesOfLock(t *testing.T) {
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	late, end := context.WithDeadline(t.Context(), time.Now())
	defer end()
	node := &redsync.RedisError{Err: context.DeadlineExceeded}
	for _, c := range []struct {
		ctx           context.Context //nolint:containedctx // of a case
		err           error
		outcome, kind string
	}{
		{t.Context(), redsync.ErrFailed, "taken", "taken"},
		{canceled, errors.Join(redsync.ErrFailed, context.Canceled), "taken", "canceled"},
		{late, errors.Join(redsync.ErrFailed, context.DeadlineExceeded), "taken", "deadline_exceeded"},
		{canceled, context.Canceled, "canceled", "canceled"},
		{late, context.DeadlineExceeded, "canceled", "deadline_exceeded"},
		{late, errors.Join(redsync.ErrNoQuorum, context.DeadlineExceeded), "failed", "no_quorum"},
		{t.Context(), errors.Join(redsync.ErrNoQuorum, node), "failed", "no_quorum"},
		{t.Context(), node, "failed", "_OTHER"},
	} {
		o, reader := observer(t)
		o.NotAcquired(c.ctx, observe.NotAcquired{Mode: observe.Plain, Err: c.err})
		assert.Equal(t, map[string]string{"redsync.mode": "plain", "redsync.outcome": c.outcome, "error.type": c.kind},
			collect(t, reader)["redsync.acquire.duration"][0].attributes, "%v", c.err)
	}
}

// That another call has unlocked the lock does not say that it was lost.
func TestOutcomesOfExtend(t *testing.T) {
	for want, err := range map[string]error{
		"map[redsync.mode:plain redsync.outcome:extended]":                    nil,
		"map[error.type:no_quorum redsync.mode:plain redsync.outcome:failed]": errors.Join(redsync.ErrExtendFailed, redsync.ErrNoQuorum),
		"map[error.type:expired redsync.mode:plain redsync.outcome:lost]":     redsync.ErrLockAlreadyExpired,
		"map[error.type:not_held redsync.mode:plain redsync.outcome:failed]":  redsync.ErrNotHeld,
	} {
		o, reader := observer(t)
		o.Extended(t.Context(), observe.Extended{Mode: observe.Plain, Err: err})
		assert.Equal(t, want, fmt.Sprint(collect(t, reader)["redsync.extend"][0].attributes))
	}
}

// Without WithName no name appears; with it, only what the function returns, and not on the metrics of nodes.
func TestNamesAppearOnlyThroughWithName(t *testing.T) {
	secretOf := func(lock string) string {
		if lock == "panic" {
			panic("the user's")
		}
		name, _, _ := strings.Cut(lock, ":")
		return name
	}
	for _, options := range [][]redsyncotel.Option{nil, {redsyncotel.WithName(secretOf)}} {
		onKit(t, func(k kit) {
			ctx, span := k.tracer.Start(k.Context(), "parent")
			for _, lock := range []string{"order:secret", "panic", ":secret"} {
				m := k.rs.NewMutex(lock)
				require.NoError(k, m.LockContext(ctx))
				require.Error(k, k.rs.NewMutex(lock).TryLockContext(ctx))
				m.ExtendContext(ctx)
				k.nodes.Steal(lock)
				m.UnlockContext(ctx)
			}
			span.End()
			settles()
			assertBalanced(k.T, k.reader)
			found := collect(k.T, k.reader)
			assert.EqualValues(k, 3, total(found["redsync.acquire.duration"], "redsync.outcome", "acquired")) // each is measured
			var names []string
			for metric, all := range found {
				for _, s := range all {
					assert.NotContains(k, fmt.Sprint(s.attributes), "secret")
					if name, ok := s.attributes["redsync.name"]; ok {
						assert.NotContains(k, metric, "node")
						names = append(names, name)
					}
				}
			}
			slices.Sort(names)
			names = slices.Compact(names)
			if options == nil {
				assert.Empty(k, names)
			} else {
				assert.Equal(k, []string{"order"}, names)
			}
			for _, s := range k.exporter.GetSpans() {
				assert.NotContains(k, fmt.Sprint(s.Name, s.Attributes, s.Status, s.Events), "secret")
			}
		}, options...)
	}
}

// blocks is an exporter that blocks until the test ends.
type blocks struct {
	until <-chan struct{}
	calls atomic.Int32
}

func (b *blocks) block() error {
	b.calls.Add(1)
	<-b.until
	return nil
}

func (b *blocks) Temporality(k sdkmetric.InstrumentKind) metricdata.Temporality {
	return sdkmetric.DefaultTemporalitySelector(k)
}

func (b *blocks) Aggregation(k sdkmetric.InstrumentKind) sdkmetric.Aggregation {
	return sdkmetric.DefaultAggregationSelector(k)
}
func (b *blocks) Export(context.Context, *metricdata.ResourceMetrics) error  { return b.block() }
func (b *blocks) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error { return b.block() }
func (b *blocks) ForceFlush(context.Context) error                           { return nil }
func (b *blocks) Shutdown(context.Context) error                             { return nil }

// An exporter that blocks for ever delays no lock. In the bubble, locks take no time without it, and none with it.
func TestAnExporterThatBlocksDelaysNoLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		until := make(chan struct{})
		values, spans := &blocks{until: until}, &blocks{until: until}
		meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewPeriodicReader(values, sdkmetric.WithInterval(time.Millisecond))))
		tracers := sdktrace.NewTracerProvider(sdktrace.WithBatcher(spans, sdktrace.WithMaxQueueSize(4), sdktrace.WithMaxExportBatchSize(2),
			sdktrace.WithBatchTimeout(time.Millisecond)))
		hooks, err := redsyncotel.NewHooks(redsyncotel.WithMeterProvider(meters), redsyncotel.WithTracerProvider(tracers))
		require.NoError(t, err)
		nodes := redsynctest.New(5)
		rs := nodes.Redsync().With(redsync.WithHooks(hooks), redsync.WithWatchdog(), redsync.WithExpiry(time.Second))
		time.Sleep(10 * time.Millisecond)
		for range 20 {
			ctx, span := tracers.Tracer("program").Start(t.Context(), "parent")
			m, start := rs.NewMutex("order:17"), time.Now()
			require.NoError(t, m.LockContext(ctx))
			_, err := m.ExtendContext(ctx)
			require.NoError(t, err)
			assert.Zero(t, time.Since(start))
			time.Sleep(2 * time.Second) // the watchdog extends it
			start = time.Now()
			_, err = m.UnlockContext(ctx)
			require.NoError(t, err)
			assert.Zero(t, time.Since(start))
			span.End()
		}
		assert.EqualValues(t, 1, values.calls.Load()) // it blocks
		assert.EqualValues(t, 1, spans.calls.Load())  // it blocks
		close(until)
		require.NoError(t, errors.Join(meters.Shutdown(t.Context()), tracers.Shutdown(t.Context()), nodes.Close()))
	})
}

// broken is a provider whose instruments panic.
type (
	broken          struct{ noop.MeterProvider }
	brokenMeter     struct{ noop.Meter }
	brokenHistogram struct{ noop.Float64Histogram }
	brokenUpDown    struct{ noop.Int64UpDownCounter }
	brokenCounter   struct{ noop.Int64Counter }
)

func (broken) Meter(string, ...metric.MeterOption) metric.Meter { return brokenMeter{} }

func (brokenMeter) Float64Histogram(string, ...metric.Float64HistogramOption) (metric.Float64Histogram, error) {
	return brokenHistogram{}, nil
}

func (brokenMeter) Int64UpDownCounter(string, ...metric.Int64UpDownCounterOption) (metric.Int64UpDownCounter, error) {
	return brokenUpDown{}, nil
}

func (brokenMeter) Int64Counter(string, ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	return brokenCounter{}, nil
}

func (brokenHistogram) Record(context.Context, float64, ...metric.RecordOption) { panic("order:17") }

func (brokenUpDown) Add(context.Context, int64, ...metric.AddOption) { panic("order:17") }

func (brokenCounter) Add(context.Context, int64, ...metric.AddOption) { panic("order:17") }

// A provider that panics harms no lock, and the error handler is told.
func TestAProviderThatPanicsHarmsNoLock(t *testing.T) {
	// Not the one before: otel does not take its own default back.
	defer otel.SetErrorHandler(otel.ErrorHandlerFunc(func(error) {}))
	var told atomic.Int32
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		told.Add(1)
		assert.NotContains(t, err.Error(), "order:17")
		panic("the handler's")
	}))
	synctest.Test(t, func(t *testing.T) {
		hooks, err := redsyncotel.NewHooks(redsyncotel.WithMeterProvider(broken{}))
		require.NoError(t, err)
		nodes := redsynctest.New(5)
		rs := nodes.Redsync().With(redsync.WithHooks(hooks), redsync.WithExpiry(time.Second))
		m := rs.NewMutex("order:17", redsync.WithWatchdog())
		require.NoError(t, m.Lock())
		time.Sleep(5 * time.Second)
		nodes.Node(0).Down()
		_, err = m.Unlock()
		require.NoError(t, err)
		require.NoError(t, rs.NewMutex("order:18").Lock())
		time.Sleep(5 * time.Second)
		nodes.Close()
	})
	assert.Greater(t, told.Load(), int32(10))
}

// tellPair tells o what happens in a Lock and an Unlock on five nodes.
func tellPair(ctx context.Context, o *observe.Hooks) {
	for i := range 5 {
		o.Vote(ctx, observe.Vote{Op: "lock", Node: i, Took: time.Millisecond})
		o.Vote(ctx, observe.Vote{Op: "unlock", Node: i, Took: time.Millisecond})
	}
	o.Acquired(ctx, observe.Acquired{Mode: observe.Plain, Took: time.Millisecond})
	o.Released(ctx, observe.Released{Mode: observe.Plain, Ended: true, Held: time.Millisecond})
}

// Once a series is known, recording allocates nothing, also for a caller whose span nobody stores.
func TestRecordingAllocatesNothing(t *testing.T) {
	tracers := sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample()))
	unsampled, _ := tracers.Tracer("program").Start(t.Context(), "parent")
	remote := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}})
	o, _ := observer(t, redsyncotel.WithTracerProvider(tracers))
	for _, ctx := range []context.Context{t.Context(), unsampled, trace.ContextWithRemoteSpanContext(t.Context(), remote)} {
		assert.Zero(t, testing.AllocsPerRun(100, func() { tellPair(ctx, o) }), trace.SpanContextFromContext(ctx))
	}
}
