package redsync_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/embedded"
	"github.com/seed14bd9ef4/redsync/observe"
	"github.com/seed14bd9ef4/redsync/pool"
)

// This file shows joint sets whose servers have an address in each set, while servers restart, addresses move, and
// calls have little time. It also shows what the runbook warns of.

// heldByOne makes m hold its lock, with a key on only one of the three nodes. Node late was frozen during Lock, and
// node emptied has restarted without its keys.
func (c change) heldByOne(m *redsync.Mutex, emptied, late int) {
	c.Helper()
	c.nodes[late].Freeze()
	locked(c, m)
	c.nodes[emptied].Kill()
	c.nodes[emptied].Restart(true)
	c.nodes[late].Thaw()
	time.Sleep(ms)
	c.nodes[late].Del(m.Name())
}

// Server 0 has an address in each set, and dies for good. Its address in before is given to server 3, its address in
// after to server 4. Server 3 may deny INFO. A joint process must not count server 3 in after.
func TestJointAddressOfADeadServerLeadsToAnother(t *testing.T) {
	for name, denied := range map[string]bool{"it tells its run id": false, "it denies INFO": true} {
		t.Run(name, func(t *testing.T) {
			changing(t, 5, func(s change) {
				var moving movable
				moving.to.Store(s.nodes[0])
				rs := s.joint(append([]pool.Pool{pool.New(moving.client())}, s.at(1, 2)...), s.elsewhere(0, 1, 2))
				m := obtained(s, rs.NewMutex("meet"))
				s.unlock(m)
				if denied {
					s.nodes[3].On("info", 1000, embedded.Fault{Err: "NOPERM User has no permissions to run the 'info' command"})
				}
				s.nodes[0].Kill()
				moving.to.Store(s.nodes[3])
				time.Sleep(time.Minute)
				s.nodes[2].Freeze()
				for i := range 3 {
					// Servers 1 and 3 are a quorum of before. In after only server 1 answers.
					require.ErrorIs(s, rs.NewMutex("lock").TryLock(), redsync.ErrNoQuorum, "attempt %d", i)
					time.Sleep(time.Second)
				}
				s.nodes[2].Thaw()
			})
		})
	}
}

// A call may have to learn which servers the nodes are. It waits for that at most for its own node deadline, however
// long another call waits.
func TestJointCallsWaitForTheirOwnDeadlines(t *testing.T) {
	changing(t, 6, func(s change) {
		rs := s.joint(s.at(0, 1, 2), s.at(3, 4, 5))
		s.nodes[5].Freeze()
		var patient sync.WaitGroup
		patient.Go(func() {
			m := rs.NewMutex("batch", redsync.WithExpiry(10*time.Hour))
			assert.NoError(s, m.TryLock())
			s.unlock(m)
		})
		time.Sleep(ms)
		start := time.Now()
		m := obtained(s, rs.NewMutex("lock", redsync.WithExpiry(2*time.Second)))
		took(s, start, 100*ms)
		s.unlock(m)
		patient.Wait()
		took(s, start, 400*ms-ms)
		s.nodes[5].Thaw()
	})
}

// A first call whose context is too short to get an answer from any node does not keep later calls from learning which
// servers the nodes are.
func TestJointFirstCallWithAShortContext(t *testing.T) {
	changing(t, 5, func(s change) {
		slow := func(bool) time.Duration { return 5 * ms }
		on := func() (pools []pool.Pool) {
			for _, n := range s.nodes {
				pools = append(pools, pool.New(n.Client(func(o *redis.Options) { o.Dialer = n.DialVia(slow) })))
			}
			return pools
		}
		rs := s.joint(on(), on())
		ctx := limited(s, ms)
		require.Error(s, rs.NewMutex("first").TryLockContext(ctx))
		m := rs.NewMutex("second")
		require.NoError(s, m.TryLock(), "nobody has the lock")
		s.unlock(m)
	})
}

