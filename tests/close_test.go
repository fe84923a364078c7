package redsync_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/script"
	"github.com/seed14bd9ef4/redsync/internal/testkit/clocktest"
	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
	"github.com/seed14bd9ef4/redsync/internal/testkit/scripted"
	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
	"github.com/seed14bd9ef4/redsync/internal/wire"
	"github.com/seed14bd9ef4/redsync/observe"
	"github.com/seed14bd9ef4/redsync/pool"
	"github.com/seed14bd9ef4/redsync/redsynctest"
)

// This file tests what Close unlocks, ends and waits for, and what happens when the program closes its clients.

func TestCloseUnlocksWhatIsHeld(t *testing.T) {
	onKit(t, func(k kit) {
		copied := k.With(withExpiry(hour))
		held := locked(k, copied.NewMutex("lock"))
		over := locked(k, k.NewMutex("over", withExpiry(10*ms)))
		sleep(sec)
		shut(k, k.Redsync)
		k.nothingLeft()
		failsWith(k, over.Unlock, redsync.ErrClosed)
		for _, m := range []*redsync.Mutex{held, k.NewMutex("new"), copied.NewMutex("new")} {
			refuses(k.T, m, "closed")
			err := m.Lock()
			errorIs(k, err, redsync.ErrClosed)
			require.NotErrorIs(k, err, redsync.ErrFailed)
		}
		shut(k, copied) // a second Close does nothing
	})
}

func TestCloseEndsOperationsUnderWay(t *testing.T) {
	onKit(t, func(k kit) {
		m := k.held()
		waiting := k.nodes.Process()
		k.freeze(majority...)
		var wg sync.WaitGroup
		wg.Go(func() { assert.ErrorIs(k, k.NewMutex("other").Lock(), redsync.ErrClosed) })
		wg.Go(func() {
			_, err := m.Extend()
			assert.ErrorIs(k, err, redsync.ErrClosed)
		})
		wg.Go(func() { assert.ErrorIs(k, waiting.NewMutex("lock").Lock(), redsync.ErrClosed) })
		sleep(10 * ms)
		start := time.Now()
		ctx := limited(k, 2*sec)
		wg.Go(func() { assert.NoError(k, waiting.Close(ctx), "nothing was sent to the frozen nodes") })
		require.Error(k, k.Close(ctx), "three nodes keep their keys")
		wg.Wait()
		took(k, start, 2*sec)
		k.thaw(allNodes...)
		sleep(sec)
		k.nothingLeft()
	})
}

// A slowPool is a node that answers ten thousand requests per second. It refuses requests while it owes 1100 replies,
// as a pool does at 32,768.
type slowPool struct {
	scripted.Node
	sync.Mutex
	owed             []wire.Request
	frozen, running  bool
	refused, deleted int
}

func (p *slowPool) Send(req wire.Request) error {
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
		reply := wire.Reply{Value: "OK", Fate: wire.Answered, Conn: 1}
		if req.Args[0] != "set" {
			reply.Value = script.Mine
		}
		req.To.Receive(req.Tag, reply)
	}
}

func (p *slowPool) next() (req wire.Request, ok bool) {
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
		sleep(100 * time.Microsecond)
		p.Lock()
	}
	return req, true
}

// locksMany locks 2000 names.
func locksMany(t *testing.T, rs *redsync.Redsync) {
	for i := range 2000 {
		locked(t, rs.NewMutex(fmt.Sprint("lock", i)))
		if i%500 == 0 {
			synctest.Wait() // for the slowest node
		}
	}
	synctest.Wait()
}

func TestCloseReleasesHoweverManyLocksAreHeld(t *testing.T) {
	parallelComputing(t)
	for frozen, want := range map[bool]time.Duration{ // of the third node
		false: 200 * ms, // four node deadlines
		true:  250 * ms, // Close returns one node deadline after it has sent the last release
	} {
		synctest.Test(t, func(t *testing.T) {
			nodes := [3]*slowPool{{}, {}, {}}
			rs := redsync.New(nodes[0], nodes[1], nodes[2]).With(withExpiry(hour), withNodeTimeout(50*ms))
			locksMany(t, rs)
			nodes[2].frozen = frozen
			start := time.Now()
			shut(t, rs)
			took(t, start, want)
			synctest.Wait() // Close does not wait for the goroutines of the nodes
			for i, n := range nodes {
				assert.Zero(t, n.refused)
				if !frozen || i < 2 {
					assert.Equal(t, 2000, n.deleted)
				}
			}
		})
	}
	// More releases are refused than Close lets a node owe. None of them makes the others wait.
	synctest.Test(t, func(t *testing.T) {
		p, on := &slowPool{}, new(atomic.Bool)
		rs := redsync.New(refusing{p, on}).With(withExpiry(hour))
		locksMany(t, rs)
		on.Store(true)
		require.ErrorContains(t, rs.Close(limited(t, sec)), "no quorum has confirmed the release of 2000 locks")
		assert.Zero(t, p.deleted)
	})
}

