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

// writes are the writes in flight of one value: what its commands may have left on the nodes, which its
// release must undo. A lease that is handed over shares them with the lease that continues it, because replies
// to commands of the first lease may still come.
type writes struct {
	nodes      []atomic.Int64             // by node
	rare       atomic.Pointer[rareWrites] // nil until it is needed: see needRare
	prolonging atomic.Int32               // commands without a reply that may prolong the key, but cannot set it
}

// rareWrites are what few values need: those whose release is repeated, whose waiters have left tickets, whose lease is
// detached, and those that are filled up.
type rareWrites struct {
	timed   atomic.Bool // renewed is kept up to date
	awaited atomic.Bool // somebody waits for quiet

	asked atomic.Pointer[kinds] // what the release must find out; nil for nothing

	mu      sync.Mutex    // guards what follows
	quiet   signal        // closed when no command that may set or prolong the key is under way: see awaitQuiet
	renewed time.Duration // the latest monotonic time at which a node can have set the key's TTL
	filled  time.Duration // the monotonic time at which a node last confirmed a fill: see fill.go
	failed  *failedUnlock // nil unless an Unlock has failed
	leaving []leaving     // tickets of waiters, to be taken off the nodes' queues with the value
	room    [1]leaving    // for leaving
}

// A failedUnlock is what has become of the release of an Unlock that has failed: see unlocks.go.
type failedUnlock struct {
	release *Release
	deleted claim.Nodes // where it has found the value, and the validity had not ended
}

// failedLocked returns what r has of a failedUnlock, and makes it if there is none.
func (r *rareWrites) failedLocked() *failedUnlock {
	if r.failed == nil {
		r.failed = &failedUnlock{}
	}
	return r.failed
}

// needRare returns what w has of rareWrites, and makes it if there is none.
func (w *writes) needRare() *rareWrites {
	if w.rare.Load() == nil {
		w.rare.CompareAndSwap(nil, &rareWrites{})
	}
	return w.rare.Load()
}

// A nodeWrites is what a value may have left on one node. It is one word, so that it is
// read and changed without a lock:
//
//	bits 0 to 30   how many commands that may set the value have no reply yet
//	bit 31         set when the reply to such a command is lost: the node may execute it at any time
//	bits 32 to 59  how many such commands may have set the value, or may still set it
//	bit 60         set when the node has refused the acquire, and a later command has set the value there
//	bit 61         set when the node has refused the acquire of the value
//	bit 62         set when the node has refused it, and has not confirmed since then that it has the value: see fill.go
//
// Exactly one unsent or answered follows each sending, so that no count falls below 0 and borrows from
// the bits above it.
type nodeWrites int64

const (
	oneUnanswered = 1
	anyLost       = 1 << 31
	oneSent       = 1 << 32
	setLater      = 1 << 60
	refused       = 1 << 61
	lacking       = 1 << 62

	// maxSent is where sending stops counting sent commands. unsent takes back far fewer, so that the count
	// stays above 0. The bits have room for calls of sending that pass maxSent at the same time.
	maxSent = 1 << 27
)

func (n nodeWrites) sent() int { return int(n & (setLater - 1) / oneSent) }

// reached reports whether the node may hold the value, now or later.
func (n nodeWrites) reached() bool { return n.sent() > 0 }

// settled reports whether no command that could set the value is on its way.
func (n nodeWrites) settled() bool { return n&(oneSent-1) == 0 }

// awaits reports whether a command that may set the value has no reply yet. A command whose reply was lost
// does not count.
func (n nodeWrites) awaits() bool { return n&(anyLost-1) != 0 }

// lost reports whether the reply to such a command was lost.
func (n nodeWrites) lost() bool { return n&anyLost != 0 }

// onNode returns what the value may have left on node i.
func (w *writes) onNode(i int) nodeWrites { return nodeWrites(w.nodes[i].Load()) }

// sending, unsent and answered count a command that may set the value on node i.

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