// A healthLog is an observer that records which nodes are reported down, and up.
type healthLog struct{ down, up []int }

func (h *healthLog) ObserveNodeDown(_ context.Context, e observe.NodeDown) {
	h.down = append(h.down, e.Node)
}

func (h *healthLog) ObserveNodeUp(_ context.Context, e observe.NodeUp) { h.up = append(h.up, e.Node) }

// A server that did not count at either address, because it had restarted, is reported up at both, although it is asked
// at only one of them.
func TestJointServerIsUpAgainAtBothAddresses(t *testing.T) {
	changing(t, 3, func(s change) {
		time.Sleep(time.Minute)
		var before, after []pool.Pool
		for _, n := range s.nodes {
			before, after = append(before, pool.New(n.Client(), guards[true]...)), append(after, pool.New(n.Client(), guards[true]...))
		}
		log := &healthLog{}
		rs := s.joint(before, after).With(redsync.WithObserver(log), hearsAll)
		obtained(s, rs.NewMutex("meet"))
		s.nodes[0].Kill()
		s.nodes[0].Restart(true)
		for i := range 20 {
			_ = rs.NewMutex(fmt.Sprint("lock", i)).TryLock()
			time.Sleep(time.Second)
		}
		assert.Contains(s, log.down, 0)
		assert.ElementsMatch(s, log.down, log.up)
	})
}

// While processes with New(after...) run, a new node restarts. A joint process that has pool.WithNoLocksBefore from its
// deployment does not count it. One that declares a later time does, wrongly.
func TestJointNewNodesThatRestart(t *testing.T) {
	for _, name := range []string{"without", "with", "wrong"} {
		t.Run(name, func(t *testing.T) {
			changing(t, 6, func(s change) {
				time.Sleep(time.Minute)
				more := map[string][]pool.Option{
					"with": {newNodes}, "wrong": {pool.WithNoLocksBefore(time.Now().Add(30 * time.Second))},
				}[name]
				guarded := func(more []pool.Option, nodes ...int) (pools []pool.Pool) {
					for _, i := range nodes {
						pools = append(pools, pool.New(s.nodes[i].Client(), append(more, guards[true]...)...))
					}
					return pools
				}
				s.heldByOne(s.alone(guarded(nil, 3, 4, 5)).NewMutex("lock"), 3, 5)
				err := s.joint(guarded(nil, 0, 1, 2), guarded(more, 3, 4, 5)).NewMutex("lock").TryLock()
				if name != "wrong" {
					require.Error(s, err)
				} else {
					require.NoError(s, err, "two processes hold the lock")
				}
			})
		})
	}
}

// The sets are 0, 1, 2 and 0, 1, 3, and the address of node 3 leads a joint process to server 2. Without node 0 the
// joint process cannot lock: otherwise it would hold the lock on 1 and 2, and a process of the later set could lock
// on 0 and 3.
func TestJointAddressThatLeadsToTheOtherSet(t *testing.T) {
	changing(t, 4, func(s change) {
		wrong := pool.New(s.nodes[2].Client(func(o *redis.Options) { o.Addr = "node-3:6379" }))
		rs, later := s.joint(s.at(0, 1, 2), append(s.at(0, 1), wrong)), s.alone(s.elsewhere(0, 1, 3))
		m := rs.NewMutex("lock")
		require.NoError(s, m.TryLock(), "nodes 0 and 1 are a quorum of both sets")
		s.taken(later, "lock", "a process of the later set")
		s.unlock(m)
		time.Sleep(time.Second)
		s.nodes[0].Freeze()
		require.ErrorIs(s, m.TryLock(), redsync.ErrNoQuorum)
		s.nodes[0].Thaw()
		time.Sleep(time.Second)
		rs = s.joint(s.at(0, 2), append(s.at(0), wrong))
		require.ErrorIs(s, rs.NewMutex("lock").TryLock(), redsync.ErrDuplicateNode, "one server is left of each set")
	})
}
