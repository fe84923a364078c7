package pool

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/embedded"
)

// This file shows what texts call a node.

// An elsewhere is a connection that says that it leads to another address.
type elsewhere struct {
	net.Conn
	at net.Addr
}

func (c elsewhere) RemoteAddr() net.Addr { return c.at }

// An oddAddr is an address with any text. The empty one panics.
type oddAddr string

func (oddAddr) Network() string { return "tcp" }

func (a oddAddr) String() string {
	if a == "" {
		panic("no address")
	}
	return string(a)
}

// A client of a Sentinel has no address. The text names the node that its last connection has reached.
func TestStringOfAClientWithoutAnAddress(t *testing.T) {
	for name, c := range map[string]struct {
		first, then net.Addr
		want        [2]string
	}{
		"two nodes":     {&net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 6379}, &net.TCPAddr{IP: net.IPv6loopback, Port: 1}, [2]string{"10.0.0.1:6379", "[::1]:1"}},
		"not known":     {nil, oddAddr("pipe"), [2]string{"FailoverClient", "FailoverClient"}},
		"a panic":       {oddAddr(""), &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 2}, [2]string{"FailoverClient", "10.0.0.1:2"}},
		"odd addresses": {oddAddr(strings.Repeat("x", 130) + ":1"), oddAddr("a\nb:1"), [2]string{"FailoverClient", "FailoverClient"}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, node *embedded.Node) {
				var at atomic.Pointer[net.Addr]
				at.Store(&c.first)
				client := clientOf(t, node, func(o *redis.Options) {
					o.Addr = "FailoverClient"
					dial := o.Dialer
					o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
						conn, err := dial(ctx, network, addr)
						return elsewhere{conn, *at.Load()}, err
					}
				})
				p, named := New(client), New(client, WithName("main"))
				require.Equal(t, "FailoverClient", p.String(), "nothing is known yet")
				answer(t, p, "ping")
				require.Equal(t, c.want[0], p.String())
				time.Sleep(time.Hour) // the stream has ended
				at.Store(&c.then)
				require.Equal(t, c.want[0], New(client).String())
				answer(t, p, "ping")
				require.Equal(t, c.want[1], p.String())
				require.Equal(t, "main", named.String())
				require.Equal(t, "FailoverClient", p.(*streamPool).Listed())
				require.Equal(t, "FailoverClient", named.(*streamPool).Listed())
			})
		})
	}
}

func TestString(t *testing.T) {
	plain := redis.NewClient(&redis.Options{Addr: "redis-1:6379", Username: "user", Password: "secret"})
	unix := redis.NewClient(&redis.Options{Network: "unix", Addr: "/run/redis@1"})
	url := redis.NewClient(&redis.Options{Addr: "redis://user:secret@redis-1:6379"})
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": "redis-1:6379"}, Password: "secret"})
	for _, c := range []redis.UniversalClient{plain, unix, url, ring} {
		t.Cleanup(func() { _ = c.Close() })
	}
	require.Equal(t, "redis-1:6379", New(plain).String())
	require.Equal(t, "/run/redis@1", New(unix).String())
	require.Equal(t, "...@redis-1:6379", New(url).String())
	err := New(url).(*streamPool).Err()
	require.EqualError(t, err, "pool: the address is not of the form host:port; redis.ParseURL reads a URL")
	require.Equal(t, "*redis.Ring", New(ring).String())
	require.Equal(t, "*redis.Ring", New(ring).(*routedPool).Listed())
	require.Equal(t, 0, New(plain).(*streamPool).Keyspace())
	require.Equal(t, "pool.notAClient", New(notAClient{plain}).String())
	for _, c := range []redis.UniversalClient{plain, unix, ring, notAClient{plain}} {
		require.Equal(t, "orders #1", New(c, WithName("orders #1")).String())
	}
}

func TestWithName(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: "redis-1:6379"})
	t.Cleanup(func() { _ = client.Close() })
	for name, quoted := range map[string]string{
		"a": "", strings.Repeat("x", 128): "", "Köln, 2. Stock": "",
		"": `""`, strings.Repeat("x", 129): `"xxx`, strings.Repeat("x", 1000): `... (1000 bytes)"`,
		"a\nb": `"a\nb"`, "\x00": `"\x00"`, "\u0085": `"\u0085"`, "\x7f": `"\x7f"`,
	} {
		p := New(client, WithName(name))
		err := p.(*streamPool).Err()
		if quoted == "" {
			require.NoError(t, err)
			require.Equal(t, name, p.String())
			continue
		}
		require.ErrorContains(t, err, "pool: WithName(")
		require.ErrorContains(t, err, quoted)
		require.ErrorContains(t, err, " is out of range: 1 to 128 bytes without control characters")
		require.Equal(t, err, p.Send(Request{Args: []any{"ping"}, To: make(replies, 1)}))
		require.NotContains(t, err.Error(), "\n")
	}
}

// The path of a socket is no address, and its letters matter. Those of a host do not.
func TestSocketsAndHosts(t *testing.T) {
	to := func(network, address string) Pool {
		client := redis.NewClient(&redis.Options{Network: network, Addr: address})
		t.Cleanup(func() { _ = client.Close() })
		p := New(client)
		require.NoError(t, p.(Failing).Err(), address)
		return p
	}
	where := func(p Pool) any { return p.(Located).Destination() }
	require.Equal(t, where(to("tcp", "redis-1:6379")), where(to("tcp", "Redis-1:6379")))
	require.NotEqual(t, where(to("unix", "/run/redis")), where(to("unix", "/run/Redis")))
	require.Equal(t, where(to("unix", "/run/redis")), where(to("unix", "/run/redis")))
	require.NotEqual(t, where(to("unix", "redis-1:6379")), where(to("tcp", "redis-1:6379")))
}
