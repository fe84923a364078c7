package redsync_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
	"github.com/seed14bd9ef4/redsync/observe"
	"github.com/seed14bd9ef4/redsync/pool"
)

// This file tests that a known bad node of five delays no operation of a holder.

// bad is the node that fails.
const bad = 1

// A badness is a fault of one node. It lasts until the context of the scene ends.
type badness struct {
	name  string
	comes bool // the node is bad and good in turn
	begin func(s *scene)
}

var badnesses = []badness{
	{"silent", false, func(s *scene) { s.freeze(bad) }},
	{"slow", false, func(s *scene) { s.late.Store(int64(sec)) }}, // each way
	{"refusing", false, func(s *scene) {
		for _, command := range []string{"set", "evalsha", "eval", "subscribe"} {
			s.nodes[bad].On(command, 1<<20, embedded.Fault{Err: "LOADING Redis is loading the dataset in memory"})
		}
	}},
	{"out of memory", false, func(s *scene) {
		s.nodes[bad].On("set", 1<<20, embedded.Fault{Err: "OOM command not allowed when used memory > 'maxmemory'."})
	}},
	{"down", false, func(s *scene) { s.kill(bad) }},
	{"dials hang", false, func(s *scene) { s.nodes[bad].TurnOff() }},
	{"restarting", true, func(s *scene) { s.every(func() { s.kill(bad) }, func() { s.restart(bad) }) }},
	{"freezing", true, func(s *scene) { s.every(func() { s.freeze(bad) }, func() { s.thaw(bad) }) }},
	{"connections end", true, func(s *scene) { s.every(s.nodes[bad].Disconnect) }},
	{"connections are forgotten", true, func(s *scene) { s.every(s.nodes[bad].Forget) }},
}

// A holding is how a lock is held, and how the next holder waits for it.
type holding struct {
	name           string
	holder, waiter opts
	pool           []pool.Option
	several, joint bool
	beside         bool // the process has another permit all the time
}

var holdings = []holding{
	{name: "plain"},
	{name: "fenced", holder: opts{withFencing}, waiter: opts{withFencing}},
	{name: "fair", holder: opts{withFair}, waiter: opts{withFair}},
	{name: "reader before writer", holder: opts{withShared}},
	{name: "writer before reader", waiter: opts{withShared}},
	{
		name: "permits", beside: true,
		holder: opts{withPermits(2)}, waiter: opts{withPermits(2)},
	},
	{name: "several names", several: true},
	{name: "joint sets", joint: true},
	{name: "restart guard", pool: []pool.Option{pool.WithRestartGuard(minute), newNodes}},
}

// A scene is a field whose messages take 2 to 3 ms each way.
type scene struct {
	field
	holding
	options opts         // of all locks
	late    atomic.Int64 // how much longer a message to or from the bad node takes
	over    atomic.Bool  // the fault ends

	mu   sync.Mutex
	rand *rand.Rand
	took map[string][]time.Duration // by operation
}

func (s *scene) random(n time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Duration(s.rand.Int64N(int64(n)))
}

// every does each step in turn, with 50 to 100 ms in between.
func (s *scene) every(steps ...func()) {
	go func() {
		for i := 0; !s.over.Load(); i++ {
			steps[i%len(steps)]()
			sleep(50*ms + s.random(50*ms))
		}
	}()
}

// remote returns a process that the delays apply to.
func (s *scene) remote() *redsync.Redsync {
	var clients []*redis.Client
	for i, n := range s.nodes {
		clients = append(clients, n.Client(func(o *redis.Options) {
			o.Dialer = n.DialVia(func(bool) time.Duration {
				delay := 2*ms + s.random(ms)
				if i == bad {
					delay += time.Duration(s.late.Load())
				}
				return delay
			})
		}))
	}
	rs := on(clients, s.pool...)
	if s.joint {
		pools := poolsOf(clients)
		rs = redsync.NewJoint(pools, pools[1:])
	}
	s.closes(rs)
	return rs.With(append(s.options, forever)...)
}

// of returns a lock of a process.
func (s *scene) of(rs *redsync.Redsync, options ...redsync.Option) *redsync.Mutex {
	if s.several {
		return rs.NewMultiMutex([]string{"lock", "second", "third"}, options...)
	}
	return rs.NewMutex("lock", options...)
}

// holds returns a lock that is held.
func (s *scene) holds(rs *redsync.Redsync, options ...redsync.Option) *redsync.Mutex {
	return locked(s, s.of(rs, append(slices.Clone(s.holder), options...)...))
}

// note notes how long an operation took.
func (s *scene) note(operation string, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.took[operation] = append(s.took[operation], took)
}

// measures notes how long do takes.
func (s *scene) measures(operation string, do func()) {
	start := time.Now()
	do()
	s.note(operation, time.Since(start))
}

// times notes how long an operation takes, which must succeed.
func (s *scene) times(name string, operation func() (bool, error)) {
	s.measures(name, func() { s.confirms(operation()) })
}

// extended notes how long an extension of a watchdog took.
func (s *scene) extended(_ context.Context, e observe.Extended) {
	if e.Watchdog && e.Err == nil {
		s.note("watchdog", e.Took)
	}
}

