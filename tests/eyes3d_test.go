package redsync_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
)

// Readers that share a hold, and heal: an extension of one is under way while they are forced. All are told.
func TestEyesJoinedReadersThatHeal(t *testing.T) {
	for offset := -12 * time.Millisecond; offset <= 12*time.Millisecond; offset += time.Millisecond {
		play(t, func(f field) {
			rs := f.newcomer(0, everywhere(3*time.Millisecond))
			f.closes(rs)
			f.as(rs).meet()
			start := time.Now()
			var all []*redsync.Mutex
			for range 3 {
				m := rs.NewMutex("lock", redsync.WithShared(), redsync.WithOwner("w"), redsync.WithExpiry(6*time.Second), redsync.WithWatchdog(), redsync.WithSetNXOnExtend())
				require.NoError(f, m.Lock())
				all = append(all, m)
			}
			operator := f.NewMutex("lock")
			h := f.holderOf(operator)
			time.Sleep(time.Until(start.Add(2*time.Second + offset)))
			require.NoError(f, operator.ForceUnlock(f.Context(), h))
			time.Sleep(100 * time.Millisecond)
			for i, m := range all {
				assert.ErrorIs(f, m.Err(), redsync.ErrForced, "reader %d, offset %v", i, offset)
			}
			for _, n := range f.nodes {
				assert.Empty(f, n.Keys(), "offset %v", offset)
			}
		})
	}
}

// The connection to a node flaps: how often is asked for each of many holds?
func TestEyesFlaps(t *testing.T) {
	play(t, func(f field) {
		rs := f.another(redsync.WithOwner("w"))
		f.closes(rs)
		for i := range 200 {
			require.NoError(f, rs.NewMutex(string(rune('a'+i%26))+string(rune('a'+i/26)), redsync.WithExpiry(10*time.Minute)).Lock())
		}
		time.Sleep(3 * time.Second)
		before := f.nodes[4].Commands("evalsha")
		for range 20 {
			f.nodes[0].Disconnect()
			f.nodes[1].Disconnect()
			f.nodes[2].Disconnect()
			time.Sleep(3 * time.Second)
		}
		t.Log("asked", f.nodes[4].Commands("evalsha")-before, "in 60 s for 200 holds")
	})
}
