package redsync

import (
	"slices"
	"sync"
	"time"

	"github.com/seed14bd9ef4/redsync/pool"
)

// A trail is what the commands of one value may have left on the nodes: what its
// release must undo. A hold that is handed over shares it with the hold that goes on
// with the value, because replies may still come for the former.
type trail struct {
	mu       sync.Mutex
	released bool          // a release has begun
	renewed  time.Duration // then: the latest monotonic time at which a node can have set the key's TTL
	nodes    []footprint
	tickets  []any                 // of waiters, to be taken off the nodes' queues with the value
	spare    [usualNodes]footprint // room for nodes
}

// A footprint is what a value may have left on one node.
type footprint struct {
	// sent counts the commands that may have set the value, or still may, up to
	// maxSent.
	sent int32
	// unanswered counts those of them that have no reply yet.
	unanswered int32
	// unknown: one of them was lost. Nobody can tell when it is executed.
	unknown bool
}

// maxSent is far more than are ever taken back by unsent.
const maxSent = 1 << 30

// reached reports whether the node may hold the value, now or later.
func (f footprint) reached() bool { return f.sent > 0 }

// settled reports whether nothing that could set the value is on its way.
func (f footprint) settled() bool { return f.unanswered == 0 && !f.unknown }

// sending, unsent and answered keep the footprint of a command that may set the
// value on node i.

func (t *trail) sending(i int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.nodes[i].sent = min(t.nodes[i].sent+1, maxSent)
	t.nodes[i].unanswered++
}

func (t *trail) unsent(i int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.nodes[i].sent--
	t.nodes[i].unanswered--
}

func (t *trail) answered(i int, fate pool.Fate) {
	if fate == pool.NotSent {
		t.unsent(i)
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.nodes[i].unanswered--
	t.nodes[i].unknown = t.nodes[i].unknown || fate == pool.Unknown
	t.renewedLocked()
}

// renewing notes that a command may have been executed by now that makes the keys last
// for their TTL.
func (t *trail) renewing() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.renewedLocked()
}

// renewedLocked reads the clock only where it matters.
func (t *trail) renewedLocked() {
	if t.released {
		t.renewed = now().mono
	}
}

// releasing notes that a release begins. What has been answered before was executed
// before.
func (t *trail) releasing() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.released = true
	t.renewedLocked()
}

// lastRenewed returns the latest monotonic time at which a node can have set the
// key's TTL, as far as anybody can tell.
func (t *trail) lastRenewed() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.renewed
}

// footprint returns what there may be on node i.
func (t *trail) footprint(i int) footprint {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.nodes[i]
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