// holdAndHandOver notes how long the operations of one hold take, and how long after Unlock a waiter in the process
// next gets the lock.
func (s *scene) holdAndHandOver(rs, next *redsync.Redsync, handOver string) {
	m := s.holds(rs)
	waiter := s.begins(s.of(next, patient(s.waiter...)...))
	sleep(8 * ms) // less than the time for which a lock is handed over directly
	if rs != next {
		sleep(s.random(300 * ms))
		s.times("Extend", m.Extend)
		s.times("Valid", m.Valid)
	}
	s.handsOver(m, waiter, handOver)
}

// handOverDuringAttempt notes how long a waiter waits that makes its attempt while the lock is unlocked.
func (s *scene) handOverDuringAttempt(rs, next *redsync.Redsync) {
	m := s.holds(rs)
	sleep(10 * ms) // all nodes have it
	waiter := s.begins(s.of(next, patient(s.waiter...)...))
	sleep(s.random(8 * ms))
	s.handsOver(m, waiter, "hand-over during an attempt")
}

// handsOver notes how long Unlock of m takes, and after it the Lock of a waiter.
func (s *scene) handsOver(m *redsync.Mutex, waiter *call, handOver string) {
	start := time.Now()
	_, _ = m.Unlock() // its outcome may be unknown, if the bad node was needed for the quorum and its connection breaks
	s.note("Unlock", time.Since(start))
	<-waiter.done
	require.NoError(s, waiter.err)
	s.note(handOver, waiter.at.Sub(start))
	_, _ = waiter.Unlock()
	sleep(10*ms + s.random(100*ms))
}

// holdToTheEnd notes how long after its Until a hold is lost.
func (s *scene) holdToTheEnd(rs *redsync.Redsync) {
	m := s.holds(rs)
	until := m.Until()
	<-m.Lost()
	s.note("Lost at Until", time.Since(until))
	sleep(drift + sec)
}

// loseToAThief notes how long the extensions of a watchdog take, and how long after a theft the hold is lost.
func (s *scene) loseToAThief(rs *redsync.Redsync) {
	m := s.holds(rs, withWatchdog, withHooks(&observe.Hooks{Extended: s.extended}))
	sleep(m.Remaining() * 3 / 4) // two extensions
	s.steal()
	s.measures("Lost after a theft", func() { <-m.Lost() })
	for _, operation := range []string{"Extend", "Valid"} {
		m := s.holds(rs)
		sleep(10 * ms)
		s.steal()
		s.measures(operation+" after a theft", func() { failsWith(s, operations(m)[operation], redsync.ErrLockLost) })
		require.False(s, open(m.Lost()))
	}
	sleep(s.random(100 * ms))
}

// steal deletes all locks.
func (s *scene) steal() {
	for _, n := range s.nodes {
		for _, key := range n.Keys() {
			if !strings.HasSuffix(key, ":queue") && !strings.HasSuffix(key, ":fence") {
				n.Del(key)
			}
		}
	}
}

// giveAway notes how long it takes to give a lock to another process, and to use it there.
func (s *scene) giveAway(rs, next *redsync.Redsync) {
	m := s.holds(rs)
	sleep(10 * ms)
	var given redsync.Sequencer
	s.measures("Detach, all nodes", func() { given = s.detaches(m) })
	adopted := s.of(next, append(slices.Clone(s.holder), withSequencer(given))...)
	s.times("Extend, adopted", adopted.Extend)
	s.times("Unlock, adopted", adopted.Unlock)
}

// callFunctions notes how long Do and Downgrade take, and readers beside it.
func (s *scene) callFunctions(rs *redsync.Redsync) {
	s.measures("Do", func() { require.NoError(s, s.of(rs, s.holder...).Do(s.Context(), nothing)) })
	sleep(10 * ms)
	if len(s.holder)+len(s.waiter) == 0 && !s.several {
		m := s.holds(rs)
		s.measures("Downgrade", func() { s.downgrades(m) })
		reader := rs.NewMutex("lock", withShared)
		s.measures("Lock, of a second reader", func() { locked(s, reader) })
		s.unlock(m)
		s.times("Unlock, of the last reader", reader.Unlock)
	}
	sleep(10 * ms)
}

// waitForAll notes how long operations take that wait for all nodes.
func (s *scene) waitForAll(rs *redsync.Redsync) {
	m := s.holds(rs, hearsAll)
	s.times("Extend, all nodes", m.Extend)
	s.times("Valid, all nodes", m.Valid)
	s.times("Unlock, all nodes", m.Unlock)
}

// closeHeld notes how long Close takes while locks are held.
func (s *scene) closeHeld() {
	rs := s.remote()
	for i := range 5 {
		locked(s, rs.NewMutex(fmt.Sprint("closed", i), s.holder...))
	}
	sleep(sec)
	s.measures("Close", func() { _ = rs.Close(s.Context()) })
}

