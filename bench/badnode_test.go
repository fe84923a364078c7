package main

import (
	"context"
	"errors"
	"strings"
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

func TestABadNodeIsComparedWithOneThatRefuses(t *testing.T) {
	for _, sc := range []scene{nodeSilentScene, nodeSlowScene} {
		results := sampled(plan{}, sc)
		table := rows(sc, index(results))
		require.Len(t, table, 1+2*2*5)
		for _, fields := range table[1:] {
			ratio := fields[4]
			switch {
			case strings.HasSuffix(fields[0], refuses):
				require.Equal(t, "1.00", ratio)
			case strings.HasPrefix(fields[2], ours):
				require.NotContains(t, []string{"-", "1.00"}, ratio)
			default:
				require.Equal(t, "-", ratio, "another library has no row with a node that refuses")
			}
		}
		quick := sc.cells(plan{quick: true})
		require.Len(t, quick, 2)
		require.Equal(t, quick[1].id, toRefusing(quick[0].id))
	}
}
