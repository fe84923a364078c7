//go:build unix

package redsync_test

import (
	"context"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/embedded"
)

// BenchmarkIdleWaiters measures the CPU time that 10,000 goroutines need while they wait for one lock.
func BenchmarkIdleWaiters(b *testing.B) {
	nodes := embedded.Start(5)
	defer nodes.Close()
	holder, rs := process(nodes), process(nodes)
	m := holder.NewMutex("lock", redsync.WithExpiry(time.Hour))
	require.NoError(b, m.Lock())
	ctx, cancel := context.WithCancel(b.Context())
	var wg sync.WaitGroup
	for range 10_000 {
		wg.Go(func() { _ = rs.NewMutex("lock", redsync.WithTries(0)).LockContext(ctx) })
	}
	const window = 300 * time.Millisecond
	time.Sleep(window) //nolint:forbidigo // they settle
	before := cpuTime(b)
	b.ResetTimer()
	for range b.N {
		time.Sleep(window) //nolint:forbidigo // it is what is measured
	}
	b.ReportMetric(100*float64(cpuTime(b)-before)/float64(b.N)/float64(window), "%core")
	b.StopTimer()
	cancel()
	wg.Wait()
	_ = rs.Close(context.Background()) //nolint:usetesting // b's is done then
	_ = holder.Close(context.Background())
}

func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
