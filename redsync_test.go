package redsync_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/embedded"
	"github.com/seed14bd9ef4/redsync/internal/realredis"
	"github.com/seed14bd9ef4/redsync/internal/script"
	"github.com/seed14bd9ef4/redsync/pool"
)

func TestCloseUnlocksWhatIsHeld(t *testing.T) {
	play(t, func(f field) {
		copied := f.With(redsync.WithExpiry(time.Hour))
		held := copied.NewMutex("lock")
		require.NoError(t, held.Lock())
		over := f.NewMutex("over", redsync.WithExpiry(10*time.Millisecond))
		require.NoError(t, over.Lock())
		time.Sleep(time.Second)
		require.NoError(t, f.Close(f.Context()))
		assert.Zero(t, f.nodes.Keys("lock"))
		_, err := over.Unlock()
		require.ErrorIs(t, err, redsync.ErrClosed)
		for _, m := range []*redsync.Mutex{held, f.NewMutex("new"), copied.NewMutex("new")} {
			refuses(t, m, "closed")
			require.ErrorIs(t, m.Lock(), redsync.ErrClosed)
			require.ErrorIs(t, m.Lock(), redsync.ErrFailed)
		}
		require.NoError(t, copied.Close(f.Context()), "a second Close does nothing")
	})
}

func TestCloseEndsOperationsUnderWay(t *testing.T) {
	play(t, func(f field) {
		m := f.held()
		waiting := process(f.nodes)
		f.freeze(0, 1, 2)
		var wg sync.WaitGroup
		wg.Go(func() { assert.ErrorIs(t, f.NewMutex("other").Lock(), redsync.ErrClosed) })
		wg.Go(func() {
			_, err := m.Extend()
			assert.ErrorIs(t, err, redsync.ErrClosed)
		})
		wg.Go(func() { assert.ErrorIs(t, waiting.NewMutex("lock").Lock(), redsync.ErrClosed) })
		time.Sleep(10 * time.Millisecond)
		start := time.Now()
		require.Error(t, f.Close(f.Context()), "three nodes keep what they have")
		require.Error(t, waiting.Close(f.Context()))
		wg.Wait()
		// Each Close waits for a call under way, whose release two nodes settle then, and a
		// node deadline more for the other three.
		assert.GreaterOrEqual(t, time.Since(start), 800*time.Millisecond)
		assert.LessOrEqual(t, time.Since(start), 1600*time.Millisecond)
		for _, n := range f.nodes {
			n.Thaw()
		}
		time.Sleep(time.Second)
		assert.Zero(t, f.nodes.Keys("lock"))
		assert.Zero(t, f.nodes.Keys("other"))
	})
}

// A call that Close has forestalled is not one that Close waits for.
func TestCloseWaitsForNoCallThatItRefused(t *testing.T) {
	play(t, func(f field) {
		m := f.NewMutex("lock", redsync.WithValue("of another process"))
		for _, n := range f.nodes {
			n.On("evalsha", 1, embedded.Fault{Delay: 100 * time.Millisecond})
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := m.Valid()
			assert.ErrorContains(t, err, "no such key")
		})
		synctest.Wait()
		start := time.Now()
		wg.Go(func() { assert.NoError(t, f.Close(f.Context())) })
		time.Sleep(10 * time.Millisecond)
		require.ErrorIs(t, f.NewMutex("other").TryLock(), redsync.ErrClosed)
		wg.Wait()
		assert.Equal(t, 100*time.Millisecond, time.Since(start), "when the node has answered")
	})
}

// A slowPool is a node that answers ten thousand requests per second, and refuses any when
// it owes 1100 replies, as a pool does at 32,768.
type slowPool struct {
	sync.Mutex
	owed    []pool.Request
	frozen  bool
	running bool
	refused int
	deleted int
}

func (p *slowPool) String() string { return "slow" }
func (p *slowPool) CloseIdle()     {}
func (p *slowPool) Close() error   { return nil }

