package main

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/testkit/badreply"
)

// A direction is one of the two directions of a link.
type direction int

const (
	toNode direction = iota
	toClient
)

// A link is a proxy for all connections from one client process to one node. It passes bytes on
// in order, and imitates a bad network. It does not alter bytes, except that it may send badreply. A
// connection that has lost a byte passes no more bytes in that direction.
type link struct {
	listener net.Listener
	process  int // the number of the process, and the index of the node
	node     int
	done     sync.WaitGroup

	mu      sync.Mutex
	target  string // the address to which new connections lead
	closed  bool
	cuts    [2]int           // by direction: how many faults block it; connections stay open
	delay   [2]time.Duration // by direction: delay of each byte
	losing  int              // how many faults lose replies
	off     bool             // dials hang
	refuses bool             // dials fail, if off is set
	hanging []net.Conn       // clients' connections whose dials hang
	bursts  *rand.Rand       // draws the nonsense that each connection gets once; nil: none
	changed chan struct{}    // change closes it and makes a new one
	wires   map[*wire]bool
}

// A wire is one connection through a link, with both ends.
type wire struct {
	client, node net.Conn
	ended        chan struct{} // closed when the connection has ended
	once         sync.Once
	silent       bool // passes nothing any more; guarded by link.mu
	lossy        bool // loses all further replies until heal ends it; guarded by link.mu
	babbled      bool // has passed nonsense; guarded by link.mu
}

// end closes both connections of w. If reset is set, it resets them, and data in flight is lost.
func (w *wire) end(reset bool) {
	w.once.Do(func() {
		for _, c := range []net.Conn{w.client, w.node} {
			if t, ok := c.(*net.TCPConn); ok && reset {
				_ = t.SetLinger(0) // an error does no harm
			}
			_ = c.Close()
		}
		close(w.ended)
	})
}

func newLink(target string) (*link, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l := &link{listener: listener, target: target, changed: make(chan struct{}), wires: map[*wire]bool{}}
	l.done.Go(l.accept)
	return l, nil
}

func (l *link) addr() string { return l.listener.Addr().String() }

func (l *link) accept() {
	for {
		client, err := l.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // too many open files, or the client closed the connection too early
			time.Sleep(10 * ms)
			continue
		}
		if l.hangs(client) {
			continue
		}
		node, err := net.DialTimeout("tcp", l.leadsTo(), time.Second)
		if err != nil {
			_ = client.Close()
			continue
		}
		w := &wire{client: client, node: node, ended: make(chan struct{})}
		if !l.add(w) {
			w.end(true)
			return
		}
		if _, err := client.Write(welcome); err != nil { // after add: a client that is welcome may be forgotten at once
			l.drop(w, true)
			continue
		}
		l.done.Go(func() { l.relay(w, toNode) })
		l.done.Go(func() { l.relay(w, toClient) })
	}
}

// A link sends welcome to a client after it has connected to the node, and dial waits for welcome. This
// lets a link make a dial hang. Without welcome it could not, because the kernel completes each dial to
// the link's listener.
var welcome = []byte{'+'}

// dial opens a connection through the link at address. It fits redis.Options.Dialer.
func dial(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.SetReadDeadline(time.Unix(1, 0)) })
	_, err = io.ReadFull(c, make([]byte, len(welcome)))
	if !stop() {
		err = errors.Join(err, context.Cause(ctx))
	}
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

// hangs reports whether the dial of a client must hang or fail. If it must hang, the connection stays open.
func (l *link) hangs(client net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.off || l.closed {
		return false
	}
	if l.refuses {
		_ = client.Close()
		return true
	}
	l.hanging = append(l.hanging, client)
	return true
}

// turnOff makes the host of the node disappear: open connections pass nothing any more, and dials hang
// until heal is called. A second call of turnOff before heal changes nothing.
func (l *link) turnOff() (heal func()) {
	l.change(func() { l.off = true })
	l.forget()
	return func() {
		l.change(func() { l.off = false })
		l.endHanging()
	}
}

// failDials breaks the open connections, and lets dials fail, or hang, until heal is called.
func (l *link) failDials(fail bool) (heal func()) {
	l.change(func() { l.off, l.refuses = true, fail })
	l.reset()
	return func() {
		l.change(func() { l.off, l.refuses = false, false })
		l.endHanging()
	}
}

// leadTo breaks the open connections, and makes new ones lead to another address, until heal is called.
func (l *link) leadTo(address string) (heal func()) {
	before := l.leadsTo()
	l.change(func() { l.target = address })
	l.reset()
	return func() {
		l.change(func() { l.target = before })
		l.reset()
	}
}

func (l *link) leadsTo() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.target
}

func (l *link) endHanging() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.hanging {
		_ = c.Close()
	}
	l.hanging = nil
}

// forget makes the open connections pass nothing any more in either direction, as after a
// firewall has forgotten them. If one end closes, the other does not notice.
func (l *link) forget() {
	l.change(func() {
		for w := range l.wires {
			w.silent = true
		}
	})
}

// add adds w, unless l is closed.
func (l *link) add(w *wire) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.wires[w] = true
	}
	return !l.closed
}

func (l *link) drop(w *wire, reset bool) {
	w.end(reset)
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.wires, w)
}

// close ends the link and its connections.
func (l *link) close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	_ = l.listener.Close()
	l.endHanging()
	l.resetAll(true)
	l.done.Wait()
}

