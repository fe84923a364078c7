package redsync_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
	"github.com/seed14bd9ef4/redsync/pool"
)

// This file shows when a restarted or a new node counts under pool.WithRestartGuard. Times are exact: a bubble begins
// on a whole second, so a node that starts on a whole second reports its exact uptime.

func TestRestartGuardFreshDeploymentWaitsForItsQuarantine(t *testing.T) {
	for want, option := range map[time.Duration]redsync.Option{ // the longest expiry + drift + 1 s
		9002 * ms:  redsync.WithDriftFactor(0),
		13002 * ms: redsync.WithDriftFactor(0.5),
		// The expiry given to the guard counts, which is the longest of all locks, and not the expiry of this lock.
		9082 * ms: oneSecond,
	} {
		onKit(t, func(k kit) {
			m := k.process(guards[true]...).NewMutex("lock", option)
			err := m.TryLock()
			errorIs(t, err, redsync.ErrNoQuorum)
			require.ErrorAs(t, err, new(*redsync.RedisError))
			for i := range 5 {
				says(t, err, named(i)+fmt.Sprintf("its server started 0s ago, and the restart guard (8s + %v) ignores it for another %v", want-guard, want))
			}
			time.Sleep(want - time.Nanosecond)
			errorIs(t, m.TryLock(), redsync.ErrNoQuorum)
			time.Sleep(time.Nanosecond)
			obtained(t, m)
		})
	}
}

// The option stays in the code for good. Three of five nodes restart empty while a lock is held, and a process starts.
func TestWithNoLocksBeforeInAProcessThatStartsAfterARestart(t *testing.T) {
	parallelComputing(t)
	testlength.NotShort(t)
	for name, declared := range map[string]func() time.Time{
		"right": func() time.Time { return locksBegin },
		"zero":  func() time.Time { return time.Time{} },
		"wrong": func() time.Time { return time.Now().Add(30 * sec) }, // it moves with each start
	} {
		t.Run(name, func(t *testing.T) {
			for _, first := range []time.Duration{2 * sec, minute} {
				onKit(t, func(k kit) {
					time.Sleep(first)
					starts := func() *redsync.Mutex {
						return locked(t, k.process(pool.WithRestartGuard(guard), pool.WithNoLocksBefore(declared())).NewMutex("lock",
							forever, withRetryDelay(50*ms)))
					}
					m := starts()
					k.reboot(true, majority...)
					starts()
					assert.Equal(t, name == "wrong", m.Remaining() > 0) // the lock has another holder
				})
			}
		})
	}
}

// Servers that do not say which they are, or all say the same, still tell how long they have been running.
func TestRestartGuardNeedsNoRunID(t *testing.T) {
	for line, options := range map[string][]pool.Option{
		"": nil, "run_id:" + strings.Repeat("0", 40) + "\r\n": nil, "run_id:constant\r\n": {pool.WithoutIdentity()},
	} {
		play(t, func(f field) {
			for _, n := range f.nodes {
				n.TellRunID(line)
			}
			starts := func() *redsync.Redsync { return f.process(append(options, pool.WithRestartGuard(guard))...) }
			require.ErrorContains(f, starts().NewMutex("lock").TryLock(), "ignores it for another 9.082s", line)
			time.Sleep(time.Hour)
			obtained(f, starts().NewMutex("lock"))
			f.reboot(true, majority...)
			require.ErrorContains(f, starts().NewMutex("lock").TryLock(), "its server started 0s ago", line)
			if options != nil {
				err := f.process().NewMutex("lock").TryLock()
				require.ErrorIs(f, err, redsync.ErrDuplicateNode)
				require.ErrorContains(f, err, "are one server. They have one run_id: if they are two servers, use pool.WithoutIdentity")
			}
		})
	}
}

// Restarts while the lock is held.

// The worst case: the nodes start at the very end of a second of their clocks. A millisecond later they already report
// an uptime of one second.
func TestRestartGuardKeepsOthersOutUntilTheHolderIsOver(t *testing.T) {
	parallelComputing(t)
	testlength.NotShort(t)
	withAndWithout(t, func(f field, guarded bool) {
		time.Sleep(minute - 2*ms) // all nodes count
		m := obtained(t, f.process(guards[guarded]...).NewMutex("lock"))
		time.Sleep(ms)
		f.reboot(true, majority...)
		time.Sleep(ms)

		start := time.Now()
		locked(t, f.process(guards[guarded]...).NewMutex("lock", forever, withRetryDelay(18*ms))) // 449 times 18 ms is 8.082 s
		if !guarded {
			took(t, start, 0)
			assert.Positive(t, m.Remaining()) // without the guard, another process gets the lock during the hold
			return
		}
		took(t, start, quarantine-sec)
		assert.Zero(t, m.Remaining())
	})
}

// A restarted node counts neither for a new lock of any kind nor for the extension of one.
func TestRestartGuardIsForEveryKindOfLock(t *testing.T) {
	parallelComputing(t)
	testlength.NotShort(t)
	for _, kind := range lockKinds {
		t.Run(kind.column, func(t *testing.T) {
			withAndWithout(t, func(f field, guarded bool) {
				a, b := f.veteran(guards[guarded]...), f.veteran(guards[guarded]...)
				holder := obtained(t, kind.rival(a))
				time.Sleep(ms)
				f.reboot(false, majority...)
				wake(a)
				ok, err := holder.Extend()
				assert.Equal(t, !guarded, ok)
				f.reboot(true, majority...)
				wake(b)
				locked := kind.lock(b).TryLock()
				assert.Positive(t, holder.Remaining())
				if guarded {
					says(t, err, "its server started")
					says(t, locked, "its server started")
					return
				}
				noError(t, locked) // without the guard, two hold the lock at once
			})
		})
	}
}

