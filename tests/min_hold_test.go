package redsync_test

import (
	"context"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/clock/clocktest"
	"github.com/seed14bd9ef4/redsync/internal/embedded"
	"github.com/seed14bd9ef4/redsync/observe"
	"github.com/seed14bd9ef4/redsync/pool"
)

// This file tests how WithMinHold keeps others out after Unlock, and that keys that need not stay are released.
// ticks_test.go tests scheduled jobs. A key rests while it stays after Unlock because of WithMinHold.

// minHold is the minimal hold in most of these tests, and withDrift is how long keys stay because of it.
const (
	minHold   = 20 * time.Second
	withDrift = minHold + minHold/100 + 2*ms
)

// restsOn checks the TTL of a key on these nodes.
func (f field) restsOn(key string, want time.Duration, nodes ...int) {
	f.Helper()
	synctest.Wait()
	for _, i := range nodes {
		assert.Equal(f, want, f.nodes[i].TTL(key), "the TTL of %s on node %d", key, i)
	}
}

// rests checks that the lock's key has the TTL want on all nodes.
func (f field) rests(want time.Duration) {
	f.Helper()
	f.restsOn("lock", want, allNodes...)
}

// taken checks that another process finds the lock taken.
func (f field) taken() {
	f.Helper()
	rs := f.another()
	isTaken(f, rs.NewMutex("lock").TryLock())
}

// Unlock leaves the keys for the rest of the minimal hold, on each kind of lock, whether that is longer or shorter than
// the expiry.
func TestMinHoldLetsKeysRestAfterUnlock(t *testing.T) {
	for k, kind := range lockKinds {
		if !kind.goesWith("WithMinHold") {
			continue
		}
		for _, expiry := range []time.Duration{8 * time.Second, time.Minute} {
			for _, fencing := range []bool{false, true} {
				if fencing && kind.permit {
					continue
				}
				playMetAs(t, fmt.Sprint(lockKinds[k].column, " ", expiry, " fencing ", fencing), func(f field) {
					options := opts{redsync.WithMinHold(minHold), redsync.WithExpiry(expiry)}
					if fencing {
						options = append(options, withFencing)
					}
					m := locked(f, kind.lock(f.Redsync, options...))
					assert.Equal(f, expiry-expiry/100-2*ms, m.Remaining(), "the holder's validity is the same as without WithMinHold")
					for _, key := range kind.keys {
						f.restsOn(key, max(expiry, withDrift), allNodes...)
					}
					time.Sleep(3 * time.Second)
					f.unlock(m)
					isOver(f, m, redsync.ErrNotHeld)
					for _, key := range kind.keys {
						f.restsOn(key, withDrift-3*time.Second, allNodes...)
					}
					start := time.Now()
					next := locked(f, kind.lock(f.another(), patient(options...)...))
					took := time.Since(start)
					assert.GreaterOrEqual(f, took, withDrift-3*time.Second)
					assert.LessOrEqual(f, took, withDrift-3*time.Second+20*ms)
					if fencing {
						assert.Positive(f, next.Fence())
					}
					time.Sleep(withDrift)
				})
			}
		}
	}
}

// Several permits rest as one does. Permits that nodes have granted beyond those that were won are given back at once.
func TestMinHoldOfPermits(t *testing.T) {
	playMet(t, func(f field) {
		for _, n := range f.nodes[3:] { // two nodes have the first slot taken, and grant another one
			require.NoError(f, n.Set("{lock}:slot:0", "another's"))
		}
		m := locked(f, f.NewMutex("lock", redsync.WithPermits(3), redsync.WithWeight(2), withFair, redsync.WithMinHold(minHold)))
		f.unlock(m)
		synctest.Wait()
		resting := 0
		for _, n := range f.nodes {
			for slot := range 3 {
				key := fmt.Sprintf("{lock}:slot:%d", slot)
				if v, err := n.Get(key); err == nil && v != "another's" {
					resting++
					assert.Equal(f, withDrift, n.TTL(key))
				}
			}
		}
		assert.LessOrEqual(f, resting, 10)
		assert.GreaterOrEqual(f, resting, 6)
		third := f.another().NewMutex("lock", redsync.WithPermits(3), redsync.WithWeight(2), withFair)
		isTaken(f, third.TryLock())
		time.Sleep(withDrift)
		for _, n := range f.nodes[3:] {
			n.Del("{lock}:slot:0")
		}
		f.nothingOfPermits()
	})
}

