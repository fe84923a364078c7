package redsync_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/embedded"
)

// This file shows the order in which processes are served: with WithFair, without it, and by
// WithPriority.

// Only the first waiter of a process is in the queues. When it leaves, the next waiter of the process enters after the
// release, and a waiter of another process may come in between.
func TestFairOrderOfManyInAProcessIsNearlyThatOfTheCalls(t *testing.T) {
	for _, seed := range []uint64{1, 2, 3, 4} {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			onKit(t, func(k kit) {
				r := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a test repeats itself
				m := k.held(redsync.WithFair())
				all := []*redsync.Redsync{k.another(redsync.WithFair()), k.another(redsync.WithFair()), k.With(redsync.WithFair())}
				var calls []*call
				for range 15 {
					calls = append(calls, k.calls(all[r.IntN(3)], patient()...))
					time.Sleep(time.Millisecond)
				}
				k.unlock(m)
				for place, who := range k.inOrder(calls, time.Millisecond) {
					assert.InDelta(t, who, place, 2)
				}
				k.nothingLeft()
			})
		})
	}
}

func TestFairOrderIsThatOfTheCalls(t *testing.T) {
	for _, seed := range []uint64{1, 2, 3, 4} {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			play(t, func(f field) {
				r := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a test repeats itself
				m := f.held(redsync.WithFair())
				var calls []*call
				for range 8 {
					calls = append(calls, f.calls(f.another(redsync.WithFair()), patient()...))
					time.Sleep(time.Millisecond)
				}
				for _, n := range f.nodes {
					for range 200 {
						n.On("evalsha", 1, embedded.Fault{Delay: time.Duration(r.IntN(3000)) * time.Microsecond})
					}
				}
				f.unlock(m)
				assert.Equal(t, ascending(8), f.inOrder(calls, time.Millisecond))
				time.Sleep(time.Second)
				f.nobodyWaits()
			})
		})
	}
}

func TestFairFirstAttemptDoesNotBarge(t *testing.T) {
	play(t, func(f field) {
		f.stranger(301*time.Millisecond, false, 0, 1, 2)
		time.Sleep(time.Millisecond)
		w := f.calls(f.another(redsync.WithFair()), patient()...)
		assert.False(t, w.isDone())
		assert.GreaterOrEqual(t, f.within(w, 315*time.Millisecond), 300*time.Millisecond)
		assert.Zero(t, f.commands("set")-5, "the only 5 SETs are those with which another met the nodes")
	})
}

func TestFairTryLockIsBehindThoseWhoWait(t *testing.T) {
	for count, wins := range map[int]bool{1: true, 2: true, 3: false, 5: false} {
		t.Run(fmt.Sprint(count), func(t *testing.T) {
			play(t, func(f field) {
				f.meet()
				ticket := f.stranger(time.Second, false, ascending(count)...)
				time.Sleep(time.Millisecond)
				m := f.NewMutex("lock", redsync.WithFair())
				err := m.TryLock()
				if wins {
					require.NoError(t, err)
					f.unlock(m)
				} else {
					require.ErrorIs(t, err, redsync.ErrFailed)
					var taken *redsync.ErrTaken
					require.ErrorAs(t, err, &taken)
				}
				synctest.Wait()
				for i := range f.nodes {
					if i < count {
						assert.Equal(t, []string{ticket}, f.inQueue(i))
					} else {
						assert.Empty(t, f.inQueue(i))
					}
				}
				assert.Zero(t, f.nodes.Keys("lock"))
			})
		})
	}
}

func TestDefaultFirstAttemptMayBarge(t *testing.T) {
	play(t, func(f field) {
		f.stranger(time.Minute, false, 0, 1, 2, 3, 4)
		m := f.NewMutex("lock")
		require.NoError(t, m.Lock())
		f.unlock(m)
	})
}

// The other process misses the messages of the release. Our next attempt does not overtake it, and makes the nodes wake
// it again.
func TestProcessThatGaveWayDoesNotBarge(t *testing.T) {
	play(t, func(f field) {
		m := f.held()
		other := f.calls(f.another(), patient()...)
		for _, n := range f.nodes {
			n.LoseMessages(1)
		}
		time.Sleep(10 * time.Millisecond)
		f.unlock(m)
		ours := f.calls(f.Redsync, patient()...)
		require.False(t, ours.isDone())
		assert.Zero(t, f.within(other, 0))
		assert.False(t, ours.isDone())
		f.atOnce(other.Mutex, ours)
		f.unlock(ours.Mutex)

		require.NoError(t, m.TryLock(), "TryLock succeeds, because nobody waits")
		f.unlock(m)
		f.nobodyWaits()
	})
}

func TestPriorityInOneProcess(t *testing.T) {
	onKit(t, func(k kit) {
		m := k.another().NewMutex("lock")
		require.NoError(t, m.Lock())
		var calls []*call
		for _, class := range []int{0, 5, -5, 5, 0, 999, -999} {
			calls = append(calls, k.calls(k.Redsync, patient(redsync.WithPriority(class))...))
		}
		k.unlock(m)
		assert.Equal(t, []int{5, 1, 3, 0, 4, 2, 6}, k.inOrder(calls, time.Millisecond))
		k.nothingLeft()
	})
}

func TestPriorityAcrossProcesses(t *testing.T) {
	inEachMode(t, onKit, func(k kit, mode []redsync.Option) {
		m := k.held(mode...)
		var calls []*call
		for _, class := range []int{0, 5, -5, 5, 0, 999, -999} {
			calls = append(calls, k.calls(k.another(mode...), patient(redsync.WithPriority(class))...))
			time.Sleep(time.Millisecond)
		}
		k.unlock(m)
		assert.Equal(k, []int{5, 1, 3, 0, 4, 2, 6}, k.inOrder(calls, time.Millisecond))
		k.nothingLeft()
	})
}
