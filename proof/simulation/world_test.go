package simulation

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
	"github.com/seed14bd9ef4/redsync/internal/wire"
	"github.com/seed14bd9ef4/redsync/pool"
	"github.com/seed14bd9ef4/redsync/proof/history"
)

// This file has the world of a simulation: nodes, processes, the connections between them, and
// clocks.

const (
	simProcesses = 3 // at a time, except while one takes the place of another
	simClients   = 3 // of each process
	simNodes     = 5 // of a set that does not change
	mostNodes    = 15
)

// A realm says what may go wrong in a simulation.
type realm string

const (
	// rough: all that the contract allows. Expiries are short.
	rough realm = "rough"
	// guarded: as rough, and nodes may also restart without their keys. They have the restart guard.
	guarded realm = "guarded"
	// tidy: expiries are far longer than the simulation, every hold is unlocked, and
	// nothing is executed twice. So a key that is left at the end was not released.
	tidy realm = "tidy"
	// lawless: a majority of nodes loses its keys, or its clocks jump, and there is no restart guard.
	lawless realm = "lawless"
	// changing: the set of nodes changes while clients lock. Otherwise as in rough.
	changing realm = "changing"
	// unjoined: the set changes, and no process has both sets.
	unjoined realm = "unjoined"
	// hasty: the set changes, and nobody waits for the keys of processes that have ended.
	hasty realm = "hasty"
)

// A scene is what a test asks of a simulation. The zero value leaves everything to the seed.
type scene struct {
	realm   realm
	with    string  // classes that the plan always has
	mistake mistake // for a control: the checks must find it
}

// A mistake is made by all nodes or all clients.
type mistake string

// The mistakes with several names.
const (
	// inPart: a node grants a lock on several names as soon as one of them is free, and sets the keys of the free ones.
	inPart mistake = "granted in part"
	// firstAlone: a release of several names deletes the first key alone.
	firstAlone mistake = "released in part"
)

// inTwoSteps: a downgrade deletes the writer's key, and then adds a reader.
const inTwoSteps mistake = "downgraded in two steps"

// The mistakes with permits.
const (
	// counted: each node grants any free permit. A client counts the nodes that have granted it one, not necessarily
	// the same one.
	counted mistake = "counted on each node"
	// strays: nobody gives back what a node has granted beyond the permits that a client has won.
	strays mistake = "strays are kept"
)

// The mistakes of looks.
const (
	// silentIsFree: nodes that are silent have no value.
	silentIsFree mistake = "silent nodes have nothing"
	// anyLabel: each holder has one and the same owner.
	anyLabel mistake = "any label"
)

// forgets: processes forget at once which values they have used.
const forgets mistake = "used values are forgotten"

// rewrites says what a mistake replaces in the scripts. Mistakes that are not listed are made by clients.
var rewrites = map[mistake]*strings.Replacer{
	inPart: strings.NewReplacer("\nlocal done = 0\n", `
local present = {}
for i = 1, k do
  present[i] = mine[i] or k > 1 and redis.call('EXISTS', KEYS[i]) == 1 and KEYS[i]
  if k > 1 and not present[i] then wait, by = 0, {} end
end
local done = 0
`, "setAll(k, mine)", "setAll(k, present)"),
	firstAlone: strings.NewReplacer("call('DEL', unpack(mine))", "call('DEL', mine[1])"),
	strays: strings.NewReplacer("if #mine > 0 then v", "if #mine > 0 and ARGV[3] == '0' then v",
		"#mine > 0 and redis", "#mine > 0 and ARGV[3] == '0' and redis"),
}

// rewrite returns the script that a node runs in place of the one that it has got.
func (s *simulation) rewrite(script string) string {
	mistaken, ok := rewrites[s.asked.mistake]
	if !ok {
		return script
	}
	rewritten := mistaken.Replace(script)
	if rewritten != script {
		s.rewritten.Store(true)
	}
	return rewritten
}

// changes reports whether the set of nodes changes.
func (r realm) changes() bool { return r == changing || r == unjoined || r == hasty }

