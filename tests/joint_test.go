package redsync_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/embedded"
	"github.com/seed14bd9ef4/redsync/internal/peek"
	"github.com/seed14bd9ef4/redsync/pool"
)

// This file tests locks on two joint sets of nodes, and shows what happens if nodes are replaced without joint sets.

// A change is a test in a bubble in which some nodes replace others. Each node has a first address (see at), and any number
// of other addresses (see elsewhere). Only the server's answers show that these addresses lead to the same node.
type change struct {
	*testing.T
	nodes   embedded.Nodes
	clients []*redis.Client
}

// changing runs f on n nodes. Afterwards no keys may be left except the registers of fencing tokens.
func changing(t *testing.T, n int, f func(c change)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		nodes := embedded.Start(n)
		f(change{t, nodes, clientsOf(nodes)})
		time.Sleep(20 * time.Second) // by now each key of a lock has been released or has expired
		for i, node := range nodes {
			for _, key := range node.Keys() {
				assert.Contains(t, key, ":fence", "node %d", i)
			}
		}
		nodes.Close()
		time.Sleep(time.Minute) // goroutines that end by themselves have ended
	})
}

// at returns a pool of each of these nodes, at its first address.
func (c change) at(nodes ...int) (pools []pool.Pool) {
	for _, i := range nodes {
		pools = append(pools, pool.New(c.clients[i]))
	}
	return pools
}

// elsewhere returns a pool of each of these nodes, at an address that no other pool has.
func (c change) elsewhere(nodes ...int) (pools []pool.Pool) {
	for _, i := range nodes {
		pools = append(pools, pool.New(c.nodes[i].Client()))
	}
	return pools
}

// as returns rs. The end of the test closes it.
func (c change) as(rs *redsync.Redsync) *redsync.Redsync {
	user{c.T, rs}.closes(rs)
	return rs
}

func (c change) alone(pools []pool.Pool) *redsync.Redsync { return c.as(redsync.New(pools...)) }

func (c change) joint(before, after []pool.Pool) *redsync.Redsync {
	return c.as(redsync.NewJoint(before, after))
}

func (c change) unlock(m *redsync.Mutex) {
	c.Helper()
	c.confirms(m.Unlock())
}

// taken checks that a process cannot have the lock because nodes refuse it.
func (c change) taken(rs *redsync.Redsync, name, who string) {
	c.Helper()
	isTaken(c, rs.NewMutex(name).TryLock())
	time.Sleep(time.Second) // the release of the failed attempt has arrived
}

func TestJointNeedsAQuorumOfEachSet(t *testing.T) {
	five, changed, three, others := []int{0, 1, 2, 3, 4}, []int{0, 1, 2, 3, 5}, []int{0, 1, 2}, []int{3, 4, 5}
	for name, c := range map[string]struct {
		before, after, frozen []int
		locks                 bool
	}{
		"a quorum of both":                            {five, changed, []int{0, 4, 5}, true},
		"no quorum of the nodes before":               {five, changed, []int{2, 3, 4}, false},
		"no quorum of the nodes after":                {five, changed, []int{2, 3, 5}, false},
		"three of six are up, but only two of before": {five, changed, []int{0, 1, 4}, false},
		"nothing shared":                              {three, others, []int{2, 3}, true},
		"nothing shared, all of one set":              {three, others, []int{4, 5}, false},
		"from one, which is down, to more":            {three[:1], three, []int{0}, false},
		"from three to five":                          {three, five, []int{1}, true},
		"from three to five, two down":                {three, five, []int{1, 2}, false},
		"the same set":                                {three, []int{2, 0, 1}, []int{1}, true},
	} {
		for kind, after := range addresses {
			t.Run(name+", "+kind, func(t *testing.T) {
				changing(t, 6, func(s change) {
					rs := s.joint(s.at(c.before...), after(s, c.after...))
					obtained(s, rs.NewMutex("meet"))
					for _, i := range c.frozen {
						s.nodes[i].Freeze()
					}
					m := rs.NewMutex("lock", withWatchdog, redsync.WithTries(1))
					if err := m.Lock(); c.locks {
						require.NoError(s, err)
						time.Sleep(20 * time.Second)
						require.NoError(s, m.Err(), "the watchdog extends")
						s.unlock(m)
					} else {
						require.ErrorIs(s, err, redsync.ErrNoQuorum)
					}
					for _, i := range c.frozen {
						s.nodes[i].Thaw()
					}
				})
			})
		}
	}
}

