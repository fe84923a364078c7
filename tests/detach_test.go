package redsync_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/fortests"
	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
	"github.com/seed14bd9ef4/redsync/observe"
	"github.com/seed14bd9ef4/redsync/redsynctest"
)

// This file tests locks that are given away.

func TestDetachGivesTheLockAway(t *testing.T) {
	for name, options := range map[string]opts{
		"default": nil,
		"watched": {withWatchdog},
		"healing": {withWatchdog, withSetNXOnExtend},
		"fenced":  {withFencing, withWatchdog},
	} {
		playAs(t, name, func(f field) {
			other, m := f.another(), f.held(options...)
			want := redsync.Sequencer{Name: "lock", Token: m.Fence(), Value: fortests.Value(m)}
			lost, start, before := m.Lost(), time.Now(), f.traffic()
			assert.Equal(f, want, f.detaches(m))
			took(f, start, 0)
			f.isIdle(m)
			f.hasSent(before, "Detach sends nothing")

			shut(f, f.Redsync)
			given := other.NewMutex("lock", withValue(want.Value), withWatchdog)
			f.confirms(given.Extend())
			sleep(minute)
			alive(f, given)
			f.keysOn(5)
			assert.True(f, open(lost))
			f.unlocks(given)
		})
	}
}

// Nobody adopts the lock, so its keys expire.
func TestDetachedAndNotAdoptedRunsOut(t *testing.T) {
	observingKit(t, func(k kit, r *redsynctest.Recorder) {
		m := k.held(withWatchdog)
		sleep(999 * ms)
		k.detaches(m)
		got, _ := only[observe.Detached](k.T, r)
		assert.Equal(k, observe.Detached{Name: "lock", Mode: observe.Plain, Held: sec, Left: validity - sec}, got)
		sleep(7 * sec)
		k.nothingLeft()
		obtained(k, m)
		k.unlocks(m)
	})
}

func TestDetachFails(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(f field, m *redsync.Mutex)
		want  []error
	}{
		"canceled": {func(field, *redsync.Mutex) {}, []error{context.Canceled, errWork}},
		"unlocked": {func(f field, m *redsync.Mutex) { f.unlock(m) }, []error{redsync.ErrNotHeld}},
		"expired":  {func(field, *redsync.Mutex) { sleep(validity) }, []error{redsync.ErrLockAlreadyExpired}},
		"lost": {func(f field, m *redsync.Mutex) {
			f.lose(majority...)
			_, _ = m.Valid()
		}, []error{redsync.ErrLockLost, redsync.ErrLockAlreadyExpired}},
		"closed": {func(f field, _ *redsync.Mutex) { shut(f, f.Redsync) }, []error{redsync.ErrClosed}},
	} {
		playAs(t, name, func(f field) {
			m, ctx := f.held(), f.Context()
			c.spoil(f, m)
			if name == "canceled" {
				ctx = parentOf(errWork)
			}
			err, before := m.Err(), f.traffic()
			s, failed := m.Detach(ctx)
			errorIs(f, failed, c.want...)
			assert.Zero(f, s)
			assert.Equal(f, err, m.Err(), "a Detach that fails leaves the Mutex as it was")
			assert.Equal(f, name == "canceled", m.Remaining() > 0)
			f.hasSent(before)
		})
	}
	play(t, func(f field) {
		for want, m := range map[error]*redsync.Mutex{
			redsync.ErrNotHeld: f.NewMutex("lock", withValue("not extended")), redsync.ErrNoPools: {},
		} {
			_, err := m.Detach(f.Context())
			errorIs(f, err, want)
		}
	})
}

