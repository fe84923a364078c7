// Production is a whole service that locks on five Redis nodes. docs/production.md explains it.
package main

import (
	"context"
	"errors"
	"expvar"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/observe"
	"github.com/seed14bd9ef4/redsync/pool"
)

var (
	nodes  = flag.String("nodes", "redis-1:6379,redis-2:6379,redis-3:6379,redis-4:6379,redis-5:6379", "`addresses`; the password comes from REDIS_PASSWORD")
	before = flag.String("no-locks-before", "2026-03-01T12:00:00Z", "`time` after the first start of the nodes, before the first lock")
	expiry = flag.Duration("expiry", 8*time.Second, "how long a crashed process keeps its locks")
	guard  = flag.Duration("guard", 8*time.Second, "the longest expiry of any program on these nodes")
	step   = flag.Duration("step", time.Second, "how long one step of the work takes")
)

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	if err := run(ctx); err != nil {
		slog.Error("ended", "error", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	noLocksBefore, err := time.Parse(time.RFC3339, *before)
	if err != nil {
		return err
	}
	var pools []pool.Pool
	for address := range strings.SplitSeq(*nodes, ",") {
		client := redis.NewClient(&redis.Options{Addr: address, Password: os.Getenv("REDIS_PASSWORD")})
		defer client.Close() // after rs.Close, because deferred calls run in reverse order
		pools = append(pools, pool.New(client, pool.WithRestartGuard(*guard), pool.WithNoLocksBefore(noLocksBefore)))
	}
	rs := redsync.New(pools...).With(redsync.WithExpiry(*expiry), redsync.WithTries(0), // 0: wait until ctx ends
		redsync.WithLogger(slog.Default()), redsync.WithObserver(metrics{}))
	defer func() {
		// The work has ended. Unlock what is left, within the time that the platform gives after SIGTERM.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		if err := rs.Close(ctx); err != nil {
			slog.Warn("some locks stay until they expire", "error", err)
		}
	}()
	if err := rs.Ping(ctx); err != nil {
		return err // no majority of the nodes answers; the error names each one
	}
	for ctx.Err() == nil {
		err := rs.Do(ctx, "report", report)
		if err == nil {
			err = load(ctx, rs)
		}
		if err != nil && ctx.Err() == nil {
			slog.Error("a job failed", "error", err) // errors.Is(err, redsync.ErrLockLost): it lost its lock
			pause(ctx, *step)
		}
	}
	return nil
}

// report works as long as it takes: Do extends the lock meanwhile, and ends ctx if the lock is lost.
func report(ctx context.Context) error {
	for part := range 5 {
		if err := pause(ctx, *step); err != nil {
			return err
		}
		slog.Info("report", "part", part, "left", redsync.FromContext(ctx).Remaining())
	}
	return nil
}

// load extends its lock after each step, so a load that hangs loses it.
func load(ctx context.Context, rs *redsync.Redsync) (err error) {
	mutex := rs.NewMutex("load")
	if err := mutex.LockContext(ctx); err != nil {
		return err
	}
	defer func() {
		_, failed := mutex.UnlockContext(context.WithoutCancel(ctx)) // also at shutdown
		err = errors.Join(err, failed)
	}()
	ctx = mutex.Context(ctx) // from here on it also ends when the lock ends
	for part := range 5 {
		if left := mutex.Remaining(); left < 2**step {
			return fmt.Errorf("the lock ends in %v, too soon for part %d", left, part)
		}
		if err := pause(ctx, *step); err != nil {
			return err
		}
		slog.Info("load", "part", part)
		if _, err := mutex.ExtendContext(ctx); err != nil && !errors.Is(err, redsync.ErrExtendFailed) {
			return err // the lock is over. After ErrExtendFailed it lasts until the old Until
		}
	}
	_, err = mutex.ValidContext(ctx) // ask the nodes before the step that nobody can undo
	return err
}

// pause stands for work of the given time.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

var counters = expvar.NewMap("locks") // an HTTP server of the program shows them on /debug/vars

// metrics counts what an operator must know. docs/metrics.md has the same for Prometheus.
type metrics struct{}

func (metrics) ObserveAcquired(context.Context, observe.Acquired) { counters.Add("acquired", 1) }
func (metrics) ObserveLost(context.Context, observe.Lost)         { counters.Add("lost", 1) }
func (metrics) ObserveNodeDown(_ context.Context, e observe.NodeDown) {
	counters.Add("down "+e.Address, 1)
}
func (metrics) ObserveNodeUp(_ context.Context, e observe.NodeUp) {
	counters.Add("down "+e.Address, -1)
}
