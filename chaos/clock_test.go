package main

import (
	"os"
	"testing"
)

// needFakeTime returns the path of libfaketime. Without libfaketime it skips the test, or fails it if the environment
// requires libfaketime.
func needFakeTime(t *testing.T) string {
	t.Helper()
	library, err := findFakeTime()
	if err != nil {
		if os.Getenv(envFakeTime) == requireFakeTime {
			t.Fatalf("%s=%s, and %v", envFakeTime, requireFakeTime, err)
		}
		t.Skipf("%v; %s=%s makes this a failure", err, envFakeTime, requireFakeTime)
	}
	return library
}
