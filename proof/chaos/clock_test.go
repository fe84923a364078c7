package main

import (
	"testing"

	"github.com/seed14bd9ef4/redsync/internal/testkit/realredis"
)

// needFakeTime returns the path of libfaketime. Without libfaketime it skips the test, or fails it if the environment
// requires libfaketime.
func needFakeTime(t *testing.T) string {
	library, err := findFakeTime()
	if err != nil {
		realredis.Missing(t, envFakeTime, err)
	}
	return library
}
