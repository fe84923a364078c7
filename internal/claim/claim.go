// Package claim is what a primitive writes on a node, and how it reads what the node answers.
// Everything else (rounds, validity, extension, release, waiting, tokens) is the same for every primitive
// and does not look into it.
package claim

import (
	"time"

	"github.com/seed14bd9ef4/redsync/internal/script"
)

// A Claim is what one lease writes on the nodes. The rest of the library goes by it alone: it
// looks at no name and no value.
type Claim interface {
	Name() string  // by which errors and events call it
	Value() string // the secret that proves it: fresh for each attempt, of one lease alone

	// With returns the same claim with a value. It may use room, which is zero.
	With(value string, room *Room) Claim

	// Acquire takes the claim for ttl where it is free. It enters the queue at a place,
	// and proposes the token of a fence, unless these are zero.
	Acquire(ttl time.Duration, at script.Place, f script.Fence) Call

	// Extend makes the claim last for ttl, or as long as it would anyway if that is longer. With heal it
	// takes it again where it is missing, which the answer tells.
	Extend(ttl time.Duration, heal bool) Call

	// Check looks whether the claim is there.
	Check() Call

	// Release gives the claim back, tells the next waiter of another process than the
	// given one, and makes the turnover in the queue. It raises the register to the
	// token of a fence.
	Release(p script.Process, t script.Turnover, f script.Fence) Call

	// ReleaseQuietly does what Release does, and touches no queue.
	ReleaseQuietly(f script.Fence) Call

	// Lines returns the lines in which waiters of this process stand for the claim. A waiter itself
	// stands in the first. When nodes tell a process that a lock is free they name the line, which
	// for most claims is the key of the lock.
	Lines() []string

	// PassesTo reports whether a lease with this claim, which ends, can go on as one with another:
	// then the nodes need not be told.
	PassesTo(other Claim) bool
}

// Room is memory for a claim, so that it needs no allocation of its own.
type Room struct{ exclusive Exclusive }

// A Call is a command and the only reader of its replies: the same reply means one thing from one
// command and another thing from the next.
type Call struct {
	Command script.Command

	// Read returns what a reply says. Its error is that no node of this protocol answers so: then
	// the reply says nothing of the claim.
	Read func(reply any) (Answer, error)
}

// Found is what a command has found of the claim when it was done.
type Found uint8

// What can be found.
const (
	Unknown Found = iota // the answer does not say
	Mine                 // the claim is there: it was, or Acquire has taken it
	Other                // something else is in its way
	Missing              // nothing is there
	Created              // nothing was there, and Extend has taken it again
)

// An Answer is what a node says. It is small, because every vote has one.
type Answer struct {
	Detail *Detail // made for this answer; nil if it says no more
	Found  Found
	First  bool // of Release: the caller's process is the first in the queue
	Others bool // of Release: a waiter of another process is known
}

// A Detail is what only answers to an Acquire say, which enters the queue or proposes a token.
type Detail struct {
	Wait     time.Duration // of a refusal: how long it may last; Never if that has no end or is not known
	At       time.Duration // when the answer came, by the monotonic clock; only if the acquire enters the queue
	Register uint64        // with a fence: the register
	Stored   bool          // with a fence: the proposal is the register now
	WasThere bool          // with a fence: the claim was there before
	Own      any           // what only the claim itself and its tally understand; nil of most claims
}

// Never is a Wait without an end.
const Never time.Duration = -1

// unsaid is the Detail of an answer without one.
var unsaid = Detail{Wait: Never}

// Details returns the Detail of a. If a has none, it returns what a refusal without one means: its Wait is
// Never.
func (a Answer) Details() Detail {
	if a.Detail == nil {
		return unsaid
	}
	return *a.Detail
}
