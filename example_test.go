package redsync_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/embedded"
	"github.com/seed14bd9ef4/redsync/observe"
	"github.com/seed14bd9ef4/redsync/pool"
)

// startFiveNodes stands for five Redis servers. It returns their addresses.
func startFiveNodes() (addresses []string, stop func()) {
	var servers []*miniredis.Miniredis
	for range 5 {
		server := miniredis.NewMiniRedis()
		if err := server.Start(); err != nil {
			log.Fatal(err)
		}
		servers = append(servers, server)
		addresses = append(addresses, server.Addr())
	}
	return addresses, func() {
		for _, server := range servers {
			server.Close()
		}
	}
}

func openFiveNodes() (*redsync.Redsync, func()) {
	addresses, stop := startFiveNodes()
	// The default, 400 ms for a node, is little for a slow machine.
	rs, err := redsync.Open(context.Background(), addresses, redsync.WithTimeoutFactor(0.4))
	if err != nil {
		log.Fatal(err)
	}
	return rs, func() {
		if err := rs.Close(context.Background()); err != nil {
			log.Print(err)
		}
		stop()
	}
}

// A lock around a step, with what can go wrong.
func Example() {
	rs, stop := openFiveNodes()
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()

	mutex := rs.NewMutex("orders:17")
	if err := mutex.LockContext(ctx); err != nil {
		fmt.Println(err) // not held; nothing to unlock
		return
	}
	fmt.Println("locked")

	// Ask before every step that needs the lock: it costs nothing.
	if mutex.Remaining() > 5*time.Second {
		fmt.Println("working")
	}

	if _, err := mutex.UnlockContext(ctx); err != nil {
		// Either the lock had expired before, or too few nodes answered to
		// tell. In both cases it is not held any more.
		fmt.Println(err)
		return
	}
	fmt.Println("unlocked")
	// Output:
	// locked
	// working
	// unlocked
}

// Clients that exist already make the pools of New, one for each node.
func ExampleNew() {
	addresses, stop := startFiveNodes()
	defer stop()

	var pools []pool.Pool
	for _, address := range addresses {
		client := redis.NewClient(&redis.Options{Addr: address})
		defer client.Close()
		pools = append(pools, pool.New(client))
	}
	rs := redsync.New(pools...)
	defer rs.Close(context.Background())

	fmt.Println(rs.NewMutex("orders:17").TryLock())
	// Output: <nil>
}

// Open connects to the nodes and returns once a quorum has answered.
func ExampleOpen() {
	addresses, stop := startFiveNodes()
	defer stop()
	addresses[0] = "redis://" + addresses[0] + "/0" // URLs serve as well

	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	rs, err := redsync.Open(ctx, addresses, redsync.WithExpiry(30*time.Second))
	if err != nil {
		fmt.Println(err) // names each node that did not answer
		return
	}
	// Close unlocks what is still held.
	defer rs.Close(context.Background())

	mutex := rs.NewMutex("orders:17")
	if err := mutex.Lock(); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(mutex.Remaining() > 20*time.Second)
	// Output: true
}

// TryLock makes one attempt. Its error tells a lock that somebody else holds
// from nodes that fail.
func ExampleMutex_TryLock() {
	rs, stop := openFiveNodes()
	defer stop()
	if err := rs.NewMutex("orders:17").Lock(); err != nil {
		fmt.Println(err)
		return
	}

	err := rs.NewMutex("orders:17").TryLock()

	var taken *redsync.ErrTaken
	var node *redsync.RedisError
	switch {
	case err == nil:
		fmt.Println("acquired")
	case errors.As(err, &taken):
		fmt.Println("somebody else has it, on a quorum:", len(taken.Nodes) >= 3)
	case errors.As(err, &node):
		fmt.Println("node", node.Node, "failed:", node.Err)
	}
	fmt.Println(errors.Is(err, redsync.ErrFailed)) // whatever the reason
	// Output:
	// somebody else has it, on a quorum: true
	// true
}

