// Package testlength decides how long random tests and tests of models run. There are five lengths:
//
//	go test -short ./...                      # short: a few seeds of each, for a quick look
//	go test ./...                             # normal: each rule is tried, while a person waits
//	REDSYNC_TEST_LENGTH=gate go test ./...    # gate: what must pass before a merge
//	REDSYNC_TEST_LENGTH=sample go test ./...  # a tenth of nightly, but no less than gate
//	REDSYNC_TEST_LENGTH=nightly go test ./... # nightly: all seeds, and models with large bounds
package testlength

import (
	"fmt"
	"os"
	"testing"
)

const (
	env     = "REDSYNC_TEST_LENGTH"
	gate    = "gate"
	sample  = "sample"
	nightly = "nightly"
)

// NotShort skips a test if the flag -short is set. It is for tests that compute for more than 0.2 s, count operations, or
// show that another test can fail. The gate runs the race detector with -short, and nightly without.
func NotShort(tb testing.TB) {
	tb.Helper()
	if testing.Short() {
		tb.Skip("not with -short")
	}
}

// FromGate skips a test in a run that is shorter than the gate. It is for guards that build programs, and for tests that
// compute for half a second and show no rule of safety that another does not show sooner.
func FromGate(t *testing.T) {
	t.Helper()
	if InGate(0, 0, 1, 1) == 0 {
		t.Skipf("only with %s=%s", env, gate)
	}
}

// NotWhileAPersonWaits skips a test if no length is set by the environment, so that the gate plays it with the flag -short, too.
// It is for tests that wait for seconds on real servers, and that show no rule of safety that another does not show sooner.
func NotWhileAPersonWaits(t *testing.T) {
	t.Helper()
	if os.Getenv(env) == "" {
		t.Skipf("only if %s is set", env)
	}
}

// Of returns short, normal or night, as the length of this test run says: a number of seeds, for
// example. The gate is as long as normal. The flag -short wins over the environment.
func Of(short, normal, night int) int { return InGate(short, normal, normal, night) }

// InGate is Of for a test that takes so long that the gate plays more of it than a person waits for.
func InGate(short, normal, inGate, night int) int {
	text := os.Getenv(env)
	switch text {
	case "", gate, sample, nightly:
	default:
		panic(fmt.Sprintf("%s=%s: it must be %s, %s, %s or empty", env, text, gate, sample, nightly))
	}
	switch {
	case testing.Short():
		return short
	case text == nightly:
		return night
	case text == sample:
		return max(inGate, night/10)
	case text == gate:
		return inGate
	}
	return normal
}
