package main

import (
	"context"
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
