package redsync_test

import (
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
)

// This file shows how observers are set, and that events told later come in order and delay no
// lock.

func TestObserveUnsettledUntilTheKeysHaveRunOut(t *testing.T) {
	observe(t, func(f field, r *recorder) {
		m := f.held()
		f.kill(4)
		_, err := m.Unlock()
		require.NoError(f, err)
		time.Sleep(100 * time.Millisecond)
		got, errs := of[redsync.Unsettled](r)
		require.Len(f, got, 2, "at once, and after 50 ms")
		for i, u := range got {
			assert.Equal(t, redsync.Unsettled{Name: "lock", Node: 4, Pending: u.Pending}, u)
			assert.Error(t, errs[i])
		}
		assert.Equal(t, 1, got[1].Pending)
		time.Sleep(20 * time.Second)
		got, _ = of[redsync.Unsettled](r)
		assert.InDelta(t, 12, len(got), 2)
		for _, u := range got {
			assert.False(t, u.Dropped)
		}
	})
}

func TestObserveUnsettledDroppedByClose(t *testing.T) {
	observe(t, func(f field, r *recorder) {
		f.held()
		f.kill(4)
		require.NoError(f, f.Close(f.Context()))
		got, err := only[redsync.Unsettled](f.T, r)
		assert.Equal(t, 4, got.Node)
		assert.True(t, got.Dropped)
		require.Error(f, err)
	})
}

// What happens in the background is told in the order in which it happened.
func TestObserveBackgroundInOrder(t *testing.T) {
	observe(t, func(f field, r *recorder) {
		m := f.held(redsync.WithExpiry(9*time.Second), redsync.WithWatchdog())
		r.forget()
		time.Sleep(4 * time.Second)
		f.lose(0, 1, 2)
		time.Sleep(4 * time.Second)
		f.kill(4)
		_, _ = m.Unlock()
		time.Sleep(10 * time.Millisecond)
		synctest.Wait()
		var kinds []string
		for _, e := range r.events {
			switch e := e.(type) {
			case redsync.Vote, redsync.Released:
			default:
				kinds = append(kinds, fmt.Sprintf("%T", e))
			}
		}
		assert.Equal(t, []string{"redsync.Extended", "redsync.Extended", "redsync.Lost", "redsync.Unsettled"}, kinds)
	})
}

// A blocker is an observer that blocks on what happens in the background.
type blocker struct {
	recorder
	gate chan struct{}
}

func (b *blocker) ObserveExtended(e redsync.Extended) {
	<-b.gate
	b.recorder.ObserveExtended(e)
}

func TestObserverThatBlocksDelaysNoLock(t *testing.T) {
	play(t, func(f field) {
		f.meet()
		b := &blocker{gate: make(chan struct{})}
		rs := f.With(redsync.WithObserver(b))
		dog := rs.NewMutex("lock", redsync.WithWatchdog())
		require.NoError(f, dog.Lock())
		time.Sleep(3 * time.Second) // the observer is stuck in the first extension
		m := rs.NewMutex("other", redsync.WithExpiry(time.Second))
		require.NoError(f, m.Lock())
		start := time.Now()
		<-m.Lost()
		assert.Equal(t, 988*time.Millisecond, time.Since(start))
		time.Sleep(time.Minute)
		require.NoError(f, dog.Err(), "it is extended all the time")
		start = time.Now()
		require.NoError(f, rs.Close(f.Context()))
		assert.Zero(t, time.Since(start))
		lost, _ := of[redsync.Lost](&b.recorder)
		assert.Empty(t, lost, "nothing was told yet")

		close(b.gate)
		lost, _ = of[redsync.Lost](&b.recorder)
		assert.Len(t, lost, 2)
		extended, _ := of[redsync.Extended](&b.recorder)
		assert.Len(t, extended, 23, "within 63.988 s")
	})
}

// onlyLost is an observer of losses alone, and no pointer.
type onlyLost struct{ lost func(redsync.Lost) }

func (o onlyLost) ObserveLost(e redsync.Lost) { o.lost(e) }

func TestWithObserverAddsToThoseBefore(t *testing.T) {
	play(t, func(f field) {
		var a, b, c, d recorder
		first := f.With(redsync.WithObserver(&a))
		both := first.With(redsync.WithObserver(&b))
		other := first.With(redsync.WithObserver(&c))
		for name, rs := range map[string]*redsync.Redsync{"none": f.Redsync, "first": first, "both": both, "other": other} {
			require.NoError(f, rs.NewMutex(name).Lock())
		}
		require.NoError(f, both.NewMutex("own", redsync.WithObserver(&d)).Lock())
		require.NoError(f, both.NewMutex("after").Lock())
		earlier, _ := of[redsync.Acquired](&a)
		assert.Len(t, earlier, 5)
		a.forget()
		m := first.NewMutex("votes", redsync.WithObserver(onlyLost{}), redsync.WithWatchdog())
		require.NoError(f, m.TryLock())
		votes, _ := of[redsync.Vote](&a)
		assert.Len(t, votes, 5, "although the last observer takes none")
		_, err := m.Unlock()
		require.NoError(f, err)
		for who, want := range map[*recorder][]string{
			&a: {"votes"}, &b: {"both", "own", "after"}, &c: {"other"}, &d: {"own"},
		} {
			var names []string
			events, _ := of[redsync.Acquired](who)
			for _, e := range events {
				names = append(names, e.Name)
			}
			assert.ElementsMatch(t, want, names)
		}
	})
}

func TestObserverOfOneKindIsEnough(t *testing.T) {
	play(t, func(f field) {
		var lost atomic.Int32
		m := f.NewMutex("lock", redsync.WithExpiry(time.Second), redsync.WithWatchdog(),
			redsync.WithObserver(onlyLost{func(redsync.Lost) { lost.Add(1) }}))
		require.NoError(f, m.Lock())
		f.freeze(0, 1, 2)
		time.Sleep(2 * time.Second)
		assert.Equal(t, int32(1), lost.Load())
	})
}

func TestObserversThatAreNoneAreAnError(t *testing.T) {
	var pointer *slog.Logger
	for want, option := range map[string]redsync.Option{
		"WithObserver(<nil>): it has no method of an observer":               redsync.WithObserver(nil),
		"WithObserver(int): it has no method of an observer":                 redsync.WithObserver(1),
		"WithObserver(redsync_test.recorder): it has no method of an observ": redsync.WithObserver(recorder{}), //nolint:govet // its methods are on the pointer
		"WithLogger(nil)": redsync.WithLogger(pointer),
	} {
		t.Run(want, func(t *testing.T) {
			play(t, func(f field) {
				refuses(f.T, f.NewMutex("lock", option), want)
				refuses(f.T, f.With(option).NewMutex("lock", redsync.WithObserver(&recorder{})), want)
				assert.Zero(t, f.traffic())
			})
		})
	}
}
