package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSeveralNamesAreDifferent(t *testing.T) {
	require.Equal(t, []string{"bench:1"}, severalNames("bench:1", 1))
	require.Equal(t, []string{"bench:1", "bench:1:1", "bench:1:2"}, severalNames("bench:1", 3))
}

func TestALockOnSeveralNamesHasAKeyForEach(t *testing.T) {
	addrs := startNodes(t, nodes)
	look := dial(addrs)
	defer func() { _ = look.Close() }()
	for name, want := range map[string]int64{oursTwo: 2 * nodes, oursEight: 8 * nodes} {
		lib, err := named(name)[0].start(t.Context(), addrs, patientExpiry)
		require.NoError(t, err)
		lock, err := lib.Lock(t.Context(), freshKey())
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			n, err := countKeys(t.Context(), look)
			return err == nil && n == want
		}, patientWait, time.Millisecond)
		require.NoError(t, unlock(t.Context(), lock))
		require.NoError(t, lib.Close())
		require.NoError(t, flush(t.Context(), look))
	}
}

func TestNamesRelateToOneName(t *testing.T) {
	results := sampled(plan{}, namesScene)
	all := index(results)
	table := rows(namesScene, all)
	require.Len(t, table, 1+3*len(namesWidths))
	for i, want := range []string{"1.00", "2.00", "3.00", "1.00", "1.25", "1.50"} {
		require.Equal(t, want, table[1+i][8], "x one name: %v", table[1+i])
	}
	require.ErrorContains(t, verdict(results), "names, goroutines 1, "+oursTwo+": 1 keys left behind")
}
