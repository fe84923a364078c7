package main

import (
	"context"
	"os"
	"testing"

	"github.com/redis/go-redis/v9"
)

// silence drops the log of go-redis, which reports every failed dial.
type silence struct{}

// Printf implements the logger of go-redis.
func (silence) Printf(context.Context, string, ...any) {}

// TestMain runs a process of clients if a test has started the test binary as one.
func TestMain(m *testing.M) {
	if os.Getenv(envJob) != "" {
		main()
		return
	}
	redis.SetLogger(silence{})
	os.Exit(m.Run())
}
