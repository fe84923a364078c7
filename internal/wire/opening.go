package wire

import (
	"context"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
)

// opening holds the parameters of open.
type opening struct {
	dial, whole time.Duration  // of the dial, and of dial and greeting together
	renewed     func()         // called when the credentials were replaced
	sign        func()         // called when the dial has ended, or a reply arrives; may be nil
	dialed      func(net.Conn) // before the greeting; may be nil
	heard       func()         // called when a part of an answer arrives; may be nil
	at          string         // that a notification named, "" for the client's own
	heeds       bool           // the node may push notifications of maintenance

	// behind returns commands, and how many they are, that are written together with the last part of the greeting if
	// go-redis makes that alone. It may be nil. ask finds the answers in the ownConn.
	behind func(opened *ownConn) (encoded []byte, commands int)

	// ask sends the caller's questions after the greeting. Its error fails the connection.
	ask func(ctx context.Context, cn *redis.Conn, opened *ownConn) error
}

// An ownConn is a connection owned by the pool, with the credentials of its greeting.
type ownConn struct {
	net.Conn     // nil until it is dialed
	*credentials // nil without a StreamingCredentialsProvider

	early        []byte // pushed during the greeting, not yet read
	refusedHello bool   // the node speaks RESP2, so it can push nothing
	mode         string // of the node, by its answer to HELLO, or ""

	// ahead returns the answers to opening.behind and when the first arrived, or nil if the commands were not written.
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

// Close recovers from panics, because a user's Dialer may have returned any type.
func (c *ownConn) Close() (err error) {
	defer c.credentials.release()
	defer recovered(&err)
	if c.Conn == nil {
		return nil
	}
	return c.Conn.Close()
}
