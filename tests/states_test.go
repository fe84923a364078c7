package redsync_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/embedded"
)

// This file shows the states of a Mutex: idle, held, and over by time or by proof.

func TestMutexHeldCountsFromBeforeTheFirstRequest(t *testing.T) {
	playMet(t, func(f field) {
		for i, n := range f.nodes {
			n.On("set", 1, embedded.Fault{Delay: time.Duration(i) * 100 * ms})
		}
		start := time.Now()
		m := locked(t, f.NewMutex("lock"))
		took(t, start, 200*ms, "Lock returns when the third node has answered")
		assert.Equal(t, validity, m.Until().Sub(start))
		assert.Equal(t, 8*time.Second-282*ms, m.Remaining())
		value, err := f.nodes[0].Get("lock")
		require.NoError(t, err)
		assert.Equal(t, value, m.Value())
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
		m := f.held(redsync.WithExpiry(time.Second))
		until := m.Until()
		time.Sleep(time.Until(until))
		before := f.traffic()
		for _, name := range []string{"Extend", "Valid"} {
			ok, err := operations(m)[name]()
			assert.False(t, ok, name)
			require.ErrorIs(t, err, redsync.ErrLockAlreadyExpired, name)
			require.NotErrorIs(t, err, redsync.ErrLockLost, name)
		}
		assert.Equal(t, before, f.traffic())
		assert.Equal(t, until, m.Until())
		assert.Zero(t, m.Remaining())

		failsWith(t, m.Unlock, redsync.ErrLockAlreadyExpired)
		synctest.Wait()
		assert.Equal(t, before+5, f.traffic(), "the release goes to all nodes in the background")
		assert.Zero(t, f.nodes.Keys("lock"), "the release deletes the keys, which would have stayed for the drift")
		assert.Zero(t, m.Until())
		failsWith(t, m.Unlock, redsync.ErrNotHeld)
	})
}

func TestMutexOverByProofStaysSo(t *testing.T) {
	for _, finder := range []string{"Extend", "Valid"} {
		playAs(t, "found by "+finder, func(f field) {
			m := f.held()
			f.lose(majority...)
			ok, err := operations(m)[finder]()
			assert.False(f, ok)
			lost := func(err error) {
				f.Helper()
				require.ErrorIs(f, err, redsync.ErrLockLost)
				require.ErrorIs(f, err, redsync.ErrLockAlreadyExpired)
			}
			lost(err)
			assert.Zero(f, m.Until())
			assert.Zero(f, m.Remaining())
			before := f.traffic()
			for _, name := range []string{"Extend", "Valid"} {
				_, err := operations(m)[name]()
				lost(err)
			}
			f.hasSent(before)
			_, err = m.Unlock()
			lost(err)
			synctest.Wait()
			assert.Zero(f, f.nodes.Keys("lock"))
		})
	}
}
