package pool_test

import (
	"context"
	"log"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/pool"
)

// A node that restarts without its keys does not count until every lock that it may have forgotten has expired.
// Every program that locks on these nodes must set the guard to at least the longest expiry that any of them uses.
func ExampleWithRestartGuard() {
	var pools []pool.Pool
	for _, addr := range []string{"redis-1:6379", "redis-2:6379", "redis-3:6379"} {
		pools = append(pools, pool.New(redis.NewClient(&redis.Options{Addr: addr}),
			pool.WithRestartGuard(30*time.Second),
			// The nodes ran by then, and nobody had locked anything. So the first start of the program need not wait, and the
			// line can stay: a node that restarts later is guarded.
			pool.WithNoLocksBefore(time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC))))
	}
	rs := redsync.New(pools...)
	defer rs.Close(context.Background())

	if err := rs.NewMutex("orders:17", redsync.WithExpiry(30*time.Second)).Lock(); err != nil {
		log.Print(err)
	}
}
