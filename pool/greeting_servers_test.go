package pool_test

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/realredis"
	"github.com/seed14bd9ef4/redsync/pool"
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
	pool.Answer(t, p, "set", "before", "value")
	realredis.Must(t, server, "acl", "setuser", "app", "resetpass", ">2")
	pool.Answer(t, p, "set", "standing", "value")
	realredis.Must(t, server, "client", "kill", "user", "app")
	for range 5 {
		r := pool.Ask(t, p, "set", "key", "value")
		require.NotEqual(t, pool.Answered, r.Fate)
		require.Error(t, r.Err)
	}
	require.ErrorContains(t, pool.Ask(t, p, "set", "key", "value").Err, "WRONGPASS")
	require.Zero(t, keysIn(t, server, 0))
	require.EqualValues(t, 2, keysIn(t, server, 3))
	password = "2"
	eventually(t, "the pool connects with the new password", func() bool {
		return pool.Ask(t, p, "set", "key", "value").Err == nil
	})
	require.Zero(t, keysIn(t, server, 0))
}
