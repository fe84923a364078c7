package pool_test

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/realredis"
	"github.com/seed14bd9ef4/redsync/pool"
)

// do runs a command on a server.
func do(t *testing.T, s *realredis.Server, args ...any) any {
	t.Helper()
	v, err := s.Do(args...)
	require.NoError(t, err, "%v", args)
	return v
}

// keysIn returns how many keys a database of a server has.
func keysIn(t *testing.T, s *realredis.Server, db int) int64 {
	t.Helper()
	n, err := clientOf(t, s.Addr(), func(o *redis.Options) { o.DB = db }).DBSize(t.Context()).Result()
	require.NoError(t, err)
	return n
}

// If the greeting of go-redis itself fails, every request of the pool fails with the same
// error text, whether it comes from the server or from the user's OnConnect. In this test the
// default user needs no password. So if the pool sent a request despite the failure, the server
// would execute it, as the default user in database 0.
func TestGreetingsThatAServerRefuses(t *testing.T) {
	server := realredis.Start(t, 1, "--databases", "4")[0]
	do(t, server, "acl", "setuser", "app", "on", ">1", "~*", "&*", "+@all")
	do(t, server, "acl", "setuser", "small", "on", ">1", "~*", "&*", "+@all", "-select", "-ping", "-client")
	for name, c := range map[string]struct {
		words  string
		change func(*redis.Options)
	}{
		"a wrong password":      {"WRONGPASS", func(o *redis.Options) { o.Username, o.Password = "app", "2" }},
		"SELECT is not allowed": {"NOPERM", func(o *redis.Options) { o.Username, o.Password, o.DB = "small", "1", 3 }},
		"OnConnect fails":       {"no such key", func(o *redis.Options) { o.OnConnect = renaming }},
	} {
		t.Run(name, func(t *testing.T) {
			client := clientOf(t, server.Addr(), c.change)
			require.ErrorContains(t, client.Ping(t.Context()).Err(), c.words, "a PING of go-redis itself must fail too")
			p := poolOf(t, client)
			r := pool.Ask(t, p, "set", "key", "value")
			require.Equal(t, pool.NotSent, r.Fate)
			require.ErrorContains(t, r.Err, c.words)
			e := pool.NewEar()
			s, err := p.(pool.Subscriber).Subscribe("channel", e)
			require.NoError(t, err)
			defer s.Close()
			require.ErrorContains(t, e.Hears(t, "unsubscribed").Err, c.words)
			for db := range 4 {
				require.Zero(t, keysIn(t, server, db), "database %d", db)
			}
		})
	}
	t.Run("PING is not allowed", func(t *testing.T) {
		client := clientOf(t, server.Addr(), func(o *redis.Options) { o.Username, o.Password = "small", "1" })
		require.ErrorContains(t, client.Ping(t.Context()).Err(), "NOPERM")
		lockOnce(t, poolOf(t, client), "lock")
	})
}

func renaming(ctx context.Context, cn *redis.Conn) error {
	return cn.Rename(ctx, "there is", "no such key").Err()
}

// The server's password is replaced. Open connections continue, and new ones fail until the client
// has the new password too. The server must never execute a request as another user.
func TestAPasswordIsReplaced(t *testing.T) {
	server := realredis.Start(t, 1)[0]
	do(t, server, "acl", "setuser", "app", "on", ">1", "~*", "&*", "+@all")
	password := "1"
	client := clientOf(t, server.Addr(), func(o *redis.Options) {
		o.CredentialsProvider = func() (string, string) { return "app", password }
		o.DB = 3
	})
	p := poolOf(t, client)
	pool.Answer(t, p, "set", "before", "value")
	do(t, server, "acl", "setuser", "app", "resetpass", ">2")
	pool.Answer(t, p, "set", "standing", "value")
	do(t, server, "client", "kill", "user", "app")
	for range 5 {
		r := pool.Ask(t, p, "set", "key", "value")
		require.NotEqual(t, pool.Answered, r.Fate)
		require.Error(t, r.Err)
	}
	require.ErrorContains(t, pool.Ask(t, p, "set", "key", "value").Err, "WRONGPASS")
	require.Zero(t, keysIn(t, server, 0))
	require.Equal(t, int64(2), keysIn(t, server, 3))
	password = "2"
	eventually(t, "the pool connects with the new password", func() bool {
		return pool.Ask(t, p, "set", "key", "value").Err == nil
	})
	require.Zero(t, keysIn(t, server, 0))
}
