package wire

import (
	"errors"
	"net"
	"syscall"
	"time"
)

// This file looks at a connection that has rested before it carries the next request. A process may have been frozen
// meanwhile (a suspended machine, a paused container, a function between two calls), and the node or a proxy may have
// closed the connection. When the process goes on, the next request is often written before read learns of that, and
// its fate is unknown then. What the operating system knows already is seen without waiting, as go-redis does it.

const (
	// rest is how long a connection has carried nothing when it is looked at. A look is one system call of less than a
	// microsecond, so a connection spends at most 0.01 % of the time on looks.
	rest = 10 * time.Millisecond

	// Data that nobody has asked for, such as a notification or the alert that ends TLS, hides what follows it. So a look
	// waits until read has taken the data, but not for long: read may be in the middle of something larger.
	unreadLooks = 10
	unreadPause = time.Millisecond
)

// hasRested reports whether nothing was carried for a while after last. It goes by both clocks: the monotonic clock stops
// while a machine is suspended, and the wall clock can be set back.
func hasRested(last, now time.Time) bool {
	return now.Sub(last) >= rest || now.Round(0).Sub(last.Round(0)) >= rest
}

// What a look has found.
var (
	errUnread = errors.New("data has come that nobody has read")
	errClosed = errors.New("the connection was closed while it rested")
)

// glance returns errClosed if the other side has closed a connection, errUnread if there is data to be read, and nil if
// there is neither, or if the connection does not tell.
func glance(conn net.Conn) (found error) {
	defer func() {
		if recover() != nil { // a user's Dialer may have returned any type
			found = nil
		}
	}()
	socket := socketOf(conn)
	if socket == nil {
		return nil
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return nil //nolint:nilerr // it has no socket
	}
	// Control, unlike Read, does not wait for the goroutine that reads.
	var unread bool
	if raw.Control(func(fd uintptr) { unread, err = peek(fd) }) != nil || err != nil {
		return errClosed // on our side, or on the other
	}
	if unread {
		return errUnread
	}
	return nil
}

// socketOf returns the socket below conn, nil if conn does not show it.
func socketOf(conn net.Conn) syscall.Conn {
	for range 8 { // a wrapper may lead to itself
		switch c := conn.(type) {
		case *ownConn:
			conn = c.Conn
		case syscall.Conn:
			return c
		case interface{ NetConn() net.Conn }: // as crypto/tls.Conn
			conn = c.NetConn()
		default:
			return nil
		}
	}
	return nil
}
