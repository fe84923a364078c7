package redsync_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/embedded"
	"github.com/seed14bd9ef4/redsync/internal/history"
	"github.com/seed14bd9ef4/redsync/internal/jitter"
	"github.com/seed14bd9ef4/redsync/internal/nonsense"
	"github.com/seed14bd9ef4/redsync/pool"
)

// This file is what a simulation takes place in: nodes, the ways between them and the
// processes, clocks, and what goes wrong with all of these.

const (
	simProcesses = 3
	simClients   = 3 // of each process
	simNodes     = 5
)

// A realm is what may go wrong in a simulation.
type realm string

const (
	// rough: all that the contract allows. Expiries are short.
	rough realm = "rough"
	// guarded: nodes come back without their keys as well, under the restart guard.
	guarded realm = "guarded"
	// tidy: expiries are far longer than the simulation, every hold is unlocked, and
	// nothing is executed twice. So what is left at the end was not released.
	tidy realm = "tidy"
	// lawless: a majority of nodes forgets, or its clocks jump, and nothing guards.
	lawless realm = "lawless"
)

// A simPlan is what its seed has drawn for all of it.
type simPlan struct {
	realm   realm
	lasts   time.Duration // until the clients stop
	expiry  time.Duration // of most locks
	longest time.Duration // that any key of a lock lasts
	base    time.Duration // of a message on its way
	spikes  int           // one message in so many takes far longer; 0: none
	names   []string
	fair    bool // all
	fencing bool // all; else some
	rates   bool // the nodes' clocks run at rates of their own, as far off as drift allows
	drift   float64
	clocks  string
	rest    time.Duration // between two faults, about
	class   map[string]bool
	off     int           // the node whose host is off from the start; -1: none
	offFor  time.Duration // after the start; 0: to the end
}

// The classes of what may go wrong that a plan has or has not. REDSYNC_SIM_WITHOUT lists
// those that none has.
const (
	greetings = "greetings" // clients have a user, a password and a database; nodes refuse them
	values    = "values"    // clients show the values of their locks, and others adopt these
	babble    = "nonsense"  // nodes say what no Redis says
	hurry     = "hurry"     // contexts end before any deadline
	off       = "off"       // one host is off from the start
	silence   = "silence"   // connections that stand carry nothing any more; new ones work
	requests  = "requests"  // clients make a Redsync for each Lock, and close it or never do
)

var allClasses = []string{greetings, values, babble, hurry, off, silence, requests}

// What clients have to say when they connect, with greetings.
const (
	simUser     = "locker"
	simPassword = "right"
	simDatabase = 3
)

// A simulation is five nodes and some processes in virtual time.
//
// All that happens is drawn from the seed, and in a way that does not depend on which of
// two goroutines runs first in one instant: how long a message takes follows from where
// and when it is sent, and so on. Times are of nanoseconds at random, so that two things
// hardly ever happen in one instant.
type simulation struct {
	*testing.T
	simPlan
	seed  uint64
	nodes embedded.Nodes
	start time.Time
	log   history.Log

	ways [simProcesses][simNodes]way
	calm atomic.Bool // messages take their usual time

	givenUntil [simProcesses]atomic.Int64 // the latest Until of what a process shares by its value

	restarted [simNodes]atomic.Int64 // the last time, since the start
	unready   [simNodes]atomic.Bool  // OnConnect fails
	strays    sync.Map               // keys outside of the database, by node and key
	adopters  sync.WaitGroup
	acquired  sync.Map // by value: when it was first held, since the start

	mu    sync.Mutex
	drawn struct { // from jitter
		at    time.Duration
		times uint64
	}
	processes [simProcesses]*redsync.Redsync
	clients   [simProcesses][]*redis.Client // of those who make a Redsync for each request
}

// A way is from a process to a node and back.
type way struct {
	heldUntil atomic.Int64 // nothing arrives before, on connections opened until heldFrom
	heldFrom  atomic.Int64 // both since the start
}

