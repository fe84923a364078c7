// Package embedded runs Redis nodes inside the process, for tests and for
// programs that want to try the library with nothing installed. The nodes
// listen on no port, follow the clock of the caller (virtual time in a
// testing/synctest bubble included), and fail on request.
package embedded

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
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

	peers sync.Map // those that are connections
	conns sync.Map // the clients' ends

	mu      sync.Mutex
	down    bool
	gate    chan struct{} // not nil while frozen; closed by Thaw and Kill
	rules   []*rule
	seen    map[string]int
	losing  int // so many messages to subscribers are lost
	runID   string
	started time.Time // of the process that runID names
}

func start(name string) *Node {
	m := miniredis.NewMiniRedis()
	m.ClockTTL(true)
	n := &Node{Miniredis: m, name: name, runID: newRunID(), started: time.Now()}
	if c, err := m.Dial(); err == nil { // starts the server; it cannot fail
		_ = c.Close()
	}
	n.srv = m.Server()
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

// Freeze stops execution, as SIGSTOP stops a server: connections stay open,
// requests pile up.
func (n *Node) Freeze() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.gate == nil {
		n.gate = make(chan struct{})
	}
}

// Thaw ends a Freeze; what piled up is executed.
func (n *Node) Thaw() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.gate != nil {
		close(n.gate)
		n.gate = nil
	}
}

// Kill ends all connections and refuses new ones. Data stays, for Restart.
func (n *Node) Kill() {
	n.mu.Lock()
	n.down = true
	n.mu.Unlock()
	n.Thaw() // what is frozen sees that the node is down
	n.Disconnect()
}

// Disconnect ends all connections. The node goes on, and accepts new ones.
func (n *Node) Disconnect() {
	n.conns.Range(func(c, _ any) bool {
		_ = c.(*end).Close()
		return true
	})
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
	n.runID, n.started = newRunID(), time.Now()
}

// Commands returns how many times the node executed or refused command.
func (n *Node) Commands(command string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.seen[strings.ToUpper(command)]
}

// Client returns a new client of the node.
func (n *Node) Client() *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr:   n.name,
		Dialer: n.Dial,
		// They keep a goroutine per client, and look up host names.
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

// Dial opens a connection to the node; it fits redis.Options.Dialer.
func (n *Node) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if n.isDown() {
		return nil, fmt.Errorf("dial %s: connection refused", n.name)
	}
	client, srv := pipe()
	client.onClose = func() { n.conns.Delete(client) }
	n.conns.Store(client, true)
	n.srv.ServeConn(&speaker{srv, n})
	if n.isDown() { // killed meanwhile
		_ = client.Close()
	}
	return client, nil
}

// before runs ahead of every command and reports whether it is done with.
func (n *Node) before(peer *server.Peer, command string, args ...string) bool {
	if !n.isClient(peer, command) {
		return false
	}
	n.await()
	fault := n.count(command)
	if fault.Then != nil {
		fault.Then(args)
	}
	if fault.Delay > 0 {
		time.Sleep(fault.Delay)
		n.await()
	}
	switch {
	case n.isDown() || fault.LoseCommand:
		peer.Close()
		return true
	case fault.LoseReply:
		void := server.NewPeer(bufio.NewWriter(io.Discard))
		n.srv.Dispatch(void, append([]string{command}, args...))
		peer.Close()
		return true
	case fault.Err != "":
		peer.WriteError(fault.Err)
		return true
	case command == "INFO" && len(args) == 1 && strings.EqualFold(args[0], "server"):
		peer.WriteBulk(n.infoServer())
		return true
	}
	return false
}

// infoServer is the answer to INFO server, which Miniredis does not have. As in
// Redis the uptime is the difference of two clocks of whole seconds: up to a
// second more than has passed.
func (n *Node) infoServer() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	uptime := time.Now().Unix() - n.started.Unix()
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
		if _, known := n.peers.LoadOrStore(peer, true); !known {
			peer.OnDisconnect(func() { n.peers.Delete(peer) })
		}
		return true
	}
	_, ok := n.peers.Load(peer)
	return ok
}

// await returns once the node is not frozen.
func (n *Node) await() {
	n.mu.Lock()
	gate := n.gate
	n.mu.Unlock()
	if gate != nil {
		<-gate
	}
}

func (n *Node) isDown() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.down
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
