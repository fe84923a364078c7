package main

import (
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A checkout that lacks what some rows use is measured without these rows.
func TestOwnCostLeavesOutRowsThatACheckoutDoesNotHave(t *testing.T) {
	t.Chdir("..")
	dir := t.TempDir()
	require.NoError(t, copyCost(dir, "."))
	young := filepath.Join(dir, "rows_young.go")
	require.NoError(t, os.WriteFile(young, []byte("package cost\n\nvar _ = redsync.WithSomethingNew\n"), 0o600))
	program := filepath.Join(dir, "own-cost")
	require.NoError(t, buildCost(t.Context(), dir, program))
	require.NoFileExists(t, young)
	require.FileExists(t, filepath.Join(dir, "rows_modes.go"))

	l := &lab{plan: plan{cell: 10 * time.Millisecond}, costPrograms: map[string]string{".": program}}
	f, err := measureOwnCost(t.Context(), l, cell{id: id{Variant: "Lock + Unlock", Library: thisCheckout}})
	require.NoError(t, err)
	require.Positive(t, f["ns"])
	require.Greater(t, f["mallocs"], 1.0)
	f, err = measureOwnCost(t.Context(), l, cell{id: id{Variant: "something new", Library: thisCheckout}})
	require.NoError(t, err)
	require.Empty(t, f)
}

func TestBoundedCostNamesCallsAboveTheirBounds(t *testing.T) {
	const row = "Lock + Unlock"
	defer func(bounds map[string]float64) { mostOfRecorded = bounds }(mostOfRecorded)
	mostOfRecorded = maps.Clone(mostOfRecorded)
	mostOfRecorded[row] = 1.5
	of := func(library string, ns float64) *result {
		c := cell{id: id{Scene: ownCostScene.name, Variant: row, Goroutines: 1, Library: library}}
		return &result{cell: c, samples: []figures{{"ns": ns}}}
	}
	require.NoError(t, boundedCost([]*result{of(thisCheckout, 150), of(beside, 100)}))
	err := boundedCost([]*result{of(thisCheckout, 151), of(beside, 100)})
	require.ErrorContains(t, err, "own-cost, Lock + Unlock, goroutines 1, this checkout: 1.51 times the time at 3c20e96, at most 1.50")
	delete(mostOfRecorded, row)
	require.ErrorContains(t, boundedCost([]*result{of(thisCheckout, 150), of(beside, 100)}), "a bound: false")
}
