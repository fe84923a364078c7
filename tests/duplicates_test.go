package redsync_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/script"
	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
	"github.com/seed14bd9ef4/redsync/internal/testkit/scripted"
	"github.com/seed14bd9ef4/redsync/internal/wire"
	"github.com/seed14bd9ef4/redsync/pool"
)

// This file tests that two pools that lead to one server are found, and what happens then.

// pick returns these nodes. It may return a node twice.
func (f field) pick(nodes ...int) (picked embedded.Nodes) {
	for _, i := range nodes {
		picked = append(picked, f.nodes[i])
	}
	return picked
}

func TestDuplicateNodeIsAnErrorOfTheFirstLock(t *testing.T) {
	for _, of := range [][]pool.Option{nil, guards[true], {pool.WithRestartGuard(guard), newNodes}} {
		for _, option := range []redsync.Option{hearsAll, forever} {
			play(t, func(f field) {
				m := process(f.pick(0, 1, 2, 1, 1, 1), of...).NewMutex("lock", option)
				start := time.Now()
				err := m.Lock()
				errorIs(f, err, redsync.ErrDuplicateNode)
				require.NotErrorIs(f, err, redsync.ErrFailed)
				require.ErrorContains(f, err, "nodes #1 and #3")
				took(f, start, 0, "Lock does not wait: retries would not help")
				assert.Zero(f, m.Remaining())
				sleep(ms)
				f.keysOn(0)
				before := f.traffic()
				errorIs(f, m.TryLock(), redsync.ErrDuplicateNode)
				f.hasSent(before, "the process knows of the duplicate, so it sends nothing more")
			})
		}
	}
}

// A client, an address or a Pool that is given twice is found before anything is sent.
func TestNewRefusesOneNodeTwice(t *testing.T) {
	closed := func(client interface{ Close() error }) { t.Cleanup(func() { _ = client.Close() }) }
	clientOf := func(addr string, db int) *redis.Client {
		client := redis.NewClient(&redis.Options{Addr: addr, DB: db})
		closed(client)
		return client
	}
	at := func(addr string, db int) pool.Pool { return pool.New(clientOf(addr, db)) }
	cluster, dialing := redis.NewClusterClient(&redis.ClusterOptions{}), new(movable).client()
	closed(cluster)
	closed(dialing)
	client, same, other := clientOf("127.0.0.1:1", 0), at("127.0.0.1:2", 0), at("127.0.0.1:3", 0)
	for name, pools := range map[string][]pool.Pool{
		"a Pool":                      {same, other, same},
		"a client":                    {pool.New(client), other, pool.New(client, pool.WithoutIdentity())},
		"a client with a Dialer":      {pool.New(dialing), other, pool.New(dialing)},
		"an address":                  {at("h:7001", 0), at("h:7002", 0), at("h:7001", 1)},
		"a client that is no *Client": {pool.New(cluster), other, pool.New(cluster)},
	} {
		err := redsync.New(pools...).NewMutex("lock").Lock()
		require.ErrorIs(t, err, redsync.ErrDuplicateNode, name)
		require.NotErrorIs(t, err, redsync.ErrFailed, name)
		assert.ErrorContains(t, err, fmt.Sprintf("#0 and #2 are one server (%s)", pools[2]), name)
	}
}

// Two nodes may report one constant run ID. With pool.WithoutIdentity, they are not taken for duplicates.
func TestWithoutIdentityTakesNodesWithOneRunIDForTwo(t *testing.T) {
	play(t, func(f field) {
		locks := func(options ...pool.Option) error { // two connections to each of two servers
			return process(f.pick(0, 0, 1, 1), options...).NewMutex("lock").TryLock()
		}
		errorIs(f, locks(), redsync.ErrDuplicateNode)
		sleep(sec)
		err := locks(pool.WithoutIdentity())
		require.NotErrorIs(f, err, redsync.ErrDuplicateNode)
		require.ErrorIs(f, err, redsync.ErrFailed, "the second connection to the same server refuses")
	})
}

// A movable is an address that leads to one node or another.
type movable struct{ to atomic.Pointer[embedded.Node] }

func (a *movable) client() *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: "movable",
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			return a.to.Load().Dial(ctx, network, addr)
		},
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

func TestDuplicateNodeThatIsDownByNowIsNone(t *testing.T) {
	play(t, func(f field) {
		var moving movable
		moving.to.Store(f.nodes[0])
		clients := clientsOf(f.pick(0, 1, 2, 0))
		clients[1] = moving.client()
		m := on(clients).NewMutex("lock")
		errorIs(f, m.TryLock(), redsync.ErrDuplicateNode)
		moving.to.Store(f.nodes[1])
		f.kill(1)
		sleep(minute) // the connection to the wrong server has ended
		require.NotErrorIs(f, m.TryLock(), redsync.ErrDuplicateNode)
		f.nodes[1].Restart(true)
		sleep(minute)
		obtained(f, m)
	})
}

