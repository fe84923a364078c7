package lease

import (
	"context"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/quorum"
)

// Events is told what becomes of the locks of one Mutex. Its methods must not block, except Waits and Attempted.
type Events interface {
	quorum.Tracer

	// Lost tells that a lease was held and has ended, but not by Unlock or Detach.
	Lost(l *Lease, held time.Duration, err error)

	// Extended tells how an extension of the watchdog has ended. res is the result of its round, or the result
	// so far if it is undecided. lost says that it proves that the lease is lost. left is how long the lease was still
	// valid at start.
	Extended(l *Lease, res quorum.Result, lost bool, start time.Time, took, left time.Duration)

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

	// Waits tells that the call that began at start waits from now on. It may panic.
	Waits(ctx context.Context, start clock.Instant, number uint64)

	// Attempted tells how an attempt has ended, and returns why it has failed. joins says that the call waits from now on
	// if it has failed. It may panic.
	Attempted(ctx context.Context, l *Lease, o Outcome, joins bool) error

	// Refused tells that a node denies us a subscription.
	Refused(n *quorum.Node, err error)
}
