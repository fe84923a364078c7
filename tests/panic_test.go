package redsync_test

import (
	"context"
	"crypto/rand"
	"errors"
	"runtime/debug"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/observe"
	"github.com/seed14bd9ef4/redsync/pool"
)

func TestALockWhoseObserverPanicsIsReleased(t *testing.T) {
	for by, option := range map[string]redsync.Option{
		"attempt":         redsync.WithObserver(panics{on: "attempt"}),
		"acquired":        redsync.WithObserver(panics{on: "acquired"}),
		"log of attempt":  logs("redsync: attempt won"),
		"log of acquired": logs("redsync: acquired"),
	} {
		for call, do := range map[string]func(rs *redsync.Redsync, m *redsync.Mutex){
			"Lock":    func(_ *redsync.Redsync, m *redsync.Mutex) { _ = m.Lock() },
			"TryLock": func(_ *redsync.Redsync, m *redsync.Mutex) { _ = m.TryLock() },
			"Do": func(rs *redsync.Redsync, _ *redsync.Mutex) {
				_ = rs.Do(context.Background(), "lock", func(context.Context) error { return nil }, option)
			},
		} {
			t.Run(call+", "+by, func(t *testing.T) {
				play(t, func(f field) {
					f.meet()
					m := f.NewMutex("lock", option, redsync.WithWatchdog())
					assert.PanicsWithValue(t, "the user's", func() { do(f.Redsync, m) })
					require.ErrorIs(t, m.Err(), redsync.ErrNotHeld)
					assert.Empty(t, m.Value())
					time.Sleep(time.Millisecond)
					assert.Zero(t, f.nodes.Keys("lock"))
					before := f.traffic()
					time.Sleep(time.Minute)
					assert.Equal(t, before, f.traffic(), "nothing extends the lock after the panic")
					f.closesAtOnce()
				})
			})
		}
	}
}

// Nodes that refuse the attempt have put its ticket in their queues. The ticket must not stay there.
func TestALockWhoseObserverPanicsLeavesTheQueues(t *testing.T) {
	play(t, func(f field) {
		f.meet()
		for _, n := range f.nodes[3:] {
			require.NoError(t, n.Set("lock", "another's"))
		}
		m := f.NewMutex("lock", redsync.WithFair(), redsync.WithObserver(panics{on: "attempt"}))
		assert.PanicsWithValue(t, "the user's", func() { _ = m.Lock() })
		synctest.Wait()
		f.nobodyWaits()
	})
}

func TestAnExtendWhoseObserverPanicsAdoptsNothing(t *testing.T) {
	play(t, func(f field) {
		value := f.held().Value()
		m := f.NewMutex("lock", redsync.WithValue(value), redsync.WithWatchdog(), redsync.WithObserver(panics{on: "acquired"}))
		time.Sleep(time.Second)
		assert.PanicsWithValue(t, "the user's", func() { _, _ = m.Extend() })
		assert.Equal(t, value, m.Value())
		assert.Zero(t, m.Until())
		require.ErrorIs(t, m.Err(), redsync.ErrNotHeld)
		ok, err := m.Valid()
		require.NoError(t, err)
		assert.True(t, ok, "the panic in Extend releases nothing")
		before := f.traffic()
		time.Sleep(10 * time.Second)
		assert.Equal(t, before, f.traffic(), "nothing extends the lock after the panic")
		assert.Zero(t, f.nodes.Keys("lock"))
		f.closesAtOnce()
	})
}

