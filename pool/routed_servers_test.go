package pool_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/realredis"
	"github.com/seed14bd9ef4/redsync/pool"
)

// A counter counts replies.
type counter struct{ atomic.Int64 }

func (c *counter) Receive(int, pool.Reply) { c.Add(1) }

func clusterClient(t *testing.T, servers []*realredis.Server, changes ...func(*redis.ClusterOptions)) *redis.ClusterClient {
	t.Helper()
	options := &redis.ClusterOptions{
		Addrs:                    []string{servers[0].Addr()},
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	for _, change := range changes {
		change(options)
	}
	client := redis.NewClusterClient(options)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// keysAt returns n keys that the cluster's node at an address has.
func keysAt(t *testing.T, client *redis.ClusterClient, addr string, n int) (keys []string) {
	t.Helper()
	for i := 0; len(keys) < n; i++ {
		key := fmt.Sprintf("lock:%d", i)
		node, err := client.MasterForKey(t.Context(), key)
		require.NoError(t, err)
		if node.Options().Addr == addr {
			keys = append(keys, key)
		}
	}
	return keys
}

// moving starts the move of the slot of key from one server to another, and returns the slot.
func moving(t *testing.T, from, to *realredis.Server, key string) (slot any) {
	t.Helper()
	slot = realredis.Must(t, from, "cluster", "keyslot", key)
	realredis.Must(t, to, "cluster", "setslot", slot, "importing", realredis.Must(t, from, "cluster", "myid"))
	realredis.Must(t, from, "cluster", "setslot", slot, "migrating", realredis.Must(t, to, "cluster", "myid"))
	return slot
}

// moved completes the move of a slot, and tells all servers.
func moved(t *testing.T, servers []*realredis.Server, to *realredis.Server, slot any) {
	t.Helper()
	id := realredis.Must(t, to, "cluster", "myid")
	realredis.Must(t, to, "cluster", "setslot", slot, "node", id)
	for _, s := range servers {
		realredis.Must(t, s, "cluster", "setslot", slot, "node", id)
	}
}

// A frozen master delays only requests for its own slots. The requests that it has not answered must not
// count toward the limit of the other masters.
func TestClusterFrozenMaster(t *testing.T) {
	t.Parallel()
	servers := realredis.StartCluster(t)
	client := clusterClient(t, servers)
	p := pool.New(client, pool.WithOutstanding(50))
	t.Cleanup(func() { _ = p.Close() })
	pool.Answer(t, p, "ping")
	cold := keysAt(t, client, servers[1].Addr(), 100)
	well := append(keysAt(t, client, servers[0].Addr(), 50), keysAt(t, client, servers[2].Addr(), 50)...)
	pool.Answer(t, p, "set", cold[0], "v")
	servers[1].Freeze()
	replies := new(counter)
	refused := 0
	for _, key := range cold {
		err := p.Send(pool.Request{Args: []any{"set", key, "v"}, To: replies, Within: 50 * time.Millisecond})
		var full *pool.OutstandingError
		if errors.As(err, &full) {
			refused++
		} else {
			require.NoError(t, err)
		}
	}
	require.Equal(t, 50, refused)
	answered := 0
	for i := 0; i < 500 && replies.Load() == 0; i++ { // on a slow machine, the pool may give up the frozen master meanwhile
		pool.Answer(t, p, "set", well[i%len(well)], "v")
		if replies.Load() == 0 {
			answered++
		}
	}
	require.Positive(t, answered)
	servers[1].Thaw()
	eventually(t, "the 50 requests are answered, or given up", func() bool { return int(replies.Load()) == 50 })
	lockOnce(t, p, cold[0]+"another")
}

// While a slot moves, a SET of a key that neither node has must reach the target of the move.
func TestClusterMovingSlot(t *testing.T) {
	t.Parallel()
	servers := realredis.StartCluster(t)
	client := clusterClient(t, servers)
	p := poolOf(t, client)
	first := pool.Answer(t, p, "ping")
	require.Zero(t, first.Conn, "a cluster pool has no order of execution across nodes")
	require.Nil(t, first.Server, "a cluster pool uses many servers, so it names none")
	key := "{moves}"
	from, err := client.MasterForKey(t.Context(), key)
	require.NoError(t, err)
	i := 0
	for servers[i].Addr() != from.Options().Addr {
		i++
	}
	source, target := servers[i], servers[(i+1)%3]
	pool.Answer(t, p, "set", key+"there", "v")
	slot := moving(t, source, target, key)
	require.Equal(t, "v", pool.Answer(t, p, "get", key+"there").Value)
	for n := range 100 { // ASK leads each request to the target
		lockOnce(t, p, fmt.Sprint(key, n))
		require.Equal(t, "OK", pool.Answer(t, p, "set", fmt.Sprint(key, n), "v", "nx", "px", 60000).Value)
		require.Nil(t, pool.Answer(t, p, "set", fmt.Sprint(key, n), "w", "nx", "px", 60000).Value)
	}
	require.Equal(t, int64(100), realredis.Must(t, target, "cluster", "countkeysinslot", slot))
	r := pool.Ask(t, p, "eval", "return 1", 2, key+"there", key+"0")
	require.True(t, pool.IsCrossSlot(r.Err), "%v", r.Err)
	require.Equal(t, pool.Answered, r.Fate)
	pool.Answer(t, p, "del", key+"there")
	moved(t, servers, target, slot)
	for n := range 100 { // MOVED leads the first ones to the target; later ones go there directly
		require.Equal(t, "v", pool.Answer(t, p, "get", fmt.Sprint(key, n)).Value)
	}
	eventually(t, "the client knows where the slot is", func() bool {
		node, err := client.MasterForKey(t.Context(), key)
		return err == nil && node.Options().Addr == target.Addr()
	})
	lockOnce(t, p, key)
}

// All pools of a ClusterClient share one stream to each node. The streams end when the last pool is
// closed, and the user's client still works after that.
func TestClusterPoolsShareStreamsAndEndThem(t *testing.T) {
	t.Parallel()
	servers := realredis.StartCluster(t)
	client := clusterClient(t, servers)
	connections := func() int {
		n := 0
		for _, s := range servers {
			for line := range strings.Lines(realredis.Must(t, s, "client", "list").(string)) {
				if !strings.Contains(line, " cmd=client") && !strings.Contains(line, " cmd=cluster") {
					n++ // the connection that asks, and those of the user's client, do not count
				}
			}
		}
		return n
	}
	first, second := pool.New(client), pool.New(client)
	for i := range 100 {
		lockOnce(t, first, fmt.Sprint("a", i))
		lockOnce(t, second, fmt.Sprint("b", i))
	}
	require.Equal(t, 3, connections())
	require.NoError(t, first.Close())
	require.ErrorIs(t, first.Send(pool.Request{Args: []any{"ping"}, To: new(counter)}), pool.ErrClosed)
	lockOnce(t, second, "c")
	require.NoError(t, second.Close())
	eventually(t, "the streams end", func() bool { return connections() == 0 })
	require.NoError(t, client.Set(t.Context(), "k", "v", 0).Err())
}
