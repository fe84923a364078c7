// Production is a whole service that locks on five Redis nodes: see docs/production.md.
package main

import (
	"context"
	"errors"
	"flag"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/seed14bd9ef4/redsync"
)

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	if err := withLocks(ctx, func(rs *redsync.Redsync) { serve(ctx, rs) }); err != nil {
		slog.Error("ended", "error", err)
		os.Exit(1)
	}
}

// serve does the jobs, again and again, until ctx is done.
func serve(ctx context.Context, rs *redsync.Redsync) {
	for ctx.Err() == nil {
		err := rs.Do(ctx, "report", report)
		if err == nil {
			err = load(ctx, rs)
		}
		if err != nil && ctx.Err() == nil {
			slog.Error("job failed", "lock lost", errors.Is(err, redsync.ErrLockLost), "error", err)
			_ = work(ctx) // do not try again at once
		}
	}
}
