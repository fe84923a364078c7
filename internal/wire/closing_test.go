package wire

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// This file shows what happens when the user closes a client.

// closables are clients of one embedded node, of each kind. The one of a type of its own does not show that it is closed.
var closables = map[string]func(s *scene) redis.UniversalClient{
	"client": func(s *scene) redis.UniversalClient { return s.client() },
	"clone":  func(s *scene) redis.UniversalClient { return s.client().WithTimeout(time.Second) },
	"failover": func(s *scene) redis.UniversalClient {
		client := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{"127.0.0.1:1"}})
		client.Options().Dialer = s.Dial // in place of the one that asks the Sentinel
		return client
	},
	"ring": func(s *scene) redis.UniversalClient {
		client := s.client()
		return redis.NewRing(&redis.RingOptions{
			Addrs:     map[string]string{"one": ""},
			NewClient: func(*redis.Options) *redis.Client { return client }, HeartbeatFrequency: time.Hour,
		})
	},
	"cluster": func(s *scene) redis.UniversalClient {
		return cast{}.client(func(o *redis.ClusterOptions) { o.Dialer = s.Dial })
	},
	hidden: func(s *scene) redis.UniversalClient { return notAClient{s.client()} },
}

const hidden = "other"

// A look at a client makes nothing, and no hook sees it.
func TestIsClosed(t *testing.T) {
	for name, of := range closables {
		named(t, name, func(s *scene) {
			client := of(s)
			client.AddHook(forbidding{tb: s})
			for range 3 {
				require.False(s, isClosed(client))
			}
			require.NoError(s, client.Close())
			require.Equal(s, name != hidden, isClosed(client))
			require.Zero(s, s.opened())
		})
	}
	require.NotErrorIs(t, ErrClosed, ErrClientClosed, "a closed Pool is no closed client")
	require.ErrorIs(t, ErrClientClosed, ErrClosed)
	require.ErrorIs(t, ErrClientClosed, redis.ErrClosed)
}

// The program uses an autopipeliner of its own, which looks must leave alone.
func TestIsClosedLeavesAnAutoPipelinerAlone(t *testing.T) {
	bubble(t, func(s *scene) {
		client := s.client()
		own, err := client.AsyncAutoPipeline()
		require.NoError(s, err)
		require.False(s, isClosed(client))
		again, err := client.AsyncAutoPipeline()
		require.NoError(s, err)
		require.Same(s, own, again)
		require.NoError(s, client.Close())
		require.True(s, isClosed(client))
	})
}

// A stream ends with the client: its connection, a request that waits for its reply, and later requests.
func TestStreamEndsWithItsClient(t *testing.T) {
	for name, of := range closables {
		named(t, name, func(s *scene) {
			client := of(s)
			p := New(client, Config{})
			answer(s, p, "ping")
			s.Freeze()
			owed := sent(s, p, "ping")
			synctest.Wait()
			start := time.Now()
			require.NoError(s, client.Close())
			if name == hidden {
				s.Thaw()
			}
			lost := owed.wait(s)
			if name != hidden {
				require.Equal(s, ErrClientClosed, lost.Err)
				require.Equal(s, Unknown, lost.Fate)
			}
			require.LessOrEqual(s, time.Since(start), lookPause)
			s.Thaw()
			s.connected(0)
			require.Zero(s, runningStreams())
			before := s.opened()
			if name == hidden {
				require.Equal(s, ErrClientClosed, ask(s, p, "ping").Err)
			}
			for range 3 {
				require.Equal(s, ErrClientClosed, p.Send(request(owed, "ping")))
			}
			if name != hidden {
				require.Equal(s, ErrClientClosed, New(client, Config{}).Send(request(owed, "ping")))
			}
			require.True(s, p.(Closable).ClientClosed())
			time.Sleep(time.Minute)
			require.Equal(s, before, s.opened())
			require.NoError(s, p.Close())
			require.Equal(s, ErrClosed, p.Send(request(owed, "ping")))
		})
	}
}

// The client is closed while the stream is opening a connection, and requests wait for it.
func TestStreamEndsWithItsClientDuringADial(t *testing.T) {
	bubble(t, func(s *scene) {
		client := s.client(func(o *redis.Options) { o.Dialer = hangs })
		p, in := New(client, Config{}), make(replies, 2)
		for range 2 {
			send(s, p, in, "ping")
		}
		synctest.Wait()
		start := time.Now()
		require.NoError(s, client.Close())
		for range 2 {
			r := in.wait(s)
			require.Equal(s, ErrClientClosed, r.Err)
			require.Equal(s, NotSent, r.Fate)
		}
		require.LessOrEqual(s, time.Since(start), lookPause)
		synctest.Wait()
		require.Zero(s, runningStreams())
	})
}

// A subscription ends with the client, although it has a connection of its own.
func TestSubscriptionEndsWithItsClient(t *testing.T) {
	for name, of := range closables {
		for _, state := range []string{"subscribed", "frozen", "between two attempts"} {
			named(t, name+" "+state, func(s *scene) {
				client := of(s)
				e := subscribed(s, New(client, Config{}))
				switch state {
				case "frozen":
					s.Freeze()
				case "between two attempts":
					s.Kill()
					time.Sleep(3 * time.Second)
				}
				start := time.Now()
				require.NoError(s, client.Close())
				last := e.Next()
				for last.What != "refused" {
					last = e.Next()
				}
				require.Equal(s, ErrClientClosed, last.Err)
				require.LessOrEqual(s, time.Since(start), 2*time.Second)
				s.Thaw()
				s.connected(0)
				time.Sleep(10 * time.Minute)
				e.silent()
			})
		}
	}
}
