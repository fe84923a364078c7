package redsync_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-multierror"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/clock/clocktest"
	"github.com/seed14bd9ef4/redsync/internal/embedded"
	"github.com/seed14bd9ef4/redsync/internal/puppet"
	"github.com/seed14bd9ef4/redsync/internal/script"
	"github.com/seed14bd9ef4/redsync/internal/testlength"
	"github.com/seed14bd9ef4/redsync/observe"
	"github.com/seed14bd9ef4/redsync/pool"
	"github.com/seed14bd9ef4/redsync/redsynctest"
)

// This file tests what Close unlocks, ends and waits for, and what happens when the program closes its clients.

func TestCloseUnlocksWhatIsHeld(t *testing.T) {
	onKit(t, func(k kit) {
		copied := k.With(redsync.WithExpiry(time.Hour))
		held := copied.NewMutex("lock")
		require.NoError(t, held.Lock())
		over := k.NewMutex("over", redsync.WithExpiry(10*time.Millisecond))
		require.NoError(t, over.Lock())
		time.Sleep(time.Second)
		require.NoError(t, k.Close(k.Context()))
		k.nothingLeft()
		_, err := over.Unlock()
		require.ErrorIs(t, err, redsync.ErrClosed)
		for _, m := range []*redsync.Mutex{held, k.NewMutex("new"), copied.NewMutex("new")} {
			refuses(t, m, "closed")
			require.ErrorIs(t, m.Lock(), redsync.ErrClosed)
			require.NotErrorIs(t, m.Lock(), redsync.ErrFailed)
		}
		require.NoError(t, copied.Close(k.Context()), "a second Close does nothing")
	})
}

func TestCloseEndsOperationsUnderWay(t *testing.T) {
	onKit(t, func(k kit) {
		m := k.held()
		waiting := k.nodes.Process()
		k.freeze(0, 1, 2)
		var wg sync.WaitGroup
		wg.Go(func() { assert.ErrorIs(t, k.NewMutex("other").Lock(), redsync.ErrClosed) })
		wg.Go(func() {
			_, err := m.Extend()
			assert.ErrorIs(t, err, redsync.ErrClosed)
		})
		wg.Go(func() { assert.ErrorIs(t, waiting.NewMutex("lock").Lock(), redsync.ErrClosed) })
		time.Sleep(10 * time.Millisecond)
		start := time.Now()
		ctx, cancel := context.WithTimeout(k.Context(), 2*time.Second)
		defer cancel()
		wg.Go(func() { assert.NoError(t, waiting.Close(ctx), "nothing was sent to the frozen nodes") })
		require.Error(t, k.Close(ctx), "three nodes keep their keys")
		wg.Wait()
		assert.Equal(t, 2*time.Second, time.Since(start))
		k.thaw(0, 1, 2, 3, 4)
		time.Sleep(time.Second)
		k.nothingLeft()
	})
}

// A slowPool is a node that answers ten thousand requests per second. It refuses requests while it owes 1100 replies,
// as a pool does at 32,768.
type slowPool struct {
	sync.Mutex
	owed    []pool.Request
	frozen  bool
	down    bool // it can be sent nothing
	running bool
	refused int
	failed  int // while it was down
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
	for req, down, ok := p.next(); ok; req, down, ok = p.next() {
		reply := pool.Reply{Value: "OK", Fate: pool.Answered, Conn: 1}
		switch {
		case down:
			reply = pool.Reply{Err: errPuppet, Fate: pool.NotSent, Conn: 1}
		case req.Args[0] != "set":
			reply.Value = script.Mine
		}
		req.To.Receive(req.Tag, reply)
	}
}

func (p *slowPool) setDown(down bool) {
	p.Lock()
	defer p.Unlock()
	p.down = down
}

