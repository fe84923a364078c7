package main

import (
	"context"
	"io"
	"maps"
	"testing"

	"github.com/stretchr/testify/require"
)

// costOf returns a result with the cost of a row, which is the same when it is measured again.
func costOf(library, row string, ns float64) *result {
	return &result{
		cell: cell{
			id:      id{Scene: ownCostScene.name, Variant: row, Goroutines: 1, Library: library},
			measure: func(context.Context, *lab, cell) (figures, error) { return figures{"ns": ns}, nil },
		},
		samples: []figures{{"ns": ns}},
	}
}

func TestBoundedCostNamesCallsAboveTheirBounds(t *testing.T) {
	const row = "Lock + Unlock"
	defer func(bounds map[string]float64) { mostOfRecorded = bounds }(mostOfRecorded)
	mostOfRecorded = maps.Clone(mostOfRecorded)
	mostOfRecorded[row] = 1.5
	of := func(library string, ns float64) *result { return costOf(library, row, ns) }
	require.NoError(t, boundedCost([]*result{of(thisCheckout, 150), of(beside, 100)}))
	err := boundedCost([]*result{of(thisCheckout, 151), of(beside, 100)})
	require.ErrorContains(t, err, "own-cost, Lock + Unlock, goroutines 1, this checkout: 1.51 times the time at 3c20e96, at most 1.50")
	delete(mostOfRecorded, row)
	require.ErrorContains(t, boundedCost([]*result{of(thisCheckout, 150), of(beside, 100)}), "a bound: false")
}

// A machine that was busy for a while fails no row: rows above their bounds, and only those, are measured again.
func TestRowsAboveTheirBoundsAreMeasuredAgain(t *testing.T) {
	of := costOf
	busy, slow, quick := of(thisCheckout, "Extend", 90), of(thisCheckout, "Do", 1000), of(thisCheckout, "TryLock, taken", 100)
	results := []*result{busy, of(beside, "Extend", 100), slow, of(beside, "Do", 100), quick, of(beside, "TryLock, taken", 100)}
	busy.samples[0]["ns"], slow.samples[0]["ns"] = 1000, 1000
	l := &lab{plan: plan{rounds: 2}}
	require.NoError(t, l.measureAboveBounds(t.Context(), results, io.Discard))
	require.Len(t, busy.samples, 3)
	require.Len(t, slow.samples, 7)
	require.Len(t, quick.samples, 1)
	err := boundedCost(results)
	require.ErrorContains(t, err, "Do, goroutines 1")
	require.NotContains(t, err.Error(), "Extend")
}
