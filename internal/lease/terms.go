package lease

import (
	"time"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/quorum"
)

// This file is what the root of the library and package queue hand down to leases.

// Terms are what the leases of one Mutex have in common.
type Terms struct {
	*Policy
	Keeper *Keeper
	Claim  claim.Claim // without a value
	Events Events      // nil if nobody listens
}

// A Policy is what the leases of all Mutexes with the same options have in common. It does not change.
type Policy struct {
	Timing     Timing
	Value      func() (string, error) // makes the value of an attempt
	UserValues bool                   // Value is the user's function: it may repeat a value, and the user may know each
	WaitAll    bool                   // every round waits for all nodes
	Heals      bool                   // an extension sets missing keys again
	Watchdog   bool                   // leases extend themselves
	Fencing    bool                   // each lease has a token
	Passes     bool                   // leases may be handed over within the process
	Joins      bool                   // leases may share a hold within the process
	InDo       bool                   // a Do has the lease and will release it, so Detach refuses
	OfDo       *Policy                // the same for the leases of a Do
}

// tracer returns the tracer of votes, nil if nobody listens.
func (t *Terms) tracer() quorum.Tracer {
	if t.Events == nil {
		return nil
	}
	return t.Events
}

// Errors are the library's errors for the end of a lease. This package passes them on, and interprets none.
type Errors struct {
	NotHeld error // unlocked, detached, or never held
	Expired error // its time is up
	MaxHold error // its time is up, and nothing can prolong it
	Spent   error // of an extension: the lease is held, but cannot be held for longer
	Closed  error // the cause of an end by Close
	Failed  error // the cause of an end before the lease has reached its caller

	// Lost returns the error of a lease that somebody held. missed is the last extension by the watchdog if it was not
	// confirmed, nil otherwise.
	Lost func(cause error, missed *quorum.Result) error

	// Rejected returns the cause of an end that the nodes have proved. name is that of the claim.
	Rejected func(name string, res quorum.Result) error

	// Severed returns the cause of an end because the user has closed the clients. res is that of quorum.Set.Severed.
	Severed func(res quorum.Result) error
}

// Events is told what becomes of leases. Its methods must not block.
type Events interface {
	quorum.Tracer

	// Lost tells that a lease was held and has ended, but not by Unlock or Detach.
	Lost(held time.Duration, err error)

	// Extended tells how an extension of the watchdog has ended. res is the result of its round, or the result
	// so far if it is undecided. lost says that it proves that the lease is lost. left is how long the lease was still
	// valid at start.
	Extended(res quorum.Result, lost bool, start time.Time, took, left time.Duration)

	// Unconfirmed tells that a node has not settled a release. pending is how many releases are unsettled on
	// some node. givenUp says that the release is not sent to the node again.
	Unconfirmed(n *quorum.Node, pending int, givenUp bool, err error)

	// Left tells at the end of Close how many releases a node has not confirmed, and when their keys will have run out.
	Left(n *quorum.Node, releases int, within time.Duration, err error)

	// Audience returns a comparable value that stands for those who are told.
	Audience() any

	// Denied tells that a node denies the client's user access to the queue.
	Denied(n *quorum.Node, err error)

	// Ignored tells that a node's fencing register has a value that no client can have written.
	Ignored(n *quorum.Node, err error)
}

// Waiters are the callers of this process that wait for a claim. Package queue implements it.
type Waiters interface {
	// Any reports whether anybody waits.
	Any() bool

	// ReleaseAndAdmit releases l, which has ended, and admits the next waiter.
	ReleaseAndAdmit(l *Lease)

	// Nudge makes the first waiter in each of the lines try, because the lease that it waited for has ended.
	Nudge(lines []string)

	// Wake tells the first waiter in the line that its lock is free on a node, and that this process is the
	// first in the queue there. The news comes from a release. If that release undoes a failed attempt, undoes
	// is that attempt, whose waiter has no reason to try again; otherwise undoes is nil.
	Wake(line string, node int, undoes Turn)
}

// Room is memory for what a lease keeps of a Turn.
type Room struct{ special }

// A Turn is the attempt of a waiter, at a place in the queues. It is told of the nodes' answers, including
// those that come too late to count.
type Turn interface {
	// Room returns memory for the lease of the attempt, which saves an allocation. It is zero.
	Room() *Room

	// Free tells in which lines of the claim nothing was in the way of the attempt on a node. If the claim has only
	// one line and the node refuses it, the lease does not call Free.
	Free(node int, lines claim.Lines)

	// IsPatient reports whether the attempt waits for late nodes even if the votes are split.
	IsPatient() bool

	// Denied tells that a node denies the client's user access to the queue.
	Denied()

	// NoQueue tells that a node has a key of another type in place of the queue.
	NoQueue()

	// Barred tells that a node has failed for a reason that a repetition does not change: see pool.IsPermanent.
	Barred(node int, err error)
}
