package redsync_test

import (
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/pool"
)

// This file tests how long calls wait for a node that is far away, or answers late.

// A distance returns how long a message between a process and a node takes.
type distance func(process, node int) time.Duration

// inZones is the distance of two zones, which have half of the processes and two nodes each. The fifth node is near to
// everybody.
func inZones(process, node int) time.Duration {
	if node < 4 && node/2 != process%2 {
		return 1500 * time.Microsecond
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
	time.Sleep(sec)
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

// A slowness makes the messages to and from the fifth node take a second each, once it is set.
type slowness struct{ atomic.Bool }

// at adds the slowness to a distance.
func (s *slowness) at(d distance) distance {
	return func(process, node int) time.Duration {
		if node == 4 && s.Load() {
			return sec
		}
		return d(process, node)
	}
}

// A crashed client has left its keys on two nodes, so a quorum needs the other three. One of them is so far away that it
// is late. The first Lock is patient after a second. Later calls of the process know the keys, and wait for the node at
// once.
func TestOnlyTheFirstLockOfAProcessWaitsASecondForAFarNode(t *testing.T) {
	parallelComputing(t)
	const there = 300 * ms // and back
	at := func(_, node int) time.Duration { return []time.Duration{4: there / 2}[node] }
	for name, options := range map[string]opts{
		"plain":   nil,
		"fair":    {withFair},
		"permits": {onePermit},
	} {
		playAs(t, name, func(f field) {
			rs := f.processes(1, at, append(options, lasting)...)[0]
			f.crashed("lock", "{lock}:slot:0")
			lock := func(acquire func(m *redsync.Mutex) error) time.Duration {
				m, start := rs.NewMutex("lock"), time.Now()
				noError(f, acquire(m))
				defer func() { f.unlock(m); time.Sleep(sec) }()
				return time.Since(start)
			}
			erred(f, rs.NewMutex("lock").TryLock())
			assert.Greater(f, lock((*redsync.Mutex).Lock), sec)
			for range 3 {
				assert.Less(f, lock((*redsync.Mutex).Lock), there+100*ms)
				assert.Less(f, lock((*redsync.Mutex).TryLock), there+200*ms)
			}
		})
	}
}

// crashed leaves keys of a crashed client on two nodes.
func (f field) crashed(keys ...string) {
	for _, key := range keys {
		f.sets(key, "crashed", minute, 0, 1)
	}
}

// Only the late node can complete a quorum, so waiters are patient after a second. A patient attempt is longer than a ticket
// counts as alive. The waiter shows its ticket meanwhile, so that it keeps its place.
func TestTicketOutlivesALongAttempt(t *testing.T) {
	parallelComputing(t)
	for name, options := range map[string]opts{
		"fair":         {withFair},
		"plain":        nil,
		"fair, shared": {withFair, withShared},
		"permits":      {withFair, onePermit},
	} {
		playAs(t, name, func(f field) {
			var s slowness
			all := append(opts{lasting, forever, withNodeTimeout(3 * sec)}, options...)
			rs := f.processes(1, s.at(everywhere(0)), all...)[0]
			s.Store(true)
			f.crashed("lock", "{lock}:slot:0")
			c := f.calls(rs)
			time.Sleep(100 * ms)
			start, alive := time.Now(), 0
			for open(c.done) {
				if queue := f.queue(0, "lock"); assert.Len(f, queue, 64) {
					ms := must(strconv.ParseInt(queue[50:63], 10, 64))
					assert.Greater(f, ms, time.Now().UnixMilli(), "after %v", time.Since(start))
					alive++
				}
				time.Sleep(50 * ms)
			}
			noError(f, c.err)
			assert.Greater(f, alive, 50)
			assert.LessOrEqual(f, c.at.Sub(start), sec+3*sec)
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
