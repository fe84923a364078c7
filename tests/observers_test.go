package redsync_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/observe"
	"github.com/seed14bd9ef4/redsync/redsynctest"
)

// This file tests how observers are set. It also tests that observers are told of background events in order, and that
// this delays no lock.

func TestObserveReleaseUnconfirmedUntilTheKeysHaveRunOut(t *testing.T) {
	observingKit(t, func(k kit, r *redsynctest.Recorder) {
		m := k.held()
		k.down(4)
		_, err := m.Unlock()
		require.NoError(k, err)
		time.Sleep(100 * time.Millisecond)
		got, errs := of[observe.ReleaseUnconfirmed](r)
		require.Len(k, got, 2, "the release was sent at once, and again after 50 ms")
		for i, u := range got {
			assert.Equal(t, observe.ReleaseUnconfirmed{Name: "lock", Mode: observe.Plain, Node: 4, Address: "127.0.0.1:7005", Pending: u.Pending}, u)
			assert.Error(t, errs[i])
		}
		assert.Equal(t, 1, got[1].Pending)
		time.Sleep(20 * time.Second)
		got, _ = of[observe.ReleaseUnconfirmed](r)
		assert.InDelta(t, 12, len(got), 2)
		for _, u := range got {
			assert.False(t, u.GivenUp)
		}
	})
}

// A vote that comes after Close has returned is told to nobody.
func TestVotesAreNotToldAfterClose(t *testing.T) {
	observing(t, func(f field, r *redsynctest.Recorder) {
		f.freeze(4)
		require.NoError(f, f.NewMutex("lock").Lock())
		require.NoError(f, f.Close(f.Context()))
		forget(r)
		time.Sleep(time.Minute) // the connection of the frozen node is given up
		assert.Empty(f, r.All())
	})
}

