// Lock makes a plain Lock, its Unlock, and a Lock that waits. For each it writes which functions have been executed to
// a directory below the one that its argument names.
//
// What is executed depends on nothing else. The program runs in a testing/synctest bubble, so time passes only while
// all goroutines rest. Each connection has a delay of its own, so no two replies come at the same time. With one
// processor and no garbage collection, a sync.Pool returns what was put into it.
package main

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"runtime/coverage"
	"runtime/debug"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
	"github.com/seed14bd9ef4/redsync/internal/wire"
	"github.com/seed14bd9ef4/redsync/pool"
)

func main() {
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(-1)
	all := func(string, string) (bool, error) { return true, nil }
	bubble := func(t *testing.T) { synctest.Test(t, story) }
	testing.Main(all, []testing.InternalTest{{Name: "Story", F: bubble}}, nil, nil)
}

func story(*testing.T) {
	nodes := embedded.Start(5)
	rs := redsync.New(pools(nodes)...)
	m := rs.NewMutex("warm")
	for range 3 {
		check(m.Lock())
		unlock(m)
		rest()
	}

	m = rs.NewMutex("plain")
	record("lock", func() { check(m.Lock()) })
	record("unlock", func() { unlock(m) })

	m = rs.NewMutex("waits", redsync.WithHandOver(false))
	waiter := rs.NewMutex("waits", redsync.WithHandOver(false))
	check(m.Lock())
	rest()
	record("wait", func() {
		time.AfterFunc(10*time.Millisecond, func() { unlock(m) })
		check(waiter.Lock())
	})

	unlock(waiter)
	check(rs.Close(context.Background()))
	nodes.Close()
	time.Sleep(time.Minute) // goroutines that end by themselves have ended
}

// pools returns pools of the nodes. Data takes 1 µs each way on the first connection to the first node, and 2 µs on
// the second. On those to the next node it takes 4 µs and 8 µs, and so on.
func pools(nodes embedded.Nodes) (pools []wire.Pool) {
	for i, n := range nodes {
		next := time.Microsecond << (2 * i)
		dial := func(ctx context.Context, network, address string) (net.Conn, error) {
			delay := next
			next *= 2
			return n.DialVia(func(bool) time.Duration { return delay })(ctx, network, address)
		}
		pools = append(pools, pool.New(n.Client(func(o *redis.Options) { o.Dialer = dial })))
	}
	return pools
}

// record writes what f executes, and what other goroutines execute because of it.
func record(name string, f func()) {
	check(coverage.ClearCounters())
	f()
	rest()
	dir := filepath.Join(os.Args[1], name)
	check(os.Mkdir(dir, 0o700))
	check(coverage.WriteMetaDir(dir))
	check(coverage.WriteCountersDir(dir))
}

// rest waits until all replies have come, and no longer than that: the timers of a round must not fire in the next.
func rest() {
	time.Sleep(3 * time.Millisecond)
	synctest.Wait()
}

func unlock(m *redsync.Mutex) {
	ok, err := m.Unlock()
	check(err)
	if !ok {
		panic("not unlocked")
	}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