func (p *slowPool) Send(req pool.Request) error {
	p.Lock()
	defer p.Unlock()
	if len(p.owed) >= 1100 {
		p.refused++
		return &pool.OutstandingError{Limit: 1100}
	}
	p.owed = append(p.owed, req)
	if !p.running {
		p.running = true
		go p.run()
	}
	return nil
}

func (p *slowPool) run() {
	for req, ok := p.next(); ok; req, ok = p.next() {
		reply := pool.Reply{Value: "OK", Fate: pool.Answered, Conn: 1}
		if req.Args[0] != "set" {
			reply.Value = script.Mine
		}
		req.To.Receive(req.Tag, reply)
	}
}

func (p *slowPool) next() (req pool.Request, ok bool) {
	p.Lock()
	defer p.Unlock()
	if len(p.owed) == 0 || p.frozen {
		p.running = false
		return req, false
	}
	req, p.owed = p.owed[0], p.owed[1:]
	if req.Args[0] != "set" {
		p.deleted++
		p.Unlock()
		time.Sleep(100 * time.Microsecond)
		p.Lock()
	}
	return req, true
}

func TestCloseReleasesHoweverManyLocksAreHeld(t *testing.T) {
	const count = 5000
	for name, frozen := range map[string]bool{"healthy nodes": false, "one node is frozen": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes := [3]*slowPool{{}, {}, {}}
				rs := redsync.New(nodes[0], nodes[1], nodes[2]).With(
					redsync.WithExpiry(time.Hour), redsync.WithNodeTimeout(50*time.Millisecond))
				for i := range count {
					require.NoError(t, rs.NewMutex(fmt.Sprint("lock", i)).Lock())
					if i%500 == 0 {
						synctest.Wait() // for the slowest node
					}
				}
				synctest.Wait()
				nodes[2].frozen = frozen
				start := time.Now()
				err := rs.Close(t.Context())
				if frozen {
					require.ErrorContains(t, err, "keys are left to their expiry: no answer within 50ms")
					assert.Equal(t, 550*time.Millisecond, time.Since(start), "a node deadline after the last release")
				} else {
					require.NoError(t, err)
					assert.Equal(t, 500*time.Millisecond, time.Since(start), "ten node deadlines")
				}
				for i, n := range nodes {
					assert.Zero(t, n.refused, "node %d", i)
					if !frozen || i < 2 {
						assert.Equal(t, count, n.deleted, "node %d", i)
					}
				}
			})
		})
	}
}

// More releases are refused than Close lets a node owe. None of them makes the others wait.
func TestCloseGivesUpReleasesThatThePoolRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, on := &slowPool{}, new(atomic.Bool)
		rs := redsync.New(refusing{p, on}).With(redsync.WithExpiry(time.Hour))
		for i := range 2000 {
			require.NoError(t, rs.NewMutex(fmt.Sprint("lock", i)).Lock())
		}
		synctest.Wait()
		on.Store(true)
		start := time.Now()
		require.NoError(t, rs.Close(t.Context()))
		assert.Zero(t, time.Since(start))
		assert.Zero(t, p.deleted)
	})
}

func TestCloseWaitsNoLongerThanItsContext(t *testing.T) {
	play(t, func(f field) {
		f.held()
		f.freeze(4)
		reason := errors.New("in a hurry")
		ctx, cancel := context.WithTimeoutCause(f.Context(), 30*time.Millisecond, reason)
		defer cancel()
		start := time.Now()
		err := f.Close(ctx)
		assert.Equal(t, 30*time.Millisecond, time.Since(start))
		require.ErrorIs(t, err, reason)
		require.ErrorIs(t, f.Close(f.Context()), reason, "a second Close returns what the first did")
	})
}

func TestCloseTriesPendingReleasesOnceMore(t *testing.T) {
	play(t, func(f field) {
		m := f.held()
		f.nodes[2].On("evalsha", 3, embedded.Fault{Err: "BUSY Redis is busy running a script."})
		ok, err := m.Unlock()
		require.NoError(t, err)
		assert.True(t, ok)
		time.Sleep(200 * time.Millisecond)
		assert.Equal(t, 1, f.nodes.Keys("lock"))
		require.NoError(t, f.Close(f.Context()))
		assert.Zero(t, f.nodes.Keys("lock"))
	})
}

func TestCloseLeavesTheUsersClientsOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := embedded.Start(1)
		defer nodes.Close()
		client := nodes[0].Client()
		defer func() { _ = client.Close() }()
		for range 3 {
			rs := redsync.New(pool.New(client))
			require.NoError(t, rs.NewMutex("lock").Lock())
			require.NoError(t, rs.Close(t.Context()))
			require.NoError(t, client.Ping(t.Context()).Err())
			require.Zero(t, nodes.Keys("lock"))
		}
	})
}

func TestNewStartsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := embedded.Start(5)
		defer nodes.Close()
		for range 100 {
			process(nodes).NewMutex("lock")
		}
		synctest.Wait()
		for _, n := range nodes {
			assert.Zero(t, n.CurrentConnectionCount())
		}
		// The bubble fails if a goroutine is left, and nothing was closed.
	})
}

func TestWithCopiesShareNodesAndNotSettings(t *testing.T) {
	play(t, func(f field) {
		long := f.With(redsync.WithExpiry(time.Hour), redsync.WithDriftFactor(0))
		a, b := long.NewMutex("a"), f.NewMutex("b")
		require.NoError(t, a.Lock())
		require.NoError(t, b.Lock())
		assert.Equal(t, time.Hour-2*time.Millisecond, a.Remaining())
		assert.Equal(t, 8*time.Second-82*time.Millisecond, b.Remaining())
	})
}

func TestOpenReturnsOnceAQuorumHasAnswered(t *testing.T) {
	addresses := make([]string, 5)
	for i := range 3 {
		m := miniredis.RunT(t)
		addresses[i] = m.Addr()
		if i == 2 {
			addresses[i] = "redis://" + m.Addr() + "/0"
		}
	}
	addresses[3], addresses[4] = closedPort(t), closedPort(t)
	rs, err := redsync.Open(t.Context(), addresses, redsync.WithExpiry(time.Minute))
	require.NoError(t, err)
	m := rs.NewMutex("lock")
	require.NoError(t, m.Lock())
	assert.Greater(t, m.Remaining(), 30*time.Second)
	ok, err := m.Unlock()
	require.NoError(t, err)
	assert.True(t, ok)
	require.NoError(t, rs.Close(t.Context()))
}

func TestOpenWithoutAQuorumNamesEachNode(t *testing.T) {
	addresses := []string{miniredis.RunT(t).Addr(), closedPort(t), closedPort(t)}
	_, err := redsync.Open(t.Context(), addresses)
	require.ErrorContains(t, err, "1 of 3 nodes answered, 2 needed")
	for i := 1; i < 3; i++ {
		assert.ErrorContains(t, err, fmt.Sprintf("node #%d (%s): dial tcp %s", i, addresses[i], addresses[i]))
	}
}

func TestOpenBadAddressesAreErrors(t *testing.T) {
	for want, addresses := range map[string][]string{
		"no pools":                  nil,
		`address #1: "x" is not of`: {"127.0.0.1:1", "x"},
		`"" is not of the form`:     {""},
		"#0 and #2 (127.0.0.1:1)":   {"127.0.0.1:1", "127.0.0.1:2", "redis://127.0.0.1:1/3"},
		"contains a space":          {" 127.0.0.1:1"},
		`port "1\n" is not`:         {"127.0.0.1:1", "127.0.0.1:1\n"},
		`port "0" is not`:           {"127.0.0.1:0"},
		`port "65536" is not`:       {"127.0.0.1:65536"},
		`port "99999" is not`:       {"redis://127.0.0.1:99999"},
		"http://h:1":                {"http://h:1"},
	} {
		_, err := redsync.Open(t.Context(), addresses)
		require.ErrorContains(t, err, want)
	}
	for _, address := range []string{"redis://user:secret@host:x/", "redis://user:secret/x@host:1", "user:secret@host:1"} {
		_, err := redsync.Open(t.Context(), []string{address})
		require.Error(t, err)
		assert.NotContains(t, err.Error(), "secret")
		assert.ErrorContains(t, err, "...@host:")
	}
	_, err := redsync.Open(t.Context(), []string{"127.0.0.1:1", "127.0.0.1:1"})
	require.ErrorIs(t, err, redsync.ErrDuplicateNode)
}