func (p *slowPool) next() (req pool.Request, down, ok bool) {
	p.Lock()
	defer p.Unlock()
	if len(p.owed) == 0 || p.frozen {
		p.running = false
		return req, false, false
	}
	req, p.owed = p.owed[0], p.owed[1:]
	switch {
	case p.down:
		p.failed++
		return req, true, true
	case req.Args[0] != "set":
		p.deleted++
		p.Unlock()
		time.Sleep(100 * time.Microsecond)
		p.Lock()
	}
	return req, false, true
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
				require.NoError(t, rs.Close(t.Context()))
				if frozen {
					assert.Equal(t, 550*time.Millisecond, time.Since(start), "Close returns one node deadline after it has sent the last release")
				} else {
					assert.Equal(t, 500*time.Millisecond, time.Since(start), "Close takes ten node deadlines")
				}
				synctest.Wait() // Close does not wait for the goroutines of the nodes
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

// While no node can be reached, more releases wait to be sent again than may wait without Close. Close gives up none,
// and limits how often they are sent.
func TestCloseReleasesHoweverManyLocksAreHeldWhenTheNodesAreBack(t *testing.T) {
	testlength.NotShort(t)
	parallelComputing(t)
	const count, outage = 23_000, 3 * time.Second
	synctest.Test(t, func(t *testing.T) {
		nodes := [3]*slowPool{{}, {}, {}}
		rs := redsync.New(nodes[0], nodes[1], nodes[2]).With(redsync.WithExpiry(time.Hour))
		for i := range count {
			require.NoError(t, rs.NewMutex(fmt.Sprint("lock", i)).Lock())
			if i%500 == 0 {
				synctest.Wait() // for the slowest node
			}
		}
		synctest.Wait()
		for _, n := range nodes {
			n.setDown(true)
			time.AfterFunc(outage, func() { n.setDown(false) })
		}
		start := time.Now()
		require.NoError(t, rs.Close(t.Context()))
		assert.Less(t, time.Since(start), outage+5*time.Second, "a node that is back takes 2.3 s")
		synctest.Wait()
		failed := 0
		for i, n := range nodes {
			assert.Equal(t, count, n.deleted, "node %d", i)
			assert.Zero(t, n.refused, "node %d", i)
			failed += n.failed
		}
		assert.Greater(t, failed, len(nodes)*count, "each is sent at once, and again")
		most := len(nodes)*count + int(outage/time.Millisecond+1)*64
		assert.LessOrEqual(t, failed, most, "at most 64 are sent again in a millisecond")
	})
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
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorContains(t, rs.Close(ctx), "no quorum has confirmed the release of 2000 locks")
		assert.Zero(t, p.deleted)
	})
}

// The end of its context ends Close, but not within a node deadline, and not within 500 ms.
func TestCloseWaitsNoLongerThanItsContext(t *testing.T) {
	for _, c := range []struct{ deadline, limit, want time.Duration }{
		{0, -1, 400 * time.Millisecond}, // over before Close
		{0, 30 * time.Millisecond, 400 * time.Millisecond},
		{0, 700 * time.Millisecond, 700 * time.Millisecond},
		{time.Millisecond, 30 * time.Millisecond, 50 * time.Millisecond},
		{time.Minute, 30 * time.Millisecond, 500 * time.Millisecond},
	} {
		onKit(t, func(k kit) {
			rs := k.Redsync
			if c.deadline > 0 {
				rs = k.With(redsync.WithNodeTimeout(c.deadline), redsync.WithExpiry(time.Hour))
			}
			require.NoError(k, rs.NewMutex("lock").Lock())
			k.freeze(2, 3, 4)
			reason := errors.New("in a hurry")
			ctx, cancel := context.WithTimeoutCause(k.Context(), c.limit, reason)
			defer cancel()
			start := time.Now()
			var wg sync.WaitGroup
			wg.Go(func() {
				time.Sleep(time.Millisecond)
				assert.Error(k, rs.Close(ctx), "the program may end after either Close")
				assert.Equal(k, c.want, time.Since(start).Truncate(5*time.Millisecond))
			})
			err := rs.Close(ctx)
			assert.Equal(k, c.want, time.Since(start), "%+v", c)
			require.ErrorIs(k, err, reason)
			wg.Wait()
			require.ErrorIs(k, k.Close(k.Context()), reason, "a second Close returns what the first returned")
		})
	}
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

// A pool has refused a release. Close sends it once more, like any pending release. If the pool refuses because the
// node owes too many replies, Close waits for a reply and tries again.
func TestCloseKeepsARefusedReleaseForLaterOnlyIfTheNodeOwesTooMuch(t *testing.T) {
	for name, c := range map[string]struct {
		refusal error
		times   []time.Duration
	}{
		"it owes too much": {&pool.OutstandingError{Limit: 3}, []time.Duration{0, 100 * time.Millisecond, 200 * time.Millisecond}},
		"it cannot be":     {errPuppet, []time.Duration{0, 0, 100 * time.Millisecond}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var start time.Time
				var times []time.Duration
				answered := make(chan func(), 2)
				rs := redsync.New(&puppet.Puppet{Answer: func(req pool.Request) (*pool.Reply, error) {
					reply, _ := puppet.Yes(req)
					switch {
					case req.Args[0] == "set":
						return reply, nil
					case req.Args[3] == "refused":
						times = append(times, time.Since(start))
						return nil, c.refusal
					}
					answered <- func() { req.To.Receive(req.Tag, *reply) }
					return nil, nil
				}})
				for _, name := range []string{"first", "second", "refused"} {
					require.NoError(t, rs.NewMutex(name, redsync.WithExpiry(time.Minute)).Lock())
					time.Sleep(time.Millisecond) // they are released in this order
				}
				start = time.Now()
				go func() {
					for range 2 {
						time.Sleep(100 * time.Millisecond)
						(<-answered)()
					}
				}()
				ctx, cancel := context.WithTimeout(t.Context(), 210*time.Millisecond)
				defer cancel()
				require.ErrorContains(t, rs.With(redsync.WithNodeTimeout(time.Millisecond)).Close(ctx), `the release of 1 lock ("refused")`)
				assert.Equal(t, c.times, times)
			})
		})
	}
}