// One node has not answered yet when the lock is given away. The receiver unlocks it. No key may appear on that node
// afterwards.
func TestDetachWaitsForTheAnswersOfSlowNodes(t *testing.T) {
	for name, c := range map[string]struct {
		extends             bool
		delay, limit, waits time.Duration // limit is that of the context
	}{
		"an acquire":                       {false, 200 * ms, hour, 200 * ms},
		"an extension that heals":          {true, 200 * ms, hour, 200 * ms},
		"no longer than the node deadline": {false, 2 * sec, hour, 400 * ms},
		"no longer than its context":       {false, 2 * sec, 100 * ms, 100 * ms},
	} {
		playMetAs(t, name, func(f field) {
			other, m := f.another(), f.NewMutex("lock", withSetNXOnExtend)
			command := "set"
			if c.extends {
				command = "evalsha"
				locked(f, m)
				sleep(ms)
				f.confirms(m.Extend()) // the nodes know the script
				sleep(ms)
			}
			f.nodes[4].On(command, 1, embedded.Fault{Delay: c.delay})
			if c.extends {
				f.confirms(m.Extend())
			} else {
				locked(f, m)
			}
			start := time.Now()
			s, err := m.Detach(limited(f, c.limit))
			require.NoError(f, err)
			took(f, start, c.waits)
			f.unlock(other.NewMutex("lock", withValue(s.Value)))
			came := false
			for range 300 {
				sleep(10 * ms)
				came = came || f.nodes.Keys("lock") > 0
			}
			assert.Equal(f, c.waits < c.delay, came, "whether a late command set a key after the Unlock")
			f.keysOn(0) // the release is repeated until no key is left
		})
	}
}

// If the value was shown, the slow node keeps its key.
func TestDetachWhoseValidityEndsWhileItWaits(t *testing.T) {
	for shown, left := range map[bool]int{true: 1, false: 0} {
		observingKit(t, func(k kit, r *redsynctest.Recorder) {
			m := k.NewMutex("lock", withExpiry(sec), withNodeTimeout(400*ms))
			k.freeze(4) // as a whole: a single connection that is slow would be replaced
			time.AfterFunc(1200*ms, func() { k.thaw(4) })
			locked(k, m)
			if shown {
				_ = m.Value()
			}
			lost := m.Lost()
			sleep(800 * ms)
			start := time.Now()
			s, err := m.Detach(k.Context())
			took(k, start, 400*ms)
			errorIs(k, err, redsync.ErrLockLost, redsync.ErrLockAlreadyExpired)
			assert.Zero(k, s)
			assert.False(k, open(lost))
			isOver(k, m, redsync.ErrNotHeld)
			_, told := only[observe.Lost](k.T, r)
			errorIs(k, told, redsync.ErrLockLost)
			assert.Empty(k, redsynctest.Events[observe.Detached](r))
			sleep(100 * ms)
			assert.Equal(k, left, k.keys("lock"), "shown: %v", shown)
		})
	}
}

// The place in the queues by which the lock was acquired goes.
func TestDetachLeavesTheQueues(t *testing.T) {
	playMet(t, func(f field) {
		first := locked(f, f.another().NewMutex("lock"))
		holder := f.inLine(withFair)
		f.unlock(first)
		f.within(holder, sec)
		f.detaches(holder.Mutex)
		synctest.Wait()
		f.nobodyWaits()
	})
}

// Whatever calls run at the same time as Detach, the lock ends exactly once.
func TestDetachAmongOtherCalls(t *testing.T) {
	for i := range testlength.InGate(20, 20, 40, 100) {
		play(t, func(f field) {
			m := f.held(withWatchdog, withSetNXOnExtend)
			var wg sync.WaitGroup
			var unlocked bool
			var s redsync.Sequencer
			wg.Go(func() { unlocked, _ = m.Unlock() })
			wg.Go(func() { s, _ = m.Detach(f.Context()) })
			wg.Go(func() { _, _ = m.Extend() })
			wg.Go(func() { _ = m.TryLock() })
			wg.Go(func() { _, _ = m.Value(), m.Sequencer() })
			if i%2 == 1 {
				wg.Go(func() { _ = f.Close(f.Context()) })
			}
			wg.Wait()
			_, _ = m.Unlock()
			synctest.Wait()
			if s.Value != "" { // it was detached
				assert.False(f, unlocked && m.Value() == s.Value)
				value, err := f.nodes[0].Get("lock")
				require.NoError(f, err)
				assert.Equal(f, s.Value, value)
			}
		})
	}
}