func TestOpenChecksItsOptionsFirst(t *testing.T) {
	server := miniredis.RunT(t)
	_, err := redsync.Open(t.Context(), []string{server.Addr()}, redsync.WithExpiry(-1))
	require.ErrorContains(t, err, "redsync: Open: WithExpiry(-1ns) is out of range")
	assert.Zero(t, server.CurrentConnectionCount())
}

// One client, one address or one Pool twice is found before anything is sent.
func TestNewRefusesOneNodeTwice(t *testing.T) {
	clientOf := func(addr string, db int) *redis.Client {
		client := redis.NewClient(&redis.Options{Addr: addr, DB: db})
		t.Cleanup(func() { _ = client.Close() })
		return client
	}
	at := func(addr string, db int) pool.Pool { return pool.New(clientOf(addr, db)) }
	cluster := redis.NewClusterClient(&redis.ClusterOptions{})
	defer func() { _ = cluster.Close() }()
	client, same, other := clientOf("127.0.0.1:1", 0), at("127.0.0.1:2", 0), at("127.0.0.1:3", 0)
	dialing := redis.NewClient(&redis.Options{Addr: "x", Dialer: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("not dialed")
	}})
	defer func() { _ = dialing.Close() }()
	for name, pools := range map[string][]pool.Pool{
		"a Pool":                      {same, other, same},
		"a client":                    {pool.New(client), other, pool.New(client, pool.WithoutIdentity())},
		"a client with a Dialer":      {pool.New(dialing), other, pool.New(dialing)},
		"an address":                  {at("h:7001", 0), at("h:7002", 0), at("h:7001", 1)},
		"a client that is no *Client": {pool.New(cluster), other, pool.New(cluster)},
	} {
		err := redsync.New(pools...).NewMutex("lock").Lock()
		require.ErrorIs(t, err, redsync.ErrDuplicateNode, name)
		require.ErrorIs(t, err, redsync.ErrFailed, name)
		assert.ErrorContains(t, err, fmt.Sprintf("#0 and #2 (%s)", pools[2]), name)
	}
}

func TestNewOnAnAddressThatNobodyCanDialFailsAtOnce(t *testing.T) {
	for _, addr := range []string{" h:1", "h:1\n", "h:0", "h:65536", "h:-1", "h", "h:no-such-service"} {
		client := redis.NewClient(&redis.Options{Addr: addr})
		err := redsync.New(pool.New(client)).NewMutex("lock").Lock()
		require.ErrorContains(t, err, fmt.Sprintf("pool #0: address %q: ", addr))
		require.NoError(t, client.Close())
	}
}

// Two nodes with a constant run ID are no duplicates for who says so.
func TestWithoutIdentityTakesNodesWithOneRunIDForTwo(t *testing.T) {
	play(t, func(f field) {
		proxied := func(options ...pool.Option) *redsync.Redsync {
			return redsync.New(
				pool.New(f.nodes[0].Client(), options...), // two connections to one server: it has one run ID
				pool.New(f.nodes[0].Client(), options...), pool.New(f.nodes[1].Client(), options...))
		}
		require.ErrorIs(t, proxied().NewMutex("lock").TryLock(), redsync.ErrDuplicateNode)
		time.Sleep(time.Second)
		m := proxied(pool.WithoutIdentity()).NewMutex("lock")
		require.NoError(t, m.TryLock(), "the second of the two refuses, and two grant")
		_, err := m.Unlock()
		require.NoError(t, err)
		err = proxied(pool.WithoutIdentity(), pool.WithRestartGuard(time.Minute)).NewMutex("lock").TryLock()
		require.ErrorContains(t, err, "WithRestartGuard excludes WithoutIdentity")
	})
}

