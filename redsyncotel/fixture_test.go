package redsyncotel_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/redsyncotel"
	"github.com/seed14bd9ef4/redsync/redsynctest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A kit is Hooks with the SDK behind it, and five nodes whose locks it observes.
type kit struct {
	*testing.T
	nodes    *redsynctest.Nodes
	rs       *redsync.Redsync
	reader   *sdkmetric.ManualReader
	exporter *tracetest.InMemoryExporter
	tracer   trace.Tracer // of the program
}

// onKit plays a test in a bubble.
func onKit(t *testing.T, play func(k kit), options ...redsyncotel.Option) {
	synctest.Test(t, func(t *testing.T) {
		k := kit{T: t, reader: sdkmetric.NewManualReader(), exporter: tracetest.NewInMemoryExporter()}
		meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(k.reader))
		tracers := sdktrace.NewTracerProvider(sdktrace.WithSyncer(k.exporter))
		k.tracer = tracers.Tracer("program")
		hooks, err := redsyncotel.NewHooks(append(options,
			redsyncotel.WithMeterProvider(meters), redsyncotel.WithTracerProvider(tracers))...)
		require.NoError(t, err)
		k.nodes = redsynctest.New(5)
		defer k.nodes.Close()
		k.rs = k.nodes.Redsync().With(redsync.WithHooks(hooks), redsync.WithExpiry(time.Second))
		play(k)
	})
}

// frozen freezes the first three nodes while do runs.
func (k kit) frozen(do func()) {
	for i := range 3 {
		k.nodes.Node(i).Freeze()
	}
	do()
	for i := range 3 {
		k.nodes.Node(i).Thaw()
	}
}

// held returns a lock that is held.
func (k kit) mutex(options ...redsync.Option) *redsync.Mutex {
	return k.rs.NewMutex("order:17", options...)
}

func (k kit) held(options ...redsync.Option) *redsync.Mutex {
	m := k.mutex(options...)
	require.NoError(k, m.Lock())
	return m
}

// settles waits until nothing goes on any more.
func settles() {
	time.Sleep(time.Minute)
	synctest.Wait()
}

// A series is one of a metric: its value, or the count of a histogram.
type series struct {
	attributes map[string]string
	value      int64
	sum        float64
}

// collect returns all series by metric.
func collect(t *testing.T, reader sdkmetric.Reader) map[string][]series {
	var all metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(context.Background(), &all))
	found := map[string][]series{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					found[m.Name] = append(found[m.Name], series{attributes: text(p.Attributes), value: p.Value})
				}
			case metricdata.Gauge[int64]:
				for _, p := range data.DataPoints {
					found[m.Name] = append(found[m.Name], series{attributes: text(p.Attributes), value: p.Value})
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					s := series{attributes: text(p.Attributes), value: int64(p.Count), sum: p.Sum}
					found[m.Name] = append(found[m.Name], s)
				}
			default:
				assert.Fail(t, "unknown data", "%T", data)
			}
		}
	}
	return found
}

func text(set attribute.Set) map[string]string {
	texts := map[string]string{}
	for _, a := range set.ToSlice() {
		texts[string(a.Key)] = a.Value.String()
	}
	return texts
}

// total adds up the series of a metric whose attributes include these pairs of key and value.
func total(all []series, pairs ...string) (sum int64) {
	for _, s := range all {
		if s.has(pairs) {
			sum += s.value
		}
	}
	return sum
}

func (s series) has(pairs []string) bool {
	for i := 0; i < len(pairs); i += 2 {
		if s.attributes[pairs[i]] != pairs[i+1] {
			return false
		}
	}
	return true
}

// assertBalanced checks that no lock counts as held, and that no call counts as waiting.
func assertBalanced(t *testing.T, reader sdkmetric.Reader) {
	found := collect(t, reader)
	for _, name := range []string{"redsync.held", "redsync.waiting"} {
		for _, s := range found[name] {
			assert.Zero(t, s.value, "%s %v", name, s.attributes)
		}
	}
}
