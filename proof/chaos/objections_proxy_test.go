package main

import (
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// A detour is a TCP proxy between parties and one server: the network of a scene,
// which delays and loses messages on request.
type detour struct {
	listener net.Listener
	wg       sync.WaitGroup

	changed sync.Cond // its L guards the rest
	target  string
	lanes   []*lane
	held    [2]bool // the ways of new connections that are held up
	cut     bool    // connections are refused
	ended   bool
}

// The ways of bytes: towards the server, and back.
const (
	up = iota
	down
)

// A lane is one connection, in both directions.
type lane struct {
	client, server net.Conn
	held           [2]bool // the ways that are held up
	armed          bool    // loses is set when the client sends its next bytes
	loses          bool    // the next bytes from the server are lost, and the connection then ends
}

func each(detours []*detour, do func(*detour)) {
	for _, d := range detours {
		do(d)
	}
}

// newDetour returns a detour to the server at target, which ends with the test.
func newDetour(t *testing.T, target string) *detour {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	d := &detour{listener: l, target: target}
	d.changed.L = new(sync.Mutex)
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

func (d *detour) open(client net.Conn) {
	d.changed.L.Lock()
	defer d.changed.L.Unlock()
	if d.ended || d.cut {
		client.Close()
		return
	}
	server, err := net.Dial("tcp", d.target)
	if err != nil {
		client.Close()
		return
	}
	l := &lane{client: client, server: server, held: d.held}
	d.lanes = append(d.lanes, l)
	d.wg.Go(func() { d.carry(l, up, client, server) })
	d.wg.Go(func() { d.carry(l, down, server, client) })
}

// carry copies bytes until an end of the connection is closed, or until its bytes are lost. It always reads on, so that a client
// does not notice that its bytes are held up.
func (d *detour) carry(l *lane, way int, from, to net.Conn) {
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
		if d.loses(l, way) {
			break
		}
		if _, err := to.Write(chunk); err != nil {
			break
		}
	}
	d.loses(l, way) // the end of a connection is held up as well
	from.Close()
	to.Close()
	for range chunks { // until the reader has ended
		continue
	}
}

// loses waits while the way is held up, and reports whether its next bytes are lost.
func (d *detour) loses(l *lane, way int) bool {
	d.changed.L.Lock()
	defer d.changed.L.Unlock()
	for l.held[way] {
		d.changed.Wait()
	}
	if way == up {
		l.loses = l.loses || l.armed
		return false
	}
	return l.loses
}

// hold holds up ways of the connections that are open now, like packets that are delayed on their way, or lets them go. With all it
// does that with connections that are opened later, too.
func (d *detour) hold(held, all bool, ways ...int) {
	d.changed.L.Lock()
	defer d.changed.L.Unlock()
	for _, way := range ways {
		for _, l := range d.lanes {
			l.held[way] = held
		}
		d.held[way] = held && (all || d.held[way])
	}
	d.changed.Broadcast()
}

func (d *detour) holdRequests() { d.hold(true, false, up) }
func (d *detour) holdReplies()  { d.hold(true, true, down) }
func (d *detour) resume()       { d.hold(false, true, up, down) }

// stall holds up both directions on all connections, like a network that is cut without
// an error for either end.
func (d *detour) stall() { d.hold(true, true, up, down) }

// loseReplies makes each open connection end without the reply to its next request.
// Replies to earlier requests arrive, unless the client sends that next request before
// they do.
func (d *detour) loseReplies() {
	d.changed.L.Lock()
	defer d.changed.L.Unlock()
	for _, l := range d.lanes {
		l.armed = true
	}
}

// refuse ends all connections and refuses new ones.
func (d *detour) refuse() { d.disconnect(func() { d.cut = true }) }

// lead ends all connections and leads new ones to another server.
func (d *detour) lead(target string) { d.disconnect(func() { d.target = target }) }

func (d *detour) disconnect(change func()) {
	d.changed.L.Lock()
	defer d.changed.L.Unlock()
	change()
	for _, l := range d.lanes {
		l.client.Close()
		l.server.Close()
	}
}

func (d *detour) close() {
	d.listener.Close()
	d.resume()
	d.disconnect(func() { d.ended = true })
	d.wg.Wait()
}
