//go:build !go1.26

package simulation

import "testing"

func setRandom(t *testing.T, _ uint64) {
	t.Helper()
	t.Skip("a play that repeats itself needs Go 1.26")
}
