package main

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A rested library is a lock that stays free for a time after each Unlock.
type rested struct {
	semaphore
	rest time.Duration
}

func (r rested) Lock(ctx context.Context, name string) (held, error) {
	if _, err := r.semaphore.Lock(ctx, name); err != nil {
		return nil, err
	}
	select {
	case <-time.After(r.rest):
		return r, nil
	case <-ctx.Done():
		_, err := r.UnlockContext(context.WithoutCancel(ctx))
		return nil, errors.Join(ctx.Err(), err)
	}
}

func TestShareOneMeasuresHowLongNobodyHasTheLock(t *testing.T) {
	const d = time.Second
	for rest, want := range map[time.Duration]struct {
		free  time.Duration
		locks int
	}{
		0:                      {0, 1000},
		99 * time.Millisecond:  {99 * time.Millisecond, 10},
		600 * time.Millisecond: {600 * time.Millisecond, 1},
		2 * time.Second:        {d, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			lock := rested{newSemaphore(1), rest}
			over := make(chan time.Time, 1)
			start := time.Now()
			w, free, err := shareOne(t.Context(), []library{lock, lock}, d, func() { over <- time.Now() })
			require.NoError(t, err)
			require.Equal(t, want.free, free, rest)
			require.InDelta(t, want.locks, len(w.Times), 1, rest)
			require.Len(t, w.Counts, 2)
			require.Equal(t, d, (<-over).Sub(start))
		})
	}
}
