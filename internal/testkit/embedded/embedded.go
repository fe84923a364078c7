// Package embedded runs Redis nodes inside the process, for tests and for trying the library
// without installing anything. The nodes listen on no port, follow the clock of the caller
// (virtual time in a testing/synctest bubble included), and fail on request.
package embedded

import (
	"bufio"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/seed14bd9ef4/redsync/internal/testkit/badreply"
)

// Nodes is a set of independent nodes.
type Nodes []*Node

// Start returns n empty nodes.
func Start(n int) Nodes {
	nodes := make(Nodes, n)
	for i := range nodes {
		nodes[i] = start(fmt.Sprintf("127.0.0.1:%d", 7001+i))
	}
	return nodes
}

// Close stops all nodes for good.
func (ns Nodes) Close() {
	for _, n := range ns {
		n.Kill()
		n.Miniredis.Close()
	}
}

// Keys counts the nodes that hold key.
func (ns Nodes) Keys(key string) int {
	count := 0
	for _, n := range ns {
		if n.Exists(key) {
			count++
		}
	}
	return count
}

// A Node is one Redis. Its embedded Miniredis gives access to the data.
type Node struct {
	*miniredis.Miniredis
	name string
	srv  *server.Server

	lua       *interpreter
	executing sync.Mutex                  // held while a command is executed
	inside    atomic.Pointer[server.Peer] // the peer whose command Miniredis executes

	peers   sync.Map // from the peer of a connection to its client
	greeted atomic.Int64
	conns   sync.Map // from a client's end of a connection to its number
	dials   atomic.Int64

	mu      sync.Mutex
	down    bool
	off     bool
	gate    *gate // not nil while frozen
	rules   []*rule
	seen    map[string]int
	traffic uint64              // see Traffic
	losing  int                 // how many more messages to subscribers to lose
	users   map[string]string   // from name to password
	lacks   map[string]Lack     // by command
	version version             // see SetVersion
	bursts  []badreply.Outburst // still to come, one each time the node sends data
	mute    []*speaker          // connections on which the node sends nothing any more

	forgotten []*end // clients' ends of connections that Forget has cut
	runID     string
	named     *string   // see TellRunID
	started   time.Time // when the process that runID names started, by the node's clock
	clock     clock
}

// A clock may differ from the caller's clock in time and rate. The zero value equals the caller's
// clock.
type clock struct {
	set   time.Time // when SetClock was called, by the caller's clock
	shown time.Time // what this clock showed at that moment
	rate  float64
}

func (c clock) now() time.Time {
	if c.set.IsZero() {
		return time.Now()
	}
	return c.shown.Add(time.Duration(float64(time.Since(c.set)) * c.rate))
}

func start(name string) *Node {
	m := miniredis.NewMiniRedis()
	m.ClockTTL(true)
	n := &Node{Miniredis: m, name: name, runID: newRunID(), started: time.Now()}
	if c, err := m.Dial(); err == nil { // starts the server; it cannot fail
		_ = c.Close()
	}
	n.srv = m.Server()
	n.lua = newInterpreter(n.srv.Dispatch, m.DB)
	n.lua.lacks = n.scriptLacks
	n.srv.SetPreHook(n.before)
	return n
}

// A Fault is what happens to a command that a rule of On matches.
type Fault struct {
	// LoseReply executes the command and cuts the connection instead of answering; it does not
	// work for SUBSCRIBE. LoseCommand cuts the connection without executing.
	LoseReply, LoseCommand bool
	// Delay is how long the node waits before it continues with the command, and with everything
	// after it on that connection.
	Delay time.Duration
	// Again, if more than 0, makes the node execute the command a second time, this long after the
	// first, as if the network had duplicated it. The second execution sends no reply. The command
	// must be one that does not block.
	Again time.Duration
	// Err, if not empty, is the error that the node answers instead of executing the command.
	Err string
	// Then is called first, with the command's arguments, on the goroutine that serves the
	// connection.
	Then func(args []string)
}

type rule struct {
	command string
	times   int
	fault   Fault
}

// On adds a rule: it applies fault to command ("set", "get", "evalsha", ...) as often as times says.
// If several rules match a command, the one that was added first applies.
func (n *Node) On(command string, times int, fault Fault) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.rules = append(n.rules, &rule{command: strings.ToUpper(command), times: times, fault: fault})
}

