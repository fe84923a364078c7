package wire

import (
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
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
		one, two    string
	}{
		"two nodes":     {oddAddr("10.0.0.1:6379"), &net.TCPAddr{IP: net.IPv6loopback, Port: 1}, "10.0.0.1:6379", "[::1]:1"},
		"not known":     {nil, oddAddr("pipe"), "FailoverClient", "FailoverClient"},
		"a panic":       {oddAddr(""), oddAddr("10.0.0.1:2"), "FailoverClient", "10.0.0.1:2"},
		"odd addresses": {oddAddr(strings.Repeat("x", 130) + ":1"), oddAddr("a\nb:1"), "FailoverClient", "FailoverClient"},
	} {
		named(t, name, func(s *scene) {
			var at atomic.Pointer[net.Addr]
			at.Store(&c.first)
			client := s.client(func(o *redis.Options) {
				o.Addr = "FailoverClient"
				dialing(nil, func(conn net.Conn) net.Conn { return elsewhere{conn, *at.Load()} })(o)
			})
			p, main := New(client, Config{}), New(client, Config{Name: "main"})
			require.Equal(s, "FailoverClient", p.String(), "nothing is known yet")
			answer(s, p, "ping")
			require.Equal(s, c.one, p.String())
			time.Sleep(time.Hour) // the stream has ended
			at.Store(&c.then)
			require.Equal(s, c.one, New(client, Config{}).String())
			answer(s, p, "ping")
			require.Equal(s, c.two, p.String())
			require.Equal(s, "main", main.String())
			require.Equal(s, "FailoverClient", p.(*streamPool).Listed())
			require.Equal(s, "FailoverClient", main.(*streamPool).Listed())
		})
	}
}

func TestString(t *testing.T) {
	plain := unused(t, &redis.Options{Addr: "redis-1:6379", Username: "user", Password: "secret"})
	unix := unused(t, &redis.Options{Network: "unix", Addr: "/run/redis@1"})
	url := unused(t, &redis.Options{Addr: "redis://user:secret@redis-1:6379"})
	ring := hookable(t)["*redis.Ring"]
	require.Equal(t, "redis-1:6379", New(plain, Config{}).String())
	require.Equal(t, "/run/redis@1", New(unix, Config{}).String())
	require.Equal(t, "...@redis-1:6379", New(url, Config{}).String())
	err := New(url, Config{}).(*streamPool).Err()
	require.EqualError(t, err, "pool: the address is not of the form host:port; redis.ParseURL reads a URL")
	require.Equal(t, "*redis.Ring", New(ring, Config{}).String())
	require.Equal(t, "*redis.Ring", New(ring, Config{}).(*routedPool).Listed())
	require.Equal(t, 0, New(plain, Config{}).(*streamPool).Keyspace())
	require.Equal(t, "wire.notAClient", New(notAClient{plain}, Config{}).String())
	for _, c := range []redis.UniversalClient{plain, unix, ring, notAClient{plain}} {
		require.Equal(t, "orders #1", New(c, Config{Name: "orders #1"}).String())
	}
}

// The path of a socket is no address, and its letters matter. Those of a host do not.
func TestSocketsAndHosts(t *testing.T) {
	to := func(network, address string) Pool {
		p := New(unused(t, &redis.Options{Network: network, Addr: address}), Config{})
		require.NoError(t, p.(Failing).Err(), address)
		return p
	}
	where := func(p Pool) any { return p.(Located).Destination() }
	require.Equal(t, where(to("tcp", "redis-1:6379")), where(to("tcp", "Redis-1:6379")))
	require.NotEqual(t, where(to("unix", "/run/redis")), where(to("unix", "/run/Redis")))
	require.Equal(t, where(to("unix", "/run/redis")), where(to("unix", "/run/redis")))
	client := unused(t, &redis.Options{Addr: "redis-1:6379"})
	require.Equal(t, where(New(client, Config{})), where(New(client, Config{ViaClient: true})))
	require.NotEqual(t, where(to("unix", "redis-1:6379")), where(to("tcp", "redis-1:6379")))
}
