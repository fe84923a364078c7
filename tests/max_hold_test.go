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
		limit := 20 * sec
		start := time.Now()
		m := f.locks(withMaxHold(limit), withWatchdog)
		lost := m.Lost()
		for range 19 {
			time.Sleep(sec)
			alive(f, m)
			assert.LessOrEqual(f, m.Until().Sub(start), limit)
		}
		assert.Equal(f, limit, m.Until().Sub(start)) // the last extension is shortened, not left out
		before := f.traffic()
		_, err := m.Extend()
		errorIs(f, err, redsync.ErrExtendFailed, redsync.ErrMaxHold)
		require.NotErrorIs(f, err, redsync.ErrLockLost)
		alive(f, m) // the lock is still held
		f.hasSent(before, "Extend sends nothing")
		<-lost
		took(f, start, limit)
		errorIs(f, m.Err(), redsync.ErrLockLost, redsync.ErrMaxHold, redsync.ErrLockAlreadyExpired)
		failsWith(f, m.Extend, redsync.ErrLockAlreadyExpired, redsync.ErrMaxHold)
		time.Sleep(drift + ms)
		f.keysOn(0) // the keys run out one drift after Until
		f.hasSent(before)
	})
}

func TestMaxHoldShorterThanTheExpiryShortensTheKeys(t *testing.T) {
	play(t, func(f field) {
		start := time.Now()
		m := f.locks(withMaxHold(sec), withLockDelay(minute))
		synctest.Wait()
		assert.Equal(f, sec, m.Until().Sub(start))
		for _, n := range f.nodes {
			assert.Equal(f, minute+sec+drift, n.TTL("lock"))
		}
	})
}

func TestMaxHoldCutsAnAdoptedLock(t *testing.T) {
	for _, limit := range []time.Duration{5 * sec, validity} {
		onKit(t, func(k kit) {
			m := k.NewMutex("lock", withValue(k.held().Value()), withMaxHold(limit))
			start := time.Now()
			k.extends(m)
			assert.Equal(k, limit, m.Until().Sub(start))
			<-m.Lost()
			took(k, start, limit)
			isOver(k, m, redsync.ErrMaxHold)
		})
	}
}