// reset breaks the open connections, except silent ones.
func (l *link) reset() { l.resetAll(false) }

func (l *link) resetAll(silentToo bool) {
	l.mu.Lock()
	wires := make([]*wire, 0, len(l.wires))
	for w := range l.wires {
		if silentToo || !w.silent {
			wires = append(wires, w)
		}
	}
	l.mu.Unlock()
	for _, w := range wires {
		l.drop(w, true)
	}
}

// cut blocks direction d until heal is called.
func (l *link) cut(d direction) (heal func()) {
	l.change(func() { l.cuts[d]++ })
	return func() { l.change(func() { l.cuts[d]-- }) }
}

// slow adds a delay to direction d until heal is called.
func (l *link) slow(d direction, by time.Duration) (heal func()) {
	l.change(func() { l.delay[d] += by })
	return func() { l.change(func() { l.delay[d] -= by }) }
}

// lose loses all replies of the node. heal also breaks the connections that have lost something,
// because TCP loses nothing in the middle of a connection.
func (l *link) lose() (heal func()) {
	l.change(func() { l.losing++ })
	return func() {
		l.change(func() { l.losing-- })
		l.dropLossy()
	}
}

// babble sends nonsense once on each connection, open or new, in place of the next data from the node or
// after it. After some nonsense a connection passes no more replies. heal also breaks these connections.
func (l *link) babble(seed uint64) (heal func()) {
	l.change(func() { l.bursts = rand.New(rand.NewPCG(seed, 4)) })
	return func() {
		l.change(func() { l.bursts = nil })
		l.dropLossy()
	}
}

func (l *link) dropLossy() {
	l.mu.Lock()
	var lossy []*wire
	for w := range l.wires {
		if w.lossy {
			lossy = append(lossy, w)
		}
	}
	l.mu.Unlock()
	for _, w := range lossy {
		l.drop(w, true)
	}
}

// leave ends w, unless it is silent. The other end of a silent connection does not notice, and
// stays open until the link is closed.
func (l *link) leave(w *wire) {
	if !l.isSilent(w) {
		l.drop(w, false)
	}
}

func (l *link) isSilent(w *wire) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return w.silent
}

func (l *link) change(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
	close(l.changed)
	l.changed = make(chan struct{})
}

// A chunk is the data of one read. A chunk without bytes is the end of the connection.
type chunk struct {
	due   time.Time
	bytes []byte
}

// maxChunks is how many chunks a link buffers in one direction of a connection. If the buffer is full,
// the link stops reading, and the sender must wait.
const maxChunks = 1 << 14

// relay passes on data from one end of w until either end closes.
func (l *link) relay(w *wire, d direction) {
	src, dst := w.client, w.node
	if d == toClient {
		src, dst = dst, src
	}
	chunks := make(chan chunk, maxChunks)
	l.done.Go(func() {
		defer l.leave(w)
		for c := range chunks {
			if !l.pass(w, d, c) {
				return
			}
			if l.isSilent(w) {
				continue
			}
			if len(c.bytes) == 0 {
				return
			}
			if l.loses(w, d) {
				continue
			}
			said, goesOn := l.twist(w, d, c.bytes)
			if _, err := dst.Write(said); err != nil || !goesOn {
				return
			}
		}
	})
	defer close(chunks)
	buf := make([]byte, 1<<16)
	for {
		n, err := src.Read(buf)
		c := chunk{due: time.Now().Add(l.delayed(d)), bytes: append([]byte(nil), buf[:n]...)}
		if n > 0 && !w.push(chunks, c) {
			return
		}
		if err != nil {
			w.push(chunks, chunk{due: c.due})
			return
		}
	}
}

func (w *wire) push(chunks chan<- chunk, c chunk) bool {
	select {
	case chunks <- c:
		return true
	case <-w.ended:
		return false
	}
}

func (l *link) delayed(d direction) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.delay[d]
}

// loses reports whether w loses data in direction d. If so, it marks w as lossy.
func (l *link) loses(w *wire, d direction) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	lost := d == toClient && (l.losing > 0 || w.lossy)
	w.lossy = w.lossy || lost
	return lost
}

// twist returns the data to pass on instead of said, and whether the connection continues.
func (l *link) twist(w *wire, d direction, said []byte) (instead []byte, goesOn bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if d != toClient || l.bursts == nil || w.babbled {
		return said, true
	}
	w.babbled = true
	b := badreply.Draw(l.bursts)
	if b.Whole && b.Then == badreply.GoOn {
		b.Then = badreply.Hang // b may replace several replies, so later replies would not match their requests
	}
	w.lossy = b.Then == badreply.Hang
	if b.After {
		return append(said, b.Bytes...), b.Then != badreply.Close
	}
	return []byte(b.Bytes), b.Then != badreply.Close
}

// pass waits until c is due and no cut blocks d. It reports false if the connection has ended.
func (l *link) pass(w *wire, d direction, c chunk) bool {
	ctx, cancel := context.WithDeadline(context.Background(), c.due)
	defer cancel()
	select {
	case <-ctx.Done():
	case <-w.ended:
		return false
	}
	for {
		l.mu.Lock()
		open, changed := l.cuts[d] == 0, l.changed
		l.mu.Unlock()
		if open {
			return true
		}
		select {
		case <-changed:
		case <-w.ended:
			return false
		}
	}
}