// The keys of a holder that crashes stay for the minimal hold, the expiry or the lock delay, whichever is longest.
func TestMinHoldAfterACrash(t *testing.T) {
	for _, c := range []struct {
		delay, d, want time.Duration
	}{
		{0, minHold, withDrift},
		{0, time.Second, 8 * time.Second},
		{30 * time.Second, minHold, 38 * time.Second},
		{5 * time.Second, minHold, withDrift},
	} {
		play(t, func(f field) {
			locked(f, f.NewMutex("lock", redsync.WithLockDelay(c.delay), redsync.WithMinHold(c.d)))
			f.rests(c.want)
		})
	}
}

// An extension makes the keys last for the expiry, but never shortens them. So a crash late in a hold keeps others out
// for an expiry, and not for another minimal hold. A key that an extension sets again lasts as long as the others.
func TestMinHoldAndExtensions(t *testing.T) {
	play(t, func(f field) {
		m := f.held(redsync.WithMinHold(minHold), redsync.WithExpiry(8*time.Second), withSetNXOnExtend)
		time.Sleep(7*time.Second - ms)
		f.lose(3)
		f.confirms(m.Extend())
		f.rests(withDrift - 7*time.Second)
		for range 2 {
			time.Sleep(7 * time.Second)
			f.confirms(m.Extend())
		}
		f.rests(8 * time.Second)
		f.unlocks(m)
	})
}

// A waiter knows from its last attempt how long a key lasts. If Unlock shortens the key, the waiter is told, and has
// the lock as soon as the key has run out. The same is true if it waits in the process that unlocks.
func TestMinHoldIsOverForWaitersInTime(t *testing.T) {
	for _, expiry := range []time.Duration{time.Second, time.Minute} {
		for _, same := range []bool{false, true} {
			t.Run(fmt.Sprint(expiry, " in the same process ", same), func(t *testing.T) {
				inEachMode(t, playMet, func(f field, mode opts) {
					m := f.held(append(mode, redsync.WithMinHold(minHold), redsync.WithExpiry(expiry), withWatchdog)...)
					start := time.Now().Add(-ms)
					rs := f.Redsync
					if !same {
						rs = f.another()
					}
					c := f.calls(rs, patient(mode...)...)
					time.Sleep(ms)
					behind := f.calls(f.another(), patient(mode...)...)
					time.Sleep(3 * time.Second)
					f.unlock(m)
					f.within(c, time.Minute)
					assert.GreaterOrEqual(f, c.at.Sub(start), withDrift)
					assert.LessOrEqual(f, c.at.Sub(start), withDrift+20*ms)
					f.atOnce(c.Mutex, behind)
					f.unlocks(behind.Mutex)
					f.nobodyWaits()
				})
			})
		}
	}
}

// The next Lock of the same Mutex waits as any other does.
func TestMinHoldOfTheSameMutex(t *testing.T) {
	onKit(t, func(k kit) {
		m := k.held(redsync.WithMinHold(minHold))
		start := time.Now().Add(-ms)
		k.unlock(m)
		isTaken(k, m.TryLock())
		require.ErrorIs(k, k.notRun(k.TryDo(k.Context(), "lock", nothing, redsync.WithMinHold(minHold))), errOthers)
		time.Sleep(time.Until(start.Add(withDrift - ms)))
		isTaken(k, m.TryLock())
		time.Sleep(ms)
		obtained(k, m)
	})
}

// A hold whose time is up, or that was lost, keeps its keys. Neither a late Unlock nor the next Lock of its Mutex
// releases them before the minimal hold is over.
func TestMinHoldOfAHoldThatIsOver(t *testing.T) {
	for name, end := range map[string]func(f field, m *redsync.Mutex){
		"nothing": func(field, *redsync.Mutex) {},
		"unlock": func(f field, m *redsync.Mutex) {
			failsWith(f, m.Unlock, redsync.ErrLockAlreadyExpired)
		},
		"next lock": func(f field, m *redsync.Mutex) { require.Error(f, m.TryLock()) },
		"close":     func(f field, _ *redsync.Mutex) { f.closesAtOnce() },
	} {
		playMetAs(t, name, func(f field) {
			m := locked(f, f.NewMutex("lock", redsync.WithMinHold(minHold)))
			<-m.Lost()
			end(f, m)
			f.rests(withDrift - validity)
			f.taken()
		})
	}
	playAs(t, "lost on a quorum", func(f field) {
		m := f.held(redsync.WithMinHold(minHold))
		f.lose(majority...)
		failsWith(f, m.Extend, redsync.ErrLockLost)
		require.NoError(f, m.TryLock(), "TryLock succeeds, because the nodes have lost the keys")
		f.restsOn("lock", withDrift, 0, 1, 2)
		f.restsOn("lock", withDrift-ms, 3, 4)
	})
}