// addresses are how a server of both sets is in the set after.
var addresses = map[string]func(change, ...int) []pool.Pool{"one address": change.at, "two addresses": change.elsewhere}

// Joint processes and processes with one of the sets exclude each other.
func TestJointExcludesTheProcessesBeforeAndAfter(t *testing.T) {
	for name, after := range map[string][]int{
		"one node replaced": {0, 1, 2, 3, 5},
		"all replaced":      {5, 6, 7, 8, 9},
		"shrunk":            {1, 3, 4},
	} {
		t.Run(name, func(t *testing.T) {
			changing(t, 10, func(s change) {
				was := []int{0, 1, 2, 3, 4}
				former, joint, latter := s.alone(s.elsewhere(was...)), s.joint(s.at(was...), s.at(after...)), s.alone(s.elsewhere(after...))
				for _, holder := range []*redsync.Redsync{former, joint, latter} {
					m := locked(s, holder.NewMutex("lock"))
					for _, other := range []*redsync.Redsync{former, joint, latter} {
						if holder == joint || other == joint {
							s.taken(other, "lock", name)
						}
					}
					s.unlock(m)
				}
			})
		})
	}
}

// A server that is in both sets is asked once, even if it has a different address in each set.
func TestJointAsksASharedNodeOnce(t *testing.T) {
	for kind, after := range addresses {
		for _, options := range []opts{nil, {withFair}, {withFencing}} {
			t.Run(fmt.Sprint(kind, len(options)), func(t *testing.T) {
				changing(t, 6, func(s change) {
					rs := s.joint(s.at(allNodes...), after(s, 0, 1, 2, 3, 5)).With(options...)
					sent := func() (n [6]int) {
						for i, node := range s.nodes {
							n[i] = node.Commands("set") + node.Commands("evalsha") + node.Commands("eval") + node.Commands("get")
						}
						return n
					}
					for range 3 {
						before := sent()
						m := rs.NewMutex("lock")
						require.NoError(s, m.TryLock(), "also the first attempt of all")
						for _, operation := range []func() (bool, error){m.Extend, m.Valid, m.Extend, m.Valid, m.Unlock} {
							s.confirms(operation())
						}
						time.Sleep(time.Second)
						for i, n := range sent() {
							assert.Equal(s, 6, n-before[i], "node %d", i)
						}
					}
				})
			})
		}
	}
}

// Every address changes, but no server does. A joint process locks at the first attempt, even if many callers begin at
// once and each makes a Redsync of its own.
func TestJointOfTwoAddressesOfEachServer(t *testing.T) {
	changing(t, 5, func(s change) {
		before, after := clientsOf(s.nodes), clientsOf(s.nodes)
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				m := s.joint(poolsOf(before), poolsOf(after)).NewMutex(fmt.Sprint("lock", i))
				assert.NoError(s, m.TryLock())
				s.unlock(m)
			})
		}
		all.Wait()
		s.nodes[1].Freeze()
		s.nodes[3].Freeze()
		m := s.joint(poolsOf(before), poolsOf(after)).NewMutex("lock")
		require.NoError(s, m.TryLock(), "a minority is frozen")
		value := m.Value()
		other := s.joint(s.elsewhere(allNodes...), s.elsewhere(allNodes...))
		sent := s.nodes[0].Commands("evalsha")
		ok, err := other.NewMutex("lock", redsync.WithValue(value)).Unlock()
		require.True(s, ok, "a process that has just started releases it: %v", err)
		time.Sleep(time.Second)
		assert.Equal(s, 1, s.nodes[0].Commands("evalsha")-sent, "the server is asked once")
		obtained(s, other.NewMutex("lock"))
		s.nodes[1].Thaw()
		s.nodes[3].Thaw()
	})
}

