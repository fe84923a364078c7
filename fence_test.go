package redsync_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
)

func TestFenceRisesWithEachLock(t *testing.T) {
	play(t, func(f field) {
		var last uint64
		for range 5 {
			m := f.NewMutex("lock", redsync.WithFencing())
			assert.Zero(t, m.Fence())
			sets := f.commands("evalsha")
			require.NoError(t, m.Lock())
			synctest.Wait()
			assert.Equal(t, sets+5, f.commands("evalsha"), "one round trip")
			assert.Greater(t, m.Fence(), last)
			last = m.Fence()
			ok, err := m.Unlock()
			require.NoError(t, err)
			assert.True(t, ok)
			assert.Zero(t, m.Fence())
			synctest.Wait()
			for _, n := range f.nodes {
				assert.NotZero(t, n.TTL("{lock}:fence"))
			}
			time.Sleep(time.Millisecond)
		}
	})
}

func TestFenceCatchesUpWithTheRegisters(t *testing.T) {
	play(t, func(f field) {
		for i, ahead := range []string{"99999999999999999", "5", "18446744073709551000", "7", "99999999999999998"} {
			require.NoError(t, f.nodes[i].Set("{lock}:fence", ahead))
		}
		m := f.NewMutex("lock", redsync.WithFencing())
		before := f.commands("evalsha")
		require.NoError(t, m.Lock())
		assert.EqualValues(t, uint64(18446744073709551001), m.Fence())
		synctest.Wait()
		assert.Equal(t, before+10, f.commands("evalsha"), "one more round")
	})
}
