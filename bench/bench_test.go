package main

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/realredis"
)

// BenchmarkLockUnlock measures one Lock and Unlock of fresh keys.
func BenchmarkLockUnlock(b *testing.B) {
	servers := realredis.Start(b, nodes)
	addrs := make([]string, len(servers))
	for i, s := range servers {
		addrs[i] = s.Addr()
	}
	for _, name := range []string{defaults, ours, oursTwo, oursEight, oursPermits, floor} {
		for _, width := range []int{1, 16, 128} {
			b.Run(fmt.Sprintf("%s/%d", name, width), func(b *testing.B) {
				benchmarkPairs(b, addrs, name, width)
			})
		}
	}
}

func benchmarkPairs(b *testing.B, addrs []string, name string, width int) {
	b.Helper()
	lib, err := named(name)[0].start(b.Context(), addrs, patientExpiry)
	require.NoError(b, err)
	defer func() { require.NoError(b, lib.Close()) }()
	require.NoError(b, onePair(b.Context(), lib)) // opens the connections
	b.ReportAllocs()
	b.ResetTimer()
	var done atomic.Int64
	var wg sync.WaitGroup
	for range width {
		wg.Go(func() {
			for done.Add(1) <= int64(b.N) {
				if err := onePair(b.Context(), lib); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}
