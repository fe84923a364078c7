package redsync_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/seed14bd9ef4/redsync"
)

// This file tests how many calls can join one hold.

// The limit of the outermost call counts, and the limit of the call that joins, too. Calls that have returned do not
// count.
func TestTheLimitsOfBothCallsCount(t *testing.T) {
	limit := func(n int) opts { return opts{redsync.WithNesting(n)} }
	for name, c := range map[string]struct {
		outer, inner opts
		limit        int
	}{
		"none":      {nil, nil, 111},
		"outermost": {limit(2), limit(4), 2},
		"inner":     {limit(4), limit(3), 3},
		"no room":   {nil, limit(1), 1},
	} {
		playMetAs(t, name, func(f field) {
			f.inside("lock", func(ctx context.Context) {
				for range 2 {
					var joined atomic.Int32
					var wg sync.WaitGroup
					for range 110 {
						wg.Go(func() {
							err := f.Do(ctx, "lock", func(context.Context) error {
								joined.Add(1)
								time.Sleep(sec)
								return errWork
							}, c.inner...)
							if !errors.Is(err, errWork) {
								assert.ErrorIs(f, err, redsync.ErrNested)
								assert.NotErrorIs(f, err, redsync.ErrFailed)
								says(f, err, fmt.Sprintf(`WithNesting(%d): the hold of "lock" has %[1]d`, c.limit))
							}
						})
					}
					wg.Wait()
					assert.EqualValues(f, c.limit-1, joined.Load())
				}
			}, c.outer...)
			f.noKeys()
		})
	}
}

// If one of several holds has no room, the call joins none of them.
func TestLimitOfOneOfTwoHolds(t *testing.T) {
	for full, other := range map[string]string{"a": "b", "b": "a"} {
		play(t, func(f field) {
			f.inside(other, func(ctx context.Context) {
				noError(f, f.Do(ctx, full, func(ctx context.Context) error {
					for range 5 {
						errorIs(f, f.NewMultiMutex(both).Do(ctx, never), redsync.ErrNested)
					}
					return f.Do(ctx, other, func(ctx context.Context) error {
						return f.Do(ctx, other, nothing)
					}) // the calls that failed count no more
				}, redsync.WithNesting(1)))
			}, redsync.WithNesting(3))
		})
	}
}

func TestNestingOutOfRange(t *testing.T) {
	onKit(t, func(k kit) {
		for _, n := range []int{0, -1} {
			refuses(t, k.NewMutex("lock", redsync.WithNesting(n)), fmt.Sprintf("WithNesting(%d) is out of range: 1 or more", n))
			says(k, k.does("lock", never, redsync.WithNesting(n)), "is out of range")
		}
	})
}
