package redsync_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/testlength"
	"github.com/seed14bd9ef4/redsync/observe"
	"github.com/seed14bd9ef4/redsync/redsynctest"
)

// This file shows what ForceUnlock releases, and who learns of it when.

// holderOf returns the only holder that m.Inspect finds.
func (u user) holderOf(m *redsync.Mutex) redsync.Holder {
	u.Helper()
	s := u.inspected(m)
	require.Len(u, s.Holders, 1)
	return s.Holders[0]
}

// forces releases the only holder that operator finds.
func (u user) forces(operator *redsync.Mutex) {
	u.Helper()
	require.NoError(u, operator.ForceUnlock(u.Context(), u.holderOf(operator)))
}

func TestForceUnlockReleasesALockOfEachKind(t *testing.T) {
	for _, kind := range lockKinds {
		for _, owner := range []opts{nil, {redsync.WithOwner("worker-7@host")}} {
			playAs(t, kind.column, func(f field) {
				holder := locked(f, kind.lock(f.another(owner...), withWatchdog))
				synctest.Wait()
				operator := kind.lock(f.Redsync)
				h := f.holderOf(operator)
				f.releases(operator, h)
				synctest.Wait()
				for _, key := range kind.keys {
					assert.False(f, f.nodes[0].Exists(key))
				}
				err := operator.ForceUnlock(f.Context(), h)
				require.ErrorIs(f, err, redsync.ErrNotHeld)
				require.NotErrorIs(f, err, redsync.ErrNoQuorum)
				<-holder.Lost()
				failsWith(f, holder.Unlock, redsync.ErrLockAlreadyExpired)
			})
		}
	}
}

// Who learns when: the table of ForceUnlock.
func TestWhenTheHolderLearnsOfTheForce(t *testing.T) {
	const trip = 2 * hop
	owner := opts{redsync.WithOwner("w"), withWatchdog}
	for name, c := range map[string]struct {
		options opts
		held    time.Duration // for how long by then
		within  time.Duration
		down    []int // nodes
	}{
		"owner, held for long":                  {owner, 5 * time.Second, 2 * trip, nil},
		"owner that heals, with two nodes down": {heals(), 5 * time.Second, 2 * trip, []int{1, 3}},
		"owner without a watchdog":              {opts{redsync.WithOwner("w"), redsync.WithExpiry(time.Minute)}, 5 * time.Second, 2 * trip, nil},
		"owner, held for a moment":              {owner, 100 * ms, time.Second, nil},
		"watchdog without an owner":             {opts{withWatchdog}, 5 * time.Second, 8*time.Second/3 + 2*trip, nil},
		"neither":                               {nil, time.Second, 8 * time.Second, nil},
	} {
		playAs(t, name, func(f field) {
			r := &redsynctest.Recorder{}
			holder := locked(f, f.far().With(redsync.WithObserver(r)).NewMutex("a", c.options...))
			time.Sleep(c.held)
			f.kill(c.down...)
			time.Sleep(ms)
			f.forces(f.NewMutex("a"))
			start := time.Now()
			<-holder.Lost()
			assert.LessOrEqual(f, time.Since(start), c.within)
			err := holder.Err()
			require.ErrorIs(f, err, redsync.ErrLockLost)
			assert.Equal(f, strings.HasPrefix(name, "owner"), errors.Is(err, redsync.ErrForced), "%v", err)
			synctest.Wait()
			lost := redsynctest.Events[observe.Lost](r)
			require.Len(f, lost, 1)
			assert.Equal(f, err, lost[0].Err)
			time.Sleep(10 * time.Second)
			assert.Empty(f, f.nodes[0].Keys(), "nobody has taken it back")
			failsWith(f, holder.Unlock, redsync.ErrLockAlreadyExpired)
		})
	}
}

// Inside Do the context ends, also that of a Do inside it, and its cause says why.
func TestForceEndsTheContextOfDo(t *testing.T) {
	for _, nested := range []bool{false, true} {
		play(t, func(f field) {
			rs := f.another(redsync.WithOwner("w"))
			work := func(ctx context.Context) error {
				time.Sleep(2 * time.Second)
				f.forces(f.NewMutex("a"))
				select {
				case <-ctx.Done():
				case <-time.After(time.Minute):
				}
				return context.Cause(ctx)
			}
			fn := work
			if nested {
				fn = func(ctx context.Context) error { return rs.Do(ctx, "a", work) }
			}
			err := rs.Do(f.Context(), "a", fn)
			errorIs(f, err, redsync.ErrForced, redsync.ErrLockLost)
			assert.ErrorIs(f, redsync.ErrForced, redsync.ErrLockLost)
		})
	}
}