// At first, an address in after leads to a server of before; later it leads to a new server. From then on,
// a vote of the old server must not count for the new one.
func TestJointNoticesWhichServersAreOne(t *testing.T) {
	changing(t, 4, func(s change) {
		var moving movable
		moving.to.Store(s.nodes[2])
		rs := s.joint(s.at(0, 1, 2), append(s.at(0, 1), pool.New(moving.client())))
		obtained(s, rs.NewMutex("meet"))
		moving.to.Store(s.nodes[3])
		s.nodes[2].Kill()
		s.nodes[2].Restart(false)
		for range 2 { // each finds the lost connection to one address
			locked(s, rs.NewMutex("meet too"))
			time.Sleep(10 * time.Second)
		}
		m := obtained(s, rs.NewMutex("lock"))
		time.Sleep(time.Second)
		assert.Equal(s, 4, s.nodes.Keys("lock"), "each server is a node of its own")
		s.unlock(m)
	})
}

// One server is a node of each set, with a database for each. It holds two keys, and counts once in each set.
func TestJointTwoDatabasesOfAServer(t *testing.T) {
	changing(t, 3, func(s change) {
		const other = 5
		var after []pool.Pool
		for _, n := range s.nodes {
			after = append(after, pool.New(n.Client(func(o *redis.Options) { o.DB = other })))
		}
		rs, latter := s.joint(s.at(0, 1, 2), after), s.alone(after)
		m := obtained(s, rs.NewMutex("lock"))
		time.Sleep(time.Second)
		for _, n := range s.nodes {
			assert.True(s, n.DB(0).Exists("lock"))
			assert.True(s, n.DB(other).Exists("lock"))
		}
		s.taken(latter, "lock", "a process of after")
		s.unlock(m)
		time.Sleep(time.Second)
		for _, n := range s.nodes {
			assert.False(s, n.DB(other).Exists("lock"))
		}
	})
}

// A release by a joint process wakes waiters of joint processes and of processes with one of the sets. A release by
// a process with one of the sets wakes waiters of joint processes.
func TestJointWaitersAreWoken(t *testing.T) {
	for _, pair := range [][2]int{{0, 1}, {1, 0}, {1, 2}, {1, 3}, {3, 1}} {
		for name, mode := range modes {
			t.Run(fmt.Sprint(pair, name), func(t *testing.T) {
				changing(t, 10, func(s change) {
					was, is := []int{0, 1, 2, 3, 4}, []int{3, 4, 5, 6, 7}
					all := []*redsync.Redsync{
						s.alone(s.elsewhere(was...)), s.joint(s.elsewhere(was...), s.elsewhere(is...)),
						s.joint(s.elsewhere(was...), s.elsewhere(is...)), s.alone(s.elsewhere(is...)),
					}
					for i, rs := range all {
						locked(s, rs.NewMutex(fmt.Sprint("meet", i)))
					}
					m := locked(s, all[pair[0]].NewMutex("lock", mode...))
					w := user{s.T, nil}.calls(all[pair[1]], patient(mode...)...)
					time.Sleep(3 * time.Second)
					start := time.Now()
					s.unlock(m)
					<-w.done
					require.NoError(s, w.err)
					assert.Less(s, time.Since(start), 10*ms, "the retry delay is an hour")
					s.unlock(w.Mutex)
				})
			})
		}
	}
}

// Redsyncs of one process on the same clients share what they know, and hand locks to each other, only if they decide
// by the same rule.
func TestJointSharesNothingWithAnotherRule(t *testing.T) {
	changing(t, 4, func(s change) {
		joint := s.joint(s.at(0), s.at(1, 2, 3))
		assert.True(s, peek.SameProcess(joint, s.joint(s.at(0), s.at(1, 2, 3))))
		for _, other := range []*redsync.Redsync{
			s.alone(s.at(0, 1, 2, 3)), s.joint(s.at(0, 1), s.at(2, 3)), s.joint(s.at(0), s.at(0, 1, 2, 3)), s.joint(s.at(1, 2, 3), s.at(0)),
		} {
			assert.False(s, peek.SameProcess(joint, other))
		}
	})
}

