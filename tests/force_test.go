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
	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
	"github.com/seed14bd9ef4/redsync/observe"
	"github.com/seed14bd9ef4/redsync/redsynctest"
)

// This file shows what ForceUnlock releases, and who learns of it when.

// holderOf returns the only holder that m.Inspect finds.
func (u user) holderOf(m *redsync.Mutex) redsync.Holder {
	s := u.inspected(m)
	require.Len(u, s.Holders, 1)
	return s.Holders[0]
}

// forces releases the only holder that operator finds.
func (u user) forces(operator *redsync.Mutex) {
	u.releases(operator, u.holderOf(operator))
}

// channelOf returns the channel on which a holder hears of a force.
func channelOf(h redsync.Holder) string { return fmt.Sprintf("redsync:%016d", h.Process) }

// The next in line has the lock at once.
func TestForceUnlockReleasesALockOfEachKind(t *testing.T) {
	parallelComputing(t)
	testlength.NotShort(t)
	for _, kind := range lockKinds {
		for _, owner := range []opts{nil, {withOwner("worker-7@host")}} {
			playAs(t, kind.column, func(f field) {
				holder := locked(f, kind.lock(f.another(owner...), withWatchdog))
				waits := f.begins(kind.rival(f.another(), patient()...))
				sleep(2 * sec)
				operator := kind.lock(f.Redsync)
				h := f.holderOf(operator)
				f.releases(operator, h)
				f.within(waits, 10*ms)
				f.unlock(waits.Mutex)
				synctest.Wait()
				f.have(0, kind.keys...)
				err := operator.ForceUnlock(f.Context(), h)
				errorIs(f, err, redsync.ErrNotHeld)
				require.NotErrorIs(f, err, redsync.ErrNoQuorum)
				<-holder.Lost()
				failsWith(f, holder.Unlock, redsync.ErrLockAlreadyExpired)
			})
		}
	}
}

// Who learns when: the table of ForceUnlock. A force takes keys away that would stay after Unlock, or after a loss.
func TestWhenTheHolderLearnsOfTheForce(t *testing.T) {
	parallelComputing(t)
	const trip = 2 * hop
	owner := withOwner("w")
	for name, c := range map[string]struct {
		options      opts
		held, within time.Duration // held is for how long by then
	}{
		"owner, held for long":                  {opts{owner, withWatchdog}, 5 * sec, 2 * trip},
		"owner that heals, with two nodes down": {heals(), 5 * sec, 2 * trip},
		"owner without a watchdog":              {opts{owner, withExpiry(minute)}, 5 * sec, 2 * trip},
		"owner with a minimal hold":             {append(heals(), withMinHold(8*sec)), 5 * sec, 2 * trip},
		"owner with a lock delay":               {append(heals(), withLockDelay(5*sec)), 5 * sec, 2 * trip},
		"owner, held for a moment":              {opts{owner, withWatchdog}, 100 * ms, sec},
		"watchdog without an owner":             {opts{withWatchdog}, 5 * sec, guard/3 + 2*trip},
		"neither":                               {nil, sec, guard},
	} {
		playAs(t, name, func(f field) {
			r := &redsynctest.Recorder{}
			holder := locked(f, f.far().With(recordsTo(r)).NewMutex("lock", c.options...))
			sleep(c.held)
			down := 0
			if strings.HasSuffix(name, "down") {
				f.kill(1, 3)
				down = 2 // they have their keys
			}
			sleep(ms)
			f.forces(f.NewMutex("lock"))
			f.keysOn(down)
			start := time.Now()
			<-holder.Lost()
			assert.LessOrEqual(f, time.Since(start), c.within)
			err := holder.Err()
			errorIs(f, err, redsync.ErrLockLost)
			assert.Equal(f, strings.HasPrefix(name, "owner"), errors.Is(err, redsync.ErrForced), "%v", err)
			_, told := only[observe.Lost](f.T, r)
			assert.Equal(f, err, told)
			sleep(10 * sec)
			assert.Empty(f, f.nodes[0].Keys(), "nobody has taken it back")
			failsWith(f, holder.Unlock, redsync.ErrLockAlreadyExpired)
		})
	}
}

