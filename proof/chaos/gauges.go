package main

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/seed14bd9ef4/redsync/observe"
	"github.com/seed14bd9ef4/redsync/proof/history"
	"github.com/seed14bd9ef4/redsync/redsyncotel"
)

// gauges observe the locks of a process as a program would, with OpenTelemetry. Whatever happened, no lock counts as held
// and no call as waiting once all clients have ended and their Redsync is closed. They also see haste: only the first in line
// of a process tries, so all calls for a name in one mode count as one waiter.
type gauges struct {
	hooks  *observe.Hooks
	reader *metric.ManualReader
	tries  *history.Tries
	began  time.Time
}

// attempted is observe.Hooks.Attempt.
func (g gauges) attempted(_ context.Context, a observe.Attempt) {
	g.tries.Note(time.Since(g.began), "", fmt.Sprint(a.Name, " ", a.Mode), a.Name)
}

// inHaste fails if a waiter has made haste.
func (g gauges) inHaste() error {
	if found := g.tries.Judge(nil); len(found) > 0 {
		return fmt.Errorf("%v", found)
	}
	return nil
}

func newGauges() (gauges, error) {
	reader := metric.NewManualReader()
	hooks, err := redsyncotel.NewHooks(redsyncotel.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(reader))))
	if err != nil {
		return gauges{}, err
	}
	g := gauges{hooks, reader, &history.Tries{}, time.Now()}
	hooks.Attempt = g.attempted
	return g, nil
}

// atZero fails if something still counts after a second.
func (g gauges) atZero() (err error) {
	for range 20 {
		if err = g.look(); err == nil {
			return nil
		}
		time.Sleep(50 * ms)
	}
	return err
}

// look fails if something counts as held or waiting, or if nothing was ever counted.
func (g gauges) look() error {
	var all metricdata.ResourceMetrics
	if err := g.reader.Collect(context.Background(), &all); err != nil {
		return err
	}
	seen := 0
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			sum, ok := m.Data.(metricdata.Sum[int64])
			if !ok || m.Name != "redsync.held" && m.Name != "redsync.waiting" {
				continue
			}
			for _, p := range sum.DataPoints {
				if seen++; p.Value != 0 {
					return fmt.Errorf("after Close %s is %d, not 0, of %v", m.Name, p.Value, p.Attributes.ToSlice())
				}
			}
		}
	}
	if seen == 0 {
		return fmt.Errorf("the hooks have counted nothing")
	}
	return nil
}
