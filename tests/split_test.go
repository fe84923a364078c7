package redsync_test

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/testlength"
	"github.com/seed14bd9ef4/redsync/pool"
)

// This file tests that a node that does not answer, or answers late, does not keep a free lock from those that wait for
// it. Two zones have half of the processes and two nodes each, so that they often split the votes. The fifth node is the
// bad one.

// far is how long a message to the other zone takes.
const far = 1500 * time.Microsecond

// A distance returns how long a message between a process and a node takes.
type distance func(process, node int) time.Duration

// inZones is the distance of two zones. The fifth node is near to everybody.
func inZones(process, node int) time.Duration {
	if node < 4 && node/2 != process%2 {
		return far
	}
	return 0
}

// everywhere returns the distance of nodes that are far from everybody.
func everywhere(d time.Duration) distance {
	return func(int, int) time.Duration { return d }
}

// processes returns processes that have met the nodes. Their locks have these options. A delay of at most a tenth of a
// millisecond is added to each message, because in virtual time processes would otherwise do the same in the same
// nanosecond for ever.
func (f field) processes(n int, at distance, options ...redsync.Option) (all []*redsync.Redsync) {
	f.Helper()
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // it repeats itself
	var mu sync.Mutex
	noise := func() time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return time.Duration(random.Int64N(int64(100 * time.Microsecond)))
	}
	for p := range n {
		rs := f.newcomer(p, func(process, node int) time.Duration { return at(process, node) + noise() })
		f.closes(rs)
		f.as(rs).meet()
		all = append(all, rs.With(options...))
	}
	time.Sleep(time.Second)
	return all
}

// newcomer returns process number p, which has not met the nodes.
func (f field) newcomer(p int, at distance) *redsync.Redsync {
	var pools []pool.Pool
	for i, node := range f.nodes {
		delay := func(bool) time.Duration { return at(p, i) }
		pools = append(pools, pool.New(node.Client(func(o *redis.Options) { o.Dialer = node.DialVia(delay) })))
	}
	return redsync.New(pools...)
}

// A rest is how long a lock was free although processes waited for it, at most, and how often it was acquired.
type rest struct {
	longest time.Duration
	locks   int
}

// contend lets every process lock and unlock a name, one after the other, for some time.
func contend(processes []*redsync.Redsync, during time.Duration) (r rest) {
	var mu sync.Mutex
	free := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), during)
	defer cancel()
	note := func() {
		mu.Lock()
		defer mu.Unlock()
		r.longest = max(r.longest, time.Since(free))
	}
	var wg sync.WaitGroup
	for _, rs := range processes {
		wg.Go(func() {
			for {
				m := rs.NewMutex("jobs")
				if m.LockContext(ctx) != nil {
					return
				}
				note()
				time.Sleep(time.Millisecond)
				mu.Lock()
				r.locks++
				free = time.Now()
				mu.Unlock()
				_, _ = m.Unlock()
			}
		})
	}
	wg.Wait()
	note()
	return r
}

// A slowness makes the messages to and from the fifth node take a second each, once it is set.
type slowness struct{ atomic.Bool }

// at adds the slowness to a distance.
func (s *slowness) at(d distance) distance {
	return func(process, node int) time.Duration {
		if node == 4 && s.Load() {
			return time.Second
		}
		return d(process, node)
	}
}

// badNodes are what makes the fifth node a bad one.
var badNodes = map[string]func(f field, s *slowness){
	"silent":     func(f field, _ *slowness) { f.nodes[4].Freeze() },
	"slow":       func(_ field, s *slowness) { s.Store(true) },
	"dials fail": func(f field, _ *slowness) { f.nodes[4].Kill() },
}

// longestRest is how long a free lock may rest beside one bad node.
const longestRest = 300 * time.Millisecond

