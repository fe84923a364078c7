package redsync_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
)

// This file shows the states of a Mutex: idle, held, and over by time or by proof.

func TestMutexHeldCountsFromBeforeTheFirstRequest(t *testing.T) {
	playMet(t, func(f field) {
		f.delays("set")
		start := time.Now()
		m := f.locks()
		took(t, start, 20*ms) // Lock returns when the third node has answered
		assert.Equal(t, validity, m.Until().Sub(start))
		assert.Equal(t, validity-20*ms, m.Remaining())
		assert.Equal(t, must(f.nodes[0].Get("lock")), m.Value())
	})
}

func TestMutexIdleIsNotHeldAndSendsNothing(t *testing.T) {
	play(t, func(f field) {
		for _, unlocked := range []bool{false, true} {
			m := f.NewMutex("lock")
			if unlocked {
				f.unlock(locked(f, m))
				synctest.Wait()
			}
			f.silently("idle", func() {
				for name, operation := range operations(m) {
					ok, err := operation()
					assert.False(t, ok, name)
					require.ErrorIs(t, err, redsync.ErrNotHeld, name)
				}
			})
			assert.Zero(t, m.Until())
			assert.Zero(t, m.Remaining())
			assert.Empty(t, m.Value())
		}
	})
}

func TestMutexOverByTimeSaysSoWithoutAsking(t *testing.T) {
	play(t, func(f field) {
		m := f.held(oneSecond)
		until := m.Until()
		time.Sleep(time.Until(until))
		before := f.traffic()
		for _, name := range []string{"Extend", "Valid"} {
			ok, err := operations(m)[name]()
			assert.False(t, ok, name)
			require.ErrorIs(t, err, redsync.ErrLockAlreadyExpired, name)
			require.NotErrorIs(t, err, redsync.ErrLockLost, name)
		}
		f.hasSent(before)
		assert.Equal(t, until, m.Until())
		assert.Zero(t, m.Remaining())

		failsWith(t, m.Unlock, redsync.ErrLockAlreadyExpired)
		synctest.Wait()
		assert.Equal(t, before+5, f.traffic()) // the release goes to all nodes in the background
		f.keysOn(0)                            // the release deletes the keys, which would have stayed for the drift
		assert.Zero(t, m.Until())
		failsWith(t, m.Unlock, redsync.ErrNotHeld)
	})
}
