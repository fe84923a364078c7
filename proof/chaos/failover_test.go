package main

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/testkit/realredis"
	"github.com/seed14bd9ef4/redsync/internal/testkit/safety"
	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
	streams "github.com/seed14bd9ef4/redsync/internal/wire" // the package has a type wire
	"github.com/seed14bd9ef4/redsync/pool"
)

// This file shows that locks follow go-redis to the master that a Sentinel has promoted. The old master comes back, or was
// never away, and still accepts writes. Then two processes may lock one name on two masters. The control is redsync v4,
// which sends all commands through go-redis.

const (
	failoverExpiry = 20 * time.Second // longer than a failover takes

	// failoverGrace is how long after go-redis a busy machine may let this library move. An old master goes on for several
	// seconds longer.
	failoverGrace = time.Second

	failoverTries = 12 // to lock a name twice, after the grace
)

// A sentinelProcess has both libraries. Each has clients of its own, one for each node, and each node is a set.
type sentinelProcess struct {
	sets           []realredis.SentinelSet
	clients, plain []*redis.Client // plain: those of redsync v4
	libraries      [2]safety.Library
}

// bothLibraries are the names of sentinelProcess.libraries.
var bothLibraries = [...]string{"this library", "redsync v4"}

func newSentinelProcess(t *testing.T, sets []realredis.SentinelSet) *sentinelProcess {
	p := &sentinelProcess{sets: sets}
	for _, set := range sets {
		p.clients, p.plain = append(p.clients, set.Client(t)), append(p.plain, set.Client(t))
	}
	p.libraries = [...]safety.Library{safety.Ours()(p.clients), openRival(p.plain)}
	for _, l := range p.libraries {
		t.Cleanup(l.Close)
	}
	return p
}

// A failoverTrial is what one process meets while one of its nodes fails over.
type failoverTrial struct {
	first, second *sentinelProcess // second starts after the failover
	node          int              // which fails over
	masters       []*realredis.Server
	holds         [2]safety.Mutex // locked by first, before
	movedPlain    time.Time       // when a command of redsync v4's client first reached the new master
	movedOurs     time.Time       // the same for this library; zero: it did not
	counts        [2]failoverCounts
}

// failoverCounts are the verdict on one library.
type failoverCounts struct {
	judged, twice int  // locks of the first process, and those that the second process got, too
	early         int  // those that it got within the grace, which are not in twice
	astray        bool // a holder's Extend succeeded, but on masters that other processes do not use
}

// TestSentinelFailoverBesideV4 counts the locks that two processes have at once after go-redis has moved to the new master:
// on a single node, and on five of which one fails over.
func TestSentinelFailoverBesideV4(t *testing.T) {
	testlength.NotShort(t)
	testlength.NotWhileAPersonWaits(t)
	sets := make([]realredis.SentinelSet, safety.N)
	masters := make([]*realredis.Server, safety.N)
	for i := range sets {
		sets[i] = realredis.StartSentinelSet(t)
		masters[i] = sets[i].Master
	}
	five := newSentinelProcess(t, sets) // it lives through all failovers
	for i, f := range realredis.Failovers {
		trials := []*failoverTrial{
			{first: newSentinelProcess(t, sets[i:i+1]), masters: masters[i : i+1]},
			{first: five, node: i, masters: masters},
		}
		for _, trial := range trials {
			trial.hold(t, f.Name)
		}

		require.NoError(t, f.Fail(sets[i]))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		var plain, rest sync.WaitGroup
		for _, trial := range trials {
			address := sets[i].Replica.Addr()
			plain.Go(func() { trial.movedPlain = untilMoved(ctx, address, byClient(trial.first.plain[trial.node])) })
			rest.Go(func() { trial.movedOurs = untilMoved(ctx, address, byPool(pool.New(trial.first.clients[trial.node]))) })
		}
		plain.Wait()
		sets[i].Master.Thaw()
		masters[i] = sets[i].Replica
		for _, trial := range trials {
			require.NotZero(t, trial.movedPlain, f.Name)
			trial.second = newSentinelProcess(t, trial.first.sets)
			for l := range bothLibraries {
				rest.Go(func() { trial.judge(ctx, t, l, f.Name) })
			}
		}
		rest.Wait()
		cancel()
		for _, trial := range trials {
			what := fmt.Sprintf("%s, one of %d", f.Name, len(trial.masters))
			t.Logf("%s: this library moved %v after go-redis; %+v", what, trial.movedOurs.Sub(trial.movedPlain), trial.counts)
			for _, c := range trial.counts {
				assert.GreaterOrEqual(t, c.judged, failoverTries, what)
			}
			assert.NotZero(t, trial.movedOurs, what)
			assert.Zero(t, trial.counts[0].twice, what)
			assert.False(t, trial.counts[0].astray, what)
		}
	}
}

