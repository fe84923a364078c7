// Package testlength decides how long random tests and tests of models run. There are four lengths:
//
//	go test -short ./...                      # short: a few seeds of each, for a quick look
//	go test ./...                             # normal
//	REDSYNC_TEST_LENGTH=sample go test ./...  # a tenth of nightly, but no less than normal
//	REDSYNC_TEST_LENGTH=nightly go test ./... # nightly: all seeds, and models with large bounds
package testlength

import (
	"fmt"
	"os"
	"testing"
)

const (
	env     = "REDSYNC_TEST_LENGTH"
	nightly = "nightly"
	sample  = "sample"
)

// NotShort skips a test if the flag -short is set. It is for tests that count operations, or show that another test can
// fail. The gate runs the race detector with -short, because such tests find the same with it as without it.
func NotShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("not with -short")
	}
}

// Of returns short, normal or night, as the length of this test run says: a number of seeds, for
// example. The flag -short wins over the environment.
func Of(short, normal, night int) int {
	text := os.Getenv(env)
	switch {
	case text != "" && text != nightly && text != sample:
		panic(fmt.Sprintf("%s=%s: it must be %s, %s or empty", env, text, sample, nightly))
	case testing.Short():
		return short
	case text == nightly:
		return night
	case text == sample:
		return max(normal, night/10)
	}
	return normal
}
