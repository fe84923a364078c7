// Package claim defines what a primitive writes on a node, and how it reads the node's answer. Everything
// else (rounds, validity, extension, release, waiting, tokens) is the same for every primitive and does not
// look inside a claim.
package claim

import (
	"time"

	"github.com/seed14bd9ef4/redsync/internal/script"
)

// A Claim is what one lease writes on the nodes. The rest of the library works through this interface
// alone.
type Claim interface {
	Name() string  // names the claim in errors and events
	Value() string // the secret that proves it: fresh for each attempt, and used by one lease only

	// With returns the same claim with another value. It may store the copy in room, which must be zero.
	With(value string, room *Room) Claim

	// Acquire takes the claim for ttl if it is free. It enters the queue at the place, unless that is zero,
	// and proposes the token of the fence, unless that is zero.
	Acquire(ttl time.Duration, at script.Place, f script.Fence) Call

	// Extend makes the claim last for at least ttl from now, and never shortens it. With heal it takes a
	// missing claim again; the answer is Created then.
	Extend(ttl time.Duration, heal bool) Call

	// Check asks whether the claim is there.
	Check() Call

	// Release gives the claim back, raises the register to the token of the fence, and makes the turnover
	// in the queue. If the claim is free then, it wakes the first waiter, unless that waiter belongs to
	// process p.
	Release(p script.Process, t script.Turnover, f script.Fence) Call

	// ReleaseQuietly does what Release does, but touches no queue.
	ReleaseQuietly(f script.Fence) Call

	// Lines returns the lines in which waiters of this process stand for the claim. A waiter itself stands
	// in the first. A node that tells a process of a free lock names the line. For most claims that is the
	// key of the lock.
	Lines() []string

	// PassesTo reports whether a lease with this claim can end by going on as a lease with the other claim.
	// The nodes then need not be told.
	PassesTo(other Claim) bool
}

// Room is memory for a claim, which saves the allocation.
type Room struct{ exclusive Exclusive }

// A Call is a command and the only reader of its replies, because the same reply means one thing after one
// command and another thing after the next.
type Call struct {
	Command script.Command

	// Read returns what a reply says. It returns an error for a reply that no node of this protocol gives.
	// Such a reply says nothing about the claim.
	Read func(reply any) (Answer, error)
}

// Found says what a command found where the claim belongs.
type Found uint8

// What a command can find.
const (
	Unknown Found = iota // the answer does not say
	Mine                 // the claim is there: it was there before, or Acquire has taken it
	Other                // something else is in its way
	Missing              // nothing is there
	Created              // nothing was there, and Extend has taken the claim again
)

// An Answer is what a node says. It is small, because every vote carries one.
type Answer struct {
	Detail *Detail // what only some answers say; nil for the others
	Found  Found
	First  bool // of Release: the caller's process is the first in the queue
	Others bool // of Release: a waiter of another process is known
}

// A Detail is what a node says only to an Acquire that enters the queue or proposes a token.
type Detail struct {
	Wait     time.Duration // how long a refusal may last; Never if it has no end or the end is not known
	At       time.Duration // when the answer came, by the monotonic clock; set only if the acquire enters the queue
	Register uint64        // with a fence: the register
	Stored   bool          // with a fence: the proposal is the register now
	WasThere bool          // with a fence: the claim was there before
	Own      any           // what only the claim itself and its tally understand; nil for most claims
}

// Never is a Wait without an end.
const Never time.Duration = -1

// noDetail is the Detail of an answer without one.
var noDetail = Detail{Wait: Never}

// Details returns the Detail of a. If a has none, it returns what a refusal without one means: its Wait is
// Never.
func (a Answer) Details() Detail {
	if a.Detail == nil {
		return noDetail
	}
	return *a.Detail
}
