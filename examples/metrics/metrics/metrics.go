// Package metrics is an observer for Prometheus: see docs/metrics.md.
package metrics

import (
	"context"
	"errors"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/observe"
)

// An Observer counts what an operator must know. No label has the name of a lock, so there are few series.
type Observer struct {
	took *prometheus.HistogramVec
	lost prometheus.Counter
	down *prometheus.GaugeVec
}

// New registers the metrics at r. Pass the Observer to redsync.WithObserver.
func New(r prometheus.Registerer) *Observer {
	o := &Observer{
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "lock_acquire_seconds", Help: "How long Lock took.", Buckets: prometheus.ExponentialBuckets(0.001, 4, 8),
		}, []string{"outcome"}),
		lost: prometheus.NewCounter(prometheus.CounterOpts{Name: "lock_lost_total", Help: "Locks that ended without Unlock."}),
		down: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "lock_node_down", Help: "1 while a node fails."}, []string{"node"}),
	}
	r.MustRegister(o.took, o.lost, o.down)
	return o
}

// ObserveAcquired notes how long it took to get a lock.
func (o *Observer) ObserveAcquired(_ context.Context, e observe.Acquired) {
	o.took.WithLabelValues("acquired").Observe(e.Took.Seconds())
}

// ObserveNotAcquired notes how long a call took that got no lock.
func (o *Observer) ObserveNotAcquired(_ context.Context, e observe.NotAcquired) {
	outcome := "failed"
	if errors.Is(e.Err, redsync.ErrFailed) {
		outcome = "taken"
	}
	o.took.WithLabelValues(outcome).Observe(e.Took.Seconds())
}

// ObserveLost counts a lost lock.
func (o *Observer) ObserveLost(context.Context, observe.Lost) { o.lost.Inc() }

// ObserveNodeDown notes that a node begins to fail.
func (o *Observer) ObserveNodeDown(_ context.Context, e observe.NodeDown) {
	o.down.WithLabelValues(strconv.Itoa(e.Node)).Set(1)
}

// ObserveNodeUp notes that a node works again.
func (o *Observer) ObserveNodeUp(_ context.Context, e observe.NodeUp) {
	o.down.WithLabelValues(strconv.Itoa(e.Node)).Set(0)
}