// A process that listens already asks the nodes for each hold once that has lasted a second, because it has not heard of a
// force before. A hold that is shorter asks nobody.
func TestAHoldThatLastsAsksOnce(t *testing.T) {
	playMet(t, func(f field) {
		rs := f.another(redsync.WithOwner("w"))
		long := locked(f, rs.NewMutex("long", redsync.WithExpiry(time.Minute)))
		time.Sleep(2 * time.Second)
		asked := func() int { return f.nodes[0].Commands("evalsha") + f.nodes[0].Commands("eval") }
		before, connections := asked(), f.connections()
		m := locked(f, rs.NewMutex("a"))
		time.Sleep(900 * ms)
		assert.Equal(f, before, asked())
		operator := f.NewMutex("a")
		h := f.holderOf(operator)
		f.releases(operator, h)
		time.Sleep(99 * ms)
		require.NoError(f, m.Err(), "it was too young to hear of it")
		time.Sleep(ms)
		synctest.Wait()
		isOver(f, m, redsync.ErrForced)
		assert.Equal(f, connections, f.connections(), "the process listens on one connection to each node")
		f.unlock(long)
	})
}

// A message that is not true ends nothing, and very many make the holder ask 20 times a second at most.
func TestAFalseMessageOfAForceLosesNothing(t *testing.T) {
	play(t, func(f field) {
		m := locked(f, f.another().NewMutex("a", heals()...))
		time.Sleep(1500 * ms)
		h := f.holderOf(f.NewMutex("a"))
		channel := fmt.Sprintf("redsync:%016d", h.Process)
		client := f.nodes[0].Client()
		before := f.nodes[1].Commands("evalsha")
		for range 1000 {
			require.NoError(f, client.Publish(f.Context(), channel, "forced "+h.ID).Err())
			require.NoError(f, client.Publish(f.Context(), channel, "forced 00000000").Err())
			require.NoError(f, client.Publish(f.Context(), channel, "forced ").Err())
			time.Sleep(ms)
		}
		synctest.Wait()
		asked := f.nodes[1].Commands("evalsha") - before
		assert.Positive(f, asked)
		assert.LessOrEqual(f, asked, 28, "20, one for each node, and extensions")
		alive(f, m)
		f.unlock(m)
		require.NoError(f, client.Close())
	})
}

// The nodes cannot reach the holder while it is forced. When it can hear them again, it asks.
func TestAForceThatWasNotHeardIsFoundAfterwards(t *testing.T) {
	play(t, func(f field) {
		m := locked(f, f.another(redsync.WithOwner("w")).NewMutex("a", redsync.WithExpiry(time.Minute)))
		time.Sleep(2 * time.Second)
		operator := f.NewMutex("a")
		h := f.holderOf(operator)
		for _, n := range f.nodes {
			n.LoseMessages(1)
		}
		f.releases(operator, h)
		time.Sleep(time.Second)
		alive(f, m)
		for _, n := range f.nodes[:3] {
			n.Disconnect()
		}
		time.Sleep(5 * time.Second)
		isOver(f, m, redsync.ErrLockLost)
		require.NotErrorIs(f, m.Err(), redsync.ErrForced, "nodes may as well have lost their data")
	})
}

