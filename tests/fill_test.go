package redsync_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/embedded"
)

// This file tests that a lock that was won while nodes refused it is soon on those nodes, too: it is filled up. In most
// tests a rival has its key on nodes 3 and 4 when the lock is acquired, and rolls it back soon after.

// fills are the times of the fills, from the win on, while the nodes go on to refuse.
var fills = []time.Duration{20, 60, 140, 300, 620, 1260} // ms

// rival puts a key of a rival on nodes 3 and 4. back takes it off.
func (f field) rival(keys ...string) (back func()) {
	f.Helper()
	synctest.Wait()
	for _, n := range f.nodes[3:] {
		for _, key := range keys {
			require.NoError(f, n.Set(key, "rival"))
			n.SetTTL(key, time.Hour)
		}
	}
	return func() {
		synctest.Wait() // both nodes have refused
		for _, n := range f.nodes[3:] {
			for _, key := range keys {
				n.Del(key)
			}
		}
	}
}

// bare returns a Mutex of the process that holds the lock on nodes 0, 1 and 2. The rival has rolled back.
func (f field) bare(rs *redsync.Redsync, options ...redsync.Option) *redsync.Mutex {
	f.Helper()
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
		time.Sleep(2 * time.Second)
		assert.Equal(f, 4, f.on(m, "lock"), "node 0 had granted the lock, and nothing sets the key there again")
	})
}

func TestFillsAreSentSixTimesAndBeforeEachExtension(t *testing.T) {
	playMet(t, func(f field) {
		back := f.rival("lock")
		m := locked(f, f.NewMutex("lock"))
		won := time.Now()
		at := func(ms time.Duration) { time.Sleep(time.Until(won.Add(ms * time.Millisecond))) } //nolint:durationcheck // ms is a number
		synctest.Wait()
		before := f.commands("set")
		for i, ms := range fills {
			at(ms - 1)
			synctest.Wait()
			assert.Equal(f, before+2*i, f.commands("set"), "after %d ms", ms-1)
			at(ms)
			synctest.Wait()
			assert.Equal(f, before+2*i+2, f.commands("set"), "after %d ms", ms)
		}
		time.Sleep(5 * time.Second)
		assert.Equal(f, before+12, f.commands("set"))
		for i := range 2 {
			f.confirms(m.Extend())
			synctest.Wait()
			assert.Equal(f, before+14+2*i, f.commands("set"))
		}
		back()
		f.confirms(m.Extend())
		assert.Equal(f, 5, f.on(m, "lock"))
		before = f.commands("set")
		for range 2 {
			f.confirms(m.Extend())
		}
		time.Sleep(3 * time.Second)
		assert.Equal(f, before, f.commands("set"), "all nodes have confirmed")
		f.unlocks(m)
	})
}

// A fill lasts as long as the keys that are there already.
func TestFillLastsAsLongAsTheOtherKeys(t *testing.T) {
	for name, c := range map[string]struct {
		option redsync.Option
		ttl    time.Duration
	}{
		"plain":         {redsync.WithTries(1), guard},
		"lock delay":    {redsync.WithLockDelay(3 * time.Second), guard + 3*time.Second},
		"minimal hold":  {redsync.WithMinHold(minHold), withDrift},
		"fencing":       {withFencing, guard},
		"without limit": {redsync.WithMaxHold(time.Hour), guard},
	} {
		playMetAs(t, name, func(f field) {
			f.bare(f.Redsync, c.option)
			time.Sleep(20 * time.Millisecond)
			f.restsOn("lock", c.ttl-20*time.Millisecond, allNodes...)
		})
	}
}

// Each kind of lock is filled up by a script of its own, several names all or none.
func TestEachKindOfLockIsFilled(t *testing.T) {
	for _, kind := range lockKinds {
		playMetAs(t, kind.column, func(f field) {
			keys := kind.keys
			back := f.rival(keys[0])
			m := locked(f, kind.lock(f.Redsync))
			time.Sleep(50 * time.Millisecond) // a fill has come to nothing
			have := func(want int) {
				f.Helper()
				synctest.Wait()
				for _, key := range keys[1:] {
					assert.Equal(f, want, f.nodes.Keys(key), key)
				}
				count := 0
				for _, n := range f.nodes {
					if v, err := n.Get(keys[0]); err == nil && v != "rival" {
						count++
					}
				}
				assert.Equal(f, want, count, keys[0])
			}
			have(3)
			back()
			time.Sleep(10 * time.Millisecond)
			have(5)
			for _, n := range f.nodes[3:] { // it is the lock, as on the other nodes
				want, _ := f.nodes[0].Get(keys[0])
				got, _ := n.Get(keys[0])
				assert.Equal(f, want[:20], got[:min(20, len(got))])
			}
			f.unlock(m)
			time.Sleep(3 * time.Second)
			for _, key := range keys {
				assert.Zero(f, f.nodes.Keys(key))
			}
		})
	}
}

