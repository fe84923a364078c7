package wire_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/testkit/realredis"
	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
	"github.com/seed14bd9ef4/redsync/internal/wire"
)

func clusterClient(t *testing.T, servers []*realredis.Server) *redis.ClusterClient {
	t.Helper()
	client := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: []string{servers[0].Addr()}, MaintNotificationsConfig: wire.NoNotifications,
	})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// masterOf returns the index in servers of the master of a key.
func masterOf(t *testing.T, client *redis.ClusterClient, servers []*realredis.Server, key string) (i int) {
	t.Helper()
	node, err := client.MasterForKey(t.Context(), key)
	require.NoError(t, err)
	for servers[i].Addr() != node.Options().Addr {
		i++
	}
	return i
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

// While a slot moves, a SET of a key that neither node has must reach the target of the move.
func TestClusterMovingSlot(t *testing.T) {
	testlength.NotWhileAPersonWaits(t)
	t.Parallel()
	servers := realredis.StartCluster(t)
	client := clusterClient(t, servers)
	p := poolOf(t, client)
	first := wire.Answer(t, p, "ping")
	require.Zero(t, first.Conn, "a cluster pool has no order of execution across nodes")
	require.Nil(t, first.Server, "a cluster pool uses many servers, so it names none")
	key := "{moves}"
	i := masterOf(t, client, servers, key)
	source, target := servers[i], servers[(i+1)%3]
	wire.Answer(t, p, "set", key+"there", "v")
	slot := moving(t, source, target, key)
	require.Equal(t, "v", wire.Answer(t, p, "get", key+"there").Value)
	for n := range 100 { // ASK leads each request to the target
		lockOnce(t, p, fmt.Sprint(key, n))
		require.Equal(t, "OK", wire.Answer(t, p, "set", fmt.Sprint(key, n), "v", "nx", "px", 60000).Value)
		require.Nil(t, wire.Answer(t, p, "set", fmt.Sprint(key, n), "w", "nx", "px", 60000).Value)
	}
	require.Equal(t, int64(100), realredis.Must(t, target, "cluster", "countkeysinslot", slot))
	r := wire.Ask(t, p, "eval", "return 1", 2, key+"there", key+"0")
	require.True(t, wire.IsCrossSlot(r.Err), "%v", r.Err)
	require.Equal(t, wire.Answered, r.Fate)
	wire.Answer(t, p, "del", key+"there")
	moved(t, servers, target, slot)
	for n := range 100 { // MOVED leads the first ones to the target; later ones go there directly
		require.Equal(t, "v", wire.Answer(t, p, "get", fmt.Sprint(key, n)).Value)
	}
	eventually(t, "the client knows where the slot is", func() bool {
		node, err := client.MasterForKey(t.Context(), key)
		return err == nil && node.Options().Addr == target.Addr()
	})
	lockOnce(t, p, key)
}

// A Cluster's master is killed, stops, or is replaced while it answers. Locks go to the replica, and no watchdog loses one.
func TestClusterFailover(t *testing.T) {
	testlength.NotWhileAPersonWaits(t)
	t.Parallel()
	const expiry = 8 * time.Second
	for name, fail := range map[string]func(t *testing.T, master, replica *realredis.Server){
		"killed":  func(_ *testing.T, master, _ *realredis.Server) { master.Kill() },
		"stopped": func(_ *testing.T, master, _ *realredis.Server) { master.Freeze() },
		"replaced": func(t *testing.T, _, replica *realredis.Server) {
			realredis.Must(t, replica, "cluster", "failover", "takeover")
		}, //nolint:thelper // a fault
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			servers, replica := realredis.StartCluster(t), realredis.StartClusterNode(t)
			realredis.Meet(t, replica, servers[0])
			all := append(servers[:3:3], replica)
			realredis.AwaitCluster(t, all)
			client, key := clusterClient(t, servers), "key"
			master := servers[masterOf(t, client, servers, key)]
			realredis.Must(t, replica, "cluster", "replicate", realredis.Must(t, master, "cluster", "myid"))
			rs := redsync.New(poolOf(t, client)).With(redsync.WithExpiry(expiry), redsync.WithWatchdog())
			held := rs.NewMutex(key)
			require.NoError(t, held.Lock())
			eventually(t, "the replica has the lock", func() bool { return realredis.Must(t, replica, "dbsize") == int64(1) })
			for _, s := range all {
				realredis.Must(t, s, "config", "set", "cluster-node-timeout", 1000)
			}
			fail(t, master, replica)
			start := time.Now()
			eventually(t, "a lock on the replica", func() bool { return rs.NewMutex("{"+key+"}").TryLock() == nil })
			onTime := time.Since(start) < expiry/2
			time.Sleep(time.Until(start.Add(expiry + time.Second))) //nolint:forbidigo // it would have expired
			ok, err := held.Unlock()
			assert.True(t, ok || !onTime, err)
			master.Thaw()
			require.NoError(t, rs.Close(t.Context()))
		})
	}
}
