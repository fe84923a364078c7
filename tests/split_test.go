package redsync_test

import (
	"context"
	"fmt"
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
		"fair":           {tries, minute, deadline, redsync.WithFair()},
		"fenced":         {tries, minute, deadline, redsync.WithFencing()},
		"permits":        {tries, minute, redsync.WithPermits(1)},
		"fair permits":   {tries, minute, deadline, redsync.WithPermits(1), redsync.WithFair()},
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

// In a cluster that is far away from everybody, a node that has not answered is not late yet. Two nodes are down, and the
// last one that a quorum needs answers after 300 ms. Each Lock waits for it.
func TestFarNodesAreNotLate(t *testing.T) {
	play(t, func(f field) {
		processes := f.processes(4, everywhere(150*time.Millisecond), redsync.WithTries(0), redsync.WithExpiry(time.Minute))
		healthy := contend(processes, time.Minute)
		f.nodes[3].Kill()
		f.nodes[4].Kill()
		got := contend(processes, time.Minute)
		assert.Greater(f, float64(got.locks), 0.6*float64(healthy.locks))
	})
	play(t, func(f field) {
		at := func(_, node int) time.Duration {
			if node == 4 {
				return 150 * time.Millisecond
			}
			return 0
		}
		rs := f.processes(1, at)[0]
		f.nodes[2].Kill()
		f.nodes[3].Kill()
		for range 3 {
			start := time.Now()
			m := rs.NewMutex("lock")
			require.NoError(f, m.TryLock())
			assert.InDelta(f, 300*time.Millisecond, time.Since(start), float64(time.Millisecond))
			f.unlock(m)
		}
	})
}

// As before, but the node is so far away that it is late. The first Lock is patient after a second. Later calls of the
// process know the keys, and wait for the node at once.
func TestOnlyTheFirstLockOfAProcessWaitsASecondForAFarNode(t *testing.T) {
	const there = 300 * time.Millisecond // and back
	for name, options := range map[string][]redsync.Option{
		"plain":   nil,
		"fair":    {redsync.WithFair()},
		"permits": {redsync.WithPermits(1)},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(f field) {
				at := func(_, node int) time.Duration {
					if node == 4 {
						return there / 2
					}
					return 0
				}
				rs := f.processes(1, at, append(options, redsync.WithExpiry(time.Minute))...)[0]
				for _, n := range f.nodes[:2] {
					for _, key := range []string{"lock", "{lock}:slot:0"} {
						require.NoError(f, n.Set(key, "crashed"))
						n.SetTTL(key, time.Minute)
					}
				}
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
				for range 5 {
					assert.Less(f, lock((*redsync.Mutex).Lock), there+100*time.Millisecond)
					assert.Less(f, lock((*redsync.Mutex).TryLock), there+200*time.Millisecond)
				}
			})
		})
	}
}

// Processes that try at the same moment, once, split the votes. One of them gets the lock all the same.
func TestTryLockAtOneMomentBesideABadNode(t *testing.T) {
	for bad, spoil := range badNodes {
		t.Run(bad, func(t *testing.T) {
			play(t, func(f field) {
				var s slowness
				processes := f.processes(4, s.at(inZones), redsync.WithExpiry(time.Minute))
				spoil(f, &s)
				const ticks = 60
				nobody := 0
				for tick := range ticks {
					var wg sync.WaitGroup
					won := make([]bool, len(processes))
					for i, rs := range processes {
						wg.Go(func() { won[i] = rs.NewMutex(fmt.Sprint("tick ", tick)).TryLock() == nil })
					}
					wg.Wait()
					winners := 0
					for _, is := range won {
						if is {
							winners++
						}
					}
					require.LessOrEqual(f, winners, 1)
					if winners == 0 {
						nobody++
					}
				}
				assert.LessOrEqual(f, nobody, ticks/15)
			})
		})
	}
}

// A client that crashed has left keys on two nodes. Only the late node can complete a quorum, so that waiters are patient
// after a second.
func TestWaitersArePatientBesideKeysThatWereLeft(t *testing.T) {
	for _, n := range []int{1, 2, 4, 6} {
		for name, options := range map[string][]redsync.Option{"plain": nil, "fair": {redsync.WithFair()}} {
			t.Run(fmt.Sprintf("%s, %d", name, n), func(t *testing.T) {
				play(t, func(f field) {
					deadline := redsync.WithNodeTimeout(3 * time.Second)
					all := append([]redsync.Option{redsync.WithExpiry(time.Minute), redsync.WithTries(0), deadline}, options...)
					var s slowness
					processes := f.processes(n, s.at(everywhere(0)), all...)
					s.Store(true)
					for i := range 2 {
						require.NoError(f, f.nodes[i].Set("jobs", "of a client that crashed"))
						f.nodes[i].SetTTL("jobs", time.Minute)
					}
					start := time.Now()
					ctx, cancel := context.WithTimeout(f.Context(), 50*time.Second)
					defer cancel()
					var wg sync.WaitGroup
					first := make(chan time.Duration, n)
					for _, rs := range processes {
						wg.Go(func() {
							m := rs.NewMutex("jobs")
							if m.LockContext(ctx) == nil {
								first <- time.Since(start)
								cancel()
								_, _ = m.Unlock()
							}
						})
					}
					wg.Wait()
					require.NotEmpty(f, first)
					got := <-first
					assert.LessOrEqual(f, got, time.Second+3*time.Second)
				})
			})
		}
	}
}

// A patient attempt is longer than a ticket counts as alive. The waiter shows its ticket meanwhile, so that it keeps its
// place.
func TestTicketOutlivesALongAttempt(t *testing.T) {
	for name, options := range map[string][]redsync.Option{
		"fair":         {redsync.WithFair()},
		"plain":        nil,
		"fair, shared": {redsync.WithFair(), redsync.WithShared()},
		"permits":      {redsync.WithFair(), redsync.WithPermits(1)},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(f field) {
				var s slowness
				deadline := redsync.WithNodeTimeout(3 * time.Second)
				all := append([]redsync.Option{redsync.WithExpiry(time.Minute), redsync.WithTries(0), deadline}, options...)
				rs := f.processes(1, s.at(everywhere(0)), all...)[0]
				s.Store(true)
				for i := range 2 {
					for _, key := range []string{"lock", "{lock}:slot:0"} {
						require.NoError(f, f.nodes[i].Set(key, "of a client that crashed"))
						f.nodes[i].SetTTL(key, time.Minute)
					}
				}
				locked := make(chan struct{})
				go func() {
					defer close(locked)
					assert.NoError(f, rs.NewMutex("lock").LockContext(f.Context()))
				}()
				time.Sleep(100 * time.Millisecond)
				start, alive := time.Now(), 0
				for open(locked) {
					if queue := f.queue(0, "lock"); assert.Len(f, queue, 64) {
						ms, err := strconv.ParseInt(queue[50:63], 10, 64)
						require.NoError(f, err)
						assert.Greater(f, ms, time.Now().UnixMilli(), "after %v", time.Since(start))
						alive++
					}
					time.Sleep(50 * time.Millisecond)
				}
				assert.Greater(f, alive, 50)
			})
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
