package pool_test

import (
	"context"
	"fmt"
	"time"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/pool"
	"github.com/seed14bd9ef4/redsync/redsynctest"
)

// A node that restarts without its keys does not count until every lock that it may have forgotten has expired.
// Every program that locks on these nodes must set the guard to at least the longest expiry that any of them uses.
func ExampleWithRestartGuard() {
	nodes := redsynctest.New(3)
	defer nodes.Close()

	var pools []pool.Pool
	for _, client := range nodes.Clients() { // *redis.Client, one for each node
		pools = append(pools, pool.New(client,
			pool.WithRestartGuard(30*time.Second),
			pool.WithNewNodes())) // only for the first start: the nodes have never held a lock
	}
	rs := redsync.New(pools...)
	defer rs.Close(context.Background())

	fmt.Println(rs.NewMutex("orders:17", redsync.WithExpiry(30*time.Second)).Lock())
	// Output: <nil>
}
