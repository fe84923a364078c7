package pool

import (
	"context"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// This file opens connections, for streams and for subscriptions. go-redis dials,
// with TLS, Sentinel and the user's own Dialer, and greets the node: HELLO, AUTH with
// the credentials of the day, SELECT, CLIENT SETNAME, the user's OnConnect. A
// connection whose greeting the node has refused is closed. Else it is the pool's:
// go-redis never touches it again.

const (
	// maxReadTimeout bounds how long a silent connection is trusted, whatever
	// the user's client allows; without a bound a stream cannot be closed.
	maxReadTimeout = 5 * time.Second

	// defaultDialTimeout is for clients that have none.
	defaultDialTimeout = 5 * time.Second
)

// opening says how a connection is opened.
type opening struct {
	dial, whole time.Duration // how long the dial may take, and all of it
	renewed     func()        // called when the credentials that were used have been replaced

	// ask asks what its caller wants to know, once the greeting is complete. An error
	// fails the connection.
	ask func(context.Context, *redis.Conn) error
}

// open returns a connection to the node of a user's client, which has been greeted as
// that client would. It is the caller's alone, and has no deadlines. The end of ctx closes
// it.
func open(ctx context.Context, user *redis.Options, how opening) (_ net.Conn, err error) {
	opened, step := &ownConn{}, ""
	defer func() {
		if err != nil {
			_ = opened.Close()
			err = noAnswer(step, err)
		}
	}()
	defer recovered(&err) // the Dialer is the user's
	bounded, cancel := context.WithTimeout(ctx, how.whole)
	defer cancel()
	step = "pool: handshake: "
	opt := ownOptions(user)
	if opened.credentials, err = follow(bounded, opt, how.renewed); err != nil {
		return nil, err
	}
	step = ""
	dialing, cancel := context.WithTimeout(bounded, how.dial)
	defer cancel()
	dialed, err := user.Dialer(dialing, user.Network, user.Addr)
	if err != nil {
		return nil, hintedDial(err, user) // dialed may be a nil *tls.Conn
	}
	opened.Conn = dialed
	context.AfterFunc(ctx, func() { _ = opened.Close() })
	step = "pool: handshake: "
	return opened, hinted(greet(bounded, opt, opened.Conn, how.ask))
}

// An ownConn is a connection of the pool's own, and the credentials that it was greeted
// with.
type ownConn struct {
	net.Conn     // nil until it is dialed
	*credentials // nil but with a StreamingCredentialsProvider
}

// Close implements net.Conn. A Dialer of the user's may have returned anything.
func (c *ownConn) Close() (err error) {
	defer c.credentials.release()
	defer recovered(&err)
	if c.Conn == nil {
		return nil
	}
	return c.Conn.Close()
}

// ownOptions copies the options of a user's client for a client that greets a node on
// one connection. Every difference is one that the contract of Pool needs.
func ownOptions(user *redis.Options) *redis.Options {
	opt := *user
	opt.ContextTimeoutEnabled = true // one bound for all of the greeting
	opt.MaxRetries = -1              // what fails fails once
	opt.DialerRetries = 1            // a dead node is told at once
	opt.Protocol = 2                 // nothing is pushed, so that every reply is the answer to a request
	opt.ReadTimeout = boundedTimeout(opt.ReadTimeout)
	opt.WriteTimeout = boundedTimeout(opt.WriteTimeout)

	// One connection is used. The second pool is where go-redis looks when the
	// first fails to dial.
	opt.PoolSize, opt.PipelinePoolSize = 2, 2
	opt.MinIdleConns, opt.MaxIdleConns, opt.MaxActiveConns = 0, 0, 0
	opt.MaxConcurrentDials = 0
	opt.PoolTimeout = 0

	// What could answer in the node's place, or delay or divert a command.
	opt.Limiter = nil
	opt.AutoPipelineOptions = nil
	opt.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	opt.ClientSideCacheConfig, opt.ClientSideCache = nil, nil
	opt.PushNotificationProcessor = nil // go-redis has put the one of the user's client here
	return &opt
}

// boundedTimeout takes an I/O timeout as go-redis stores it, where 0 and less
// mean none.
func boundedTimeout(d time.Duration) time.Duration {
	if d <= 0 || d > maxReadTimeout {
		return maxReadTimeout
	}
	return d
}
