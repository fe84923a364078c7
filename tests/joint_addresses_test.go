package redsync_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/embedded"
	"github.com/seed14bd9ef4/redsync/pool"
	"github.com/seed14bd9ef4/redsync/redsynctest"
)

// This file shows joint sets whose servers have an address in each set, while servers restart, addresses move, and
// calls have little time. It also shows what the runbook warns of.

// heldByOne makes m hold its lock, with a key on only one of the three nodes. Node late was frozen during Lock, and
// node emptied has restarted without its keys.
func (c change) heldByOne(m *redsync.Mutex, emptied, late int) {
	c.freeze(late)
	locked(c, m)
	c.reboot(true, emptied)
	c.thaw(late)
	time.Sleep(ms)
	c.lose(late)
}

// Server 0 has an address in each set, and dies for good. Its address in before is given to server 3, its address in
// after to server 4. Server 3 may deny INFO. A joint process must not count server 3 in after: servers 1 and 3 are a
// quorum of before, and in after only server 1 answers.
func TestJointAddressOfADeadServerLeadsToAnother(t *testing.T) {
	for _, denied := range []bool{false, true} {
		changing(t, 5, func(s change) {
			var moving movable
			moving.to.Store(s.nodes[0])
			rs := s.joint(append([]pool.Pool{pool.New(moving.client())}, s.at(1, 2)...), s.elsewhere(0, 1, 2))
			s.unlock(obtained(s, rs.NewMutex("meet")))
			if denied {
				s.nodes[3].On("info", 1000, embedded.Fault{Err: "NOPERM User has no permissions to run the 'info' command"})
			}
			s.kill(0)
			moving.to.Store(s.nodes[3])
			time.Sleep(minute)
			s.freeze(2)
			for range 3 {
				require.ErrorIs(s, rs.NewMutex("lock").TryLock(), redsync.ErrNoQuorum)
				time.Sleep(sec)
			}
			s.thaw(2)
		})
	}
}

// A call may have to learn which servers the nodes are. It waits for that at most for its own node deadline, however
// long another call waits.
func TestJointCallsWaitForTheirOwnDeadlines(t *testing.T) {
	changing(t, 6, func(s change) {
		rs := s.joint(s.at(0, 1, 2), s.at(3, 4, 5))
		s.freeze(5)
		var patient sync.WaitGroup
		patient.Go(func() { s.unlock(obtained(s, rs.NewMutex("batch", withExpiry(10*hour)))) })
		time.Sleep(ms)
		start := time.Now()
		m := obtained(s, rs.NewMutex("lock", withExpiry(2*sec)))
		took(s, start, 100*ms)
		s.unlock(m)
		patient.Wait()
		took(s, start, 400*ms-ms)
		s.thaw(5)
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
		require.Error(s, rs.NewMutex("first").TryLockContext(limited(s, ms)))
		s.unlock(obtained(s, rs.NewMutex("second"))) // nobody has the lock
	})
}

// A server that did not count at either address, because it had restarted, is reported up at both, although it is asked
// at only one of them.
func TestJointServerIsUpAgainAtBothAddresses(t *testing.T) {
	changing(t, 3, func(s change) {
		time.Sleep(minute)
		r := &redsynctest.Recorder{}
		rs := s.joint(s.with(guards[true], 0, 1, 2), s.with(guards[true], 0, 1, 2)).With(withObserver(r), hearsAll)
		obtained(s, rs.NewMutex("meet"))
		s.reboot(true, 0)
		for i := range 20 {
			_ = rs.NewMutex(fmt.Sprint("lock", i)).TryLock()
			time.Sleep(sec)
		}
		down, up := toldOfNodes(r)
		nodes := map[int]int{}
		for _, e := range down {
			nodes[e.Node]++
		}
		assert.Contains(s, nodes, 0)
		for _, e := range up {
			nodes[e.Node]--
		}
		for node, more := range nodes {
			assert.Zero(s, more, "node %d was down as often as up", node)
		}
	})
}

// While processes with New(after...) run, a new node restarts. A joint process that has pool.WithNoLocksBefore from its
// deployment does not count it. One that declares a later time does, wrongly: then two processes hold the lock.
func TestJointNewNodesThatRestart(t *testing.T) {
	for _, name := range []string{"without", "with", "wrong"} {
		changing(t, 6, func(s change) {
			time.Sleep(minute)
			more := map[string][]pool.Option{
				"with": {newNodes}, "wrong": {pool.WithNoLocksBefore(time.Now().Add(30 * sec))},
			}[name]
			s.heldByOne(s.alone(s.with(guards[true], 3, 4, 5)).NewMutex("lock"), 3, 5)
			err := s.joint(s.with(guards[true], 0, 1, 2), s.with(append(more, guards[true]...), 3, 4, 5)).NewMutex("lock").TryLock()
			require.Equal(s, name == "wrong", err == nil, "%s: %v", name, err)
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
		m := obtained(s, rs.NewMutex("lock")) // nodes 0 and 1 are a quorum of both sets
		s.taken(later, "lock", "a process of the later set")
		s.unlock(m)
		time.Sleep(sec)
		s.freeze(0)
		require.ErrorIs(s, m.TryLock(), redsync.ErrNoQuorum)
		s.thaw(0)
		time.Sleep(sec)
		rs = s.joint(s.at(0, 2), append(s.at(0), wrong))
		require.ErrorIs(s, rs.NewMutex("lock").TryLock(), redsync.ErrDuplicateNode, "one server is left of each set")
	})
}