// A simPlan is what a simulation draws from its seed before it begins.
type simPlan struct {
	realm   realm
	lasts   time.Duration // until the clients stop
	expiry  time.Duration // of most locks
	longest time.Duration // that any key of a lock lasts
	base    time.Duration // of a message on its way
	spikes  int           // one message in so many takes far longer; 0: none
	names   []string
	sets    [][]int // the nodes, one set after the other
	fair    bool    // all locks are fair
	fencing bool    // all locks have fencing; otherwise some have
	rates   bool    // the nodes' clocks run at rates of their own, as far off as drift allows
	drift   float64
	clocks  string        // "wall": the clients' wall clock steps; "suspended": their machine is suspended; "": neither
	rest    time.Duration // between two faults, about
	class   map[string]bool
	off     int           // the node whose host is off from the start; -1: none
	offFor  time.Duration // after the start; 0: to the end
	healing bool          // the options of alike include WithSetNXOnExtend
	permits []int         // by process: how many permits each name has
	heavy   bool          // clients want one to three permits at once, and all are fair
	least   time.Duration // WithMinHold
	joined  bool          // of a change: once only joint processes run, one of them locks each name: see lockEach
}

// A class is something that clients may do or that may go wrong. Each plan has some of the classes. REDSYNC_SIM_WITHOUT
// lists the classes that no plan has, and REDSYNC_SIM_WITH those that every plan has.
const (
	greetings = "greetings" // clients have a user, a password and a database; nodes sometimes refuse them
	values    = "values"    // clients show the values of their locks, and others adopt these
	babble    = "nonsense"  // nodes send replies that no Redis sends
	hurry     = "hurry"     // contexts end before any node deadline
	off       = "off"       // one host is off from the start
	silence   = "silence"   // all open connections of a node go silent; new ones work
	requests  = "requests"  // clients make a Redsync for each Lock, and may close it
	several   = "several"   // clients lock two to four of a few names at once
	readers   = "readers"   // clients lock single names shared, or downgrade them
	permits   = "permits"   // clients take permits of single names, beside the locks of these
	leaders   = "leaders"   // clients campaign for single names
	nesting   = "nesting"   // clients call Do within Do
	ticks     = "ticks"     // clients try at the ticks of a schedule, with WithMinHold
	dials     = "dials"     // with off: the host that is off comes back 5 s after the clients have stopped; never drawn
	closing   = "closing"   // processes are closed and opened all the time, and jobs come at any time; never drawn
	shorter   = "shorter"   // holders have other processes extend their locks for a shorter time; never drawn
	fast      = "fast"      // the nodes' clocks run as fast as drift allows, and holders stay to the end; never drawn
	owners    = "owners"    // the values of many locks say an owner, of which each client has two; never drawn
	lookers   = "lookers"   // clients look who holds, and the values of many locks say an owner; never drawn
	forcers   = "forcers"   // clients release the locks of others by force, and the values of many say an owner; never drawn
	constants = "constants" // all locks of a process have one value, which nobody shows; never drawn
	native    = "native"    // nodes are newer servers, whose commands stand for scripts, and processes die; never drawn
	unpolled  = "unpolled"  // nothing fails, and nobody polls: only wake-ups help those who wait; never drawn
)

var allClasses = []string{greetings, values, babble, hurry, off, silence, requests, several, readers, permits, leaders, nesting, ticks}

// With the class greetings, clients send these when they connect.
const (
	simUser     = "locker"
	simPassword = "right"
	simDatabase = 3
)

// A simulation is some nodes and some processes in virtual time.
//
// Everything that happens is drawn from the seed. The result does not depend on which of two
// goroutines runs first in one instant: for example, the delay of a message follows from where
// and when it is sent. Times are random to the nanosecond, so that two things hardly ever happen
// in one instant.
type simulation struct {
	*testing.T
	simPlan
	asked scene
	seed  uint64
	nodes embedded.Nodes
	start time.Time
	log   history.Log
	waits history.Log // what package history needs to judge waits; apart, so that log has only what clients believe

	ways [simProcesses][mostNodes]way
	calm atomic.Bool // messages take their usual time, and never longer

	givenUntil [simProcesses]atomic.Int64 // until then a process may share a hold by its value: see given

	restarted     [mostNodes]atomic.Int64 // when the node last restarted, since the start
	unready       [mostNodes]atomic.Bool  // OnConnect fails
	leaving       [mostNodes]atomic.Bool  // no process uses the node any more
	strays        sync.Map                // keys outside of the database, by node and key
	adopters      sync.WaitGroup
	retiring      sync.WaitGroup
	deployed      atomic.Bool    // all processes have the last set
	acquired      sync.Map       // by value: when a client first held with it, since the start
	unlockedHolds sync.Map       // by the ID of the first term: see checkUnlocked
	together      atomic.Int64   // readers that shared a hold of their process
	nested        atomic.Int64   // calls that joined the hold of a Do around them
	rewritten     atomic.Bool    // a mistake has changed a script
	version       [mostNodes]int // of each node: see nativeVersions
	elders        elderWorld

	mu    sync.Mutex
	drawn struct { // by jitter: the last time, and how often at that time
		at    time.Duration
		times uint64
	}
	processes [simProcesses]*process
	former    []*process // of a change: all that others have replaced, or that died
}

