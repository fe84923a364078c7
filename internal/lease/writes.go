package lease

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/script"
	"github.com/seed14bd9ef4/redsync/internal/wire"
)

// writes are what the commands of one value may have left on the nodes, for its release to undo. A lease that is handed
// over shares them with its successor.
type writes struct {
	nodes      []atomic.Int64             // by node
	rare       atomic.Pointer[rareWrites] // see needRare
	prolonging atomic.Int32               // commands without a reply that may prolong the key, but not set it
}

// rareWrites are what few values need: for repeated releases, tickets, Detach and fills.
type rareWrites struct {
	timed   atomic.Bool // renewed is kept
	awaited atomic.Bool // somebody waits for quiet

	asked atomic.Pointer[kinds] // what the release must find out

	mu      sync.Mutex    // guards what follows
	quiet   signal        // see awaitQuiet
	renewed time.Duration // monotonic: when a node can last have set the key's TTL
	filled  time.Duration // monotonic: the last confirmed fill
	failed  *failedUnlock
	leaving []leaving  // taken off the nodes' queues with the value
	room    [1]leaving // for leaving
}

// A failedUnlock is what has become of a failed Unlock: see unlocks.go.
type failedUnlock struct {
	release *Release
	deleted claim.Nodes // where it has found the value while the lease was valid
}

func (r *rareWrites) failedLocked() *failedUnlock {
	if r.failed == nil {
		r.failed = &failedUnlock{}
	}
	return r.failed
}

func (w *writes) needRare() *rareWrites {
	if w.rare.Load() == nil {
		w.rare.CompareAndSwap(nil, &rareWrites{})
	}
	return w.rare.Load()
}

// locked is needRare, with mu locked.
func (w *writes) locked() *rareWrites {
	r := w.needRare()
	r.mu.Lock()
	return r
}

// A nodeWrites is what a value may have left on one node, in one word, so that it needs no lock. "Such" commands may
// set the value.
//
//	bits 0 to 30   how many such commands have no reply yet
//	bit 31         the reply to one is lost: the node may execute it at any time
//	bits 32 to 59  how many may have set the value, or may still set it
//	bit 60         the node has refused the acquire, and a later command has set the value there
//	bit 61         the node has refused the acquire
//	bit 62         the node has refused it, and has not confirmed the value since
//
// Exactly one unsent or answered follows each sending, so that no count borrows from the bits above it.
type nodeWrites int64

const (
	oneUnanswered = 1
	anyLost       = 1 << 31
	oneSent       = 1 << 32
	setLater      = 1 << 60
	refused       = 1 << 61
	lacking       = 1 << 62

	// maxSent is where sending stops counting. unsent takes back far fewer.
	maxSent = 1 << 27
)

func (n nodeWrites) sent() int { return int(n & (setLater - 1) / oneSent) }

// reached reports whether the node may hold the value, now or later.
func (n nodeWrites) reached() bool { return n.sent() > 0 }

// settled reports whether no such command is on its way.
func (n nodeWrites) settled() bool { return n&(oneSent-1) == 0 }

// awaits reports whether such a command has no reply yet. A lost reply does not count.
func (n nodeWrites) awaits() bool { return n&(anyLost-1) != 0 }

func (n nodeWrites) lost() bool { return n&anyLost != 0 }

func (w *writes) onNode(i int) nodeWrites { return nodeWrites(w.nodes[i].Load()) }

// These count a command that may set the value.

func (w *writes) sending(i int) {
	if w.onNode(i).sent() >= maxSent {
		w.nodes[i].Add(oneUnanswered)
		return
	}
	w.nodes[i].Add(oneSent + oneUnanswered)
}

func (w *writes) unsent(i int) {
	w.nodes[i].Add(-oneSent - oneUnanswered)
	w.checkQuiet()
}

func (w *writes) answered(i int, reply *wire.Reply) {
	if reply.Fate == wire.NotSent {
		w.unsent(i)
		return
	}
	if reply.Resent && w.onNode(i).sent() < maxSent {
		w.nodes[i].Add(oneSent) // the earlier sending
	}
	if reply.Resent || reply.Fate == wire.Unknown {
		w.nodes[i].Or(anyLost) // first, or the node would look settled in between
	}
	w.nodes[i].Add(-oneUnanswered)
	w.checkQuiet()
	w.noteRenewal()
}

// These count a command that may prolong the key, but cannot set it.

func (w *writes) prolongs() { w.prolonging.Add(1) }

func (w *writes) prolonged() {
	w.prolonging.Add(-1)
	w.checkQuiet()
}

// What follows is about nodes that have refused the value.

