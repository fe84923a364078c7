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
		onKit(t, func(k kit) {
			gone := k.nodes.Process()
			m := gone.NewMutex("lock", redsync.WithLockDelay(5*time.Second-time.Microsecond), redsync.WithSetNXOnExtend())
			start := time.Now()
			require.NoError(t, m.Lock())
			if extended {
				time.Sleep(6 * time.Second)
				start = time.Now()
				_, err := m.Extend()
				require.NoError(t, err)
			}
			assert.Equal(t, validity, m.Until().Sub(start), "the holder's validity follows from the expiry, not from the lock delay")
			<-m.Lost()
			assert.Equal(t, validity, time.Since(start))
			other := k.NewMutex("lock", redsync.WithTries(0), waiting(start.Add(12900*time.Millisecond)))
			require.NoError(t, other.Lock())
			assert.GreaterOrEqual(t, time.Since(start), 13*time.Second)
			assert.LessOrEqual(t, time.Since(start), 13*time.Second+2*time.Millisecond)
			_ = gone.Close(k.Context())
		})
	}
}

func TestLockDelayOutlastsTheNextLockOfTheHolder(t *testing.T) {
	onKit(t, func(k kit) {
		m := k.NewMutex("lock", redsync.WithLockDelay(5*time.Second))
		start := time.Now()
		require.NoError(t, m.Lock())
		<-m.Lost()
		var taken *redsync.ErrTaken
		require.ErrorAs(t, m.TryLock(), &taken)
		other := k.nodes.Process().NewMutex("lock")
		time.Sleep(time.Until(start.Add(13*time.Second - time.Millisecond)))
		require.Equal(t, 5, k.keys("lock"))
		require.ErrorAs(t, other.TryLock(), &taken)
		time.Sleep(time.Millisecond)
		require.NoError(t, other.TryLock())
	})
}

func TestWithoutLockDelayTheHolderLocksAgainAtOnce(t *testing.T) {
	onKit(t, func(k kit) {
		m := k.held()
		<-m.Lost()
		require.Equal(t, 5, k.keys("lock"), "the keys outlast Until by the drift")
		require.NoError(t, m.TryLock())
	})
}

// A node that was down during Unlock keeps its key for the lock delay, too. So the release is repeated for that long.
func TestLockDelayIsReleasedToTheEnd(t *testing.T) {
	onKit(t, func(k kit) {
		m := k.held(redsync.WithLockDelay(time.Minute))
		k.down(0)
		_, err := m.Unlock()
		require.NoError(t, err)
		time.Sleep(50 * time.Second)
		k.up(0)
		require.Equal(t, 1, k.keys("lock"))
		time.Sleep(3 * time.Second)
		k.nothingLeft()
	})
}