// A way is the path between a process and a node, in both directions.
type way struct {
	heldUntil atomic.Int64 // nothing arrives before this time on connections opened up to heldFrom
	heldFrom  atomic.Int64 // like heldUntil, a time since the start

	mu     sync.Mutex
	opened time.Duration // when the last connection was opened, since the start
}

// open returns when a connection is opened: now, or a nanosecond after the last one that has been opened.
func (w *way) open(now time.Duration) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.opened = max(now, w.opened+1)
	return w.opened
}

// holdUp returns for how much longer nothing arrives on a connection that was opened at the time opened.
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

// mix returns a number that depends only on the seed and on others.
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

// draw makes a plan for a scene. The first thing that it draws is the realm, unless that is given.
func (p *simPlan) draw(r *rand.Rand, in scene) {
	p.realm = cmp.Or(in.realm, []realm{rough, rough, guarded, tidy}[r.IntN(4)])
	p.lasts = between(r, 350*time.Millisecond, 1300*time.Millisecond)
	p.expiry = between(r, 80*time.Millisecond, 400*time.Millisecond)
	p.longest = 500 * time.Millisecond
	if p.realm == guarded {
		p.lasts += 1500 * time.Millisecond // until nodes that have restarted count again
	}
	if p.realm == tidy {
		p.expiry, p.longest = 20*time.Second, 20*time.Second
	}
	p.base = between(r, 20*time.Microsecond, 2*time.Millisecond)
	p.spikes = []int{0, 30, 200}[r.IntN(3)]
	p.names = []string{"a", "b"}[:1+r.IntN(2)]
	p.fair, p.fencing, p.rates = oneIn(r, 4), oneIn(r, 3), oneIn(r, 2)
	p.drift = []float64{0.01, 0.1}[r.IntN(2)] // errors in the drift are easier to see with 0.1
	p.clocks = []string{"", "", "", "wall", "suspended"}[r.IntN(5)]
	p.rest = between(r, 20*time.Millisecond, 200*time.Millisecond)
	p.class = map[string]bool{}
	decide := func(class string, drawn bool) {
		p.class[class] = drawn && !strings.Contains(os.Getenv("REDSYNC_SIM_WITHOUT"), class) || strings.Contains(in.with, class)
	}
	for i, class := range allClasses[:slices.Index(allClasses, several)] {
		decide(class, oneIn(r, 2+i/3))
	}
	for _, class := range []string{closing, shorter, fast} {
		if p.class[class] = strings.Contains(in.with, class); p.class[class] {
			p.lasts, p.names = p.lasts+time.Second, p.names[:1]
		}
	}
	if p.class[fast] {
		p.rates, p.drift = true, 0.1
	}
	p.class[owners], p.class[lookers] = strings.Contains(in.with, owners), strings.Contains(in.with, lookers)
	if p.class[forcers] = strings.Contains(in.with, forcers); p.class[forcers] {
		p.fencing, p.lasts = true, p.lasts+3*time.Second
	}
	if p.class[constants] = strings.Contains(in.with, constants); p.class[constants] {
		p.class[values] = false // a value that comes back does not tell whose it was
	}
	if p.class[native] = strings.Contains(in.with, native); p.class[native] {
		p.fencing, p.lasts = false, p.lasts+time.Second
	}
	if p.class[unpolled] = strings.Contains(in.with, unpolled); p.class[unpolled] {
		p.class[off], p.class[silence], p.clocks, p.spikes = false, false, "", 0
		p.lasts += 2 * time.Second
		if p.class[native] {
			p.lasts += 10 * time.Second
		}
	}
	p.sets = [][]int{{0, 1, 2, 3, 4}}
	if p.realm.changes() {
		p.drawChange(r)
	}
	p.off = -1
	if p.class[off] {
		p.off, p.offFor = p.dispensable(r.IntN(simNodes)), between(r, p.lasts/3, p.lasts)*time.Duration(r.IntN(3))
	}
	if p.class[dials] = strings.Contains(in.with, dials); p.class[dials] {
		p.offFor = 0
		p.lasts += 2 * time.Second // the first locks of the processes wait for the host
	}
	switch {
	case p.realm == lawless:
		p.clocks, p.fencing = "", true
	case p.realm == guarded && p.clocks == "wall":
		p.clocks = "" // in a bubble the age of a server is read off the wall clock
	}
	// The classes from several on are drawn last, so that these draws do not change the rest of a seed's plan.
	if decide(several, oneIn(r, 4)); p.class[several] {
		p.names = []string{"a", "b", "c", "d"}[:2+r.IntN(3)]
	}
	decide(readers, oneIn(r, 4))
	p.healing = oneIn(r, 4)
	decide(permits, oneIn(r, 4))
	if in.mistake == counted { // its clients bypass the pools, which deal with the other classes
		p.class, p.off = map[string]bool{permits: true}, -1
	}
	if p.class[elders] = strings.Contains(in.with, elders); p.class[elders] {
		p.class[babble] = false // redsync v4 believes such replies
		p.lasts += time.Second  // its clients wait for long between two tries
	}
	p.drawPermits(r, in.mistake)
	if in.mistake == counted || p.realm == lawless {
		return // the test of a lawless realm expects violations of exclusion and no others
	}
	decide(leaders, oneIn(r, 4) && (p.joined || !p.realm.changes())) // otherwise the numbers of terms depend on clocks
	decide(nesting, oneIn(r, 4))
	decide(ticks, oneIn(r, 4))
	for _, class := range []string{values, readers, permits, leaders, nesting, ticks} {
		p.class[class] = p.class[class] && !p.few()
	}
	p.least = between(r, 30*time.Millisecond, 200*time.Millisecond)
}

