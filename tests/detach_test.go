package redsync_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/embedded"
	"github.com/seed14bd9ef4/redsync/internal/peek"
	"github.com/seed14bd9ef4/redsync/observe"
	"github.com/seed14bd9ef4/redsync/redsynctest"
)

// This file tests locks that are given away.

func TestDetachGivesTheLockAway(t *testing.T) {
	for name, options := range map[string][]redsync.Option{
		"default": nil,
		"watched": {redsync.WithWatchdog()},
		"healing": {redsync.WithWatchdog(), redsync.WithSetNXOnExtend()},
		"fenced":  {redsync.WithFencing(), redsync.WithWatchdog()},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(f field) {
				other := f.another()
				m := f.held(options...)
				want := redsync.Sequencer{Name: "lock", Token: m.Fence(), Value: peek.Value(m)}
				lost := m.Lost()
				start, before := time.Now(), f.traffic()
				s, err := m.Detach(f.Context())
				require.NoError(t, err)
				assert.Zero(t, time.Since(start))
				assert.Equal(t, want, s)

				for name, operation := range operations(m) {
					ok, err := operation()
					assert.False(t, ok, name)
					require.ErrorIs(t, err, redsync.ErrNotHeld, name)
				}
				require.ErrorIs(t, m.Err(), redsync.ErrNotHeld)
				assert.Zero(t, m.Until())
				assert.Zero(t, m.Remaining())
				assert.Zero(t, m.Fence())
				assert.Zero(t, m.Sequencer())
				assert.Empty(t, m.Value())
				assert.Equal(t, before, f.traffic(), "Detach sends nothing")

				given := other.NewMutex(s.Name, redsync.WithValue(s.Value), redsync.WithWatchdog())
				_, err = given.Extend()
				require.NoError(t, err)
				require.Error(t, m.TryLock())
				time.Sleep(time.Minute)
				require.NoError(t, f.Close(f.Context()))
				time.Sleep(time.Minute)
				require.NoError(t, given.Err())
				assert.Equal(t, 5, f.nodes.Keys("lock"))
				assert.True(t, open(lost))
				f.unlocks(given)
			})
		})
	}
}

// Close does not release a lock that was given away, not even while the giver's validity would have lasted.
func TestCloseDoesNotUnlockWhatWasDetached(t *testing.T) {
	onKit(t, func(k kit) {
		m := k.held()
		s, err := m.Detach(k.Context())
		require.NoError(t, err)
		require.NoError(t, k.Close(k.Context()))
		synctest.Wait()
		assert.Equal(t, 5, k.keys("lock"))
		k.unlock(k.another().NewMutex("lock", redsync.WithValue(s.Value)))
	})
}

// Nobody adopts the lock, so its keys expire.
func TestDetachedAndNotAdoptedRunsOut(t *testing.T) {
	onKit(t, func(k kit) {
		m := k.held(redsync.WithWatchdog())
		_, err := m.Detach(nil) //nolint:staticcheck // it is context.Background
		require.NoError(t, err)
		time.Sleep(8 * time.Second)
		k.nothingLeft()
		require.NoError(t, m.TryLock())
		k.unlocks(m)
	})
}

func TestDetachFails(t *testing.T) {
	canceled, cancel := context.WithCancelCause(context.Background())
	enough := errors.New("enough")
	cancel(enough)
	for name, c := range map[string]struct {
		in   func(f field) *redsync.Mutex
		ctx  context.Context //nolint:containedctx // it is for the call
		want []error
		held bool
	}{
		"idle":     {in: func(f field) *redsync.Mutex { return f.NewMutex("lock") }, want: []error{redsync.ErrNotHeld}},
		"canceled": {func(f field) *redsync.Mutex { return f.held() }, canceled, []error{context.Canceled, enough}, true},
		"adopted and not extended": {in: func(f field) *redsync.Mutex {
			return f.NewMutex("lock", redsync.WithValue(f.held().Value()))
		}, want: []error{redsync.ErrNotHeld}},
		"unlocked": {in: func(f field) *redsync.Mutex {
			m := f.held()
			f.unlock(m)
			return m
		}, want: []error{redsync.ErrNotHeld}},
		"expired": {in: func(f field) *redsync.Mutex {
			m := f.held()
			time.Sleep(validity)
			return m
		}, want: []error{redsync.ErrLockAlreadyExpired}},
		"lost": {in: func(f field) *redsync.Mutex {
			m := f.held()
			f.lose(0, 1, 2)
			_, _ = m.Valid()
			return m
		}, want: []error{redsync.ErrLockLost, redsync.ErrLockAlreadyExpired}},
		"closed": {in: func(f field) *redsync.Mutex {
			m := f.held()
			_ = f.Close(f.Context())
			return m
		}, want: []error{redsync.ErrClosed}},
		"of no Redsync": {in: func(field) *redsync.Mutex { return &redsync.Mutex{} }, want: []error{redsync.ErrNoPools}},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(f field) {
				m := c.in(f)
				err, before := m.Err(), f.traffic()
				s, failed := m.Detach(c.ctx)
				for _, want := range c.want {
					require.ErrorIs(t, failed, want)
				}
				assert.Zero(t, s)
				assert.Equal(t, err, m.Err(), "a Detach that fails leaves the Mutex as it was")
				assert.Equal(t, c.held, m.Remaining() > 0)
				assert.Equal(t, before, f.traffic())
			})
		})
	}
}

