// Production is a whole service that locks on five Redis nodes: see docs/production.md.
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
	nodes  = flag.String("nodes", "redis-1:6379,redis-2:6379,redis-3:6379,redis-4:6379,redis-5:6379", "addresses")
	before = flag.String("no-locks-before", "2026-03-01T12:00:00Z", "a constant, 3 s or more after the first start of the nodes")
	expiry = flag.Duration("expiry", 8*time.Second, "of the locks")
	guard  = flag.Duration("guard", 8*time.Second, "the longest lock on the nodes: see docs/production.md")
	step   = flag.Duration("step", time.Second, "of the work")
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
		defer client.Close() // after closeLocks: deferred calls run in reverse order
		pools = append(pools, pool.New(client, pool.WithRestartGuard(*guard), pool.WithNoLocksBefore(noLocksBefore)))
	}
	rs := redsync.New(pools...).With(redsync.WithExpiry(*expiry), redsync.WithTries(0),
		redsync.WithLogger(slog.Default()), redsync.WithObserver(metrics{}))
	defer closeLocks(rs)
	if err := rs.Ping(ctx); err != nil {
		return err // no majority of the nodes answers, or an option is wrong
	}
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
	return nil
}

func closeLocks(rs *redsync.Redsync) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := rs.Close(ctx); err != nil {
		slog.Warn("close", "error", err) // it says which keys may be left, and for how long
	}
}

// report may take any time: Do extends its lock, and ends ctx if the lock is lost.
func report(ctx context.Context) error {
	for part := range 5 {
		if err := work(ctx); err != nil {
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
		if err := work(ctx); err != nil {
			return err
		}
		slog.Info("load", "part", part)
		if _, err := mutex.ExtendContext(ctx); err != nil && !errors.Is(err, redsync.ErrExtendFailed) {
			return err // the lock is over; after ErrExtendFailed it lasts until the old Until
		}
	}
	_, err = mutex.ValidContext(ctx) // before a step that nobody can undo
	return err
}

func work(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(*step):
		return nil
	}
}

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