// The end of its context ends Close, but not within a node deadline, and not within 500 ms. A second Close returns the
// same.
func TestCloseWaitsNoLongerThanItsContext(t *testing.T) {
	for _, c := range []struct{ deadline, limit, want time.Duration }{
		{0, -1, 400 * ms}, // over before Close
		{0, 30 * ms, 400 * ms},
		{0, 700 * ms, 700 * ms},
		{ms, 30 * ms, 50 * ms},
		{minute, 30 * ms, 500 * ms},
	} {
		onKit(t, func(k kit) {
			rs := k.Redsync
			if c.deadline > 0 {
				rs = k.With(withNodeTimeout(c.deadline), withExpiry(hour))
			}
			locked(k, rs.NewMutex("lock"))
			k.freeze(2, 3, 4)
			ctx, cancel := context.WithTimeoutCause(k.Context(), c.limit, errWork)
			defer cancel()
			start := time.Now()
			var wg sync.WaitGroup
			wg.Go(func() {
				sleep(ms)
				assert.ErrorIs(k, rs.Close(ctx), errWork, "the program may end after either Close")
				assert.Equal(k, c.want, time.Since(start).Truncate(5*ms))
			})
			errorIs(k, rs.Close(ctx), errWork)
			took(k, start, c.want, "%+v", c)
			wg.Wait()
			errorIs(k, k.Close(k.Context()), errWork)
		})
	}
}

// A pool has refused a release. Close sends it once more, like any pending release. If the pool refuses because the
// node owes too many replies, Close waits for a reply and tries again.
func TestCloseKeepsARefusedReleaseForLaterOnlyIfTheNodeOwesTooMuch(t *testing.T) {
	for refusal, want := range map[error][]time.Duration{
		&pool.OutstandingError{Limit: 3}: {0, 100 * ms, 200 * ms},
		errBroken:                        {0, 0, 100 * ms},
	} {
		synctest.Test(t, func(t *testing.T) {
			var start time.Time
			var times []time.Duration
			answers := 0
			rs := redsync.New(&scripted.Node{Answer: func(req wire.Request) (*wire.Reply, error) {
				reply, _ := scripted.Yes(req)
				switch {
				case req.Args[0] == "set":
					return reply, nil
				case req.Args[3] == "refused":
					times = append(times, time.Since(start))
					return nil, refusal
				}
				answers++
				time.AfterFunc(time.Duration(answers)*100*ms, func() { req.To.Receive(req.Tag, *reply) })
				return nil, nil
			}})
			for _, name := range []string{"first", "second", "refused"} {
				locked(t, rs.NewMutex(name, withExpiry(minute)))
				sleep(ms) // they are released in this order
			}
			start = time.Now()
			err := rs.With(withNodeTimeout(ms)).Close(limited(t, 210*ms))
			require.ErrorContains(t, err, `the release of 1 lock ("refused")`)
			assert.Equal(t, want, times)
		})
	}
}

// Close does not release a hold whose time is over, even if a clock was set forward and no timer has noticed that yet.
// Another process may have taken over the value, and with a lock delay the keys are meant to stay.
func TestCloseLeavesWhatIsOverAlone(t *testing.T) {
	alone(t)
	for _, option := range []redsync.Option{forever, withShared} {
		play(t, func(f field) {
			wall := clocktest.StepWall(f.T)
			other := f.another(withLockDelay(hour))
			all := []*redsync.Mutex{locked(f, other.NewMutex("lock", option)), locked(f, other.NewMultiMutex(both))}
			synctest.Wait()
			wall.Step(minute)
			shut(f, other)
			for _, m := range all {
				isOver(f, m, redsync.ErrLockAlreadyExpired)
				require.NotErrorIs(f, m.Err(), redsync.ErrClosed)
			}
			f.have(5, append(both, "lock")...)
		})
	}
}

