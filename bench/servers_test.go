package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/testkit/realredis"
)

func startNodes(t *testing.T, n int) (addrs []string) {
	for _, s := range realredis.Start(t, n) {
		addrs = append(addrs, s.Addr())
	}
	return addrs
}

func TestEveryContenderLocksAndUnlocks(t *testing.T) {
	addrs := startNodes(t, nodes)
	look := dial(addrs)
	defer look.Close()
	for _, c := range everyContender() {
		t.Run(c.name, func(t *testing.T) {
			lib, err := c.start(t.Context(), addrs, patientExpiry)
			require.NoError(t, err)
			lock, err := lib.Lock(t.Context(), freshKey())
			require.NoError(t, err)
			require.Eventually(t, func() bool {
				n, err := countKeys(t.Context(), look)
				return err == nil && (n > nodes/2 || c.single && n == 1)
			}, patientWait, time.Millisecond)
			require.NoError(t, unlock(t.Context(), lock))
			if c.name != failFast && c.name != onRueidis { // their Unlock may leave keys on a minority of nodes
				require.Eventually(t, func() bool {
					n, err := countKeys(t.Context(), look)
					return err == nil && n == countRegisters(t, look) // the registers of fenced locks remain
				}, patientWait, time.Millisecond)
			}
			require.NoError(t, lib.Close())
			require.NoError(t, flush(t.Context(), look))
		})
	}
}

func countRegisters(t *testing.T, look clients) (count int64) {
	for _, node := range look {
		keys, err := node.Keys(t.Context(), "*:fence").Result()
		require.NoError(t, err)
		count += int64(len(keys))
	}
	return count
}

// These times are long enough for a busy machine. Nodes must answer within a part of the expiry. Released
// keys must be gone within the grace, which is shorter than the expiry.
const (
	patientExpiry = 40 * time.Second
	patientGrace  = 5 * time.Second
	patientWait   = 30 * time.Second // shorter than the expiry
)