func TestOpenLeavesNoConnection(t *testing.T) {
	server := miniredis.RunT(t)
	rs, err := redsync.Open(t.Context(), []string{"redis://" + server.Addr() + "?min_idle_conns=3"})
	require.NoError(t, err)
	require.NoError(t, rs.NewMutex("lock").Lock())
	require.NoError(t, rs.Close(t.Context()))
	assert.Eventually(t, func() bool { return server.CurrentConnectionCount() == 0 }, 10*time.Second, 5*time.Millisecond)
}

func TestOpenEndedByItsContextNamesWhatNodesSaid(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = silent.Close() }()
	silent2, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = silent2.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	_, err = redsync.Open(ctx, []string{closedPort(t), silent.Addr().String(), silent2.Addr().String()})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "refused")
}

func TestOpenEndsWithItsContext(t *testing.T) {
	// A listener that never answers.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = redsync.Open(ctx, []string{l.Addr().String()})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	_ = l.Close()
}

// closedPort returns an address on which nobody listens.
func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return l.Addr().String()
}

// On real servers.

// realProcess is a process that gives a slow machine time to answer.
func realProcess(servers []*realredis.Server) *redsync.Redsync {
	pools := make([]pool.Pool, len(servers))
	for i, s := range servers {
		pools[i] = pool.New(s.Client())
	}
	return redsync.New(pools...).With(redsync.WithTimeoutFactor(0.4))
}

func TestFrozenNodeUnderLoadCostsNoGoroutines(t *testing.T) {
	servers := realredis.Start(t, 5)
	rs := realProcess(servers)
	defer func() { _ = rs.Close(t.Context()) }()
	var pairs atomic.Int64
	load := func(d time.Duration) {
		var wg sync.WaitGroup
		for g := range 16 {
			wg.Go(func() {
				for i, end := 0, time.Now().Add(d); time.Now().Before(end); i++ {
					m := rs.NewMutex(fmt.Sprintf("load-%d-%d", g, i))
					if !assert.NoError(t, m.Lock()) {
						return
					}
					ok, err := m.Unlock()
					assert.True(t, ok, err)
					pairs.Add(1)
				}
			})
		}
		wg.Wait()
	}
	load(200 * time.Millisecond)
	before := runtime.NumGoroutine()
	servers[1].Freeze()
	load(3 * time.Second)
	assert.LessOrEqual(t, runtime.NumGoroutine(), before+10)
	servers[1].Thaw()
	assert.Positive(t, pairs.Load())
	// Everything that was left on the frozen node goes.
	assert.Eventually(t, func() bool {
		left, err := servers[1].Do("dbsize")
		return err == nil && left == int64(0)
	}, 20*time.Second, 50*time.Millisecond)
}

func TestDistinctLocksAtOnceLeaveNoKey(t *testing.T) {
	servers := realredis.Start(t, 5)
	rs := realProcess(servers)
	var wg sync.WaitGroup
	for g := range 64 {
		wg.Go(func() {
			for i := range 50 {
				m := rs.NewMutex(fmt.Sprintf("lock-%d-%d", g, i))
				if !assert.NoError(t, m.Lock()) {
					return
				}
				ok, err := m.Unlock()
				assert.True(t, ok, err)
			}
		})
	}
	wg.Wait()
	require.NoError(t, rs.Close(t.Context()))
	for i, s := range servers {
		left, err := s.Do("dbsize")
		require.NoError(t, err)
		assert.Zero(t, left, "node %d", i)
	}
}

func BenchmarkLockUnlock(b *testing.B) {
	rs := realProcess(realredis.Start(b, 5))
	defer func() { _ = rs.Close(b.Context()) }()
	for _, callers := range []int{1, 64} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			b.ReportAllocs()
			b.SetParallelism(callers) // times GOMAXPROCS
			var key atomic.Int64
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					m := rs.NewMutex(fmt.Sprintf("%s-%d", b.Name(), key.Add(1)))
					if err := m.Lock(); err != nil {
						b.Error(err)
						return
					}
					if _, err := m.Unlock(); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}
