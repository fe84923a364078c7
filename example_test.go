package redsync_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/fencing"
	"github.com/seed14bd9ef4/redsync/observe"
	"github.com/seed14bd9ef4/redsync/pool"
	"github.com/seed14bd9ef4/redsync/redsynctest"
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

// A lock around a step, with a check of what can go wrong.
func Example() {
	nodes := redsynctest.New(5) // in production: redsync.Open(ctx, addresses)
	defer nodes.Close()
	rs := nodes.Redsync()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()

	mutex := rs.NewMutex("orders:17")
	if err := mutex.LockContext(ctx); err != nil {
		fmt.Println(err) // not held; nothing to unlock
		return
	}
	fmt.Println("locked")

	// Call Remaining before every step that needs the lock: it sends nothing.
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

// Work in steps calls Extend after each step, so work that hangs loses its lock. It calls Valid before a step that nobody
// can undo.
func Example_extendAndValid() {
	nodes := redsynctest.New(1)
	defer nodes.Close()

	load := func(mutex *redsync.Mutex) (err error) {
		if err := mutex.Lock(); err != nil {
			return err
		}
		defer func() {
			_, failed := mutex.Unlock()
			err = errors.Join(err, failed)
		}()
		for part := range 3 {
			if mutex.Remaining() < 10*time.Second { // the longest time that a part may take
				return fmt.Errorf("too late for part %d", part)
			}
			fmt.Println("part", part)
			if _, err := mutex.Extend(); err != nil && !errors.Is(err, redsync.ErrExtendFailed) {
				return err // the lock is over; after ErrExtendFailed it lasts until the old Until
			}
		}
		if _, err := mutex.Valid(); err != nil {
			return err // most often no loss: too few nodes have answered, so it is not known
		}
		fmt.Println("published")
		return nil
	}
	fmt.Println(load(nodes.Redsync().NewMutex("load", redsync.WithExpiry(time.Minute))))
	// Output:
	// part 0
	// part 1
	// part 2
	// published
	// <nil>
}

// Do is for work that is a function. The lock is extended while the work lasts, and ctx ends if the lock is lost.
func ExampleRedsync_Do() {
	nodes := redsynctest.New(1)
	defer nodes.Close()

	work := func(ctx context.Context) error {
		nodes.Node(0).Down() // simulates a loss: the lock runs out, because nothing can extend it
		<-ctx.Done()
		return ctx.Err()
	}
	err := nodes.Redsync().Do(context.Background(), "orders:17", work, redsync.WithExpiry(500*time.Millisecond))

	fmt.Println("the work has ended:", errors.Is(err, context.Canceled))
	fmt.Println("the lock was lost:", errors.Is(err, redsync.ErrLockLost))
	// Output:
	// the work has ended: true
	// the lock was lost: true
}

// TryDo is for work that need not wait: if another process has the lock, that process does the work. That is no error, so
// it hides no failure of the work.
func ExampleMutex_TryDo() {
	nodes := redsynctest.New(1)
	defer nodes.Close()
	nightly := func() {
		mutex := nodes.Redsync().NewMutex("nightly")
		ran, err := mutex.TryDo(context.Background(), func(context.Context) error {
			return errors.New("the disk is full")
		})
		switch {
		case err != nil:
			fmt.Println("failed:", err) // the work or the lock; without ran, the work has not begun
		case !ran:
			fmt.Println("another process does it")
		default:
			fmt.Println("done")
		}
	}

	nightly()
	nodes.HoldBySomebody("nightly")
	nightly()
	// Output:
	// failed: the disk is full
	// another process does it
}

// The context of a lock ends when the lock ends: with Unlock, or because it is lost.
func ExampleMutex_Context() {
	nodes := redsynctest.New(1)
	defer nodes.Close()
	mutex := nodes.Redsync().NewMutex("orders:17", redsync.WithWatchdog(), redsync.WithExpiry(500*time.Millisecond))
	if err := mutex.Lock(); err != nil {
		fmt.Println(err)
		return
	}
	ctx := mutex.Context(context.Background()) // pass it to the work

	nodes.Node(0).Down() // simulates a loss
	<-ctx.Done()
	fmt.Println("lost:", errors.Is(context.Cause(ctx), redsync.ErrLockLost))
	// Output: lost: true
}

// Valid asks the nodes, before a step that nobody can undo. An error is a loss only if it matches ErrLockLost: otherwise
// too few nodes have answered, and Remaining still counts.
func ExampleMutex_Valid() {
	nodes := redsynctest.New(1)
	defer nodes.Close()
	mutex := nodes.Redsync().NewMutex("orders:17")
	if err := mutex.Lock(); err != nil {
		fmt.Println(err)
		return
	}
	defer mutex.Unlock()

	ok, err := mutex.Valid()
	fmt.Println(ok, err)
	nodes.Steal("orders:17")
	ok, err = mutex.Valid()
	fmt.Println(ok, errors.Is(err, redsync.ErrLockLost))
	// Output:
	// true <nil>
	// false true
}

// A lock on several names has all of them or none, so that no two processes wait for each other.
func ExampleRedsync_NewMultiMutex() {
	nodes := redsynctest.New(1)
	defer nodes.Close()
	mutex := nodes.Redsync().NewMultiMutex([]string{"account:1", "account:2"})
	if err := mutex.Lock(); err != nil {
		fmt.Println(err)
		return
	}
	err := nodes.Process(redsync.WithNodeTimeout(3 * time.Second)).NewMutex("account:2").TryLock()
	fmt.Println("another process finds account:2 taken:", errors.Is(err, redsync.ErrFailed))
	fmt.Println(mutex.Unlock())
	// Output:
	// another process finds account:2 taken: true
	// true <nil>
}

// At most two processes at a time call a service that can bear no more.
func ExampleWithPermits() {
	nodes := redsynctest.New(1)
	defer nodes.Close()
	for i := range 3 {
		permit := nodes.Process().NewMutex("mail", redsync.WithPermits(2))
		err := permit.TryLock() // Lock would wait for a permit
		fmt.Println("process", i, "may send:", err == nil)
	}
	// Output:
	// process 0 may send: true
	// process 1 may send: true
	// process 2 may send: false
}

// Lead calls a function while this process leads. The function ends when its context does, and sends the number of the
// term along with every write.
func ExampleRedsync_Lead() {
	nodes := redsynctest.New(1)
	defer nodes.Close()
	err := nodes.Redsync().Lead(context.Background(), "scheduler", func(ctx context.Context) error {
		fmt.Println("leading, with a number:", redsync.FromContext(ctx).Fence() > 0)
		return nil // resigns
	})
	fmt.Println(err)
	// Output:
	// leading, with a number: true
	// <nil>
}

// New takes a pool for each node. pool.New makes a pool from a go-redis client that you already have.
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

	fmt.Println(rs.NewMutex("orders:17").Lock())
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

// Node 5 takes the place of node 4. The locks of a process with both sets exclude the locks of
// processes that have only one of the sets.
func ExampleNewJoint() {
	nodes := redsynctest.New(6)
	defer nodes.Close()
	sets := func() (before, after []pool.Pool) {
		pools := nodes.Pools()
		return pools[:5], slices.Concat(pools[:4], pools[5:])
	}
	held := func(rs *redsync.Redsync) bool {
		defer rs.Close(context.Background())
		mutex := rs.NewMutex("orders:17", redsync.WithNodeTimeout(3*time.Second)) // the machine may be slow
		return errors.Is(mutex.TryLock(), redsync.ErrFailed)
	}

	before, after := sets()
	rs := redsync.NewJoint(before, after)
	defer rs.Close(context.Background())
	mutex := rs.NewMutex("orders:17")
	if err := mutex.Lock(); err != nil {
		fmt.Println(err)
		return
	}

	before, after = sets() // the pools of processes that run before and after the change
	fmt.Println("held for a process with New(before...):", held(redsync.New(before...)))
	fmt.Println("held for a process with New(after...):", held(redsync.New(after...)))
	// Output:
	// held for a process with New(before...): true
	// held for a process with New(after...): true
}

// TryLock makes one attempt. ErrFailed says that others have the lock. *ErrTaken says more: on which nodes.
func ExampleMutex_TryLock() {
	nodes := redsynctest.New(5)
	defer nodes.Close()
	nodes.HoldBySomebody("orders:17")

	err := nodes.Redsync().NewMutex("orders:17", redsync.WithNodeTimeout(3*time.Second)).TryLock()

	var taken *redsync.ErrTaken
	switch {
	case err == nil:
		fmt.Println("acquired")
	case errors.Is(err, redsync.ErrFailed):
		fmt.Println("others have it, on a quorum:", errors.As(err, &taken) && len(taken.Nodes) >= 3)
	default:
		fmt.Println(err) // names the nodes that failed
	}
	// Output: others have it, on a quorum: true
}

// WithWait bounds the wait alone. A deadline of the context would end the work, too.
func ExampleWithWait() {
	nodes := redsynctest.New(1)
	defer nodes.Close()
	nodes.HoldBySomebody("orders:17")
	time.AfterFunc(100*time.Millisecond, func() { nodes.Expire("orders:17") })

	err := nodes.Redsync().Do(context.Background(), "orders:17", func(context.Context) error {
		fmt.Println("working, for as long as it takes")
		return nil
	}, redsync.WithWait(time.Minute))
	if errors.Is(err, redsync.ErrFailed) {
		fmt.Println("others have had the lock for a minute")
	}
	// Output: working, for as long as it takes
}

// Another process unlocks, with the value of the lock. Send it as a secret.
func ExampleWithValue() {
	nodes := redsynctest.New(1)
	defer nodes.Close()
	mutex := nodes.Redsync().NewMutex("orders:17")
	if err := mutex.Lock(); err != nil {
		fmt.Println(err)
		return
	}
	value := mutex.Value()

	other := nodes.Process().NewMutex("orders:17", redsync.WithValue(value)) // in the other process
	fmt.Println(other.Unlock())
	_, err := other.Unlock()
	fmt.Println("released already:", errors.Is(err, redsync.ErrNotHeld))
	// Output:
	// true <nil>
	// released already: true
}

// WithFair serves waiters in the order of their calls, across all processes. Every client that locks the name must
// set it.
func ExampleWithFair() {
	nodes := redsynctest.New(1)
	defer nodes.Close()

	var processes sync.WaitGroup
	for range 3 {
		rs := nodes.Process(redsync.WithFair(), redsync.WithTries(0)) // waits as long as it takes
		processes.Go(func() {
			err := rs.Do(context.Background(), "orders:17", func(context.Context) error {
				fmt.Println("served")
				return nil
			})
			if err != nil {
				fmt.Println(err)
			}
		})
	}
	processes.Wait()
	// Output:
	// served
	// served
	// served
}

// WithWatchdog is for a lock that outlives a function. Watch Lost: it is closed when the lock is lost.
func ExampleWithWatchdog() {
	nodes := redsynctest.New(5)
	defer nodes.Close()
	mutex := nodes.Redsync().NewMutex("leader", redsync.WithWatchdog(), redsync.WithExpiry(500*time.Millisecond))
	if err := mutex.Lock(); err != nil {
		fmt.Println(err)
		return
	}

	failure := time.AfterFunc(700*time.Millisecond, func() { // longer than the expiry
		for i := range 3 {
			nodes.Node(i).Down()
		}
	})
	defer failure.Stop()
	<-mutex.Lost()
	fmt.Println("lost:", errors.Is(mutex.Err(), redsync.ErrLockLost))
	// Output: lost: true
}

// WithFencing numbers the holds. The resource refuses a token that is lower than one it has seen.
func ExampleWithFencing() {
	nodes := redsynctest.New(1)
	defer nodes.Close()
	lock := func() *redsync.Mutex {
		mutex := nodes.Process().NewMutex("orders:17", redsync.WithFencing())
		if err := mutex.Lock(); err != nil {
			fmt.Println(err)
		}
		return mutex
	}

	late := lock()
	nodes.Expire("orders:17") // simulates that late is paused for so long that its keys run out
	current := lock()

	var orders fencing.Guard // it guards the data
	fmt.Println(orders.Do(current.Fence(), func() error { return nil }))
	err := orders.Do(late.Fence(), func() error { return nil })
	fmt.Println("refused:", errors.Is(err, fencing.ErrStale))
	// Output:
	// <nil>
	// refused: true
}

// Many readers hold a name at once, and a writer holds it alone. Downgrade makes the writer a reader.
func ExampleWithShared() {
	nodes := redsynctest.New(1)
	defer nodes.Close()
	slow := redsync.WithNodeTimeout(3 * time.Second) // the machine may be slow
	reader := func() *redsync.Mutex { return nodes.Process(slow).NewMutex("catalog", redsync.WithShared()) }
	taken := func(err error) bool { return errors.Is(err, redsync.ErrFailed) }

	first, second, writer := reader(), reader(), nodes.Process(slow).NewMutex("catalog")
	fmt.Println("readers:", first.Lock(), second.Lock())
	fmt.Println("a writer beside them is kept out:", taken(writer.TryLock()))
	for _, mutex := range []*redsync.Mutex{first, second} {
		if _, err := mutex.Unlock(); err != nil {
			fmt.Println(err)
		}
	}

	fmt.Println("a writer:", writer.Lock())
	fmt.Println("a reader beside it is kept out:", taken(first.TryLock()))
	fmt.Println("the writer becomes a reader:", writer.Downgrade(context.Background()))
	fmt.Println("a reader beside it:", first.Lock())
	// Output:
	// readers: <nil> <nil>
	// a writer beside them is kept out: true
	// a writer: <nil>
	// a reader beside it is kept out: true
	// the writer becomes a reader: <nil>
	// a reader beside it: <nil>
}

// Inside the Do of a reader, an exclusive Lock on the same name fails at once. End the Do first.
func ExampleErrNested() {
	nodes := redsynctest.New(1)
	defer nodes.Close()
	rs, ctx := nodes.Redsync(), context.Background()

	stale := false
	err := rs.Do(ctx, "catalog", func(ctx context.Context) error {
		err := rs.NewMutex("catalog").LockContext(ctx)
		fmt.Println("refused within the read:", errors.Is(err, redsync.ErrNested))
		stale = true // the result of the read
		return nil
	}, redsync.WithShared())
	if err == nil && stale {
		err = rs.Do(ctx, "catalog", func(context.Context) error {
			fmt.Println("look again, then write") // another writer may have come in between
			return nil
		})
	}
	fmt.Println(err)
	// Output:
	// refused within the read: true
	// look again, then write
	// <nil>
}

// A function that locks a name can be called by a function that has locked the same name: the inner Do joins the hold.
func ExampleMutex_Do_nested() {
	nodes := redsynctest.New(1)
	defer nodes.Close()
	rs, ctx := nodes.Redsync(), context.Background()
	balance := 0

	// deposit locks the account whenever it is called.
	deposit := func(ctx context.Context, amount int) error {
		return rs.Do(ctx, "account:7", func(context.Context) error {
			balance += amount
			return nil
		})
	}

	// The caller has locked the account already. The context shows that to deposit, which joins the hold.
	err := rs.Do(ctx, "account:7", func(ctx context.Context) error {
		if err := deposit(ctx, 10); err != nil {
			return err
		}
		return deposit(ctx, 20)
	})
	fmt.Println(balance, err)
	// Output: 30 <nil>
}

// WithLogger writes what goes wrong. While all is well there is nothing above Debug.
func ExampleWithLogger() {
	nodes := redsynctest.New(5)
	defer nodes.Close()
	nodes.Node(3).Down()
	withoutTime := func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == "error" {
			return slog.Attr{}
		}
		return a
	}
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: withoutTime}))
	seen := &redsynctest.Recorder{}
	rs := nodes.Process(redsync.WithLogger(logger), redsync.WithHooks(seen.Hooks()))

	err := rs.Do(context.Background(), "orders:17", func(context.Context) error { return nil })
	for len(redsynctest.Events[observe.NodeDown](seen)) == 0 { // hooks are called on another goroutine
		time.Sleep(time.Millisecond)
	}
	fmt.Println(err) // a minority of nodes that are down breaks no lock
	// Unordered output:
	// level=WARN msg="redsync: node is down" node=3 address=127.0.0.1:7004
	// <nil>
}