// Heal ends a Freeze and a TurnOff, cancels the pending faults of On, LoseMessages and Babble,
// and closes connections on which the node hangs. Connections cut by Forget stay cut.
func (n *Node) Heal() {
	n.ThawInTurn()
	n.mu.Lock()
	mute := n.mute
	n.off = false
	n.rules, n.losing, n.bursts, n.mute = nil, 0, nil, nil
	n.mu.Unlock()
	for _, s := range mute {
		_ = s.Close()
	}
}

// Freeze stops execution, as SIGSTOP stops a server: connections stay open, and requests
// accumulate.
func (n *Node) Freeze() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.gate == nil {
		n.gate = &gate{opened: make(chan struct{})}
	}
}

// Thaw ends a Freeze. The accumulated requests are executed.
func (n *Node) Thaw() { n.thaw(false) }

// ThawInTurn ends a Freeze. The connections continue in the order in which they were greeted, a
// nanosecond apart, so that the result is the same each time.
func (n *Node) ThawInTurn() { n.thaw(true) }

func (n *Node) thaw(inTurn bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.gate != nil {
		n.gate.inTurn = inTurn
		close(n.gate.opened)
		n.gate = nil
	}
}

// Commands wait at a gate for the end of a Freeze.
type gate struct {
	opened chan struct{}
	inTurn bool // set before opened is closed
}

// A client is what the node remembers of one connection.
type client struct {
	process string        // the node's runID when the connection was greeted
	turn    time.Duration // how long the connection waits after ThawInTurn
	db      int           // the selected database
}

// Kill ends all connections and refuses new ones. Requests on their way to the node are lost. The
// data stays, for Restart.
func (n *Node) Kill() {
	n.mu.Lock()
	n.down = true
	n.runID = "" // frozen commands see that their process is gone
	forgotten := n.forgotten
	n.forgotten = nil
	n.mu.Unlock()
	n.Thaw()
	for _, c := range n.connected() {
		c.out.drop()
		_ = c.other.Close()
	}
	for _, c := range forgotten { // their clients do not notice
		_ = c.other.Close()
	}
}

// Disconnect ends all connections. The node continues, and accepts new ones. Requests on their
// way arrive and are executed; their replies are lost.
func (n *Node) Disconnect() {
	for _, c := range n.connected() {
		_ = c.Close()
	}
}

// Forget cuts all present connections in both directions, without notice to either end, as if a
// firewall had forgotten them. Data sent on them is lost, and neither end sees the other close.
// New connections work.
func (n *Node) Forget() {
	connected := n.connected()
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range connected {
		c.in.lose()
		c.out.lose()
		n.conns.Delete(c)
	}
	n.forgotten = append(n.forgotten, connected...)
}

// TurnOff makes the node's host disappear until Heal: its connections are cut as by Forget, and a
// dial gets no answer until its context ends.
func (n *Node) TurnOff() {
	n.mu.Lock()
	n.off = true
	n.mu.Unlock()
	n.Forget()
}

// connected returns the clients' ends of all connections, in the order in which they were
// opened.
func (n *Node) connected() []*end {
	numbers := map[*end]int64{}
	n.conns.Range(func(c, number any) bool {
		numbers[c.(*end)] = number.(int64)
		return true
	})
	return slices.SortedFunc(maps.Keys(numbers), func(a, b *end) int { return cmp.Compare(numbers[a], numbers[b]) })
}

// LoseMessages makes the node lose the next messages that it sends to subscribers; times is how many.
// The node counts them as delivered. A message to two subscribers counts as two. Messages of more
// than 4,000 bytes are not lost.
func (n *Node) LoseMessages(times int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.losing += times
}

