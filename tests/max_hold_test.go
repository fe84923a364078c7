package redsync_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
)

// This file shows how WithMaxHold ends a hold.

func TestMaxHoldEndsAWatchedLockExactly(t *testing.T) {
	play(t, func(f field) {
		limit := 20 * time.Second
		m := f.NewMutex("lock", redsync.WithMaxHold(limit), redsync.WithWatchdog())
		start := time.Now()
		require.NoError(t, m.Lock())
		lost := m.Lost()
		for range 19 {
			time.Sleep(time.Second)
			require.NoError(t, m.Err())
			assert.LessOrEqual(t, m.Until().Sub(start), limit)
		}
		assert.Equal(t, limit, m.Until().Sub(start), "the last extension is shortened, not left out")
		before := f.traffic()
		ok, err := m.Extend()
		assert.False(t, ok)
		require.ErrorIs(t, err, redsync.ErrExtendFailed)
		require.ErrorIs(t, err, redsync.ErrMaxHold)
		require.NotErrorIs(t, err, redsync.ErrLockLost)
		require.NoError(t, m.Err(), "the lock is still held")
		assert.Equal(t, before, f.traffic(), "Extend sends nothing")
		<-lost
		assert.Equal(t, limit, time.Since(start))
		require.ErrorIs(t, m.Err(), redsync.ErrLockLost)
		require.ErrorIs(t, m.Err(), redsync.ErrMaxHold)
		require.ErrorIs(t, m.Err(), redsync.ErrLockAlreadyExpired)
		_, err = m.Extend()
		require.ErrorIs(t, err, redsync.ErrLockAlreadyExpired)
		require.ErrorIs(t, err, redsync.ErrMaxHold)
		time.Sleep(drift + time.Millisecond)
		assert.Zero(t, f.nodes.Keys("lock"), "the keys run out one drift after Until")
		assert.Equal(t, before, f.traffic())
	})
}

func TestMaxHoldShorterThanTheExpiryShortensTheKeys(t *testing.T) {
	play(t, func(f field) {
		m := f.NewMutex("lock", redsync.WithMaxHold(time.Second), redsync.WithLockDelay(time.Minute))
		start := time.Now()
		require.NoError(t, m.Lock())
		synctest.Wait()
		assert.Equal(t, time.Second, m.Until().Sub(start))
		for _, n := range f.nodes {
			assert.Equal(t, time.Minute+time.Second+drift, n.TTL("lock"))
		}
	})
}

func TestMaxHoldThatIsNotReachedIsNoCause(t *testing.T) {
	onKit(t, func(k kit) {
		m := k.held(redsync.WithMaxHold(time.Hour))
		<-m.Lost()
		require.NotErrorIs(t, m.Err(), redsync.ErrMaxHold)
		require.ErrorIs(t, m.Err(), redsync.ErrLockLost)
	})
}

func TestMaxHoldCutsAnAdoptedLock(t *testing.T) {
	for _, limit := range []time.Duration{5 * time.Second, validity} {
		onKit(t, func(k kit) {
			m := k.NewMutex("lock", redsync.WithValue(k.held().Value()), redsync.WithMaxHold(limit))
			start := time.Now()
			ok, err := m.Extend()
			require.NoError(t, err)
			assert.True(t, ok)
			assert.Equal(t, limit, m.Until().Sub(start))
			<-m.Lost()
			assert.Equal(t, limit, time.Since(start))
			require.ErrorIs(t, m.Err(), redsync.ErrMaxHold)
		})
	}
}

func TestMaxHoldIsTheCauseThoughAnExtendLingers(t *testing.T) {
	onKit(t, func(k kit) {
		m := k.NewMutex("lock", redsync.WithMaxHold(8*time.Second), redsync.WithFailFast(false))
		start := time.Now()
		require.NoError(t, m.Lock())
		k.freeze(4)
		time.Sleep(7800 * time.Millisecond)
		ok, err := m.Extend() // confirmed at once; waits for the frozen node
		assert.Equal(t, 8*time.Second, time.Since(start))
		assert.False(t, ok)
		for _, err := range []error{err, m.Err()} {
			require.ErrorIs(t, err, redsync.ErrLockLost)
			require.ErrorIs(t, err, redsync.ErrLockAlreadyExpired)
			require.ErrorIs(t, err, redsync.ErrMaxHold)
		}
	})
}