// An attempt that fails leaves no keys. An attempt that won leaves none either, if its caller did not learn that it
// won.
func TestMinHoldOfAttemptsThatFail(t *testing.T) {
	lock := redsync.WithMinHold(minHold)
	playAs(t, "taken", func(f field) {
		for _, n := range f.nodes[:3] {
			require.NoError(f, n.Set("lock", "another's"))
		}
		require.Error(f, f.NewMutex("lock", lock).TryLock())
		synctest.Wait()
		f.keysOn(3)
	})
	playMetAs(t, "too late", func(f field) {
		f.slow(validity / 2)
		m := f.NewMutex("lock", lock, redsync.WithExpiry(5*time.Second), redsync.WithNodeTimeout(time.Second))
		require.Error(f, m.TryLock())
		time.Sleep(validity)
		f.keysOn(0)
	})
	playMetAs(t, "observer panics", func(f field) {
		assert.Panics(f, func() { _ = f.NewMutex("lock", lock, redsync.WithObserver(panics{on: "attempt"})).Lock() })
		f.noKeys()
	})
	playMetAs(t, "closed meanwhile", func(f field) {
		close := redsync.WithObserver(closer{f.Redsync})
		require.ErrorIs(f, f.NewMutex("lock", lock, close).TryLock(), redsync.ErrClosed)
		f.noKeys()
	})
}

// A closer closes a Redsync when an attempt has ended.
type closer struct{ *redsync.Redsync }

func (c closer) ObserveAttempt(context.Context, observe.Attempt) {
	go func() { _ = c.Close(context.Background()) }()
	synctest.Wait()
}

// A node that is frozen at Unlock shortens its key when it thaws, and never prolongs it. A node whose connection has
// broken is told later how much of the minimal hold is left.
func TestMinHoldWithNodesThatFailAtUnlock(t *testing.T) {
	playAs(t, "frozen", func(f field) {
		m := f.held(redsync.WithMinHold(minHold), redsync.WithExpiry(time.Minute))
		f.freeze(3, 4)
		f.unlock(m)
		f.restsOn("lock", withDrift-ms, 0, 1, 2)
		time.Sleep(2 * time.Second)
		f.thaw(3, 4)
		time.Sleep(time.Second)
		for _, i := range []int{3, 4} {
			assert.LessOrEqual(f, f.nodes[i].TTL("lock"), withDrift-time.Second)
			assert.GreaterOrEqual(f, f.nodes[i].TTL("lock"), withDrift-3*time.Second-ms)
		}
	})
	for name, fault := range map[string]embedded.Fault{
		"lost reply": {LoseReply: true}, "lost command": {LoseCommand: true},
		"does not have the script": {Delay: 2 * time.Second, Err: "NOSCRIPT No matching script"},
	} {
		playAs(t, name, func(f field) {
			m := f.held(redsync.WithMinHold(minHold), redsync.WithExpiry(time.Minute))
			times := 6
			if fault.Err != "" {
				times = 1
			}
			f.nodes[4].On("evalsha", times, fault)
			f.unlock(m)
			time.Sleep(5 * time.Second)
			f.rests(withDrift - 5*time.Second - ms)
			f.closesAtOnce()
		})
	}
	playAs(t, "longer than the minimal hold", func(f field) {
		m := f.held(redsync.WithMinHold(time.Second), redsync.WithExpiry(time.Minute))
		f.nodes[4].On("evalsha", 6, embedded.Fault{LoseCommand: true})
		f.unlock(m)
		time.Sleep(5 * time.Second)
		f.noKeys()
	})
}

