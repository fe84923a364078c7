// Package embedded runs Redis nodes inside the process, for tests and for
// programs that want to try the library with nothing installed. The nodes
// listen on no port, follow the clock of the caller (virtual time in a
// testing/synctest bubble included), and fail on request.
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

	"github.com/seed14bd9ef4/redsync/internal/nonsense"
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

// A Node is one Redis. The methods of Miniredis look at its data.
type Node struct {
	*miniredis.Miniredis
	name string
	srv  *server.Server

	lua       *interpreter
	executing sync.Mutex                  // one command at a time
	inside    atomic.Pointer[server.Peer] // whose command Miniredis executes

	peers   sync.Map // those that are connections, with their client
	greeted atomic.Int64
	conns   sync.Map // the clients' ends, with their numbers
	dials   atomic.Int64

	mu     sync.Mutex
	down   bool
	off    bool
	gate   *gate // not nil while frozen
	rules  []*rule
	seen   map[string]int
	losing int                 // so many messages to subscribers are lost
	users  map[string]string   // their passwords
	bursts []nonsense.Outburst // to come, one each time that the node says something
	mute   []*speaker          // connections on which it says no more

	forgotten []*end // the clients' ends of connections that carry nothing any more
	runID     string
	started   time.Time // of the process that runID names, by the node's clock
	clock     clock
}

// A clock shows another time than the caller's, and runs at another rate. The zero value
// is the caller's own.
type clock struct {
	set   time.Time // when it was set, by the caller's clock
	shown time.Time // what it showed then
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
	n.lua = newInterpreter(n.srv.Dispatch)
	n.srv.SetPreHook(n.before)
	return n
}

// A Fault is what happens to a command that a rule of On matches.
type Fault struct {
	// LoseReply executes the command and cuts the connection instead of
	// answering; it is not for SUBSCRIBE. LoseCommand cuts it without executing.
	LoseReply, LoseCommand bool
	// Delay is how long the node waits before it goes on with the command and
	// with everything behind it on that connection.
	Delay time.Duration
	// Again executes the command once more so long after its time, and tells nobody:
	// something on the way has sent it twice. It must be one that may be executed at once.
	Again time.Duration
	// Err is the node's answer in place of executing.
	Err string
	// Then runs before the command is executed, on the node's goroutine, with
	// the command's arguments.
	Then func(args []string)
}

type rule struct {
	command string
	times   int
	fault   Fault
}

// On applies fault to the next times executions of command ("set", "get",
// "evalsha", ...). Rules apply one at a time, in the order they were added.
func (n *Node) On(command string, times int, fault Fault) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.rules = append(n.rules, &rule{command: strings.ToUpper(command), times: times, fault: fault})
}

// Heal ends a Freeze and a TurnOff, forgets the faults of On, LoseMessages and Babble that
// are still to come, and closes connections on which the node hangs. Connections that Forget
// has met carry nothing all the same.
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

// Freeze stops execution, as SIGSTOP stops a server: connections stay open,
// requests pile up.
func (n *Node) Freeze() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.gate == nil {
		n.gate = &gate{opened: make(chan struct{})}
	}
}

// Thaw ends a Freeze; what piled up is executed.
func (n *Node) Thaw() { n.thaw(false) }

// ThawInTurn ends a Freeze. The connections go on in the order in which they were opened,
// a nanosecond apart, so that each time the same comes of it.
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

// A gate is where commands wait for the end of a Freeze.
type gate struct {
	opened chan struct{}
	inTurn bool // set before
}

// A client is who is at the other end of a connection.
type client struct {
	process string // the node's runID when the connection was opened
	turn    time.Duration
	db      int // selected
}

// Kill ends all connections and refuses new ones. What was on its way to the node is
// lost with them. Data stays, for Restart.
func (n *Node) Kill() {
	n.mu.Lock()
	n.down = true
	n.runID = "" // what is frozen sees that its process is gone
	forgotten := n.forgotten
	n.forgotten = nil
	n.mu.Unlock()
	n.Thaw()
	for _, c := range n.connected() {
		c.out.drop()
		_ = c.other.Close()
	}
	for _, c := range forgotten { // their clients do not hear of it
		_ = c.other.Close()
	}
}

// Disconnect ends all connections. The node goes on, and accepts new ones. What is on
// its way to it arrives, and is executed; replies are lost.
func (n *Node) Disconnect() {
	for _, c := range n.connected() {
		_ = c.Close()
	}
}

// Forget makes all connections that there are carry nothing any more, in either direction,
// as where a firewall has forgotten them. What is sent on them vanishes, and so does the
// news of their end. New connections work.
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

// TurnOff makes the node's host vanish, until Heal: its connections carry nothing any more,
// and a dial hears nothing until its context ends.
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

