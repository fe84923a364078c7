package main

import (
	"net"
	"sync"
	"testing"
)

// A detour is a TCP proxy between parties and one server: the network of a scene,
// which delays and loses messages on request.
type detour struct {
	listener net.Listener
	wg       sync.WaitGroup

	mu     sync.Mutex
	target string
	lanes  map[*lane]bool
	future lane // new connections start with its gates; its other fields are unused
	cut    bool // connections are refused
	ended  bool
}

// A lane is one connection, in both directions.
type lane struct {
	client, server net.Conn
	up, down       gate // towards the server, and back
	armed          bool // loses is set when the client sends its next bytes
	loses          bool // the next bytes from the server are lost, and the connection then ends
}

func each(detours []*detour, do func(*detour)) {
	for _, d := range detours {
		do(d)
	}
}

// newDetour returns a detour to the server at target, which ends with the test.
func newDetour(t *testing.T, target string) *detour {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := &detour{listener: l, target: target, lanes: make(map[*lane]bool)}
	d.wg.Go(d.accept)
	t.Cleanup(d.close)
	return d
}

func (d *detour) addr() string { return d.listener.Addr().String() }

func (d *detour) accept() {
	for {
		client, err := d.listener.Accept()
		if err != nil {
			return
		}
		d.open(client)
	}
}

// open connects client to the target. It closes client if d is cut or has ended.
func (d *detour) open(client net.Conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended || d.cut {
		_ = client.Close()
		return
	}
	server, err := net.Dial("tcp", d.target)
	if err != nil {
		_ = client.Close()
		return
	}
	l := &lane{client: client, server: server}
	l.up.inherit(&d.future.up)
	l.down.inherit(&d.future.down)
	d.lanes[l] = true
	d.wg.Go(func() { d.carry(client, server, &l.up, func() bool { d.asks(l); return false }) })
	d.wg.Go(func() {
		d.carry(server, client, &l.down, func() bool { return d.loses(l) })
		d.drop(l)
	})
}

// asks records that the client of l has sent something. If l is armed, the next reply on l is lost.
func (d *detour) asks(l *lane) {
	d.mu.Lock()
	defer d.mu.Unlock()
	l.loses = l.loses || l.armed
}

func (d *detour) loses(l *lane) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return l.loses
}

func (d *detour) drop(l *lane) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.lanes, l)
}

// carry moves bytes from one connection to the other through g, and closes both at the end. It
// ends when a connection ends, or when lose says that the bytes at hand are lost. Bytes that g
// has held up still arrive if from has ended meanwhile.
func (d *detour) carry(from, to net.Conn, g *gate, lose func() bool) {
	chunks := make(chan []byte, 1<<14) // more than any scene sends
	d.wg.Go(func() {
		defer close(chunks)
		for buffer := make([]byte, 1<<14); ; {
			n, err := from.Read(buffer)
			if n > 0 {
				chunks <- append([]byte(nil), buffer[:n]...)
			}
			if err != nil {
				return
			}
		}
	})
	for chunk := range chunks {
		g.pass()
		if lose() {
			break
		}
		if _, err := to.Write(chunk); err != nil {
			break
		}
	}
	g.pass() // the end of a connection is held up as well
	_ = from.Close()
	_ = to.Close()
	for range chunks { // until the reader has ended
		continue
	}
}

// each calls f for every open connection.
func (d *detour) each(f func(*lane)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for l := range d.lanes {
		f(l)
	}
}

// holdRequests holds up what goes to the server on the connections that are open now, like
// packets that are delayed on their way. Connections that are opened later pass everything.
func (d *detour) holdRequests() { d.each(func(l *lane) { l.up.shut() }) }

// holdReplies holds up what comes from the server, on all connections.
func (d *detour) holdReplies() {
	d.each(func(l *lane) { l.down.shut() })
	d.future.down.shut()
}

// stall holds up both directions on all connections, like a network that is cut without
// an error for either end.
func (d *detour) stall() {
	d.holdRequests()
	d.future.up.shut()
	d.holdReplies()
}

// resume lets everything go on.
func (d *detour) resume() {
	d.future.up.open()
	d.future.down.open()
	d.each(func(l *lane) {
		l.up.open()
		l.down.open()
	})
}

// loseReplies makes each open connection end without the reply to its next request.
// Replies to earlier requests arrive, unless the client sends that next request before
// they do.
func (d *detour) loseReplies() { d.each(func(l *lane) { l.armed = true }) }

// refuse ends all connections and refuses new ones.
func (d *detour) refuse() {
	d.mu.Lock()
	d.cut = true
	d.mu.Unlock()
	d.disconnect()
}

// lead ends all connections and leads new ones to another server.
func (d *detour) lead(target string) {
	d.mu.Lock()
	d.target = target
	d.mu.Unlock()
	d.disconnect()
}

func (d *detour) disconnect() {
	d.each(func(l *lane) {
		_ = l.client.Close()
		_ = l.server.Close()
	})
}

func (d *detour) close() {
	_ = d.listener.Close()
	d.mu.Lock()
	d.ended = true
	d.mu.Unlock()
	d.resume()
	d.disconnect()
	d.wg.Wait()
}

// A gate is open or shut. The zero gate is open.
type gate struct {
	mu     sync.Mutex
	closed chan struct{} // closed when the gate opens; nil while it is open
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed == nil {
		g.closed = make(chan struct{})
	}
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed != nil {
		close(g.closed)
		g.closed = nil
	}
}

// inherit shuts g if the gate other is shut.
func (g *gate) inherit(other *gate) {
	if other.wait() != nil {
		g.shut()
	}
}

func (g *gate) wait() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed
}

// pass waits until the gate is open.
func (g *gate) pass() {
	if opened := g.wait(); opened != nil {
		<-opened
	}
}
