package redsync_test

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/realredis"
	"github.com/seed14bd9ef4/redsync/pool"
)

// This file shows what Open waits for, and what its errors say.

// closedPort returns an address on which nobody listens.
func closedPort(t *testing.T) string {
	t.Helper()
	addr, err := realredis.FreeAddr()
	require.NoError(t, err)
	return addr
}

func TestOpenReturnsOnceAQuorumHasAnswered(t *testing.T) {
	addresses := make([]string, 5)
	for i := range 3 {
		m := miniredis.RunT(t)
		addresses[i] = m.Addr()
		if i == 2 {
			addresses[i] = "redis://" + m.Addr() + "/0"
		}
	}
	addresses[3], addresses[4] = closedPort(t), closedPort(t)
	rs, err := redsync.Open(t.Context(), addresses, redsync.WithExpiry(time.Minute))
	require.NoError(t, err)
	m := rs.NewMutex("lock")
	require.NoError(t, m.Lock())
	assert.Greater(t, m.Remaining(), 30*time.Second)
	ok, err := m.Unlock()
	require.NoError(t, err)
	assert.True(t, ok)
	require.NoError(t, rs.Close(t.Context()))
}

func TestOpenWithoutAQuorumNamesEachNode(t *testing.T) {
	addresses := []string{miniredis.RunT(t).Addr(), closedPort(t), closedPort(t)}
	_, err := redsync.Open(t.Context(), addresses)
	require.ErrorContains(t, err, "1 of 3 nodes answered, 2 needed")
	require.ErrorIs(t, err, redsync.ErrNoQuorum)
	for i := 1; i < 3; i++ {
		assert.ErrorContains(t, err, fmt.Sprintf("node #%d (%s): dial tcp %s", i, addresses[i], addresses[i]))
	}
}

func TestOpenBadAddressesAreErrors(t *testing.T) {
	for want, addresses := range map[string][]string{
		"no pools":                  nil,
		`address #1: "x" is not of`: {"127.0.0.1:1", "x"},
		`"" is not of the form`:     {""},
		"#0 and #2 (127.0.0.1:1)":   {"127.0.0.1:1", "127.0.0.1:2", "redis://127.0.0.1:1/3"},
		"contains a space":          {" 127.0.0.1:1"},
		`port "1\n" is not`:         {"127.0.0.1:1", "127.0.0.1:1\n"},
		`port "0" is not`:           {"127.0.0.1:0"},
		`port "65536" is not`:       {"127.0.0.1:65536"},
		`port "99999" is not`:       {"redis://127.0.0.1:99999"},
		"http://h:1":                {"http://h:1"},
	} {
		_, err := redsync.Open(t.Context(), addresses)
		require.ErrorContains(t, err, want)
	}
	for _, address := range []string{"redis://user:secret@host:x/", "redis://user:secret/x@host:1", "user:secret@host:1"} {
		_, err := redsync.Open(t.Context(), []string{address})
		require.Error(t, err)
		assert.NotContains(t, err.Error(), "secret")
		assert.ErrorContains(t, err, "...@host:")
	}
	_, err := redsync.Open(t.Context(), []string{"127.0.0.1:1", "127.0.0.1:1"})
	require.ErrorIs(t, err, redsync.ErrDuplicateNode)
}

func TestOpenChecksItsOptionsFirst(t *testing.T) {
	server := miniredis.RunT(t)
	_, err := redsync.Open(t.Context(), []string{server.Addr()}, redsync.WithExpiry(-1))
	require.ErrorContains(t, err, "redsync: Open: WithExpiry(-1ns) is out of range")
	assert.Zero(t, server.CurrentConnectionCount())
}

func TestOpenLeavesNoConnection(t *testing.T) {
	server := miniredis.RunT(t)
	rs, err := redsync.Open(t.Context(), []string{"redis://" + server.Addr() + "?min_idle_conns=3"})
	require.NoError(t, err)
	require.NoError(t, rs.NewMutex("lock").Lock())
	require.NoError(t, rs.Close(t.Context()))
	assert.Eventually(t, func() bool { return server.CurrentConnectionCount() == 0 }, 10*time.Second, 5*time.Millisecond)
}

func TestOpenEndedByItsContextNamesWhatNodesSaid(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = silent.Close() }()
	silent2, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = silent2.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err = redsync.Open(ctx, []string{closedPort(t), silent.Addr().String(), silent2.Addr().String()})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "refused")
	require.NotErrorIs(t, err, redsync.ErrNoQuorum, "the context has cut the round")
	for i := range 3 {
		assert.ErrorContains(t, err, fmt.Sprintf("node #%d (", i))
	}
}

func TestOpenEndsWithItsContext(t *testing.T) {
	// A listener that never answers.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = redsync.Open(ctx, []string{l.Addr().String()})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	_ = l.Close()
}

func TestNewOnAnAddressThatNobodyCanDialFailsAtOnce(t *testing.T) {
	for _, addr := range []string{" h:1", "h:1\n", "h:0", "h:65536", "h:-1", "h", "h:no-such-service"} {
		client := redis.NewClient(&redis.Options{Addr: addr})
		err := redsync.New(pool.New(client)).NewMutex("lock").Lock()
		require.ErrorContains(t, err, fmt.Sprintf("pool #0: address %q: ", addr))
		require.NoError(t, client.Close())
	}
}
