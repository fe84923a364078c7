package redsync_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/realredis"
	"github.com/seed14bd9ef4/redsync/observe"
	"github.com/seed14bd9ef4/redsync/pool"
)

// Readers and writers on real servers: permissions, clusters, clocks, and faults.

// A downLog is told which nodes are down.
type downLog struct {
	mu   sync.Mutex
	down map[int]error
}

func (l *downLog) ObserveNodeDown(_ context.Context, d observe.NodeDown) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down == nil {
		l.down = map[int]error{}
	}
	l.down[d.Node] = d.Err
}

// of returns why a node is down, or nil if l was not told of it.
func (l *downLog) of(node int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.down[node]
}

// noQueueACL is what readers and writers need without queues.
var noQueueACL = append([]string{"+time"}, plainACL...)

// processAsOn returns a process whose user has these rules on each server.
func processAsOn(t *testing.T, servers []*realredis.Server, rules func(i int) []string) *redsync.Redsync {
	t.Helper()
	var pools []pool.Pool
	for i, s := range servers {
		args := []any{"acl", "setuser", "locker", "reset", "on", ">secret"}
		for _, rule := range rules(i) {
			args = append(args, rule)
		}
		realredis.Must(t, s, args...)
		c := redis.NewClient(&redis.Options{
			Addr: s.Addr(), Username: "locker", Password: "secret",
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		})
		t.Cleanup(func() { _ = c.Close() })
		pools = append(pools, pool.New(c))
	}
	return closed(t, redsync.New(pools...))
}

// closed makes the test close rs at its end. It returns rs with node deadlines that are long enough for a slow machine.
func closed(t *testing.T, rs *redsync.Redsync) *redsync.Redsync {
	t.Helper()
	closesSoon(t, rs)
	return rs.With(redsync.WithNodeTimeout(4*time.Second), redsync.WithExpiry(5*time.Minute))
}

// closesSoon makes the test close rs at its end. Close does not wait for nodes that are down.
func closesSoon(t *testing.T, rs *redsync.Redsync) {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
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

// stallsOf returns a function that ends its look at the machine and the servers, and tells for how long one of them stood
// still.
func stallsOf(t *testing.T, servers []*realredis.Server) (longest func() time.Duration) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	told := make(chan time.Duration, 1)
	clients := make([]*redis.Client, len(servers))
	for i, s := range servers {
		clients[i] = s.Client()
	}
	go func() {
		var most time.Duration
		for last := time.Now(); ctx.Err() == nil; time.Sleep(10 * time.Millisecond) { //nolint:forbidigo // real servers
			for _, c := range clients {
				_ = c.Ping(ctx).Err()
			}
			now := time.Now()
			most, last = max(most, now.Sub(last)), now
		}
		told <- most
	}()
	t.Cleanup(cancel)
	return func() time.Duration { cancel(); return <-told }
}

// unlocks unlocks m.
func unlocks(t *testing.T, m *redsync.Mutex) {
	t.Helper()
	ok, err := m.Unlock()
	require.NoError(t, err)
	require.True(t, ok)
}

// Two of five nodes deny the queue, and a third one is down. The nodes that deny the queue let a reader in without
// looking at the queue. The remaining two keep it out if a writer waits. A node that denies its queue is not down.
func TestReadersWhereSomeNodesDenyTheQueue(t *testing.T) {
	t.Parallel()
	servers := realredis.Start(t, 5)
	down, denied := &downLog{}, &unwokenLog{}
	rs := processAsOn(t, servers, func(i int) []string {
		if i < 2 {
			return noQueueACL
		}
		return smallestACL
	}).With(redsync.WithObserver(down), redsync.WithObserver(denied))
	servers[4].Kill()
	shared := redsync.WithShared()
	for _, options := range [][]redsync.Option{{shared}, {shared, redsync.WithHandOver(false), redsync.WithSetNXOnExtend()}} {
		r, other := rs.NewMutex("lock", options...), rs.NewMutex("lock", shared)
		for range 2 { // the second time the library knows what the nodes deny
			require.NoError(t, r.TryLock())
			unlocks(t, r)
			require.NoError(t, r.Lock())
			ok, err := r.Extend()
			require.True(t, ok, "%v", err)
			unlocks(t, r)
		}
		w := rs.NewMutex("lock")
		require.NoError(t, w.Lock())
		require.NoError(t, w.Downgrade(t.Context()))
		require.NoError(t, other.TryLock())
		unlocks(t, w)
		unlocks(t, other)
	}
	holder := closed(t, realProcess(servers[:4])).NewMutex("lock", shared)
	require.NoError(t, holder.Lock())
	writer := make(chan error)
	w := closed(t, realProcess(servers[:4])).NewMutex("lock", redsync.WithTries(0))
	ctx, cancel := context.WithCancel(t.Context())
	go func() { writer <- w.LockContext(ctx) }()
	awaitTickets(t, servers[:4], 1)
	isKeptOut(t, rs.NewMutex("lock", shared), "two nodes have let it in")
	cancel()
	require.Error(t, <-writer)
	unlocks(t, holder)
	for i := range 4 {
		assert.NoError(t, down.of(i), "node %d", i)
	}
	assert.Subset(t, []int{0, 1}, denied.nodes(t))
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
	}, soon, 10*time.Millisecond, why)
}

