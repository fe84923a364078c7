package pool

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

	"github.com/seed14bd9ef4/redsync/internal/embedded"
)

// This file shows in virtual time when a connection leaves a node because the client of a Sentinel has moved.

// A sentinelScene is a client of a Sentinel that leads to the first of two nodes.
type sentinelScene struct {
	*redis.Client
	nodes    embedded.Nodes
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

// sentinelClient runs f with a client that has one idle connection, and one that closeOne closes.
func sentinelClient(t *testing.T, f func(t *testing.T, s *sentinelScene)) {
	t.Helper()
	virtual(t, func(t *testing.T) {
		s := &sentinelScene{nodes: embedded.Start(2)}
		t.Cleanup(s.nodes.Close)
		s.leads(s.nodes[0], "10.0.0.1:1")
		s.Client = clientOf(t, s.nodes[0], func(o *redis.Options) {
			o.Addr, o.PoolSize = "FailoverClient", 2
			o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
				return (*s.dial.Load())(ctx, network, addr)
			}
		})
		held := s.EphemeralConn()
		require.NoError(t, held.Ping(t.Context()).Err())
		require.NoError(t, s.Ping(t.Context()).Err())
		s.closeOne = func() { require.NoError(t, held.Close()) }
		f(t, s)
	})
}

func TestFollow(t *testing.T) {
	for name, c := range map[string]struct {
		address oddAddr // where the client's dial leads then
		node    int
		denied  bool // the nodes deny INFO
		moves   bool
	}{
		"another node":                         {"10.0.0.2:1", 1, false, true},
		"another node without a name":          {"10.0.0.2:1", 1, true, true},
		"another node, through the same proxy": {"10.0.0.1:1", 1, false, true},
		"the same node":                        {"10.0.0.1:1", 0, false, false},
		"the same node without a name":         {"10.0.0.1:1", 0, true, false},
		"the same node has a second address":   {"10.0.0.2:1", 0, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			sentinelClient(t, func(t *testing.T, s *sentinelScene) {
				if c.denied {
					s.nodes[0].On("info", 100, embedded.Fault{Err: "NOPERM"})
					s.nodes[1].On("info", 100, embedded.Fault{Err: "NOPERM"})
				}
				p, e := New(s.Client), NewEar()
				sub := listenTo(t, p, e)
				e.Hears(t, "subscribed")
				first := answer(t, p, "set", "k", "of the first").Conn
				time.Sleep(time.Minute / 4)
				require.Equal(t, first, answer(t, p, "ping").Conn, "the client has closed nothing")

				owed := make(replies, 1)
				s.nodes[0].On("get", 1, embedded.Fault{Delay: time.Second})
				require.NoError(t, p.Send(Request{Args: []any{"get", "k"}, To: owed}))
				synctest.Wait()
				s.leads(s.nodes[c.node], c.address)
				began := time.Now()
				s.closeOne()
				if !c.moves {
					require.Equal(t, "of the first", owed.wait(t).Value)
					require.Equal(t, first, answer(t, p, "ping").Conn)
					require.NoError(t, s.nodes[0].Set("k", "x"))
				} else {
					next := ask(t, p, "set", "k", "of the next")
					require.NoError(t, next.Err)
					require.Zero(t, time.Since(began), "nothing is written to the first node any more")
					require.Greater(t, next.Conn, first)
					left := owed.wait(t)
					require.Equal(t, Unknown, left.Fate)
					require.EqualError(t, left.Err, "pool: connection lost: the client has moved to another node")
					require.ErrorIs(t, e.Hears(t, "unsubscribed").Err, errMoved)
					e.Hears(t, "subscribed")
					require.Zero(t, time.Since(began))
					text, err := s.nodes[1].Get("k")
					require.NoError(t, err)
					require.Equal(t, "of the next", text)
				}
				s.nodes[c.node].Publish("channel", "x")
				e.Hears(t, "message x")
				sub.Close()
				p.CloseIdle()
				synctest.Wait()
				require.Empty(t, followers.of)
			})
		})
	}
}

// Without a further request, the follower notices by itself that the client has moved, also while the first node is frozen.
// While the Sentinel cannot be reached, it tries again, also if a Dialer of the user's ends its goroutine.
func TestFollowWhatIsOwed(t *testing.T) {
	for i, unreachable := range []time.Duration{0, 3 * time.Second, 3 * time.Second} {
		sentinelClient(t, func(t *testing.T, s *sentinelScene) {
			p := New(s.Client)
			answer(t, p, "ping")
			s.nodes[0].Freeze()
			owed := make(replies, 1)
			require.NoError(t, p.Send(Request{Args: []any{"get", "k"}, To: owed}))
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
				s.leads(s.nodes[1], "10.0.0.2:1")
			}
			s.closeOne()
			time.Sleep(unreachable)
			s.leads(s.nodes[1], "10.0.0.2:1")
			require.ErrorIs(t, owed.wait(t).Err, errMoved)
			require.LessOrEqual(t, time.Since(began), unreachable+followPause+min(unreachable, maxPause))
			s.nodes[0].Thaw()
		})
	}
}

// A client that has no connection gets one, and a dial that hangs is begun anew where the client leads now.
func TestFollowFromNothing(t *testing.T) {
	sentinelClient(t, func(t *testing.T, s *sentinelScene) {
		s.closeOne()
		fresh := s.EphemeralConn() // takes the last one
		require.NoError(t, fresh.Ping(t.Context()).Err())
		require.NoError(t, fresh.Close())
		require.Zero(t, s.PoolStats().TotalConns)
		p := New(s.Client)
		answer(t, p, "ping")
		time.Sleep(time.Second)
		require.EqualValues(t, 1, s.PoolStats().IdleConns)
		p.CloseIdle()
		synctest.Wait()

		s.nodes[0].TurnOff()
		in := make(replies, 1)
		require.NoError(t, p.Send(Request{Args: []any{"set", "k", "v"}, To: in}))
		time.Sleep(slowDial)
		s.leads(s.nodes[1], "10.0.0.2:1")
		last := s.EphemeralConn()
		_ = last.Ping(t.Context()) // may take the idle connection, which hangs
		_ = last.Close()
		require.NoError(t, (<-in).Err)
		require.True(t, s.nodes[1].Exists("k"))
	})
}

// A plain client gets no follower, and no connection of its own.
func TestFollowNotAPlainClient(t *testing.T) {
	bubble(t, func(t *testing.T, node *embedded.Node) {
		client := clientOf(t, node, nil)
		answer(t, New(client), "ping")
		require.Empty(t, followers.of)
		require.Zero(t, client.PoolStats().TotalConns)
		require.Equal(t, 1, opened(node))
	})
}
