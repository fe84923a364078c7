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

// A tenant is a program with clients of its own. Beside the pools it has a connection of go-redis to the node behind the
// Sentinel, blocked in WAIT: left is closed when go-redis has closed that, because it has left the old master.
type tenant struct {
	*redsync.Redsync
	left chan struct{}
}

func newTenant(t *testing.T, set realredis.SentinelSet, others []*realredis.Server) tenant {
	t.Helper()
	client := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: set.Name, SentinelAddrs: []string{set.Sentinel.Addr()}, MaxRetries: -1,
	})
	t.Cleanup(func() { _ = client.Close() })
	pools := []pool.Pool{pool.New(client)}
	for _, s := range others {
		pools = append(pools, pool.New(s.Client()))
	}
	b := tenant{redsync.New(pools...), make(chan struct{})}
	t.Cleanup(func() { _ = b.Close(context.Background()) })
	blocked := client.Conn()
	require.NoError(t, blocked.Ping(t.Context()).Err())
	go func() {
		defer close(b.left)
		_ = blocked.Wait(t.Context(), 100, 0).Err()
		_ = blocked.Close()
	}()
	return b
}

func (b tenant) hasLeft() bool {
	select {
	case <-b.left:
		return true
	default:
		return false
	}
}

// A master with a replica behind a Sentinel is the only node, or one of five. It fails over while the old master goes on,
// or comes back, with the connections that it had. No two programs of which both have left it, or neither, have one lock at
// once. A holder learns that the new master does not have its key.
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
				a, b := newTenant(t, set, beside), newTenant(t, set, beside)
				held := a.NewMutex("held", redsync.WithWatchdog(), redsync.WithExpiry(20*time.Second))
				require.NoError(t, held.Lock())
				require.NoError(t, fail(set))
				done, twice := 0, 0
				for i := 0; done < 20; i++ {
					require.Less(t, i, 10_000, "nobody can lock")
					before := [2]bool{a.hasLeft(), b.hasLeft()}
					if before == [2]bool{true, true} {
						set.Master.Thaw() // it does not know yet that it is no master any more
					}
					x, y := a.NewMutex(fmt.Sprint("job", i)), b.NewMutex(fmt.Sprint("job", i))
					first, second := x.TryLock(), y.TryLock()
					both := first == nil && second == nil && x.Remaining() > 0
					_, _ = x.Unlock()
					_, _ = y.Unlock()
					after := [2]bool{a.hasLeft(), b.hasLeft()}
					switch {
					case before != after || after[0] != after[1]: // redsync v4 has two holders, too
					case both:
						twice++
						done++
					case first == nil && after[0]:
						done++
					}
					time.Sleep(10 * time.Millisecond) //nolint:forbidigo // servers do not signal
				}
				require.Zero(t, twice, "two programs had one lock at once")
				require.NoError(t, held.Err())
				if others == 0 && name != "kill" {
					realredis.Must(t, set.Replica, "del", "held")
					require.NoError(t, b.NewMutex("held").Lock())
					_, err := held.Extend()
					require.ErrorIs(t, err, redsync.ErrLockLost)
					<-held.Lost()
				}
			})
		}
	}
}
