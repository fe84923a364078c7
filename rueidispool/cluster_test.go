package rueidispool

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/testkit/realredis"
	"github.com/seed14bd9ef4/redsync/pool"
)

// wrongClient is what a client of one address is told.
const wrongClient = "the node belongs to a Redis Cluster, and serves only some of the names (use redis.NewClusterClient: "

// A client of one address leads to a node of a Cluster. Ping, Open and what the node refuses say so, unless the node has all
// slots. A user who may not ask the node learns it from the node's greeting, or from its MOVED.
func TestOneAddressOfACluster(t *testing.T) {
	t.Parallel()
	whole, part := realredis.StartClusterNode(t), realredis.StartCluster(t)[0]
	realredis.Must(t, whole, "cluster", "addslotsrange", 0, 16383)
	realredis.AwaitCluster(t, []*realredis.Server{whole})
	plain := realredis.Start(t, 1)[0]
	old := realredis.Start(t, 1, "--cluster-enabled", "yes", "--rename-command", "HELLO", "")[0]
	for _, c := range []struct {
		node  *realredis.Server
		rules string
		whole bool
	}{
		{plain, "+@all", true},
		{plain, "+@all -info -cluster", true},
		{whole, "+@all", true},
		{whole, "+@all -info", true},
		{part, "+@all", false},
		{part, "+@all -info", false},
		{part, "+@all -info -cluster", false},
	} {
		realredis.Must(t, c.node, "acl", "setuser", "app", "reset", "on", ">1", "~*", "&*")
		for rule := range strings.FieldsSeq(c.rules) {
			realredis.Must(t, c.node, "acl", "setuser", "app", rule)
		}
		for name, options := range map[string][]pool.Option{
			"RESP 2": nil, "RESP 3": nil, "without identity": {pool.WithoutIdentity()}, "via client": {pool.ViaClient()},
		} {
			opt, err := Options(rueidis.ClientOption{
				InitAddress: []string{c.node.Addr()}, Username: "app", Password: "1", AlwaysRESP2: name == "RESP 2",
			})
			require.NoError(t, err)
			client := redis.NewClient(opt)
			t.Cleanup(func() { _ = client.Close() })
			rs := redsync.New(pool.New(client, options...)).With(redsync.WithTries(1), redsync.WithExpiry(time.Minute))
			ping := func() (err error) {
				require.Eventually(t, func() bool { // a slow machine
					err = rs.Ping(t.Context())
					return err == nil || strings.Contains(err.Error(), wrongClient)
				}, time.Minute, 10*time.Millisecond, "%v", &err)
				return err
			}
			first := ping()
			refused := 0
			for lock := range strings.FieldsSeq("a b c d e f g h") {
				err := rs.NewMutex(lock).TryLock()
				if err != nil && strings.Contains(err.Error(), wrongClient) {
					require.ErrorIs(t, err, redsync.ErrNoQuorum)
					refused++
				}
			}
			require.Equal(t, c.whole, refused == 0, "%s %s", name, c.rules)
			if name != "via client" || !strings.Contains(c.rules, "-info") {
				require.Equal(t, c.whole, first == nil, "%s %s: %v", name, c.rules, first)
			}
			require.Equal(t, c.whole, ping() == nil, "%s %s", name, c.rules)
			require.NoError(t, rs.Close(context.Background()))
		}
	}
	for _, node := range []*realredis.Server{part, old} {
		_, err := redsync.Open(t.Context(), []string{node.Addr()})
		require.ErrorContains(t, err, wrongClient)
		require.ErrorContains(t, err, "this will not pass by itself")
	}
}
