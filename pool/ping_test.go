package pool_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
	"github.com/seed14bd9ef4/redsync/internal/testkit/testmain"
	"github.com/seed14bd9ef4/redsync/pool"
)

func TestMain(m *testing.M) { testmain.RunWaiting(m) }

// Ping tells what one node answers, in time.
func TestPing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := embedded.Start(1)
		node, client := nodes[0], nodes[0].Client()
		defer nodes.Close()
		defer client.Close()
		do := func(ctx context.Context, args ...any) (any, error) { return client.Do(ctx, args...).Result() }
		for name, p := range map[string]pool.Pool{
			"New": pool.New(client), "Func": pool.Func(do), "ViaClient": pool.New(client, pool.ViaClient()),
		} {
			require.NoError(t, pool.Ping(t.Context(), p), name)
			node.On("ping", 1, embedded.Fault{Err: "NOPERM this user has no permissions"})
			require.EqualError(t, pool.Ping(t.Context(), p), "NOPERM this user has no permissions", name)
		}

		p := pool.New(client, pool.WithName("a"))
		why := errors.New("shutdown")
		cut, cutNow := context.WithCancelCause(t.Context())
		cutNow(why)
		node.Freeze()
		require.ErrorIs(t, pool.Ping(cut, p), why)
		late, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		require.EqualError(t, pool.Ping(late, p), "pool: a has not answered: context deadline exceeded")
		require.Equal(t, time.Second, time.Since(start))
		node.Thaw()
		require.NoError(t, pool.Ping(t.Context(), p))

		require.NoError(t, client.Close())
		time.Sleep(time.Second)
		require.ErrorIs(t, pool.Ping(t.Context(), p), pool.ErrClientClosed)
		require.NoError(t, p.Close())
		err := pool.Ping(t.Context(), p)
		require.ErrorIs(t, err, pool.ErrClosed)
		require.NotErrorIs(t, err, pool.ErrClientClosed)
		require.True(t, pool.IsPermanent(err))
		require.ErrorContains(t, pool.Ping(t.Context(), nil), "nil Pool")
		time.Sleep(time.Minute)
	})
}