// A Sequencer is all that another process needs to take a lock over.
func ExampleWithSequencer() {
	nodes := redsynctest.New(1)
	defer nodes.Close()
	rs := nodes.Redsync()
	mutex := rs.NewMutex("upload:9")
	if err := mutex.Lock(); err != nil {
		fmt.Println(err)
		return
	}
	given, err := mutex.Detach(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	text := given.String() // send it to the other process, and keep it secret

	s, err := redsync.ParseSequencer(text)
	if err != nil {
		fmt.Println(err)
		return
	}
	heir := rs.NewMutex(s.Name, redsync.WithSequencer(s))
	err = heir.Do(context.Background(), func(context.Context) error {
		fmt.Println("taken over:", heir.Remaining() > 0)
		return nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("unlocked")
	// Output:
	// taken over: true
	// unlocked
}

// Hooks count what is worth an alert: slow nodes, and extensions that were almost too late. They have no counts by the
// name of a lock, because there may be many names.
func ExampleWithHooks() {
	nodes := redsynctest.New(5)
	defer nodes.Close()

	var slow [5]atomic.Int64    // answers of each node that took a second or longer
	var almostLate atomic.Int64 // extensions
	hooks := &observe.Hooks{
		Vote: func(_ context.Context, v observe.Vote) { // the replies of the node wait meanwhile
			if v.Took >= time.Second {
				slow[v.Node].Add(1)
			}
		},
		Extended: func(_ context.Context, e observe.Extended) {
			if e.Left < 10*time.Second {
				almostLate.Add(1)
			}
		},
	}
	rs := nodes.Process(redsync.WithHooks(hooks), redsync.WithExpiry(time.Minute))
	mutex := rs.NewMutex("orders:17")
	nodes.Node(3).Delay(1200 * time.Millisecond) // it answers each call after that has returned
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

	for end := time.Now().Add(time.Minute); slow[3].Load() < 3 && time.Now().Before(end); { // nobody has waited for node 3
		time.Sleep(10 * time.Millisecond)
	}
	if err := rs.Close(context.Background()); err != nil {
		fmt.Println(err)
	}

	fmt.Println("slow answers of node 3:", slow[3].Load())
	fmt.Println("extensions almost too late:", almostLate.Load())
	// Output:
	// slow answers of node 3: 3
	// extensions almost too late: 0
}
