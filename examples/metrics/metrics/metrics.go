// Package metrics counts for Prometheus what happens to locks: see redsyncotel/README.md.
package metrics

import (
	"context"
	"errors"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/observe"
)

// New registers the metrics at r, and returns Hooks that count what an operator must know. Pass them to redsync.WithHooks.
// No label has the name of a lock, so there are few series.
func New(r prometheus.Registerer) *observe.Hooks {
	took := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "lock_acquire_seconds", Help: "How long Lock took.", Buckets: prometheus.ExponentialBuckets(0.001, 4, 8),
	}, []string{"outcome"})
	lost := prometheus.NewCounter(prometheus.CounterOpts{Name: "lock_lost_total", Help: "Locks that ended without Unlock."})
	down := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "lock_node_down", Help: "1 while a node fails."}, []string{"node"})
	r.MustRegister(took, lost, down)
	return &observe.Hooks{
		Acquired: func(_ context.Context, e observe.Acquired) {
			took.WithLabelValues("acquired").Observe(e.Took.Seconds())
		},
		NotAcquired: func(_ context.Context, e observe.NotAcquired) {
			outcome := "failed"
			if errors.Is(e.Err, redsync.ErrFailed) {
				outcome = "taken"
			}
			took.WithLabelValues(outcome).Observe(e.Took.Seconds())
		},
		Lost:     func(context.Context, observe.Lost) { lost.Inc() },
		NodeDown: func(_ context.Context, e observe.NodeDown) { down.WithLabelValues(strconv.Itoa(e.Node)).Set(1) },
		NodeUp:   func(_ context.Context, e observe.NodeUp) { down.WithLabelValues(strconv.Itoa(e.Node)).Set(0) },
	}
}
