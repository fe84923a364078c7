package redsyncotel_test

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/redsyncotel"
	"github.com/seed14bd9ef4/redsync/redsynctest"
)

// BenchmarkPair is a Lock and an Unlock, with and without an Observer, by one goroutine and by 128 that lock names of their
// own.
func BenchmarkPair(b *testing.B) {
	observed, _ := observer(b)
	named, _ := observer(b, redsyncotel.WithName(func(string) string { return "order" }))
	for _, goroutines := range []int{1, 128} {
		for _, c := range []struct {
			name    string
			options []redsync.Option
		}{
			{"none", nil},
			{"observer", []redsync.Option{redsync.WithObserver(observed)}},
			{"observer, WithName", []redsync.Option{redsync.WithObserver(named)}},
		} {
			b.Run(fmt.Sprintf("%s/%d", c.name, goroutines), func(b *testing.B) { benchmarkPair(b, goroutines, c.options) })
		}
	}
}

func benchmarkPair(b *testing.B, goroutines int, options []redsync.Option) {
	b.Helper()
	nodes := redsynctest.Start(b, 5)
	rs := nodes.Redsync().With(options...)
	var number atomic.Int64
	b.ReportAllocs()
	if goroutines > 1 {
		b.SetParallelism(goroutines / runtime.GOMAXPROCS(0))
	}
	work := func(next func() bool) {
		m := rs.NewMutex(fmt.Sprint("order:", number.Add(1)))
		for next() {
			if err := m.Lock(); err != nil {
				b.Error(err)
				return
			}
			if _, err := m.Unlock(); err != nil {
				b.Error(err)
				return
			}
		}
	}
	b.ResetTimer()
	if goroutines == 1 {
		work(b.Loop)
	} else {
		b.RunParallel(func(pb *testing.PB) { work(pb.Next) })
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "pairs/s")
}

// BenchmarkRecording is what an Observer does for such a pair: ten votes, an Acquired and a Released.
func BenchmarkRecording(b *testing.B) {
	o, _ := observer(b)
	ctx := b.Context()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			tellPair(ctx, o)
		}
	})
}
