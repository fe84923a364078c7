package redsync

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/pool"
)

// A trail is what the commands of one value may have left on the nodes: what its
// release must undo. A hold that is handed over shares it with the hold that goes on
// with the value, because replies may still come for the former.
type trail struct {
	nodes []atomic.Int64           // by node, its footprint
	spare [usualNodes]atomic.Int64 // room for nodes
	timed atomic.Bool              // renewed is kept

	prolonging atomic.Int64 // commands without a reply that may prolong the key, and cannot set it
	awaited    atomic.Bool  // somebody waits for quiet

	mu      sync.Mutex
	quiet   signal        // nothing that could set or prolong the key is on its way
	renewed time.Duration // the latest monotonic time at which a node can have set the key's TTL
	tickets []any         // of waiters, to be taken off the nodes' queues with the value
}

// A footprint is what a value may have left on one node. It is one word, so that it is
// read and changed without a lock:
//
//	bits 0 to 30   how many commands that may set the value have no reply yet
//	bit 31         set when one was lost: nobody can tell when it is executed
//	bits 32 to 62  how many may have set the value, or still may
//
// Each sending is taken back once, by unsent or answered, so that no part takes from the
// next.
type footprint int64

const (
	oneUnanswered = 1
	anyLost       = 1 << 31
	oneSent       = 1 << 32

	// maxSent is how far they are counted: far more than are ever taken back by unsent,
	// with room for calls that race.
	maxSent = 1 << 30
)

func (f footprint) sent() int { return int(f / oneSent) }

// reached reports whether the node may hold the value, now or later.
func (f footprint) reached() bool { return f.sent() > 0 }

// settled reports whether nothing that could set the value is on its way.
func (f footprint) settled() bool { return f&(oneSent-1) == 0 }

// awaits reports whether a command that may set the value has no reply yet, where one
// that was lost counts as replied to.
func (f footprint) awaits() bool { return f&(anyLost-1) != 0 }

// footprint returns what there may be on node i.
func (t *trail) footprint(i int) footprint { return footprint(t.nodes[i].Load()) }

// sending, unsent and answered keep the footprint of a command that may set the
// value on node i.

func (t *trail) sending(i int) {
	if t.footprint(i).sent() >= maxSent {
		t.nodes[i].Add(oneUnanswered)
		return
	}
	t.nodes[i].Add(oneSent + oneUnanswered)
}

func (t *trail) unsent(i int) {
	t.nodes[i].Add(-oneSent - oneUnanswered)
	t.hush()
}

func (t *trail) answered(i int, fate pool.Fate) {
	if fate == pool.NotSent {
		t.unsent(i)
		return
	}
	if fate == pool.Unknown {
		t.nodes[i].Or(anyLost) // first, or the node would look settled in between
	}
	t.nodes[i].Add(-oneUnanswered)
	t.hush()
	t.renewing()
}

// prolongs and prolonged count a command that may prolong the key, and cannot set it.

func (t *trail) prolongs() { t.prolonging.Add(1) }

func (t *trail) prolonged() {
	t.prolonging.Add(-1)
	t.hush()
}

// awaitQuiet returns a channel that is closed when each command that may set or prolong
// the key has been replied to, or is known to be lost. No further one may be sent.
func (t *trail) awaitQuiet() <-chan struct{} {
	t.awaited.Store(true) // first: a reply that comes after the look below looks by itself
	t.hush()
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.quiet.channel()
}

// hush tells who waits for quiet, if anybody does, that there is.
func (t *trail) hush() {
	if !t.awaited.Load() || t.prolonging.Load() > 0 {
		return
	}
	for i := range t.nodes {
		if t.footprint(i).awaits() {
			return
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.quiet.give()
}

// renewing notes that a command may have been executed by now that makes the keys last
// for their TTL. It reads the clock only where it matters.
func (t *trail) renewing() {
	if t.timed.Load() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.renewed = clock.Now().Mono
	}
}

// keepTime begins to keep the time of the last renewal, if that has not begun: now, for
// whatever was answered before was executed before.
func (t *trail) keepTime() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.timed.Swap(true) { // the clock is read after that: an answer that is not timed came before
		t.renewed = clock.Now().Mono
	}
}

// lastRenewed returns the latest monotonic time at which a node can have set the
// key's TTL, as far as anybody can tell, if that is kept (see keepTime).
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
