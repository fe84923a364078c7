package wire_test

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

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
	from, err := client.MasterForKey(t.Context(), key)
	require.NoError(t, err)
	i := 0
	for servers[i].Addr() != from.Options().Addr {
		i++
	}
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
