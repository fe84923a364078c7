package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed14bd9ef4/redsync/internal/testkit/realredis"
	"github.com/seed14bd9ef4/redsync/internal/testkit/safety"
	"github.com/seed14bd9ef4/redsync/proof/history"
)

// This file lets this library and another one contend for the same names, while a node is killed: docs/wire.md says what
// another client must do so that no name has two holders. The judge is proof/history. foreign_node_test.go has the
// contest with node-redlock, which runs in processes of its own.

const (
	foreignExpiry   = 8 * time.Second
	foreignFull     = 10_000      // locks of both sides together, with REDSYNC_TEST_LONG
	foreignShort    = 300         // otherwise
	foreignLead     = 20          // a side that is so many locks ahead of the other lets it catch up
	foreignPatience = time.Minute // for one more lock
	foreignParties  = 2           // processes of each side
	foreignCrowd    = 3           // contenders of each process
)

var foreignNames = []string{"orders:17", "orders:18", "{orders}:19"}

// A foreignLock is a lock of either side. A safety.Mutex is one.
type foreignLock interface {
	LockContext(ctx context.Context) error
	ExtendContext(ctx context.Context) (bool, error)
	UnlockContext(ctx context.Context) (bool, error)
	Until() time.Time
}

// A foreignParty is a process of a side. newLock returns a lock that was not used yet, for the contender of that number.
type foreignParty func(name string, contender int) foreignLock

// partyOf returns the party with a library that runs in this process. With equal delays the contenders would try again at
// the same moments, and collide again.
func partyOf(lib safety.Library) foreignParty {
	return func(name string, contender int) foreignLock {
		return lib.NewMutex(name, safety.Options{
			Expiry: foreignExpiry, Tries: 20, RetryDelay: time.Duration(3+contender) * time.Millisecond,
		})
	}
}

// A contest is a run of two sides. All times of its history are taken in this process, by its monotonic clock: the time
// of Held after Lock has returned, the time of Unlock before the release is sent. So no belief in the history is longer
// than the real one, however slow a process is.
type contest struct {
	*testing.T
	servers []*realredis.Server
	sides   [2]string // their names: ours is the first
	origin  time.Time
	log     history.Log

	over atomic.Bool
	wins [2]atomic.Int64

	extended [2]atomic.Int64
	failed   [2]atomic.Int64 // Extend or Unlock of a lock that its holder had
}

// newContest starts five servers for a contest of this library and the one called theirs. A server that restarts is empty.
func newContest(t *testing.T, theirs string) *contest {
	t.Cleanup(func() { requireNoGoroutines(t) })
	return &contest{T: t, servers: realredis.Start(t, safety.N), sides: [2]string{"ours", theirs}, origin: time.Now()}
}

// requireNoGoroutines requires that all goroutines end. A pool of go-redis that could not dial looks only once a second
// whether it was closed.
func requireNoGoroutines(t *testing.T) {
	err := goleak.Find()
	for end := time.Now().Add(foreignPatience); err != nil && time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		err = goleak.Find()
	}
	require.NoError(t, err)
}

func (c *contest) now() time.Duration { return time.Since(c.origin) }

func (c *contest) total() int64 { return c.wins[0].Load() + c.wins[1].Load() }

// clients returns clients of all servers. They try once to reach a dead one: redsync v4 waits for all nodes.
func (c *contest) clients() (clients []*redis.Client) {
	for _, s := range c.servers {
		client := redis.NewClient(&redis.Options{
			Addr: s.Addr(), MaxRetries: -1, DialerRetries: 1,
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		})
		c.Cleanup(func() { client.Close() })
		clients = append(clients, client)
	}
	return clients
}

// library opens a library with connections of its own, until the end of the test.
func (c *contest) library(open safety.Open) safety.Library {
	lib := open(c.clients())
	c.Cleanup(lib.Close)
	return lib
}

// ours returns the parties of this library.
func (c *contest) ours() (parties []foreignParty) {
	for range foreignParties {
		parties = append(parties, partyOf(c.library(patient())))
	}
	return parties
}

// run lets the parties contend until during returns.
func (c *contest) run(theirs []foreignParty, during func()) {
	var contenders sync.WaitGroup
	for side, parties := range [][]foreignParty{c.ours(), theirs} {
		for i, newLock := range parties {
			for j := range foreignCrowd {
				number := i*foreignCrowd + j
				contenders.Go(func() { c.contend(side, number, newLock) })
			}
		}
	}
	defer func() {
		c.over.Store(true)
		contenders.Wait()
	}()
	during()
}

// runWithFault lets the parties acquire limit locks. After a third of them a node is killed, and loses its keys. If it
// returns meanwhile, it does so after two thirds, and not before all that it has lost would have expired: then no holder
// counts on it. Otherwise it returns when nobody holds a lock, because Close waits for it.
func (c *contest) runWithFault(limit int64, returns bool, theirs []foreignParty) {
	victim := c.servers[safety.N-1]
	c.run(theirs, func() {
		c.await(limit / 3)
		victim.Kill()
		if returns {
			time.Sleep(foreignExpiry + time.Second)
			c.await(limit * 2 / 3)
			victim.Restart()
			limit = max(limit, c.total()+limit/10)
		}
		c.await(limit)
	})
	if !returns {
		victim.Restart()
	}
}

