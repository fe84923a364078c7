package wire_test

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/testkit/realredis"
	"github.com/seed14bd9ef4/redsync/internal/wire"
)

// keysIn returns how many keys a database of a server has.
func keysIn(t *testing.T, s *realredis.Server, db int) int64 {
	t.Helper()
	n, err := clientOf(t, s.Addr(), func(o *redis.Options) { o.DB = db }).DBSize(t.Context()).Result()
	require.NoError(t, err)
	return n
}

// The server's password is replaced. Open connections continue, and new ones fail until the client
// has the new password too. The server must never execute a request as another user.
func TestAPasswordIsReplaced(t *testing.T) {
	server := realredis.Start(t, 1)[0]
	realredis.Must(t, server, "acl", "setuser", "app", "on", ">1", "~*", "&*", "+@all")
	password := "1"
	client := clientOf(t, server.Addr(), func(o *redis.Options) {
		o.CredentialsProvider = func() (string, string) { return "app", password }
		o.DB = 3
	})
	p := poolOf(t, client)
	wire.Answer(t, p, "set", "before", "value")
	realredis.Must(t, server, "acl", "setuser", "app", "resetpass", ">2")
	wire.Answer(t, p, "set", "standing", "value")
	realredis.Must(t, server, "client", "kill", "user", "app")
	for range 5 {
		r := wire.Ask(t, p, "set", "key", "value")
		require.NotEqual(t, wire.Answered, r.Fate)
		require.Error(t, r.Err)
	}
	require.ErrorContains(t, wire.Ask(t, p, "set", "key", "value").Err, "WRONGPASS")
	require.Zero(t, keysIn(t, server, 0))
	require.EqualValues(t, 2, keysIn(t, server, 3))
	password = "2"
	eventually(t, "the pool connects with the new password", func() bool {
		return wire.Ask(t, p, "set", "key", "value").Err == nil
	})
	require.Zero(t, keysIn(t, server, 0))
}

// A client may log in with HELLO 3 in OnConnect, as go-redis's documentation shows, whatever Protocol says: go-redis's own
// HELLO is refused then. Requests and subscriptions read what the server sends in RESP3.
func TestOnConnectMayLogInWithHello3(t *testing.T) {
	server := realredis.Start(t, 1)[0]
	realredis.Must(t, server, "acl", "setuser", "app", "on", ">1", "~*", "&*", "+@all")
	realredis.Must(t, server, "acl", "setuser", "default", "off")
	for _, protocol := range []int{0, 2, 3} {
		for _, hello := range []int{2, 3} {
			client := clientOf(t, server.Addr(), func(o *redis.Options) {
				o.Protocol = protocol
				o.OnConnect = func(ctx context.Context, cn *redis.Conn) error {
					return cn.Hello(ctx, hello, "app", "1", "me").Err()
				}
			})
			p, ear := poolOf(t, client), wire.NewEar(t)
			wire.Answer(t, p, "set", "key", "value")
			require.NotNil(t, wire.Ask(t, p, "hget", "none", "none").Server)
			require.Equal(t, int64(0), wire.Ask(t, p, "exists", "none").Value)
			s, err := p.(wire.Subscriber).Subscribe("channel", ear)
			require.NoError(t, err)
			ear.Again()
			wire.Answer(t, p, "publish", "channel", "x")
			ear.Hears("message x")
			s.Close()
		}
	}
}
