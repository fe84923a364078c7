package redsync_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/observe"
	"github.com/seed14bd9ef4/redsync/redsynctest"
)

// This file tests how hooks are set. It also tests that they are told of background events in order, and that this delays
// no lock.

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

// A hook that blocks gets everything in order, once it goes on. Close waits for it, but no longer than the node
// deadline, and no hook is called afterwards.
func TestHookThatBlocksDelaysNoLock(t *testing.T) {
	for name, closes := range map[string]bool{"goes on": false, "blocks during Close": true} {
		kitMetAs(t, name, func(k kit) {
			r, gate := &redsynctest.Recorder{}, make(chan struct{})
			blocks := *r.Hooks()
			blocks.Extended = func(ctx context.Context, e observe.Extended) {
				<-gate
				r.Hooks().Extended(ctx, e)
			}
			var log safeBuffer
			rs := k.With(withHooks(&blocks), logsTo(&log))
			dog := locked(k, rs.NewMutex("lock", withWatchdog))
			time.Sleep(3 * sec) // the hook is stuck in the first extension
			m := locked(k, rs.NewMutex("other", oneSecond))
			start := time.Now()
			<-m.Lost()
			took(k, start, 988*ms)
			time.Sleep(minute)
			alive(k, dog) // the watchdog extends the lock although the hook is stuck
			lost := func() []observe.Lost { synctest.Wait(); return redsynctest.Events[observe.Lost](r) }
			assert.Empty(k, lost()) // the stuck hooks have been told of no loss yet
			if closes {
				start = time.Now()
				shut(k, rs)
				took(k, start, patience)
				close(gate)
				assert.Empty(k, lost())
				assert.NotContains(k, log.String(), "lost")
				return
			}
			close(gate)
			assert.Len(k, lost(), 1)
			extended, _ := of[observe.Extended](r)
			assert.Len(k, extended, 23) // the watchdog has extended 23 times within 63.988 s
		})
	}
}

// Hooks that are set twice are called once, and before those that were set later. Hooks without a function change nothing.
func TestHooksThatAreSetTwiceAreCalledOnce(t *testing.T) {
	onKit(t, func(k kit) {
		told := ""
		tells := func(name string) redsync.Option {
			return withHooks(&observe.Hooks{Acquired: func(context.Context, observe.Acquired) { told += name }})
		}
		a, b, none := tells("a"), tells("b"), withHooks(&observe.Hooks{})
		locked(k, k.With(a, none, b, a).NewMutex("lock", none, b, tells("c"), a))
		assert.Equal(k, "abc", told)
	})
}

func TestNoHooksAndNoLoggerAreAnError(t *testing.T) {
	for want, option := range map[string]redsync.Option{
		"WithHooks(nil)":  withHooks(nil),
		"WithLogger(nil)": redsync.WithLogger(nil),
	} {
		playAs(t, want, func(f field) {
			refuses(f, f.NewMutex("lock", option), want)
			refuses(f, f.With(option).NewMutex("lock", recordsTo(&redsynctest.Recorder{})), want)
			f.hasSent(0)
		})
	}
}
