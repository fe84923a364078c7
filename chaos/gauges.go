package main

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/seed14bd9ef4/redsync/redsyncotel"
)

// gauges observe the locks of a process as a program would, with OpenTelemetry. Whatever happened, no lock counts as held
// and no call as waiting once all clients have ended and their Redsync is closed.
type gauges struct {
	*redsyncotel.Observer
	reader *metric.ManualReader
}

func newGauges() (gauges, error) {
	reader := metric.NewManualReader()
	o, err := redsyncotel.NewObserver(redsyncotel.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(reader))))
	return gauges{o, reader}, err
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
		return fmt.Errorf("the observer has counted nothing")
	}
	return nil
}
