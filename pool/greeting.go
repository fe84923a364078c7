package pool

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// greet makes go-redis greet the node at the other end of conn, and then ask.
//
// What go-redis returns for its commands is no proof of a greeting: it has been seen to
// report success for commands that it never sent (v9.23.0, Pipelined). That it calls
// OnConnect is one, because it does so last, when nothing has failed. So OnConnect is
// where the pool asks, and where it takes the connection back. The command that made
// go-redis connect is never sent.
//
// At that moment go-redis is done with the connection. What it does by itself either
// does not run here (the drainer of client-side caches, maintenance notifications,
// MinIdleConns, dials repeated after a failure, renewal of credentials) or waits until
// a connection is put back into its pool (checks of idle ones), and this one is not.
func greet(ctx context.Context, opt *redis.Options, conn net.Conn, ask func(context.Context, *redis.Conn) error) (err error) {
	lent := newLentConn(conn)
	greeted, used := false, false
	onConnect := opt.OnConnect
	var failed error // what go-redis would unwrap
	opt.OnConnect = func(ctx context.Context, cn *redis.Conn) error {
		if onConnect != nil {
			failed = onConnect(ctx, cn)
		}
		if failed == nil && ask != nil {
			failed = ask(ctx, cn)
		}
		if failed == nil {
			failed = lent.takeBack()
		}
		greeted = failed == nil
		return cmp.Or(failed, errTakenBack)
	}
	opt.Dialer = func(context.Context, string, string) (net.Conn, error) {
		if used {
			return nil, errLost
		}
		used = true
		return lent, nil
	}
	defer recovered(&err)
	client := redis.NewClient(opt)
	defer func() { _ = client.Close() }()
	err = client.Ping(ctx).Err()
	switch {
	case greeted:
		return nil
	case failed != nil:
		return failed
	case err == nil:
		return errors.New("go-redis has not greeted the node")
	}
	return lent.explained(err)
}

var (
	errTakenBack = errors.New("pool: the connection has been taken back")
	errLost      = errors.New("a connection is opened once")
)

// A lentConn is a connection that go-redis has until it is taken back. From then on
// nothing that go-redis does reaches it.
//
// What go-redis reads from it are replies that have been read before, whole, by the
// pool's own decoder. go-redis makes room for what a peer announces before it has come,
// and goes as deep as arrays are nested: three lines of nonsense could end the process.
type lentConn struct {
	net.Conn
	state atomic.Int32

	// Of the one who reads.
	replies *bufio.Reader // fills arrived as it reads
	arrived bytes.Buffer  // what go-redis has not been given
	heard   bool          // something has arrived
	whole   int           // so much of arrived is a reply
	broken  error         // what has ended the reading
	refused error         // the last reply, if it was an error
}

const (
	lent = iota
	takenBack
	closed
)

// maxGreeting bounds what one reply of the greeting takes in memory, the replies to
// the user's OnConnect included.
const maxGreeting = 1 << 20

func newLentConn(conn net.Conn) *lentConn {
	c := &lentConn{Conn: conn}
	c.replies = bufio.NewReaderSize(arrivals{c}, readBuffer)
	return c
}

// arrivals is what a lentConn decodes: it keeps a copy.
type arrivals struct{ *lentConn }

func (a arrivals) Read(p []byte) (int, error) {
	n, err := a.Conn.Read(p)
	a.arrived.Write(p[:n])
	a.heard = a.heard || n > 0
	return n, err
}

// takeBack ends the lending and leaves the connection without deadlines, or returns an
// error when go-redis has closed it or the node has sent more than it was asked for.
func (c *lentConn) takeBack() error {
	switch {
	case !c.state.CompareAndSwap(lent, takenBack):
		return net.ErrClosed
	case c.arrived.Len() > 0:
		return errUnasked
	}
	return c.Conn.SetDeadline(time.Time{})
}

// Close closes the connection while it is lent.
func (c *lentConn) Close() error {
	if c.state.CompareAndSwap(lent, closed) {
		return c.Conn.Close()
	}
	return nil
}

// Read returns bytes of one reply at a time.
func (c *lentConn) Read(p []byte) (int, error) {
	if c.state.Load() != lent {
		return 0, net.ErrClosed
	}
	if c.whole == 0 {
		if err := c.readReply(); err != nil {
			return 0, err
		}
	}
	n, _ := c.arrived.Read(p[:min(len(p), c.whole)]) // as much is there
	c.whole -= n
	return n, nil
}

// readReply waits until the next reply is there.
func (c *lentConn) readReply() error {
	if c.broken != nil {
		return c.broken
	}
	d := decoder{Reader: c.replies, left: maxGreeting}
	value, err := d.value(0)
	if err != nil {
		c.broken = err
		return err
	}
	c.refused = nil
	if refused, ok := value.(refusal); ok {
		c.refused = refused
	}
	c.whole = c.arrived.Len() - c.replies.Buffered()
	return nil
}

// explained adds to why a greeting has failed what the node said before it ended the
// connection: one that has too many clients says so at once, and go-redis goes on.
func (c *lentConn) explained(err error) error {
	if c.refused == nil || isAnswer(err) {
		return plainHint(err, c.arrived.Bytes(), c.heard)
	}
	return fmt.Errorf("%w (the node has answered: %w)", err, c.refused)
}

func (c *lentConn) Write(p []byte) (int, error) {
	if c.state.Load() != lent {
		return 0, net.ErrClosed
	}
	return c.Conn.Write(p)
}

// SetDeadline implements net.Conn.
func (c *lentConn) SetDeadline(t time.Time) error {
	if c.state.Load() != lent {
		return net.ErrClosed
	}
	return c.Conn.SetDeadline(t)
}

// SetReadDeadline implements net.Conn.
func (c *lentConn) SetReadDeadline(t time.Time) error {
	if c.state.Load() != lent {
		return net.ErrClosed
	}
	return c.Conn.SetReadDeadline(t)
}

// SetWriteDeadline implements net.Conn.
func (c *lentConn) SetWriteDeadline(t time.Time) error {
	if c.state.Load() != lent {
		return net.ErrClosed
	}
	return c.Conn.SetWriteDeadline(t)
}
