package wire

import (
	"cmp"
	"net"
	"runtime"
	"strings"
	"sync"
	"unicode"
	"weak"

	"github.com/redis/go-redis/v9"
)

// This file records which clients this process has used, and which addresses some have reached. A program that makes new pools for
// every request is still one process to the nodes.

// A perClient has something for each of some clients, and keeps none of them in memory.
type perClient[T any] struct {
	mu sync.Mutex // guards by
	by map[any]T
}

// put reports whether there was nothing for the client. It ignores clients of unknown types.
func (c *perClient[T]) put(client redis.UniversalClient, t T) (first bool) {
	switch client := client.(type) {
	case *redis.Client:
		return put(c, client, t)
	case *redis.ClusterClient:
		return put(c, client, t)
	case *redis.Ring:
		return put(c, client, t)
	}
	return false
}

func put[C, T any](c *perClient[T], client *C, t T) (first bool) {
	key := weak.Make(client)
	c.mu.Lock()
	defer c.mu.Unlock()
	_, known := c.by[key]
	if c.by == nil {
		c.by = make(map[any]T)
	}
	c.by[key] = t
	if !known {
		runtime.AddCleanup(client, c.forget, any(key))
	}
	return !known
}

func (c *perClient[T]) get(client redis.UniversalClient) T {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.by[weakKey(client)]
}

func (c *perClient[T]) forget(key any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.by, key)
}

// weakKey returns a comparable value for a client, nil for one of another type.
func weakKey(client redis.UniversalClient) any {
	switch client := client.(type) {
	case *redis.Client:
		return weak.Make(client)
	case *redis.ClusterClient:
		return weak.Make(client)
	case *redis.Ring:
		return weak.Make(client)
	}
	return nil
}

// MaxName is how many bytes a name of pool.WithName may have, and a noted address.
const MaxName = 128

var (
	met     perClient[struct{}] // a first Lock has met them
	reached perClient[string]   // the last address that each client without one of its own has reached
)

func noteReached(user *redis.Client, conn net.Conn) {
	if hasAddress(user.Options()) {
		return
	}
	address := remoteAddress(conn)
	if _, _, err := net.SplitHostPort(address); err != nil || len(address) > MaxName || strings.ContainsFunc(address, unicode.IsControl) {
		return
	}
	reached.put(user, address)
}

// remoteAddress returns "" if conn, which a user's Dialer may have returned, does not tell or panics.
func remoteAddress(conn net.Conn) (address string) {
	var err error
	defer recovered(&err)
	if at := conn.RemoteAddr(); at != nil {
		address = at.String()
	}
	return address
}

func addressOf(user *redis.Client) string {
	opt := user.Options()
	switch {
	case opt.Network == "unix":
		return opt.Addr
	case hasAddress(opt):
		return withoutUser(opt.Addr)
	}
	return cmp.Or(reached.get(user), withoutUser(opt.Addr))
}
