package main

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/realredis"
)

// needFakeTime returns the path of libfaketime. Without libfaketime it skips the test, or fails it if the environment
// requires libfaketime.
func needFakeTime(t *testing.T) string {
	t.Helper()
	library, err := findFakeTime()
	if err != nil {
		if os.Getenv(envFakeTime) == requireFakeTime {
			t.Fatalf("%s=%s, and %v", envFakeTime, requireFakeTime, err)
		}
		t.Skipf("%v; %s=%s makes this a failure", err, envFakeTime, requireFakeTime)
	}
	return library
}

func TestServerGoesByItsNodeClock(t *testing.T) {
	realredis.Start(t, 0) // skips the test where there is no redis-server
	n, err := startNode(0, t.TempDir(), needFakeTime(t))
	require.NoError(t, err)
	t.Cleanup(n.stop)
	ahead := func() time.Duration {
		t.Helper()
		at, err := n.direct.Time(t.Context()).Result()
		require.NoError(t, err)
		return time.Until(at)
	}
	const near = float64(10 * time.Second) // a busy machine
	assert.InDelta(t, 0, ahead(), near)
	require.NoError(t, n.do(t.Context(), "SET", "a", "1", "PX", "60000"))
	require.NoError(t, n.clock.step(50*time.Second))
	assert.InDelta(t, 50*time.Second, ahead(), near)
	require.NoError(t, n.clock.step(-100*time.Second))
	assert.InDelta(t, -50*time.Second, ahead(), near)
	assert.InDelta(t, 110*time.Second, n.direct.PTTL(t.Context(), "a").Val(), near)

	n.kill()
	require.NoError(t, n.restart(t.Context(), true))
	assert.InDelta(t, -50*time.Second, ahead(), near)
	assert.Equal(t, "1", n.direct.Get(t.Context(), "a").Val(), "the node keeps the key that it had acknowledged")
	n.kill()
	require.NoError(t, n.restart(t.Context(), false))
	assert.Zero(t, n.direct.DBSize(t.Context()).Val())
}