// holdUp is for how much longer nothing arrives on a connection opened at a time.
func (w *way) holdUp(opened, now time.Duration) time.Duration {
	if int64(opened) > w.heldFrom.Load() {
		return 0
	}
	return max(0, time.Duration(w.heldUntil.Load())-now)
}

// now returns the time since the start.
func (s *simulation) now() time.Duration { return time.Since(s.start) }

// random returns a sequence of its own for each number.
func (s *simulation) random(number uint64) *rand.Rand { return rand.New(rand.NewPCG(s.seed, number)) }

// mix is a number that follows from the seed and others.
func (s *simulation) mix(others ...uint64) uint64 {
	h := s.seed + 0x9e3779b97f4a7c15
	for _, o := range others {
		h = (h ^ o) * 0xbf58476d1ce4e5b9
		h ^= h >> 29
	}
	h *= 0x94d049bb133111eb
	return h ^ h>>32
}

func between(r *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(r.Int64N(int64(most-least)))
}

func oneIn(r *rand.Rand, n int) bool { return r.IntN(n) == 0 }

// draw makes a plan. The first thing that it draws is the realm, unless that is given.
func (p *simPlan) draw(r *rand.Rand) {
	drawn := []realm{rough, rough, guarded, tidy}[r.IntN(4)]
	if p.realm == "" {
		p.realm = drawn
	}
	p.lasts = between(r, 350*time.Millisecond, 1300*time.Millisecond)
	p.expiry = between(r, 80*time.Millisecond, 400*time.Millisecond)
	p.longest = 500 * time.Millisecond
	if p.realm == guarded {
		p.lasts += 1500 * time.Millisecond // those that restart count again
	}
	if p.realm == tidy {
		p.expiry, p.longest = 20*time.Second, 20*time.Second
	}
	p.base = between(r, 20*time.Microsecond, 2*time.Millisecond)
	p.spikes = []int{0, 30, 200}[r.IntN(3)]
	p.names = []string{"a", "b"}[:1+r.IntN(2)]
	p.fair, p.fencing, p.rates = oneIn(r, 4), oneIn(r, 3), oneIn(r, 2)
	p.drift = []float64{0.01, 0.1}[r.IntN(2)] // of 0.1 more is to be seen
	p.clocks = []string{"", "", "", "wall", "suspended"}[r.IntN(5)]
	p.rest = between(r, 20*time.Millisecond, 200*time.Millisecond)
	p.class = map[string]bool{}
	for i, class := range allClasses {
		p.class[class] = oneIn(r, 2+i/3) && !strings.Contains(os.Getenv("REDSYNC_SIM_WITHOUT"), class)
	}
	p.off = -1
	if p.class[off] {
		p.off, p.offFor = r.IntN(simNodes), between(r, p.lasts/3, p.lasts)*time.Duration(r.IntN(3))
	}
	switch {
	case p.realm == lawless:
		p.clocks, p.fencing = "", true
	case p.realm == guarded && p.clocks == "wall":
		p.clocks = "" // in a bubble the age of a server is read off the wall clock
	}
}

// delay is how long a message takes, between process i and node j.
func (s *simulation) delay(i, j int) embedded.Delay {
	opened := s.now()
	return func(toNode bool) time.Duration {
		at, direction := s.now(), uint64(0)
		if toNode {
			direction = 1
		}
		n := s.mix(uint64(i), uint64(j), direction, uint64(opened), uint64(at))
		d := s.base/2 + time.Duration(n%uint64(s.base))
		if s.calm.Load() {
			return d
		}
		if s.spikes > 0 && (n>>40)%uint64(s.spikes) == 0 {
			d *= time.Duration(2 + (n>>50)%100)
		}
		return d + s.ways[i][j].holdUp(opened, at)
	}
}

// process opens process i: it has connections of its own. The nodes that answer have just
// been started for it, where it is new.
func (s *simulation) process(i int, isNew bool) *redsync.Redsync {
	return s.redsync(s.connect(i), isNew)
}

