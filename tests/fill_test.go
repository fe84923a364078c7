package redsync_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
)

// This file tests that a lock that was won while nodes refused it is soon on those nodes, too: it is filled up. In most
// tests a rival has its key on nodes 3 and 4 when the lock is acquired, and rolls it back soon after.

// rival puts a key of a rival on nodes 3 and 4. back takes it off.
func (f field) rival(key string) (back func()) {
	synctest.Wait()
	f.occupy(key, 3, 4)
	return func() {
		synctest.Wait() // both nodes have refused
		f.nodes[3].Del(key)
		f.nodes[4].Del(key)
	}
}

// bare returns a Mutex of the process that holds the lock on nodes 0, 1 and 2. The rival has rolled back.
func (f field) bare(rs *redsync.Redsync, options ...redsync.Option) *redsync.Mutex {
	back := f.rival("lock")
	m := locked(f, rs.NewMutex("lock", options...))
	back()
	f.keysOn(3)
	return m
}

// on returns how many nodes have the value of m.
func (f field) on(m *redsync.Mutex, key string) (count int) {
	synctest.Wait()
	for _, n := range f.nodes {
		if v, err := n.Get(key); err == nil && v == m.Value() {
			count++
		}
	}
	return count
}

func TestFillSetsNoKeyThatWasThere(t *testing.T) {
	playMet(t, func(f field) {
		m := f.bare(f.Redsync)
		f.lose(0)
		sleep(2 * sec)
		assert.Equal(f, 4, f.on(m, "lock"), "node 0 had granted the lock, and nothing sets the key there again")
	})
}

// A fill lasts as long as the keys that are there already.
func TestFillLastsAsLongAsTheOtherKeys(t *testing.T) {
	for name, c := range map[string]struct {
		option redsync.Option
		ttl    time.Duration
	}{
		"plain":         {forever, guard},
		"lock delay":    {withLockDelay(3 * sec), guard + 3*sec},
		"minimal hold":  {withMinHold(minHold), withDrift},
		"fencing":       {withFencing, guard},
		"without limit": {withMaxHold(hour), guard},
	} {
		playMetAs(t, name, func(f field) {
			f.bare(f.Redsync, c.option)
			sleep(20 * ms)
			f.rests(c.ttl - 20*ms)
		})
	}
}

// So does a fill that follows an extension: the other keys last from the extension on.
func TestFillLastsAsLongAsTheKeysThatWereExtended(t *testing.T) {
	playMet(t, func(f field) {
		back := f.rival("lock")
		m := locked(f, f.NewMutex("lock"))
		sleep(200 * ms) // fills have come to nothing
		confirmed(f, m.Extend)
		back()
		f.keysOn(3)
		sleep(200 * ms)
		f.rests(guard - 200*ms)
	})
}

// Each kind of lock is filled up by a script of its own, several names all or none.
func TestEachKindOfLockIsFilled(t *testing.T) {
	for _, kind := range lockKinds {
		playMetAs(t, kind.column, func(f field) {
			first, others := kind.keys[0], kind.keys[1:]
			back := f.rival(first)
			m := locked(f, kind.lock(f.Redsync))
			sleep(50 * ms) // a fill has come to nothing
			f.have(3, others...)
			back()
			f.have(3, first)
			sleep(10 * ms)
			synctest.Wait()
			f.have(5, kind.keys...)
			for _, n := range f.nodes[3:] { // it is the lock, as on the other nodes
				want, _ := f.nodes[0].Get(first)
				got, _ := n.Get(first)
				assert.Equal(f, want[:20], got[:min(20, len(got))])
			}
			f.unlock(m)
			sleep(3 * sec)
			f.have(0, kind.keys...)
		})
	}
}

// A node may grant another permit than the one that was won. It is given back, and the permit that was won is taken.
func TestPermitIsFilledIntoTheSlotThatWasWon(t *testing.T) {
	for _, weight := range []int{1, 2} {
		playMetAs(t, fmt.Sprint("weight ", weight), func(f field) {
			for slot := range weight {
				f.puts(slot, "rival", hour, 3, 4)
			}
			var m *redsync.Mutex
			for { // until the slots that were won are those that the rival has on nodes 3 and 4
				m = locked(f, f.NewMutex("lock", permitsOf(2*weight, weight)...))
				value := m.Value()
				sleep(ms)
				if owners := f.owners(0, 2*weight); owners[0] == value && owners[weight-1] == value {
					break
				}
				f.unlock(m)
				sleep(sec)
			}
			assert.Equal(f, []int{weight, weight, weight, 0, 0}, f.holdsOn(m.Value(), 2*weight))
			for slot := range weight {
				for _, n := range f.nodes[3:] {
					n.Del(slotOf(slot))
				}
			}
			sleep(20 * ms)
			for i := range f.nodes {
				assert.Equal(f, f.owners(0, 2*weight), f.owners(i, 2*weight))
			}
			f.unlock(m)
			f.nothingOfPermits()
		})
	}
}

// A job of a tick runs once, even if a node restarts without its data. The job ends at once, so its lock is filled up
// after Unlock.
func TestJobOfATickRunsOnceAlthoughANodeForgets(t *testing.T) {
	for _, forgetful := range []int{0, 4} {
		play(t, func(f field) {
			processes := f.processes(2, inZones)
			for tick := range 3 {
				var runs atomic.Int32
				try := func(rs *redsync.Redsync) {
					_, _ = rs.NewMutex("lock", withMinHold(minHold)).TryDo(f.Context(), func(context.Context) error {
						runs.Add(1)
						return nil
					})
				}
				var wg sync.WaitGroup
				for _, rs := range processes {
					wg.Go(func() { try(rs) })
				}
				wg.Wait()
				sleep(200 * ms)
				if runs.Load() == 0 {
					continue
				}
				f.keysOn(5)
				f.reboot(true, forgetful)
				for _, rs := range processes {
					wake(rs)
					try(rs)
				}
				assert.EqualValues(f, 1, runs.Load(), "tick %d", tick)
				sleep(withDrift)
				f.keysOn(0) // the keys stay for the minimal hold, and no longer
			}
		})
	}
}

