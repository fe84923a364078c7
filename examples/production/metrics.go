package main

import (
	"context"
	"expvar"

	"github.com/seed14bd9ef4/redsync/observe"
)

var counters = expvar.NewMap("locks") // on /debug/vars, if the program serves HTTP

var metrics = &observe.Hooks{
	Acquired: func(context.Context, observe.Acquired) { counters.Add("acquired", 1) },
	Lost:     func(context.Context, observe.Lost) { counters.Add("lost", 1) },
	NodeDown: func(_ context.Context, e observe.NodeDown) { counters.Add("down "+e.Address, 1) },
	NodeUp:   func(_ context.Context, e observe.NodeUp) { counters.Add("down "+e.Address, -1) },
}