// What counts is the age of the node when the request was sent, because the process that replied may have died since.
func TestRestartGuardGoesByTheTimeOfTheRequest(t *testing.T) {
	extends := func(m *redsync.Mutex) error { return second(m.Extend()) } // a lock that the nodes already have
	for name, c := range map[string]struct {
		option     redsync.Option
		command    string
		quarantine time.Duration
		ask        func(m *redsync.Mutex) error
	}{
		"plain":   {once, "set", quarantine, (*redsync.Mutex).TryLock},
		"fencing": {withFencing, "evalsha", fencedQuarantine, (*redsync.Mutex).TryLock},
		"fair":    {withFair, "evalsha", quarantine, (*redsync.Mutex).TryLock},
		"extend":  {withValue("another's"), "evalsha", quarantine, extends},
	} {
		playAs(t, name, func(f field) {
			m := f.process(guards[true]...).NewMutex("lock", c.option)
			if name == "extend" {
				f.anothers()
			}
			erred(f, c.ask(m))
			age := c.quarantine - 100*ms
			time.Sleep(age)
			onEach(f.nodes, c.command, 1, embedded.Fault{Delay: 200 * ms})
			says(f, c.ask(m), fmt.Sprintf("its server started %v ago", age))
			noError(f, c.ask(m))
		})
	}
}

func TestRestartGuardReleasesGoToQuarantinedNodes(t *testing.T) {
	play(t, func(f field) {
		// An attempt that does not count leaves nothing behind.
		erred(t, f.process(guards[true]...).NewMutex("lock").TryLock())
		f.noKeys()

		// Unlock deletes the keys that an extension has set again on such nodes, and they may confirm the Unlock.
		rs := f.veteran(guards[true]...)
		m := f.as(rs).held(withSetNXOnExtend)
		f.reboot(true, majority...)
		wake(rs)
		failsWith(t, m.Extend, redsync.ErrExtendFailed)
		time.Sleep(ms)
		f.keysOn(5)
		f.freeze(3, 4)
		f.unlock(m)
		f.thaw(3, 4)
		f.noKeys()
	})
}

// Mutexes whose options do not fit their pools.

func TestRestartGuardRefusesALongerExpiry(t *testing.T) {
	play(t, func(f field) {
		pools := f.pools()
		for i, guard := range map[int]time.Duration{1: 10 * sec, 2: guard, 4: 20 * sec} {
			pools[i] = pool.New(f.nodes[i].Client(), pool.WithRestartGuard(guard), newNodes)
		}
		rs := redsync.New(pools...)
		for text, option := range map[string]redsync.Option{
			"8.001s": withExpiry(guard + ms), "8.001s)": withLockDelay(time.Nanosecond), // rounded up
			"1h0m8s": withLockDelay(hour),
		} {
			m := rs.NewMutex("lock", option, withValue("v"))
			refuses(t, m, "WithExpiry and WithLockDelay("+text)
			says(t, m.Lock(), ") is out of range: together at most 8s, which pool #2 guards (pool.WithRestartGuard)")
			require.NotErrorIs(t, m.Lock(), redsync.ErrFailed)
		}
		assert.Zero(t, f.traffic())
		locked(t, rs.NewMutex("lock", withExpiry(guard)))
		locked(t, rs.NewMutex("lock2", withExpiry(guard-sec), withLockDelay(sec)))
		noError(t, rs.Close(f.Context())) // Close succeeds, because no operation is left under way
	})
}

func TestRestartGuardNeverCountsANodeThatRefusesInfo(t *testing.T) {
	withAndWithout(t, func(f field, guarded bool) {
		onEach(f.nodes[:3], "info", 1000, embedded.Fault{Err: "NOPERM User has no permissions to run the 'info' command"})
		time.Sleep(hour)
		err := f.process(guards[guarded]...).NewMutex("lock", hearsAll).Lock()
		if !guarded {
			noError(t, err)
			return
		}
		errorIs(t, err, redsync.ErrNoQuorum)
		require.ErrorContains(f, err, "this will not pass by itself")
		for i := range 5 {
			text := named(i) + "it is not known how long the server has been running: INFO is refused, or has no uptime_in_seconds"
			assert.Equal(t, i < 3, strings.Contains(err.Error(), text))
		}
	})
}

// A process holds a lock while all nodes restart, one after another. It keeps the lock if the next node stops only after
// the time of the guard and the longest TTL, and if the nodes keep their keys or an extension sets them again.
func TestRestartGuardLetsALockLiveThroughARollingRestart(t *testing.T) {
	parallelComputing(t)
	testlength.NotShort(t)
	const enough = quarantine + guard
	for name, c := range map[string]struct {
		empty bool
		wait  time.Duration
		kept  bool
	}{
		"with their keys":             {false, enough, true},
		"with their keys, no wait":    {false, sec, false},
		"without, healing":            {true, enough, true},
		"without, healing, no wait":   {true, sec, false},
		"without, healing, the guard": {true, quarantine, true},
		"without their keys":          {true, enough, false},
	} {
		playAs(t, name, func(f field) {
			options := opts{withWatchdog}
			if strings.Contains(name, "healing") {
				options = append(options, withSetNXOnExtend)
			}
			m := obtained(f, f.veteran(guards[true]...).NewMutex("lock", options...))
			for i := range f.nodes {
				f.reboot(c.empty, i)
				time.Sleep(c.wait)
			}
			time.Sleep(guard)
			if !c.kept {
				isOver(f, m, redsync.ErrLockLost)
				return
			}
			alive(f, m)
			f.unlock(m)
		})
	}
}