// Close does not release a hold whose time is over, even if a clock was set forward and no timer has noticed that yet.
// Another process may have taken over the value, and with a lock delay the keys are meant to stay.
func TestCloseLeavesWhatIsOverAlone(t *testing.T) {
	for name, options := range map[string][]redsync.Option{
		"plain":  {redsync.WithLockDelay(time.Hour)},
		"shared": {redsync.WithLockDelay(time.Hour), redsync.WithShared()},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(f field) {
				wall := clocktest.StepWall(f.T)
				other := f.another()
				m := other.NewMutex("lock", options...)
				require.NoError(f, m.Lock())
				several := other.NewMultiMutex(both, redsync.WithLockDelay(time.Hour))
				require.NoError(f, several.Lock())
				synctest.Wait()
				wall.Step(time.Minute)
				require.NoError(f, other.Close(f.Context()))
				for _, m := range []*redsync.Mutex{m, several} {
					require.ErrorIs(f, m.Err(), redsync.ErrLockAlreadyExpired)
					require.NotErrorIs(f, m.Err(), redsync.ErrClosed)
				}
				f.have(5, append(both, "lock")...)
			})
		})
	}
}

// A closing is what Close has returned, and what the log says.
type closing struct {
	err   error
	took  time.Duration
	lines []string // of level Warn and above
}

// closesWith calls Close while some locks are held, and checks that the log gets no line later.
func (k kit) closesWith(locks int, expiry, limit time.Duration, fault func()) (c closing) {
	k.Helper()
	var text strings.Builder
	logger := slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelWarn}))
	rs := k.With(redsync.WithLogger(logger), redsync.WithExpiry(expiry))
	for i := range locks {
		require.NoError(k, rs.NewMutex(fmt.Sprintf("lock%02d", i)).Lock())
	}
	synctest.Wait()
	fault()
	ctx, cancel := context.WithTimeout(k.Context(), limit)
	defer cancel()
	start := time.Now()
	c.err, c.took = rs.Close(ctx), time.Since(start)
	said := text.String()
	for line := range strings.Lines(said) {
		if !strings.Contains(line, "node is down") {
			c.lines = append(c.lines, line)
		}
	}
	time.Sleep(time.Minute)
	synctest.Wait()
	assert.Equal(k, said, text.String(), "no line is logged after Close has returned")
	return c
}

func TestCloseReleasesOnNodesThatComeBack(t *testing.T) {
	onKit(t, func(k kit) {
		c := k.closesWith(50, time.Hour, 10*time.Second, func() {
			k.down(0, 1, 2)
			time.AfterFunc(300*time.Millisecond, func() { k.up(0, 1, 2) })
		})
		require.NoError(k, c.err)
		assert.GreaterOrEqual(k, c.took, 300*time.Millisecond)
		assert.Less(k, c.took, 3*time.Second)
		assert.Empty(k, c.lines)
		k.nothingLeft()
	})
}