// plays returns how long the operations of holders take beside a bad node, in order. Nothing fails if begin is nil.
func (h holding) plays(t *testing.T, begin func(*scene), options ...redsync.Option) (took map[string][]time.Duration) {
	play(t, func(f field) {
		s := &scene{
			field: f, holding: h, options: options, took: map[string][]time.Duration{},
			rand: rand.New(rand.NewPCG(1, 2)), //nolint:gosec // a test repeats itself
		}
		a, b := s.remote(), s.remote()
		s.meets(a, b)
		if s.beside {
			s.holds(a, withWatchdog)
		}
		if begin != nil {
			begin(s)
		}
		s.learns(a, b)
		for range testlength.InGate(2, 2, 6, 100) {
			s.holdAndHandOver(a, b, "hand-over to another process")
			s.holdAndHandOver(a, a, "hand-over inside the process")
			s.handOverDuringAttempt(a, b)
		}
		for range testlength.InGate(1, 1, 2, 20) {
			s.holdToTheEnd(a)
			if !s.beside {
				s.loseToAThief(a)
			}
			s.waitForAll(a)
			s.giveAway(a, b)
			s.callFunctions(a)
		}
		for range testlength.Of(1, 1, 5) {
			s.closeHeld()
		}
		s.over.Store(true)
		sleep(sec)
		f.nodes[bad].Heal()
		f.restart(bad)
		synctest.Wait()
		took = s.took
	})
	for _, all := range took {
		slices.Sort(all)
	}
	return took
}

// meets makes the processes meet the nodes.
func (s *scene) meets(processes ...*redsync.Redsync) {
	for _, rs := range processes {
		user{s.T, rs}.meet()
	}
	sleep(5 * sec)
}

// A node that is bad and good in turn is not always known to be bad when a round begins. Then a split costs the
// patience for it. If the node has answered within 100 ms before, it counts as far, and the patience is 125 ms at most.
// A waiter that tries again, because it has heard the node again, is not handed the lock directly.
const surprise = 125 * ms

// limit returns how long an operation may take beside a bad node if it takes without without one.
func (b badness) limit(operation string, percent int, without, deadline time.Duration) time.Duration {
	limit := without*12/10 + 5*ms
	if operation == "Close" || strings.HasSuffix(operation, ", all nodes") {
		limit += deadline + 5*ms // it begins when the last of the other nodes has answered
	}
	if b.comes && percent > 50 {
		limit += surprise
	}
	return limit
}

// learns makes the processes know the bad node: their votes are split, and they wait for that node in vain.
func (s *scene) learns(processes ...*redsync.Redsync) {
	taken := []int{2, 3}
	if s.joint {
		taken = taken[:1] // two refusals decide by themselves: the second set has four nodes
	}
	for _, i := range taken {
		require.NoError(s, s.nodes[i].Set("taken", "by another"))
	}
	for _, rs := range processes {
		sleep(10 * ms)                                     // nothing is left of the attempts of the former process
		if m := rs.NewMutex("taken"); m.TryLock() == nil { // the node is good, at least now
			_, _ = m.Unlock()
		}
	}
	s.meets(processes...)
	for _, i := range taken {
		s.nodes[i].Del("taken")
	}
	s.meets(processes...)
}

func TestBadNodeDelaysNoOperationOfAHolder(t *testing.T) {
	parallelComputing(t)
	testlength.NotShort(t)
	t.Run("short node deadlines", func(t *testing.T) { playBadNodes(t, patience) })
	t.Run("long node deadlines", func(t *testing.T) {
		playBadNodes(t, 3*sec, withExpiry(minute), withNodeTimeout(3*sec))
	})
}

// playBadNodes plays ways to hold a lock beside bad nodes: at night, each way beside each node; at the gate, the plain way
// beside each, and the others beside some. At normal length each way and each node is played.
func playBadNodes(t *testing.T, deadline time.Duration, options ...redsync.Option) {
	isPlayed := func(i, j int) bool {
		switch at := i + j + len(options); testlength.InGate(0, 1, 2, 3) {
		case 0:
			return options == nil && i%3 == 0 && at%10 == 0
		case 1:
			return at%10 == 0 && i%2 == len(options)/2
		case 2:
			return i == 0 || at%5 == 0
		}
		return true
	}
	for i, h := range holdings {
		t.Run(h.name, func(t *testing.T) {
			parallelComputing(t)
			var control map[string][]time.Duration
			for j, b := range badnesses {
				if !isPlayed(i, j) {
					continue
				}
				if control == nil {
					control = h.plays(t, nil, options...)
				}
				t.Run(b.name, func(t *testing.T) {
					for operation, took := range h.plays(t, b.begin, options...) {
						for _, percent := range []int{50, 99} {
							without := percentile(control[operation], percent)
							assert.LessOrEqual(t, percentile(took, percent), b.limit(operation, percent, without, deadline),
								"%s takes longer at percentile %d; without a bad node it takes %v", operation, percent, without)
						}
					}
				})
			}
		})
	}
}

// percentile returns the smallest duration that percent of the sorted durations do not exceed.
func percentile(sorted []time.Duration, percent int) time.Duration {
	return sorted[(len(sorted)*percent+99)/100-1]
}
