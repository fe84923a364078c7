package lease

import (
	"errors"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/quorum"
	"github.com/seed14bd9ef4/redsync/internal/wire"
)

// This file is what the root of the library and package queue hand down to leases.

// Terms are what the locks of one Mutex have in common.
type Terms struct {
	*Policy
	Keeper *Keeper
	Claim  claim.Claim // without a value
	Events Events      // nil if nobody listens
}

// A Policy is what options come to: how the locks of all Mutexes with the same options are held, and waited for. It does not
// change.
type Policy struct {
	Timing     Timing
	Value      func() (string, error) // makes the value of an attempt
	Owner      string                 // the label of the owner that each value says; "" for values that say none
	UserValues bool                   // Value is the user's function: it may repeat a value, and the user may know each
	WaitAll    bool                   // every round waits for all nodes
	Heals      bool                   // an extension sets missing keys again
	Watchdog   bool                   // leases extend themselves
	Fencing    bool                   // each lease has a token
	Passes     bool                   // leases may be handed over within the process
	Joins      bool                   // leases may share a hold within the process
	InDo       bool                   // a Do has the lease and will release it, so Detach refuses
	OfDo       *Policy                // the same for the leases of a Do

	// For package queue:

	Fair         bool                          // nobody is overtaken
	Priority     int                           // the higher comes first
	Delay        func(tries int) time.Duration // the retry delay
	Mean         time.Duration                 // of what Delay returns; OfUser if Delay is a function of the user's
	Rests        bool                          // the user has chosen no Delay: it makes no waiter try that the nodes can wake
	EndsIfDenied bool                          // a Lock ends once so many nodes deny it the lock that no quorum can grant
}

// OfUser stands for the mean of delays that a function of the user's returns, which is not known.
const OfUser time.Duration = -1

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

	// Forced returns the cause of an end by force.
	Forced func() error

	// Severed returns the cause of an end because the user has closed the clients. res is that of quorum.Set.Severed.
	Severed func(res quorum.Result) error
}

// tracer returns the tracer of votes, nil if nobody listens.
func (t *Terms) tracer() quorum.Tracer {
	if t.Events == nil {
		return nil
	}
	return t.Events
}

// brief returns the brief of an operation on a lease. Its Purpose is Looking; operations that grant set another.
func (t *Terms) brief(op quorum.Op, call claim.Call) quorum.Brief {
	return quorum.Brief{Op: op, Call: call, Within: t.Timing.NodeTimeout, Tracer: t.tracer()}
}

// lacksQueue reports whether node i has just denied the queue of the lock. The claim must have only one line.
func (t *Terms) lacksQueue(i int) bool {
	return t.Keeper.Set.Nodes[i].DeniesQueueOf(t.Claim.Lines()[0])
}

// deny notes that the client cannot use the queue of the lock on node i. ofUser says that its user lacks a permission.
// Otherwise the queue is a key of another type, or a cluster keeps it on another node than the lock. If the claim has
// several lines, the cluster may instead keep their names apart, which says nothing of the queue of one name.
func (t *Terms) deny(i int, err error, ofUser bool) {
	name := ""
	switch lines := t.Claim.Lines(); {
	case len(lines) == 1:
		name = lines[0]
	case wire.IsCrossSlot(err):
		return
	}
	n := t.Keeper.Set.Nodes[i]
	n.Deny(name, ofUser)
	switch {
	case t.Events == nil:
	case ofUser && err != errBlind: //nolint:errorlint // a sentinel
		n.Doubt(t.Claim.Name(), err)
	case n.Tells():
		t.Events.Denied(n, err)
	}
}

// errBlind is why a reader is let in without a look at the queue.
var errBlind = errors.New("redsync: the user may not read the queue")

// allows notes that node i has executed a script on the lock. If it has denied one on the lock and its queue before, it
// denies the queue alone, which is told now.
func (t *Terms) allows(i int) {
	n := t.Keeper.Set.Nodes[i]
	if t.Events == nil || !n.Doubts() {
		return
	}
	if err := n.Allows(t.Claim.Name()); err != nil {
		t.Events.Denied(n, err)
	}
}

// wake wakes the first waiter in each of these lines of c, because node i has told that it is that waiter's
// turn.
func (t *Terms) wake(c claim.Claim, i int, first claim.Lines, undoes Turn) {
	for at, name := range c.Lines() {
		if first.Has(at) {
			t.Keeper.Waiters.Wake(name, i, undoes)
		}
	}
}
