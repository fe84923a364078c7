package pool

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/embedded"
)

// This file shows what happens when the user closes a client.

// closables are clients of one embedded node, of each kind. hidden says that the client does not show that it is closed.
var closables = []struct {
	name   string
	hidden bool
	of     func(t *testing.T, node *embedded.Node) redis.UniversalClient
}{
	{"client", false, func(t *testing.T, node *embedded.Node) redis.UniversalClient { return clientOf(t, node, nil) }},
	{"clone", false, func(t *testing.T, node *embedded.Node) redis.UniversalClient {
		return clientOf(t, node, nil).WithTimeout(time.Second)
	}},
	{"failover", false, func(t *testing.T, node *embedded.Node) redis.UniversalClient {
		client := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{"127.0.0.1:1"}})
		client.Options().Dialer = node.Dial // in place of the one that asks the Sentinel
		t.Cleanup(func() { _ = client.Close() })
		return client
	}},
	{"ring", false, func(t *testing.T, node *embedded.Node) redis.UniversalClient {
		client := clientOf(t, node, nil)
		return redis.NewRing(&redis.RingOptions{
			Addrs:     map[string]string{"one": ""},
			NewClient: func(*redis.Options) *redis.Client { return client }, HeartbeatFrequency: time.Hour,
		})
	}},
	{"cluster", false, func(t *testing.T, node *embedded.Node) redis.UniversalClient {
		client := redis.NewClusterClient(&redis.ClusterOptions{
			Dialer: node.Dial,
			ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
				return []redis.ClusterSlot{{End: 16383, Nodes: []redis.ClusterNode{{Addr: "127.0.0.1:7001"}}}}, nil
			},
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		})
		t.Cleanup(func() { _ = client.Close() })
		return client
	}},
	{"other", true, func(t *testing.T, node *embedded.Node) redis.UniversalClient {
		return notAClient{clientOf(t, node, nil)}
	}},
}

// A look at a client makes nothing, and no hook sees it.
func TestIsClosed(t *testing.T) {
	for _, c := range closables {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, node *embedded.Node) {
				client := c.of(t, node)
				client.AddHook(forbidding{t})
				for range 3 {
					require.False(t, isClosed(client))
				}
				require.NoError(t, client.Close())
				require.Equal(t, !c.hidden, isClosed(client))
				require.Zero(t, opened(node))
			})
		})
	}
	require.NotErrorIs(t, ErrClosed, ErrClientClosed, "a closed Pool is no closed client")
	require.ErrorIs(t, ErrClientClosed, ErrClosed)
	require.ErrorIs(t, ErrClientClosed, redis.ErrClosed)
}

// The program uses an autopipeliner of its own, which looks must leave alone.
func TestIsClosedLeavesAnAutoPipelinerAlone(t *testing.T) {
	bubble(t, func(t *testing.T, node *embedded.Node) {
		client := clientOf(t, node, nil)
		own, err := client.AsyncAutoPipeline()
		require.NoError(t, err)
		require.False(t, isClosed(client))
		again, err := client.AsyncAutoPipeline()
		require.NoError(t, err)
		require.Same(t, own, again)
		require.NoError(t, client.Close())
		require.True(t, isClosed(client))
	})
}

// A stream ends with the client: its connection, a request that waits for its reply, and later requests.
func TestStreamEndsWithItsClient(t *testing.T) {
	for _, c := range closables {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, node *embedded.Node) {
				client := c.of(t, node)
				p := New(client)
				answer(t, p, "ping")
				node.Freeze()
				owed := make(replies, 1)
				require.NoError(t, p.Send(Request{Args: []any{"ping"}, To: owed}))
				synctest.Wait()
				start := time.Now()
				require.NoError(t, client.Close())
				if c.hidden {
					node.Thaw()
				}
				lost := owed.wait(t)
				if !c.hidden {
					require.Equal(t, ErrClientClosed, lost.Err)
					require.Equal(t, Unknown, lost.Fate)
				}
				require.LessOrEqual(t, time.Since(start), lookPause)
				node.Thaw()
				synctest.Wait()
				require.Zero(t, node.CurrentConnectionCount())
				require.Zero(t, runningStreams())
				before := opened(node)
				if c.hidden {
					require.Equal(t, ErrClientClosed, ask(t, p, "ping").Err)
				}
				for range 3 {
					require.Equal(t, ErrClientClosed, p.Send(Request{Args: []any{"ping"}, To: owed}))
				}
				if !c.hidden {
					require.Equal(t, ErrClientClosed, New(client).Send(Request{Args: []any{"ping"}, To: owed}))
				}
				require.True(t, p.(interface{ ClientClosed() bool }).ClientClosed())
				time.Sleep(time.Minute)
				require.Equal(t, before, opened(node))
				require.Equal(t, ErrClosed, closedPool(p).Send(Request{Args: []any{"ping"}, To: owed}))
			})
		})
	}
}

func closedPool(p Pool) Pool {
	_ = p.Close()
	return p
}

// The client is closed while the stream is opening a connection, and requests wait for it.
func TestStreamEndsWithItsClientDuringADial(t *testing.T) {
	bubble(t, func(t *testing.T, node *embedded.Node) {
		client := clientOf(t, node, func(o *redis.Options) {
			o.Dialer = func(ctx context.Context, _, _ string) (net.Conn, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}
		})
		p, in := New(client), make(replies, 2)
		for range 2 {
			require.NoError(t, p.Send(Request{Args: []any{"ping"}, To: in}))
		}
		synctest.Wait()
		start := time.Now()
		require.NoError(t, client.Close())
		for range 2 {
			r := in.wait(t)
			require.Equal(t, ErrClientClosed, r.Err)
			require.Equal(t, NotSent, r.Fate)
		}
		require.LessOrEqual(t, time.Since(start), lookPause)
		synctest.Wait()
		require.Zero(t, runningStreams())
	})
}

// A subscription ends with the client, although it has a connection of its own.
func TestSubscriptionEndsWithItsClient(t *testing.T) {
	for _, c := range closables {
		for _, state := range []string{"subscribed", "frozen", "between two attempts"} {
			t.Run(c.name+" "+state, func(t *testing.T) {
				bubble(t, func(t *testing.T, node *embedded.Node) {
					client, e := c.of(t, node), NewEar()
					s := listenTo(t, New(client), e)
					e.Hears(t, "subscribed")
					switch state {
					case "frozen":
						node.Freeze()
					case "between two attempts":
						node.Kill()
						time.Sleep(3 * time.Second)
					}
					start := time.Now()
					require.NoError(t, client.Close())
					var last Heard
					for last.What != "refused" {
						last = e.Next(t)
					}
					require.Equal(t, ErrClientClosed, last.Err)
					require.LessOrEqual(t, time.Since(start), 2*time.Second)
					node.Thaw()
					synctest.Wait()
					require.Zero(t, node.CurrentConnectionCount())
					time.Sleep(10 * time.Minute)
					e.silent(t)
					s.Close()
				})
			})
		}
	}
}