// In each mode a lock that processes of both zones want goes from one to the other, although one node is bad. With -short
// each mode is played beside one of the bad nodes, which the order of the map draws.
func TestFreeLockDoesNotRestBesideABadNode(t *testing.T) {
	tries, minute := redsync.WithTries(0), redsync.WithExpiry(time.Minute)
	deadline := redsync.WithNodeTimeout(3 * time.Second)
	for name, options := range map[string][]redsync.Option{
		"default expiry": {tries},
		"1 min":          {tries, minute},
		"fair":           {tries, minute, deadline, withFair},
		"fenced":         {tries, minute, deadline, withFencing},
		"permits":        {tries, minute, redsync.WithPermits(1)},
		"fair permits":   {tries, minute, deadline, redsync.WithPermits(1), withFair},
	} {
		beside := testlength.Of(1, len(badNodes), len(badNodes))
		for bad, spoil := range badNodes {
			if beside == 0 {
				break
			}
			beside--
			t.Run(name+", "+bad, func(t *testing.T) {
				parallelComputing(t)
				play(t, func(f field) {
					var s slowness
					processes := f.processes(6, s.at(inZones), options...)
					spoil(f, &s)
					got := contend(processes, time.Duration(testlength.Of(1, 1, 12))*time.Second)
					assert.LessOrEqual(f, got.longest, longestRest)
					assert.Greater(f, got.locks, 20)
				})
			})
		}
	}
}

// A crashed client has left its keys on two nodes, so a quorum needs the other three. One of them is so far away that it
// is late. The first Lock is patient after a second. Later calls of the process know the keys, and wait for the node at
// once.
func TestOnlyTheFirstLockOfAProcessWaitsASecondForAFarNode(t *testing.T) {
	const there = 300 * time.Millisecond // and back
	at := func(_, node int) time.Duration { return []time.Duration{4: there / 2}[node] }
	for name, options := range map[string][]redsync.Option{
		"plain":   nil,
		"fair":    {withFair},
		"permits": {redsync.WithPermits(1)},
	} {
		playAs(t, name, func(f field) {
			rs := f.processes(1, at, append(options, redsync.WithExpiry(time.Minute))...)[0]
			f.crashed("lock", "{lock}:slot:0")
			lock := func(acquire func(m *redsync.Mutex) error) (took time.Duration) {
				m, start := rs.NewMutex("lock"), time.Now()
				require.NoError(f, acquire(m))
				took = time.Since(start)
				f.unlock(m)
				time.Sleep(time.Second)
				return took
			}
			require.Error(f, rs.NewMutex("lock").TryLock())
			assert.Greater(f, lock((*redsync.Mutex).Lock), time.Second)
			for range 3 {
				assert.Less(f, lock((*redsync.Mutex).Lock), there+100*time.Millisecond)
				assert.Less(f, lock((*redsync.Mutex).TryLock), there+200*time.Millisecond)
			}
		})
	}
}

// crashed leaves keys of a crashed client on two nodes.
func (f field) crashed(keys ...string) {
	for _, n := range f.nodes[:2] {
		for _, key := range keys {
			require.NoError(f, n.Set(key, "crashed"))
			n.SetTTL(key, time.Minute)
		}
	}
}

// Only the late node can complete a quorum, so waiters are patient after a second. A patient attempt is longer than a ticket
// counts as alive. The waiter shows its ticket meanwhile, so that it keeps its place.
func TestTicketOutlivesALongAttempt(t *testing.T) {
	for name, options := range map[string][]redsync.Option{
		"fair":         {withFair},
		"plain":        nil,
		"fair, shared": {withFair, withShared},
		"permits":      {withFair, redsync.WithPermits(1)},
	} {
		playAs(t, name, func(f field) {
			var s slowness
			all := append([]redsync.Option{redsync.WithExpiry(time.Minute), redsync.WithTries(0), redsync.WithNodeTimeout(3 * time.Second)}, options...)
			rs := f.processes(1, s.at(everywhere(0)), all...)[0]
			s.Store(true)
			f.crashed("lock", "{lock}:slot:0")
			c := f.calls(rs)
			time.Sleep(100 * time.Millisecond)
			start, alive := time.Now(), 0
			for open(c.done) {
				if queue := f.queue(0, "lock"); assert.Len(f, queue, 64) {
					ms, err := strconv.ParseInt(queue[50:63], 10, 64)
					require.NoError(f, err)
					assert.Greater(f, ms, time.Now().UnixMilli(), "after %v", time.Since(start))
					alive++
				}
				time.Sleep(50 * time.Millisecond)
			}
			require.NoError(f, c.err)
			assert.Greater(f, alive, 50)
			assert.LessOrEqual(f, c.at.Sub(start), time.Second+3*time.Second)
		})
	}
}

// queue returns the queue of a lock or of permits on a node.
func (f field) queue(node int, name string) string {
	for _, key := range []string{":queue", ":slots"} {
		if queue, err := f.nodes[node].Get("{" + name + "}" + key); err == nil {
			return queue
		}
	}
	return ""
}