// redsync makes a Redsync on clients.
func (s *simulation) redsync(clients []*redis.Client, isNew bool) *redsync.Redsync {
	var pools []pool.Pool
	for j, client := range clients {
		var options []pool.Option
		if s.realm == guarded {
			options = append(options, pool.WithRestartGuard(s.longest))
		}
		if isNew && j != s.off {
			options = append(options, pool.WithNewNodes())
		}
		pools = append(pools, pool.New(client, options...))
	}
	return redsync.New(pools...)
}

// request makes a Redsync for one request, on clients that process i keeps.
func (s *simulation) request(i int) *redsync.Redsync {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.clients[i] == nil {
		s.clients[i] = s.connect(i)
	}
	return s.redsync(s.clients[i], false)
}

// connect makes the clients of process i.
func (s *simulation) connect(i int) (clients []*redis.Client) {
	for j, n := range s.nodes {
		clients = append(clients, n.Client(func(opt *redis.Options) {
			opt.ReadTimeout = 400*time.Millisecond + time.Duration(s.mix(7, uint64(i), uint64(j))%uint64(600*time.Millisecond))
			opt.DialTimeout = opt.ReadTimeout
			opt.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
				return n.DialVia(s.delay(i, j))(ctx, network, addr)
			}
			if s.class[greetings] {
				opt.Username, opt.Password, opt.DB = simUser, simPassword, simDatabase
				opt.OnConnect = func(context.Context, *redis.Conn) error { return s.ready(j) }
			}
		}))
	}
	return clients
}

// ready is what clients make sure of when they have connected to a node.
func (s *simulation) ready(node int) error {
	if s.unready[node].Load() {
		return errors.New("not ready")
	}
	return nil
}

func (s *simulation) current(process int) *redsync.Redsync {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.processes[process]
}

// reopen closes process i and goes on with a new one.
func (s *simulation) reopen(i int) {
	if s.now() < time.Duration(s.givenUntil[i].Load()) {
		return // Close would unlock what it has given away by its value
	}
	s.mu.Lock()
	old := s.processes[i]
	s.processes[i] = s.process(i, false)
	s.mu.Unlock()
	_ = old.Close(s.Context()) // nodes may be away
}

// jitter is the library's randomness: it follows from the time, and where several ask in
// one instant from how many did before.
func (s *simulation) jitter(d time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at := s.now(); at != s.drawn.at {
		s.drawn.at, s.drawn.times = at, 0
	}
	s.drawn.times++
	return time.Duration(s.mix(11, uint64(s.drawn.at), s.drawn.times) % uint64(d))
}

// A step is from when on a clock of the clients' machine shows another time.
type step struct {
	at   time.Duration
	wall time.Duration // the wall clock is ahead
	lag  time.Duration // the machine was suspended for so long from at on, in which the monotonic clock stood still
}

// clockSteps are steps of a wall clock, back and forth, or a few suspensions; not both,
// for a machine that was suspended and whose wall clock is set back has no clock that is
// right.
func (s *simulation) clockSteps(r *rand.Rand) (steps []step) {
	at, wall := time.Duration(0), time.Duration(0)
	for s.clocks != "" && at < s.lasts {
		at += between(r, 50*time.Millisecond, 900*time.Millisecond)
		if s.clocks == "suspended" {
			lag := between(r, 0, 300*time.Millisecond)
			steps = append(steps, step{at: at, lag: lag})
			at += lag
			continue
		}
		wall += between(r, -400*time.Millisecond, 400*time.Millisecond)
		steps = append(steps, step{at: at, wall: wall})
	}
	return steps
}

// stepClocks makes the library read clocks with these steps.
func (s *simulation) stepClocks(steps []step) (restore func()) {
	return clock.Step(func(i clock.Instant) clock.Instant {
		at, ahead := s.now(), time.Duration(0)
		for _, st := range steps {
			if at < st.at {
				break
			}
			ahead = st.wall
			i.Mono -= min(st.lag, at-st.at)
		}
		i.Wall = i.Wall.Add(ahead)
		return i
	})
}

// What goes wrong.