func TestCloseTellsOfEachNodeBeyondTheQuorumOnce(t *testing.T) {
	for name, fault := range map[string]func(k kit){
		"down":   func(k kit) { k.down(3, 4) },
		"frozen": func(k kit) { k.freeze(3, 4) },
	} {
		t.Run(name, func(t *testing.T) {
			onKit(t, func(k kit) {
				c := k.closesWith(50, 8*time.Second, time.Minute, func() { fault(k) })
				require.NoError(k, c.err)
				assert.Equal(k, 400*time.Millisecond, c.took, "one node deadline")
				require.Len(k, c.lines, 2)
				for i, line := range c.lines {
					assert.Contains(k, line, fmt.Sprintf(
						`level=WARN msg="redsync: releases unconfirmed" node=%d address=127.0.0.1:%d releases=50 keys_expire_within=7.7s error=`,
						3+i, 7004+i))
				}
			})
		})
	}
}

func TestCloseWithoutAQuorumNamesLocksAndNodes(t *testing.T) {
	onKit(t, func(k kit) {
		c := k.closesWith(12, time.Hour, 5*time.Second, func() { k.down(1, 2, 4) })
		assert.Equal(k, 5*time.Second, c.took)
		require.ErrorIs(k, c.err, context.DeadlineExceeded)
		require.ErrorContains(k, c.err, `no quorum has confirmed the release of 12 locks ("lock00", "lock01", "lock02", "lock03", `+
			`"lock04", "lock05", "lock06", "lock07", "lock08", "lock09", and 2 more): context deadline exceeded: node #1 (127.0.0.1:7002): `)
		var nodes []int
		var all *multierror.Error
		require.ErrorAs(k, c.err, &all)
		for _, err := range all.Errors {
			var node *redsync.RedisError
			require.ErrorAs(k, err, &node)
			nodes = append(nodes, node.Node)
		}
		assert.Equal(k, []int{1, 2, 4}, nodes)
		assert.Len(k, c.lines, 3)
	})
}

// Close ends when the keys have run out, and says that nobody has confirmed. Of frozen nodes no reply tells it.
func TestCloseEndsWhenTheKeysHaveRunOut(t *testing.T) {
	for name, fault := range map[string]func(k kit){
		"down":   func(k kit) { k.down(2, 3, 4) },
		"frozen": func(k kit) { k.freeze(2, 3, 4) },
	} {
		t.Run(name, func(t *testing.T) {
			onKit(t, func(k kit) {
				c := k.closesWith(1, 4*time.Second, time.Hour, func() { fault(k) })
				require.ErrorContains(k, c.err, `the release of 1 lock ("lock00"): node #2 (127.0.0.1:7003): `)
				assert.True(k, strings.HasSuffix(c.err.Error(), "; keys that were left have expired"), "%v", c.err)
				assert.GreaterOrEqual(k, c.took, 4*time.Second)
				assert.LessOrEqual(k, c.took, 6*time.Second)
			})
		})
	}
}