func TestAWaiterThatPanicsLeavesItsLine(t *testing.T) {
	var values int
	generates := func(calls int) redsync.Option {
		return redsync.WithGenValueFunc(func() (string, error) {
			if values++; values > calls {
				panic("the user's")
			}
			return rand.Text(), nil
		})
	}
	for name, options := range map[string][]redsync.Option{
		"the first value":  {generates(0)},
		"the second value": {generates(1), redsync.WithRetryDelay(10 * time.Millisecond)},
		"the third value":  {generates(2), redsync.WithRetryDelay(10 * time.Millisecond)},
		"the delay":        {redsync.WithRetryDelayFunc(func(int) time.Duration { panic("the user's") })},
		"the second delay": {redsync.WithRetryDelayFunc(func(tries int) time.Duration {
			if tries == 2 {
				panic("the user's")
			}
			return 10 * time.Millisecond
		})},
		"the attempt": {redsync.WithObserver(panics{on: "attempt"})},
		"the log":     {logs("redsync: attempt failed")},
	} {
		t.Run(name, func(t *testing.T) {
			inEachMode(t, onKit, func(k kit, mode []redsync.Option) {
				values = 0
				m := k.held(mode...)
				bad := k.NewMutex("lock", append(options, mode...)...)
				assert.PanicsWithValue(k, "the user's", func() { _ = bad.Lock() })
				require.ErrorIs(k, bad.Err(), redsync.ErrNotHeld)
				next := k.calls(k.Redsync, patient(mode...)...)
				k.atOnce(m, next)
				k.unlock(next.Mutex)
				time.Sleep(time.Second)
				k.nothingLeft()
				k.closesAtOnce()
			})
		})
	}
}

// stacks is an observer that records the stack on which it is told the vote of a refused send.
type stacks chan string

func (s stacks) ObserveVote(_ context.Context, v observe.Vote) {
	if errors.As(v.Err, new(*pool.OutstandingError)) {
		s <- string(debug.Stack())
	}
}

// The caller's goroutine must not tell an observer the vote of a node that nothing could be sent to. If the observer
// panicked there, the other nodes would not be sent the request, or the release.
func TestARefusedSendIsNotToldByTheCaller(t *testing.T) {
	play(t, func(f field) {
		on, told := new(atomic.Bool), make(stacks, 10)
		var pools []pool.Pool
		for i, n := range f.nodes {
			p := pool.New(n.Client())
			if i == 0 {
				p = refusing{p, on}
			}
			pools = append(pools, p)
		}
		rs := redsync.New(pools...)
		on.Store(true)
		m := rs.NewMutex("lock", redsync.WithObserver(told))
		require.NoError(f, m.Lock())
		ok, err := m.Unlock()
		require.True(f, ok, err)
		for range 2 {
			stack := <-told
			assert.NotContains(f, stack, "LockContext")
			assert.NotContains(f, stack, "UnlockContext")
		}
		require.NoError(f, rs.Close(f.Context()))
		time.Sleep(time.Second)
		assert.Zero(f, f.nodes.Keys("lock"))
	})
}

// A waiter is handed the lock while a function of its user runs. Then that function panics. Nobody holds the lock, so
// it is released.
func TestWaiterThatPanicsReleasesWhatItWasHanded(t *testing.T) {
	play(t, func(f field) {
		f.meet()
		giver := f.NewMutex("lock")
		require.NoError(t, giver.Lock())
		calls := 0
		m := f.NewMutex("lock", redsync.WithTries(0), redsync.WithRetryDelayFunc(func(int) time.Duration {
			if calls++; calls > 1 {
				before := f.traffic()
				f.unlock(giver)
				assert.Equal(t, before, f.traffic(), "the lock is handed over, which sends nothing")
				panic("the user's")
			}
			return 5 * time.Millisecond
		}))
		assert.PanicsWithValue(t, "the user's", func() { _ = m.Lock() })
		require.ErrorIs(t, m.Err(), redsync.ErrNotHeld)
		synctest.Wait()
		assert.Zero(t, f.nodes.Keys("lock"))
		f.nobodyWaits()
		f.closesAtOnce()
	})
}

// An acquiredFunc is an observer that is called when a lock is acquired.
type acquiredFunc func()

func (f acquiredFunc) ObserveAcquired(context.Context, observe.Acquired) { f() }

// While an observer is told of a lock, the lock is unlocked and acquired again. Then the observer panics. The second lock
// stays.
func TestAPanicGivesUpOnlyTheLockThatTheObserverIsToldOf(t *testing.T) {
	onKit(t, func(k kit) {
		var m *redsync.Mutex
		told := 0
		m = k.NewMutex("lock", redsync.WithObserver(acquiredFunc(func() {
			if told++; told == 1 {
				k.unlock(m)
				require.NoError(k, m.TryLock())
				panic("the user's")
			}
		})))
		assert.PanicsWithValue(t, "the user's", func() { _ = m.TryLock() })
		require.NoError(t, m.Err())
		k.unlock(m)
		k.nothingLeft()
	})
}
