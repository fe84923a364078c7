package wire

import (
	"errors"
	"net"
	"syscall"
	"time"
)

// This file looks at a connection that has rested before it carries the next request. While the process was frozen (a
// suspended machine, a paused container), the other side may have closed it. A request written before read learns of
// that would have an unknown fate.

const (
	// rest is how long a connection carries nothing before a look, which takes less than a microsecond.
	rest = 10 * time.Millisecond

	// Data that nobody asked for, such as the alert that ends TLS, hides what follows it. So a look waits briefly until
	// read has taken it.
	unreadLooks = 10
	unreadPause = time.Millisecond
)

// hasRested goes by both clocks: the monotonic one stops while a machine is suspended, and the wall clock can be set
// back.
func hasRested(last, now time.Time) bool {
	return now.Sub(last) >= rest || now.Round(0).Sub(last.Round(0)) >= rest
}

var (
	errUnread = errors.New("data has come that nobody has read")
	errClosed = errors.New("the connection was closed while it rested")
)

// glance returns errClosed if the other side has closed a connection, errUnread if there is data to be read, otherwise
// nil.
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
	// Control, unlike Read, does not wait for the reading goroutine.
	var unread bool
	if raw.Control(func(fd uintptr) { unread, err = peek(fd) }) != nil || err != nil {
		return errClosed
	}
	if unread {
		return errUnread
	}
	return nil
}

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
