package rueidispool

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"reflect"
	"sync"

	"github.com/redis/rueidis"
)

// isPlain reports whether go-redis itself dials as rueidis would: there is no function for that, and of the Dialer only
// the Timeout is set. Then a pool knows the address of its node.
func isPlain(option *rueidis.ClientOption) bool {
	rest := option.Dialer
	rest.Timeout = 0
	return option.DialCtxFn == nil && option.DialFn == nil && reflect.ValueOf(rest).IsZero()
}

// A dialer opens connections as rueidis does, with the same defaults.
type dialer struct {
	ctxFn func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error)
	fn    func(string, *net.Dialer, *tls.Config) (net.Conn, error)
	net   net.Dialer
	tls   *tls.Config
}

// newDialer returns the dialer of a node.
func newDialer(option *rueidis.ClientOption) *dialer {
	d := &dialer{ctxFn: option.DialCtxFn, fn: option.DialFn, net: option.Dialer, tls: option.TLSConfig}
	d.net.Timeout = cmp.Or(d.net.Timeout, rueidis.DefaultDialTimeout)
	d.net.KeepAlive = cmp.Or(d.net.KeepAlive, rueidis.DefaultTCPKeepAlive)
	return d
}

// newSentinelDialer returns the dialer of the Sentinels.
func newSentinelDialer(option *rueidis.ClientOption) *dialer {
	o := *option
	o.Dialer, o.TLSConfig = o.Sentinel.Dialer, o.Sentinel.TLSConfig
	return newDialer(&o)
}

func (d *dialer) dial(ctx context.Context, address string) (conn net.Conn, err error) {
	own := d.net // a function of the user's may change its copy
	switch {
	case d.ctxFn != nil:
		conn, err = d.ctxFn(ctx, address, &own, d.tls)
	case d.fn != nil:
		conn, err = d.fn(address, &own, d.tls)
	case d.tls != nil:
		conn, err = (&tls.Dialer{NetDialer: &own, Config: d.tls}).DialContext(ctx, "tcp", address)
	default:
		conn, err = own.DialContext(ctx, "tcp", address)
	}
	switch {
	case err != nil:
		return nil, err // conn may be a nil *tls.Conn
	case conn == nil:
		return nil, errNoConnection
	}
	return conn, nil
}

// A route remembers where the newest connection to a node has led. go-redis asks for credentials right after it has
// dialed, so this is nearly always the connection that they are for. Another address can come between only while a name
// or a failover leads elsewhere; then the node refuses them, and the next connection asks again.
type route struct {
	mu   sync.Mutex // guards last
	last net.Addr
}

// remote returns the address at the other end of the newest connection, nil before the first one.
func (r *route) remote() net.Addr {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}

// through returns a Dialer for go-redis that dials with dial.
func (r *route) through(dial func(ctx context.Context, address string) (net.Conn, error)) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, _, address string) (net.Conn, error) {
		conn, err := dial(ctx, address)
		if err != nil {
			return nil, err
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.last = conn.RemoteAddr()
		return conn, nil
	}
}

var errNoConnection = errors.New("rueidispool: the dial function has returned neither a connection nor an error")
