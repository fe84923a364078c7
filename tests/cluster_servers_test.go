package redsync_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/testkit/realredis"
	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
	"github.com/seed14bd9ef4/redsync/pool"
)

// clusterProcess returns a process with a cluster as its node, and its client. Its node deadlines are long enough for a
// slow machine.
func clusterProcess(t *testing.T, servers []*realredis.Server) (*redsync.Redsync, *redis.ClusterClient) {
	client := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs:                    []string{servers[0].Addr()},
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	t.Cleanup(func() { _ = client.Close() })
	rs := redsync.New(pool.New(client)).With(redsync.WithTimeoutFactor(0.4))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), minute)
		defer cancel()
		assert.NoError(t, rs.Close(ctx))
	})
	return rs, client
}

// ownerOf returns the indexes in servers of the master of a key, and of another server.
func ownerOf(t *testing.T, client *redis.ClusterClient, servers []*realredis.Server, key string) (owner, other int) {
	node, err := client.MasterForKey(t.Context(), key)
	require.NoError(t, err)
	for servers[owner].Addr() != node.Options().Addr {
		owner++
	}
	return owner, (owner + 1) % len(servers)
}

// While a slot moves, its locks can be released, and locked again at once, although the cluster refuses scripts with
// several keys. Nobody waits for a node deadline.
func TestClusterLocksInASlotThatMoves(t *testing.T) {
	testlength.NotWhileAPersonWaits(t)
	t.Parallel()
	servers := realredis.StartCluster(t)
	rs, client := clusterProcess(t, servers)
	rs = rs.With(withExpiry(2 * minute))
	held := locked(t, rs.NewMutex("moves"))
	from, to := ownerOf(t, client, servers, "moves")
	source, target := servers[from], servers[to]
	slot := realredis.Must(t, source, "cluster", "keyslot", "moves")
	id := realredis.Must(t, target, "cluster", "myid")
	realredis.Must(t, target, "cluster", "setslot", slot, "importing", realredis.Must(t, source, "cluster", "myid"))
	realredis.Must(t, source, "cluster", "setslot", slot, "migrating", id)

	waiter, waited := rs.NewMutex("moves"), make(chan error)
	confirmed(t, held.Extend)
	go func() { waited <- waiter.Lock() }()
	time.Sleep(100 * ms) //nolint:forbidigo // it waits
	confirmed(t, held.Unlock)
	start := time.Now()
	require.NoError(t, <-waited)
	assert.Less(t, time.Since(start), 40*sec)
	confirmed(t, waiter.Unlock)
	for i := range 5 {
		start := time.Now()
		confirmed(t, locked(t, rs.NewMutex(fmt.Sprint("{moves}", i))).Unlock)
		assert.Less(t, time.Since(start), 40*sec)
	}
	for _, s := range servers {
		assert.Zero(t, realredis.Must(t, s, "dbsize"))
	}
	for _, s := range []*realredis.Server{target, source, servers[3-from-to]} {
		realredis.Must(t, s, "cluster", "setslot", slot, "node", id)
	}
	confirmed(t, locked(t, held).Unlock)
}
