package wire

import (
	"context"
	"errors"
	"net"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
)

// This file shows in virtual time when a connection leaves a node because the client of a Sentinel has moved.

// A sentinelScene has a client of a Sentinel that leads to the first of two nodes.
type sentinelScene struct {
	*scene
	next     *embedded.Node
	user     *redis.Client
	dial     atomic.Pointer[func(context.Context, string, string) (net.Conn, error)]
	closeOne func() // the client closes a connection of its pool, without a command
}

// leads makes further dials lead to a node, at an address.
func (s *sentinelScene) leads(node *embedded.Node, address oddAddr) {
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := node.Dial(ctx, network, addr)
		return elsewhere{conn, address}, err
	}
	s.dial.Store(&dial)
}

// ephemeral returns a connection of the client that its Close closes.
func (s *sentinelScene) ephemeral() *redis.Conn {
	client, ok := any(s.user).(interface{ EphemeralConn() *redis.Conn })
	if !ok {
		s.Skip("go-redis has that from v9.23 on")
	}
	return client.EphemeralConn()
}

// sentinelClient plays a scene with a client that has one idle connection, and one that closeOne closes.
func sentinelClient(t *testing.T, play func(s *sentinelScene)) {
	t.Helper()
	virtual(t, func(t *testing.T) {
		nodes := embedded.Start(2)
		t.Cleanup(nodes.Close)
		s := &sentinelScene{scene: &scene{T: t, Node: nodes[0]}, next: nodes[1]}
		s.leads(s.Node, "10.0.0.1:1")
		s.user = s.client(func(o *redis.Options) {
			o.Addr, o.PoolSize = "FailoverClient", 2
			o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
				return (*s.dial.Load())(ctx, network, addr)
			}
		})
		held := s.ephemeral()
		require.NoError(s, held.Ping(s.Context()).Err())
		require.NoError(s, s.user.Ping(s.Context()).Err())
		s.closeOne = func() { require.NoError(s, held.Close()) }
		play(s)
	})
}

func TestFollow(t *testing.T) {
	for name, c := range map[string]struct {
		address oddAddr // where the client's dial leads then
		denied  int     // how often the nodes deny INFO
		moves   bool
		config  Config
	}{
		"another node":                         {"10.0.0.2:1", 0, true, Config{}},
		"another node without a name":          {"10.0.0.2:1", 100, true, Config{}},
		"another node, and nobody asks":        {"10.0.0.2:1", 0, true, Config{Anonymous: true}},
		"another node with the same name":      {"10.0.0.2:1", 0, true, Config{Anonymous: true, Guard: time.Second}},
		"another node, through the same proxy": {"10.0.0.1:1", 0, true, Config{}},
		"the same node":                        {"10.0.0.1:1", 0, false, Config{}},
		"the same node without a name":         {"10.0.0.1:1", 100, false, Config{}},
		"the same node, and nobody asks":       {"10.0.0.1:1", 0, false, Config{Anonymous: true}},
		"the same node has a second address":   {"10.0.0.2:1", 0, false, Config{}},
	} {
		t.Run(name, func(t *testing.T) {
			sentinelClient(t, func(s *sentinelScene) {
				s.refuses("info", c.denied, "NOPERM")
				s.next.On("info", c.denied, embedded.Fault{Err: "NOPERM"})
				if c.config.Guard > 0 {
					s.TellRunID("run_id:constant\r\n")
					s.next.TellRunID("run_id:constant\r\n")
				}
				p, e := New(s.user, c.config), NewEar(s)
				sub := listenTo(s, p, e)
				e.Hears("subscribed")
				first := answer(s, p, "set", "k", "of the first").Conn
				time.Sleep(time.Minute / 4)
				require.Equal(s, first, answer(s, p, "ping").Conn, "the client has closed nothing")

				s.On("get", 1, embedded.Fault{Delay: time.Second})
				owed := sent(s, p, "get", "k")
				synctest.Wait()
				to := s.Node
				if c.moves {
					to = s.next
				}
				s.leads(to, c.address)
				began := time.Now()
				s.closeOne()
				if !c.moves {
					require.Equal(s, "of the first", owed.wait(s).Value)
					require.Equal(s, first, answer(s, p, "ping").Conn)
					require.NoError(s, s.Set("k", "x"))
				} else {
					next := answer(s, p, "set", "k", "of the next")
					require.Zero(s, time.Since(began), "nothing is written to the first node any more")
					require.Greater(s, next.Conn, first)
					left := owed.wait(s)
					require.Equal(s, Unknown, left.Fate)
					require.EqualError(s, left.Err, "pool: connection lost: the client has moved to another node")
					require.ErrorIs(s, e.Hears("unsubscribed").Err, errMoved)
					e.Hears("subscribed")
					require.Zero(s, time.Since(began))
					text, err := s.next.Get("k")
					require.NoError(s, err)
					require.Equal(s, "of the next", text)
				}
				to.Publish("channel", "x")
				e.Hears("message x")
				sub.Close()
				p.CloseIdle()
				synctest.Wait()
				require.Empty(s, followers.of)
				require.Equal(s, c.config.Anonymous && c.config.Guard == 0, s.Commands("info")+s.next.Commands("info") == 0)
			})
		})
	}
}

