package redsynctest

import (
	"bytes"
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// This file is the client's end of a connection, where answers are made late and lost.

// dial opens a connection of a process to the node.
func (n *Node) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := n.server.dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	n.open.Add(1)
	return &conn{Conn: c, node: n, closed: make(chan struct{})}, nil
}

// A conn is a connection of a process to a node.
type conn struct {
	net.Conn
	node *Node

	locks  atomic.Bool // it has carried a request of a lock, so that its answers may be late
	lossy  atomic.Bool // it breaks where the next answer would come
	once   sync.Once
	closed chan struct{}
}

// Write implements net.Conn.
func (c *conn) Write(p []byte) (int, error) {
	if isOfLock(p) {
		c.locks.Store(true)
		if c.node.losesReply() {
			c.lossy.Store(true)
		}
	}
	return c.Conn.Write(p)
}

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	switch {
	case n == 0:
	case c.lossy.Load():
		_ = c.Close()
		return 0, io.EOF
	case c.locks.Load():
		c.wait(time.Duration(c.node.late.Load()))
	}
	return n, err
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.once.Do(func() {
		close(c.closed)
		c.node.open.Add(-1)
	})
	return c.Conn.Close()
}

// wait returns after d, or when c is closed.
func (c *conn) wait(d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.closed:
	}
}

// losesReply reports whether the reply to a request is to be lost, and takes one off those that are.
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

// isOfLock reports whether a request of a lock is among what is written. Locks send SET and scripts.
func isOfLock(p []byte) bool {
	for _, command := range []string{"$3\r\nset\r\n", "$7\r\nevalsha\r\n", "$4\r\neval\r\n"} {
		if bytes.Contains(p, []byte(command)) {
			return true
		}
	}
	return false
}
