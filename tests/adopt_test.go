package redsync_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
)

// This file shows how a lock is adopted by its value: with WithValue, and by the Extend that takes the lock
// over.

func TestMutexAdoptedUnlockHasNoTimeCondition(t *testing.T) {
	onKit(t, func(k kit) {
		m := k.held(redsync.WithExpiry(time.Hour))
		adopted := k.NewMutex("lock", redsync.WithValue(m.Value()), redsync.WithExpiry(time.Second))
		time.Sleep(time.Minute)
		k.unlock(adopted)
		failsWith(k, adopted.Unlock, redsync.ErrNotHeld)
	})
}

// If the lock of an adopted value has expired, another process may hold the lock by now. So not even an Extend with
// WithSetNXOnExtend sets missing keys.
func TestMutexAdoptedHealsNothing(t *testing.T) {
	play(t, func(f field) {
		for _, alive := range []int{0, 2, 3} {
			for _, n := range f.nodes[:alive] {
				require.NoError(f, n.Set("lock", "v"))
				n.SetTTL("lock", time.Minute)
			}
			m := f.NewMutex("lock", redsync.WithValue("v"), withSetNXOnExtend)
			ok, err := m.Extend()
			synctest.Wait()
			f.keysOn(alive)
			if alive < 3 {
				assert.False(f, ok)
				require.ErrorIs(f, err, redsync.ErrLockAlreadyExpired)
				continue
			}
			require.NoError(f, err)
			assert.True(f, ok)
			f.confirms(m.Extend())
			synctest.Wait()
			assert.Equal(f, 5, f.nodes.Keys("lock"), "after the first Extend, the lock is held, and later ones set missing keys")
		}
	})
}
