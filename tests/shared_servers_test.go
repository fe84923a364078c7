package redsync_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/testkit/realredis"
	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
	"github.com/seed14bd9ef4/redsync/observe"
	"github.com/seed14bd9ef4/redsync/redsynctest"
)

// Readers and writers on real servers: permissions, clusters, clocks, and faults.

// downOf returns why a node is down, or nil if r was not told of it.
func downOf(r *redsynctest.Recorder, node int) (err error) {
	for _, d := range redsynctest.Events[observe.NodeDown](r) {
		if d.Node == node {
			err = d.Err
		}
	}
	return err
}

// noQueueACL is what readers and writers need without queues.
var noQueueACL = append([]string{"+time"}, plainACL...)

// closed makes the test close rs at its end. It returns rs with node deadlines that are long enough for a slow machine.
func closed(t *testing.T, rs *redsync.Redsync) *redsync.Redsync {
	t.Helper()
	closesSoon(t, rs)
	return rs.With(withNodeTimeout(4*sec), withExpiry(5*minute))
}

// closesSoon makes the test close rs at its end. Close does not wait for nodes that are down.
func closesSoon(t *testing.T, rs *redsync.Redsync) {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*sec)
		defer cancel()
		_ = rs.Close(ctx)
	})
}

// awaitTickets waits until n waiters stand in the queue of "lock" on the servers.
func awaitTickets(t *testing.T, servers []*realredis.Server, n int) {
	t.Helper()
	const ticket = 64
	awaitAnswers(t, servers, int64(n*ticket), "strlen", "{lock}:queue")
}

// unlocks unlocks m.
func unlocks(t *testing.T, m *redsync.Mutex) {
	t.Helper()
	confirmed(t, m.Unlock)
}

// Two of five nodes deny the queue, and a third one is down. The nodes that deny the queue let a reader in without
// looking at the queue. The remaining two keep it out if a writer waits. A node that denies its queue is not down.
func TestReadersWhereSomeNodesDenyTheQueue(t *testing.T) {
	testlength.NotWhileAPersonWaits(t)
	t.Parallel()
	servers := realredis.Start(t, 5)
	down, denied := &redsynctest.Recorder{}, &redsynctest.Recorder{}
	rs := processAsOn(t, servers, func(i int) []string {
		if i < 2 {
			return noQueueACL
		}
		return smallestACL
	}).With(recordsTo(down), recordsTo(denied))
	servers[4].Kill()
	shared := withShared
	for _, options := range []opts{{shared}, {shared, noHandOver, withSetNXOnExtend}} {
		r, other := rs.NewMutex("lock", options...), rs.NewMutex("lock", shared)
		for range 2 { // the second time the library knows what the nodes deny
			obtained(t, r)
			unlocks(t, r)
			locked(t, r)
			confirmed(t, r.Extend)
			unlocks(t, r)
		}
		w := locked(t, rs.NewMutex("lock"))
		noError(t, w.Downgrade(t.Context()))
		obtained(t, other)
		unlocks(t, w)
		unlocks(t, other)
	}
	holder := locked(t, closed(t, realProcess(servers[:4])).NewMutex("lock", shared))
	writer := make(chan error)
	w := closed(t, realProcess(servers[:4])).NewMutex("lock", forever)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { writer <- w.LockContext(ctx) }()
	awaitTickets(t, servers[:4], 1)
	isKeptOut(t, rs.NewMutex("lock", shared), "two nodes have let it in")
	cancel()
	erred(t, <-writer)
	unlocks(t, holder)
	for i := range 4 {
		assert.NoError(t, downOf(down, i), "node %d", i)
	}
	assert.Subset(t, []int{0, 1}, denying(t, denied))
}

// isKeptOut checks that a reader is kept out by a writer that waits. On a busy machine, the writer's tickets may expire
// because the writer renews them too late. That lets the reader in. Then the reader unlocks and tries again.
func isKeptOut(t *testing.T, reader *redsync.Mutex, why string) {
	t.Helper()
	require.Eventually(t, func() bool {
		if reader.TryLock() != nil {
			return true
		}
		unlocks(t, reader)
		return false
	}, soon, 10*ms, why)
}

// A cluster keeps the queue of one name on another node than the lock. Readers of that name do not look at the queue.
// Readers of other names do.
func TestReadersOfANameWhoseQueueIsElsewhere(t *testing.T) {
	testlength.NotWhileAPersonWaits(t)
	t.Parallel()
	servers := realredis.StartCluster(t)
	a, _ := clusterProcess(t, servers)
	b, _ := clusterProcess(t, servers)
	a = a.With(lasting)
	shared := withShared
	apart := locked(t, a.NewMutex("apart}", shared))
	erred(t, a.NewMutex("apart}").TryLock())
	r := locked(t, a.NewMutex("lock", shared))
	w := b.NewMutex("lock", forever, withExpiry(40*sec))
	done := make(chan error)
	go func() { done <- w.Lock() }()
	queued := func() bool {
		for _, s := range servers {
			if n, err := s.Do("strlen", "{lock}:queue"); err == nil && n.(int64) > 0 {
				return true
			}
		}
		return false
	}
	require.Eventually(t, queued, soon, ms)
	isKeptOut(t, a.NewMutex("lock", shared, noHandOver), "the writer waits")
	unlocks(t, r)
	noError(t, <-done)
	unlocks(t, w)
	unlocks(t, apart)
}
