package wire

import (
	"net"
	"runtime"
	"strings"
	"sync"
	"unicode"
	"weak"

	"github.com/redis/go-redis/v9"
)

// This file records which clients this process has used, and what some have reached. A program that makes new pools for
// every request is still one process to the nodes.

var met struct {
	sync.Mutex // guards clients
	clients    map[weak.Pointer[redis.Client]]struct{}
}

// metBefore reports whether this process has called it before with the same client.
func metBefore(user *redis.Client) bool {
	client := weak.Make(user)
	met.Lock()
	defer met.Unlock()
	if _, before := met.clients[client]; before {
		return true
	}
	if met.clients == nil {
		met.clients = make(map[weak.Pointer[redis.Client]]struct{})
	}
	met.clients[client] = struct{}{}
	runtime.AddCleanup(user, forgetClient, client)
	return false
}

func forgetClient(client weak.Pointer[redis.Client]) {
	met.Lock()
	defer met.Unlock()
	delete(met.clients, client)
}

// MaxName is how many bytes a name of pool.WithName may have, and a noted address.
const MaxName = 128

// reached holds the last address that each client without one of its own has reached.
var reached struct {
	sync.Mutex // guards by
	by         map[weak.Pointer[redis.Client]]string
}

func noteReached(user *redis.Client, conn net.Conn) {
	if hasAddress(user.Options()) {
		return
	}
	address := remoteAddress(conn)
	if _, _, err := net.SplitHostPort(address); err != nil || len(address) > MaxName || strings.ContainsFunc(address, unicode.IsControl) {
		return
	}
	client := weak.Make(user)
	reached.Lock()
	defer reached.Unlock()
	if reached.by == nil {
		reached.by = make(map[weak.Pointer[redis.Client]]string)
	}
	if _, known := reached.by[client]; !known {
		runtime.AddCleanup(user, forgetReached, client)
	}
	reached.by[client] = address
}

func forgetReached(client weak.Pointer[redis.Client]) {
	reached.Lock()
	defer reached.Unlock()
	delete(reached.by, client)
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
	reached.Lock()
	defer reached.Unlock()
	if address, known := reached.by[weak.Make(user)]; known {
		return address
	}
	return withoutUser(opt.Addr)
}