func (w *writes) answered(i int, reply wire.Reply) {
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

// prolongs and prolonged count a command that may prolong the key, but cannot set it.

func (w *writes) prolongs() { w.prolonging.Add(1) }

func (w *writes) prolonged() {
	w.prolonging.Add(-1)
	w.checkQuiet()
}

// lacks, marked, confirms, sendingFill, lastFilled and grants are about nodes that have refused the value: see fill.go.

// lacks returns the nodes that have refused the value, and have not confirmed since then that they have it.
func (w *writes) lacks() (nodes claim.Nodes) { return w.marked(lacking) }

// marked returns the nodes with a mark.
func (w *writes) marked(mark nodeWrites) (nodes claim.Nodes) {
	for i := range w.nodes {
		if w.onNode(i)&mark != 0 {
			nodes = nodes.With(i)
		}
	}
	return nodes
}

// confirms notes what a command that came after the acquire has found on node i: whether the node has the value, and
// whether that command has set it.
func (w *writes) confirms(i int, found claim.Found) {
	if w.onNode(i)&refused == 0 {
		return
	}
	switch found {
	case claim.Created:
		r := w.needRare()
		r.mu.Lock()
		r.filled = clock.Now().Mono
		r.mu.Unlock()
		w.nodes[i].Or(setLater)
	case claim.Mine, claim.PartCreated:
	case claim.Unknown, claim.Other, claim.Missing, claim.PartMissing, claim.Foreign:
		return
	}
	w.nodes[i].And(^int64(lacking))
}

// sendingFill counts a fill to node i, and reports true, unless the node has the value by now or has not answered an earlier
// command that sets it. Leases that share a hold may fill it up at once.
func (w *writes) sendingFill(i int) bool {
	r := w.needRare()
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := w.onNode(i); n&lacking == 0 || n.awaits() {
		return false
	}
	w.sending(i)
	return true
}

// lastFilled returns the monotonic time at which a node last confirmed a fill.
func (w *writes) lastFilled() time.Duration {
	r := w.needRare()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.filled
}

// grants notes that node i has granted an acquire of the value, perhaps after it had refused one.
func (w *writes) grants(i int) {
	if w.onNode(i)&refused != 0 {
		w.nodes[i].And(^int64(lacking | refused | setLater))
	}
}

// awaitQuiet returns a channel that is closed when each command that may set or prolong the key has been
// replied to, or is known to be lost. No further such command may be sent.
func (w *writes) awaitQuiet() <-chan struct{} {
	r := w.needRare()
	r.mu.Lock()
	quiet := r.quiet.channel(false)
	r.mu.Unlock()
	r.awaited.Store(true) // before checkQuiet: the receiver of a later reply then closes quiet
	w.checkQuiet()
	return quiet
}

// checkQuiet closes the signal quiet if a caller waits for it and no command is under way that could set or
// prolong the key.
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

// noteRenewal notes that a command that gives the keys their full TTL may have been executed by now. It
// reads the clock only if the time is kept.
func (w *writes) noteRenewal() {
	if r := w.rare.Load(); r != nil && r.timed.Load() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.renewed = clock.Now().Mono
	}
}

// keepTime begins to keep the time of the last renewal, unless that time is kept already. It begins with now,
// because commands that have been answered were executed before now.
func (w *writes) keepTime() {
	r := w.needRare()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.timed.Swap(true) { // a noteRenewal that still read false was for a command executed before now
		r.renewed = clock.Now().Mono
	}
}

// lastRenewed returns the latest monotonic time at which a node can have set the key's TTL. From the first call on it is kept.
func (w *writes) lastRenewed() time.Duration {
	w.keepTime()
	r := w.needRare()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.renewed
}

// A leaving is a ticket that leaves the queues of all lines of a claim but one.
type leaving struct {
	ticket script.Ticket
	keeps  int // the line in whose queue it stays; allQueues: none
}

// allQueues says that a ticket leaves the queues of all lines.
const allQueues = -1

// leaveQueuesOnRelease makes the release of the value take a ticket off the queues of all lines but keeps. A
// second call for the same ticket makes it leave all queues.
func (w *writes) leaveQueuesOnRelease(ticket script.Ticket, keeps int) {
	r := w.needRare()
	r.mu.Lock()
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

// leaveAs makes the release of the value take off the same tickets as the release of the other value, and reports
// whether there are any.
func (w *writes) leaveAs(other *writes) bool {
	from := other.needRare()
	from.mu.Lock()
	leaving := slices.Clone(from.leaving)
	from.mu.Unlock()
	r := w.needRare()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leaving = leaving
	return len(leaving) > 0
}

// someLeave reports whether the release of the value takes tickets off the queues.
func (w *writes) someLeave() bool {
	r := w.rare.Load()
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.leaving) > 0
}

// turnover returns the tickets that the release of the value takes off the queues of a claim with that many
// lines. It puts them into room as far as there is room.
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
