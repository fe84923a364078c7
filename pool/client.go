package pool

import (
	"runtime"
	"sync"
	"weak"

	"github.com/redis/go-redis/v9"
)

// This file is what pools of one client share. A program that makes its pools anew for
// every request is one process to the nodes all the same.

// Client returns what tells the client of p from all others: the same for every pool of
// one client, and equal to nothing else. It does not keep the client.
func (p *streamPool) Client() any {
	if p.err != nil {
		return nil
	}
	return weak.Make(p.client)
}

// Sibling returns another pool of the same client, with the same options. Closing
// either leaves the other as it is.
func (p *streamPool) Sibling() Pool {
	return newStreamPool(p.config, p.client)
}

// Client returns what tells the client of p from all others, as for a *redis.Client.
func (p *routedPool) Client() any {
	switch client := p.client.(type) {
	case *redis.ClusterClient:
		return weak.Make(client)
	case *redis.Ring:
		return weak.Make(client)
	}
	return nil
}

// Sibling returns another pool of the same client, with the same options.
func (p *routedPool) Sibling() Pool { return newRoutedPool(p.config, p.client) }

// MetBefore reports true: the pool never tells which server answers, so that nobody need
// wait to hear it.
func (p *routedPool) MetBefore() bool { return true }

// MetBefore reports true, for the same reason.
func (p *batchPool) MetBefore() bool { return true }

// met are the clients for which MetBefore has been called.
var met struct {
	sync.Mutex
	clients map[weak.Pointer[redis.Client]]struct{}
}

// MetBefore reports whether it has been called before in this process, on any pool of
// the same client.
func (p *streamPool) MetBefore() bool {
	if p.err != nil {
		return false
	}
	client := weak.Make(p.client)
	met.Lock()
	defer met.Unlock()
	if _, before := met.clients[client]; before {
		return true
	}
	if met.clients == nil {
		met.clients = make(map[weak.Pointer[redis.Client]]struct{})
	}
	met.clients[client] = struct{}{}
	runtime.AddCleanup(p.client, forgetClient, client)
	return false
}

func forgetClient(client weak.Pointer[redis.Client]) {
	met.Lock()
	defer met.Unlock()
	delete(met.clients, client)
}