// An extension that arrives after the release finds the resting key and prolongs it. The release is repeated until the
// minimal hold is over, so the key does not outlast it.
func TestMinHoldUndoesLateExtensions(t *testing.T) {
	play(t, func(f field) {
		m := f.held(redsync.WithMinHold(minHold), redsync.WithExpiry(8*time.Second))
		time.Sleep(7 * time.Second)
		f.nodes[4].On("evalsha", 1, embedded.Fault{LoseReply: true, Again: 11 * time.Second})
		f.confirms(m.Extend())
		f.unlock(m)
		time.Sleep(11*time.Second + ms)
		f.restsOn("lock", 8*time.Second-ms, 4)
		time.Sleep(withDrift - 18*time.Second)
		f.noKeys()
	})
}

// The rest of the minimal hold is measured by the monotonic clock. With the wall clock, a step forward would end it
// early.
func TestMinHoldAndAWallClockSetForward(t *testing.T) {
	play(t, func(f field) {
		wall := clocktest.StepWall(f.T)
		m := f.held(redsync.WithMinHold(minHold), redsync.WithExpiry(time.Minute))
		wall.Step(30 * time.Second)
		f.unlock(m)
		f.rests(withDrift - ms)
		wall.Step(-time.Hour)
		f.taken()
	})
}

// The release raises the registers of fencing tokens although the keys stay.
func TestMinHoldRaisesTheRegisters(t *testing.T) {
	play(t, func(f field) {
		m := f.held(redsync.WithMinHold(minHold), withFencing)
		for _, n := range f.nodes {
			n.Del(fenceKey)
		}
		token := m.Fence()
		f.unlock(m)
		f.areAt(token, token, token, token, token)
	})
}

// A user who may not touch the queue shortens the keys all the same.
func TestMinHoldWithoutAQueue(t *testing.T) {
	play(t, func(f field) {
		m := f.held(redsync.WithMinHold(minHold), redsync.WithExpiry(time.Minute))
		for _, n := range f.nodes {
			n.On("evalsha", 1, embedded.Fault{Err: "NOPERM No permissions to access a key"})
		}
		sent := f.scripts()
		f.unlock(m)
		f.rests(withDrift - ms)
		assert.Equal(f, sent+10, f.scripts(), "each node refuses one release, and is sent another that names no queue")
	})
}

// The time of the restart guard must cover the TTL that the minimal hold needs.
func TestMinHoldUnderTheRestartGuard(t *testing.T) {
	play(t, func(f field) {
		rs := f.veteran(pool.WithRestartGuard(withDrift - ms))
		f.closes(rs)
		err := rs.NewMutex("lock", redsync.WithMinHold(minHold)).TryLock()
		require.ErrorContains(f, err, "WithMinHold(20.202s)")
		require.ErrorContains(f, err, "WithRestartGuard")
		fits := f.veteran(pool.WithRestartGuard(withDrift))
		f.closes(fits)
		m := obtained(f, fits.NewMutex("lock", redsync.WithMinHold(minHold)))
		f.unlock(m)
		f.rests(withDrift)
	})
}

// Detach and Downgrade fail, and the hold goes on. Unlock does not hand the lock over directly.
func TestMinHoldIsNeitherDetachedNorDowngradedNorHandedOver(t *testing.T) {
	playMet(t, func(f field) {
		m := f.held(redsync.WithMinHold(time.Second))
		_, err := m.Detach(f.Context())
		require.ErrorContains(f, err, "WithMinHold")
		require.ErrorContains(f, m.Downgrade(f.Context()), "WithMinHold")
		alive(f, m)
		c := f.calls(f.Redsync, patient(redsync.WithMinHold(time.Second))...)
		f.unlock(m)
		time.Sleep(900 * ms)
		assert.False(f, c.isDone(), "Unlock does not hand the lock to the waiter directly")
		f.within(c, 200*ms)
	})
}

func TestMinHoldOutOfItsRange(t *testing.T) {
	onKit(t, func(k kit) {
		for _, d := range []time.Duration{0, -1, math.MinInt64} {
			refuses(k.T, k.NewMutex("lock", redsync.WithMinHold(d)), fmt.Sprintf("WithMinHold(%v) is out of range: more than 0", d))
		}
		refuses(k.T, k.NewMutex("lock", redsync.WithMinHold(math.MaxInt64)), "with its drift at most 292 years")
		m := locked(k, k.NewMutex("lock", redsync.WithMinHold(1)))
		k.unlocks(m)
	})
}