// hold locks a name with each library of the first process, and waits until the replica has these locks.
func (r *failoverTrial) hold(t *testing.T, fault string) {
	for l, library := range r.first.libraries {
		name := r.name("held", fault, l)
		r.holds[l] = library.NewMutex(name, safety.Options{Expiry: failoverExpiry})
		r.crowd(t, name, func() { require.NoError(t, r.holds[l].LockContext(t.Context())) })
	}
	require.Eventually(t, func() bool {
		n, _ := r.first.sets[r.node].Replica.Do("exists", r.name("held", fault, 0), r.name("held", fault, 1))
		return n == int64(2)
	}, time.Minute, 10*time.Millisecond)
}

// name returns the name of a lock of library l that no other trial uses.
func (r *failoverTrial) name(what, fault string, l int) string {
	return fmt.Sprint(what, " ", fault, len(r.masters), " ", l)
}

// crowd calls lock while a name is taken on two of five nodes, as a client leaves it that has crashed. So the lock stands on
// a bare quorum, to which the node that fails over belongs. With one node crowd only calls lock.
func (r *failoverTrial) crowd(t *testing.T, name string, lock func()) {
	onMinority := func(args ...any) {
		for i := range len(r.masters) / 2 {
			_, err := r.masters[(r.node+1+i)%len(r.masters)].Do(args...)
			assert.NoError(t, err)
		}
	}
	onMinority("set", name, "crashed", "px", failoverExpiry.Milliseconds())
	lock()
	onMinority("del", name)
}

// judge locks names in the first process and then in the second with library l, and extends what the first holds.
func (r *failoverTrial) judge(ctx context.Context, t *testing.T, l int, fault string) {
	c := &r.counts[l]
	for i := 0; c.judged < failoverTries && ctx.Err() == nil; i++ {
		name := r.name(fmt.Sprint("job", i), fault, l)
		late := time.Since(r.movedPlain) > failoverGrace
		x := r.first.libraries[l].NewMutex(name, safety.Options{Expiry: failoverExpiry})
		y := r.second.libraries[l].NewMutex(name, safety.Options{Expiry: failoverExpiry})
		var err error
		r.crowd(t, name, func() { err = x.TryLockContext(ctx) })
		if err == nil {
			both := y.TryLockContext(ctx) == nil && time.Now().Before(x.Until())
			switch {
			case late && both:
				c.judged, c.twice = c.judged+1, c.twice+1
			case late:
				c.judged++
			case both:
				c.early++
			}
			x.UnlockContext(ctx)
			y.UnlockContext(ctx)
		}
		pause(ctx, 50*time.Millisecond)
	}
	if ok, err := r.holds[l].ExtendContext(ctx); ok && err == nil {
		c.astray = r.extended(r.holds[l], r.name("held", fault, l)) < len(r.masters)/2+1
	}
}

// extended counts the masters on which a lock lasts as long as its holder believes.
func (r *failoverTrial) extended(m safety.Mutex, name string) (count int) {
	for _, s := range r.masters {
		value, err := s.Do("get", name)
		left, err2 := s.Do("pttl", name)
		if err == nil && err2 == nil && value == m.Value() && left.(int64) >= time.Until(m.Until()).Milliseconds() {
			count++
		}
	}
	return count
}

// untilMoved asks again and again which server answers, until it is the one at an address, and returns when that was. It
// returns zero if ctx ends first.
func untilMoved(ctx context.Context, address string, port func(context.Context) string) time.Time {
	for ; ctx.Err() == nil; pause(ctx, time.Millisecond) {
		if "127.0.0.1:"+port(ctx) == address {
			return time.Now()
		}
	}
	return time.Time{}
}

// byClient asks the server of a client for its port.
func byClient(c *redis.Client) func(context.Context) string {
	return func(ctx context.Context) string { return c.ConfigGet(ctx, "port").Val()["port"] }
}

// byPool asks the server of a pool for its port.
func byPool(p pool.Pool) func(context.Context) string {
	return func(ctx context.Context) string {
		replies := make(oneReply, 1)
		if p.Send(streams.Request{Args: []any{"config", "get", "port"}, To: replies}) != nil {
			return ""
		}
		select {
		case r := <-replies:
			if pair, _ := r.Value.([]any); len(pair) == 2 {
				return fmt.Sprint(pair[1])
			}
		case <-ctx.Done():
		}
		return ""
	}
}

// oneReply receives one reply.
type oneReply chan streams.Reply

func (r oneReply) Receive(_ int, reply streams.Reply) { r <- reply }