// await waits until both sides together have acquired so many locks.
func (c *contest) await(locks int64) {
	for last, since := c.total(), time.Now(); last < locks; time.Sleep(time.Millisecond) {
		if now := c.total(); now > last {
			last, since = now, time.Now()
		}
		require.Less(c, time.Since(since), foreignPatience, last) // locks before the last
	}
}

// mayLock reports whether a side is not far ahead of the other one. So both win equally often, although one side may be
// faster or retry more often.
func (c *contest) mayLock(side int) bool {
	return c.wins[side].Load() < c.wins[1-side].Load()+foreignLead
}

// contend locks, works, sometimes extends, and unlocks, until the contest is over.
func (c *contest) contend(side, number int, newLock foreignParty) {
	random := rand.New(rand.NewPCG(uint64(side), uint64(number)))
	who := fmt.Sprintf("%s/%d", c.sides[side], number)
	for term := 1; !c.over.Load(); {
		if !c.mayLock(side) {
			time.Sleep(time.Millisecond)
			continue
		}
		h := foreignHold{contest: c, side: side, who: who, term: term, name: foreignNames[random.IntN(len(foreignNames))], random: random}
		h.hold(newLock(h.name, number))
		term++
	}
}

// A foreignHold is one term of a contender.
type foreignHold struct {
	*contest

	side, term int
	who, name  string
	random     *rand.Rand
}

func (h foreignHold) note(e history.Event) {
	e.Client, e.Term, e.Name = h.who, h.term, h.name
	h.log.Note(e)
}

func (h foreignHold) hold(m foreignLock) {
	ctx := context.Background() // a call that ends early would leave its lock behind
	h.note(history.Event{At: h.now(), Kind: history.Call})
	if err := m.LockContext(ctx); err != nil {

		h.note(history.Event{At: h.now(), Kind: history.Refused, Err: err.Error()})
		h.work()
		return
	}
	h.believe(history.Held, m)
	h.wins[h.side].Add(1)
	h.work()
	if h.random.IntN(4) == 0 {
		h.extend(ctx, m)
	}
	h.note(history.Event{At: h.now(), Kind: history.Unlock})
	_, err := m.UnlockContext(ctx)
	if err != nil {
		h.failed[h.side].Add(1)
	}
	h.note(history.Event{At: h.now(), Kind: history.Unlocked, Err: text(err)})
}

// believe notes that the contender has the lock until Until. A library may return a lock after its Until: then it has none.
func (h foreignHold) believe(kind history.Kind, m foreignLock) {
	at := h.now()
	if until := at + time.Until(m.Until()); until > at {
		h.note(history.Event{At: h.now(), Kind: kind, Until: until})
	}
}

func (h foreignHold) extend(ctx context.Context, m foreignLock) {
	if ok, err := m.ExtendContext(ctx); !ok || err != nil {
		h.failed[h.side].Add(1)
		return
	}
	h.extended[h.side].Add(1)
	h.believe(history.Extended, m)
	h.work()
}

// work takes 1 ms on average, and now and then ten times as long: others then try several times meanwhile.
func (h foreignHold) work() {
	d := time.Duration(h.random.IntN(2000)) * time.Microsecond
	if h.random.IntN(10) == 0 {
		d *= 10
	}
	time.Sleep(d)
}

// changes returns how often a name went from one side to the other.
func changes(events []history.Event) (count int) {
	last := map[string]string{}
	for _, e := range events {
		if e.Kind != history.Held {
			continue
		}
		side, _, _ := strings.Cut(e.Client, "/")
		if before := last[e.Name]; before != "" && before != side {
			count++
		}
		last[e.Name] = side
	}
	return count
}

// violations judges what was noted so far. A hold that goes on ends with its Until.
func (c *contest) violations() []history.Violation {
	return history.Check(c.log.Events(), history.Rules{})
}

// requireExclusion requires that the contest was one, and that no name had two holders.
func (c *contest) requireExclusion(limit int64) {
	found, turns := c.violations(), changes(c.log.Events())
	for side, name := range c.sides {
		wins, failed := c.wins[side].Load(), c.failed[side].Load()

		assert.GreaterOrEqual(c, wins, limit*2/5, name)
		assert.Positive(c, c.extended[side].Load(), name)
		// A lock on three of five nodes is lost when one of these is killed.
		assert.LessOrEqual(c, failed, max(limit/100, int64(2*len(foreignNames))), name)
	}
	assert.GreaterOrEqual(c, int64(turns), limit/10)
	require.Empty(c, found[:min(len(found), 5)])
}

// foreignLimit returns how many locks a contest has, and whether the node that is killed returns.
func foreignLimit() (limit int64, returns bool) {
	if os.Getenv(envLong) != "" {
		return foreignFull, true
	}
	return foreignShort, false
}

func TestForeignRedsyncV4ExcludesOursAndIsExcluded(t *testing.T) {
	limit, returns := foreignLimit()
	c := newContest(t, "redsync v4.18.1")
	var theirs []foreignParty
	for range foreignParties {
		theirs = append(theirs, partyOf(c.library(patientRival)))
	}
	c.runWithFault(limit, returns, theirs)
	c.requireExclusion(limit)
}
