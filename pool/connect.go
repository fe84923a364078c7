package pool

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// This file opens connections. go-redis does it: it dials, with TLS, Sentinel and
// the user's own Dialer, and shakes hands (HELLO, AUTH with the credentials of the
// day, SELECT, CLIENT SETNAME, the user's OnConnect). Then the connection is ours.

const (
	// maxReadTimeout bounds how long a silent connection is trusted, whatever
	// the user's client allows; without a bound a stream cannot be closed.
	maxReadTimeout = 5 * time.Second

	// defaultDialTimeout is for clients that have none.
	defaultDialTimeout = 5 * time.Second
)

// connections counts what all streams begin to open, so that a client's next
// stream goes on where its last one ended.
var connections atomic.Uint64

// connect opens a connection. An error means that no request was written on it.
func (s *stream) connect() (*conn, error) {
	c := &conn{stream: s, number: connections.Add(1), ended: make(chan struct{})}
	if err := c.open(s.user.Options()); err != nil {
		return nil, err
	}
	c.opened = time.Now()
	return c, nil
}

func (c *conn) open(user *redis.Options) error {
	timeout := user.DialTimeout
	if timeout <= 0 {
		timeout = defaultDialTimeout
	}
	c.timeout, c.lifetime = boundedTimeout(user.ReadTimeout), user.ConnMaxLifetime
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	dialed, err := user.Dialer(ctx, user.Network, user.Addr)
	if err != nil {
		return err
	}
	ctx, cancel = context.WithTimeout(context.Background(), timeout+maxReadTimeout)
	defer cancel()
	lent := &lentConn{Conn: dialed}
	client := redis.NewClient(streamOptions(user, lent))
	defer func() { _ = client.Close() }() // closes the connection unless it has been taken back
	if err := c.shakeHands(ctx, client); err != nil {
		_ = lent.Close() // go-redis may not have got as far as having it
		return fmt.Errorf("pool: handshake: %w", err)
	}
	c.net, err = lent.takeBack()
	return err
}

// shakeHands makes go-redis prepare its connection, then asks the node who it is
// and gives it every script, in one round trip. A node may refuse either, for want
// of permission: it is unknown then, and answers NOSCRIPT later and is sent the
// source. Any other failure is the connection's. A node that is busy with a script
// refuses nearly everything: it is tried again later.
func (c *conn) shakeHands(ctx context.Context, client *redis.Client) error {
	var info *redis.Cmd
	cmds, _ := client.Conn().Pipelined(ctx, func(p redis.Pipeliner) error { // every command has its own error
		info = p.Do(ctx, "info", "server")
		for _, script := range knownScripts() {
			p.ScriptLoad(ctx, script.source)
		}
		return nil
	})
	at := time.Now()
	for _, cmd := range cmds {
		var refused redis.Error
		if err := cmd.Err(); err != nil && (!errors.As(err, &refused) || redis.HasErrorPrefix(err, "BUSY ")) {
			return err
		}
	}
	text, _ := info.Val().(string)
	c.server = parseInfo(text, at)
	return nil
}

// lentConn is a connection that go-redis has until it is taken back. From then on
// nothing that go-redis does reaches it.
//
// At that moment go-redis (v9.23.0) is done with it. The client has executed all
// that it was given and has no other connection. What go-redis does by itself either
// does not run here (the drainer of client-side caches, maintenance notifications,
// MinIdleConns, dials repeated after a failure) or waits until a connection is put
// back into its pool (checks of idle ones, renewal of credentials), and the Conn that
// holds this one never does that. Its reader holds nothing back: it read one reply
// for each command, and with RESP2 a node sends nothing else.
type lentConn struct {
	net.Conn
	state atomic.Int32
}

const (
	lent = iota
	takenBack
	closed
)

// takeBack returns the connection without deadlines, or an error when go-redis has
// closed it.
func (c *lentConn) takeBack() (net.Conn, error) {
	if !c.state.CompareAndSwap(lent, takenBack) {
		return nil, net.ErrClosed
	}
	if err := c.Conn.SetDeadline(time.Time{}); err != nil {
		_ = c.Conn.Close()
		return nil, err
	}
	return c.Conn, nil
}

// Close closes the connection while it is lent.
func (c *lentConn) Close() error {
	if c.state.CompareAndSwap(lent, closed) {
		return c.Conn.Close()
	}
	return nil
}

func (c *lentConn) Read(p []byte) (int, error) {
	if c.state.Load() != lent {
		return 0, net.ErrClosed
	}
	return c.Conn.Read(p)
}

func (c *lentConn) Write(p []byte) (int, error) {
	if c.state.Load() != lent {
		return 0, net.ErrClosed
	}
	return c.Conn.Write(p)
}

// streamOptions copies the options of a user's client for a handshake on dialed.
func streamOptions(user *redis.Options, dialed net.Conn) *redis.Options {
	opt := ownOptions(user)
	opt.ContextTimeoutEnabled = true // one bound for all of the handshake
	opt.Dialer = func(context.Context, string, string) (net.Conn, error) { return dialed, nil }
	return opt
}

// ownOptions copies the options of a user's client for a client that carries one
// connection of ours. Every difference is one that the contract of Pool needs.
func ownOptions(user *redis.Options) *redis.Options {
	opt := *user
	opt.MaxRetries = -1   // what fails fails once
	opt.DialerRetries = 1 // a dead node is told at once
	opt.Protocol = 2      // nothing is pushed, so that every reply is the answer to a request
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

type dialFunc = func(ctx context.Context, network, addr string) (net.Conn, error)