// One node has not answered yet when the lock is given away. The receiver unlocks it. No key may appear on that node
// afterwards.
func TestDetachWaitsForTheAnswersOfSlowNodes(t *testing.T) {
	healing := []redsync.Option{redsync.WithSetNXOnExtend(), redsync.WithFailFast(true)}
	for name, c := range map[string]struct {
		options  []redsync.Option
		extends  bool
		delay    time.Duration
		patience time.Duration // of the context; 0: no limit
		waits    time.Duration
		late     bool
	}{
		"an acquire":                       {delay: 200 * time.Millisecond, waits: 200 * time.Millisecond},
		"an extension":                     {extends: true, delay: 200 * time.Millisecond, waits: 200 * time.Millisecond},
		"an extension that heals":          {options: healing, extends: true, delay: 200 * time.Millisecond, waits: 200 * time.Millisecond},
		"no longer than the node deadline": {delay: 2 * time.Second, waits: 400 * time.Millisecond, late: true},
		"no longer than its context":       {delay: 2 * time.Second, patience: 100 * time.Millisecond, waits: 100 * time.Millisecond, late: true},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(f field) {
				f.meet()
				other := f.another()
				command := "set"
				if c.extends {
					command = "evalsha"
				}
				m := f.NewMutex("lock", c.options...)
				if c.extends {
					require.NoError(t, m.Lock())
					time.Sleep(time.Millisecond)
					_, err := m.Extend() // the nodes know the script
					require.NoError(t, err)
					time.Sleep(time.Millisecond)
				}
				f.nodes[4].On(command, 1, embedded.Fault{Delay: c.delay})
				if c.extends {
					_, err := m.Extend()
					require.NoError(t, err)
				} else {
					require.NoError(t, m.Lock())
				}
				ctx, cancel := f.Context(), context.CancelFunc(func() {})
				if c.patience > 0 {
					ctx, cancel = context.WithTimeout(ctx, c.patience)
				}
				defer cancel()
				start := time.Now()
				s, err := m.Detach(ctx)
				require.NoError(t, err)
				assert.Equal(t, c.waits, time.Since(start))
				f.unlock(other.NewMutex("lock", redsync.WithValue(s.Value)))
				time.Sleep(time.Millisecond)
				came := false
				for range 300 {
					time.Sleep(10 * time.Millisecond)
					came = came || f.nodes.Keys("lock") > 0
				}
				assert.Equal(t, c.late, came, "whether a late command set a key after the Unlock")
				assert.Zero(t, f.nodes.Keys("lock"), "the release is repeated until no key is left")
			})
		})
	}
}

// Detach ends an Extend that is under way. No round of it goes on.
func TestDetachEndsTheRoundsUnderWay(t *testing.T) {
	onKit(t, func(k kit) {
		m := k.held(redsync.WithSetNXOnExtend())
		k.freeze(0, 1, 2)
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := m.Extend()
			assert.ErrorIs(t, err, redsync.ErrNotHeld)
		})
		time.Sleep(time.Second)
		start := time.Now()
		time.AfterFunc(100*time.Millisecond, func() { k.thaw(0, 1, 2) })
		_, err := m.Detach(k.Context())
		require.NoError(t, err)
		assert.Equal(t, 100*time.Millisecond, time.Since(start))
		k.lose(0, 1, 2, 3, 4)
		wg.Wait()
		time.Sleep(time.Second)
		k.nothingLeft()
	})
}

func TestDetachWhoseValidityEndsWhileItWaits(t *testing.T) {
	for name, c := range map[string]struct {
		shown bool
		left  int
	}{"shown": {true, 1}, "not shown": {false, 0}} {
		t.Run(name, func(t *testing.T) {
			observingKit(t, func(k kit, r *redsynctest.Recorder) {
				m := k.NewMutex("lock", redsync.WithExpiry(time.Second), redsync.WithNodeTimeout(400*time.Millisecond))
				k.freeze(4) // as a whole: a single connection that is slow would be replaced
				time.AfterFunc(1200*time.Millisecond, func() { k.thaw(4) })
				require.NoError(t, m.Lock())
				if c.shown {
					require.NotEmpty(t, m.Value())
				}
				lost := m.Lost()
				time.Sleep(800 * time.Millisecond)
				start := time.Now()
				s, err := m.Detach(k.Context())
				assert.Equal(t, 400*time.Millisecond, time.Since(start))
				require.ErrorIs(t, err, redsync.ErrLockLost)
				require.ErrorIs(t, err, redsync.ErrLockAlreadyExpired)
				assert.Zero(t, s)
				assert.False(t, open(lost))
				require.ErrorIs(t, m.Err(), redsync.ErrNotHeld)
				_, told := only[observe.Lost](t, r)
				require.ErrorIs(t, told, redsync.ErrLockLost)
				detached, _ := of[observe.Detached](r)
				assert.Empty(t, detached)
				time.Sleep(100 * time.Millisecond)
				assert.Equal(t, c.left, k.keys("lock"), "if the value was shown, only the slow node has a key left")
			})
		})
	}
}

