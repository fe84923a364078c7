package redsync_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/testkit/realredis"
	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
	"github.com/seed14bd9ef4/redsync/pool"
)

// A master with a replica behind a Sentinel fails over while the old master goes on, or comes back, with the connections
// that it had. A holder keeps its lock, and learns it if the new master does not have its key. Module chaos shows that no
// two programs have one lock at once, also where the set is one of five nodes.
func TestSentinelFailsOver(t *testing.T) {
	testlength.NotWhileAPersonWaits(t)
	t.Parallel()
	for _, f := range realredis.Failovers {
		t.Run(f.Name, func(t *testing.T) {
			t.Parallel()
			set := realredis.StartSentinelSet(t)
			client := set.Client(t)
			a, b := redsync.New(pool.New(client)), redsync.New(pool.New(set.Client(t)))
			t.Cleanup(func() { _ = errors.Join(a.Close(context.Background()), b.Close(context.Background())) })
			held := locked(t, a.NewMutex("held", withWatchdog, withExpiry(20*sec)))
			blocked := client.Conn() // of go-redis: it ends when the client leaves the old master
			noError(t, blocked.Ping(t.Context()).Err())
			noError(t, f.Fail(set))
			set.Promoted(t)
			_ = blocked.Wait(t.Context(), 100, 0).Err()
			_ = blocked.Close()
			set.Master.Thaw() // it does not know yet that it is no master any more
			require.Eventually(t, func() bool {
				_ = a.NewMutex("other").TryLock()
				n, _ := set.Replica.Do("exists", "other")
				return n == int64(1)
			}, minute, 20*ms, "locks move, too")
			alive(t, held)
			if !f.Cuts {
				realredis.Must(t, set.Replica, "del", "held")
				obtained(t, b.NewMutex("held"))
				failsWith(t, held.Extend, redsync.ErrLockLost)
				<-held.Lost()
			}
		})
	}
}
