package wiretest_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/embedded"
	"github.com/seed14bd9ef4/redsync/internal/wire"
)

// A second Pool, written from the contract alone. What it must do is on the page ../README.md, and wiretest
// checks it.
func Example_driver() {
	nodes := embedded.Start(3) // in a program: three servers
	defer nodes.Close()
	var pools []wire.Pool
	for i, node := range nodes {
		name := fmt.Sprint("node ", i)
		pools = append(pools, NewDriver(name, greeted(node.Dial, name), 4096))
	}
	rs := redsync.New(pools...)
	defer rs.Close(context.Background())
	err := rs.Do(context.Background(), "orders:17", func(context.Context) error {
		fmt.Println("working")
		return nil
	})
	fmt.Println(err)
	// Output:
	// working
	// <nil>
}

// A Driver is a wire.Pool on connections that dial has opened and, if needed, logged in. It needs a function that reads a
// reply from one, here readReply in resp_test.go: your client has it.
type Driver struct {
	name  string
	dial  func(context.Context) (net.Conn, error)
	limit int

	mu           sync.Mutex // guards what follows
	changed      *sync.Cond
	waiting      []wire.Request // accepted, not yet written
	encoded      []byte         // their encoding
	flying       []wire.Request // written, without a reply
	owed         int            // accepted, without a reply delivered
	running      bool           // run is
	broken       bool           // so is the connection of serve
	idle, closed bool
}

func NewDriver(name string, dial func(context.Context) (net.Conn, error), limit int) *Driver {
	d := &Driver{name: name, dial: dial, limit: limit}
	d.changed = sync.NewCond(&d.mu)
	return d
}

// Send only encodes and queues, so it never waits for the network.
func (d *Driver) Send(req wire.Request) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.closed:
		return wire.ErrClosed
	case d.owed >= d.limit && (!req.Reserved || d.owed >= 32768):
		return &wire.OutstandingError{Limit: d.limit}
	}
	encoded, err := wire.AppendCommand(d.encoded, req.Args)
	if err != nil {
		return err
	}
	req.RESP = nil // it is valid only now
	d.waiting, d.encoded = append(d.waiting, req), encoded
	d.owed, d.idle = d.owed+1, false
	if !d.running {
		d.running = true
		go d.run()
	}
	d.changed.Broadcast()
	return nil
}

func (d *Driver) CloseIdle() { d.set(&d.idle) }

func (d *Driver) Close() error { d.set(&d.closed); return nil }

func (d *Driver) set(state *bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	*state = true
	d.changed.Broadcast()
}

func (d *Driver) String() string { return d.name }

// Destination implements wire.Located: a Redsync refuses two Drivers of one node.
func (d *Driver) Destination() any { return d.name }

// MetBefore implements wire.Met: no Lock need wait to learn which server this is, as no reply will say so.
func (d *Driver) MetBefore() bool { return true }

// connections counts the connections of all Drivers, so that each has a higher number than those before it.
var connections atomic.Uint64

// run serves one connection after another, while requests are waiting. So everything is delivered in order.
func (d *Driver) run() {
	for d.hasWork() {
		number := connections.Add(1)
		ctx, cancel := context.WithTimeout(context.Background(), silence)
		conn, err := d.dial(ctx)
		cancel()
		if err == nil {
			d.serve(conn, number)
			continue
		}
		d.mu.Lock()
		unsent := d.waiting
		d.waiting, d.encoded = nil, nil
		d.mu.Unlock()
		d.fail(unsent, wire.Reply{Err: err, Fate: wire.NotSent, Conn: number})
	}
}

func (d *Driver) hasWork() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.running, d.broken = len(d.waiting) > 0, false
	return d.running
}

// serve writes to a connection until it breaks, or is not needed any more. What waits then goes to the next one. What
// was written is never written again: nobody knows whether the node has executed it.
func (d *Driver) serve(conn net.Conn, number uint64) {
	end := make(chan error)
	go func() { end <- d.read(conn, number) }()
	for encoded := d.take(conn); encoded != nil; encoded = d.take(conn) {
		if _, err := conn.Write(encoded); err != nil {
			break
		}
	}
	_ = conn.Close()
	err := <-end // from here, nobody else delivers
	d.mu.Lock()
	lost := d.flying
	d.flying = nil
	d.mu.Unlock()
	d.fail(lost, wire.Reply{Err: err, Fate: wire.Unknown, Conn: number})
}

// silence is how long a node may owe replies without sending one.
const silence = 5 * time.Second

// take waits for requests and returns their encoding, nil at the end of the connection.
func (d *Driver) take(conn net.Conn) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	for len(d.waiting) == 0 && !d.broken && (d.owed > 0 || !d.idle && !d.closed) {
		d.changed.Wait()
	}
	if d.broken || len(d.waiting) == 0 {
		return nil
	}
	if len(d.flying) == 0 { // the reader waits without a deadline
		_ = conn.SetReadDeadline(time.Now().Add(silence))
	}
	encoded := d.encoded
	d.flying = append(d.flying, d.waiting...)
	d.waiting, d.encoded = nil, nil
	return encoded
}

// read delivers replies until the connection ends. It also notices the end of a connection that nobody uses.
func (d *Driver) read(conn net.Conn, number uint64) error {
	defer d.set(&d.broken)
	defer func() { _ = conn.Close() }() // or a Write may hang
	for in := bufio.NewReader(conn); ; {
		value, err := readReply(in, 0)
		var refused Refusal
		if err != nil && !errors.As(err, &refused) {
			return err
		}
		d.mu.Lock()
		if len(d.flying) == 0 {
			d.mu.Unlock()
			return errMalformed
		}
		req, deadline := d.flying[0], time.Time{}
		if d.flying = d.flying[1:]; len(d.flying) > 0 {
			deadline = time.Now().Add(silence)
		}
		_ = conn.SetReadDeadline(deadline)
		d.mu.Unlock()
		d.deliver(req, wire.Reply{Value: value, Err: err, Fate: wire.Answered, Conn: number})
	}
}

func (d *Driver) fail(requests []wire.Request, reply wire.Reply) {
	for _, req := range requests {
		d.deliver(req, reply)
	}
}

// deliver makes room first: the receiver may send the next request.
func (d *Driver) deliver(req wire.Request, reply wire.Reply) {
	d.mu.Lock()
	d.owed--
	d.mu.Unlock()
	d.changed.Broadcast()
	req.To.Receive(req.Tag, reply)
}