// With the restart guard, a joint process does not count a node that has restarted, no matter which of the node's two
// pools has the guard.
func TestJointRestartGuard(t *testing.T) {
	for name, guardOf := range map[string][2][]pool.Option{
		"both":   {guards[true], guards[true]},
		"before": {guards[true], nil},
		"after":  {nil, guards[true]},
	} {
		for _, twoAddresses := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, two addresses %v", name, twoAddresses), func(t *testing.T) {
				changing(t, 3, func(s change) {
					time.Sleep(time.Minute) // the nodes have run for a while
					var before, after []pool.Pool
					for i, c := range s.clients {
						other := c
						if twoAddresses {
							other = s.nodes[i].Client()
						}
						before, after = append(before, pool.New(c, guardOf[0]...)), append(after, pool.New(other, guardOf[1]...))
					}
					rs := s.joint(before, after)
					m := rs.NewMutex("lock")
					s.nodes[2].Freeze()
					locked(s, m)
					s.nodes[0].Kill()
					s.nodes[0].Restart(true)
					s.nodes[2].Thaw()
					s.nodes[2].Del("lock") // the key that it set late
					for range 3 {          // the process finds that its connections to node 0 are lost, and that the server has restarted
						require.Error(s, s.joint(before, after).NewMutex("lock").TryLock())
						time.Sleep(100 * ms)
					}
					require.ErrorContains(s, s.joint(before, after).NewMutex("lock", hearsAll).TryLock(), "its server started")
					require.ErrorContains(s, rs.NewMutex("lock", redsync.WithExpiry(time.Minute)).TryLock(), "which pool #")
				})
			})
		}
	}
}

func TestJointRefusesSetsThatCannotBeUsed(t *testing.T) {
	changing(t, 6, func(s change) {
		good := s.at(0, 1, 2)
		var many []pool.Pool
		for range 33 {
			many = append(many, pool.New(s.nodes[0].Client()))
		}
		more := many
		for range 32 {
			more = append(more[:len(more):len(more)], pool.New(s.nodes[0].Client()))
		}
		for want, sets := range map[string][2][]pool.Pool{
			"before: no pools":                      {nil, good},
			"after: no pools":                       {good, nil},
			"before: pool #1: it is nil":            {{good[0], nil}, good},
			"after: pool #0: ":                      {good, {pool.New(nil)}},
			"before: 65 pools are too many":         {more, good},
			"have 65 nodes together: at most 64":    {many, more[32:]},
			"before: nodes #0 and #2":               {s.at(0, 1, 0), good},
			"after: nodes #1 and #2 are one server": {good, s.at(3, 4, 4)},
		} {
			rs := redsync.NewJoint(sets[0], sets[1])
			refuses(t, rs.NewMutex("lock"), want)
			assert.NoError(s, rs.Close(s.Context()))
		}
		require.ErrorIs(s, redsync.NewJoint(nil, good).NewMutex("lock").Lock(), redsync.ErrNoPools)
		// Only the answers show that two nodes of after are one.
		rs := s.joint(good, append(s.at(4), s.elsewhere(4)...))
		require.ErrorIs(s, rs.NewMutex("lock").Lock(), redsync.ErrDuplicateNode)
		// A server may have two addresses, but not three.
		rs = s.joint(append(s.at(0), s.elsewhere(1)...), append(s.at(2), s.elsewhere(0, 0)...))
		require.ErrorIs(s, rs.NewMutex("lock").Lock(), redsync.ErrDuplicateNode)
	})
}