// Restart accepts connections again, with the previous data, or without data if empty is set.
// From then on INFO names a new process.
func (n *Node) Restart(empty bool) {
	if empty {
		n.FlushAll()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.down = false
	n.runID, n.started = newRunID(), n.clock.now()
}

// SetClock moves the node's clock by step, and makes it run at rate from now on; 1 is the rate of
// the caller's clock. The TTLs of keys and the uptime in INFO follow this clock. As in Redis, a step back
// makes the keys that the node has last for so much longer.
func (n *Node) SetClock(step time.Duration, rate float64) {
	n.executing.Lock()
	defer n.executing.Unlock()
	n.Follow()
	n.mu.Lock()
	n.clock = clock{set: time.Now(), shown: n.clock.now().Add(step), rate: rate}
	n.mu.Unlock()
	if step < 0 {
		n.prolong(-step)
	}
	n.Follow()
	if step < 0 {
		n.ClockTTL(true) // Miniredis counts TTLs down from its last look at the clock: this makes it look
	}
}

// databases is how many databases a node has.
const databases = 16

// prolong makes all keys last for longer.
func (n *Node) prolong(by time.Duration) {
	for i := range databases {
		db := n.DB(i)
		for _, key := range db.Keys() {
			if ttl := db.TTL(key); ttl > 0 {
				db.SetTTL(key, ttl+by)
			}
		}
	}
}

// Follow expires keys by the node's clock. The node calls it before it executes a command. After
// SetClock, a test must call it before looking at the data directly.
func (n *Node) Follow() {
	n.mu.Lock()
	c := n.clock
	n.mu.Unlock()
	if !c.set.IsZero() {
		n.SetTime(c.now())
	}
}

// Between calls f while the node executes no command. So all that f sees of the data is of one moment, even if
// the Go runtime switches goroutines in between. f must use the Miniredis of the node: the methods of data.go
// would wait for f.
func (n *Node) Between(f func(m *miniredis.Miniredis)) {
	n.executing.Lock()
	defer n.executing.Unlock()
	n.Follow()
	f(n.Miniredis)
}

// Rewrite makes the node run rewrite(source) in place of each script that it loads from now on. Clients call the script
// by the SHA1 of source as before. A test can use this to make a node run a wrong script.
func (n *Node) Rewrite(rewrite func(source string) string) {
	n.executing.Lock()
	defer n.executing.Unlock()
	n.lua.rewrite = rewrite
}

// Commands returns how many times the node executed or refused command.
func (n *Node) Commands(command string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.seen[strings.ToUpper(command)]
}

// Traffic returns a number that depends on every command that the node has got and its time, and on what scripts have
// changed. The order of commands that came at the same time makes no difference, and neither do the texts and arguments of
// scripts.
func (n *Node) Traffic() uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.traffic
}

// Client returns a new client of the node. changes may modify its options.
func (n *Node) Client(changes ...func(*redis.Options)) *redis.Client {
	opt := &redis.Options{
		Addr:   n.name,
		Dialer: n.Dial,
		// Maintenance notifications start a goroutine per client and look up host names.
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	for _, change := range changes {
		change(opt)
	}
	return redis.NewClient(opt)
}

// Dial opens a connection to the node; it fits redis.Options.Dialer.
func (n *Node) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	return n.dial(ctx, nil)
}

// A Delay returns how long data sent now is on its way, to the node or back. Data on one
// connection keeps its order.
type Delay func(toNode bool) time.Duration

// DialVia returns a Dial whose connections delay data and the notice of their end. Opening them
// takes no time.
func (n *Node) DialVia(delay Delay) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, _, _ string) (net.Conn, error) { return n.dial(ctx, delay) }
}

func (n *Node) dial(ctx context.Context, delay Delay) (net.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if n.isOff() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	// Kill needs n.mu too, so it either finds this connection or comes first. Otherwise Miniredis could begin to serve the
	// connection while Close closes it.
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.down {
		return nil, fmt.Errorf("dial %s: connection refused", n.name)
	}
	client, srv := pipe(delay)
	client.onClose = func() { n.conns.Delete(client) }
	n.conns.Store(client, n.dials.Add(1))
	n.srv.ServeConn(&speaker{end: srv, node: n})
	return client, nil
}

