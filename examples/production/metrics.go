package main

import (
	"context"
	"expvar"

	"github.com/seed14bd9ef4/redsync/observe"
)

var counters = expvar.NewMap("locks") // on /debug/vars, if the program serves HTTP

type metrics struct{}

func (metrics) ObserveAcquired(context.Context, observe.Acquired) { counters.Add("acquired", 1) }
func (metrics) ObserveLost(context.Context, observe.Lost)         { counters.Add("lost", 1) }
func (metrics) ObserveNodeDown(_ context.Context, e observe.NodeDown) {
	counters.Add("down "+e.Address, 1)
}

func (metrics) ObserveNodeUp(_ context.Context, e observe.NodeUp) {
	counters.Add("down "+e.Address, -1)
}
