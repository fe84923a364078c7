package redsync_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
)

// This file shows how WithLockDelay keeps others out.

func TestLockDelayKeepsOthersOutAfterAHolderThatVanished(t *testing.T) {
	for _, extended := range []bool{false, true} {
		play(t, func(f field) {
			gone := f.process()
			m := gone.NewMutex("lock", redsync.WithLockDelay(5*time.Second-time.Microsecond), redsync.WithSetNXOnExtend())
			start := time.Now()
			require.NoError(t, m.Lock())
			if extended {
				time.Sleep(6 * time.Second)
				start = time.Now()
				_, err := m.Extend()
				require.NoError(t, err)
			}
			assert.Equal(t, validity, m.Until().Sub(start), "the holder goes by the expiry")
			<-m.Lost()
			assert.Equal(t, validity, time.Since(start))
			other := f.NewMutex("lock", redsync.WithTries(0), waiting(start.Add(12900*time.Millisecond)))
			require.NoError(t, other.Lock())
			assert.GreaterOrEqual(t, time.Since(start), 13*time.Second)
			assert.LessOrEqual(t, time.Since(start), 13*time.Second+2*time.Millisecond)
			_ = gone.Close(f.Context())
		})
	}
}

func TestLockDelayOutlastsTheNextLockOfTheHolder(t *testing.T) {
	play(t, func(f field) {
		m := f.NewMutex("lock", redsync.WithLockDelay(5*time.Second))
		start := time.Now()
		require.NoError(t, m.Lock())
		<-m.Lost()
		var taken *redsync.ErrTaken
		require.ErrorAs(t, m.TryLock(), &taken)
		other := f.process().NewMutex("lock")
		time.Sleep(time.Until(start.Add(13*time.Second - time.Millisecond)))
		require.Equal(t, 5, f.nodes.Keys("lock"))
		require.ErrorAs(t, other.TryLock(), &taken)
		time.Sleep(time.Millisecond)
		require.NoError(t, other.TryLock())
	})
}

func TestWithoutLockDelayTheHolderLocksAgainAtOnce(t *testing.T) {
	play(t, func(f field) {
		m := f.held()
		<-m.Lost()
		require.Equal(t, 5, f.nodes.Keys("lock"), "the drift has not passed")
		require.NoError(t, m.TryLock())
	})
}

func TestLockDelayIsNoMatterAfterUnlock(t *testing.T) {
	play(t, func(f field) {
		m := f.held(redsync.WithLockDelay(time.Hour))
		_, err := m.Unlock()
		require.NoError(t, err)
		time.Sleep(time.Millisecond)
		require.NoError(t, f.process().NewMutex("lock").TryLock())
	})
}

// A node that was away while the lock was released keeps its key for the delay as
// well: the release goes on for so long.
func TestLockDelayIsReleasedToTheEnd(t *testing.T) {
	play(t, func(f field) {
		m := f.held(redsync.WithLockDelay(time.Minute))
		f.kill(0)
		_, err := m.Unlock()
		require.NoError(t, err)
		time.Sleep(50 * time.Second)
		require.Equal(t, 1, f.nodes.Keys("lock"))
		f.restart(0)
		time.Sleep(3 * time.Second)
		assert.Zero(t, f.nodes.Keys("lock"))
	})
}
