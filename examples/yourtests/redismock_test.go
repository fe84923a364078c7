package yourtests

import (
	"context"
	"errors"
	"net"
	"testing"

	"github.com/go-redis/redismock/v9"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/pool"
)

// A mock of redismock plays a node: it expects the commands of a lock.
func TestRedismock(t *testing.T) {
	for script, node := range map[string]func(client *redis.Client) pool.Pool{
		"eval": func(client *redis.Client) pool.Pool {
			return pool.Func(func(ctx context.Context, args ...any) (any, error) { return client.Do(ctx, args...).Result() })
		},
		"evalsha": func(client *redis.Client) pool.Pool { return pool.New(client, pool.ViaClient()) },
	} {
		client, mock := redismock.NewClientMock()
		mock.Regexp().ExpectDo("set", "orders", ".+", "nx", "px", "3600000").SetVal("OK")
		mock.Regexp().ExpectDo("set", "orders", ".+", "nx", "px", "3600000").RedisNil()
		mock.Regexp().ExpectDo(script, ".+", "2", "orders", ".+:queue", ".+").SetVal(int64(0)) // what it may have set is taken back
		mock.Regexp().ExpectDo(script, ".+", "2", "orders", ".+:queue", ".+").SetVal(int64(1)) // Unlock

		rs := redsync.New(node(client))
		m := rs.NewMutex("orders", patient...)
		require.NoError(t, m.Lock())
		var taken *redsync.ErrTaken
		require.ErrorAs(t, rs.NewMutex("orders", patient...).TryLock(), &taken)
		ok, err := m.Unlock()
		require.True(t, ok && err == nil, err)
		require.NoError(t, mock.ExpectationsWereMet())
		require.NoError(t, errors.Join(rs.Close(t.Context()), client.Close()))
	}
}

// pool.New refuses a mock, and dials nothing: the address of a mock is that of a Redis on your machine.
func TestRedismockIsNotDialed(t *testing.T) {
	client, _ := redismock.NewClientMock()
	client.Options().Dialer = func(context.Context, string, string) (net.Conn, error) {
		t.Error("dialed")
		return nil, net.ErrClosed
	}
	cluster, _ := redismock.NewClusterMock()
	for _, mock := range []redis.UniversalClient{client, cluster} {
		rs := redsync.New(pool.New(mock))
		require.ErrorContains(t, rs.NewMutex("orders").Lock(), "use pool.Func")
		require.NoError(t, errors.Join(rs.Close(t.Context()), mock.Close()))
	}
}
