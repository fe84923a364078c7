package lease

import (
	"time"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/quorum"
)

// This file is what the root of the library and package queue hand down to leases.

// Terms are what the leases of one Mutex have in common.
type Terms struct {
	Keeper     *Keeper
	Claim      claim.Claim // without a value
	Timing     Timing
	Value      func() (string, error) // makes the value of an attempt
	UserValues bool                   // Value is the user's: it may repeat itself, and the user knows what it made
	WaitAll    bool                   // a round waits for every node
	Heals      bool                   // an extension sets missing keys again
	Watchdog   bool                   // leases extend themselves
	Fencing    bool                   // each lease has a token
	Passes     bool                   // leases may be handed over within the process
	Events     Events                 // nil where nobody listens
}

// tracer returns who is told of votes, nil where nobody listens.
func (t *Terms) tracer() quorum.Tracer {
	if t.Events == nil {
		return nil
	}
	return t.Events
}

// Errors are the ends of a lease in the words of the library. This package hands them on, and reads
// none.
type Errors struct {
	NotHeld error // unlocked, detached, or never held
	Expired error // its time is up
	MaxHold error // its time is up, and nothing can prolong it
	Spent   error // of an extension: it is held, but not for longer
	Closed  error // as the cause of an end: Close
	Failed  error // as the cause of an end: nobody has come to hold it

	Lost     func(cause error) error       // of the end of a lease that somebody held
	Rejected func(res quorum.Result) error // as the cause of an end: what the nodes have proved
}

// Events is told what becomes of leases. Its methods must not block.
type Events interface {
	quorum.Tracer

	// Lost tells that a lease has ended that somebody held, and not by Unlock or Detach.
	Lost(held time.Duration, err error)

	// Extended tells what has become of an extension of the watchdog: res is what its round came to,
	// by now if that is not decided. left is how long the lease was valid still at start.
	Extended(res quorum.Result, start time.Time, took, left time.Duration)

	// Unconfirmed tells that a node has not settled a release. givenUp says that nothing more is sent.
	Unconfirmed(n *quorum.Node, pending int, givenUp bool, err error)

	// Denied tells that a node does not let its user touch the queue.
	Denied(n *quorum.Node, err error)
}

// Waiters are those who wait in this process for what leases hold. Package queue implements it.
type Waiters interface {
	// Any reports whether anybody waits.
	Any() bool

	// ReleaseAndAdmit releases l, which has ended, and lets in who waits for it.
	ReleaseAndAdmit(l *Lease)

	// Nudge makes the first in each line try: it has waited for the end of something that has ended.
	Nudge(lines []string)

	// Wake tells that the claim of those lines is free on a node, and the turn of this process.
	// undoes is the failed attempt which the release that told so has undone, nil for any other: its
	// waiter has no reason to try again.
	Wake(lines []string, node int, undoes Turn)
}

// A Turn is the attempt of a waiter at a place in the queues. It is told what nodes answer, in time or
// late.
type Turn interface {
	// Granted tells that a node has granted.
	Granted(node int)

	// Denied tells that a node does not let its user touch the queue.
	Denied()
}