// Work that takes longer than the expiry extends the lock, about every third of
// it. An Extend that fails leaves the old end standing, and may be tried again.
func ExampleMutex_Extend() {
	rs, stop := openFiveNodes()
	defer stop()
	const expiry = 2 * time.Second
	mutex := rs.NewMutex("report", redsync.WithExpiry(expiry))
	if err := mutex.Lock(); err != nil {
		fmt.Println(err)
		return
	}

	ticker := time.NewTicker(expiry / 3)
	defer ticker.Stop()
	for page := range 4 {
		<-ticker.C // one page of work
		_, err := mutex.Extend()
		if errors.Is(err, redsync.ErrLockAlreadyExpired) {
			fmt.Println("lost before page", page)
			return
		}
	}
	fmt.Println("held for longer than the expiry:", mutex.Remaining() > 0)

	if _, err := mutex.Unlock(); err != nil {
		fmt.Println(err)
	}
	// Output: held for longer than the expiry: true
}

// The name and the value of a lock are all that another process needs to take
// it over.
func ExampleWithValue() {
	rs, stop := openFiveNodes()
	defer stop()
	mutex := rs.NewMutex("upload:9")
	if err := mutex.Lock(); err != nil {
		fmt.Println(err)
		return
	}
	s, err := mutex.Detach(context.Background()) // send its name and value to the other process
	if err != nil {
		fmt.Println(err)
		return
	}

	heir := rs.NewMutex(s.Name, redsync.WithValue(s.Value))
	if _, err := heir.Extend(); err != nil {
		fmt.Println(err) // the heir holds nothing yet
		return
	}
	fmt.Println("taken over:", heir.Remaining() > 0)
	if _, err := heir.Unlock(); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("unlocked")
	// Output:
	// taken over: true
	// unlocked
}

// slowNodes counts the answers that took two seconds, by node, and keeps by how
// much the closest extension made it. Its labels are few: no names of locks.
type slowNodes struct {
	mu      sync.Mutex
	slow    map[int]int
	closest time.Duration
}

// These make sure that the methods are found.
var (
	_ observe.VoteObserver     = (*slowNodes)(nil)
	_ observe.ExtendedObserver = (*slowNodes)(nil)
)

func (s *slowNodes) ObserveVote(_ context.Context, v observe.Vote) {
	s.mu.Lock() // briefly: replies are waiting to be read
	defer s.mu.Unlock()
	if v.Took >= 2*time.Second {
		s.slow[v.Node]++
	}
}

func (s *slowNodes) ObserveExtended(_ context.Context, e observe.Extended) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closest = min(s.closest, e.Left)
}

// An observer counts what is worth an alert: nodes that are slow, and extensions
// that hardly make it.
func ExampleWithObserver() {
	nodes := embedded.Start(5) // in the process; node 3 is slow
	defer nodes.Close()
	nodes[3].On("set", 1, embedded.Fault{Delay: 2500 * time.Millisecond})
	var pools []pool.Pool
	for _, n := range nodes {
		client := n.Client()
		defer client.Close()
		pools = append(pools, pool.New(client))
	}

	seen := &slowNodes{slow: make(map[int]int), closest: time.Hour}
	rs := redsync.New(pools...).With(redsync.WithObserver(seen))

	mutex := rs.NewMutex("orders:17", redsync.WithExpiry(time.Minute))
	if err := mutex.Lock(); err != nil {
		fmt.Println(err)
		return
	}
	if _, err := mutex.Extend(); err != nil {
		fmt.Println(err)
		return
	}
	if _, err := mutex.Unlock(); err != nil {
		fmt.Println(err)
		return
	}

	if err := rs.Close(context.Background()); err != nil { // every node has answered
		fmt.Println(err)
	}

	seen.mu.Lock()
	defer seen.mu.Unlock()
	fmt.Println("slow answers by node:", seen.slow)
	fmt.Println("an extension came close:", seen.closest < 10*time.Second)
	// Output:
	// slow answers by node: map[3:1]
	// an extension came close: false
}