// After Unlock the fill lasts for the rest of the minimal hold, also if the node executes it late.
func TestMinHoldIsFilledAfterUnlock(t *testing.T) {
	playMet(t, func(f field) {
		m := f.NewMutex("lock", withMinHold(minHold))
		back := f.rival("lock")
		f.unlock(locked(f, m))
		back()
		sleep(20 * ms)
		f.rests(withDrift - 20*ms)
		f.taken()
		sleep(withDrift - 20*ms)
		f.keysOn(0)

		back = f.rival("lock")
		locked(f, m)
		back()
		f.unlock(m) // sends the first fill
		f.rests(withDrift)
		sleep(withDrift)

		back = f.rival("lock")
		f.unlock(locked(f, m))
		back()
		f.freeze(3)
		sleep(minHold / 2)
		f.thaw(3)
		f.restsOn("lock", withDrift-minHold/2, 0, 1, 2, 4)
		sleep(2 * sec)
		assert.LessOrEqual(f, f.nodes[3].TTL("lock"), withDrift-minHold/2-2*sec, "the release follows the fill")
		sleep(withDrift)
		f.keysOn(0)
	})
}

// A fill that Unlock has just sent does not confirm that the lock was held until then.
func TestUnlockDoesNotCountItsFill(t *testing.T) {
	playMet(t, func(f field) {
		m := f.bare(f.Redsync, withMinHold(minHold))
		f.lose(0)
		failsWith(f, m.Unlock, redsync.ErrLockAlreadyExpired)
		f.keysOn(4)
	})
}

// No key is left by a fill that a node executes after Unlock, whatever has kept it.
func TestReleaseLeavesNoKeyOfAFill(t *testing.T) {
	for name, fault := range map[string]embedded.Fault{
		"late":           {Delay: 300 * ms},
		"reply lost":     {LoseReply: true},
		"lost":           {LoseCommand: true},
		"executed twice": {LoseReply: true, Again: 500 * ms},
		"frozen":         {},
	} {
		playMetAs(t, name, func(f field) {
			m := f.bare(f.Redsync)
			for _, n := range f.nodes[3:] {
				n.On("set", 1, fault)
			}
			if name == "frozen" {
				f.freeze(3, 4)
				time.AfterFunc(sec, func() { f.thaw(3, 4) })
			}
			sleep(25 * ms) // the fill is under way
			f.unlocks(m)
			f.held()
		})
	}
}

func TestLockThatIsHandedOverIsFilled(t *testing.T) {
	for _, late := range []time.Duration{0, 10 * ms} { // when the nodes refuse: before the hand-over, or after it
		playMet(t, func(f field) {
			back := f.rival("lock")
			for _, n := range f.nodes[3:] {
				n.On("set", 1, embedded.Fault{Delay: late})
			}
			giver := locked(f, f.NewMutex("lock"))
			receiver := f.calls(f.Redsync, patient()...)
			sleep(ms)
			f.atOnce(giver, receiver)
			sleep(late)
			back()
			f.keysOn(3)
			sleep(20*ms - late)
			f.keysOn(5)
			f.unlocks(receiver.Mutex)
		})
	}
}

// The vote of a filled node soon counts for extensions if the node has a restart guard, or if the lock heals. The
// extension right behind the fill never counts it.
func TestExtensionsCountFilledNodesUnderTheGuardOnly(t *testing.T) {
	for name, option := range map[string]redsync.Option{"plain": forever, "healing": withSetNXOnExtend} {
		t.Run(name, func(t *testing.T) {
			withAndWithout(t, func(f field, guarded bool) {
				rs, counts := f.veteran(guards[guarded]...), guarded || name == "healing"
				extends := func(m *redsync.Mutex, want bool) {
					if want {
						f.confirms(m.Extend())
					} else {
						failsWith(f, m.Extend, redsync.ErrExtendFailed)
					}
				}
				m := f.bare(rs, option)
				f.refuse(0)
				extends(m, false) // right behind the fill
				assert.Equal(f, 5, f.on(m, "lock"))
				extends(m, counts)
				f.nodes[0].Heal()
				extends(m, true)
				f.unlocks(m)

				m = f.bare(rs, option)
				sleep(sec)
				require.Equal(f, 5, f.on(m, "lock"))
				f.refuse(0)
				extends(m, counts)
				f.nodes[0].Heal()
				f.unlocks(m)
			})
		})
	}
}

// Without a restart guard the vote of a filled node counts for extensions once the TTL has passed since. So a lock that
// three nodes have granted, and that was extended once, outlives that one of them goes down. It is extended soon after the
// fill.
func TestExtensionsCountOldFills(t *testing.T) {
	parallelComputing(t)
	for name, bad := range map[string]func(f field, nodes ...int){"down": field.kill, "frozen": field.freeze} {
		for _, after := range []time.Duration{1200 * ms, 3 * sec, 5 * sec} {
			playMetAs(t, fmt.Sprint(name, " after ", after), func(f field) {
				m := f.bare(f.Redsync, withWatchdog)
				sleep(after)
				require.Equal(f, 5, f.on(m, "lock"))
				bad(f, 0)
				sleep(20 * sec)
				f.confirms(m.Valid())
				f.unlock(m)
			})
		}
	}
}
