package pool_test

import (
	"context"
	"fmt"
	"time"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/pool"
	"github.com/seed14bd9ef4/redsync/redsynctest"
)

// deployed stands for a moment that the program has stored: the nodes start a moment before.
func deployed() time.Time { return time.Now().Round(0).Add(3 * time.Second) }

// A node that restarts without its keys does not count until every lock that it may have forgotten has expired.
// Every program that locks on these nodes must set the guard to at least the longest expiry that any of them uses.
func ExampleWithRestartGuard() {
	nodes := redsynctest.New(3)
	defer nodes.Close()

	var pools []pool.Pool
	for _, client := range nodes.Clients() { // *redis.Client, one for each node
		pools = append(pools, pool.New(client,
			pool.WithRestartGuard(30*time.Second),
			// A fixed moment: here a stored one, or time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC). The nodes
			// ran by then, and nobody had locked anything. So the first start of the program need not wait.
			pool.WithNoLocksBefore(deployed())))
	}
	rs := redsync.New(pools...)
	defer rs.Close(context.Background())

	fmt.Println(rs.NewMutex("orders:17", redsync.WithExpiry(30*time.Second)).Lock())
	// Output: <nil>
}