// A process that listens already asks the nodes for each hold once that has lasted a second, because it has not heard of a
// force before. A hold that is shorter asks nobody.
func TestAHoldThatLastsAsksOnce(t *testing.T) {
	playMet(t, func(f field) {
		rs := f.another(withOwner("w"))
		long := locked(f, rs.NewMutex("long", withExpiry(minute)))
		sleep(2 * sec)
		before, connections := f.traffic(), f.connections()
		m := locked(f, rs.NewMutex("a"))
		sleep(900 * ms)
		f.hasSent(before + 5)
		f.forces(f.NewMutex("a"))
		sleep(99 * ms)
		require.NoError(f, m.Err(), "it was too young to hear of it")
		sleep(ms)
		synctest.Wait()
		isOver(f, m, redsync.ErrForced)
		assert.Equal(f, connections, f.connections(), "the process listens on one connection to each node")
		before = f.traffic()
		sleep(sec)
		f.hasSent(before, "it has released all")
		f.unlock(long)
	})
}

// A message that is not true ends nothing, and very many make the holder ask 20 times a second at most.
func TestAFalseMessageOfAForceLosesNothing(t *testing.T) {
	play(t, func(f field) {
		m := f.theirs("a", heals()...)
		sleep(1500 * ms)
		h := f.holderOf(f.NewMutex("a"))
		before := f.nodes[1].Commands("evalsha")
		for range 1000 {
			for _, of := range []string{h.ID, "00000000", ""} {
				f.nodes[0].Publish(channelOf(h), "forced "+of)
			}
			sleep(ms)
		}
		synctest.Wait()
		asked := f.nodes[1].Commands("evalsha") - before
		assert.Positive(f, asked)
		assert.LessOrEqual(f, asked, 28, "20, one for each node, and extensions")
		alive(f, m)
		f.unlock(m)
	})
}

// The nodes cannot reach the holder while it is forced. When it can hear them again, it asks. Nodes may as well have lost
// their data, so it does not speak of a force.
func TestAForceThatWasNotHeardIsFoundAfterwards(t *testing.T) {
	play(t, func(f field) {
		m := f.theirs("a", withOwner("w"), withExpiry(minute))
		sleep(2 * sec)
		for _, n := range f.nodes {
			n.LoseMessages(1)
		}
		f.forces(f.NewMutex("a"))
		sleep(sec)
		alive(f, m)
		for _, n := range f.nodes[:3] {
			n.Disconnect()
		}
		sleep(5 * sec)
		isOver(f, m, redsync.ErrLockLost)
		require.NotErrorIs(f, m.Err(), redsync.ErrForced)
	})
}

// What a Mutex cannot release, it says, and sends nothing.
func TestForceUnlockOfWhatTheMutexCannotRelease(t *testing.T) {
	play(t, func(f field) {
		permits := withPermits(2)
		all, three, ofPermit := locked(f, f.another().NewMultiMutex(both)), f.NewMultiMutex([]string{"a", "b", "c"}), f.NewMutex("p", permits)
		several := f.holderOf(three)
		assert.Equal(f, both, several.Names)
		f.theirs("p", permits)
		permit := f.holderOf(ofPermit)
		synctest.Wait()
		traffic := f.nodes[0].Traffic()
		for text, c := range map[string]struct {
			operator *redsync.Mutex
			holder   redsync.Holder
			ctx      context.Context //nolint:containedctx // of the operator
		}{
			`the holder also has "b"`: {f.NewMutex("a"), several, f.Context()},
			"has permits":             {f.NewMutex("p"), permit, f.Context()},
			"has a lock":              {f.NewMutex("a", permits), several, f.Context()},
			"that Inspect or Watch":   {f.NewMutex("a"), redsync.Holder{Names: []string{"a"}}, f.Context()},
			"context canceled":        {f.NewMultiMutex(both), several, parentOf(nil)},
		} {
			require.ErrorContains(f, c.operator.ForceUnlock(c.ctx, c.holder), text)
		}
		synctest.Wait()
		assert.Equal(f, traffic, f.nodes[0].Traffic())
		alive(f, all)

		f.releases(three, several)
		f.releases(ofPermit, permit)
		synctest.Wait()
		assert.Empty(f, f.nodes[0].Keys())
	})
}

