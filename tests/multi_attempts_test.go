package redsync_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/embedded"
)

// This file tests how many attempts are made by calls that wait for several names.

// near is the distance of nodes that data reaches within 0.1 to 0.2 ms.
var near = everywhere(100 * time.Microsecond)

// A name that is taken on a minority of nodes for ever does not block a lock on several names, although the first
// answers can look as if it did. The caller still waits for the name that another process holds, and has the lock when
// that name is released.
func TestMultiWaitsForTheNameThatIsTakenOnAQuorum(t *testing.T) {
	inEachMode(t, play, func(f field, mode opts) {
		other := f.another()
		b := locked(f, other.NewMutex("b", redsync.WithExpiry(time.Minute)))
		time.Sleep(10 * ms)
		for i, n := range f.nodes {
			if i < 2 {
				require.NoError(f, n.Set("a", "stale")) // which nobody releases
			} else if i > 2 {
				n.On("evalsha", 1<<20, embedded.Fault{Delay: ms}) // the others answer first
			}
		}
		multi := f.callsSeveral(f.Redsync, both, patient(mode...)...)
		time.Sleep(1100 * ms)
		require.True(f, open(multi.done))
		f.unlock(b)
		f.within(multi, 20*ms)
		f.unlock(multi.Mutex)
	})
}

// Calls wait for the same two names. One name is taken on two nodes for ever, and the other is held on four. The calls
// do not wake each other by their attempts. They only show their tickets twice a second, like calls for one name.
func TestMultisThatWaitDoNotWakeEachOtherByANameOfAMinority(t *testing.T) {
	inEachMode(t, play, func(f field, mode opts) {
		all := f.processes(3, near)
		locked(f, all[2].NewMutex("b", redsync.WithExpiry(time.Hour)))
		time.Sleep(10 * ms)
		for i := range 2 {
			require.NoError(f, f.nodes[i].Set("a", "stale"))
		}
		f.nodes[4].Del("b")
		count := &attemptCounter{}
		options := patient(append(mode, redsync.WithObserver(count))...)
		f.callsSeveral(all[0], both, options...)
		f.callsSeveral(all[1], both, options...)
		time.Sleep(time.Second)
		before := count.made.Load()
		time.Sleep(10 * time.Second)
		f.Logf("%d attempts", count.made.Load()-before)
		assert.Less(f, count.made.Load()-before, int64(55), "two calls that only show their tickets make about 40 attempts")
	})
}