// Close says whether the keys of its releases can be left, and of which releases nobody has held the lock.
func TestCloseWithoutAQuorumTellsAttemptsFromLocks(t *testing.T) {
	for name, c := range map[string]struct {
		held, tried, adopted []string
		limit                time.Duration // of Close
		text, end            string
	}{
		"locks": {
			held: []string{"a", "b"}, limit: time.Second,
			text: `the release of 2 locks ("a", "b"): context deadline exceeded: node #2`, end: "; keys that are left go in 7.1s at the latest",
		},
		"attempts": {
			tried: []string{"a", "b"}, limit: time.Second,
			text: `the release of 2 locks ("a", "b") after failed attempts: context deadline exceeded: node #2`,
			end:  "; keys that are left go in 7.1s at the latest",
		},
		"both": {
			held: []string{"a", "b"}, tried: []string{"c"}, limit: time.Second,
			text: `the release of 3 locks ("a", "b", "c"), 1 of them after failed attempts: context deadline exceeded: node #2`,
			end:  "; keys that are left go in 7.1s at the latest",
		},
		"of another process": {
			adopted: []string{"a"}, limit: time.Second,
			text: `the release of 1 lock ("a"): context deadline exceeded: node #2`, end: "; keys that are left go in 6.7s at the latest",
		},
		"an attempt, and Close waits": {
			tried: []string{"a"}, limit: time.Hour,
			text: `the release of 1 lock ("a") after failed attempts: node #2`, end: "; keys that were left have expired",
		},
	} {
		t.Run(name, func(t *testing.T) {
			onKit(t, func(k kit) {
				k.meet()
				for _, name := range c.held {
					require.NoError(k, k.NewMutex(name).Lock())
				}
				synctest.Wait()
				k.freeze(2, 3, 4)
				for _, name := range c.tried {
					require.ErrorIs(k, k.NewMutex(name).TryLock(), redsync.ErrNoQuorum)
				}
				for _, name := range c.adopted {
					_, err := k.NewMutex(name, redsync.WithValue("value")).Unlock()
					require.ErrorIs(k, err, redsync.ErrNoQuorum)
				}
				ctx, cancel := context.WithTimeout(k.Context(), c.limit)
				defer cancel()
				err := k.Close(ctx)
				require.ErrorIs(k, err, redsync.ErrNoQuorum)
				require.ErrorContains(k, err, c.text)
				assert.True(k, strings.HasSuffix(err.Error(), c.end), "%v", err)
			})
		})
	}
}

// A Close that does not wait, because the keys have run out or its context is over, blames no node for its silence.
func TestCloseThatDoesNotWaitSpeaksOfNoTimeout(t *testing.T) {
	unheard := 0
	for after := time.Duration(0); after < 2*time.Second; after += 100 * time.Millisecond {
		for _, waits := range []bool{true, false} {
			play(t, func(f field) {
				for _, n := range f.nodes {
					n.On("evalsha", 1<<20, embedded.Fault{Err: "READONLY You can't write against a read only replica."})
				}
				_, err := f.held(redsync.WithExpiry(900 * time.Millisecond)).Unlock()
				require.Error(f, err)
				time.Sleep(after)
				ctx, cancel := context.WithCancel(f.Context())
				defer cancel()
				if !waits {
					cancel()
				}
				if err := f.Close(ctx); err != nil {
					require.NotContains(f, err.Error(), "no answer", "%v after the Unlock", after)
					unheard += strings.Count(err.Error(), "it has not confirmed the release")
				}
			})
		}
	}
	assert.Positive(t, unheard, "some Close had to say of a node that it has said nothing")
}

// The program closes its go-redis clients, and perhaps does not know of Close.

// closedWithin is how soon after that everything on the clients has ended.
const closedWithin = 2 * time.Second

const clientClosed = "the client was closed"

func closeClients(t *testing.T, clients ...*redis.Client) {
	t.Helper()
	for _, c := range clients {
		require.NoError(t, c.Close())
	}
}