func TestOpenJoint(t *testing.T) {
	_, err := redsync.OpenJoint(t.Context(), []string{"127.0.0.1:1"}, []string{"nonsense"})
	require.ErrorContains(t, err, `redsync: OpenJoint: after: address #0: "nonsense" is not of the form`)
	_, err = redsync.OpenJoint(t.Context(), nil, []string{"127.0.0.1:1"})
	require.ErrorIs(t, err, redsync.ErrNoPools)
	require.ErrorContains(t, err, "OpenJoint: before: ")
	_, err = redsync.OpenJoint(t.Context(), []string{"127.0.0.1:1", "127.0.0.1:2"}, []string{"127.0.0.1:2", "127.0.0.1:3"}, redsync.WithExpiry(-1))
	require.ErrorContains(t, err, "redsync: OpenJoint: WithExpiry(-1ns)")
	_, err = redsync.OpenJoint(limited(t, time.Second), []string{"127.0.0.1:1", "127.0.0.1:2"}, []string{"127.0.0.1:2", "127.0.0.1:3", "127.0.0.1:4"})
	require.ErrorContains(t, err, "OpenJoint: before: 0 of 2 nodes answered, 2 needed; after: 0 of 3 nodes answered, 2 needed")
	for i := 1; i <= 4; i++ {
		require.ErrorContains(t, err, fmt.Sprintf("node #%d (127.0.0.1:%d)", i-1, i))
	}
	_, err = redsync.OpenJoint(limited(t, time.Second), []string{"127.0.0.1:1"}, []string{"redis://127.0.0.1:1/0"})
	require.ErrorContains(t, err, "OpenJoint: before: the only node failed; after: the only node failed: ")
	require.NotContains(t, err.Error(), "node #1", "one database of one server")
	_, err = redsync.OpenJoint(limited(t, time.Second), []string{"127.0.0.1:1"}, []string{"redis://127.0.0.1:1/5"})
	require.ErrorContains(t, err, "node #1", "two databases")
}

// A fleet moves from one node to five, process by process, while it locks. The lock is held through each change of a
// process, and never twice.
func TestJointFromOneNodeToFive(t *testing.T) {
	for name, c := range map[string]struct {
		five  []int
		joint bool
	}{
		"the old node is one of the five": {[]int{0, 1, 2, 3, 4}, true},
		"five new nodes":                  {[]int{1, 2, 3, 4, 5}, true},
		"without a joint list":            {[]int{0, 1, 2, 3, 4}, false},
	} {
		t.Run(name, func(t *testing.T) {
			changing(t, 6, func(s change) {
				deployments := []func() *redsync.Redsync{
					func() *redsync.Redsync { return s.alone(s.at(0)) },
					func() *redsync.Redsync { return s.joint(s.at(0), s.at(c.five...)) },
					func() *redsync.Redsync { return s.alone(s.at(c.five...)) },
				}
				if !c.joint {
					deployments = slices.Delete(deployments, 1, 2)
				}
				holders, twice, holds := 0, 0, make([]int, len(deployments))
				var mu sync.Mutex
				count := func(change func()) { mu.Lock(); defer mu.Unlock(); change() }
				starts := func(deployed int) (stop func()) {
					ctx, cancel := context.WithCancel(s.Context())
					done, rs := make(chan struct{}), deployments[deployed]()
					go func() {
						defer close(done)
						for m := rs.NewMutex("lock", withWatchdog, forever); m.LockContext(ctx) == nil; s.unlock(m) {
							count(func() { holders++; holds[deployed]++; twice += holders / 2 })
							time.Sleep(25 * time.Second)
							assert.NoError(s, m.Err())
							count(func() { holders-- })
						}
					}()
					return func() { cancel(); <-done }
				}
				var stops []func()
				for range 3 {
					stops = append(stops, starts(0))
				}
				for next := 1; next < len(deployments); next++ {
					for i := range stops {
						time.Sleep(10 * time.Second) // as docs/replacing-nodes.md says, after the last one of the deployment before
						stops[i]()
						stops[i] = starts(next)
					}
				}
				time.Sleep(time.Minute)
				for _, stop := range stops {
					stop()
				}
				assert.Equal(s, c.joint, twice == 0, "two holders at once: %d times", twice)
				assert.NotContains(s, holds, 0)
			})
		})
	}
}

// A pool that can never send stands for no other node, also if it has the client of one.
func TestJointSetsWithAPoolThatCanNeverSend(t *testing.T) {
	play(t, func(f field) {
		clients := clientsOf(f.nodes)
		pools := poolsOf(clients)
		never := pool.New(clients[0], pool.WithOutstanding(0))
		rs := redsync.NewJoint(pools[:3], []pool.Pool{never, pools[1], pools[2]})
		require.ErrorContains(f, rs.NewMutex("lock").Lock(), "WithOutstanding(0)")
	})
}
