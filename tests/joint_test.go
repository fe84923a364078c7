package redsync_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/fortests"
	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
	"github.com/seed14bd9ef4/redsync/pool"
)

// This file tests locks on two joint sets of nodes, and shows what happens if nodes are replaced without joint sets.

// A change is a field in which some nodes replace others, and that has no Redsync of its own. Each node has a first
// address (see at), and any number of other addresses (see elsewhere). Only the server's answers show that these
// addresses lead to the same node.
type change struct {
	field
	clients []*redis.Client
}

// changing runs f on n nodes. Afterwards no keys may be left except the registers of fencing tokens.
func changing(t *testing.T, n int, f func(c change)) {
	synctest.Test(t, func(t *testing.T) {
		nodes := embedded.Start(n)
		f(change{field{user{T: t}, nodes}, clientsOf(nodes)})
		sleep(20 * sec) // by now each key of a lock has been released or has expired
		for i, node := range nodes {
			for _, key := range node.Keys() {
				assert.Contains(t, key, ":fence", "node %d", i)
			}
		}
		nodes.Close()
		sleep(minute) // goroutines that end by themselves have ended
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
func (c change) elsewhere(nodes ...int) []pool.Pool { return c.with(nil, nodes...) }

// with is elsewhere with options.
func (c change) with(options []pool.Option, nodes ...int) (pools []pool.Pool) {
	for _, i := range nodes {
		pools = append(pools, pool.New(c.nodes[i].Client(), options...))
	}
	return pools
}

func (c change) alone(pools []pool.Pool) *redsync.Redsync {
	rs := redsync.New(pools...)
	c.closes(rs)
	return rs
}

func (c change) joint(before, after []pool.Pool) *redsync.Redsync {
	rs := redsync.NewJoint(before, after)
	c.closes(rs)
	return rs
}

// taken checks that a process cannot have the lock because nodes refuse it.
func (c change) taken(rs *redsync.Redsync, name, who string) {
	isTaken(c, rs.NewMutex(name).TryLock())
	sleep(sec) // the release of the failed attempt has arrived
}

// digits returns the digits of a text.
func digits(text string) (all []int) {
	for _, digit := range text {
		all = append(all, int(digit-'0'))
	}
	return all
}

func TestJointNeedsAQuorumOfEachSet(t *testing.T) {
	parallelComputing(t)
	testlength.NotShort(t)
	for name, c := range map[string]struct {
		before, after, frozen string // a digit for each node
		locks                 bool
	}{
		"a quorum of both":                            {"01234", "01235", "045", true},
		"no quorum of the nodes before":               {"01234", "01235", "234", false},
		"no quorum of the nodes after":                {"01234", "01235", "235", false},
		"three of six are up, but only two of before": {"01234", "01235", "014", false},
		"nothing shared":                              {"012", "345", "23", true},
		"nothing shared, all of one set":              {"012", "345", "45", false},
		"from one, which is down, to more":            {"0", "012", "0", false},
		"from three to five":                          {"012", "01234", "1", true},
		"from three to five, two down":                {"012", "01234", "12", false},
		"the same set":                                {"012", "201", "1", true},
	} {
		t.Run(name, func(t *testing.T) {
			changing(t, 6, func(s change) {
				rs := s.joint(s.at(digits(c.before)...), s.at(digits(c.after)...))
				obtained(s, rs.NewMutex("meet"))
				s.freeze(digits(c.frozen)...)
				m := rs.NewMutex("lock", withWatchdog, withTries(1))
				if err := m.Lock(); c.locks {
					require.NoError(s, err)
					sleep(20 * sec)
					alive(s, m) // the watchdog extends
					s.unlock(m)
				} else {
					errorIs(s, err, redsync.ErrNoQuorum)
				}
				s.thaw(digits(c.frozen)...)
			})
		})
	}
}

// Joint processes and processes with one of the sets exclude each other: one node is replaced, or all, or there are fewer.
func TestJointExcludesTheProcessesBeforeAndAfter(t *testing.T) {
	testlength.NotShort(t)
	for _, latter := range []string{"01235", "56789", "134"} {
		changing(t, 10, func(s change) {
			after := digits(latter)
			joint := s.joint(s.at(allNodes...), s.at(after...))
			all := []*redsync.Redsync{s.alone(s.elsewhere(allNodes...)), joint, s.alone(s.elsewhere(after...))}
			for _, holder := range all {
				m := locked(s, holder.NewMutex("lock"))
				for _, other := range all {
					if holder == joint || other == joint {
						s.taken(other, "lock", "")
					}
				}
				s.unlock(m)
			}
		})
	}
}

// A server that is in both sets is asked once.
func TestJointAsksASharedNodeOnce(t *testing.T) {
	testlength.NotShort(t)
	for _, options := range []opts{nil, {withFair}, {withFencing}} {
		changing(t, 6, func(s change) {
			rs := s.joint(s.at(allNodes...), s.at(0, 1, 2, 3, 5)).With(options...)
			sent := func() (n [6]int) {
				for i, node := range s.nodes {
					n[i] = node.Commands("set") + node.Commands("evalsha") + node.Commands("eval") + node.Commands("get")
				}
				return n
			}
			for range 3 {
				before := sent()
				m := obtained(s, rs.NewMutex("lock")) // also the first attempt of all
				for _, operation := range []func() (bool, error){m.Extend, m.Valid, m.Extend, m.Valid, m.Unlock} {
					s.confirms(operation())
				}
				sleep(sec)
				for i, n := range sent() {
					assert.Equal(s, 6, n-before[i], "node %d", i)
				}
			}
		})
	}
}

// At first, an address in after leads to a server of before, which counts in neither set; later it leads to a new
// server. From then on both count.
func TestJointNoticesWhichServersAreOne(t *testing.T) {
	changing(t, 4, func(s change) {
		var moving movable
		moving.to.Store(s.nodes[2])
		rs := s.joint(s.at(0, 1, 2), append(s.at(0, 1), pool.New(moving.client())))
		obtained(s, rs.NewMutex("meet"))
		moving.to.Store(s.nodes[3])
		s.reboot(false, 2)
		for range 2 { // each finds the lost connection to one address
			locked(s, rs.NewMutex("meet too"))
			sleep(10 * sec)
		}
		s.freeze(0)
		m := obtained(s, rs.NewMutex("lock"))
		sleep(sec)
		s.thaw(0)
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
		sleep(sec)
		s.keysOn(3)
		for _, n := range s.nodes {
			assert.True(s, n.DB(other).Exists("lock"))
		}
		s.taken(latter, "lock", "a process of after")
		s.unlock(m)
		sleep(sec)
		for _, n := range s.nodes {
			assert.False(s, n.DB(other).Exists("lock"))
		}
	})
}

// One address with two databases is two nodes.
func TestJointDatabasesOfOneAddress(t *testing.T) {
	at := func(db int) []pool.Pool {
		client := redis.NewClient(&redis.Options{Addr: "h:1", DB: db})
		t.Cleanup(func() { _ = client.Close() })
		return []pool.Pool{pool.New(client)}
	}
	assert.Equal(t, "redsync.Redsync(h:1, h:1)", fmt.Sprint(redsync.NewJoint(at(0), at(1))))
}

// A release by a joint process wakes waiters of joint processes and of processes with one of the sets. A release by
// a process with one of the sets wakes waiters of joint processes.
func TestJointWaitersAreWoken(t *testing.T) {
	testlength.FromGate(t)
	for _, pair := range [][2]int{{0, 1}, {1, 0}, {1, 2}, {1, 3}, {3, 1}} {
		for name, mode := range modes {
			t.Run(fmt.Sprint(pair, name), func(t *testing.T) {
				changing(t, 10, func(s change) {
					joint := func() *redsync.Redsync {
						pools := s.elsewhere(0, 1, 2, 3, 4, 5, 6, 7)
						return s.joint(pools[:5], pools[3:])
					}
					all := []*redsync.Redsync{s.alone(s.elsewhere(allNodes...)), joint(), joint(), s.alone(s.elsewhere(3, 4, 5, 6, 7))}
					for i, rs := range all {
						locked(s, rs.NewMutex(fmt.Sprint("meet", i)))
					}
					m := locked(s, all[pair[0]].NewMutex("lock", mode...))
					w := s.calls(all[pair[1]], patient(mode...)...)
					sleep(3 * sec)
					s.unlock(m)
					s.within(w, 10*ms) // the retry delay is an hour
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
		joint := func(before, after string) *redsync.Redsync {
			return s.joint(s.at(digits(before)...), s.at(digits(after)...))
		}
		one := joint("0", "123")
		for other, same := range map[*redsync.Redsync]bool{
			joint("0", "123"): true, s.alone(s.at(0, 1, 2, 3)): false, joint("01", "23"): false, joint("0", "0123"): false,
			joint("123", "0"): false,
		} {
			assert.Equal(s, same, fortests.SameProcess(one, other))
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
		t.Run(name, func(t *testing.T) {
			changing(t, 3, func(s change) {
				sleep(minute) // the nodes have run for a while
				var before, after []pool.Pool
				for _, c := range s.clients {
					before, after = append(before, pool.New(c, guardOf[0]...)), append(after, pool.New(c, guardOf[1]...))
				}
				rs := s.joint(before, after)
				s.heldByOne(rs.NewMutex("lock"), 0, 2)
				for range 3 { // the process finds that its connections to node 0 are lost, and that the server has restarted
					require.Error(s, s.joint(before, after).NewMutex("lock").TryLock())
					sleep(100 * ms)
				}
				require.ErrorContains(s, s.joint(before, after).NewMutex("lock", hearsAll).TryLock(), "its server started")
				require.ErrorContains(s, rs.NewMutex("lock", withExpiry(minute)).TryLock(), "which pool #")
			})
		})
	}
}

func TestJointRefusesSetsThatCannotBeUsed(t *testing.T) {
	changing(t, 6, func(s change) {
		good, many := s.at(0, 1, 2), s.elsewhere(make([]int, 65)...) // addresses of node 0
		for want, sets := range map[string][2][]pool.Pool{
			"before: no pools":                      {nil, good},
			"after: no pools":                       {good, nil},
			"before: pool #1: it is nil":            {{good[0], nil}, good},
			"after: pool #0: ":                      {good, {pool.New(nil)}},
			"before: 65 pools are too many":         {many, good},
			"have 65 nodes together: at most 64":    {many[:33], many[33:]},
			"before: nodes #0 and #2":               {s.at(0, 1, 0), good},
			"after: nodes #1 and #2 are one server": {good, s.at(3, 4, 4)},
		} {
			rs := redsync.NewJoint(sets[0], sets[1])
			refuses(s.T, rs.NewMutex("lock"), want)
			shut(s, rs)
		}
		errorIs(s, redsync.NewJoint(nil, good).NewMutex("lock").Lock(), redsync.ErrNoPools)
		for _, rs := range []*redsync.Redsync{
			s.joint(good, append(s.at(4), s.elsewhere(4)...)), // only the answers show that two nodes of after are one
			s.joint(good, s.elsewhere(0, 1, 2)),               // or that nodes of both sets are
		} {
			errorIs(s, rs.NewMutex("lock").Lock(), redsync.ErrDuplicateNode)
		}
	})
}

func TestOpenJoint(t *testing.T) {
	parallelComputing(t)
	testlength.NotShort(t)
	opens := func(before, after string, options ...redsync.Option) error { // ports
		_, err := redsync.OpenJoint(limited(t, sec), strings.Fields(before), strings.Fields(after), options...)
		return err
	}
	const one, two, three = "127.0.0.1:1 ", "127.0.0.1:2 ", "127.0.0.1:3 "
	require.ErrorContains(t, opens(one, "nonsense"), `redsync: OpenJoint: after: address #0: "nonsense" is not of the form`)
	err := opens("", one)
	errorIs(t, err, redsync.ErrNoPools)
	require.ErrorContains(t, err, "OpenJoint: before: ")
	require.ErrorContains(t, opens(one+two, two+three, withExpiry(-1)), "redsync: OpenJoint: WithExpiry(-1ns)")
	err = opens(one+two, two+three+"127.0.0.1:4")
	require.ErrorContains(t, err, "OpenJoint: before: 0 of 2 nodes answered, 2 needed; after: 0 of 3 nodes answered, 2 needed")
	for i := range 4 {
		require.ErrorContains(t, err, fmt.Sprintf("node #%d (127.0.0.1:%d)", i, i+1))
	}
	err = opens(one, "redis://127.0.0.1:1/0")
	require.ErrorContains(t, err, "OpenJoint: before: the only node failed; after: the only node failed: ")
	require.NotContains(t, err.Error(), "node #1", "one database of one server")
	require.ErrorContains(t, opens(one, "redis://127.0.0.1:1/5"), "node #1", "two databases")
}

// A pool that can never send stands for no other node, also if it has the client of one.
func TestJointSetsWithAPoolThatCanNeverSend(t *testing.T) {
	changing(t, 3, func(s change) {
		never := pool.New(s.clients[0], pool.WithOutstanding(0))
		rs := redsync.NewJoint(s.at(0, 1, 2), append(s.at(1, 2), never))
		require.ErrorContains(s, rs.NewMutex("lock").Lock(), "WithOutstanding(0)")
	})
}

// What follows shows joint sets while servers restart, addresses move, and calls have little time. It also shows what the
// runbook warns of.

// heldByOne makes m hold its lock, with a key on only one of the three nodes. Node late was frozen during Lock, and
// node emptied has restarted without its keys.
func (c change) heldByOne(m *redsync.Mutex, emptied, late int) {
	c.freeze(late)
	locked(c, m)
	c.reboot(true, emptied)
	c.thaw(late)
	sleep(ms)
	c.lose(late)
}

// A call may have to learn which servers the nodes are. It waits for that at most for its own node deadline, however
// long another call waits.
func TestJointCallsWaitForTheirOwnDeadlines(t *testing.T) {
	changing(t, 6, func(s change) {
		rs := s.joint(s.at(0, 1, 2), s.at(3, 4, 5))
		s.freeze(5)
		var patient sync.WaitGroup
		patient.Go(func() { s.unlock(obtained(s, rs.NewMutex("batch", withExpiry(10*hour)))) })
		sleep(ms)
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
		var pools []pool.Pool
		for _, n := range s.nodes {
			pools = append(pools, pool.New(n.Client(func(o *redis.Options) { o.Dialer = n.DialVia(slow) })))
		}
		rs := s.joint(pools[:3], pools[2:])
		require.Error(s, rs.NewMutex("first").TryLockContext(limited(s, ms)))
		sleep(sec)
		asked := s.nodes[0].Commands("ping")
		s.unlock(obtained(s, rs.NewMutex("second")))
		assert.Equal(s, 1, s.nodes[0].Commands("ping")-asked)
	})
}

// While processes with New(after...) run, a new node restarts. A joint process that has pool.WithNoLocksBefore from its
// deployment does not count it. One that declares a later time does, wrongly: then two processes hold the lock.
func TestJointNewNodesThatRestart(t *testing.T) {
	for _, name := range []string{"without", "with", "wrong"} {
		changing(t, 6, func(s change) {
			sleep(minute)
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
// on 0 and 3. That holds although the text of the address is that of server 2: the clients have Dialers.
func TestJointAddressThatLeadsToTheOtherSet(t *testing.T) {
	for _, options := range []func(*redis.Options){func(o *redis.Options) { o.Addr = "node-3:6379" }, func(*redis.Options) {}} {
		changing(t, 4, func(s change) {
			wrong := pool.New(s.nodes[2].Client(options))
			rs, later := s.joint(s.at(0, 1, 2), append(s.at(0, 1), wrong)), s.alone(s.elsewhere(0, 1, 3))
			m := obtained(s, rs.NewMutex("lock")) // nodes 0 and 1 are a quorum of both sets
			s.taken(later, "lock", "a process of the later set")
			s.unlock(m)
			sleep(sec)
			s.freeze(0)
			errorIs(s, m.TryLock(), redsync.ErrNoQuorum)
			s.thaw(0)
			sleep(sec)
			rs = s.joint(s.at(0, 2), append(s.at(0), wrong))
			require.ErrorIs(s, rs.NewMutex("lock").TryLock(), redsync.ErrDuplicateNode, "one server is left of each set")
		})
	}
}
