package redsynctest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed14bd9ef4/redsync"
)

// This file implements the client's end of a connection, which makes answers late and loses them.

// A participant is a Redsync of the kit, with connections of its own.
type participant struct {
	base    *redsync.Redsync // the end of the test closes it
	shown   *redsync.Redsync // base with the user's options
	network *network
}

// A network has the connections of one process to the nodes.
type network struct {
	mu     sync.Mutex
	cut    bool // no connection can be opened
	wasCut bool
	conns  map[*conn]bool
}

var errCutOff = errors.New("redsynctest: the process is cut off")

// setCut breaks all connections, or lets the process open new ones. It reports whether the network was ever cut.
func (w *network) setCut(cut bool) (wasCut bool) {
	w.mu.Lock()
	w.cut, w.wasCut = cut, w.wasCut || cut
	var broken []*conn
	if cut {
		broken = slices.Collect(maps.Keys(w.conns))
	}
	wasCut = w.wasCut
	w.mu.Unlock()
	for _, c := range broken {
		_ = c.Close()
	}
	return wasCut
}

// add reports whether the process may use a new connection.
func (w *network) add(c *conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cut {
		return false
	}
	if w.conns == nil {
		w.conns = make(map[*conn]bool)
	}
	w.conns[c] = true
	return true
}

func (w *network) remove(c *conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.conns, c)
}

// dialer returns a function that opens a connection of a process to the node.
func (n *Node) dialer(of *network) dialer {
	return func(ctx context.Context, kind, addr string) (net.Conn, error) {
		inner, err := n.server.dial(ctx, kind, addr)
		if err != nil {
			return nil, err
		}
		c := &conn{Conn: inner, node: n, of: of, changed: make(chan struct{}, 1), closed: make(chan struct{})}
		if !of.add(c) {
			_ = inner.Close()
			return nil, errCutOff
		}
		n.open.Add(1)
		return c, nil
	}
}

// A conn is a connection of a process to a node.
type conn struct {
	net.Conn
	node *Node
	of   *network

	locks  atomic.Bool                   // it has carried a request of a lock, so its answers may be late
	lossy  atomic.Pointer[chan struct{}] // not nil: the next answer is lost, and c breaks, once this is closed: the request is sent
	once   sync.Once
	closed chan struct{}

	// From the first late answer on, readAhead alone reads from Conn.
	ahead   bool          // readAhead runs, or has run; only Read uses this field
	changed chan struct{} // has room for one signal: arrived or broken has changed
	mu      sync.Mutex
	arrived []arrival // not yet read, in order
	broken  error     // why readAhead has ended
}

// An arrival is data from the node.
type arrival struct {
	data []byte
	at   time.Time
}

// Write implements net.Conn.
func (c *conn) Write(p []byte) (int, error) {
	if isOfLock(p) {
		c.locks.Store(true)
		c.node.set.kept.note(p)
		if c.node.losesReply() {
			sent := make(chan struct{})
			c.lossy.Store(&sent)
			defer close(sent)
		}
	}
	return c.Conn.Write(p)
}

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	if c.ahead {
		return c.readLate(p)
	}
	n, err := c.receive(p)
	if late, _ := c.node.lateness(); n == 0 || late == 0 || !c.locks.Load() {
		return n, err
	}
	c.ahead = true
	c.arrived = []arrival{{slices.Clone(p[:n]), time.Now()}}
	go c.readAhead()
	return c.readLate(p)
}

// receive reads from the node. If the answer is to be lost, it breaks the connection instead.
func (c *conn) receive(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if sent := c.lossy.Load(); n > 0 && sent != nil {
		<-*sent // the node executes the request, although the answer to an earlier one may be here already
		_ = c.Close()
		return 0, io.EOF
	}
	return n, err
}

// readAhead notes when data arrives, until the connection breaks. Without readAhead, an answer that arrives
// while Read delays an earlier answer would be read only after that, and so be delayed for too long.
func (c *conn) readAhead() {
	p := make([]byte, 4096)
	for broken := false; !broken; {
		n, err := c.receive(p)
		c.mu.Lock()
		if n > 0 {
			c.arrived = append(c.arrived, arrival{slices.Clone(p[:n]), time.Now()})
		}
		c.broken, broken = err, err != nil
		c.mu.Unlock()
		select {
		case c.changed <- struct{}{}:
		default: // Read has not yet seen an earlier change
		}
	}
}

// readLate waits until data that has arrived is due, and returns it. If the connection breaks before
// data is due, the data is lost.
func (c *conn) readLate(p []byte) (int, error) {
	for {
		late, moved := c.node.lateness()
		n, wait, err := c.take(p, late)
		if n > 0 || err != nil {
			return n, err
		}
		var due <-chan time.Time
		if wait > 0 {
			due = time.After(wait)
		}
		select {
		case <-due:
		case <-moved:
		case <-c.changed:
		case <-c.closed:
			return 0, net.ErrClosed
		}
	}
}

// take returns data that is due. If none is due, it returns for how long to wait, 0 if no data has arrived.
func (c *conn) take(p []byte, late time.Duration) (n int, wait time.Duration, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.arrived) == 0 {
		return 0, 0, c.broken
	}
	first := &c.arrived[0]
	if wait = late - time.Since(first.at); wait > 0 {
		return 0, wait, c.broken
	}
	n = copy(p, first.data)
	if first.data = first.data[n:]; len(first.data) == 0 {
		c.arrived = c.arrived[1:]
	}
	return n, 0, nil
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.once.Do(func() {
		close(c.closed)
		c.of.remove(c)
		c.node.open.Add(-1)
	})
	return c.Conn.Close()
}

// lateness returns how late the answers are, and a channel that is closed when that changes.
func (n *Node) lateness() (time.Duration, <-chan struct{}) {
	n.lateMu.Lock()
	defer n.lateMu.Unlock()
	return n.late, n.moved
}

// setLateness makes answers late, also those that are under way.
func (n *Node) setLateness(late time.Duration) {
	n.lateMu.Lock()
	defer n.lateMu.Unlock()
	n.late = late
	close(n.moved)
	n.moved = make(chan struct{})
}

// losesReply is called for each request of a lock. It reports whether to lose the reply, and if so, lowers
// losing by one.
func (n *Node) losesReply() bool {
	for {
		losing := n.losing.Load()
		if losing == 0 {
			return false
		}
		if n.losing.CompareAndSwap(losing, losing-1) {
			return true
		}
	}
}

// isOfLock reports whether p, data for a node, contains a request of a lock. Locks send SET and scripts, and to newer servers
// commands of these.
func isOfLock(p []byte) bool {
	for _, command := range []string{
		"$3\r\nset\r\n", "$7\r\nevalsha\r\n", "$4\r\neval\r\n", "$5\r\ndelex\r\n", "$7\r\ndelifeq\r\n", "$6\r\nmsetex\r\n",
	} {
		if bytes.Contains(p, []byte(command)) {
			return true
		}
	}
	return false
}