// Close says whether the keys of its releases can be left, and of which releases nobody has held the lock.
func TestCloseWithoutAQuorumTellsAttemptsFromLocks(t *testing.T) {
	for text, c := range map[string]struct {
		held, tried, adopted string // a letter for each lock
		end                  string
		limit                time.Duration // of Close
	}{
		`2 locks ("a", "b"): context deadline exceeded: node #2`:                        {held: "ab"},
		`2 locks ("a", "b") after failed attempts: context deadline exceeded: node #2`:  {tried: "ab"},
		`12 locks ("a", "b", "c", "d", "e", "f", "g", "h", "i", "j", and 2 more): cont`: {held: "abcdefghijkl"},
		`3 locks ("a", "b", "c"), 1 of them after failed attempts: context deadline ex`: {held: "ab", tried: "c"},
		`1 lock ("a"): context deadline exceeded: node #2`: {
			adopted: "a", end: "; keys that are left go in 6.7s at the latest", // the value of another process
		},
		`1 lock ("a") after failed attempts: node #2`: {
			tried: "a", end: "; keys that were left have expired", limit: hour,
		},
	} {
		kitMetAs(t, text, func(k kit) {
			for _, name := range c.held {
				locked(k, k.NewMutex(string(name)))
			}
			synctest.Wait()
			k.freeze(2, 3, 4)
			for _, name := range c.tried {
				errorIs(k, k.NewMutex(string(name)).TryLock(), redsync.ErrNoQuorum)
			}
			for _, name := range c.adopted {
				failsWith(k, k.NewMutex(string(name), withValue("value")).Unlock, redsync.ErrNoQuorum)
			}
			err := k.Close(limited(k, cmp.Or(c.limit, sec)))
			errorIs(k, err, redsync.ErrNoQuorum)
			require.ErrorContains(k, err, "the release of "+text)
			assert.Len(k, joinedNodes(err), 3)
			end := cmp.Or(c.end, "; keys that are left go in 7.1s at the latest")
			assert.True(k, strings.HasSuffix(err.Error(), end), "%v", err)
		})
	}
}

// The program closes its go-redis clients, and perhaps does not know of Close.

// closedWithin is how soon after that everything on the clients has ended.
const closedWithin = 2 * sec

const clientClosed = "the client was closed"

// The program closes 60 clients while everything that lasts is under way: locks are held, and others wait for them.
func TestClosedClientsLeaveNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := embedded.Start(5)
		defer nodes.Close()
		before := goleak.IgnoreCurrent()
		for range testlength.InGate(1, 2, 5, 12) {
			clients, endless := clientsOf(nodes), context.Background()
			rs := on(clients)
			var held []*redsync.Mutex
			for i, options := range []opts{
				nil,
				{withWatchdog},
				{withFencing},
				{withExpiry(hour)},
				{withPermits(2)},
				{withShared, withWatchdog},
				{withSetNXOnExtend, withWatchdog},
				{withLockDelay(minute)},
				{withMinHold(minute)},
				{withExpiry(50 * ms), withWatchdog},
			} {
				held = append(held, locked(t, rs.NewMutex(string(rune('a'+i)), options...)))
			}
			var wg sync.WaitGroup
			errs := make(chan error, 20)
			call := func(f func() error) { wg.Go(func() { errs <- f() }) }
			work := func(ctx context.Context) error {
				<-ctx.Done()
				return context.Cause(ctx)
			}
			for _, options := range []opts{nil, {withFair}, {withRetryDelay(hour)}} {
				for range 3 {
					call(rs.NewMutex("d", append(options, forever)...).Lock)
				}
			}
			call(rs.NewMultiMutex([]string{"a", "d"}, forever).Lock)
			call(func() error { return rs.Do(endless, "do", work) })
			call(func() error { return rs.Lead(endless, "lead", work) })
			call(func() error { return rs.Lead(endless, "d", work) })
			sleep(sec)
			start := time.Now()
			closeClients(t, clients...)
			for i, m := range held {
				<-m.Lost()
				err := m.Err()
				errorIs(t, err, redsync.ErrLockLost)
				if i < 9 { // the last one may have expired before
					require.ErrorIs(t, err, redis.ErrClosed, "%d: %v", i, err)
					for node := range 5 {
						require.ErrorContains(t, err, named(node)+clientClosed)
					}
				}
			}
			wg.Wait()
			close(errs)
			for err := range errs {
				errorIs(t, err, redis.ErrClosed)
				require.ErrorContains(t, err, clientClosed)
				require.NotErrorIs(t, err, redsync.ErrFailed)
				require.Equal(t, errors.Is(err, redsync.ErrNoQuorum), !errors.Is(err, redsync.ErrLockLost), "%v", err)
			}
			require.LessOrEqual(t, time.Since(start), closedWithin)
			sleep(time.Until(start.Add(closedWithin)))
			synctest.Wait()
			for i, n := range nodes {
				require.Zero(t, n.CurrentConnectionCount(), "node %d", i)
				n.FlushAll() // for the next process
			}
			require.NoError(t, goleak.Find(before))
		}
	})
}

