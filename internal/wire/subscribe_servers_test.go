package wire_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed14bd9ef4/redsync/internal/testkit/realredis"
	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
	"github.com/seed14bd9ef4/redsync/internal/wire"
)

// leavesNothing fails the test if goroutines that it started are left after all its other cleanups. A
// test must call it first.
func leavesNothing(t *testing.T) {
	t.Helper()
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) })
}

// listenTo subscribes until the end of the test.
func listenTo(t *testing.T, p wire.Pool, channel string) (*wire.Ear, *wire.Subscription) {
	t.Helper()
	e := wire.NewEar(t)
	s, err := p.(wire.Subscriber).Subscribe(channel, e)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return e, s
}

// hearsFrom publishes a message on the server, and fails unless that is the next call of e. On a slow machine a subscription
// may end: then it publishes again what e has missed.
func hearsFrom(t *testing.T, s *realredis.Server, e *wire.Ear, channel, payload string) {
	t.Helper()
	for range 100 {
		realredis.Must(t, s, "publish", channel, payload)
		h := e.Next()
		if h.What != "unsubscribed" {
			require.Equal(t, "message "+payload, h.What, "%v", h.Err)
			return
		}
		e.Again()
	}
	require.Fail(t, "the subscription has ended 100 times")
}

// asUser gives the server a user with these ACL rules, and returns a pool of that user.
func asUser(t *testing.T, s *realredis.Server, name string, rules ...any) wire.Pool {
	t.Helper()
	realredis.Must(t, s, append([]any{"acl", "setuser", name, "reset", "on", ">secret"}, rules...)...)
	return poolOf(t, clientOf(t, s.Addr(), func(o *redis.Options) { o.Username, o.Password = name, "secret" }))
}

func TestSubscribeWithSmallestACL(t *testing.T) {
	leavesNothing(t)
	server := realredis.Start(t, 1)[0]
	p := asUser(t, server, "listener", "+subscribe", "resetchannels", "&lock:*")
	e, _ := listenTo(t, p, "lock:wake")
	e.Again()
	hearsFrom(t, server, e, "lock:wake", "x")

	other, _ := listenTo(t, p, "other")
	var refused redis.Error
	require.ErrorAs(t, other.Hears("refused").Err, &refused)
	require.Contains(t, refused.Error(), "NOPERM")

	realredis.Must(t, server, "acl", "setuser", "listener", "resetchannels") // ends the connection
	e.Hears("unsubscribed", "refused")
}

// The server closes the connection of a client that reads too slowly. The subscription must reconnect.
func TestSubscribeOutputBufferLimit(t *testing.T) {
	leavesNothing(t)
	server := realredis.Start(t, 1)[0]
	realredis.Must(t, server, "config", "set", "client-output-buffer-limit", "pubsub 100kb 0 0")
	slow, release := wire.NewEar(t), make(chan struct{})
	slow.Then = func(h wire.Heard) {
		if h.What != "subscribed" {
			<-release
		}
	}
	s, err := poolOf(t, clientOf(t, server.Addr())).(wire.Subscriber).Subscribe("channel", slow)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	slow.Again()
	payload := strings.Repeat("x", 1<<20)
	eventually(t, "the server ends the connection", func() bool {
		n, err := server.Do("publish", "channel", payload)
		return err == nil && n == int64(0)
	})
	close(release)
	for h := slow.Next(); h.What != "unsubscribed"; h = slow.Next() {
		require.Equal(t, "message "+payload, h.What)
	}
	slow.Again()
	hearsFrom(t, server, slow, "channel", "y")
}

func TestSubscribeCluster(t *testing.T) {
	testlength.NotWhileAPersonWaits(t)
	t.Parallel()
	servers := realredis.StartCluster(t)
	p := poolOf(t, clusterClient(t, servers))
	var ears []*wire.Ear
	for i := range 6 {
		e, _ := listenTo(t, p, fmt.Sprintf("channel:%d", i))
		ears = append(ears, e)
	}
	for i, e := range ears {
		e.Again()
		for j, s := range servers { // the cluster forwards a message published on any node
			hearsFrom(t, s, e, fmt.Sprintf("channel:%d", i), fmt.Sprint(j))
		}
	}
	for _, s := range servers {
		realredis.Must(t, s, "client", "kill", "type", "pubsub")
	}
	for i, e := range ears {
		e.Hears("unsubscribed", "subscribed")
		hearsFrom(t, servers[0], e, fmt.Sprintf("channel:%d", i), "again")
	}
	require.NoError(t, p.Close())
	eventually(t, "no subscription is left", func() bool {
		left := ""
		for _, s := range servers {
			channels, err := s.Do("pubsub", "channels")
			left += fmt.Sprint(channels, err)
		}
		return left == strings.Repeat("[] <nil>", 3)
	})
}
