package main

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A semaphore implements library inside this process: each of its locks is one permit.
type semaphore chan struct{}

func newSemaphore(permits int) semaphore { return make(semaphore, permits) }

func (s semaphore) Lock(ctx context.Context, _ string) (held, error) {
	select {
	case s <- struct{}{}:
		return s, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (s semaphore) UnlockContext(context.Context) (bool, error) {
	<-s
	return true, nil
}

func (s semaphore) Close() error { return nil }

func testPermits(goroutines int) permitsOrder {
	return permitsOrder{
		Key: "test", Goroutines: goroutines, Accounts: goroutines, Permits: fewPermits, Hold: permitHold, Time: time.Second,
	}
}

// TestUsePermitsEndsWhenTooManyAreHeld shows that usePermits notices a semaphore that admits too many.
func TestUsePermitsEndsWhenTooManyAreHeld(t *testing.T) {
	for name, open := range map[string]func() library{
		"one too many": func() library { return newSemaphore(fewPermits + 1) },
		"no limit":     func() library { return fake{} },
	} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			w, err := usePermits(t.Context(), open(), newTestLedger(t, 8), testPermits(8), time.Sleep)
			require.ErrorIs(t, err, errTooMany, name)
			require.Greater(t, w.AtOnce, fewPermits, name)
			require.Less(t, time.Since(start), time.Second/2, name)
		})
	}
}