// A cluster keeps the queue of one name on another node than the lock. Readers of that name do not look at the queue.
// Readers of other names do.
func TestReadersOfANameWhoseQueueIsElsewhere(t *testing.T) {
	t.Parallel()
	servers := realredis.StartCluster(t)
	a, _ := clusterProcess(t, servers)
	b, _ := clusterProcess(t, servers)
	a = a.With(redsync.WithExpiry(time.Minute))
	shared := redsync.WithShared()
	apart := a.NewMutex("apart}", shared)
	require.NoError(t, apart.Lock())
	require.Error(t, a.NewMutex("apart}").TryLock())
	r := a.NewMutex("lock", shared)
	require.NoError(t, r.Lock())
	w := b.NewMutex("lock", redsync.WithTries(0), redsync.WithExpiry(40*time.Second))
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
	require.Eventually(t, queued, soon, time.Millisecond)
	isKeptOut(t, a.NewMutex("lock", shared, redsync.WithHandOver(false)), "the writer waits")
	unlocks(t, r)
	require.NoError(t, <-done)
	unlocks(t, w)
	unlocks(t, apart)
}

// A writer's release lets in all readers of all processes that wait before the next writer. That writer goes before the
// readers that come later. Retry delays are so long that only wake-ups serve them. On a machine that stalls, tickets may
// lapse, and the order with them. Then the scene is played again.
func TestOneReleaseLetsInTheReadersOfAllProcesses(t *testing.T) {
	t.Parallel()
	for range 5 {
		servers := realredis.Start(t, 5)
		stalled := stallsOf(t, servers)
		wrong := oneReleaseLetsIn(t, servers)
		if wrong == "" {
			return
		}
		require.Greater(t, stalled(), 400*time.Millisecond, wrong)
	}
	t.Error("the machine stalled in each play")
}

// oneReleaseLetsIn returns who has overtaken whom, if anybody.
func oneReleaseLetsIn(t *testing.T, servers []*realredis.Server) (wrong string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	begins := func(rs *redsync.Redsync, options ...redsync.Option) (*redsync.Mutex, chan error) {
		m, done := rs.NewMutex("lock", patient(options...)...), make(chan error, 1)
		go func() { done <- m.LockContext(ctx) }()
		return m, done
	}
	type waiting struct {
		*redsync.Mutex
		done chan error
	}
	shared := redsync.WithShared()
	holder := closed(t, realProcess(servers)).NewMutex("lock")
	require.NoError(t, holder.Lock())
	var early, late []waiting
	tickets := 0
	for range 4 {
		rs := closed(t, realProcess(servers))
		tickets++
		for range 3 {
			m, done := begins(rs, shared)
			early = append(early, waiting{m, done})
			awaitTickets(t, servers, tickets) // before the next call, which could overtake this one and show its own ticket
		}
	}
	writer, written := begins(closed(t, realProcess(servers)))
	awaitTickets(t, servers, tickets+1)
	for i := range 2 {
		m, done := begins(closed(t, realProcess(servers)), shared)
		late = append(late, waiting{m, done})
		awaitTickets(t, servers, tickets+2+i)
	}
	unlocks(t, holder)
	for i, r := range early {
		select {
		case err := <-r.done:
			require.NoError(t, err)
		case err := <-written:
			require.NoError(t, err)
			require.Zero(t, i, "the writer came beside a reader")
			return "the writer came before the readers"
		}
	}
	for _, r := range early {
		assert.Empty(t, written)
		unlocks(t, r.Mutex)
	}
	var err error
	select {
	case err = <-written:
	case err = <-late[0].done:
		wrong = "a late reader came before the writer"
	case err = <-late[1].done:
		wrong = "a late reader came before the writer"
	}
	require.NoError(t, err)
	if wrong != "" {
		assert.Empty(t, written, "the writer came beside a reader")
		return wrong
	}
	for _, r := range late {
		assert.Empty(t, r.done)
	}
	unlocks(t, writer)
	for _, r := range late {
		require.NoError(t, <-r.done)
		unlocks(t, r.Mutex)
	}
	awaitAnswers(t, servers, 0, "exists", "lock", "{lock}:queue")
	return ""
}