// fault notes that something sets in, and afterwards that it ends.
func (s *simulation) fault(where, what string, f func()) {
	s.log.Note(history.Event{At: s.now(), Kind: history.Fault, Where: where, What: what})
	f()
}

func (s *simulation) ends(where, what string) {
	s.log.Note(history.Event{At: s.now(), Kind: history.Fault, Where: where, What: what, Ends: true})
}

// disturb makes one thing after another go wrong until a time, and puts it right again.
// No more than two nodes are away at a time, except for those that the guard keeps from
// counting, and in a lawless realm.
func (s *simulation) disturb(r *rand.Rand, until time.Duration) {
	for {
		time.Sleep(between(r, 0, 2*s.rest))
		if s.now() >= until {
			return
		}
		switch kind := r.IntN(12); {
		case s.realm == lawless && kind < 3:
			s.breakLaw(r)
		case s.realm == guarded && kind == 0 && oneIn(r, 3):
			s.restart(r, true, r.Perm(simNodes)...)
		case kind < 5:
			two := r.Perm(simNodes)[:1+r.IntN(2)]
			if s.off >= 0 {
				two = two[:1]
			}
			s.away(r, two)
		case kind == 5:
			s.separate(r)
		case kind == 6 && oneIn(r, 4) && s.realm != tidy: // Close leaves keys on nodes that are away
			i := r.IntN(simProcesses)
			s.fault(fmt.Sprintf("process %d", i), "closed and opened", func() { s.reopen(i) })
		case kind == 7 && s.class[greetings]:
			s.refuse(r)
		case kind == 8 && s.class[babble]:
			s.babble(r)
		case kind == 9 && s.class[silence]:
			s.forget(r.Perm(simNodes)[:1+r.IntN(simNodes)])
		default:
			s.disturbCommands(r)
		}
	}
}

// away makes nodes go away for a while.
func (s *simulation) away(r *rand.Rand, nodes []int) {
	if oneIn(r, 3) {
		s.restart(r, s.realm == guarded && oneIn(r, 2), nodes...)
		return
	}
	for _, i := range nodes {
		if oneIn(r, 3) {
			s.fault(node(i), "disconnected", s.nodes[i].Disconnect)
			continue
		}
		s.fault(node(i), "frozen", s.nodes[i].Freeze)
	}
	time.Sleep(between(r, 0, 500*time.Millisecond))
	for _, i := range nodes {
		s.nodes[i].ThawInTurn()
		s.ends(node(i), "frozen")
		time.Sleep(between(r, 0, time.Millisecond))
	}
}

// restart kills nodes and starts them again, without their data if empty.
func (s *simulation) restart(r *rand.Rand, empty bool, nodes ...int) {
	for _, i := range nodes {
		s.fault(node(i), "killed", s.nodes[i].Kill)
		time.Sleep(between(r, 0, time.Millisecond))
	}
	time.Sleep(between(r, 0, 200*time.Millisecond))
	for _, i := range nodes {
		s.nodes[i].Restart(empty)
		s.restarted[i].Store(int64(s.now()))
		s.ends(node(i), fmt.Sprintf("killed, empty %v", empty))
		time.Sleep(between(r, 0, time.Millisecond))
	}
}

// separate holds up what is sent between a process and some nodes, or all. Then these
// may lose their connections, and what is sent over the next ones overtakes it.
func (s *simulation) separate(r *rand.Rand) {
	i, lasts := r.IntN(simProcesses), between(r, 0, 300*time.Millisecond)
	some := r.Perm(simNodes)[:1+r.IntN(simNodes)]
	s.fault(fmt.Sprintf("process %d", i), fmt.Sprintf("cut off for %v", lasts), func() {
		for _, j := range some {
			s.ways[i][j].heldFrom.Store(int64(s.now()))
			s.ways[i][j].heldUntil.Store(int64(s.now() + lasts))
		}
	})
	if oneIn(r, 2) {
		return
	}
	time.Sleep(between(r, 0, lasts+1))
	for _, j := range some {
		s.fault(node(j), "disconnected", s.nodes[j].Disconnect)
		time.Sleep(between(r, 0, time.Millisecond))
	}
}

