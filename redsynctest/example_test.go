package redsynctest_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/redsynctest"
)

// Copy from this file what you need. It has five programs that use locks, each with its test.

// Example functions have no testing.T, so they use New and Close instead of Start.
func Example() {
	nodes := redsynctest.New(5)
	defer nodes.Close()

	mutex := nodes.Redsync().NewMutex("orders:17")
	fmt.Println(mutex.Lock())
	nodes.RequireHeld("orders:17") // panics if the lock is not held
	nodes.Steal("orders:17")
	_, err := mutex.Extend()
	fmt.Println("lost:", errors.Is(err, redsync.ErrLockLost))
	// Output:
	// <nil>
	// lost: true
}

// worker makes one step after another while it holds a lock. The context of a step ends if the lock is lost.
func worker(ctx context.Context, rs *redsync.Redsync, step func(context.Context) error) error {
	return rs.Do(ctx, "reports", func(ctx context.Context) error {
		for {
			if err := step(ctx); err != nil {
				return err
			}
		}
	})
}

// In a bubble a minute of work takes no real time.
func TestWorkerStopsWhenItLosesItsLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := redsynctest.Start(t, 5)
		steps := 0
		done := make(chan error, 1)
		go func() {
			done <- worker(t.Context(), nodes.Redsync(), func(ctx context.Context) error {
				steps++
				time.Sleep(time.Second)
				return ctx.Err()
			})
		}()

		time.Sleep(time.Minute)
		nodes.RequireHeld("reports") // the watchdog of Do has extended the lock
		nodes.Steal("reports")

		if err := <-done; !errors.Is(err, redsync.ErrLockLost) {
			t.Errorf("the worker returned %v, want ErrLockLost", err)
		}
		if steps > 64 {
			t.Errorf("the worker made %d steps: it went on for longer than the watchdog's interval", steps)
		}
	})
}

// Every process calls hourly at each full hour by its own clock, and the job runs once an hour.
func hourly(ctx context.Context, rs *redsync.Redsync, job func(context.Context) error) error {
	_, err := rs.TryDo(ctx, "hourly", job, redsync.WithMinHold(20*time.Minute))
	return err // nil, too, if another process runs the job, or has run it
}

// The clocks of the processes differ by up to five minutes, and the job takes no time. So only
// WithMinHold keeps the later processes from running the job again.
func TestJobRunsOncePerHourInThreeProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := redsynctest.Start(t, 5)
		nodes.Node(3).Down() // a minority
		var runs atomic.Int64
		var processes sync.WaitGroup
		for _, behind := range []time.Duration{0, time.Second, 5 * time.Minute} {
			rs := nodes.Process()
			processes.Go(func() {
				time.Sleep(behind)
				for range 24 {
					err := hourly(t.Context(), rs, func(context.Context) error {
						runs.Add(1)
						return nil
					})
					if err != nil {
						t.Error(err)
					}
					time.Sleep(time.Hour)
				}
			})
		}
		processes.Wait()
		if runs.Load() != 24 {
			t.Errorf("the job ran %d times in 24 hours", runs.Load())
		}
	})
}

// Every process calls nightly, and the job runs once a night. Its lock is not unlocked after a success: as long
// as the lock lasts, it marks the job as done.
func nightly(ctx context.Context, rs *redsync.Redsync, night string, job func(context.Context) error) error {
	mutex := rs.NewMutex("nightly:"+night, redsync.WithExpiry(24*time.Hour))
	err := mutex.LockContext(ctx)
	switch {
	case errors.Is(err, redsync.ErrFailed):
		return nil // another process runs the job, or has run it
	case err != nil:
		return err // too few nodes answered, or ctx ended
	}
	cleanup := context.WithoutCancel(ctx)
	if err := job(ctx); err != nil {
		_, unlockErr := mutex.UnlockContext(cleanup) // so that another process may try
		return errors.Join(err, unlockErr)
	}
	_, err = mutex.Detach(cleanup) // the keys stay until the expiry, also after the Redsync is closed
	return err
}

func TestJobRunsOnceInThreeProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := redsynctest.Start(t, 5)
		nodes.Node(3).Down() // a minority
		var runs atomic.Int64
		var processes sync.WaitGroup
		for range 3 {
			rs := nodes.Process()
			processes.Go(func() {
				err := nightly(t.Context(), rs, "2026-01-31", func(context.Context) error {
					if runs.Add(1) == 1 {
						return errors.New("the first run fails")
					}
					return nil
				})
				if err != nil {
					t.Log(err)
				}
			})
		}
		processes.Wait()
		if runs.Load() != 2 {
			t.Errorf("the job ran %d times, want 2: a failure and a success", runs.Load())
		}
		nodes.RequireHeld("nightly:2026-01-31")
	})
}

// The service changes an order under its lock. It does not wait for the lock.
func service(rs *redsync.Redsync) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders/{id}", func(w http.ResponseWriter, r *http.Request) {
		mutex := rs.NewMutex("orders:" + r.PathValue("id"))
		err := mutex.TryLockContext(r.Context())
		switch {
		case errors.Is(err, redsync.ErrFailed):
			http.Error(w, "somebody else changes this order", http.StatusConflict)
			return
		case err != nil:
			http.Error(w, "try again later", http.StatusServiceUnavailable)
			return
		}
		defer mutex.Unlock()
		w.WriteHeader(http.StatusOK)
	})
	return mux
}

func TestServiceReturns409WhenTheLockIsTaken(t *testing.T) {
	nodes := redsynctest.Start(t, 5)
	// On a slow machine an answer may take longer than the default node deadline of 0.4 s.
	handler := service(nodes.Process(redsync.WithNodeTimeout(3 * time.Second)))
	post := func(want int) {
		t.Helper()
		response := httptest.NewRecorder()
		handler.ServeHTTP(response, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/orders/17", nil))
		if response.Code != want {
			t.Errorf("status %d, want %d", response.Code, want)
		}
	}

	nodes.HoldBySomebody("orders:17")
	post(http.StatusConflict)
	nodes.Expire("orders:17")
	post(http.StatusOK)
	nodes.RequireNothingLeft() // the service has unlocked

	for i := range 3 { // a quorum
		nodes.Node(i).Down()
	}
	post(http.StatusServiceUnavailable)
}

// lockWithin waits for five seconds at most.
func lockWithin(ctx context.Context, rs *redsync.Redsync) error {
	return rs.NewMutex("orders:17", redsync.WithWait(5*time.Second)).LockContext(ctx)
}

// In a bubble a test can require exact times.
func TestLockWaitsForFiveSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := redsynctest.Start(t, 5)
		nodes.HoldBySomebody("orders:17")
		start := time.Now()
		if err := lockWithin(t.Context(), nodes.Redsync()); !errors.Is(err, redsync.ErrFailed) {
			t.Errorf("lockWithin returned %v, want ErrFailed", err)
		}
		if took := time.Since(start); took != 5*time.Second {
			t.Errorf("lockWithin gave up after %v, want 5s", took)
		}

		time.AfterFunc(2500*time.Millisecond, func() { nodes.Expire("orders:17") })
		if err := lockWithin(t.Context(), nodes.Redsync()); err != nil {
			t.Error(err)
		}
	})
}
