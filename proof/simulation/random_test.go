//go:build go1.26

package simulation

import (
	"testing"
	"testing/cryptotest"
)

// setRandom makes all random numbers of the process depend on the seed.
func setRandom(t *testing.T, seed uint64) { cryptotest.SetGlobalRandom(t, seed) }
