package redsync_test

import (
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/realredis"
	"github.com/seed14bd9ef4/redsync/pool"
)

// A firewall passes connections on until it forgets them. Then it drops what comes on them, without an error to either
// side. New connections work.
type firewall struct {
	net.Listener
	to         string
	opened     atomic.Int64
	generation atomic.Int64
}

func newFirewall(t *testing.T, to string) *firewall {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	w := &firewall{Listener: l, to: to}
	t.Cleanup(func() { _ = w.Close() })
	go func() {
		for {
			c, err := w.Accept()
			if err != nil {
				return
			}
			w.opened.Add(1)
			go w.pass(c)
		}
	}()
	return w
}

func (w *firewall) forget() { w.generation.Add(1) }

func (w *firewall) pass(c net.Conn) {
	generation := w.generation.Load()
	server, err := net.Dial("tcp", w.to)
	if err != nil {
		_ = c.Close()
		return
	}
	relay := func(to, from net.Conn) {
		defer func() { _, _ = to.Close(), from.Close() }()
		b := make([]byte, 1<<16)
		for {
			n, err := from.Read(b)
			if w.generation.Load() != generation {
				_, _ = io.Copy(io.Discard, from)
				return
			}
			if n > 0 {
				_, _ = to.Write(b[:n])
			}
			if err != nil {
				return
			}
		}
	}
	go relay(c, server)
	go relay(server, c)
}

func TestWatchdogOutlivesConnectionsThatAreForgotten(t *testing.T) {
	t.Parallel()
	for _, timeout := range []time.Duration{0, 500 * time.Millisecond} {
		t.Run(fmt.Sprint("ReadTimeout ", timeout), func(t *testing.T) {
			t.Parallel()
			var walls []*firewall
			var all []*redsync.Redsync
			servers := realredis.Start(t, 3)
			for _, s := range servers {
				walls = append(walls, newFirewall(t, s.Addr()))
			}
			process := func() *redsync.Redsync {
				var pools []pool.Pool
				for i, w := range walls {
					o := *servers[i].Client().Options()
					o.Addr, o.ReadTimeout = w.Addr().String(), timeout
					client := redis.NewClient(&o)
					t.Cleanup(func() { _ = client.Close() })
					pools = append(pools, pool.New(client))
				}
				rs := redsync.New(pools...)
				all = append(all, rs)
				return rs
			}
			var held []*redsync.Mutex
			for _, expiry := range []time.Duration{12 * time.Second, 14 * time.Second, 16 * time.Second} {
				// The default node deadline is short for a slow machine.
				m := process().NewMutex(fmt.Sprint(expiry), redsync.WithExpiry(expiry), redsync.WithTimeoutFactor(0.2), redsync.WithWatchdog())
				require.NoError(t, m.Lock())
				held = append(held, m)
			}
			last := process()
			require.NoError(t, last.NewMutex("before").Lock())
			for _, w := range walls {
				w.forget()
			}
			require.NoError(t, last.NewMutex("after").Lock())
			time.Sleep(16 * time.Second) //nolint:forbidigo // servers do not signal
			for _, m := range held {
				assert.NoError(t, m.Err(), m.Name())
				ok, err := m.Unlock()
				assert.True(t, ok, "%s: %v", m.Name(), err)
			}
			for _, w := range walls {
				// Each process needs one connection before and one after, and there is one for a subscription. On a
				// slow machine, a process may also give up a connection that is only slow. A storm of connections would
				// be hundreds.
				assert.LessOrEqual(t, w.opened.Load(), int64(8*len(all)))
			}
			for _, rs := range all {
				_ = rs.Close(t.Context())
			}
		})
	}
}
