//go:build unix && !aix

package wire

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/testkit/realredis"
)

// A drowsy connection is that of a process that was frozen: the goroutine that reads from it has not gone on yet.
type drowsy struct {
	*net.TCPConn
	frozen atomic.Bool
	awake  chan struct{}
	once   sync.Once
}

func (d *drowsy) Read(p []byte) (int, error) {
	n, err := d.TCPConn.Read(p)
	if d.frozen.Load() {
		<-d.awake
	}
	return n, err
}

func (d *drowsy) Close() error {
	d.once.Do(func() { close(d.awake) })
	return d.TCPConn.Close()
}

// opaque hides everything but a net.Conn.
type opaque struct{ net.Conn }

// inner shows the connection below, as crypto/tls.Conn does.
type inner struct{ opaque }

func (i inner) NetConn() net.Conn { return i.Conn }

func TestRequestIsNotWrittenToAConnectionThatWasClosedWhileItRested(t *testing.T) {
	certificates := realredis.NewCertificates(t, t.TempDir())
	secure := certificates.Client.Clone()
	secure.ServerName = "127.0.0.1"
	plain := func(c net.Conn) net.Conn { return c }
	for name, c := range map[string]struct {
		wrap   func(net.Conn) net.Conn
		secure bool
		reset  bool
		fates  string
	}{
		"closed":               {wrap: plain, fates: "aa"},
		"reset":                {wrap: plain, reset: true, fates: "aa"},
		"in a wrapper":         {wrap: func(c net.Conn) net.Conn { return inner{opaque{c}} }, fates: "aa"},
		"TLS":                  {wrap: func(c net.Conn) net.Conn { return tls.Client(c, secure) }, secure: true, fates: "aa"},
		"that shows no socket": {wrap: func(c net.Conn) net.Conn { return opaque{c} }, fates: "au"},
	} {
		t.Run(name, func(t *testing.T) {
			accepted := make(chan net.Conn, 10)
			addr := serving(t, func(conn net.Conn) {
				if c.secure {
					conn = tls.Server(conn, certificates.Server)
				}
				accepted <- conn
				go greeted(func(_ int, k *talk) { k.echo() })(1, newTalk(conn))
			})
			var first atomic.Pointer[drowsy]
			options := &redis.Options{
				Addr: addr, WriteBufferSize: handshakeSize, MaintNotificationsConfig: noNotifications,
				Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
					conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
					if err != nil {
						return nil, err
					}
					d := &drowsy{TCPConn: conn.(*net.TCPConn), awake: make(chan struct{})}
					first.CompareAndSwap(nil, d)
					return c.wrap(d), nil
				},
			}
			p := New(redis.NewClient(options), Config{})
			in := newLedger(t)
			in.send(p, 1)
			require.Eventually(t, func() bool { return in.fates() == "a" }, 10*time.Second, time.Millisecond)
			peer := <-accepted
			first.Load().frozen.Store(true)
			if c.reset {
				require.NoError(t, peer.(*net.TCPConn).SetLinger(0))
			}
			require.NoError(t, peer.Close())
			require.Eventually(t, func() bool { return errors.Is(glance(first.Load()), errClosed) }, 10*time.Second, time.Millisecond)
			time.Sleep(2 * rest)
			in.send(p, 1)
			time.AfterFunc(100*time.Millisecond, func() { _ = first.Load().Close() }) // whoever reads awakes
			require.Eventually(t, func() bool { return in.fates() == c.fates }, 10*time.Second, time.Millisecond, c.fates)
			require.NoError(t, p.Close())
		})
	}
}

// A showing connection shows a file that is not its own.
type showing struct {
	net.Conn
	file *os.File
}

func (s showing) SyscallConn() (syscall.RawConn, error) { return s.file.SyscallConn() }

// A connection that has carried nothing yet is not looked at, however long its greeting took. If each connection is closed as soon as it
// is open, the requests are written and fail, and the next connection is opened at the usual pace.
func TestOnlyAConnectionThatHasRestedIsLookedAt(t *testing.T) {
	for name, c := range map[string]struct {
		files  func() (ours, theirs *os.File, err error)
		opened int // connections for two requests
	}{
		"a socket that was closed": {func() (*os.File, *os.File, error) {
			pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
			return os.NewFile(uintptr(pair[0]), "ours"), os.NewFile(uintptr(pair[1]), "theirs"), err
		}, 2},
		"a file that is no socket": {os.Pipe, 1},
	} {
		t.Run(name, func(t *testing.T) {
			ours, theirs, err := c.files()
			require.NoError(t, err)
			require.NoError(t, theirs.Close())
			defer func() { _ = ours.Close() }()
			virtual(t, func(t *testing.T) {
				var opened atomic.Int64
				p := peer(func(_ int, k *talk) {
					opened.Add(1)
					time.Sleep(2 * rest)
					if k.greet(whole) {
						k.echo()
					}
				}).pool(dialing(nil, func(conn net.Conn) net.Conn { return showing{conn, ours} }))
				in := newLedger(t)
				for _, fates := range []string{"a", "aa"} {
					in.send(p, 1)
					time.Sleep(time.Second)
					assert.Equal(t, fates, in.fates())
				}
				assert.EqualValues(t, c.opened, opened.Load())
				require.NoError(t, p.Close())
			})
		})
	}
}

func TestRestByBothClocks(t *testing.T) {
	now := time.Now()
	assert.False(t, hasRested(now, now.Add(rest-1)))
	assert.True(t, hasRested(now, now.Add(rest)))
	assert.True(t, hasRested(now.Round(0), now.Round(0).Add(rest)), "a wall clock alone")
	assert.False(t, hasRested(now, now.Add(-time.Hour)), "a clock that was set back")
}

// A loop is a wrapper that leads to itself.
type loop struct{ net.Conn }

func (l loop) NetConn() net.Conn { return l }

// Any connection can be looked at. One that shows no socket counts as open.
func TestGlance(t *testing.T) {
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	require.NoError(t, err)
	ours, theirs := os.NewFile(uintptr(pair[0]), "ours"), os.NewFile(uintptr(pair[1]), "theirs")
	for _, odd := range []net.Conn{nil, loop{}, showing{}, (*tls.Conn)(nil), showing{nil, ours}} {
		require.NoError(t, glance(odd), "%T", odd)
	}
	_, err = theirs.WriteString("x")
	require.NoError(t, err)
	require.Equal(t, errUnread, glance(showing{nil, ours}))
	require.NoError(t, (&conn{net: showing{nil, ours}}).checkRested(t.Context()), "it does not wait for long")
	require.NoError(t, errors.Join(ours.Close(), theirs.Close()))
	require.Equal(t, errClosed, glance(showing{nil, ours}))
}
