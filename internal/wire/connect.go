package wire

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// This file opens connections. go-redis dials and greets (HELLO, AUTH, SELECT, CLIENT SETNAME, the user's OnConnect).
// Then the pool owns the connection.

const (
	// maxReadTimeout bounds how long a connection may be silent. A stream on a frozen node must be able to close.
	maxReadTimeout = 5 * time.Second

	// slowHandshake is how long a TLS handshake may take until the port is asked whether it speaks plain Redis.
	slowHandshake = 200 * time.Millisecond

	defaultDialTimeout = 5 * time.Second
)

// open returns a connection to the node of a user's client, greeted as that client would greet it. The end of ctx
// closes it.
func open(ctx context.Context, client *redis.Client, how opening) (_ *ownConn, err error) {
	opened, step, user := &ownConn{}, "", client.Options()
	if how.at != "" {
		there := *user
		there.Addr, user = how.at, &there
	}
	defer func() {
		if err != nil {
			_ = opened.Close()
			err = noAnswer(step, err)
		}
	}()
	defer recovered(&err) // the user's Dialer may panic
	bounded, cancel := context.WithTimeout(ctx, how.whole)
	defer cancel()
	dialing, cancel := context.WithTimeout(bounded, how.dial)
	defer cancel()
	var dialed net.Conn
	if user.TLSConfig == nil {
		dialed, err = user.Dialer(dialing, user.Network, user.Addr)
	} else {
		dialed, err = dialTLS(dialing, user, how.sign)
	}
	if err != nil {
		if dialing.Err() != nil && bounded.Err() == nil {
			err = fmt.Errorf("no answer to the dial within %v: %w", how.dial, err)
		}
		return nil, err // dialed may be a nil *tls.Conn
	}
	opened.Conn = dialed
	if how.dialed != nil {
		how.dialed(dialed)
	}
	if how.sign != nil {
		how.sign()
	}
	step = "pool: handshake: "
	opt := ownOptions(user)
	if how.heeds {
		opt.Protocol = 3 // notifications are pushes
	}
	// Only now, as in go-redis: a provider may make credentials for the address that was reached.
	if opened.credentials, err = follow(bounded, opt, how.renewed); err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { _ = opened.Close() })
	return opened, hintedWithout(greet(bounded, opt, opened, &how), user.Password, opened.credentials)
}

// dialTLS adds a hint to errors. A server without TLS is silent in the handshake. So if that takes long, dialTLS asks
// the port whether it speaks plain Redis.
func dialTLS(ctx context.Context, user *redis.Options, sign func()) (net.Conn, error) {
	if !dialsItself(user) {
		dialed, err := user.Dialer(ctx, user.Network, user.Addr)
		return dialed, hintedDial(err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ask := time.AfterFunc(slowHandshake, func() {
		if isPlain(ctx, user.Network, user.Addr) {
			cancel(errPlain)
		}
	})
	defer ask.Stop()
	dialed, err := shakeHands(ctx, user, sign)
	switch {
	case err == nil:
		return dialed, nil
	case context.Cause(ctx) == errPlain: //nolint:errorlint // set above
		return nil, errPlain
	}
	return nil, hintedDial(err)
}

// shakeHands does what a tls.Dialer does, and calls sign in between.
func shakeHands(ctx context.Context, user *redis.Options, sign func()) (net.Conn, error) {
	dialer := net.Dialer{Timeout: user.DialTimeout, KeepAliveConfig: keepAlive}
	if user.DialTimeout > 0 { // it bounds the dial and the handshake together
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, user.DialTimeout)
		defer cancel()
	}
	plain, err := dialer.DialContext(ctx, user.Network, user.Addr)
	if err != nil {
		return nil, err
	}
	if sign != nil {
		sign()
	}
	config := user.TLSConfig
	if config.ServerName == "" {
		config = config.Clone()
		config.ServerName = user.Addr
		if colon := strings.LastIndexByte(user.Addr, ':'); colon >= 0 {
			config.ServerName = user.Addr[:colon]
		}
	}
	encrypted := tls.Client(plain, config)
	if err := encrypted.HandshakeContext(ctx); err != nil {
		_ = plain.Close()
		return nil, err
	}
	return encrypted, nil
}

func dialTimeout(opt *redis.Options) time.Duration {
	if opt.DialTimeout > 0 {
		return opt.DialTimeout
	}
	return defaultDialTimeout
}

// keepAlive is that of go-redis.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 5 * time.Second, Count: 3}

func isPlain(ctx context.Context, network, addr string) bool {
	ctx, cancel := context.WithTimeout(ctx, slowHandshake)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err != nil {
		return false
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	defer func() { _ = conn.Close() }()
	answer := make([]byte, 1)
	if _, err = io.WriteString(conn, "PING\r\n"); err == nil {
		_, err = io.ReadFull(conn, answer)
	}
	return err == nil && (answer[0] == '+' || answer[0] == '-')
}

// ownOptions copies the options of a user's client for one that greets. The contract of Pool requires each change.
func ownOptions(user *redis.Options) *redis.Options {
	opt := *user
	opt.ContextTimeoutEnabled = true // the context bounds the whole greeting
	opt.MaxRetries = -1              // nothing is tried twice
	opt.DialerRetries = 1            // report a dead node at once
	opt.Protocol = 2                 // no pushes, unless open wants them
	opt.ReadTimeout = boundedTimeout(opt.ReadTimeout)
	opt.WriteTimeout = boundedTimeout(opt.WriteTimeout)

	// Only one connection is used, but if its dial fails, go-redis turns to its pipeline pool.
	opt.PoolSize, opt.PipelinePoolSize = 2, 2
	opt.MinIdleConns, opt.MaxIdleConns, opt.MaxActiveConns = 0, 0, 0
	opt.MaxConcurrentDials = 0
	opt.PoolTimeout = 0
	opt.ReadBufferSize, opt.WriteBufferSize = greetingBuffer, greetingBuffer // else 64 KiB for each connection

	// Disable what could answer in place of the node, or delay or divert a command.
	opt.Limiter = nil
	opt.AutoPipelineOptions = nil
	opt.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	opt.ClientSideCacheConfig, opt.ClientSideCache = nil, nil
	opt.PushNotificationProcessor = nil
	return &opt
}

// boundedTimeout bounds a timeout of go-redis options, where 0 or less means none.
func boundedTimeout(d time.Duration) time.Duration {
	if d <= 0 || d > maxReadTimeout {
		return maxReadTimeout
	}
	return d
}
