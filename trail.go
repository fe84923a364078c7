package redsync

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed14bd9ef4/redsync/pool"
)

// A trail is what the commands of one value may have left on the nodes: what its
// release must undo. A hold that is handed over shares it with the hold that goes on
// with the value, because replies may still come for the former.
type trail struct {
	nodes   []mark
	spare   [usualNodes]mark // room for nodes
	repeats atomic.Bool      // a release is repeated

	mu      sync.Mutex
	renewed time.Duration // if repeats: the latest monotonic time at which a node can have set the key's TTL
	tickets []any         // of waiters, to be taken off the nodes' queues with the value
}

// A mark is where the footprint on one node is kept.
type mark struct{ atomic.Int64 }

// A footprint is what a value may have left on one node, in one word:
//
//	bits 0 to 30   how many commands that may set the value have no reply yet
//	bit 31         one of them was lost: nobody can tell when it is executed
//	bits 32 to 62  how many may have set the value, or still may, up to maxSent
type footprint int64

const (
	oneUnanswered = 1
	oneLost       = 1 << 31
	oneSent       = 1 << 32

	// maxSent is far more than are ever taken back by unsent.
	maxSent = 1 << 30
)

func (f footprint) sent() int { return int(f / oneSent) }

// reached reports whether the node may hold the value, now or later.
func (f footprint) reached() bool { return f.sent() > 0 }

// settled reports whether nothing that could set the value is on its way.
func (f footprint) settled() bool { return f&(oneSent-1) == 0 }

// footprint returns what there may be on node i.
func (t *trail) footprint(i int) footprint { return footprint(t.nodes[i].Load()) }

// sending, unsent and answered keep the footprint of a command that may set the
// value on node i.

func (t *trail) sending(i int) {
	if t.footprint(i).sent() == maxSent {
		t.nodes[i].Add(oneUnanswered)
		return
	}
	t.nodes[i].Add(oneSent + oneUnanswered)
}

func (t *trail) unsent(i int) {
	t.nodes[i].Add(-oneSent - oneUnanswered)
}

func (t *trail) answered(i int, fate pool.Fate) {
	if fate == pool.NotSent {
		t.unsent(i)
		return
	}
	if fate == pool.Unknown {
		t.nodes[i].Or(oneLost)
	}
	t.nodes[i].Add(-oneUnanswered)
	t.renewing()
}

// renewing notes that a command may have been executed by now that makes the keys last
// for their TTL. It reads the clock only where it matters.
func (t *trail) renewing() {
	if t.repeats.Load() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.renewed = now().mono
	}
}

// repeating notes that a release is to be repeated. What has been answered by then was
// executed before.
func (t *trail) repeating() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.repeats.Swap(true) {
		t.renewed = now().mono
	}
}

// lastRenewed returns the latest monotonic time at which a node can have set the
// key's TTL, as far as anybody can tell.
func (t *trail) lastRenewed() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.renewed
}

// leaveQueues makes the release of the value take a ticket off the queues.
func (t *trail) leaveQueues(ticket any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !slices.Contains(t.tickets, ticket) {
		t.tickets = append(t.tickets, ticket)
	}
}

// leaving returns the tickets that the release of the value takes off the queues.
func (t *trail) leaving() []any {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.tickets)
}