// before is the hook that Miniredis calls ahead of every command. It reports whether it has dealt
// with the command.
func (n *Node) before(peer *server.Peer, command string, args ...string) bool {
	if n.inside.Load() == peer || !n.isClient(peer, command) {
		return false
	}
	from := n.from(peer)
	n.await(from)
	fault := n.count(command, args)
	if fault.Then != nil {
		fault.Then(args)
	}
	if fault.Delay > 0 {
		time.Sleep(fault.Delay)
		n.await(from)
	}
	if fault.Again > 0 {
		time.AfterFunc(fault.Again, func() { n.again(from, command, args) })
	}
	switch {
	case !n.runs(from.process) || fault.LoseCommand:
		peer.Close()
		return true
	case fault.LoseReply:
		n.executeUnanswered(from, command, args)
		peer.Close()
		return true
	case fault.Err != "":
		peer.WriteError(fault.Err)
		return true
	case command == "HELLO", command == "AUTH":
		n.greet(peer, command, args)
		return true
	case command == "SELECT" && len(args) == 1:
		n.selects(peer, from, args)
		return true
	case command == "INFO" && len(args) == 1 && strings.EqualFold(args[0], "server"):
		peer.WriteBulk(n.infoServer())
		return true
	}
	n.execute(peer, from.db, command, args)
	return true
}

// execute executes a command: a script in the interpreter, a command of newer servers here, any other command in
// Miniredis. db is the database that the peer has selected.
func (n *Node) execute(peer *server.Peer, db int, name string, args []string) {
	n.executing.Lock()
	defer n.executing.Unlock()
	n.Follow()
	keys := scriptKeys(name, args)
	before := n.data(db, keys)
	if n.lua.execute(peer, db, name, args) {
		if after := n.data(db, keys); !slices.Equal(before, after) {
			n.mu.Lock()
			n.traffic += command{time.Now(), "", after}.hash()
			n.mu.Unlock()
		}
		return
	}
	if n.native(peer, db, name, args) {
		return
	}
	n.inside.Store(peer)
	defer n.inside.Store(nil)
	n.srv.Dispatch(peer, append([]string{name}, args...))
}

// again executes a command a second time, unless the process that executed it first is gone.
func (n *Node) again(from client, command string, args []string) {
	n.await(from)
	if n.runs(from.process) {
		n.executeUnanswered(from, command, args)
	}
}

func (n *Node) executeUnanswered(from client, command string, args []string) {
	peer := server.NewPeer(bufio.NewWriter(io.Discard))
	n.srv.Dispatch(peer, []string{"SELECT", strconv.Itoa(from.db)})
	n.execute(peer, from.db, command, args)
}

// infoServer is the answer to INFO server, which Miniredis does not implement. As in Redis, the
// uptime is the difference of two clock readings in whole seconds, so it may be up to a second
// too long.
func (n *Node) infoServer() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	uptime, id := n.clock.now().Unix()-n.started.Unix(), "run_id:"+n.runID+"\r\n"
	if n.named != nil {
		id = *n.named
	}
	return fmt.Sprintf("# Server\r\n%s%suptime_in_seconds:%d\r\n", n.version.info(), id, uptime)
}

// TellRunID makes INFO have this in the place of the line that names the process, as servers do that imitate Redis.
func (n *Node) TellRunID(line string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.named = &line
}

// newRunID returns 40 random hexadecimal digits, the form of a run_id of Redis.
func newRunID() string {
	id := make([]byte, 20)
	_, _ = rand.Read(id) // it never fails
	return hex.EncodeToString(id)
}

// isClient reports whether peer is a connection; connections begin with HELLO. The other peers
// execute the commands of scripts, and commands without a reply (executeUnanswered). before must
// not hold up the commands of a script, because execute holds n.executing while the script runs.
func (n *Node) isClient(peer *server.Peer, command string) bool {
	if command == "HELLO" {
		if _, known := n.peers.LoadOrStore(peer, client{process: n.process(), turn: time.Duration(n.greeted.Add(1))}); !known {
			peer.OnDisconnect(func() { n.peers.Delete(peer) })
		}
		return true
	}
	_, ok := n.peers.Load(peer)
	return ok
}

// await waits until the node is not frozen, on behalf of a command of c.
func (n *Node) await(c client) {
	for {
		n.mu.Lock()
		g := n.gate
		n.mu.Unlock()
		if g == nil {
			return
		}
		<-g.opened
		if g.inTurn {
			time.Sleep(c.turn)
		}
	}
}

func (n *Node) isOff() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.off
}

// process returns the runID of the running process, "" if none is running.
func (n *Node) process() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.runID
}

// runs reports whether process is still running. A command sent to a killed process is not
// executed by the next one.
func (n *Node) runs(process string) bool { return process != "" && process == n.process() }

