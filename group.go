package redsync

import (
	"runtime"
	"sync"
	"sync/atomic"
	"weak"

	"github.com/seed14bd9ef4/redsync/internal/script"
	"github.com/seed14bd9ef4/redsync/pool"
)

// This file is what the Redsyncs of one process share. A program may call New for every
// request, on the same clients: to the nodes it is one process all the same.

// A group is what those cores share whose pools have the same clients, in the same order.
// A core whose pools do not tell their clients has a group of its own.
//
// Locks are taken in this order, none of them while calling into a pool or an observer
// except ear.mu, under which the ear subscribes: lines.mu, ear.mu, hold.mu.
type group struct {
	process any           // a string: by which nodes know the waiters of this process
	tickets atomic.Uint32 // made so far

	known knownTokens
	lines lines
	ear   ear

	health []health // by node

	members atomic.Int64 // cores that are neither closed nor collected
}

// groups finds the group of a list of clients. It keeps none: cores do, and the
// subscriptions until they end.
var groups struct {
	sync.Mutex
	byClients map[any]weak.Pointer[group]
}

// clientList is the first clients of a list and the one after them. It is a key of groups.
type clientList struct{ first, next any }

// clientsOf returns the key of groups for these pools, nil if one of them does not tell
// its client.
func clientsOf(pools []pool.Pool) (list any) {
	for _, p := range pools {
		shared, ok := p.(interface {
			Client() any
			Sibling() pool.Pool
		})
		if !ok {
			return nil
		}
		client := shared.Client()
		if client == nil {
			return nil
		}
		list = clientList{list, client}
	}
	return list
}

// groupOf returns the group of a core with these pools.
func groupOf(pools []pool.Pool) *group {
	clients := clientsOf(pools)
	if clients == nil {
		return newGroup(len(pools))
	}
	groups.Lock()
	defer groups.Unlock()
	if g := groups.byClients[clients].Value(); g != nil {
		return g
	}
	g := newGroup(len(pools))
	if groups.byClients == nil {
		groups.byClients = make(map[any]weak.Pointer[group])
	}
	groups.byClients[clients] = weak.Make(g)
	runtime.AddCleanup(g, forgetGroup, clients)
	return g
}

// forgetGroup forgets a group that is gone, unless another has taken its place.
func forgetGroup(clients any) {
	groups.Lock()
	defer groups.Unlock()
	if groups.byClients[clients].Value() == nil {
		delete(groups.byClients, clients)
	}
}

// newGroup returns a group of cores that have so many nodes.
func newGroup(nodes int) *group {
	g := &group{process: newProcess(), health: make([]health, nodes)}
	g.ear.group = g
	return g
}

// A membership is a core's in its group. It ends with Close, or when the core is
// collected: a program need not close what it makes for a request.
type membership struct {
	*group
	ended atomic.Bool
}

func (g *group) join() *membership {
	g.members.Add(1)
	return &membership{group: g}
}

// leave ends the membership. The subscriptions end with the last one.
func (m *membership) leave() {
	if m.end() {
		m.ear.stop(m.abandoned)
	}
}

// collected ends the membership of a core that nobody has closed. The subscriptions end
// when they have been idle: a cleanup must not wait.
func (m *membership) collected() { m.end() }

func (m *membership) end() (last bool) {
	return m.ended.CompareAndSwap(false, true) && m.members.Add(-1) == 0
}

// abandoned reports whether every core has left.
func (g *group) abandoned() bool { return g.members.Load() == 0 }

// listenThrough returns the pool through which the ear of a group subscribes at p's node:
// one of its own, which no user closes, where p can make one.
func listenThrough(p pool.Pool) (s pool.Subscriber, own pool.Pool) {
	if shared, ok := p.(interface{ Sibling() pool.Pool }); ok {
		own = shared.Sibling()
		p = own
	}
	s, _ = p.(pool.Subscriber)
	return s, own
}

// channel is on which nodes tell the process that a lock is free.
func (g *group) channel() string { return script.Channel(g.process.(string)) }