// What a Mutex cannot release, it says, and sends nothing.
func TestForceUnlockOfWhatTheMutexCannotRelease(t *testing.T) {
	play(t, func(f field) {
		all := locked(f, f.another().NewMultiMutex([]string{"a", "b"}))
		several := f.holderOf(f.NewMultiMutex([]string{"a", "b", "c"}))
		assert.Equal(f, []string{"a", "b"}, several.Names)
		locked(f, f.another().NewMutex("p", redsync.WithPermits(2)))
		ofPermits := f.holderOf(f.NewMutex("p", redsync.WithPermits(2)))
		synctest.Wait()
		traffic := f.nodes[0].Traffic()
		for text, force := range map[string]func() error{
			`the holder also has "b"`: func() error { return f.NewMutex("a").ForceUnlock(f.Context(), several) },
			"has permits":             func() error { return f.NewMutex("p").ForceUnlock(f.Context(), ofPermits) },
			"has a lock":              func() error { return f.NewMutex("a", redsync.WithPermits(2)).ForceUnlock(f.Context(), several) },
			"that Inspect or Watch":   func() error { return f.NewMutex("a").ForceUnlock(f.Context(), redsync.Holder{Names: []string{"a"}}) },
			"context canceled": func() error {
				ctx, cancel := context.WithCancel(f.Context())
				cancel()
				return f.NewMultiMutex([]string{"a", "b"}).ForceUnlock(ctx, several)
			},
		} {
			require.ErrorContains(f, force(), text)
		}
		synctest.Wait()
		assert.Equal(f, traffic, f.nodes[0].Traffic())
		alive(f, all)

		f.releases(f.NewMultiMutex([]string{"a", "b", "c"}), several)
		f.releases(f.NewMutex("p", redsync.WithPermits(2)), ofPermits)
		synctest.Wait()
		assert.Empty(f, f.nodes[0].Keys())
	})
}

// One of several readers, and one of several holders of permits, is released. The others go on.
func TestForceUnlockReleasesOneOfSeveral(t *testing.T) {
	for _, options := range []opts{{withShared}, {redsync.WithPermits(3)}} {
		play(t, func(f field) {
			var all []*redsync.Mutex
			for i := range 3 {
				all = append(all, locked(f, f.another(redsync.WithOwner(fmt.Sprint("w", i))).NewMutex("a", append(options, withWatchdog)...)))
			}
			time.Sleep(2 * time.Second)
			operator := f.NewMutex("a", options...)
			for _, h := range f.inspected(operator).Holders {
				if h.Owner == "w1" {
					f.releases(operator, h)
				}
			}
			time.Sleep(10 * ms) // the nodes answer the last question in some order
			require.ErrorIs(f, all[1].Err(), redsync.ErrForced)
			assert.Len(f, f.inspected(operator).Holders, 2)
			time.Sleep(20 * time.Second)
			f.unlock(all[0])
			f.unlock(all[2])
		})
	}
}

// Another has the lock by then: it is left alone.
func TestForceUnlockOfAFormerHolder(t *testing.T) {
	play(t, func(f field) {
		m, operator := f.NewMutex("a"), f.another().NewMutex("a")
		locked(f, m)
		h := f.holderOf(operator)
		f.unlock(m)
		other := locked(f, f.another().NewMutex("a", withWatchdog))
		err := operator.ForceUnlock(f.Context(), h)
		isTaken(f, err)
		require.NotErrorIs(f, err, redsync.ErrNotHeld)
		f.unlock(other)

		locked(f, m)
		h = f.holderOf(operator)
		f.freeze(majority...)
		err = operator.ForceUnlock(f.Context(), h)
		require.ErrorIs(f, err, redsync.ErrNoQuorum)
		f.thaw(majority...)
		time.Sleep(5 * time.Second)
		assert.Equal(f, redsync.StateFree, f.inspected(operator).State, "the release goes on")
	})
}

// The next in line has the lock at once.
func TestForceUnlockWakesTheNextWaiter(t *testing.T) {
	for _, kind := range lockKinds {
		playAs(t, kind.column, func(f field) {
			holder := locked(f, kind.rival(f.another(), withWatchdog))
			waits := kind.lock(f.another(), forever, redsync.WithRetryDelay(time.Hour))
			done := make(chan error, 1)
			go func() { done <- waits.Lock() }()
			time.Sleep(2 * time.Second)
			operator := kind.rival(f.Redsync)
			start := time.Now()
			f.forces(operator)
			require.NoError(f, <-done)
			assert.LessOrEqual(f, time.Since(start), 10*ms)
			f.unlock(waits)
			<-holder.Lost()
		})
	}
}