// refuse makes nodes lose their connections, and refuse whoever connects, for a while: by
// the password, by SELECT, or by what the client makes sure of. The default user is open,
// and so is database 0.
func (s *simulation) refuse(r *rand.Rand) {
	kind, some := r.IntN(3), r.Perm(simNodes)[:1+r.IntN(simNodes)]
	for _, i := range some {
		switch kind {
		case 0:
			s.fault(node(i), "password changed", func() { s.nodes[i].SetUser(simUser, "changed") })
		case 1:
			times := 1 + r.IntN(30)
			s.fault(node(i), fmt.Sprintf("refuses SELECT %d times", times), func() {
				s.nodes[i].On("select", times, embedded.Fault{Err: "NOPERM this user has no permissions to run the 'select' command"})
			})
		default:
			s.fault(node(i), "not ready", func() { s.unready[i].Store(true) })
		}
		s.fault(node(i), "disconnected", s.nodes[i].Disconnect)
		time.Sleep(between(r, 0, time.Millisecond))
	}
	time.Sleep(between(r, 0, 500*time.Millisecond))
	for _, i := range some {
		s.welcome(i)
		s.ends(node(i), "refuses who connects")
		time.Sleep(between(r, 0, time.Millisecond))
	}
}

// welcome lets a node greet those who connect as they expect it, but for SELECT.
func (s *simulation) welcome(i int) {
	s.nodes[i].SetUser(simUser, simPassword)
	s.unready[i].Store(false)
}

// babble makes a node talk nonsense, to those who connect or to those who are connected.
func (s *simulation) babble(r *rand.Rand) {
	i, bursts := r.IntN(simNodes), make([]nonsense.Outburst, 1+r.IntN(4))
	for k := range bursts {
		bursts[k] = nonsense.Draw(r)
		s.fault(node(i), bursts[k].String(), func() { s.nodes[i].Babble(bursts[k]) })
	}
	if oneIn(r, 2) {
		s.fault(node(i), "disconnected", s.nodes[i].Disconnect)
	}
}

// forget makes all connections of some nodes fall silent at once.
func (s *simulation) forget(nodes []int) {
	for _, i := range nodes {
		s.fault(node(i), "connections are forgotten", s.nodes[i].Forget)
	}
}

// turnOff lets a host be off from the start, for as long as the plan says.
func (s *simulation) turnOff() {
	if s.off < 0 {
		return
	}
	s.fault(node(s.off), "off", s.nodes[s.off].TurnOff)
	if s.offFor > 0 {
		time.AfterFunc(s.offFor, func() {
			s.nodes[s.off].Heal()
			s.ends(node(s.off), "off")
		})
	}
}

// disturbCommands makes a node do something odd with some of the next commands.
func (s *simulation) disturbCommands(r *rand.Rand) {
	i, command := r.IntN(simNodes), []string{"set", "evalsha"}[r.IntN(2)]
	if s.fair || s.fencing {
		command = "evalsha"
	}
	times, d := 1+r.IntN(3), between(r, 1, 60*time.Millisecond)
	n := s.nodes[i]
	on := func(what string, f embedded.Fault) {
		s.fault(node(i), fmt.Sprintf("%s of the next %d %s", what, times, command), func() { n.On(command, times, f) })
	}
	switch kind := r.IntN(6); {
	case kind == 0:
		on("loses the replies", embedded.Fault{LoseReply: true})
	case kind == 1:
		on("loses the commands", embedded.Fault{LoseCommand: true})
	case kind == 2:
		on("delays", embedded.Fault{Delay: d})
	case kind == 3 && s.realm != tidy:
		on("executes twice", embedded.Fault{Again: 4 * d})
	case kind == 4 && command == "evalsha":
		on("knows no script", embedded.Fault{Err: "NOSCRIPT No matching script"})
	default:
		s.fault(node(i), "loses messages", func() { n.LoseMessages(times) })
	}
}

