package redsync_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
)

// This file tests how many calls can join one hold.

// deep calls Do inside Do, and returns how many calls succeeded and the error of the next.
func (f field) deep(ctx context.Context, m *redsync.Mutex) (count int, err error) {
	err = m.Do(ctx, func(ctx context.Context) error {
		var deeper error
		if count, deeper = f.deep(ctx, m); deeper == nil {
			return nil
		}
		count, err = count+1, deeper
		return deeper
	})
	if count == 0 && err == nil {
		return 0, errWork
	}
	return count, err
}

func TestNestingIsLimited(t *testing.T) {
	for _, limit := range []int{1, 2, 3, 10} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			play(t, func(f field) {
				m := f.NewMutex("lock", redsync.WithNesting(limit))
				count, err := f.deep(f.Context(), m)
				assert.Equal(f, limit, count)
				require.ErrorIs(f, err, redsync.ErrNested)
				require.NotErrorIs(f, err, redsync.ErrFailed)
				require.ErrorContains(f, err, fmt.Sprintf(`WithNesting(%d): the hold of "lock" has %[1]d`, limit))
				f.noKeys()
			})
		})
	}
}

// The limit of the outermost call counts, and the limit of the call that joins, too. Calls that have returned do not
// count.
func TestTheLimitsOfBothCallsCount(t *testing.T) {
	for name, c := range map[string]struct {
		outer, inner []redsync.Option
		room         int // how many calls can join at once
	}{
		"none":               {nil, nil, 100},
		"outermost":          {[]redsync.Option{redsync.WithNesting(3)}, nil, 2},
		"inner":              {nil, []redsync.Option{redsync.WithNesting(4)}, 3},
		"outermost is less":  {[]redsync.Option{redsync.WithNesting(2)}, []redsync.Option{redsync.WithNesting(4)}, 1},
		"inner is less":      {[]redsync.Option{redsync.WithNesting(4)}, []redsync.Option{redsync.WithNesting(3)}, 2},
		"inner does not":     {nil, []redsync.Option{redsync.WithNesting(1)}, 0},
		"outermost does not": {[]redsync.Option{redsync.WithNesting(1)}, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(f field) {
				f.meet()
				for range 2 {
					f.inside("lock", func(ctx context.Context) {
						for range 2 {
							var joined, refused atomic.Int32
							var wg sync.WaitGroup
							for range 100 {
								wg.Go(func() {
									called := false
									err := f.Do(ctx, "lock", func(context.Context) error {
										called = true
										time.Sleep(time.Second)
										return nil
									}, c.inner...)
									if called {
										joined.Add(1)
										assert.NoError(f, err)
									} else {
										refused.Add(1)
										assert.ErrorIs(f, err, redsync.ErrNested)
									}
								})
							}
							wg.Wait()
							assert.EqualValues(f, c.room, joined.Load())
							assert.EqualValues(f, 100-c.room, refused.Load())
						}
					}, c.outer...)
				}
			})
		})
	}
}

// If one of several holds has no room, the call joins none of them.
func TestLimitOfOneOfTwoHolds(t *testing.T) {
	for _, full := range both {
		play(t, func(f field) {
			limit := func(name string) redsync.Option {
				if name == full {
					return redsync.WithNesting(2)
				}
				return redsync.WithNesting(3)
			}
			f.inside("a", func(ctx context.Context) {
				require.NoError(f, f.Do(ctx, "b", func(ctx context.Context) error {
					return f.Do(ctx, full, func(ctx context.Context) error {
						for range 5 {
							require.ErrorIs(f, f.NewMultiMutex(both).Do(ctx, never), redsync.ErrNested)
						}
						for _, name := range both {
							if name != full {
								require.NoError(f, f.Do(ctx, name, func(ctx context.Context) error {
									return f.Do(ctx, name, nothing)
								}), "the calls that failed count no more")
							}
						}
						return nil
					})
				}, limit("b")))
			}, limit("a"))
		})
	}
}

func TestNestingOutOfRange(t *testing.T) {
	onKit(t, func(k kit) {
		for _, n := range []int{0, -1} {
			refuses(t, k.NewMutex("lock", redsync.WithNesting(n)), fmt.Sprintf("WithNesting(%d) is out of range: 1 or more", n))
			require.ErrorContains(k, k.Do(k.Context(), "lock", never, redsync.WithNesting(n)), "is out of range")
		}
	})
}