// The address of one node of five comes to lead to the server of another one. Four servers are left, so locks go on. The
// log says once what is wrong, and once that it is right again.
func TestAddressThatLeadsToAnotherNode(t *testing.T) {
	play(t, func(f field) {
		var moving movable
		moving.to.Store(f.nodes[4])
		clients := clientsOf(f.nodes)
		clients[4] = moving.client()
		log := newLogbook()
		rs := on(clients).With(redsync.WithLogger(slog.New(log)))
		works := func() {
			for _, kind := range lockKinds {
				for _, option := range []redsync.Option{withTries(1), withFair, hearsAll} {
					m := locked(f, kind.lock(rs, option))
					f.confirms(m.Extend())
					f.confirms(m.Valid())
					f.confirms(m.Unlock())
					sleep(sec)
				}
			}
		}
		works()
		assert.Empty(f, log.above())
		moving.to.Store(f.nodes[0])
		f.kill(4)
		sleep(sec)
		works()
		want := map[string]int{"WARN redsync: two nodes are one server, which counts once": 1}
		assert.Equal(f, want, log.above())
		assert.Regexp(f, `nodes="?\[0 4\]"? addresses="\[\S+ movable\]" run_id=\w{40}`, log.text.String())
		f.nodes[4].Restart(true)
		moving.to.Store(f.nodes[4])
		f.nodes[0].Disconnect()
		sleep(sec)
		works()
		want["INFO redsync: the two nodes are different servers again"] = 1
		assert.Equal(f, want, log.above())
	})
}

// Two addresses lead to one server, which does not tell who it is. The server is asked twice, and grants once. It confirms
// an extension only at the address at which it has granted.
func TestServerThatRefusedAtAnAddressConfirmsNoExtensionThere(t *testing.T) {
	for name, options := range map[string]opts{
		"plain": nil, "fencing": {withFencing}, "healing": {withSetNXOnExtend}, "shared": {withShared},
	} {
		playAs(t, name, func(f field) {
			f.nodes[0].On("info", 1000, embedded.Fault{Err: "NOPERM"})
			m := locked(f, process(f.pick(0, 0, 1)).NewMutex("lock", append(options, withNodeTimeout(sec))...))
			f.confirms(m.Extend()) // the server and node 1 are a quorum
			f.freeze(1)
			until := m.Until()
			ctx := limited(f, sec)
			require.ErrorIs(f, second(m.ExtendContext(ctx)), redsync.ErrExtendFailed, "one server is no quorum")
			assert.Equal(f, until, m.Until())
			f.thaw(1)
			_, _ = m.Unlock()
		})
	}
}

// A stage is three fakes. The test delivers their replies, in any order.
type stage struct {
	*redsync.Redsync
	fakes   [3]*scripted.Node
	grants  bool            // the fakes grant at once, and do not say which servers they are
	waiting [3]wire.Request // the last request to each that it has not granted at once
	servers [3]*wire.Server // where one is set, that fake node answers a PING at once
}

func newStage() *stage {
	s := &stage{grants: true}
	for i := range s.fakes {
		s.fakes[i] = &scripted.Node{Answer: func(req wire.Request) (*wire.Reply, error) {
			switch {
			case req.Args[0] == "ping" && s.servers[i] != nil:
				return &wire.Reply{Value: "PONG", Fate: wire.Answered, Conn: 1, Server: s.servers[i]}, nil
			case s.grants:
				return scripted.Yes(req)
			}
			s.waiting[i] = req
			return nil, nil
		}}
	}
	s.Redsync = redsync.New(s.fakes[0], s.fakes[1], s.fakes[2])
	return s
}

// deliver delivers node i's answer to its last request.
func (s *stage) deliver(i int, answer int64, server *wire.Server) {
	s.waiting[i].To.Receive(i, wire.Reply{Value: answer, Fate: wire.Answered, Conn: 1, Server: server})
	synctest.Wait()
}

// Pools 0 and 1 turn out to lead to one server. Each of the three pools says yes or no. The outcome is that of two
// servers, in whatever order the pools answer.
func TestVotesOfOneServerCountOnce(t *testing.T) {
	servers := [3]*wire.Server{{RunID: "twin"}, {RunID: "twin"}, {RunID: "other"}}
	for name, operation := range map[string]func(*redsync.Mutex) (bool, error){
		"Extend": (*redsync.Mutex).Extend, "Valid": (*redsync.Mutex).Valid, "Unlock": (*redsync.Mutex).Unlock,
	} {
		for yeses := range 8 {
			for _, order := range [][3]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
				synctest.Test(t, func(t *testing.T) {
					s := newStage()
					m := locked(t, s.NewMutex("lock", redsync.WithFailFast(order[0] == 0)))
					s.grants = false
					var ok bool
					var err error
					var wg sync.WaitGroup
					wg.Go(func() { ok, err = operation(m) })
					synctest.Wait()
					for _, i := range order {
						answer := script.Missing
						if yeses&(1<<i) != 0 {
							answer = script.Mine
						}
						s.deliver(i, answer, servers[i])
					}
					wg.Wait()
					assert.Equal(t, yeses&4 != 0 && yeses&3 != 0, ok, "%s yes=%03b order=%v", name, yeses, order)
					if name == "Extend" { // two pools that answer "no such key" prove a loss
						assert.Equal(t, yeses&(yeses-1) == 0, errors.Is(err, redsync.ErrLockLost), "yes=%03b order=%v: %v", yeses, order, err)
					}
					s.grants = true
					obtained(t, s.NewMutex("another")) // two servers are a quorum
					sleep(minute)                      // releases are repeated where no answer has come
					shut(t, s.Redsync)
				})
			}
		}
	}
}