func TestOneOfTwoDetachesGetsTheLock(t *testing.T) {
	play(t, func(f field) {
		f.meet()
		f.nodes[4].On("set", 1, embedded.Fault{Delay: 200 * time.Millisecond})
		m := f.NewMutex("lock")
		require.NoError(t, m.Lock())
		var wg sync.WaitGroup
		got := make([]error, 2)
		for i := range got {
			wg.Go(func() { _, got[i] = m.Detach(f.Context()) })
		}
		wg.Wait()
		if got[0] != nil {
			got[0], got[1] = got[1], got[0]
		}
		require.NoError(t, got[0])
		require.ErrorIs(t, got[1], redsync.ErrNotHeld)
	})
}

// Whatever calls run at the same time as Detach, the lock ends exactly once.
func TestDetachAmongOtherCalls(t *testing.T) {
	for name, closes := range map[string]bool{"no Close": false, "Close": true} {
		t.Run(name, func(t *testing.T) {
			for range 50 {
				play(t, func(f field) {
					m := f.held(redsync.WithWatchdog(), redsync.WithSetNXOnExtend())
					var wg sync.WaitGroup
					var unlocked, detached bool
					var s redsync.Sequencer
					wg.Go(func() { unlocked, _ = m.Unlock() })
					wg.Go(func() {
						var err error
						s, err = m.Detach(f.Context())
						detached = err == nil
					})
					wg.Go(func() { _, _ = m.Extend() })
					wg.Go(func() { _ = m.TryLock() })
					wg.Go(func() { _, _ = m.Value(), m.Sequencer() })
					if closes {
						wg.Go(func() { _ = f.Close(f.Context()) })
					}
					wg.Wait()
					_, _ = m.Unlock()
					synctest.Wait()
					assert.False(t, unlocked && detached && m.Value() == s.Value)
					if detached {
						value, err := f.nodes[0].Get("lock")
						require.NoError(t, err)
						assert.Equal(t, s.Value, value)
					}
				})
			}
		})
	}
}

// The nodes have not told the waiters in the giver's process anything so far. They must go on after Detach all the
// same.
func TestWaitersGoOnAfterDetach(t *testing.T) {
	inEachMode(t, onKit, func(k kit, mode []redsync.Option) {
		other := k.another(mode...)
		k.meet()
		m := k.another(mode...).NewMutex("lock")
		require.NoError(k, m.Lock())
		first := k.calls(k.Redsync, patient(mode...)...)
		second := k.calls(k.Redsync, patient(mode...)...)
		k.atOnce(m, first)
		time.Sleep(3 * time.Second)
		s, err := first.Detach(k.Context())
		require.NoError(k, err)
		time.Sleep(time.Second)
		require.False(k, second.isDone())
		k.unlock(other.NewMutex("lock", redsync.WithValue(s.Value)))
		k.within(second, 10*time.Millisecond)
		k.unlock(second.Mutex)
		k.nothingLeft()
	})
}

func TestObserveDetached(t *testing.T) {
	observingKit(t, func(k kit, r *redsynctest.Recorder) {
		m := k.held()
		time.Sleep(999 * time.Millisecond)
		_, err := m.Detach(k.Context())
		require.NoError(t, err)
		got, _ := only[observe.Detached](t, r)
		assert.Equal(t, observe.Detached{Name: "lock", Mode: observe.Plain, Held: time.Second, Left: validity - time.Second}, got)
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Empty(t, redsynctest.Events[observe.Released](r))
		assert.Empty(t, redsynctest.Events[observe.Lost](r))
	})
}

// If the observer panics, nobody gets the Sequencer. So Detach must release the lock.
func TestADetachWhoseObserverPanicsReleases(t *testing.T) {
	for name, option := range map[string]redsync.Option{
		"observer": redsync.WithObserver(panics{on: "detached"}), "log": logs("redsync: detached"),
	} {
		t.Run(name, func(t *testing.T) {
			onKit(t, func(k kit) {
				m := k.held(redsync.WithWatchdog(), option)
				assert.PanicsWithValue(t, "the user's", func() { _, _ = m.Detach(k.Context()) })
				require.ErrorIs(t, m.Err(), redsync.ErrNotHeld)
				time.Sleep(time.Millisecond)
				k.nothingLeft()
				k.closesAtOnce()
			})
		})
	}
}
