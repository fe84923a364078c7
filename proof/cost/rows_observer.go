package cost

import (
	"context"
	"log/slog"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/observe"
)

// watcher has all hooks of a plain lock.
var watcher = &observe.Hooks{
	Attempt:     func(context.Context, observe.Attempt) {},
	Vote:        func(context.Context, observe.Vote) {},
	Acquired:    func(context.Context, observe.Acquired) {},
	NotAcquired: func(context.Context, observe.NotAcquired) {},
	Released:    func(context.Context, observe.Released) {},
}

func init() {
	add(
		Row{Name: "Lock + Unlock, one observer", Call: pairs(redsync.WithHooks(watcher))},
		Row{Name: "Lock + Unlock, a log without Debug", Call: pairs(redsync.WithLogger(slog.New(slog.DiscardHandler)))},
	)
}