// One of several readers, and one of several holders of permits, is released. The others go on.
func TestForceUnlockReleasesOneOfSeveral(t *testing.T) {
	for _, option := range []redsync.Option{withShared, withPermits(3)} {
		play(t, func(f field) {
			var all []*redsync.Mutex
			for i := range 3 {
				all = append(all, f.theirs("a", option, withOwner(fmt.Sprint("w", i)), withWatchdog))
			}
			sleep(2 * sec)
			operator := f.NewMutex("a", option)
			for _, h := range f.inspected(operator).Holders {
				if h.Owner == "w1" {
					f.releases(operator, h)
				}
			}
			sleep(10 * ms) // the nodes answer the last question in some order
			isOver(f, all[1], redsync.ErrForced)
			assert.Len(f, f.inspected(operator).Holders, 2)
			sleep(20 * sec)
			f.unlock(all[0])
			f.unlock(all[2])
		})
	}
}

// Another has the lock by then: it is left alone.
func TestForceUnlockOfAFormerHolder(t *testing.T) {
	play(t, func(f field) {
		m, operator := locked(f, f.NewMutex("a")), f.another().NewMutex("a")
		h := f.holderOf(operator)
		f.unlock(m)
		other := f.theirs("a", withWatchdog)
		err := operator.ForceUnlock(f.Context(), h)
		isTaken(f, err)
		require.NotErrorIs(f, err, redsync.ErrNotHeld)
		f.unlock(other)

		locked(f, m)
		h = f.holderOf(operator)
		f.freeze(majority...)
		errorIs(f, operator.ForceUnlock(f.Context(), h), redsync.ErrNoQuorum)
		f.thaw(majority...)
		sleep(5 * sec)
		assert.Equal(f, redsync.StateFree, f.inspected(operator).State, "the release goes on")
	})
}

// An extension that heals is under way while the lock is released by force, and takes it back on some nodes. The holder,
// which hears of the force, gives these up, also if the user has seen the value. Readers share a hold, and the extension is
// that of one of them: all are told.
func TestAHolderThatHearsOfTheForceTakesNothingBack(t *testing.T) {
	parallelComputing(t)
	testlength.NotShort(t)
	for name, option := range map[string]redsync.Option{"plain": forever, "seen": forever, "readers": withShared} {
		step := time.Duration(testlength.InGate(8, 4, 2, 1)) * ms
		for offset := -12 * ms; offset <= 12*ms; offset += step {
			playAs(t, fmt.Sprint(name, offset), func(f field) {
				rs := f.newcomer(0, everywhere(3*ms)).With(heals()...).With(withExpiry(6 * sec))
				f.closes(rs)
				f.as(rs).meet()
				start := time.Now()
				all := []*redsync.Mutex{locked(f, rs.NewMutex("lock", option))}
				switch name {
				case "seen":
					_ = all[0].Value()
				case "readers":
					all = append(all, locked(f, rs.NewMutex("lock", option)), locked(f, rs.NewMutex("lock", option)))
				}
				operator := f.NewMutex("lock")
				h := f.holderOf(operator)
				sleep(time.Until(start.Add(2*sec + offset))) // the watchdog extends
				f.releases(operator, h)
				sleep(100 * ms)
				for _, m := range all {
					isOver(f, m, redsync.ErrForced)
				}
				f.keysOn(0)
				f.unlock(obtained(f, f.another().NewMutex("lock")))
			})
		}
	}
}

// heals returns the options of a holder that hears of a force, and heals.
func heals() opts {
	return opts{withOwner("w"), withWatchdog, withSetNXOnExtend}
}

