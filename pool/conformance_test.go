package pool_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed14bd9ef4/redsync/internal/embedded"
	"github.com/seed14bd9ef4/redsync/internal/realredis"
	"github.com/seed14bd9ef4/redsync/internal/testlength"
	"github.com/seed14bd9ef4/redsync/pool"
	"github.com/seed14bd9ef4/redsync/pool/pooltest"
)

// A kind makes clients of one type from the options of a *redis.Client.
type kind struct {
	name   string
	client func(*redis.Options) redis.UniversalClient
	with   []pool.Option
}

// other is not a *redis.Client, although it behaves like one.
type other struct{ redis.UniversalClient }

// The first kinds differ most.
var kinds = []kind{
	{"client", func(o *redis.Options) redis.UniversalClient { return redis.NewClient(o) }, nil},
	{"cluster", func(o *redis.Options) redis.UniversalClient {
		return redis.NewClusterClient(&redis.ClusterOptions{
			ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
				return []redis.ClusterSlot{{Start: 0, End: 16383, Nodes: []redis.ClusterNode{{Addr: o.Addr}}}}, nil
			},
			NewClient: func(*redis.Options) *redis.Client { return redis.NewClient(o) },
		})
	}, nil},
	{"via client", func(o *redis.Options) redis.UniversalClient { return redis.NewClient(o) }, []pool.Option{pool.ViaClient()}},
	{"other client", func(o *redis.Options) redis.UniversalClient { return other{redis.NewClient(o)} }, nil},
	{"ring", func(o *redis.Options) redis.UniversalClient {
		return redis.NewRing(&redis.RingOptions{
			Addrs:     map[string]string{"one": o.Addr},
			NewClient: func(*redis.Options) *redis.Client { return redis.NewClient(o) },
			// No heartbeat during a test: it would notice seconds late that a shard is down, or up again.
			HeartbeatFrequency: time.Hour,
		})
	}, nil},
}

func TestPoolConformsEmbedded(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			pooltest.Run(t, func(t *testing.T, check func(*testing.T, pooltest.Env)) {
				synctest.Test(t, func(t *testing.T) {
					nodes := embedded.Start(1)
					client, env := embeddedEnv(nodes[0], k)
					t.Cleanup(func() { // after the cleanups of check
						_ = client.Close()
						nodes.Close()
						time.Sleep(10 * time.Second) // go-redis may look for the node once a second
					})
					check(t, env)
				})
			})
		})
	}
}

func embeddedEnv(n *embedded.Node, k kind) (redis.UniversalClient, pooltest.Env) {
	link := pooltest.NewLink(n.Dial)
	options := *n.Client().Options()
	options.Dialer = link.Dial
	options.MaxRetries = 10
	client := k.client(&options)
	return client, pooltest.Env{
		Pool: func(limit int) pool.Pool { return pool.New(client, append(k.with, pool.WithOutstanding(limit))...) },
		Do: func(args ...any) (any, error) {
			c := n.Client()
			defer func() { _ = c.Close() }()
			return c.Do(context.Background(), args...).Result()
		},
		Freeze:    n.Freeze,
		Thaw:      n.Thaw,
		Kill:      n.Kill,
		Restart:   func() { n.Restart(true) },
		LoseReply: link.LoseReply,
		Answer: func(command, text string) {
			n.On(command, 1, embedded.Fault{Err: text})
		},
		Connections: n.CurrentConnectionCount,
	}
}

// With -short it leaves out the Ring, whose pool sends as that of a ClusterClient does, and the pools that send through
// the client.
func TestPoolConformsRealServer(t *testing.T) {
	for i, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			if i >= testlength.InGate(2, 3, len(kinds), len(kinds)) {
				t.Skip("embedded nodes have shown it, and the nightly run shows it here")
			}
			pooltest.RunParallel(t, func(t *testing.T, check func(*testing.T, pooltest.Env)) {
				server := realredis.Start(t, 1)[0]
				client, env := realEnv(server, k)
				t.Cleanup(func() { _ = client.Close() })
				check(t, env)
			})
		})
	}
	t.Parallel() // the checks that count goroutines are done
}

func realEnv(s *realredis.Server, k kind) (redis.UniversalClient, pooltest.Env) {
	link := pooltest.NewLink(nil)
	options := *s.Client().Options()
	options.Dialer = link.Dial
	options.MaxRetries = 10
	client := k.client(&options)
	return client, pooltest.Env{
		Pool:      func(limit int) pool.Pool { return pool.New(client, append(k.with, pool.WithOutstanding(limit))...) },
		Do:        s.Do,
		Freeze:    s.Freeze,
		Thaw:      s.Thaw,
		Kill:      s.Kill,
		Restart:   s.Restart,
		LoseReply: link.LoseReply,
		Connections: func() int {
			list, err := s.Do("client", "list")
			if err != nil {
				return -1
			}
			return strings.Count(list.(string), "\n") - 1 // without the connection of Do
		},
		Slack: 4 * time.Second,
	}
}
