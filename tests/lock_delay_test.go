package redsync_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
)

// This file shows how WithLockDelay keeps others out.

func TestLockDelayKeepsOthersOutAfterAHolderThatVanished(t *testing.T) {
	testlength.NotShort(t)
	for _, extended := range []bool{false, true} {
		onKit(t, func(k kit) {
			gone := k.nodes.Process()
			m := gone.NewMutex("lock", withLockDelay(5*sec-time.Microsecond), withSetNXOnExtend)
			start := time.Now()
			locked(k, m)
			if extended {
				time.Sleep(6 * sec)
				start = time.Now()
				k.extends(m)
			}
			assert.Equal(k, validity, m.Until().Sub(start)) // the holder's validity follows from the expiry, not from the lock delay
			<-m.Lost()
			took(k, start, validity)
			k.locks(forever, waiting(start.Add(12900*ms)))
			assert.GreaterOrEqual(k, time.Since(start), 13*sec)
			assert.LessOrEqual(k, time.Since(start), 13*sec+2*ms)
			_ = gone.Close(k.Context())
		})
	}
}

func TestLockDelayOutlastsTheNextLockOfTheHolder(t *testing.T) {
	onKit(t, func(k kit) {
		start := time.Now()
		m := k.locks(withLockDelay(5 * sec))
		<-m.Lost()
		isTaken(k, m.TryLock())
		other := k.nodes.Process().NewMutex("lock")
		time.Sleep(time.Until(start.Add(13*sec - ms)))
		require.Equal(k, 5, k.keys("lock"))
		isTaken(k, other.TryLock())
		time.Sleep(ms)
		obtained(k, other)
	})
}

// A node that was down during Unlock keeps its key for the lock delay, too. So the release is repeated for that long.
func TestLockDelayIsReleasedToTheEnd(t *testing.T) {
	onKit(t, func(k kit) {
		m := k.held(withLockDelay(minute))
		k.down(0)
		k.unlock(m)
		time.Sleep(50 * sec)
		k.up(0)
		require.Equal(k, 1, k.keys("lock"))
		time.Sleep(3 * sec)
		k.nothingLeft()
	})
}
