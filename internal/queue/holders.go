package queue

import (
	"slices"
	"sync"

	"github.com/seed14bd9ef4/redsync/internal/lease"
	"github.com/seed14bd9ef4/redsync/internal/script"
)

// This file is about the leases of this process that want to hear when they are released by force. The messages come
// through the subscriber, as those for waiters do.

// holders are these leases, by what tells their values apart. Readers that share a hold have one value.
type holders struct {
	mu   sync.Mutex // guards what follows
	byID map[string][]*lease.Lease
}

// Hear implements lease.Waiters.
func (g *Group) Hear(l *lease.Lease) {
	id := script.IDOf(l.Value())
	g.holders.add(id, l)
	l.Listen(holding{&g.holders, id, l})
	events, _ := l.Terms().Events.(Events)
	g.subscriber.listen(l.Terms().Keeper.Set, events)
}

// A holding takes a lease out of holders when the lease ends.
type holding struct {
	of    *holders
	id    string
	lease *lease.Lease
}

// Ended implements lease.Listener.
func (h holding) Ended(error) { h.of.remove(h.id, h.lease) }

func (h *holders) add(id string, l *lease.Lease) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.byID == nil {
		h.byID = make(map[string][]*lease.Lease)
	}
	h.byID[id] = append(h.byID[id], l)
}

func (h *holders) remove(id string, l *lease.Lease) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.byID[id] = slices.DeleteFunc(h.byID[id], func(other *lease.Lease) bool { return other == l })
	if len(h.byID[id]) == 0 {
		delete(h.byID, id)
	}
}

// any reports whether a lease wants to hear.
func (h *holders) any() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.byID) > 0
}

// doubt makes the leases with a value ask the nodes whether they are still held.
func (h *holders) doubt(id string) {
	h.mu.Lock()
	all := slices.Clone(h.byID[id])
	h.mu.Unlock()
	for _, l := range all {
		l.Doubt()
	}
}

// doubtAll makes all leases ask, because messages may have been missed.
func (h *holders) doubtAll() {
	h.mu.Lock()
	var all []*lease.Lease
	for _, some := range h.byID {
		all = append(all, some...)
	}
	h.mu.Unlock()
	for _, l := range all {
		l.Doubt()
	}
}