// delay returns how long messages take between process i and node j, on a connection that is opened now. Of several
// connections that are opened in one instant, each has delays of its own.
func (s *simulation) delay(i, j int) embedded.Delay {
	opened := s.ways[i][j].open(s.now())
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

// Wires are the connections of a process, in the order in which they were opened.
type wires struct {
	mu    sync.Mutex
	ended bool // it opens no connection any more
	conns []net.Conn
}

// keep records a new connection, so that the end of the process can close it.
func (w *wires) keep(c net.Conn, err error) (net.Conn, error) {
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		_ = c.Close()
		return nil, syscall.ECONNREFUSED
	}
	w.conns = append(w.conns, c)
	return c, nil
}

// A process has connections of its own.
type process struct {
	*redsync.Redsync
	simulation *simulation
	slot       int          // its number among the processes that run at a time
	kind       int          // which nodes it has: see nodesOf
	requests   *nodeClients // for the Redsyncs of single requests: see request

	wires
	reads  map[string]*redsync.Mutex // by name: see reader
	works  map[string]*redsync.Mutex // by name: see permitsOf
	direct map[int]*redis.Client     // by node: see directTo
	mortal bool                      // it dies with its only Unlock
	silent bool                      // all its connections are closed
	calls  []context.CancelFunc      // of the calls that have begun
}

// nodeClients are the clients of a process, each with its node. A process with two sets has clients for
// each of them.
type nodeClients [][]nodeClient

type nodeClient struct {
	*redis.Client
	node int
}

// process starts process i.
func (s *simulation) process(i, kind int) *process {
	p := &process{
		simulation: s, slot: i, kind: kind,
		reads: map[string]*redsync.Mutex{}, works: map[string]*redsync.Mutex{}, direct: map[int]*redis.Client{},
	}
	p.Redsync = p.redsync(p.connect())
	return p
}