// A holder that heals and does not hear of the force takes the lock back, on all nodes. A second force is one too many for it
// if another has the lock by then.
func TestAHolderThatHealsAndDoesNotHearTakesTheLockBack(t *testing.T) {
	play(t, func(f field) {
		m, operator := f.theirs("a", withWatchdog, withSetNXOnExtend), f.NewMutex("a")
		h := f.holderOf(operator)
		f.releases(operator, h)
		assert.Equal(f, redsync.StateFree, f.inspected(operator).State)
		sleep(4 * sec)
		again := f.holderOf(operator)
		assert.Equal(f, h.ID, again.ID)
		alive(f, m)
		f.releases(operator, again)
		next := f.theirs("a", withWatchdog)
		sleep(4 * sec)
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
			m := f.theirs("a", append(heals(), withExpiry(2*sec))...)
			sleep(held)
			f.forces(f.NewMutex("a"))
			sleep(1100*ms - held)
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
		m := locked(f, rs.NewMutex("a", withOwner("w"), withExpiry(minute)))
		sleep(2 * sec)
		f.forces(far.NewMutex("a"))
		sleep(200 * ms)
		isOver(f, m, redsync.ErrForced)
	})
}

// What follows attacks ForceUnlock, and those who hear of it.

// Nodes restart without data. A hold that heals survives that, with an owner as without: no message has come.
func TestARestartIsNoForce(t *testing.T) {
	for _, nodes := range [][]int{majority, allNodes} {
		play(t, func(f field) {
			m := f.theirs("lock", heals()...)
			sleep(2 * sec)
			f.reboot(true, nodes...)
			sleep(20 * sec)
			alive(f, m)
		})
	}
}

// The context of the operator ends at each moment: the release goes on.
func TestForceUnlockGoesOnAfterItsContext(t *testing.T) {
	for at := time.Duration(0); at < 30*ms; at += time.Duration(testlength.InGate(7, 7, 3, 1)) * ms {
		play(t, func(f field) {
			m := f.theirs("lock", withOwner("w"), withWatchdog)
			sleep(1500 * ms)
			h := f.holderOf(f.NewMutex("lock"))
			a := f.newcomer(0, everywhere(10*ms))
			f.closes(a)
			ctx, start := limited(f, at), time.Now()
			_ = a.NewMutex("lock").ForceUnlock(ctx, h)
			assert.LessOrEqual(f, time.Since(start), at+ms)
			sleep(sec)
			if at > 0 {
				isOver(f, m, redsync.ErrForced)
				f.keysOn(0)
			}
		})
	}
}

// A value that one node alone has is cleared away there. The holder of the lock is left alone.
func TestForceUnlockOfAValueWithoutAQuorum(t *testing.T) {
	play(t, func(f field) {
		f.occupy("lock", 0)
		m := f.theirs("lock", withOwner("w"), withWatchdog)
		operator := f.NewMutex("lock")
		_ = operator.ForceUnlock(f.Context(), f.inspected(operator).Nodes[0].Holders[0])
		sleep(10 * sec)
		v, _ := f.nodes[0].Get("lock")
		assert.NotEqual(f, "another's", v)
		alive(f, m)
	})
}

// A megabyte on the channel ends nothing, and the next message is heard.
func TestVeryLongMessagesOfAForceEndNothing(t *testing.T) {
	play(t, func(f field) {
		m := f.theirs("lock", heals()...)
		sleep(1500 * ms)
		h := f.holderOf(f.NewMutex("lock"))
		for range testlength.InGate(2, 3, 15, 50) {
			for _, message := range []string{
				"forced " + strings.Repeat("x", 1<<20), "forced " + h.ID + strings.Repeat(" ", 1<<20), strings.Repeat("forced ", 1<<17),
			} {
				f.nodes[0].Publish(channelOf(h), message)
			}
		}
		sleep(10 * sec)
		alive(f, m)
		f.forces(f.NewMutex("lock"))
		sleep(100 * ms)
		isOver(f, m, redsync.ErrForced)
	})
}

// The holder asks the nodes because of a message. Close does not wait for that, and releases the lock.
func TestCloseWhileTheHolderAsks(t *testing.T) {
	for _, asks := range []time.Duration{0, 5 * ms, 20 * ms, 60 * ms} {
		play(t, func(f field) {
			rs := f.far()
			locked(f, rs.NewMutex("lock", heals()...))
			sleep(1500 * ms)
			h := f.holderOf(f.NewMutex("lock"))
			f.freeze(majority...)
			f.nodes[3].Publish(channelOf(h), "forced "+h.ID)
			sleep(asks)
			f.thaw(majority...)
			start := time.Now()
			shut(f, rs)
			assert.Less(f, time.Since(start), sec)
			f.keysOn(0)
		})
	}
}