// from returns the client of a connection.
func (n *Node) from(peer *server.Peer) client {
	c, _ := n.peers.Load(peer)
	return c.(client)
}

// A command is a command that a node has got.
type command struct {
	at   time.Time
	name string
	args []string
}

// hash returns the FNV-1a hash of a command and its time. Package hash/fnv would copy each argument.
func (c command) hash() uint64 {
	const prime = 1099511628211
	hash := (uint64(14695981039346656037) ^ uint64(c.at.UnixNano())) * prime //nolint:gosec // any number will do
	add := func(word string) {
		for i := range len(word) {
			hash = (hash ^ uint64(word[i])) * prime
		}
		hash = (hash ^ 0xff) * prime
	}
	add(c.name)
	for _, arg := range c.args {
		add(arg)
	}
	return hash
}

// scriptKeys returns the keys that a command names for a script.
func scriptKeys(command string, args []string) []string {
	if !strings.HasPrefix(command, "EVAL") || len(args) < 2 {
		return nil
	}
	n, _ := strconv.Atoi(args[1])
	return args[2:max(2, min(2+n, len(args)))]
}

// data returns what stands at keys that hold texts, and their TTLs.
func (n *Node) data(db int, keys []string) (data []string) {
	for _, key := range keys {
		d := n.DB(db)
		text, _ := d.Get(key)
		data = append(data, key, text, d.TTL(key).String())
	}
	return data
}

// count counts a command and returns the fault that applies to it.
func (n *Node) count(name string, args []string) Fault {
	c, traced := command{time.Now(), name, args}, uint64(0)
	if strings.HasPrefix(name, "EVAL") {
		c.name, c.args = "EVAL", scriptKeys(name, args)
	}
	if name != "SCRIPT" { // a node can know scripts that nobody uses
		traced = c.hash()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.seen == nil {
		n.seen = make(map[string]int)
	}
	n.seen[name]++
	n.traffic += traced
	for _, r := range n.rules {
		if r.command == name && r.times > 0 {
			r.times--
			return r.fault
		}
	}
	return n.lacks[name].fault(name, args)
}

// Spy makes the node call f for each command of a script, before it executes the command.
func (n *Node) Spy(f func(Called)) {
	n.executing.Lock()
	defer n.executing.Unlock()
	n.lua.spy = f
}

// A Lack is why clients cannot use a command.
type Lack uint8

// Why clients cannot use a command.
const (
	Has     Lack = iota // they can
	Missing             // the server does not have it, as after rename-command
	Denied              // their user may not run it
	Closing             // a proxy ends the connection at it; scripts are on the server, and can use it
)

// Lacks makes clients and scripts unable to use commands, until it is called again for them. The words are those of Redis 7.
func (n *Node) Lacks(how Lack, commands ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.lacks == nil {
		n.lacks = make(map[string]Lack)
	}
	for _, c := range commands {
		n.lacks[strings.ToUpper(c)] = how
	}
}

// Lacks does that on all nodes.
func (ns Nodes) Lacks(how Lack, commands ...string) {
	for _, n := range ns {
		n.Lacks(how, commands...)
	}
}

// fault returns what happens to a command of a client.
func (how Lack) fault(name string, args []string) Fault {
	switch how {
	case Missing:
		said := fmt.Sprintf("ERR unknown command '%s', with args beginning with: ", name)
		for _, arg := range args {
			said += fmt.Sprintf("'%.*s' ", max(0, 128-len(said)), arg)
		}
		return Fault{Err: said}
	case Denied:
		return Fault{Err: fmt.Sprintf("NOPERM User default has no permissions to run the '%s' command", strings.ToLower(name))}
	case Closing:
		return Fault{LoseCommand: true}
	}
	return Fault{}
}

// scriptLacks returns why a script cannot use a command, nil if it can.
func (n *Node) scriptLacks(name string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case len(n.lacks) == 0:
	case n.lacks[strings.ToUpper(name)] == Missing:
		return lackError("ERR Unknown Redis command called from script")
	case n.lacks[strings.ToUpper(name)] == Denied:
		return lackError("ERR ACL failure in script: User default has no permissions to run the '" + strings.ToLower(name) + "' command")
	}
	return nil
}

// A lackError is why a script cannot use a command.
type lackError string

func (e lackError) Error() string { return string(e) }
