package main

import (
	"log/slog"

	"github.com/seed14bd9ef4/redsync/pool"
	"github.com/seed14bd9ef4/redsync/redsynctest"
)

// inside returns nodes in this process if there are no others, to try the program. A service of yours should fail instead.
func inside(others string) (pools []pool.Pool, end func()) {
	if others != "" {
		return nil, func() {}
	}
	slog.Warn("there is no -nodes: the locks are in this process, and keep no other one out")
	embedded := redsynctest.New(5)
	for _, client := range embedded.Clients() {
		pools = append(pools, pool.New(client))
	}
	return pools, func() { _ = embedded.Close() }
}
