package redsync_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/testlength"
)

// This file attacks ForceUnlock, and those who hear of it.

// Nodes restart without data. A hold that heals survives that, with an owner as without: no message has come.
func TestARestartIsNoForce(t *testing.T) {
	for _, nodes := range [][]int{majority, allNodes} {
		play(t, func(f field) {
			m := f.theirs("lock", heals()...)
			time.Sleep(2 * sec)
			f.reboot(true, nodes...)
			time.Sleep(20 * sec)
			alive(f, m)
		})
	}
}

// The context of the operator ends at each moment: the release goes on.
func TestForceUnlockGoesOnAfterItsContext(t *testing.T) {
	for at := time.Duration(0); at < 30*ms; at += time.Duration(testlength.InGate(7, 7, 1, 1)) * ms {
		play(t, func(f field) {
			m := f.theirs("lock", withOwner("w"), withWatchdog)
			time.Sleep(1500 * ms)
			h := f.holderOf(f.NewMutex("lock"))
			a := f.newcomer(0, everywhere(10*ms))
			f.closes(a)
			ctx, start := limited(f, at), time.Now()
			_ = a.NewMutex("lock").ForceUnlock(ctx, h)
			assert.LessOrEqual(f, time.Since(start), at+ms)
			time.Sleep(sec)
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
		time.Sleep(10 * sec)
		v, _ := f.nodes[0].Get("lock")
		assert.NotEqual(f, "another's", v)
		alive(f, m)
	})
}

// A megabyte on the channel ends nothing, and the next message is heard.
func TestVeryLongMessagesOfAForceEndNothing(t *testing.T) {
	play(t, func(f field) {
		m := f.theirs("lock", heals()...)
		time.Sleep(1500 * ms)
		h := f.holderOf(f.NewMutex("lock"))
		for range testlength.InGate(2, 3, 50, 50) {
			for _, message := range []string{
				"forced " + strings.Repeat("x", 1<<20), "forced " + h.ID + strings.Repeat(" ", 1<<20), strings.Repeat("forced ", 1<<17),
			} {
				f.nodes[0].Publish(channelOf(h), message)
			}
		}
		time.Sleep(10 * sec)
		alive(f, m)
		f.forces(f.NewMutex("lock"))
		time.Sleep(100 * ms)
		isOver(f, m, redsync.ErrForced)
	})
}

// The holder asks the nodes because of a message. Close does not wait for that, and releases the lock.
func TestCloseWhileTheHolderAsks(t *testing.T) {
	for _, asks := range []time.Duration{0, 5 * ms, 20 * ms, 60 * ms} {
		play(t, func(f field) {
			rs := f.far()
			locked(f, rs.NewMutex("lock", heals()...))
			time.Sleep(1500 * ms)
			h := f.holderOf(f.NewMutex("lock"))
			f.freeze(majority...)
			f.nodes[3].Publish(channelOf(h), "forced "+h.ID)
			time.Sleep(asks)
			f.thaw(majority...)
			start := time.Now()
			shut(f, rs)
			assert.Less(f, time.Since(start), sec)
			f.keysOn(0)
		})
	}
}
