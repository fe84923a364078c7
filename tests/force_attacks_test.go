package redsync_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/testlength"
)

// This file attacks ForceUnlock, and those who hear of it.

// Nodes restart without data. A hold that heals survives that, with an owner as without: no message has come.
func TestARestartIsNoForce(t *testing.T) {
	for _, nodes := range [][]int{{0, 1, 2}, {0, 1, 2, 3, 4}} {
		play(t, func(f field) {
			m := locked(f, f.another().NewMutex("lock", heals()...))
			time.Sleep(2 * time.Second)
			f.reboot(true, nodes...)
			time.Sleep(20 * time.Second)
			assert.NoError(f, m.Err(), "nodes %v", nodes)
		})
	}
}

// The context of the operator ends at each moment: the release goes on.
func TestForceUnlockGoesOnAfterItsContext(t *testing.T) {
	for ms := 0; ms < 30; ms += testlength.InGate(7, 7, 1, 1) {
		at := time.Duration(ms) * time.Millisecond
		play(t, func(f field) {
			m := locked(f, f.another().NewMutex("lock", redsync.WithOwner("w"), withWatchdog))
			time.Sleep(1500 * time.Millisecond)
			h := f.holderOf(f.NewMutex("lock"))
			a := f.newcomer(0, everywhere(10*time.Millisecond))
			f.closes(a)
			ctx := limited(f, at)
			start := time.Now()
			_ = a.NewMutex("lock").ForceUnlock(ctx, h)
			assert.LessOrEqual(f, time.Since(start), at+time.Millisecond)
			time.Sleep(time.Second)
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
		m := f.another(redsync.WithOwner("w")).NewMutex("lock", withWatchdog)
		require.NoError(f, f.nodes[0].Set("lock", "Tq2NfQ6zYQ1dUt4QkPJqkA=="))
		f.nodes[0].SetTTL("lock", time.Minute)
		locked(f, m)
		operator := f.NewMutex("lock")
		s := f.inspected(operator)
		h := s.Nodes[0].Holders[0]
		_ = operator.ForceUnlock(f.Context(), h)
		time.Sleep(10 * time.Second)
		v, _ := f.nodes[0].Get("lock")
		assert.NotEqual(f, "Tq2NfQ6zYQ1dUt4QkPJqkA==", v)
		alive(f, m)
	})
}

// A megabyte on the channel ends nothing, and the next message is heard.
func TestVeryLongMessagesOfAForceEndNothing(t *testing.T) {
	play(t, func(f field) {
		m := locked(f, f.another().NewMutex("lock", heals()...))
		time.Sleep(1500 * time.Millisecond)
		h := f.holderOf(f.NewMutex("lock"))
		channel := fmt.Sprintf("redsync:%016d", h.Process)
		c := f.nodes[0].Client()
		for range testlength.InGate(2, 3, 50, 50) {
			require.NoError(f, c.Publish(f.Context(), channel, "forced "+strings.Repeat("x", 1<<20)).Err())
			require.NoError(f, c.Publish(f.Context(), channel, "forced "+h.ID+strings.Repeat(" ", 1<<20)).Err())
			require.NoError(f, c.Publish(f.Context(), channel, strings.Repeat("forced ", 1<<17)).Err())
		}
		_ = c.Close()
		time.Sleep(10 * time.Second)
		alive(f, m)
		operator := f.NewMutex("lock")
		f.forces(operator)
		time.Sleep(100 * time.Millisecond)
		isOver(f, m, redsync.ErrForced)
	})
}

// A force takes keys away that would stay after Unlock, or after a loss.
func TestForceUnlockEndsMinimalHoldAndLockDelay(t *testing.T) {
	for _, o := range []redsync.Option{redsync.WithMinHold(5 * time.Second), redsync.WithLockDelay(5 * time.Second)} {
		play(t, func(f field) {
			m := locked(f, f.another().NewMutex("lock", append(heals(), o)...))
			time.Sleep(1500 * time.Millisecond)
			operator := f.NewMutex("lock", o)
			f.forces(operator)
			time.Sleep(200 * time.Millisecond)
			synctest.Wait()
			isOver(f, m, redsync.ErrForced)
			f.keysOn(0)
		})
	}
}

// The holder asks the nodes because of a message. Close does not wait for that, and releases the lock.
func TestCloseWhileTheHolderAsks(t *testing.T) {
	for _, asks := range []time.Duration{0, 5 * ms, 20 * ms, 60 * ms} {
		play(t, func(f field) {
			rs := f.far()
			locked(f, rs.NewMutex("lock", heals()...))
			time.Sleep(1500 * time.Millisecond)
			h := f.holderOf(f.NewMutex("lock"))
			f.freeze(majority...)
			f.nodes[3].Publish(fmt.Sprintf("redsync:%016d", h.Process), "forced "+h.ID)
			time.Sleep(asks)
			f.thaw(majority...)
			start := time.Now()
			shut(f, rs)
			assert.Less(f, time.Since(start), time.Second)
			f.keysOn(0)
		})
	}
}
