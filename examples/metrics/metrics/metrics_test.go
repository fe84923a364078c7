package metrics_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/examples/metrics/metrics"
	"github.com/seed14bd9ef4/redsync/redsynctest"
)

// The page shows the hooks as they are.
func read(t *testing.T, path string) string {
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}

// Prometheus is told of locks that were acquired, taken and lost, and of nodes that are down and up again.
func TestPrometheusIsToldOfWhatHappens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := redsynctest.Start(t, 5)
		registry := prometheus.NewRegistry()
		rs := nodes.Redsync().With(redsync.WithHooks(metrics.New(registry)), redsync.WithExpiry(time.Second))

		shows := func(want string) {
			synctest.Wait()
			names := []string{"lock_lost_total", "lock_node_down"}
			require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(want), names...))
		}

		first := rs.NewMutex("orders:17")
		require.NoError(t, first.Lock())
		require.Error(t, rs.NewMutex("orders:17").TryLock())
		nodes.Node(4).Down()
		time.Sleep(2 * time.Second)
		require.NoError(t, rs.NewMutex("orders:18").Lock())
		time.Sleep(2 * time.Second)
		shows(`
# HELP lock_lost_total Locks that ended without Unlock.
# TYPE lock_lost_total counter
lock_lost_total 2
# HELP lock_node_down 1 while a node fails.
# TYPE lock_node_down gauge
lock_node_down{node="4"} 1
`)
		nodes.Node(4).Up()
		require.NoError(t, rs.Do(t.Context(), "orders:19", func(context.Context) error { time.Sleep(10 * time.Second); return nil }))
		shows(`
# HELP lock_lost_total Locks that ended without Unlock.
# TYPE lock_lost_total counter
lock_lost_total 2
# HELP lock_node_down 1 while a node fails.
# TYPE lock_node_down gauge
lock_node_down{node="4"} 0
`)
		count, err := testutil.GatherAndCount(registry, "lock_acquire_seconds")
		require.NoError(t, err)
		assert.Equal(t, 2, count) // the outcomes acquired and taken
	})
}