// An observer blocks for longer than Close waits. The others are told nothing after Close has returned, nor is the log.
func TestObserversBehindOneThatBlocksAreNotToldAfterClose(t *testing.T) {
	play(t, func(f field) {
		var log safeBuffer
		var r redsynctest.Recorder
		gate := make(chan struct{})
		rs := f.With(redsync.WithObserver(lossBlocker{gate}), redsync.WithObserver(&r), redsync.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		m := rs.NewMutex("lock")
		require.NoError(f, m.Lock())
		synctest.Wait()
		f.lose(0, 1, 2, 3, 4)
		_, err := m.Extend()
		require.ErrorIs(f, err, redsync.ErrLockLost)
		require.NoError(f, f.Close(f.Context()))
		forget(&r)
		close(gate)
		synctest.Wait()
		assert.Empty(f, r.All())
		assert.NotContains(f, log.String(), "lost")
	})
}

// lossBlocker is an observer that blocks at a loss.
type lossBlocker struct{ gate chan struct{} }

func (b lossBlocker) ObserveLost(context.Context, observe.Lost) { <-b.gate }

// Close repeats releases for one node deadline. Then one event tells for the node how many releases were given up.
func TestObserveReleaseGivenUpByClose(t *testing.T) {
	for name, c := range map[string]struct {
		before func(k kit, m *redsync.Mutex)
		during func(k kit) // called while Close waits for node 4
	}{
		"it fails before Close": {
			before: func(k kit, m *redsync.Mutex) { k.down(4); k.unlock(m); synctest.Wait() },
		},
		"it fails during Close": {
			before: func(k kit, _ *redsync.Mutex) { k.freeze(4) },
			during: func(k kit) { k.down(4) },
		},
		"Close releases it": {
			before: func(k kit, _ *redsync.Mutex) { k.down(4) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			observingKit(t, func(k kit, r *redsynctest.Recorder) {
				m := k.held()
				c.before(k, m)
				var wg sync.WaitGroup
				wg.Go(func() { assert.NoError(k, k.Close(k.Context())) })
				if c.during != nil {
					synctest.Wait()
					c.during(k)
				}
				wg.Wait()
				got, errs := of[observe.ReleaseUnconfirmed](r)
				require.NotEmpty(k, got)
				for i, u := range got {
					require.Error(k, errs[i])
					last := i == len(got)-1
					want := observe.ReleaseUnconfirmed{Name: "lock", Mode: observe.Plain, Node: 4, Address: "127.0.0.1:7005", Pending: 1}
					if last {
						assert.InDelta(t, 7*time.Second, u.Within, float64(time.Second), "the keys expire within 8 s")
						want.Name, want.Mode, want.GivenUp, want.Within = "", "", true, u.Within
					}
					assert.Equal(t, want, u)
				}
				forget(r)
				time.Sleep(time.Minute)
				got, _ = of[observe.ReleaseUnconfirmed](r)
				assert.Empty(t, got, "nothing is told after Close")
			})
		})
	}
}

// Observers are told of background events in the order in which these happened.
func TestObserveBackgroundInOrder(t *testing.T) {
	observingKit(t, func(k kit, r *redsynctest.Recorder) {
		m := k.held(redsync.WithExpiry(9*time.Second), redsync.WithWatchdog())
		forget(r)
		time.Sleep(4 * time.Second)
		k.lose(0, 1, 2)
		time.Sleep(4 * time.Second)
		k.down(4)
		_, _ = m.Unlock()
		time.Sleep(10 * time.Millisecond)
		synctest.Wait()
		var kinds []string
		for _, e := range r.All() {
			switch e := e.(type) {
			case observe.Vote, observe.Released:
			default:
				kinds = append(kinds, fmt.Sprintf("%T", e))
			}
		}
		assert.Equal(t, []string{
			"observe.Extended", "observe.Extended", "observe.Lost", "observe.NodeDown", "observe.ReleaseUnconfirmed",
		}, kinds)
	})
}

// A blocker is an observer that blocks when it is told of a background event.
type blocker struct {
	redsynctest.Recorder
	gate chan struct{}
}

func (b *blocker) ObserveExtended(ctx context.Context, e observe.Extended) {
	<-b.gate
	b.Recorder.ObserveExtended(ctx, e)
}

func TestObserverThatBlocksDelaysNoLock(t *testing.T) {
	onKit(t, func(k kit) {
		k.meet()
		b := &blocker{gate: make(chan struct{})}
		rs := k.With(redsync.WithObserver(b))
		dog := rs.NewMutex("lock", redsync.WithWatchdog())
		require.NoError(k, dog.Lock())
		time.Sleep(3 * time.Second) // the observer is stuck in the first extension
		m := rs.NewMutex("other", redsync.WithExpiry(time.Second))
		require.NoError(k, m.Lock())
		start := time.Now()
		<-m.Lost()
		assert.Equal(t, 988*time.Millisecond, time.Since(start))
		time.Sleep(time.Minute)
		require.NoError(k, dog.Err(), "the watchdog extends the lock although the observer is stuck")
		lost, _ := of[observe.Lost](&b.Recorder)
		assert.Empty(t, lost, "the stuck observer has been told of no loss yet")

		close(b.gate)
		lost, _ = of[observe.Lost](&b.Recorder)
		assert.Len(t, lost, 1)
		extended, _ := of[observe.Extended](&b.Recorder)
		assert.Len(t, extended, 23, "the watchdog has extended 23 times within 63.988 s")
	})
}

// Close waits for an observer that blocks, but no longer than the node deadline. Nothing is told afterwards.
func TestCloseWaitsForAnObserverThatBlocks(t *testing.T) {
	for name, c := range map[string]struct{ blocks, took time.Duration }{
		"shortly":  {100 * time.Millisecond, 100 * time.Millisecond},
		"for long": {time.Minute, patience},
	} {
		t.Run(name, func(t *testing.T) {
			onKit(t, func(k kit) {
				k.meet()
				b := &blocker{gate: make(chan struct{})}
				rs := k.With(redsync.WithObserver(b))
				require.NoError(k, rs.NewMutex("lock", redsync.WithWatchdog()).Lock())
				time.Sleep(6 * time.Second) // the observer is stuck in the first extension, and the second waits
				time.AfterFunc(c.blocks, func() { close(b.gate) })
				start := time.Now()
				require.NoError(k, rs.Close(k.Context()))
				assert.Equal(t, c.took, time.Since(start))
				lost := redsynctest.Events[observe.Lost](&b.Recorder)
				assert.Equal(t, c.blocks == c.took, len(lost) == 1)
				time.Sleep(2 * time.Minute)
				synctest.Wait()
				assert.Len(t, redsynctest.Events[observe.Lost](&b.Recorder), len(lost))
			})
		})
	}
}

// onlyLost is an observer of losses only. It is not a pointer.
type onlyLost struct{ lost func(observe.Lost) }

func (o onlyLost) ObserveLost(_ context.Context, e observe.Lost) { o.lost(e) }

// An observer that is set twice is told once. One that cannot be compared is told as often as it was set.
func TestObserverThatIsSetTwiceIsToldOnce(t *testing.T) {
	onKit(t, func(k kit) {
		r := &redsynctest.Recorder{}
		lost := 0
		counts := redsync.WithObserver(onlyLost{func(observe.Lost) { lost++ }})
		rs := k.With(redsync.WithObserver(r), counts, redsync.WithObserver(r))
		m := rs.NewMutex("lock", redsync.WithObserver(r), counts)
		require.NoError(k, m.Lock())
		acquired, _ := of[observe.Acquired](r)
		assert.Len(k, acquired, 1)
		time.Sleep(guard)
		synctest.Wait()
		assert.Equal(k, 2, lost)
	})
}

func TestObserversThatAreNoneAreAnError(t *testing.T) {
	var pointer *slog.Logger
	for want, option := range map[string]redsync.Option{
		"WithObserver(<nil>): it has no method of an observer":               redsync.WithObserver(nil),
		"WithObserver(int): it has no method of an observer":                 redsync.WithObserver(1),
		"WithObserver(redsynctest.Recorder): it has no method of an observe": redsync.WithObserver(redsynctest.Recorder{}), //nolint:govet // its methods are on the pointer
		"WithLogger(nil)": redsync.WithLogger(pointer),
	} {
		t.Run(want, func(t *testing.T) {
			play(t, func(f field) {
				refuses(f.T, f.NewMutex("lock", option), want)
				refuses(f.T, f.With(option).NewMutex("lock", redsync.WithObserver(&redsynctest.Recorder{})), want)
				assert.Zero(t, f.traffic())
			})
		})
	}
}