func (w *writes) lacks() (nodes claim.Nodes) { return w.marked(lacking) }

func (w *writes) marked(mark nodeWrites) (nodes claim.Nodes) {
	for i := range w.nodes {
		if w.onNode(i)&mark != 0 {
			nodes = nodes.With(i)
		}
	}
	return nodes
}

func (w *writes) confirms(i int, found claim.Found) {
	if w.onNode(i)&refused == 0 {
		return
	}
	switch found {
	case claim.Created:
		r := w.locked()
		r.filled = clock.Now().Mono
		r.mu.Unlock()
		w.nodes[i].Or(setLater)
	case claim.Mine, claim.PartCreated:
	case claim.Unknown, claim.Other, claim.Missing, claim.PartMissing, claim.Foreign:
		return
	}
	w.nodes[i].And(^int64(lacking))
}

// sendingFill counts a fill and reports true, unless the node has the value by now, or owes a reply: leases that share
// a hold may fill it up at once.
func (w *writes) sendingFill(i int) bool {
	r := w.locked()
	defer r.mu.Unlock()
	if n := w.onNode(i); n&lacking == 0 || n.awaits() {
		return false
	}
	w.sending(i)
	return true
}

func (w *writes) lastFilled() time.Duration {
	r := w.locked()
	defer r.mu.Unlock()
	return r.filled
}

func (w *writes) grants(i int) {
	if w.onNode(i)&refused != 0 {
		w.nodes[i].And(^int64(lacking | refused | setLater))
	}
}

// awaitQuiet returns a channel that is closed when each command that may set or prolong the key is answered or lost.
// None may follow.
func (w *writes) awaitQuiet() <-chan struct{} {
	r := w.locked()
	quiet := r.quiet.channel(false)
	r.mu.Unlock()
	r.awaited.Store(true) // before checkQuiet, so that a later reply closes quiet
	w.checkQuiet()
	return quiet
}

func (w *writes) checkQuiet() {
	r := w.rare.Load()
	if r == nil || !r.awaited.Load() || w.prolonging.Load() > 0 {
		return
	}
	for i := range w.nodes {
		if w.onNode(i).awaits() {
			return
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.quiet.close()
}

// noteRenewal notes that the keys may have got their full TTL by now.
func (w *writes) noteRenewal() {
	if r := w.rare.Load(); r != nil && r.timed.Load() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.renewed = clock.Now().Mono
	}
}

// keepTime begins to keep the time of the last renewal, from now on.
func (w *writes) keepTime() {
	r := w.locked()
	defer r.mu.Unlock()
	if !r.timed.Swap(true) { // a noteRenewal that still read false was for an earlier command
		r.renewed = clock.Now().Mono
	}
}

func (w *writes) lastRenewed() time.Duration {
	w.keepTime()
	r := w.locked()
	defer r.mu.Unlock()
	return r.renewed
}

// A leaving is a ticket that leaves the queues of all lines but one.
type leaving struct {
	ticket script.Ticket
	keeps  int // where it stays; allQueues: nowhere
}

const allQueues = -1

// leaveQueuesOnRelease makes the release take a ticket off the queues of all lines but keeps; a second call, off all.
func (w *writes) leaveQueuesOnRelease(ticket script.Ticket, keeps int) {
	r := w.locked()
	defer r.mu.Unlock()
	for i, l := range r.leaving {
		if l.ticket == ticket {
			r.leaving[i].keeps = allQueues
			return
		}
	}
	if r.leaving == nil {
		r.leaving = r.room[:0]
	}
	r.leaving = append(r.leaving, leaving{ticket, keeps})
}

// leaveAs makes the same tickets leave as other, and reports whether there are any.
func (w *writes) leaveAs(other *writes) bool {
	from := other.locked()
	leaving := slices.Clone(from.leaving)
	from.mu.Unlock()
	r := w.locked()
	defer r.mu.Unlock()
	r.leaving = leaving
	return len(leaving) > 0
}

func (w *writes) someLeave() bool {
	r := w.rare.Load()
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.leaving) > 0
}

func (w *writes) turnover(lines int, room []script.Ticket) (t script.Turnover) {
	r := w.rare.Load()
	if r == nil {
		return t
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	t.Leave = room
	for _, l := range r.leaving {
		if l.keeps == allQueues {
			t.Leave = append(t.Leave, l.ticket)
			continue
		}
		if t.Parts == nil {
			t.Parts = make([]script.Part, lines)
		}
		for i := range t.Parts {
			if i != l.keeps {
				t.Parts[i].Leave = append(t.Parts[i].Leave, l.ticket)
			}
		}
	}
	return t
}
