package redsync_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/pool"
)

// This file has steps and checks that many tests make.

// playAs is play as a subtest.
func playAs(t *testing.T, name string, f func(f field)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { play(t, f) })
}

// kitAs is onKit as a subtest.
func kitAs(t *testing.T, name string, f func(k kit)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { onKit(t, f) })
}

// locked locks m, and returns it.
func locked(t testing.TB, m *redsync.Mutex) *redsync.Mutex {
	t.Helper()
	require.NoError(t, m.Lock())
	return m
}

// errorIs checks that err matches each target.
func errorIs(t testing.TB, err error, targets ...error) {
	t.Helper()
	for _, target := range targets {
		require.ErrorIs(t, err, target)
	}
}

// isTaken checks that err says that others have the lock, and returns what it says.
func isTaken(t testing.TB, err error) (taken *redsync.ErrTaken) {
	t.Helper()
	require.ErrorAs(t, err, &taken)
	return taken
}

// took checks how much time has passed since start.
func took(t testing.TB, start time.Time, want time.Duration, why ...any) {
	t.Helper()
	assert.Equal(t, want, time.Since(start), why...)
}

// confirms checks that an operation has returned true and no error.
func (c change) confirms(ok bool, err error) {
	c.Helper()
	user{T: c.T}.confirms(ok, err)
}

// limited returns a context that ends after d.
func limited(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// poolsOf returns a pool of each client.
func poolsOf(clients []*redis.Client) (pools []pool.Pool) {
	for _, c := range clients {
		pools = append(pools, pool.New(c))
	}
	return pools
}
