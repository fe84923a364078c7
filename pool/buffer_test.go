package pool

import (
	"context"
	"io"
	"net"
	"sync"
	"time"
)

// buffered gives connections of dial what the kernel gives a socket: room for
// what was written and not yet read. Without it a client in the middle of a
// large write and a node in the middle of a reply wait for one another. A write
// to a dead node succeeds or ends in io.EOF, which go-redis knows.
func buffered(dial dialFunc) dialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		inner, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		c := &bufferedConn{Conn: inner, more: make(chan struct{}, 1), closed: make(chan struct{})}
		go c.pump()
		return c, nil
	}
}

type bufferedConn struct {
	net.Conn
	more   chan struct{} // holds a token when written has grown
	closed chan struct{}
	once   sync.Once

	mu      sync.Mutex
	written []byte
	err     error // of the inner connection
}

func (c *bufferedConn) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return 0, c.err
	}
	c.written = append(c.written, b...)
	select {
	case c.more <- struct{}{}:
	default:
	}
	return len(b), nil
}

func (c *bufferedConn) pump() {
	for {
		select {
		case <-c.more:
		case <-c.closed:
			return
		}
		c.mu.Lock()
		b := c.written
		c.written = nil
		c.mu.Unlock()
		if _, err := c.Conn.Write(b); err != nil {
			c.mu.Lock()
			c.err = io.EOF
			c.mu.Unlock()
			return
		}
	}
}

func (c *bufferedConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// A write never waits here, so its deadline has no effect. Where the connection
// has ended Read and Write say so.
func (c *bufferedConn) SetDeadline(t time.Time) error    { return c.SetReadDeadline(t) }
func (c *bufferedConn) SetWriteDeadline(time.Time) error { return nil }
func (c *bufferedConn) SetReadDeadline(t time.Time) error {
	_ = c.Conn.SetReadDeadline(t)
	return nil
}