// LoseMessages makes the next times messages that the node has for subscribers
// vanish on their way: the node counts them as delivered. A message that two
// clients subscribe to is two messages. Messages of more than 4,000 bytes are not
// lost.
func (n *Node) LoseMessages(times int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.losing += times
}

// Restart accepts connections again, with the data there was or, when empty,
// with none. INFO names another process from then on.
func (n *Node) Restart(empty bool) {
	if empty {
		n.FlushAll()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.down = false
	n.runID, n.started = newRunID(), n.clock.now()
}

// SetClock steps the node's clock, and lets it run at a rate from now on: 1 is as fast
// as the caller's clock. Keys last by it, and INFO tells the uptime by it.
func (n *Node) SetClock(step time.Duration, rate float64) {
	n.mu.Lock()
	n.clock = clock{set: time.Now(), shown: n.clock.now().Add(step), rate: rate}
	n.mu.Unlock()
	n.Follow()
}

// Follow lets the data know what time it is by the node's clock. Every command does so;
// who looks at the data of a node whose clock was set calls it before.
func (n *Node) Follow() {
	n.mu.Lock()
	c := n.clock
	n.mu.Unlock()
	if !c.set.IsZero() {
		n.SetTime(c.now())
	}
}

// Commands returns how many times the node executed or refused command.
func (n *Node) Commands(command string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.seen[strings.ToUpper(command)]
}

// Client returns a new client of the node, whose options may be changed.
func (n *Node) Client(changes ...func(*redis.Options)) *redis.Client {
	opt := &redis.Options{
		Addr:   n.name,
		Dialer: n.Dial,
		// They keep a goroutine per client, and look up host names.
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

// A Delay says how long what is sent now is on its way, to the node or back. Nothing
// overtakes what was sent before it on the same connection.
type Delay func(toNode bool) time.Duration

// DialVia returns a Dial for connections that delay what is sent, and the news of their
// end. To open them takes no time.
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
	if n.isDown() {
		return nil, fmt.Errorf("dial %s: connection refused", n.name)
	}
	client, srv := pipe(delay)
	client.onClose = func() { n.conns.Delete(client) }
	n.conns.Store(client, n.dials.Add(1))
	n.srv.ServeConn(&speaker{end: srv, node: n})
	if n.isDown() { // killed meanwhile
		_ = client.Close()
	}
	return client, nil
}

// before runs ahead of every command and reports whether it is done with.
func (n *Node) before(peer *server.Peer, command string, args ...string) bool {
	if n.inside.Load() == peer || !n.isClient(peer, command) {
		return false
	}
	from := n.from(peer)
	n.await(from)
	fault := n.count(command)
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

// execute executes a command: a script here, any other in Miniredis. The peer has selected
// db there.
func (n *Node) execute(peer *server.Peer, db int, command string, args []string) {
	n.executing.Lock()
	defer n.executing.Unlock()
	n.Follow()
	if n.lua.execute(peer, db, command, args) {
		return
	}
	n.inside.Store(peer)
	defer n.inside.Store(nil)
	n.srv.Dispatch(peer, append([]string{command}, args...))
}

// again executes a command once more, unless the process that has executed it is gone.
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

// infoServer is the answer to INFO server, which Miniredis does not have. As in
// Redis the uptime is the difference of two clocks of whole seconds: up to a
// second more than has passed.
func (n *Node) infoServer() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	uptime := n.clock.now().Unix() - n.started.Unix()
	return fmt.Sprintf("# Server\r\nrun_id:%s\r\nuptime_in_seconds:%d\r\n", n.runID, uptime)
}

// newRunID returns 40 random hexadecimal digits, as Redis does.
func newRunID() string {
	id := make([]byte, 20)
	_, _ = rand.Read(id) // it never fails
	return hex.EncodeToString(id)
}

// isClient tells the peers that are connections, which begin with HELLO, from
// those of commands in scripts and of LoseReply. The former run under the
// server's lock and must not be held up.
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

// await returns once the node is not frozen, for a command of c.
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

func (n *Node) isDown() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.down
}

// process names the process that runs, "" when none does.
func (n *Node) process() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.runID
}

// runs reports whether a process is the one that runs. What was sent to one that was
// killed is not executed by the next.
func (n *Node) runs(process string) bool { return process != "" && process == n.process() }

// from returns who has sent what came on a connection.
func (n *Node) from(peer *server.Peer) client {
	c, _ := n.peers.Load(peer)
	return c.(client)
}

// count books a command and returns the fault that it meets.
func (n *Node) count(command string) Fault {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.seen == nil {
		n.seen = make(map[string]int)
	}
	n.seen[command]++
	for _, r := range n.rules {
		if r.command == command && r.times > 0 {
			r.times--
			return r.fault
		}
	}
	return Fault{}
}
