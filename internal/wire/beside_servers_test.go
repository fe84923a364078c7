package wire_test

import (
	"context"
	"net"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/testkit/realredis"
	"github.com/seed14bd9ef4/redsync/internal/testkit/stall"
	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
	"github.com/seed14bd9ef4/redsync/internal/wire"
	"github.com/seed14bd9ef4/redsync/pool"
)

// This file measures how soon a pool writes again when another server takes over, beside a client of go-redis.

// An outage takes a server out of use. Clients find another one for its keys after some time.
type outage struct {
	client func() redis.UniversalClient // another one at each call
	key    string
	fail   func()
	old    *realredis.Server

	// The replica takes over. Watchdogs save locks with this expiry if it does so within half of that time. A Ring has none.
	replica *realredis.Server
	expiry  time.Duration
}

// failingCluster returns a Cluster whose second master has a replica.
func failingCluster(t *testing.T, fail func(master, replica *realredis.Server)) outage {
	t.Helper()
	servers := realredis.StartCluster(t)
	master, replica := servers[1], realredis.StartClusterNode(t)
	realredis.Meet(t, replica, servers[0])
	all := append(servers[:3:3], replica)
	realredis.AwaitCluster(t, all)
	realredis.Must(t, replica, "cluster", "replicate", realredis.Must(t, master, "cluster", "myid"))
	follows(t, replica)
	client := func() redis.UniversalClient { return clusterClient(t, servers) }
	return outage{client, keyAt(t, client().(*redis.ClusterClient), master.Addr()), func() {
		for _, s := range all {
			realredis.Must(t, s, "config", "set", "cluster-node-timeout", 1000)
		}
		fail(master, replica)
	}, master, replica, 8 * time.Second}
}

// failingShard returns a Ring of two shards, of which one stops.
func failingShard(t *testing.T) outage {
	t.Helper()
	servers := realredis.Start(t, 2)
	ring := func() *redis.Ring {
		ring := redis.NewRing(&redis.RingOptions{
			Addrs: map[string]string{"a": servers[0].Addr(), "b": servers[1].Addr()}, ReadTimeout: 300 * time.Millisecond, Protocol: 2,
		})
		t.Cleanup(func() { _ = ring.Close() })
		return ring
	}
	o := outage{client: func() redis.UniversalClient { return ring() }, fail: servers[1].Freeze, old: servers[1]}
	for i, r := 0, ring(); ; i++ {
		o.key = strconv.Itoa(i)
		shard, err := r.GetShardClientForKey(o.key)
		require.NoError(t, err)
		if shard.Options().Addr == servers[1].Addr() {
			return o
		}
	}
}

// stoppedMachine returns a server that stops, while its name moves to its replica.
func stoppedMachine(t *testing.T) outage {
	t.Helper()
	primary := realredis.Start(t, 1, "--repl-diskless-sync-delay", "0")[0]
	host, port, _ := net.SplitHostPort(primary.Addr())
	replica := realredis.Start(t, 1, "--replicaof", host, port)[0]
	follows(t, replica)
	var at atomic.Value
	at.Store(primary.Addr())
	return outage{func() redis.UniversalClient {
		return clientOf(t, "redis.example:6379", func(o *redis.Options) {
			o.Dialer = func(ctx context.Context, network, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, network, at.Load().(string))
			}
		})
	}, "key", func() {
		primary.Freeze()
		realredis.Must(t, replica, "replicaof", "no", "one")
		at.Store(replica.Addr())
	}, primary, replica, 5 * time.Second}
}

// keyAt returns a key of the master at addr.
func keyAt(t *testing.T, client *redis.ClusterClient, addr string) string {
	t.Helper()
	for i := 0; ; i++ {
		key := strconv.Itoa(i)
		node, err := client.MasterForKey(t.Context(), key)
		require.NoError(t, err)
		if node.Options().Addr == addr {
			return key
		}
	}
}

func follows(t *testing.T, replica *realredis.Server) {
	t.Helper()
	eventually(t, "the replica follows", func() bool { return realredis.Must(t, replica, "role").([]any)[3] == "connected" })
}

