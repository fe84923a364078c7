package wire

import (
	"context"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
)

type opening struct {
	dial, whole time.Duration // of the dial, and of dial and greeting together
	renewed     func()
	sign        func()         // at each sign of life; may be nil
	dialed      func(net.Conn) // before the greeting; may be nil
	heard       func()
	at          string // that a notification named, or ""
	heeds       bool   // the node may push notifications

	// behind, which may be nil, returns commands, and their number, to be written with the last part of a greeting that
	// go-redis makes alone.
	behind func(opened *ownConn) (encoded []byte, commands int)

	// ask sends the caller's questions after the greeting. Its error fails the connection.
	ask func(ctx context.Context, cn *redis.Conn, opened *ownConn) error
}

// An ownConn is a connection owned by the pool.
type ownConn struct {
	net.Conn     // nil until dialed
	*credentials // nil without a provider

	early        []byte // pushed during the greeting, not yet read
	refusedHello bool   // so it speaks RESP2 and pushes nothing
	mode         string // by its answer to HELLO, or ""

	// ahead returns the answers to opening.behind and when the first arrived, nil if they were not written.
	ahead func(ctx context.Context) (answers []any, at time.Time, err error)
}

func (c *ownConn) Read(p []byte) (int, error) {
	if len(c.early) > 0 {
		n := copy(p, c.early)
		c.early = c.early[n:]
		return n, nil
	}
	return c.Conn.Read(p)
}

// Close recovers, because a user's Dialer may have returned any type.
func (c *ownConn) Close() (err error) {
	defer c.credentials.release()
	defer recovered(&err)
	if c.Conn == nil {
		return nil
	}
	return c.Conn.Close()
}
