package redsync_test

import (
	"context"
	"log/slog"
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

// unconfirmed is the event of one release of "lock" on the last node.
var unconfirmed = observe.ReleaseUnconfirmed{Name: "lock", Mode: observe.Plain, Node: 4, Address: "127.0.0.1:7005", Pending: 1}

func TestObserveReleaseUnconfirmedUntilTheKeysHaveRunOut(t *testing.T) {
	observingKit(t, func(k kit, r *redsynctest.Recorder) {
		m := k.held()
		k.down(4)
		k.confirms(m.Unlock())
		time.Sleep(100 * ms)
		got, errs := of[observe.ReleaseUnconfirmed](r)
		require.Len(k, got, 2) // the release was sent at once, and again after 50 ms
		for i, u := range got {
			want := unconfirmed
			want.Pending = u.Pending
			assert.Equal(t, want, u)
			assert.Error(t, errs[i])
		}
		assert.Equal(t, 1, got[1].Pending)
		time.Sleep(20 * sec)
		got, _ = of[observe.ReleaseUnconfirmed](r)
		assert.InDelta(t, 12, len(got), 2)
		for _, u := range got {
			assert.False(t, u.GivenUp)
		}
	})
}

// Close repeats releases for one node deadline. Then one event tells for the node how many releases were given up.
func TestObserveReleaseGivenUpByClose(t *testing.T) {
	for name, fails := range map[string]func(k kit, m *redsync.Mutex){
		"it fails before Close": func(k kit, m *redsync.Mutex) { k.down(4); k.unlock(m); synctest.Wait() },
		"it fails during Close": func(k kit, _ *redsync.Mutex) {
			k.freeze(4)
			time.AfterFunc(ms, func() { k.down(4) })
		},
		"Close releases it": func(k kit, _ *redsync.Mutex) { k.down(4) },
	} {
		t.Run(name, func(t *testing.T) {
			observingKit(t, func(k kit, r *redsynctest.Recorder) {
				fails(k, k.held())
				shut(k, k.Redsync)
				got, errs := of[observe.ReleaseUnconfirmed](r)
				require.NotEmpty(k, got)
				for i, u := range got {
					erred(k, errs[i])
					want := unconfirmed
					if i == len(got)-1 {
						assert.InDelta(t, 7*sec, u.Within, float64(sec)) // the keys expire within 8 s
						want.Name, want.Mode, want.GivenUp, want.Within = "", "", true, u.Within
					}
					assert.Equal(t, want, u)
				}
				forget(r)
				time.Sleep(minute)
				assert.Empty(t, redsynctest.Events[observe.ReleaseUnconfirmed](r)) // nothing is told after Close
			})
		})
	}
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

// An observer that blocks is told of everything in order, once it goes on. Close waits for it, but no longer than the node
// deadline, and nothing is told afterwards.
func TestObserverThatBlocksDelaysNoLock(t *testing.T) {
	for name, closes := range map[string]bool{"goes on": false, "blocks during Close": true} {
		kitMetAs(t, name, func(k kit) {
			b := &blocker{gate: make(chan struct{})}
			var log safeBuffer
			rs := k.With(withObserver(b), logsTo(&log))
			dog := locked(k, rs.NewMutex("lock", withWatchdog))
			time.Sleep(3 * sec) // the observer is stuck in the first extension
			m := locked(k, rs.NewMutex("other", oneSecond))
			start := time.Now()
			<-m.Lost()
			took(k, start, 988*ms)
			time.Sleep(minute)
			alive(k, dog) // the watchdog extends the lock although the observer is stuck
			lost := func() []observe.Lost { synctest.Wait(); return redsynctest.Events[observe.Lost](&b.Recorder) }
			assert.Empty(k, lost()) // the stuck observer has been told of no loss yet
			if closes {
				start = time.Now()
				shut(k, rs)
				took(k, start, patience)
				close(b.gate)
				assert.Empty(k, lost())
				assert.NotContains(k, log.String(), "lost")
				return
			}
			close(b.gate)
			assert.Len(k, lost(), 1)
			extended, _ := of[observe.Extended](&b.Recorder)
			assert.Len(k, extended, 23) // the watchdog has extended 23 times within 63.988 s
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
		counts := withObserver(onlyLost{func(observe.Lost) { lost++ }})
		rs := k.With(withObserver(r), counts, withObserver(r))
		locked(k, rs.NewMutex("lock", withObserver(r), counts))
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
		"WithObserver(<nil>): it has no method of an observer":               withObserver(nil),
		"WithObserver(int): it has no method of an observer":                 withObserver(1),
		"WithObserver(redsynctest.Recorder): it has no method of an observe": withObserver(redsynctest.Recorder{}), //nolint:govet // its methods are on the pointer
		"WithLogger(nil)": redsync.WithLogger(pointer),
	} {
		playAs(t, want, func(f field) {
			refuses(f, f.NewMutex("lock", option), want)
			refuses(f, f.With(option).NewMutex("lock", withObserver(&redsynctest.Recorder{})), want)
			f.hasSent(0)
		})
	}
}
