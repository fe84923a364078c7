// Migration uses the whole API of redsync v4 on go-redis. It was written for redsync v4 and moved
// to this library by changing the import lines and the lines that build the pools, in connect.go.
// testdata has the original.
//
//	go run ./examples/migration                                        # five nodes inside the process
//	NODES=host1:6379,host2:6379,host3:6379 go run ./examples/migration # on nodes of your own
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/seed14bd9ef4/redsync"
)

func main() {
	if len(os.Args) > 1 {
		_, _ = fmt.Fprintln(os.Stderr, "migration: it takes no arguments; NODES=host1:6379,host2:6379,... in the environment names nodes")
		os.Exit(2)
	}
	addresses, err := strings.Split(os.Getenv("NODES"), ","), error(nil)
	if addresses[0] == "" {
		addresses, err = inside()
	}
	if err == nil {
		err = run(context.Background(), addresses, os.Stdout)
	}
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "migration:", err)
		os.Exit(1)
	}
}

// inside starts five nodes inside this process, which end with it.
func inside() (addresses []string, err error) {
	for range 5 {
		server := miniredis.NewMiniRedis()
		server.ClockTTL(true)
		if err := server.Start(); err != nil {
			return nil, err
		}
		addresses = append(addresses, server.Addr())
	}
	return addresses, nil
}

// run uses the whole API of redsync v4 on the nodes at addresses.
func run(ctx context.Context, addresses []string, out io.Writer) error {
	rs, closeAll := connect(addresses)
	defer closeAll()
	for _, step := range []func(context.Context, *redsync.Redsync, io.Writer) error{
		lockAndUnlock, withContext, contend, handOver, handleErrors,
	} {
		if err := step(ctx, rs, out); err != nil {
			return err
		}
	}
	return nil
}

func lockAndUnlock(_ context.Context, rs *redsync.Redsync, out io.Writer) error {
	mutex := rs.NewMutex("migration:orders", options()...)
	if err := mutex.Lock(); err != nil {
		return err
	}
	_, _ = fmt.Fprintln(out, "locked", mutex.Name(), mutex.Value() != "", time.Until(mutex.Until()) > 0)
	if ok, err := mutex.Extend(); !ok || err != nil {
		return fmt.Errorf("extend: %t, %w", ok, err)
	}
	if ok, err := mutex.Valid(); !ok || err != nil {
		return fmt.Errorf("valid: %t, %w", ok, err)
	}
	if ok, err := mutex.Unlock(); !ok || err != nil {
		return fmt.Errorf("unlock: %t, %w", ok, err)
	}
	_, _ = fmt.Fprintln(out, "extended, valid, unlocked")
	return nil
}

// options returns every option of redsync v4 except WithValue, and an option of the program's own.
func options() []redsync.Option {
	var backoff redsync.DelayFunc = func(tries int) time.Duration {
		return time.Duration(tries) * 20 * time.Millisecond
	}
	lasting := func(d time.Duration) redsync.Option {
		return redsync.OptionFunc(func(m *redsync.Mutex) { redsync.WithExpiry(d).Apply(m) })
	}
	return []redsync.Option{
		redsync.WithExpiry(time.Second),
		lasting(5 * time.Second),
		redsync.WithTries(5),
		redsync.WithRetryDelay(50 * time.Millisecond),
		redsync.WithRetryDelayFunc(backoff),
		redsync.WithDriftFactor(0.02),
		redsync.WithTimeoutFactor(0.1),
		redsync.WithGenValueFunc(func() (string, error) { return "orders-" + rand.Text(), nil }),
		redsync.WithFailFast(true),
		redsync.WithShufflePools(true),
		redsync.WithSetNXOnExtend(),
	}
}

func withContext(ctx context.Context, rs *redsync.Redsync, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	mutex := rs.NewMutex("migration:context", redsync.WithTries(1))
	if err := mutex.LockContext(ctx); err != nil {
		return err
	}
	if ok, err := mutex.ExtendContext(ctx); !ok || err != nil {
		return fmt.Errorf("extend: %t, %w", ok, err)
	}
	if ok, err := mutex.ValidContext(ctx); !ok || err != nil {
		return fmt.Errorf("valid: %t, %w", ok, err)
	}
	if ok, err := mutex.UnlockContext(ctx); !ok || err != nil {
		return fmt.Errorf("unlock: %t, %w", ok, err)
	}
	_, _ = fmt.Fprintln(out, "the same with a context")
	return nil
}

func contend(ctx context.Context, rs *redsync.Redsync, out io.Writer) error {
	mine, other := rs.NewMutex("migration:contended"), rs.NewMutex("migration:contended")
	if err := mine.TryLock(); err != nil {
		return err
	}
	defer func() { _, _ = mine.Unlock() }()
	err := other.TryLockContext(ctx)
	var taken *redsync.ErrTaken
	if !errors.As(err, &taken) {
		return fmt.Errorf("the second TryLock: %w", err)
	}
	_, _ = fmt.Fprintln(out, "taken on a quorum:", len(taken.Nodes) > 0)
	return nil
}

// handOver lets another Mutex unlock the lock. That Mutex could be in another process.
func handOver(_ context.Context, rs *redsync.Redsync, out io.Writer) error {
	mutex := rs.NewMutex("migration:handed-over")
	if err := mutex.Lock(); err != nil {
		return err
	}
	heir := rs.NewMutex(mutex.Name(), redsync.WithValue(mutex.Value()))
	if ok, err := heir.Unlock(); !ok || err != nil {
		return fmt.Errorf("unlock of the heir: %t, %w", ok, err)
	}
	_, _ = fmt.Fprintln(out, "handed over")
	return nil
}

// handleErrors recognizes the errors that operations return.
func handleErrors(ctx context.Context, rs *redsync.Redsync, out io.Writer) error {
	mutex := rs.NewMutex("migration:expired", redsync.WithExpiry(200*time.Millisecond))
	if err := mutex.Lock(); err != nil {
		return err
	}
	time.Sleep(300 * time.Millisecond)
	_, err := mutex.Unlock()
	_, _ = fmt.Fprintln(out, "unlocking too late:", explain(err))

	unreachable, closeAll := connect([]string{"127.0.0.1:1"})
	defer closeAll()
	err = unreachable.NewMutex("migration:nowhere").TryLockContext(ctx)
	_, _ = fmt.Fprintln(out, "locking nowhere:", explain(err))
	return nil
}

func explain(err error) string {
	var taken *redsync.ErrTaken
	var nodeTaken *redsync.ErrNodeTaken
	var redisError *redsync.RedisError
	switch {
	case err == nil:
		return "no error"
	case errors.Is(err, redsync.ErrLockAlreadyExpired):
		return "it had expired"
	case errors.Is(err, redsync.ErrExtendFailed):
		return "it could not be extended"
	case errors.As(err, &taken):
		return "somebody else has it"
	case errors.As(err, &nodeTaken):
		return fmt.Sprintf("somebody else has it on node %d", nodeTaken.Node)
	case errors.As(err, &redisError):
		return fmt.Sprintf("node %d failed", redisError.Node)
	case errors.Is(err, redsync.ErrFailed):
		return "it could not be acquired"
	}
	return err.Error()
}