// busy makes a Redsync on clients do everything that lasts: locks are held, and others wait for them. It returns a
// function that waits until all calls have returned, and returns their errors.
func busy(t *testing.T, clients []*redis.Client, name string) (held []*redsync.Mutex, calls func() []error) {
	t.Helper()
	rs := on(clients)
	for i, options := range [][]redsync.Option{
		nil,
		{redsync.WithWatchdog()},
		{redsync.WithFencing()},
		{redsync.WithExpiry(time.Hour)},
		{redsync.WithPermits(2)},
		{redsync.WithShared(), redsync.WithWatchdog()},
		{redsync.WithSetNXOnExtend(), redsync.WithWatchdog()},
		{redsync.WithLockDelay(time.Minute)},
		{redsync.WithMinHold(time.Minute)},
		{redsync.WithExpiry(50 * time.Millisecond), redsync.WithWatchdog()},
	} {
		m := rs.NewMutex(name+string(rune('a'+i)), options...)
		require.NoError(t, m.Lock())
		held = append(held, m)
	}
	released := rs.NewMutex(name + "released")
	require.NoError(t, released.Lock())
	_, err := released.Unlock()
	require.NoError(t, err)

	var wg sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	call := func(f func() error) {
		wg.Go(func() {
			err := f()
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
		})
	}
	endless := context.Background()
	work := func(ctx context.Context) error {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	for _, options := range [][]redsync.Option{
		nil, {redsync.WithFair()}, {redsync.WithRetryDelay(time.Hour)}, {redsync.WithPriority(1)},
	} {
		for range 3 {
			m := rs.NewMutex(name+"d", append(options, redsync.WithTries(0))...)
			call(func() error { return m.LockContext(endless) })
		}
	}
	call(func() error {
		return rs.NewMultiMutex([]string{name + "a", name + "d"}, redsync.WithTries(0)).LockContext(endless)
	})
	call(func() error { return rs.Do(endless, name+"do", work) })
	call(func() error { return rs.Lead(endless, name+"lead", work) })
	call(func() error { return rs.Lead(endless, name+"d", work) })
	time.Sleep(time.Second)
	return held, func() []error {
		wg.Wait()
		return errs
	}
}

// The program closes 60 clients and does nothing else.
func TestClosedClientsLeaveNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := embedded.Start(5)
		defer nodes.Close()
		before := goleak.IgnoreCurrent()
		for range 12 {
			clients := clientsOf(nodes)
			held, calls := busy(t, clients, t.Name())
			start := time.Now()
			closeClients(t, clients...)
			for i, m := range held {
				select {
				case <-m.Lost():
				case <-time.After(time.Minute): //nolint:forbidigo // a failing test only
					t.Fatalf("lock %d is not lost", i)
				}
				err := m.Err()
				require.ErrorIs(t, err, redsync.ErrLockLost)
				if i < 9 { // the last one may have expired before
					require.ErrorIs(t, err, redis.ErrClosed, "%d: %v", i, err)
					for node := range 5 {
						require.ErrorContains(t, err, named(node)+clientClosed)
					}
				}
			}
			for _, err := range calls() {
				require.ErrorIs(t, err, redis.ErrClosed)
				require.ErrorContains(t, err, clientClosed)
				require.NotErrorIs(t, err, redsync.ErrFailed)
				require.Equal(t, errors.Is(err, redsync.ErrNoQuorum), !errors.Is(err, redsync.ErrLockLost), "%v", err)
			}
			require.LessOrEqual(t, time.Since(start), closedWithin)
			time.Sleep(time.Until(start.Add(closedWithin)))
			synctest.Wait()
			for i, n := range nodes {
				require.Zero(t, n.CurrentConnectionCount(), "node %d", i)
			}
			require.NoError(t, goleak.Find(before))
			for _, n := range nodes { // for the next process
				n.FlushAll()
			}
		}
	})
}

// A call that waits learns from its subscriptions, too, that the clients are closed. No node has denied it a wake-up then.
func TestClosedClientsEndAWait(t *testing.T) {
	play(t, func(f field) {
		f.held(redsync.WithExpiry(time.Hour))
		clients, r := clientsOf(f.nodes), &redsynctest.Recorder{}
		w := f.calls(on(clients), patient(redsync.WithObserver(r))...)
		time.Sleep(10 * time.Second)
		closeClients(f.T, clients...)
		start := time.Now()
		<-w.done
		assert.LessOrEqual(f, time.Since(start), closedWithin)
		require.ErrorIs(f, w.err, redis.ErrClosed)
		require.ErrorContains(f, w.err, clientClosed)
		time.Sleep(closedWithin)
		assert.Empty(f, redsynctest.Events[observe.WakeUpDenied](r))
	})
}

// Every new operation on closed clients fails at once, and says why.
func TestClosedClientsServeNoNewCall(t *testing.T) {
	for _, after := range []time.Duration{0, closedWithin, time.Hour} {
		play(t, func(f field) {
			clients := clientsOf(f.nodes)
			rs := on(clients)
			if after == closedWithin {
				f.as(rs).meet() // there is a connection
			}
			closeClients(f.T, clients...)
			time.Sleep(after)
			start := time.Now()
			m := rs.NewMutex("lock", redsync.WithTries(0))
			adopted := func() *redsync.Mutex { return rs.NewMutex("lock", redsync.WithValue("v")) }
			for name, call := range map[string]func() error{
				"Lock":    m.Lock,
				"TryLock": m.TryLock,
				"Extend":  func() error { _, err := adopted().Extend(); return err },
				"Valid":   func() error { _, err := adopted().Valid(); return err },
				"Unlock":  func() error { _, err := adopted().Unlock(); return err },
				"Lead":    func() error { return rs.Lead(f.Context(), "lock", func(context.Context) error { return nil }) },
				"Do":      func() error { return rs.Do(f.Context(), "lock", func(context.Context) error { return nil }) },
			} {
				err := call()
				require.ErrorIs(f, err, redsync.ErrNoQuorum, name)
				require.ErrorIs(f, err, redis.ErrClosed, name)
				require.ErrorContains(f, err, named(0)+clientClosed, name)
			}
			require.ErrorContains(f, m.Lock(), "this will not pass by itself")
			assert.Zero(f, time.Since(start))
			require.NoError(f, rs.Close(f.Context()))
		})
	}
}

