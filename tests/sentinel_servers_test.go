package redsync_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/realredis"
	"github.com/seed14bd9ef4/redsync/pool"
)

// sentinelProgram returns what a program has: a Redsync whose first node is behind a Sentinel, and that node's client.
func sentinelProgram(t *testing.T, set realredis.SentinelSet, others []*realredis.Server) (*redsync.Redsync, *redis.Client) {
	t.Helper()
	client := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: set.Name, SentinelAddrs: []string{set.Sentinel.Addr()},
	})
	t.Cleanup(func() { _ = client.Close() })
	pools := []pool.Pool{pool.New(client)}
	for _, s := range others {
		pools = append(pools, pool.New(s.Client()))
	}
	rs := redsync.New(pools...)
	t.Cleanup(func() { _ = rs.Close(context.Background()) })
	return rs, client
}

// A master with a replica behind a Sentinel is the only node, or one of five. It fails over while the old master goes on,
// or comes back, with the connections that it had. Once go-redis has closed its own, no two programs have one lock at once,
// and a holder learns that the new master does not have its key.
func TestSentinelFailsOver(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(set realredis.SentinelSet) error{
		"stall": func(set realredis.SentinelSet) error { set.Master.Freeze(); return nil },
		"partition": func(set realredis.SentinelSet) error {
			_, err := set.Master.Do("acl", "setuser", "default", "-ping") // as if the Sentinel could not reach it
			return err
		},
		"planned": func(set realredis.SentinelSet) error {
			_, err := set.Sentinel.Do("sentinel", "failover", set.Name)
			return err
		},
		"kill": func(set realredis.SentinelSet) error { set.Master.Kill(); return nil },
	} {
		for _, others := range []int{0, 4} {
			t.Run(fmt.Sprintf("%s, %d nodes", name, others+1), func(t *testing.T) {
				t.Parallel()
				set, beside := realredis.StartSentinelSet(t), realredis.Start(t, others)
				a, client := sentinelProgram(t, set, beside)
				held := a.NewMutex("held", redsync.WithWatchdog(), redsync.WithExpiry(20*time.Second))
				require.NoError(t, held.Lock())
				blocked := client.Conn() // of go-redis: it ends when the client leaves the old master
				require.NoError(t, blocked.Ping(t.Context()).Err())
				require.NoError(t, fail(set))
				_ = blocked.Wait(t.Context(), 100, 0).Err()
				_ = blocked.Close()
				set.Master.Thaw() // it does not know yet that it is no master any more
				b, _ := sentinelProgram(t, set, beside)
				twice := 0
				for i := range 20 {
					x, y := a.NewMutex(fmt.Sprint("job", i)), b.NewMutex(fmt.Sprint("job", i))
					if x.Lock() == nil && y.TryLock() == nil && x.Remaining() > 0 {
						twice++
					}
					_, _ = x.Unlock()
					_, _ = y.Unlock()
				}
				require.Zero(t, twice, "two programs had one lock at once")
				require.NoError(t, held.Err())
				if others == 0 && name != "kill" {
					realredis.Must(t, set.Replica, "del", "held")
					require.NoError(t, b.NewMutex("held").TryLock())
					_, err := held.Extend()
					require.ErrorIs(t, err, redsync.ErrLockLost)
					<-held.Lost()
				}
			})
		}
	}
}
