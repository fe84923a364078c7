package redsync_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/embedded"
)

// A lock that came out of a line is released by somebody who has adopted it: those in
// the line are not left waiting for its expiry.
func TestWaitersNoticeThatAnAdoptedLockIsReleased(t *testing.T) {
	for name, c := range map[string]struct {
		elsewhere bool
		within    time.Duration
	}{
		"in the same process": {false, 0},
		"in another process":  {true, 250 * time.Millisecond}, // the retry delay
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(f field) {
				f.meet()
				releaser := f.Redsync
				if c.elsewhere {
					releaser = f.another()
				}
				options := []redsync.Option{redsync.WithTries(0), redsync.WithHandOver(false)}
				m := f.held(options...)
				holder, waiter := f.calls(f.Redsync, options...), f.calls(f.Redsync, options...)
				time.Sleep(time.Second)
				f.unlock(m)
				time.Sleep(10 * time.Millisecond)
				if waiter.isDone() {
					holder, waiter = waiter, holder
				}
				require.True(t, holder.isDone())
				require.False(t, waiter.isDone())
				f.unlock(releaser.NewMutex("lock", redsync.WithValue(holder.Value())))
				f.within(waiter, c.within)
			})
		})
	}
}

// attemptCounter counts attempts, and those that failed.
type attemptCounter struct{ made, failed atomic.Int64 }

func (c *attemptCounter) ObserveAttempt(a redsync.Attempt) {
	c.made.Add(1)
	if a.Err != nil {
		c.failed.Add(1)
	}
}

// Where processes take turns, each waits until it is told: no attempt is in vain, once
// all can hear.
func TestNoAttemptIsInVainWhereProcessesTakeTurns(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]redsync.Option{"default": redsync.WithHandOver(false), "fair": redsync.WithFair()} {
		t.Run(name, func(t *testing.T) {
			play(t, func(f field) {
				f.meet()
				count := &attemptCounter{}
				options := patient(mode, redsync.WithHandOver(false), redsync.WithObserver(count))
				ctx, cancel := context.WithCancel(context.Background())
				var wg sync.WaitGroup
				for _, rs := range []*redsync.Redsync{f.Redsync, f.another()} {
					for range 4 {
						wg.Go(func() {
							m := rs.NewMutex("lock", options...)
							for m.LockContext(ctx) == nil {
								time.Sleep(time.Millisecond)
								_, _ = m.Unlock()
							}
						})
					}
				}
				time.Sleep(200 * time.Millisecond)
				made, failed := count.made.Load(), count.failed.Load()
				time.Sleep(time.Second)
				made, failed = count.made.Load()-made, count.failed.Load()-failed
				cancel()
				wg.Wait()
				assert.Greater(t, made, int64(500))
				assert.LessOrEqual(t, failed, int64(4))
			})
		})
	}
}

// A lock whose keys the user may not touch is no reason to be woken for no other.
func TestADeniedNameCostsOthersTheirWakeUpForAWhileOnly(t *testing.T) {
	play(t, func(f field) {
		f.meet()
		other := f.another()
		for _, n := range f.nodes {
			n.On("evalsha", 1, embedded.Fault{Err: "NOPERM No permissions to access a key"})
		}
		m := other.NewMutex("forbidden")
		require.NoError(t, m.TryLock())
		f.unlock(m)
		time.Sleep(5 * time.Second)
		for _, holder := range []*redsync.Redsync{f.Redsync, other} {
			m := holder.NewMutex("lock")
			require.NoError(t, m.Lock())
			waiter := f.Redsync
			if holder == f.Redsync {
				waiter = other
			}
			w := f.calls(waiter, patient()...)
			time.Sleep(100 * time.Millisecond)
			f.unlock(m)
			f.within(w, 0)
			f.unlock(w.Mutex)
		}
	})
}

type panicking struct{}

func (panicking) ObserveAttempt(redsync.Attempt) { panic("observer") }

func TestAnObserverThatPanicsLeavesNothingLocked(t *testing.T) {
	for name, mode := range map[string]redsync.Option{"default": redsync.WithHandOver(false), "fair": redsync.WithFair()} {
		for _, taken := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				play(t, func(f field) {
					f.meet()
					if taken {
						f.held()
					}
					assert.PanicsWithValue(t, "observer", func() {
						_ = f.NewMutex("lock", mode, redsync.WithObserver(panicking{})).Lock()
					})
					time.Sleep(time.Second)
					want := 0
					if taken {
						want = 5
					}
					assert.Equal(t, want, f.nodes.Keys("lock"))
					for i := range f.nodes {
						assert.Zero(t, f.inQueue(i))
					}
				})
			})
		}
	}
}

// A name whose register is far ahead does not drive other names there.
func TestFenceOfOneNameIsNoneOfAnother(t *testing.T) {
	play(t, func(f field) {
		f.meet()
		for _, n := range f.nodes {
			require.NoError(t, n.Set("{ahead}:fence", "18446744073709551614"))
		}
		ahead := f.NewMutex("ahead", redsync.WithFencing())
		require.NoError(t, ahead.Lock())
		assert.Equal(t, uint64(18446744073709551615), ahead.Fence())
		m := f.NewMutex("lock", redsync.WithFencing())
		require.NoError(t, m.Lock())
		assert.LessOrEqual(t, m.Fence(), uint64(time.Now().UnixMicro()))
	})
}