// While a quorum of the clients is open, nothing is lost.
func TestClosedMinorityOfClientsLosesNothing(t *testing.T) {
	play(t, func(f field) {
		clients, log := clientsOf(f.nodes), newLogbook()
		rs := on(clients).With(redsync.WithLogger(slog.New(log)), redsync.WithRetryDelay(100*time.Millisecond))
		kept, short := rs.NewMutex("lock", redsync.WithWatchdog()), rs.NewMutex("short", redsync.WithExpiry(4*time.Second))
		require.NoError(f, kept.Lock())
		require.NoError(f, short.Lock())
		var wg sync.WaitGroup
		wg.Go(func() {
			w := rs.NewMutex("lock", redsync.WithTries(0))
			assert.NoError(f, w.LockContext(f.Context()))
			_, err := w.Unlock()
			assert.NoError(f, err)
		})
		time.Sleep(time.Second)
		until := short.Until()
		closeClients(f.T, clients[:2]...)
		time.Sleep(closedWithin)
		require.NoError(f, short.Err())
		assert.Equal(f, until, short.Until())
		ok, err := short.Extend()
		require.True(f, ok, "%v", err)
		for _, n := range f.nodes[:2] {
			assert.Zero(f, n.CurrentConnectionCount())
		}
		time.Sleep(time.Minute)
		require.NoError(f, kept.Err())
		ok, err = kept.Unlock()
		require.True(f, ok, "%v", err)
		wg.Wait()
		other := rs.NewMutex("other", redsync.WithFencing())
		require.NoError(f, other.TryLock())
		_, err = other.Unlock()
		require.NoError(f, err)
		require.NoError(f, rs.Close(f.Context()))
		assert.Contains(f, log.text.String(), clientClosed)

		// The third client closes, and no quorum is left.
		last := on(clients).NewMutex("last")
		require.NoError(f, last.Lock())
		closeClients(f.T, clients[2])
		time.Sleep(closedWithin)
		require.ErrorIs(f, last.Err(), redsync.ErrLockLost)
		require.ErrorContains(f, last.Err(), named(2)+clientClosed)
		assert.NotContains(f, last.Err().Error(), named(3))
	})
}

// Until the library notices, its connections serve: a program that closes the clients first still unlocks.
func TestUnlockRightAfterItsClientsAreClosed(t *testing.T) {
	play(t, func(f field) {
		clients := clientsOf(f.nodes)
		rs := on(clients)
		unlocked, left := rs.NewMutex("lock"), rs.NewMutex("left")
		require.NoError(f, unlocked.Lock())
		require.NoError(f, left.Lock())
		closeClients(f.T, clients...)
		ok, err := unlocked.Unlock()
		require.NoError(f, err)
		assert.True(f, ok)
		require.NoError(f, rs.Close(f.Context()), "Close unlocks what is left")
		synctest.Wait()
		assert.Zero(f, f.nodes.Keys("lock")+f.nodes.Keys("left"))
	})
}

// A lock that is lost with its clients is not released: its work may still run. It expires.
func TestLockOfClosedClientsExpires(t *testing.T) {
	play(t, func(f field) {
		clients := clientsOf(f.nodes)
		m := on(clients).NewMutex("lock", redsync.WithWatchdog())
		require.NoError(f, m.Lock())
		closeClients(f.T, clients[:3]...)
		time.Sleep(closedWithin)
		require.ErrorIs(f, m.Err(), redsync.ErrLockLost)
		other := f.process().NewMutex("lock")
		require.Error(f, other.TryLock())
		ok, err := m.Unlock()
		assert.False(f, ok)
		require.ErrorIs(f, err, redsync.ErrLockLost)
		time.Sleep(guard)
		require.NoError(f, other.TryLock())
	})
}

