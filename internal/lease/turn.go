package lease

import (
	"sync/atomic"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/script"
)

// A Turn is an attempt of a waiter that has a place in the queues. It hears every answer of a node, also one that comes
// too late to count.
type Turn interface {
	// Room returns memory for the lease of the attempt, which saves an allocation. It is zero.
	Room() *Room

	// Heard tells what a node has answered: in which lines of the claim nothing was in the way. counts says whether a grant
	// of the node would count for the claim. It would not if the node has failed, or if its restart guard ignores it.
	Heard(node int, lines claim.Lines, counts bool)

	// IsPatient reports whether the attempt waits for late nodes even if the votes are split.
	IsPatient() bool

	// Denied tells that a node denies the client's user access to the queue.
	Denied()

	// NoQueue tells that a node has a key of another type in place of the queue.
	NoQueue()

	// Barred tells that a node has failed for a reason that a repetition does not change: see wire.IsPermanent.
	Barred(node int, err error)
}

// Room is memory for the special of the lease that an attempt makes. It is used once.
type Room struct{ special }

// A special is what few leases need: those that wait, are fenced, or have a tally. It is not a part of Lease, so that the
// others have no room for it. Its address does not change once others can see the lease.
type special struct {
	place   script.Place  // in the queues of the nodes; without a ticket it enters none
	turn    Turn          // nil if nobody waits
	surplus *surplus      // nil if the claim can have none
	fence   script.Fence  // with the proposed token; zero for none; only the goroutine that runs Acquire changes it
	far     atomic.Uint64 // the nodes whose fencing register is far ahead, but can be followed: see tokens.go
	use     *use          // of a value that may come back, nil for others; it does not change once a command is sent
	token   uint64        // the fencing token of the lease, once it is won; guarded by Lease.mu
}

// plain is the special of all acquires that need none. It never changes.
var plain special