// Without a further request, the follower notices by itself that the client has moved, also while the first node is frozen.
// While the Sentinel cannot be reached, it tries again, also if a Dialer of the user's ends its goroutine.
func TestFollowWhatIsOwed(t *testing.T) {
	for i, unreachable := range []time.Duration{0, 3 * time.Second, 3 * time.Second} {
		sentinelClient(t, func(s *sentinelScene) {
			p := New(s.user, Config{})
			answer(s, p, "ping")
			s.Freeze()
			owed := sent(s, p, "get", "k")
			synctest.Wait()
			fails := func(context.Context, string, string) (net.Conn, error) {
				if i == 2 {
					runtime.Goexit()
				}
				return nil, errors.New("no Sentinel answers")
			}
			s.dial.Store(&fails)
			began := time.Now()
			if unreachable == 0 {
				s.leads(s.next, "10.0.0.2:1")
			}
			s.closeOne()
			time.Sleep(unreachable)
			s.leads(s.next, "10.0.0.2:1")
			require.ErrorIs(s, owed.wait(s).Err, errMoved)
			require.LessOrEqual(s, time.Since(began), unreachable+followPause+min(unreachable, maxPause))
			s.Thaw()
		})
	}
}

// A client that has no connection gets one, and a dial that hangs is begun anew where the client leads now.
func TestFollowFromNothing(t *testing.T) {
	sentinelClient(t, func(s *sentinelScene) {
		s.closeOne()
		fresh := s.ephemeral() // takes the last one
		require.NoError(s, fresh.Ping(s.Context()).Err())
		require.NoError(s, fresh.Close())
		require.Zero(s, s.user.PoolStats().TotalConns)
		p := New(s.user, Config{})
		answer(s, p, "ping")
		time.Sleep(time.Second)
		require.EqualValues(s, 1, s.user.PoolStats().IdleConns)
		p.CloseIdle()
		synctest.Wait()

		s.TurnOff()
		in := sent(s, p, "set", "k", "v")
		time.Sleep(slowDial)
		s.leads(s.next, "10.0.0.2:1")
		last := s.ephemeral()
		_ = last.Ping(s.Context()) // may take the idle connection, which hangs
		_ = last.Close()
		require.NoError(s, (<-in).Err)
		require.True(s, s.next.Exists("k"))
	})
}

// A greeting is slow, and the client moves meanwhile. The connection is not used.
func TestFollowDuringAGreeting(t *testing.T) {
	sentinelClient(t, func(s *sentinelScene) {
		s.On("hello", 1, embedded.Fault{Delay: slowDial / 2})
		in := sent(s, New(s.user, Config{}), "set", "k", "v")
		synctest.Wait()
		s.leads(s.next, "10.0.0.2:1")
		s.closeOne()
		in.wait(s)
		require.True(s, s.next.Exists("k"))
	})
}

// A plain client gets no follower, and no connection of its own.
func TestFollowNotAPlainClient(t *testing.T) {
	bubble(t, func(s *scene) {
		client := s.client()
		answer(s, New(client, Config{}), "ping")
		require.Empty(s, followers.of)
		require.Zero(s, client.PoolStats().TotalConns)
		require.Equal(s, 1, s.opened())
	})
}
