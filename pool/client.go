package pool

import (
	"runtime"
	"sync"
	"weak"

	"github.com/redis/go-redis/v9"
)

// This file records which clients this process has used. A program may make new pools for every
// request, but to the nodes it is still one process.

// met holds the clients for which metBefore has been called.
var met struct {
	sync.Mutex // guards clients
	clients    map[weak.Pointer[redis.Client]]struct{}
}

// metBefore reports whether it has been called before in this process with the same client. It
// does not keep the client alive.
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
