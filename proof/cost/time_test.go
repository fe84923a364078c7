//go:build unix

package cost

import (
	"encoding/json"
	"os"
	"runtime"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestTime measures the row that REDSYNC_COST_ROW names, for REDSYNC_COST_FOR, and writes what it costs to the file
// REDSYNC_COST_TO. It is a tool of the scene own-cost, and asserts nothing.
func TestTime(t *testing.T) {
	name := os.Getenv("REDSYNC_COST_ROW")
	if name == "" {
		t.Skip("a tool: see go run ./bench -scenes own-cost")
	}
	d, err := time.ParseDuration(os.Getenv("REDSYNC_COST_FOR"))
	require.NoError(t, err)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	text := []byte("{}") // this checkout has no such row
	if f, has := timed(t, name, d); has {
		text, err = json.Marshal(f)
		require.NoError(t, err)
	}
	require.NoError(t, os.WriteFile(os.Getenv("REDSYNC_COST_TO"), text, 0o600))
}

// timed returns the figures of a row, by the keys of the scene's columns.
func timed(t *testing.T, name string, d time.Duration) (f map[string]float64, has bool) {
	t.Helper()
	if name == ImportRow {
		c, ns := importCost(t)
		return map[string]float64{"ns": ns, "bytes": c.Bytes, "mallocs": c.Mallocs}, true
	}
	row, has := Rows[name]
	if !has {
		return nil, false
	}
	measure := func() {
		run := row.Begin()
		c := run.Measure(1000)
		f = map[string]float64{"ns": run.time(d), "bytes": c.Bytes, "mallocs": c.Mallocs}
		run.End()
	}
	switch {
	case row.Hold != nil:
		start := cpuTime()
		const locks = 20_000
		c := row.Weigh(locks, nil)
		f = map[string]float64{"ns": float64(cpuTime()-start) / locks, "bytes": c.Bytes, "mallocs": c.Mallocs}
	case row.Virtual:
		synctest.Test(t, func(*testing.T) { measure() })
	default:
		measure()
	}
	return f, true
}

// time returns the processor time of a call, by calls until d of processor time is used up.
func (r *Run) time(d time.Duration) float64 {
	const batch = 500
	runtime.GC()
	start, calls := cpuTime(), 0
	for cpuTime()-start < d {
		r.Calls(batch)
		calls += batch
	}
	return float64(cpuTime()-start) / float64(calls)
}

// cpuTime returns the processor time of this process.
func cpuTime() time.Duration {
	var u syscall.Rusage
	must(syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
