package wire_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
	"github.com/seed14bd9ef4/redsync/internal/testkit/realredis"
	"github.com/seed14bd9ef4/redsync/internal/testkit/stall"
	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
	"github.com/seed14bd9ef4/redsync/internal/testkit/wiretest"
	"github.com/seed14bd9ef4/redsync/internal/wire"
	"github.com/seed14bd9ef4/redsync/pool"
)

// A kind makes clients of one type from the options of a *redis.Client.
type kind struct {
	name   string
	client func(*redis.Options) redis.UniversalClient
	with   []pool.Option
	calls  bool // the pool is one of Func
}

// other is not a *redis.Client, although it behaves like one.
type other struct{ redis.UniversalClient }

func plain(o *redis.Options) redis.UniversalClient { return redis.NewClient(o) }

// once returns a client that sends no command twice. Where commands go the client's own way, that is up to its user.
func once(o *redis.Options) redis.UniversalClient {
	o.MaxRetries = -1
	return redis.NewClient(o)
}

// The first kinds differ most.
var kinds = []kind{
	{"client", plain, nil, false},
	{"cluster", func(o *redis.Options) redis.UniversalClient {
		return redis.NewClusterClient(&redis.ClusterOptions{
			ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
				return []redis.ClusterSlot{{End: 16383, Nodes: []redis.ClusterNode{{Addr: o.Addr}}}}, nil
			},
			NewClient: func(*redis.Options) *redis.Client { return redis.NewClient(o) },
		})
	}, nil, false},
	{"via client", once, []pool.Option{pool.ViaClient()}, false},
	{"other client", func(o *redis.Options) redis.UniversalClient { return other{redis.NewClient(o)} }, nil, false},
	{"function", once, nil, true},
	{"ring", func(o *redis.Options) redis.UniversalClient {
		return redis.NewRing(&redis.RingOptions{
			Addrs:     map[string]string{"one": o.Addr},
			NewClient: func(*redis.Options) *redis.Client { return redis.NewClient(o) },
			// No heartbeat during a test: it would notice seconds late that a shard is down, or up again.
			HeartbeatFrequency: time.Hour,
		})
	}, nil, false},
}

func TestPoolConformsEmbedded(t *testing.T) {
	conformEmbedded(t, kinds[:3])
}

func TestOtherPoolsConformEmbedded(t *testing.T) {
	testlength.NotWhileAPersonWaits(t)
	conformEmbedded(t, kinds[3:])
}

func conformEmbedded(t *testing.T, kinds []kind) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			wiretest.Run(t, func(t *testing.T, check func(*testing.T, wiretest.Env)) {
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

func embeddedEnv(n *embedded.Node, k kind) (redis.UniversalClient, wiretest.Env) {
	client, env := envOf(n.Client().Options(), n.Dial, k)
	env.Do = func(args ...any) (any, error) {
		c := n.Client()
		defer func() { _ = c.Close() }()
		return c.Do(context.Background(), args...).Result()
	}
	env.Freeze, env.Thaw, env.Kill, env.Restart = n.Freeze, n.Thaw, n.Kill, func() { n.Restart(true) }
	env.Answer = func(command, text string) { n.On(command, 1, embedded.Fault{Err: text}) }
	env.Connections = n.CurrentConnectionCount
	return client, env
}

// envOf returns a client of kind k, and an Env with its pools.
func envOf(of *redis.Options, dial func(context.Context, string, string) (net.Conn, error), k kind) (redis.UniversalClient, wiretest.Env) {
	link, options := wiretest.NewLink(dial), *of
	options.Dialer, options.MaxRetries = link.Dial, 10
	client := k.client(&options)
	return client, wiretest.Env{
		Pool: func(limit int) wire.Pool {
			if k.calls {
				return pool.Func(func(ctx context.Context, args ...any) (any, error) { return client.Do(ctx, args...).Result() },
					pool.WithOutstanding(limit))
			}
			return pool.New(client, append(k.with, pool.WithOutstanding(limit))...)
		},
		LoseReply: link.LoseReply,
	}
}

// With -short it leaves out the Ring, whose pool sends as that of a ClusterClient does, and the pools that send through
// the client.
func TestPoolConformsRealServer(t *testing.T) {
	for i, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			if i >= testlength.InGate(2, 1, len(kinds), len(kinds)) {
				t.Skip("embedded nodes have shown it, and the nightly run shows it here")
			}
			wiretest.RunParallel(t, func(t *testing.T, check func(*testing.T, wiretest.Env)) {
				server := realredis.Start(t, 1)[0]
				client, env := realEnv(t, server, k)
				t.Cleanup(func() { _ = client.Close() })
				check(t, env)
			})
		})
	}
	t.Parallel() // the checks that count goroutines are done
}

func realEnv(t *testing.T, s *realredis.Server, k kind) (redis.UniversalClient, wiretest.Env) {
	options := s.Client().Options()
	options.DialTimeout = time.Minute // a machine may be so slow
	client, env := envOf(options, nil, k)
	env.Do, env.Freeze, env.Thaw, env.Kill, env.Restart = s.Do, s.Freeze, s.Thaw, s.Kill, s.Restart
	env.Connections = func() int {
		list, err := s.Do("client", "list")
		if err != nil {
			return -1
		}
		return strings.Count(list.(string), "\n") - 1 // without the connection of Do
	}
	env.Slack, env.Machine = 4*time.Second, stall.Begin(t)
	return client, env
}
