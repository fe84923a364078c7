package wiretest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
)

// A Link opens connections to a node: its method Dial is a Dialer for the options of a client. A Link
// loses replies on request.
type Link struct {
	dial func(ctx context.Context, network, addr string) (net.Conn, error)

	mu     sync.Mutex
	losing []byte // part of the encoding of the request whose reply is to be lost
}

// NewLink returns a Link that opens connections with dial, or TCP connections if dial is nil.
func NewLink(dial func(ctx context.Context, network, addr string) (net.Conn, error)) *Link {
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	return &Link{dial: dial}
}

// Dial fits redis.Options.Dialer.
func (l *Link) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := l.dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	way := &linked{Conn: c, link: l}
	if sys, ok := c.(syscall.Conn); ok {
		return &socket{way, sys}, nil
	}
	return way, nil
}

// socket lets go-redis check whether a connection is still alive.
type socket struct {
	*linked
	syscall.Conn
}

// LoseReply fits Env.LoseReply. The connection that carries the next request named command is
// closed when data next arrives from the node, and that data is lost.
func (l *Link) LoseReply(command string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.losing = fmt.Appendf(nil, "\r\n%s\r\n", command)
}

// dooms reports whether b carries the request that LoseReply waits for. After it has reported true, it
// reports false until the next call of LoseReply.
func (l *Link) dooms(b []byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.losing == nil || !bytes.Contains(b, l.losing) {
		return false
	}
	l.losing = nil
	return true
}

type linked struct {
	net.Conn
	link *Link

	mu     sync.Mutex
	doomed bool
}

func (c *linked) Write(b []byte) (int, error) {
	if c.link.dooms(b) {
		c.mu.Lock()
		c.doomed = true
		c.mu.Unlock()
	}
	return c.Conn.Write(b)
}

func (c *linked) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.doomed {
		return n, err
	}
	_ = c.Close()
	return 0, io.ErrUnexpectedEOF
}
