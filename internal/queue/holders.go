package queue

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/seed14bd9ef4/redsync/internal/lease"
)

// This file is about the leases of this process that want to hear when they are released by force. The messages come
// through the subscriber, as those for waiters do.

// holders are these leases, by what tells their values apart. Readers that share a hold have one value.
type holders struct {
	count atomic.Int64 // of the leases; can be read without mu

	mu   sync.Mutex // guards what follows
	byID map[string][]*lease.Lease
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
	h.count.Add(1)
}

func (h *holders) remove(id string, l *lease.Lease) {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := len(h.byID[id])
	h.byID[id] = slices.DeleteFunc(h.byID[id], func(other *lease.Lease) bool { return other == l })
	h.count.Add(int64(len(h.byID[id]) - all))
	if len(h.byID[id]) == 0 {
		delete(h.byID, id)
	}
}

// doubt makes the leases with a value ask the nodes whether they are still held.
func (h *holders) doubt(id string) {
	h.mu.Lock()
	all := slices.Clone(h.byID[id])
	h.mu.Unlock()
	for _, l := range all {
		l.Doubt(true)
	}
}

// doubtAll makes all leases ask, because messages may have been missed. told says that a message may have come before the
// process listened at all.
func (h *holders) doubtAll(told bool) {
	h.mu.Lock()
	var all []*lease.Lease
	for _, some := range h.byID {
		all = append(all, some...)
	}
	h.mu.Unlock()
	for _, l := range all {
		l.Doubt(told)
	}
}
