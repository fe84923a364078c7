package redsync_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
	"github.com/seed14bd9ef4/redsync/pool"
)

// This file shows what docs/testing.md and docs/from-redsync-v4.md say of clients that are not plain ones.

// miniClients returns servers inside the process, and a client of each.
func miniClients(t *testing.T, n int) (servers []*miniredis.Miniredis, clients []*redis.Client) {
	for range n {
		server := miniredis.RunT(t)
		client := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1})
		t.Cleanup(func() { _ = client.Close() })
		servers, clients = append(servers, server), append(clients, client)
	}
	return servers, clients
}

// slow machines get more time for an answer than a user needs.
func manyMinutes() redsync.Option { return redsync.WithNodeTimeout(30 * time.Second) }

// A test that looks at each node right after a call needs WithFailFast(false).
func TestNodesRightAfterACallWithoutFailFast(t *testing.T) {
	servers, clients := miniClients(t, 3)
	var pools []pool.Pool
	for _, client := range clients {
		pools = append(pools, pool.New(client))
	}
	rs := redsync.New(pools...)
	defer func() { _ = rs.Close(context.Background()) }()
	for i := range 50 {
		name := fmt.Sprint("key", i)
		m := rs.NewMutex(name, redsync.WithFailFast(false), redsync.WithExpiry(time.Hour), manyMinutes())
		require.NoError(t, m.Lock())
		for _, s := range servers {
			require.True(t, s.Exists(name))
		}
		ok, err := m.Unlock()
		require.True(t, ok && err == nil, err)
		for _, s := range servers {
			require.False(t, s.Exists(name))
		}
	}
}

// A client is replaced while a lock is held. With Func the lock goes on, as the new client reaches the same server. With
// pool.New the lock belongs to the old client: another Redsync takes it over by its value.
func TestReplacedClients(t *testing.T) {
	parallelComputing(t)
	servers, clients := miniClients(t, 1)
	replacement := redis.NewClient(&redis.Options{Addr: servers[0].Addr()})
	defer func() { _ = replacement.Close() }()
	var current atomic.Pointer[redis.Client]
	current.Store(clients[0])
	byFunc := redsync.New(pool.Func(func(ctx context.Context, args ...any) (any, error) {
		return current.Load().Do(ctx, args...).Result()
	}))
	old, renewed := redsync.New(pool.New(clients[0])), redsync.New(pool.New(replacement))
	defer func() { _ = errors.Join(byFunc.Close(context.Background()), renewed.Close(context.Background())) }()
	long := []redsync.Option{redsync.WithExpiry(time.Hour), manyMinutes()}
	held, left := byFunc.NewMutex("func", long...), old.NewMutex("new", long...)
	require.NoError(t, held.Lock())
	require.NoError(t, left.Lock())
	current.Store(replacement)
	value := left.Value()
	require.NoError(t, clients[0].Close())

	ok, err := held.Extend()
	require.True(t, ok && err == nil, err)
	ok, err = held.Unlock()
	require.True(t, ok && err == nil, err)
	require.False(t, servers[0].Exists("func"))

	require.Eventually(t, func() bool {
		_, err = left.Extend()
		return errors.Is(err, redis.ErrClosed)
	}, time.Minute, 20*time.Millisecond, "the pool looks at its client from time to time")
	require.True(t, servers[0].Exists("new"), "it is held until it expires")
	ok, err = renewed.NewMutex("new", append(long, redsync.WithValue(value))...).Unlock()
	require.True(t, ok && err == nil, err)
	require.False(t, servers[0].Exists("new"))
}

// ViaClient sends a command again where the client does that for its user. No key is left, however late an earlier sending
// is executed.
func TestViaClientRetriesAsTheClientDoes(t *testing.T) {
	const always, never = 3, -1 // as MaxRetries
	loading, lost, late := embedded.Fault{Err: "LOADING Redis is loading the dataset in memory"}, embedded.Fault{LoseCommand: true}, embedded.Fault{Delay: 4 * sec}
	for name, c := range map[string]struct {
		fault   embedded.Fault
		retries int
		text    string // of the error
	}{
		"loading":             {loading, always, ""},
		"loading, no retries": {loading, never, "LOADING"},
		"a lost command":      {lost, always, ""},
		"a lost reply":        {embedded.Fault{LoseReply: true}, always, ""}, // the key that is there is the lock's own
		"a late command":      {late, always, ""},                            // later than ReadTimeout
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(f field) {
				node := f.nodes[0]
				client := node.Client(func(o *redis.Options) { o.MaxRetries, o.ReadTimeout = c.retries, sec })
				rs := redsync.New(pool.New(client, pool.ViaClient()))
				f.Cleanup(func() { _ = errors.Join(rs.Close(f.Context()), client.Close()) })
				noError(f, rs.Ping(f.Context()))
				node.On("set", 1, c.fault)
				m := rs.NewMutex("lock", withExpiry(time.Hour), withNodeTimeout(10*sec))
				if err := m.TryLock(); c.text != "" {
					require.ErrorContains(f, err, c.text)
				} else {
					noError(f, err)
					f.unlock(m)
				}
				time.Sleep(minute)
				require.False(f, node.Exists("lock"))
			})
		})
	}
}

// A mock answers the commands of a lock.
func TestAMockIsAFunction(t *testing.T) {
	var names []any
	rs := redsync.New(pool.Func(func(_ context.Context, args ...any) (any, error) {
		names = append(names, args[0])
		switch args[0] {
		case "set":
			require.IsType(t, int64(0), args[5])
			return true, nil
		case "eval":
			require.IsType(t, 0, args[2])
			return 1, nil
		}
		return nil, fmt.Errorf("unexpected %v", args)
	}))
	m := rs.NewMutex("lock", redsync.WithExpiry(time.Hour), manyMinutes())
	require.NoError(t, m.Lock())
	ok, err := m.Unlock()
	require.True(t, ok && err == nil, err)
	require.NoError(t, rs.Close(context.Background()))
	require.Equal(t, []any{"set", "eval"}, names)
}