// An extension that heals is under way while the lock is released by force, and takes it back on some nodes. The holder,
// which hears of the force, gives these up, also if the user has seen the value. Readers share a hold, and the extension is
// that of one of them: all are told.
func TestAHolderThatHearsOfTheForceTakesNothingBack(t *testing.T) {
	for name, c := range map[string]struct {
		option redsync.Option
		holds  int
		seen   bool
	}{"plain": {redsync.WithTries(1), 1, false}, "seen": {redsync.WithTries(1), 1, true}, "readers": {withShared, 3, false}} {
		step := time.Duration(testlength.InGate(8, 4, 1, 1)) * ms
		for offset := -12 * ms; offset <= 12*ms; offset += step {
			playAs(t, fmt.Sprint(name, offset), func(f field) {
				rs := f.newcomer(0, everywhere(3*ms))
				f.closes(rs)
				f.as(rs).meet()
				start := time.Now()
				var all []*redsync.Mutex
				for range c.holds {
					m := locked(f, rs.NewMutex("lock", append(heals(), c.option, redsync.WithExpiry(6*time.Second))...))
					if c.seen {
						_ = m.Value()
					}
					all = append(all, m)
				}
				operator := f.NewMutex("lock")
				h := f.holderOf(operator)
				time.Sleep(time.Until(start.Add(2*time.Second + offset))) // the watchdog extends
				f.releases(operator, h)
				time.Sleep(100 * ms)
				for i, m := range all {
					require.ErrorIs(f, m.Err(), redsync.ErrForced, "holder %d", i)
				}
				f.keysOn(0)
				next := obtained(f, f.another().NewMutex("lock"))
				f.unlock(next)
			})
		}
	}
}

// heals returns the options of a holder that hears of a force, and heals.
func heals() opts {
	return opts{redsync.WithOwner("w"), withWatchdog, withSetNXOnExtend}
}

// A holder that heals and does not hear of the force takes the lock back, on all nodes. A second force is one too many for it
// if another has the lock by then.
func TestAHolderThatHealsAndDoesNotHearTakesTheLockBack(t *testing.T) {
	play(t, func(f field) {
		m := locked(f, f.another().NewMutex("a", withWatchdog, withSetNXOnExtend))
		operator := f.NewMutex("a")
		h := f.holderOf(operator)
		f.releases(operator, h)
		assert.Equal(f, redsync.StateFree, f.inspected(operator).State)
		time.Sleep(4 * time.Second)
		again := f.holderOf(operator)
		assert.Equal(f, h.ID, again.ID)
		alive(f, m)
		f.releases(operator, again)
		next := obtained(f, f.another().NewMutex("a", withWatchdog))
		time.Sleep(4 * time.Second)
		isOver(f, m, redsync.ErrLockLost)
		alive(f, next)
		f.unlock(next)
	})
}

// A lock that is too young to listen is released by force, and then its extension sets it again. What the nodes have told
// that extension counts when the holder begins to listen.
func TestAYoungHolderThatHealsTakesNothingBack(t *testing.T) {
	for _, held := range []time.Duration{100 * ms, 600 * ms, 700 * ms} {
		play(t, func(f field) {
			m := f.another().NewMutex("a", append(heals(), redsync.WithExpiry(2*time.Second))...)
			start := time.Now()
			locked(f, m)
			time.Sleep(held)
			operator := f.NewMutex("a")
			f.forces(operator)
			time.Sleep(time.Until(start.Add(1100 * ms)))
			synctest.Wait()
			isOver(f, m, redsync.ErrForced)
			assert.Empty(f, f.nodes[0].Keys())
		})
	}
}

// The operator is far from most nodes. Their messages come when the holder has already asked, because of that of the first.
func TestAMessageWhileTheHolderAsksMakesItAskAgain(t *testing.T) {
	play(t, func(f field) {
		rs := f.newcomer(0, everywhere(3*ms))
		far := f.newcomer(1, func(_, node int) time.Duration { return time.Duration(min(node, 1)) * 8 * ms })
		f.closes(rs, far)
		f.as(rs).meet()
		f.as(far).meet()
		m := locked(f, rs.NewMutex("a", redsync.WithOwner("w"), redsync.WithExpiry(time.Minute)))
		time.Sleep(2 * time.Second)
		f.forces(far.NewMutex("a"))
		time.Sleep(200 * ms)
		isOver(f, m, redsync.ErrForced)
	})
}