// breakLaw makes a majority forget what it has granted.
func (s *simulation) breakLaw(r *rand.Rand) {
	most := r.Perm(simNodes)[:3+r.IntN(3)]
	if oneIn(r, 2) {
		s.restart(r, true, most...)
		return
	}
	for _, i := range most {
		by := between(r, s.expiry/2, 2*s.expiry)
		s.fault(node(i), fmt.Sprintf("clock set forward by %v", by), func() { s.nodes[i].SetClock(by, 1) })
	}
}

// heal puts right whatever is wrong still, but for a host that is off to the end. The last
// connections may fall silent here: the locks must be free in time all the same.
func (s *simulation) heal() {
	for i, n := range s.nodes {
		if i != s.off || s.offFor > 0 {
			n.Heal()
		}
	}
	if s.class[silence] {
		s.forget([]int{0, 1, 2, 3, 4})
	}
	s.calm.Store(true)
	s.ends("all", "everything")
}

func node(i int) string { return fmt.Sprintf("node %d", i) }

// What is seen from outside.

// look notes the keys of all nodes.
func (s *simulation) look() {
	for i, n := range s.nodes {
		n.Follow()
		for _, key := range n.Keys() {
			e := history.Event{At: s.now(), Kind: history.Key, Node: i, Key: key, TTL: n.TTL(key)}
			if e.TTL == 0 && n.Exists(key) {
				e.TTL = history.NoTTL
			}
			if !strings.HasPrefix(key, "{") {
				e.Name = key
			}
			s.log.Note(e)
		}
		s.lookForStrays(i)
	}
}

// lookForStrays notes keys of a node that somebody has set whose greeting was refused.
func (s *simulation) lookForStrays(i int) {
	if !s.class[greetings] {
		return
	}
	for _, key := range s.nodes[i].DB(0).Keys() {
		what := fmt.Sprintf("%s has %q in database 0", node(i), key)
		if _, noted := s.strays.LoadOrStore(what, true); !noted {
			s.log.Note(history.Event{At: s.now(), Kind: history.Broken, Err: what})
		}
	}
}

// watch looks again and again.
func (s *simulation) watch(ctx context.Context, r *rand.Rand) {
	for ctx.Err() == nil {
		s.look()
		time.Sleep(between(r, 0, 100*time.Millisecond))
	}
}

// atRest is a Fault: from now on nothing may be left.
const atRest = "at rest"

// simulate runs one simulation and returns its history.
func simulate(t *testing.T, seed uint64, in realm) (*simulation, []history.Event) {
	t.Helper()
	s := &simulation{T: t, seed: seed}
	s.realm = in
	s.draw(s.random(1))
	cryptotest.SetGlobalRandom(t, seed) // values, and by which names the nodes know processes
	formerSource := jitter.Source
	defer func() { jitter.Source = formerSource }()
	jitter.Source = s.jitter
	// What fails in the bubble ends the test with it: then the history is told here.
	returned := false
	defer func() {
		if s.T = t; !returned {
			t.Log(tell(s.log.Events()))
			s.check(t, s.log.Events())
		}
	}()
	synctest.Test(t, func(t *testing.T) {
		s.T = t
		s.start = time.Now()
		s.run()
	})
	returned = true
	return s, s.log.Events()
}

// run is a simulation from beginning to end, in its bubble.
func (s *simulation) run() {
	defer s.stepClocks(s.clockSteps(s.random(2)))()
	s.nodes = embedded.Start(simNodes)
	for i, n := range s.nodes {
		s.welcome(i)
		if s.class[greetings] {
			n.Select(simDatabase)
		}
	}
	s.turnOff()
	defer func() {
		s.nodes.Close()
		time.Sleep(time.Minute) // what ends by itself has ended
	}()
	s.open()
	defer func() {
		for _, rs := range s.processes {
			_ = rs.Close(s.Context())
		}
	}()
	s.play()
	s.quiesce()
}

