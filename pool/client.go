package pool

import (
	"runtime"
	"sync"
	"weak"

	"github.com/redis/go-redis/v9"
)

// This file is which clients this process has met. A program that makes its pools anew for
// every request is one process to the nodes all the same.

// met are the clients for which metBefore has been called.
var met struct {
	sync.Mutex // guards clients
	clients    map[weak.Pointer[redis.Client]]struct{}
}

// metBefore reports whether it has been called before in this process with the same client.
// It does not keep the client.
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