// The pool writes again not later than go-redis, both on the client that go-redis uses and on one that nobody else uses. No
// watchdog loses a lock.
func TestWritesAgainBesideGoRedis(t *testing.T) {
	testlength.NotWhileAPersonWaits(t)
	t.Parallel()
	for name, begin := range map[string]func(t *testing.T) outage{
		"a Cluster's master is killed": func(t *testing.T) outage {
			return failingCluster(t, func(master, _ *realredis.Server) { master.Kill() })
		},
		"a Cluster's master stops": func(t *testing.T) outage {
			return failingCluster(t, func(master, _ *realredis.Server) { master.Freeze() })
		},
		"a Cluster's master answers, and is replaced": func(t *testing.T) outage {
			return failingCluster(t, func(_, replica *realredis.Server) { realredis.Must(t, replica, "cluster", "failover", "takeover") })
		},
		"a Ring's shard stops":            failingShard,
		"a machine stops, its name moves": stoppedMachine,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := begin(t)
			var held []*redsync.Mutex
			if o.replica != nil {
				rs := redsync.New(pool.New(o.client())).With(redsync.WithExpiry(o.expiry), redsync.WithWatchdog())
				defer func() { require.NoError(t, rs.Close(t.Context())) }()
				for i := range 10 {
					m := rs.NewMutex("{" + o.key + "}" + strconv.Itoa(i))
					require.NoError(t, m.Lock())
					held = append(held, m)
				}
			}
			used := o.client()
			pools := map[string]wire.Pool{"on go-redis's client": poolOf(t, used), "on a client of its own": poolOf(t, o.client())}
			require.NoError(t, used.Set(t.Context(), o.key, "v", 0).Err())
			for _, p := range pools {
				wire.Answer(t, p, "set", o.key, "v")
			}
			if o.replica != nil {
				eventually(t, "the replica has the locks", func() bool {
					return realredis.Must(t, o.replica, "dbsize") == realredis.Must(t, o.old, "dbsize")
				})
			}
			machine := stall.Begin(t)
			o.fail()
			start := time.Now()
			deadline, cancel := context.WithDeadline(context.Background(), start.Add(time.Minute))
			defer cancel()

			// Which writes again first is left to the machine. Somebody writes all the time, as a lock does.
			theirs := make(chan time.Duration, 1)
			go func() {
				for used.Set(deadline, o.key, "v", 0).Err() != nil && deadline.Err() == nil {
					time.Sleep(10 * time.Millisecond) //nolint:forbidigo // servers do not signal
				}
				theirs <- time.Since(start)
			}()
			wrote := make(chan time.Duration, len(pools))
			for who, p := range pools {
				go func() {
					in, every := make(replies, 1000), time.NewTicker(20*time.Millisecond)
					defer every.Stop()
					for again := false; !again && deadline.Err() == nil; {
						select {
						case <-every.C:
							_ = p.Send(wire.Request{Args: []any{"set", o.key, "v"}, To: in, Within: 50 * time.Millisecond})
						case r := <-in:
							again = r.Err == nil
						}
					}
					t.Logf("the pool %s writes again after %v", who, time.Since(start))
					wrote <- time.Since(start)
				}()
			}
			latest := max(<-wrote, <-wrote)
			select {
			case took := <-theirs:
				t.Logf("go-redis writes again after %v", took)
				assert.True(t, latest < took+3*time.Second || machine.Longest() > 200*time.Millisecond)
			default:
				t.Log("go-redis does not write yet")
				assert.NoError(t, deadline.Err())
			}
			time.Sleep(time.Until(start.Add(o.expiry + time.Second))) //nolint:forbidigo // all would have expired
			if latest > o.expiry/2 {
				held = nil // the machine is slow
			}
			for _, m := range held {
				assert.NoError(t, m.Err(), m.Name())
				ok, err := m.Unlock()
				assert.True(t, ok, "%s: %v", m.Name(), err)
			}
			o.old.Thaw()
		})
	}
}