// redsync makes a Redsync on clients.
func (p *process) redsync(clients nodeClients) *redsync.Redsync {
	s := p.simulation
	var sets [][]wire.Pool
	for _, set := range clients {
		var pools []wire.Pool
		for _, client := range set {
			var options []pool.Option
			if s.realm == guarded {
				options = append(options, pool.WithRestartGuard(s.longest), pool.WithNoLocksBefore(s.start))
			}
			pools = append(pools, pool.New(client.Client, options...))
		}
		sets = append(sets, pools)
	}
	if len(sets) == 2 {
		return redsync.NewJoint(sets[0], sets[1])
	}
	return redsync.New(sets[0]...)
}

// request makes a Redsync for one request, on clients that the process keeps.
func (p *process) request() *redsync.Redsync {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.requests == nil {
		clients := p.connect()
		p.requests = &clients
	}
	return p.redsync(*p.requests)
}

// reader returns a Mutex that the clients of the process share. Several of them may call its Do at the same time, to
// read a name.
func (p *process) reader(name string) *redsync.Mutex {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reads[name] == nil {
		p.reads[name] = p.NewMutex(name, p.simulation.alike()...)
	}
	return p.reads[name]
}

// alike returns the options that many readers have in common.
func (s *simulation) alike() []redsync.Option {
	options := s.inTurn(s.expiry, redsync.WithShared())
	if s.healing {
		options = append(options, redsync.WithSetNXOnExtend())
	}
	return append(options, s.polls()...)
}

// connect makes clients of the process.
func (p *process) connect() (clients nodeClients) {
	made := map[int]nodeClient{}
	for _, set := range p.simulation.nodesOf(p.kind) {
		var list []nodeClient
		for _, j := range set {
			client, ok := made[j]
			if !ok {
				client = nodeClient{p.client(j), j}
			}
			made[j], list = client, append(list, client)
		}
		clients = append(clients, list)
	}
	return clients
}

func (p *process) client(j int) *redis.Client {
	s := p.simulation
	n := s.nodes[j]
	return n.Client(func(opt *redis.Options) {
		opt.ReadTimeout = 400*time.Millisecond + time.Duration(s.mix(7, uint64(p.slot), uint64(j))%uint64(600*time.Millisecond))
		opt.DialTimeout = opt.ReadTimeout
		if s.asked.mistake == counted || s.class[elders] {
			opt.PoolSize, opt.MaxRetries = 1000, -1 // so no client waits for a connection: all bubbles share the timers of such waits
		}
		opt.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			return p.keep(n.DialVia(s.delay(p.slot, j))(ctx, network, addr))
		}
		if s.class[greetings] {
			opt.Username, opt.Password, opt.DB = simUser, simPassword, simDatabase
			opt.OnConnect = func(context.Context, *redis.Conn) error { return s.ready(j) }
		}
	})
}

// ready is the OnConnect of clients. It fails while the node is not ready.
func (s *simulation) ready(node int) error {
	if s.unready[node].Load() {
		return errors.New("not ready")
	}
	return nil
}

func (s *simulation) current(i int) *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.processes[i]
}

// reopen closes process i and goes on with a new one.
func (s *simulation) reopen(i int) {
	if s.now() < time.Duration(s.givenUntil[i].Load()) {
		return // Close would unlock a hold whose value the process has given away
	}
	s.mu.Lock()
	old := s.processes[i]
	p := s.process(i, old.kind)
	s.processes[i] = p
	if s.realm.changes() {
		s.former = append(s.former, old)
	} else {
		p.requests = old.requests
	}
	s.mu.Unlock()
	_ = old.Close(s.Context()) // nodes may be away
	if s.realm.changes() {
		old.stop()
	}
}

// jitter is the library's source of randomness. Its result depends on the time, and on how many
// calls came before in the same instant.
func (s *simulation) jitter(d time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at := s.now(); at != s.drawn.at {
		s.drawn.at, s.drawn.times = at, 0
	}
	s.drawn.times++
	return time.Duration(s.mix(11, uint64(s.drawn.at), s.drawn.times) % uint64(d))
}

// A step changes what a clock of the clients' machine shows from the time at on.
type step struct {
	at   time.Duration
	wall time.Duration // how far the wall clock is ahead
	lag  time.Duration // the machine is suspended for so long from at on; meanwhile its monotonic clock stands still
}

// clockSteps returns steps of the wall clock, forward and back, or a few suspensions. It never
// returns both, because a machine that was suspended and whose wall clock was set back has no
// clock that is right.
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