// A node may grant another permit than the one that was won. It is given back, and the permit that was won is taken.
func TestPermitIsFilledIntoTheSlotThatWasWon(t *testing.T) {
	for _, weight := range []int{1, 2} {
		playMetAs(t, fmt.Sprint("weight ", weight), func(f field) {
			for slot := range weight {
				f.puts(slot, "rival", time.Hour, 3, 4)
			}
			options := opts{redsync.WithPermits(2 * weight)}
			if weight > 1 {
				options = append(options, redsync.WithWeight(weight), withFair)
			}
			var m *redsync.Mutex
			for { // until the slots that were won are those that the rival has on nodes 3 and 4
				m = f.NewMutex("lock", options...)
				locked(f, m)
				value := m.Value()
				time.Sleep(time.Millisecond)
				if owners := f.owners(0, 2*weight); owners[0] == value && owners[weight-1] == value {
					break
				}
				f.unlock(m)
				time.Sleep(time.Second)
			}
			assert.Equal(f, []int{weight, weight, weight, 0, 0}, f.holdsOn(m.Value(), 2*weight))
			for slot := range weight {
				for _, n := range f.nodes[3:] {
					n.Del(slotOf(slot))
				}
			}
			time.Sleep(20 * time.Millisecond)
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
		playAs(t, fmt.Sprint("node ", forgetful), func(f field) {
			processes := f.processes(2, inZones)
			for tick := range 3 {
				var runs atomic.Int32
				try := func(rs *redsync.Redsync) {
					_, _ = rs.NewMutex("lock", redsync.WithMinHold(minHold)).TryDo(f.Context(), func(context.Context) error {
						runs.Add(1)
						return nil
					})
				}
				done := make(chan struct{})
				for _, rs := range processes {
					go func() { try(rs); done <- struct{}{} }()
				}
				<-done
				<-done
				time.Sleep(200 * time.Millisecond)
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
				time.Sleep(withDrift)
				assert.Zero(f, f.nodes.Keys("lock"), "the keys stay for the minimal hold, and no longer")
			}
		})
	}
}

// After Unlock the fill lasts for the rest of the minimal hold, also if the node executes it late.
func TestMinHoldIsFilledAfterUnlock(t *testing.T) {
	playMet(t, func(f field) {
		back := f.rival("lock")
		m := locked(f, f.NewMutex("lock", redsync.WithMinHold(minHold)))
		f.unlock(m)
		back()
		time.Sleep(20 * time.Millisecond)
		f.rests(withDrift - 20*time.Millisecond)
		f.taken()
		time.Sleep(withDrift - 20*time.Millisecond)
		f.keysOn(0)

		back = f.rival("lock")
		m = f.NewMutex("lock", redsync.WithMinHold(minHold))
		locked(f, m)
		back()
		f.unlock(m) // sends the first fill
		f.rests(withDrift)
		time.Sleep(withDrift)

		back = f.rival("lock")
		m = f.NewMutex("lock", redsync.WithMinHold(minHold))
		locked(f, m)
		f.unlock(m)
		back()
		f.freeze(3)
		time.Sleep(minHold / 2)
		f.thaw(3)
		f.restsOn("lock", withDrift-minHold/2, 0, 1, 2, 4)
		time.Sleep(2 * time.Second)
		assert.LessOrEqual(f, f.nodes[3].TTL("lock"), withDrift-minHold/2-2*time.Second, "the release follows the fill")
		time.Sleep(withDrift)
		f.keysOn(0)
	})
}

// A fill that Unlock has just sent does not confirm that the lock was held until then.
func TestUnlockDoesNotCountItsFill(t *testing.T) {
	playMet(t, func(f field) {
		m := f.bare(f.Redsync, redsync.WithMinHold(minHold))
		f.lose(0)
		failsWith(f, m.Unlock, redsync.ErrLockAlreadyExpired)
		f.keysOn(4)
	})
}

// No key is left by a fill that a node executes after Unlock, whatever has kept it.
func TestReleaseLeavesNoKeyOfAFill(t *testing.T) {
	for name, faulty := range map[string]func(f field, n *embedded.Node){
		"late":       func(_ field, n *embedded.Node) { n.On("set", 1, embedded.Fault{Delay: 300 * time.Millisecond}) },
		"reply lost": func(_ field, n *embedded.Node) { n.On("set", 1, embedded.Fault{LoseReply: true}) },
		"lost":       func(_ field, n *embedded.Node) { n.On("set", 1, embedded.Fault{LoseCommand: true}) },
		"executed twice": func(_ field, n *embedded.Node) {
			n.On("set", 1, embedded.Fault{LoseReply: true, Again: time.Second / 2})
		},
		"frozen": func(_ field, n *embedded.Node) { n.Freeze(); time.AfterFunc(time.Second, n.Thaw) },
	} {
		playMetAs(t, name, func(f field) {
			m := f.bare(f.Redsync)
			for _, n := range f.nodes[3:] {
				faulty(f, n)
			}
			time.Sleep(25 * time.Millisecond) // the fill is under way
			f.unlock(m)
			time.Sleep(3 * time.Second)
			f.keysOn(0)
			locked(f, f.NewMutex("lock"))
			time.Sleep(time.Millisecond)
			f.keysOn(5)
		})
	}
}

func TestLockThatIsHandedOverIsFilled(t *testing.T) {
	for name, late := range map[string]time.Duration{"refused before": 0, "refused after": 10 * time.Millisecond} {
		playMetAs(t, name, func(f field) {
			back := f.rival("lock")
			for _, n := range f.nodes[3:] {
				n.On("set", 1, embedded.Fault{Delay: late})
			}
			giver := locked(f, f.NewMutex("lock"))
			receiver := f.calls(f.Redsync, patient()...)
			time.Sleep(time.Millisecond)
			f.atOnce(giver, receiver)
			time.Sleep(late)
			back()
			f.keysOn(3)
			time.Sleep(20*time.Millisecond - late)
			synctest.Wait()
			f.keysOn(5)
			f.unlocks(receiver.Mutex)
		})
	}
}

// The vote of a filled node soon counts for extensions if the node has a restart guard, or if the lock heals. The
// extension right behind the fill never counts it.
func TestExtensionsCountFilledNodesUnderTheGuardOnly(t *testing.T) {
	for name, options := range map[string]opts{"plain": nil, "healing": {withSetNXOnExtend}} {
		t.Run(name, func(t *testing.T) {
			withAndWithout(t, func(f field, guarded bool) {
				counts := guarded || options != nil
				rs := f.veteran(guards[guarded]...)
				extends := func(m *redsync.Mutex, want bool) {
					t.Helper()
					ok, err := m.Extend()
					assert.Equal(t, want, ok, "%v", err)
					if !want {
						require.ErrorIs(t, err, redsync.ErrExtendFailed)
					}
				}
				m := f.bare(rs, options...)
				f.refuse(0)
				extends(m, false) // right behind the fill
				assert.Equal(t, 5, f.on(m, "lock"))
				extends(m, counts)
				f.nodes[0].Heal()
				extends(m, true)
				f.unlocks(m)

				m = f.bare(rs, options...)
				time.Sleep(time.Second)
				require.Equal(t, 5, f.on(m, "lock"))
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
	for name, bad := range map[string]func(f field, i int){
		"down":   func(f field, i int) { f.nodes[i].Kill() },
		"frozen": func(f field, i int) { f.nodes[i].Freeze() },
	} {
		for _, after := range []time.Duration{1200 * time.Millisecond, 3 * time.Second, 5 * time.Second} {
			playMetAs(t, fmt.Sprint(name, " after ", after), func(f field) {
				m := f.bare(f.Redsync, withWatchdog)
				time.Sleep(after)
				require.Equal(f, 5, f.on(m, "lock"))
				bad(f, 0)
				time.Sleep(20 * time.Second)
				valid, err := m.Valid()
				require.NoError(f, err)
				assert.True(f, valid)
				f.unlock(m)
			})
		}
	}
}
