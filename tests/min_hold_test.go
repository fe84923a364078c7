package redsync_test

import (
	"context"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/testkit/clocktest"
	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
	"github.com/seed14bd9ef4/redsync/observe"
	"github.com/seed14bd9ef4/redsync/pool"
)

// This file tests how WithMinHold keeps others out after Unlock, and that keys that need not stay are released.
// ticks_test.go tests scheduled jobs. A key rests while it stays after Unlock because of WithMinHold.

// minHold is the minimal hold in most of these tests, and withDrift is how long keys stay because of it.
const (
	minHold   = 20 * sec
	withDrift = minHold + minHold/100 + 2*ms
)

var resting = withMinHold(minHold)

// restsOn checks the TTL of a key on these nodes.
func (f field) restsOn(key string, want time.Duration, nodes ...int) {
	f.Helper()
	synctest.Wait()
	wants, ttls := map[int]time.Duration{}, map[int]time.Duration{}
	for _, i := range nodes {
		wants[i], ttls[i] = want, f.nodes[i].TTL(key)
	}
	assert.Equal(f, wants, ttls, "the TTL of %s on each node", key)
}

// rests checks that the lock's key has the TTL want on all nodes.
func (f field) rests(want time.Duration) {
	f.Helper()
	f.restsOn("lock", want, allNodes...)
}

// taken checks that another process finds the lock taken.
func (f field) taken() {
	f.Helper()
	isTaken(f, f.another().NewMutex("lock").TryLock())
}

// Unlock leaves the keys for the rest of the minimal hold, on each kind of lock, whether that is longer or shorter than
// the expiry.
func TestMinHoldLetsKeysRestAfterUnlock(t *testing.T) {
	parallelComputing(t)
	testlength.NotShort(t)
	for _, kind := range lockKinds {
		for _, expiry := range []time.Duration{8 * sec, minute} {
			for _, fencing := range []bool{false, true} {
				if !kind.goesWith("WithMinHold") || fencing && kind.permit {
					continue
				}
				playMetAs(t, fmt.Sprint(kind.column, " ", expiry, " fencing ", fencing), func(f field) {
					options := opts{resting, withExpiry(expiry)}
					if fencing {
						options = append(options, withFencing)
					}
					m := locked(f, kind.lock(f.Redsync, options...))
					assert.Equal(f, expiry-expiry/100-2*ms, m.Remaining()) // the holder's validity is the same as without WithMinHold
					rest := func(want time.Duration) {
						for _, key := range kind.keys {
							f.restsOn(key, want, allNodes...)
						}
					}
					rest(max(expiry, withDrift))
					time.Sleep(3 * sec)
					f.unlock(m)
					isOver(f, m, redsync.ErrNotHeld)
					rest(withDrift - 3*sec)
					next, start := f.another(), time.Now()
					m = locked(f, kind.lock(next, patient(options...)...))
					assert.WithinRange(f, time.Now(), start.Add(withDrift-3*sec), start.Add(withDrift-3*sec+20*ms))
					assert.Equal(f, fencing, m.Fence() > 0)
					time.Sleep(withDrift)
				})
			}
		}
	}
}