// open starts the processes, which get to know the nodes while nothing goes wrong.
func (s *simulation) open() {
	s.calm.Store(true)
	r := s.random(3)
	if s.rates {
		for _, n := range s.nodes {
			n.SetClock(0, 1+0.95*s.drift*(1-2*r.Float64()))
		}
	}
	for i := range s.processes {
		s.processes[i] = s.process(i, true)
		m := s.processes[i].NewMutex("meet", redsync.WithExpiry(s.longest), redsync.WithNodeTimeout(s.longest/3), redsync.WithDriftFactor(s.drift))
		assert.NoError(s, m.Lock())
		_, err := m.Unlock()
		assert.NoError(s, err)
		if oneIn(r, 3) && s.realm != lawless { // its proposals are those of a clock that is ahead
			ahead := between(r, 0, 6*time.Second)
			for _, name := range s.names {
				redsync.KnowsToken(s.processes[i], name, uint64(time.Now().Add(ahead).UnixMicro()))
			}
		}
	}
	s.calm.Store(false)
}

// play lets the clients play, and things go wrong, until the time is over.
func (s *simulation) play() {
	ctx, cancel := context.WithCancel(s.Context())
	defer cancel()
	var clients, others sync.WaitGroup
	others.Go(func() { s.watch(ctx, s.random(4)) })
	others.Go(func() { s.disturb(s.random(5), s.lasts) })
	for i := range simProcesses * simClients {
		c := &simClient{simulation: s, process: i % simProcesses, name: fmt.Sprintf("%d.%d", i%simProcesses, i/simProcesses), random: s.random(uint64(100 + i))}
		clients.Go(c.run)
	}
	clients.Wait()
	s.adopters.Wait()
	cancel()
	others.Wait()
}

// quiesce waits until nothing is left, and looks that it is so: every lock is free, no
// key of one is there, and nobody waits.
func (s *simulation) quiesce() {
	s.heal()
	if s.realm == guarded {
		time.Sleep(s.longest*3/2 + 1100*time.Millisecond)
	}
	for _, name := range s.names {
		ctx, cancel := context.WithTimeout(s.Context(), 3*time.Second)
		m := s.current(0).NewMutex(name, redsync.WithTries(0), redsync.WithExpiry(s.longest), redsync.WithDriftFactor(s.drift))
		assert.NoError(s, m.LockContext(ctx), "%s is free in the end", name)
		_, err := m.Unlock()
		assert.NoError(s, err)
		cancel()
	}
	time.Sleep(2500 * time.Millisecond) // a release is repeated every second
	s.log.Note(history.Event{At: s.now() - 1, Kind: history.Fault, Where: "all", What: atRest})
	s.look()
	s.nobodyWaits()
	s.queueUp()
	time.Sleep(100 * time.Millisecond) // far less than the queues' own TTL
	s.nobodyWaits()
}

// queueUp lets all processes want a lock at once, some in vain.
func (s *simulation) queueUp() {
	var all sync.WaitGroup
	for i := range simProcesses * 2 {
		r := s.random(uint64(200 + i))
		patience := 3 * time.Second
		if i >= simProcesses {
			patience = between(r, 0, 30*time.Millisecond)
		}
		all.Go(func() {
			time.Sleep(between(r, 0, 10*time.Millisecond))
			ctx, cancel := context.WithTimeout(s.Context(), patience)
			defer cancel()
			m := s.current(i%simProcesses).NewMutex(s.names[0], redsync.WithTries(0), redsync.WithExpiry(s.longest), redsync.WithDriftFactor(s.drift))
			if m.LockContext(ctx) == nil {
				time.Sleep(between(r, 0, 40*time.Millisecond))
				_, err := m.Unlock()
				assert.NoError(s, err)
			}
		})
	}
	all.Wait()
}

func (s *simulation) nobodyWaits() {
	for i, n := range s.nodes {
		n.Follow()
		for _, key := range n.Keys() {
			assert.False(s, strings.HasSuffix(key, ":queue"), "somebody waits still: %s on node %d", key, i)
		}
	}
}
