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
	"github.com/seed14bd9ef4/redsync/pool"
	"github.com/seed14bd9ef4/redsync/redsynctest"
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

// inside returns nodes in this process if there is no -nodes, to try the program. A service of yours should fail instead.
func inside() (pools []pool.Pool, end func()) {
	if *nodes != "" {
		return nil, func() {}
	}
	slog.Warn("there is no -nodes: the locks are in this process, and keep no other one out")
	embedded := redsynctest.New(5)
	for _, client := range embedded.Clients() {
		pools = append(pools, pool.New(client))
	}
	return pools, func() { _ = embedded.Close() }
}
