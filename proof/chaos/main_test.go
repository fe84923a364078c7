package main

import (
	"os"
	"testing"

	"github.com/redis/go-redis/v9/logging"
)

// TestMain runs a process of clients if a test has started the test binary as one.
func TestMain(m *testing.M) {
	if os.Getenv(envJob) != "" {
		main()
		return
	}
	logging.Disable()
	os.Exit(m.Run())
}
