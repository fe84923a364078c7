package redsync_test

import (
	"context"
	"crypto/rand"
	"errors"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/observe"
	"github.com/seed14bd9ef4/redsync/pool"
)

func TestALockWhoseObserverPanicsIsReleased(t *testing.T) {
	for by, option := range map[string]redsync.Option{
		"attempt":         panicsAt("Attempt"),
		"acquired":        panicsAt("Acquired"),
		"log of attempt":  logs("redsync: attempt won"),
		"log of acquired": logs("redsync: acquired"),
		"detached":        panicsAt("Detached"),
		"log of detached": logs("redsync: detached"),
	} {
		for call, do := range map[string]func(m *redsync.Mutex){
			"Lock": func(m *redsync.Mutex) { _ = m.Lock(); _, _ = m.Detach(context.Background()) },
			"Do":   func(m *redsync.Mutex) { _ = m.Do(context.Background(), never) },
		} {
			if strings.HasSuffix(by, "detached") && call == "Do" {
				continue // which excludes Detach
			}
			playAs(t, call+", "+by, func(f field) {
				m := f.NewMutex("lock", option, withWatchdog)
				panicked(f, func() { do(m) })
				isOver(f, m, redsync.ErrNotHeld)
				assert.Empty(f, m.Value())
				f.noKeys()
				before := f.traffic()
				time.Sleep(minute)
				f.hasSent(before, "nothing extends the lock after the panic")
				f.closesAtOnce()
			})
		}
	}
}

// Nodes that refuse the attempt have put its ticket in their queues. The ticket must not stay there.
func TestALockWhoseObserverPanicsLeavesTheQueues(t *testing.T) {
	for _, taken := range [][]int{{3, 4}, {2, 3, 4}} { // it wins, or fails
		playMet(t, func(f field) {
			f.occupy("lock", taken...)
			m, before := f.NewMutex("lock", withFair, panicsAt("Attempt")), f.traffic()
			panicked(t, func() { _ = m.Lock() })
			f.hasSent(before+5*3, "the attempt, its release, and one for the ticket")
			f.nobodyWaits()
		})
	}
}

func TestAnExtendWhoseObserverPanicsAdoptsNothing(t *testing.T) {
	play(t, func(f field) {
		value := f.held().Value()
		m := f.NewMutex("lock", withValue(value), withWatchdog, panicsAt("Acquired"))
		panicked(t, func() { _, _ = m.Extend() })
		assert.Equal(t, value, m.Value())
		assert.Zero(t, m.Until())
		isOver(t, m, redsync.ErrNotHeld)
		f.confirms(m.Valid()) // the panic in Extend releases nothing
		before := f.traffic()
		time.Sleep(10 * sec)
		f.hasSent(before) // nothing extends the lock after the panic
		f.keysOn(0)
		f.closesAtOnce()
	})
}

func TestAWaiterThatPanicsLeavesItsLine(t *testing.T) {
	parallelComputing(t)
	quick := withRetryDelay(10 * ms)
	type panicking = func(now func()) redsync.Option // now panics in the given call
	generates := func(now func()) redsync.Option {
		return withGenValueFunc(func() (string, error) { now(); return rand.Text(), nil })
	}
	delays := func(now func()) redsync.Option {
		return redsync.WithRetryDelayFunc(func(int) time.Duration { now(); return 10 * ms })
	}
	for name, c := range map[string]struct {
		option panicking
		in     int // the call
	}{
		"the first value":  {generates, 1},
		"the third value":  {generates, 3},
		"the delay":        {delays, 1},
		"the second delay": {delays, 2},
		"the attempt":      {func(func()) redsync.Option { return panicsAt("Attempt") }, 0},
		"the log":          {func(func()) redsync.Option { return logs("redsync: attempt failed") }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inEachMode(t, onKit, func(k kit, mode opts) {
				m := k.held(mode...)
				calls := 0
				now := func() {
					if calls++; calls == c.in {
						panic("the user's")
					}
				}
				bad := k.NewMutex("lock", append(mode, quick, c.option(now))...)
				panicked(k, func() { _ = bad.Lock() })
				isOver(k, bad, redsync.ErrNotHeld)
				next := k.inLine(mode...)
				k.atOnce(m, next)
				k.unlock(next)
				time.Sleep(sec)
				k.nothingLeft()
				k.closesAtOnce()
			})
		})
	}
}

// The caller's goroutine must not tell an observer the vote of a node that nothing could be sent to. If the observer
// panicked there, the other nodes would not be sent the request, or the release.
func TestARefusedSendIsNotToldByTheCaller(t *testing.T) {
	play(t, func(f field) {
		on, told := new(atomic.Bool), make(chan string, 50)
		on.Store(true)
		pools := f.pools()
		pools[0] = refusing{pools[0], on}
		rs := redsync.New(pools...)
		f.closes(rs)
		m := locked(f, rs.NewMutex("lock", withHooks(&observe.Hooks{Vote: func(_ context.Context, v observe.Vote) {
			if errors.As(v.Err, new(*pool.OutstandingError)) {
				told <- string(debug.Stack())
			}
		}})))
		f.unlock(m)
		for range 2 {
			stack := <-told
			assert.NotContains(f, stack, "LockContext")
			assert.NotContains(f, stack, "UnlockContext")
		}
	})
}

// A waiter is handed the lock while a function of its user runs. Then that function panics. Nobody holds the lock, so
// it is released.
func TestWaiterThatPanicsReleasesWhatItWasHanded(t *testing.T) {
	playMet(t, func(f field) {
		giver := f.locks()
		calls := 0
		m := f.NewMutex("lock", forever, redsync.WithRetryDelayFunc(func(int) time.Duration {
			if calls++; calls > 1 {
				f.silently("the lock is handed over", func() { f.unlock(giver) })
				panic("the user's")
			}
			return 5 * ms
		}))
		panicked(t, func() { _ = m.Lock() })
		isOver(t, m, redsync.ErrNotHeld)
		synctest.Wait()
		f.keysOn(0)
		f.nobodyWaits()
		f.closesAtOnce()
	})
}

// While an observer is told of a lock, the lock is unlocked and acquired again. Then the observer panics. The second lock
// stays.
func TestAPanicGivesUpOnlyTheLockThatTheObserverIsToldOf(t *testing.T) {
	onKit(t, func(k kit) {
		var m *redsync.Mutex
		told := 0
		m = k.NewMutex("lock", withHooks(&observe.Hooks{Acquired: func(context.Context, observe.Acquired) {
			if told++; told == 1 {
				k.unlock(m)
				obtained(k, m)
				panic("the user's")
			}
		}}))
		panicked(t, func() { _ = m.TryLock() })
		alive(t, m)
		k.unlock(m)
		k.nothingLeft()
	})
}