// A custom Pool may show that its client is closed, too.
func TestClosedClientsOfOtherPools(t *testing.T) {
	play(t, func(f field) {
		clients := clientsOf(f.nodes)
		var pools []pool.Pool
		for _, c := range clients {
			pools = append(pools, pool.New(struct{ redis.UniversalClient }{c}))
		}
		rs := redsync.New(pools...)
		m := rs.NewMutex("lock", redsync.WithWatchdog(), redsync.WithExpiry(3*time.Second))
		require.NoError(f, m.Lock())
		closeClients(f.T, clients...)
		<-m.Lost()
		assert.True(f, strings.Contains(m.Err().Error(), clientClosed), "%v", m.Err())
		require.ErrorContains(f, rs.NewMutex("other", redsync.WithTries(0)).Lock(), clientClosed)
		require.NoError(f, rs.Close(f.Context()))
	})
}

// Close names the clients that were closed, and does not say that their nodes gave no answer.
func TestCloseNamesClosedClients(t *testing.T) {
	play(t, func(f field) {
		clients := clientsOf(f.nodes)
		rs := on(clients)
		require.NoError(f, rs.NewMutex("lock", redsync.WithExpiry(time.Minute)).Lock())
		for _, c := range clients[:3] {
			require.NoError(f, c.Close())
		}
		time.Sleep(600 * time.Millisecond) // the streams have noticed it, and the lock is not lost yet
		err := rs.Close(f.Context())
		require.ErrorIs(f, err, redsync.ErrNoQuorum)
		require.ErrorIs(f, err, pool.ErrClientClosed)
		assert.NotContains(f, err.Error(), "no answer")
	})
}

// Nodes accept connections and say nothing. Close does not wait for what waits for a connection, and nothing of that is
// sent later.
func TestCloseDoesNotWaitForAttemptsOfWhichNothingWasSent(t *testing.T) {
	inEachMode(t, onKit, func(k kit, mode []redsync.Option) {
		for _, after := range []time.Duration{time.Millisecond, 300 * time.Millisecond, time.Second} {
			for _, silent := range [][]int{{0, 1, 2, 3, 4}, {3, 4}} { // with two the locks are held
				rs, r := k.nodes.Process(), &redsynctest.Recorder{}
				k.freeze(silent...)
				m := func(name string) *redsync.Mutex {
					return rs.NewMutex(name, slices.Concat(mode, []redsync.Option{redsync.WithTries(0), redsync.WithObserver(r)})...)
				}
				var wg sync.WaitGroup
				wg.Go(func() { _ = m("a").TryLock() })
				wg.Go(func() { _ = m("b").Lock() })
				wg.Go(func() { _ = m("c").Do(k.Context(), func(ctx context.Context) error { <-ctx.Done(); return nil }) })
				time.Sleep(after)
				start := time.Now()
				require.NoError(k, rs.Close(k.Context()))
				wg.Wait()
				assert.Zero(k, time.Since(start), "after %v", after)
				if after < 400*time.Millisecond {
					assert.Empty(k, redsynctest.Events[observe.NodeDown](r), "nobody knows yet")
				}
				k.thaw(silent...)
				time.Sleep(10 * time.Second)
				k.nothingLeft()
			}
		}
	})
}

// After Detach nothing is released but the place in the queues. Close does not call that a lock.
func TestCloseAfterDetachOfALockThatHadWaited(t *testing.T) {
	onKit(t, func(k kit) {
		k.meet()
		other := k.another()
		o := other.NewMutex("lock")
		require.NoError(k, o.Lock())
		c := k.begins(k.NewMutex("lock", patient()...))
		time.Sleep(100 * time.Millisecond)
		ok, err := o.Unlock()
		require.NoError(k, err)
		require.True(k, ok)
		k.within(c, time.Second)
		time.Sleep(100 * time.Millisecond)
		k.freeze(0, 1, 2)
		_, err = c.Detach(k.Context())
		require.NoError(k, err)
		ctx, cancel := context.WithTimeout(k.Context(), time.Second)
		defer cancel()
		require.NoError(k, k.Close(ctx))
		k.thaw(0, 1, 2)
	})
}