// While a quorum of the clients is open, nothing is lost. A lock that is lost with its clients is not released: its work may
// still run. It expires.
func TestClosedMinorityOfClientsLosesNothing(t *testing.T) {
	play(t, func(f field) {
		clients := clientsOf(f.nodes)
		m := locked(f, on(clients).NewMutex("lock", withWatchdog))
		closeClients(f.T, clients[:2]...)
		sleep(minute)
		alive(f, m)
		f.confirms(m.Extend())
		closeClients(f.T, clients[2])
		sleep(closedWithin)
		isOver(f, m, redsync.ErrLockLost)
		require.ErrorContains(f, m.Err(), named(2)+clientClosed)
		assert.NotContains(f, m.Err().Error(), named(3))
		other := f.process().NewMutex("lock")
		isTaken(f, other.TryLock())
		failsWith(f, m.Unlock, redsync.ErrLockLost)
		sleep(guard)
		obtained(f, other)
	})
}

// A custom Pool may show that its client is closed, too.
func TestClosedClientsOfOtherPools(t *testing.T) {
	play(t, func(f field) {
		client := f.nodes[0].Client()
		rs := redsync.New(pool.New(struct{ redis.UniversalClient }{client}))
		m := locked(f, rs.NewMutex("lock", withWatchdog, withExpiry(3*sec)))
		closeClients(f.T, client)
		<-m.Lost()
		require.ErrorContains(f, m.Err(), clientClosed)
		r := &redsynctest.Recorder{}
		require.ErrorContains(f, rs.NewMutex("other", forever, recordsTo(r)).Lock(), clientClosed)
		assert.Empty(f, redsynctest.Events[observe.Waiting](r))
		shut(f, rs)
	})
}

// Nodes accept connections and say nothing. Close does not wait for what waits for a connection, and nothing of that is
// sent later.
func TestCloseDoesNotWaitForAttemptsOfWhichNothingWasSent(t *testing.T) {
	inEachMode(t, onKit, func(k kit, mode opts) {
		for _, after := range []time.Duration{ms, 1050 * ms} {
			for _, silent := range [][]int{allNodes, {3, 4}} { // with two the locks are held
				r := &redsynctest.Recorder{}
				rs := k.nodes.Process().With(append(mode, forever, recordsTo(r))...)
				k.freeze(silent...)
				var wg sync.WaitGroup
				wg.Go(func() { _ = rs.NewMutex("a").TryLock() })
				wg.Go(func() { _ = rs.NewMutex("b").Lock() })
				wg.Go(func() { _ = rs.Do(k.Context(), "c", func(ctx context.Context) error { <-ctx.Done(); return nil }) })
				sleep(after)
				start := time.Now()
				shut(k, rs)
				wg.Wait()
				took(k, start, 0, "after %v", after)
				if after < 400*ms {
					assert.Empty(k, redsynctest.Events[observe.NodeDown](r), "nobody knows yet")
				}
				k.thaw(silent...)
				sleep(10 * sec)
				k.nothingLeft()
			}
		}
	})
}

func TestUnlockRightAfterItsClientsAreClosed(t *testing.T) {
	play(t, func(f field) {
		clients := clientsOf(f.nodes)
		rs := on(clients)
		unlocked := locked(f, rs.NewMutex("lock"))
		locked(f, rs.NewMutex("left"))
		closeClients(f.T, clients...)
		f.unlock(unlocked)
		shut(f, rs) // unlocks what is left
		f.have(0, "lock", "left")
	})
}

func closeClients(t *testing.T, clients ...*redis.Client) {
	for _, c := range clients {
		require.NoError(t, c.Close())
	}
}