// Several permits rest as one does. Permits that nodes have granted beyond those that were won are given back at once.
func TestMinHoldOfPermits(t *testing.T) {
	playMet(t, func(f field) {
		f.occupy(slotOf(0), 3, 4) // two nodes grant another slot
		f.unlock(f.locks(permitsOf(3, 2, resting)...))
		synctest.Wait()
		rest := 0
		for _, n := range f.nodes {
			for slot := range 3 {
				if v, err := n.Get(slotOf(slot)); err == nil && v != "another's" {
					rest++
					assert.Equal(f, withDrift, n.TTL(slotOf(slot)))
				}
			}
		}
		assert.LessOrEqual(f, rest, 10)
		assert.GreaterOrEqual(f, rest, 6)
		isTaken(f, f.another().NewMutex("lock", permitsOf(3, 2)...).TryLock())
		time.Sleep(withDrift)
		for _, n := range f.nodes[3:] {
			n.Del(slotOf(0))
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
		{0, sec, 8 * sec},
		{30 * sec, minHold, 38 * sec},
		{5 * sec, minHold, withDrift},
	} {
		play(t, func(f field) {
			f.locks(withLockDelay(c.delay), withMinHold(c.d))
			f.rests(c.want)
		})
	}
}

// An extension makes the keys last for the expiry, but never shortens them. So a crash late in a hold keeps others out
// for an expiry, and not for another minimal hold. A key that an extension sets again lasts as long as the others.
func TestMinHoldAndExtensions(t *testing.T) {
	play(t, func(f field) {
		m := f.held(resting, withExpiry(8*sec), withSetNXOnExtend)
		time.Sleep(7*sec - ms)
		f.lose(3)
		f.extends(m)
		f.rests(withDrift - 7*sec)
		for range 2 {
			time.Sleep(7 * sec)
			f.extends(m)
		}
		f.rests(8 * sec)
		f.unlocks(m)
	})
}

// A waiter knows from its last attempt how long a key lasts. If Unlock shortens the key, the waiter is told, and has
// the lock as soon as the key has run out. The same is true if it waits in the process that unlocks.
func TestMinHoldIsOverForWaitersInTime(t *testing.T) {
	testlength.FromGate(t)
	for _, expiry := range []time.Duration{sec, minute} {
		for _, same := range []bool{false, true} {
			t.Run(fmt.Sprint(expiry, " in the same process ", same), func(t *testing.T) {
				inEachMode(t, playMet, func(f field, mode opts) {
					m := f.held(append(mode, resting, withExpiry(expiry), withWatchdog)...)
					end := time.Now().Add(withDrift - ms)
					rs := f.Redsync
					if !same {
						rs = f.another()
					}
					c := f.waits(rs, mode...)
					time.Sleep(ms)
					behind := f.waits(f.another(), mode...)
					time.Sleep(3 * sec)
					f.unlock(m)
					f.within(c, minute)
					assert.WithinRange(f, c.at, end, end.Add(20*ms))
					f.atOnce(c, behind)
					f.unlocks(behind)
					f.nobodyWaits()
				})
			})
		}
	}
}

// A hold whose time is up, or that was lost, keeps its keys. Neither a late Unlock nor the next Lock of its Mutex
// releases them before the minimal hold is over.
func TestMinHoldOfAHoldThatIsOver(t *testing.T) {
	for name, end := range map[string]func(f field, m *redsync.Mutex){
		"nothing": func(field, *redsync.Mutex) {},
		"unlock": func(f field, m *redsync.Mutex) {
			failsWith(f, m.Unlock, redsync.ErrLockAlreadyExpired)
		},
		"next lock": func(f field, m *redsync.Mutex) { erred(f, m.TryLock()) },
		"close":     func(f field, _ *redsync.Mutex) { f.closesAtOnce() },
	} {
		playMetAs(t, name, func(f field) {
			m := f.locks(resting)
			<-m.Lost()
			end(f, m)
			f.rests(withDrift - validity)
			f.taken()
		})
	}
	playAs(t, "lost on a quorum", func(f field) {
		m := f.held(resting)
		f.lose(majority...)
		failsWith(f, m.Extend, redsync.ErrLockLost)
		noError(f, m.TryLock()) // TryLock succeeds, because the nodes have lost the keys
		f.restsOn("lock", withDrift, 0, 1, 2)
		f.restsOn("lock", withDrift-ms, 3, 4)
	})
}

// An attempt that fails leaves no keys. An attempt that won leaves none either, if its caller did not learn that it
// won.
func TestMinHoldOfAttemptsThatFail(t *testing.T) {
	playAs(t, "taken", func(f field) {
		f.occupy("lock")
		erred(f, f.tries(resting))
		synctest.Wait()
		f.keysOn(3)
	})
	playMetAs(t, "too late", func(f field) {
		f.slow(validity / 2)
		erred(f, f.tries(resting, withExpiry(5*sec), withNodeTimeout(sec)))
		time.Sleep(validity)
		f.keysOn(0)
	})
	playMetAs(t, "observer panics", func(f field) {
		assert.Panics(f, func() { _ = f.lockError(resting, panicsAt("Attempt")) })
		f.noKeys()
	})
	playMetAs(t, "closed meanwhile", func(f field) {
		errorIs(f, f.tries(resting, atAttempts(func(observe.Attempt) {
			go func() { _ = f.Close(context.Background()) }()
			synctest.Wait()
		})), redsync.ErrClosed)
		f.noKeys()
	})
}

// A node that is frozen at Unlock shortens its key when it thaws, and never prolongs it. A node whose connection has
// broken is told later how much of the minimal hold is left.
func TestMinHoldWithNodesThatFailAtUnlock(t *testing.T) {
	playAs(t, "frozen", func(f field) {
		m := f.held(resting, lasting)
		f.freeze(3, 4)
		f.unlock(m)
		f.restsOn("lock", withDrift-ms, 0, 1, 2)
		time.Sleep(2 * sec)
		f.thaw(3, 4)
		time.Sleep(sec)
		for _, n := range f.nodes[3:] {
			assert.InDelta(f, withDrift-2*sec, n.TTL("lock"), float64(sec+ms))
		}
	})
	for name, c := range map[string]struct {
		times int
		fault embedded.Fault
		hold  time.Duration
	}{
		"lost reply":                   {6, embedded.Fault{LoseReply: true}, minHold},
		"lost command":                 {6, embedded.Fault{LoseCommand: true}, minHold},
		"does not have the script":     {1, embedded.Fault{Delay: 2 * sec, Err: "NOSCRIPT No matching script"}, minHold},
		"longer than the minimal hold": {6, embedded.Fault{LoseCommand: true}, sec},
	} {
		playAs(t, name, func(f field) {
			m := f.held(withMinHold(c.hold), lasting)
			f.nodes[4].On("evalsha", c.times, c.fault)
			f.unlock(m)
			time.Sleep(5 * sec)
			if c.hold == sec {
				f.noKeys()
				return
			}
			f.rests(withDrift - 5*sec - ms)
			f.closesAtOnce()
		})
	}
}

// An extension that arrives after the release finds the resting key and prolongs it. The release is repeated until the
// minimal hold is over, so the key does not outlast it.
func TestMinHoldUndoesLateExtensions(t *testing.T) {
	play(t, func(f field) {
		m := f.held(resting, withExpiry(8*sec))
		time.Sleep(7 * sec)
		f.nodes[4].On("evalsha", 1, embedded.Fault{LoseReply: true, Again: 11 * sec})
		f.extends(m)
		f.unlock(m)
		time.Sleep(11*sec + ms)
		f.restsOn("lock", 8*sec-ms, 4)
		time.Sleep(withDrift - 18*sec)
		f.noKeys()
	})
}

// The rest of the minimal hold is measured by the monotonic clock. With the wall clock, a step forward would end it
// early.
func TestMinHoldAndAWallClockSetForward(t *testing.T) {
	alone(t)
	play(t, func(f field) {
		wall := clocktest.StepWall(f.T)
		m := f.held(resting, lasting)
		wall.Step(30 * sec)
		f.unlock(m)
		f.rests(withDrift - ms)
		wall.Step(-hour)
		f.taken()
	})
}

// The release raises the registers of fencing tokens although the keys stay.
func TestMinHoldRaisesTheRegisters(t *testing.T) {
	play(t, func(f field) {
		m := f.held(resting, withFencing)
		f.drop(fenceKey)
		token := m.Fence()
		f.unlock(m)
		f.areAt(token, token, token, token, token)
	})
}

// A user who may not touch the queue shortens the keys all the same.
func TestMinHoldWithoutAQueue(t *testing.T) {
	play(t, func(f field) {
		m := f.held(resting, lasting)
		onEach(f.nodes, "evalsha", 1, embedded.Fault{Err: "NOPERM No permissions to access a key"})
		sent := f.scripts()
		f.unlock(m)
		f.rests(withDrift - ms)
		assert.Equal(f, sent+10, f.scripts()) // each node refuses one release, and is sent another that names no queue
	})
}

// The time of the restart guard must cover the TTL that the minimal hold needs.
func TestMinHoldUnderTheRestartGuard(t *testing.T) {
	play(t, func(f field) {
		locks := func(guard time.Duration) *redsync.Mutex {
			rs := f.veteran(pool.WithRestartGuard(guard))
			f.closes(rs)
			return rs.NewMutex("lock", resting)
		}
		err := locks(withDrift - ms).TryLock()
		says(f, err, "WithMinHold(20.202s)", "WithRestartGuard")
		f.unlock(obtained(f, locks(withDrift)))
		f.rests(withDrift)
	})
}

// Detach and Downgrade fail, and the hold goes on. Unlock does not hand the lock over directly.
func TestMinHoldIsNeitherDetachedNorDowngradedNorHandedOver(t *testing.T) {
	playMet(t, func(f field) {
		m := f.held(withMinHold(sec))
		_, err := m.Detach(f.Context())
		says(f, err, "WithMinHold")
		says(f, m.Downgrade(f.Context()), "WithMinHold")
		alive(f, m)
		c := f.inLine(withMinHold(sec))
		f.unlock(m)
		time.Sleep(900 * ms)
		f.stillWait(c) // Unlock does not hand the lock to the waiter directly
		f.within(c, 200*ms)
	})
}

func TestMinHoldOutOfItsRange(t *testing.T) {
	onKit(t, func(k kit) {
		for _, d := range []time.Duration{0, -1, math.MinInt64} {
			refuses(k, k.NewMutex("lock", withMinHold(d)), fmt.Sprintf("WithMinHold(%v) is out of range: more than 0", d))
		}
		refuses(k, k.NewMutex("lock", withMinHold(math.MaxInt64)), "with its drift at most 292 years")
		k.unlocks(k.locks(withMinHold(1)))
	})
}
