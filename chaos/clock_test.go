package main

import (
	"fmt"
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

// shown returns how far the clock of a server is ahead of the true time now. It computes this from the file
// that libfaketime reads. The server process started at c.started.
func shown(t *testing.T, c *nodeClock, now time.Time) time.Duration {
	t.Helper()
	text, err := os.ReadFile(c.file)
	require.NoError(t, err)
	var offset, rate float64
	_, err = fmt.Sscanf(string(text), "%f x%f", &offset, &rate)
	require.NoError(t, err)
	return time.Duration((offset + now.Sub(c.started).Seconds()*(rate-1)) * float64(time.Second))
}

func TestNodeClockRunsOnFromWhereItIs(t *testing.T) {
	c, err := newNodeClock("library", t.TempDir())
	require.NoError(t, err)
	c.started = c.started.Add(-100 * time.Second)
	about := func(want time.Duration) {
		t.Helper()
		assert.InDelta(t, want, shown(t, c, time.Now()), float64(50*ms))
	}
	require.NoError(t, c.run(1.01))
	about(0)
	require.NoError(t, c.step(-2*time.Second))
	about(-2 * time.Second)
	c.started = c.started.Add(-100 * time.Second) // pretends that 100 s have passed
	about(-time.Second)
	require.NoError(t, c.run(1))
	about(-time.Second)
	require.NoError(t, c.starting()) // a new process
	about(-time.Second)
	assert.Equal(t, 2*time.Second, c.wasSetBack())
	require.NoError(t, c.step(5*time.Second))
	about(4 * time.Second)
	assert.Equal(t, 2*time.Second, c.wasSetBack())
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
