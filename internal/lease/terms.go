package lease

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/quorum"
	"github.com/seed14bd9ef4/redsync/internal/script"
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

// brief returns the brief of an operation on a lease. Its Purpose is Looking; operations that grant set another.
func (t *Terms) brief(op quorum.Op, call claim.Call) quorum.Brief {
	b := quorum.Brief{Op: op, Call: call, Within: t.Timing.NodeTimeout}
	if t.Events != nil {
		b.Tracer = t.Events
	}
	return b
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

// A Timing holds the durations of a lease. The root of the library derives them from the settings (drift.go
// there).
type Timing struct {
	Expiry      time.Duration // in whole milliseconds
	TTL         time.Duration // of the keys: expiry + lock delay; an acquire sets the longer of TTL and MinHold
	Validity    time.Duration // the length of the holder's validity: expiry - drift
	NodeTimeout time.Duration // how long a round waits for one node
	Reach       time.Duration // how long a round waits for one step of a node whose connection is being opened
	Far         time.Duration // the longest node deadline of a node that is known to be far
	MaxHold     time.Duration // the longest that a lease may be held in all; 0: no limit
	MinHold     time.Duration // how long the keys stay at least, from the acquire on: the minimal hold + drift; 0: no minimum
	Drift       quorum.Drift  // of the nodes' clocks
}

// LastsAs reports whether leases with t and u last equally long, and wait equally long for a node.
func (t Timing) LastsAs(u Timing) bool {
	t.Drift, u.Drift = nil, nil
	return t == u
}

// AtAge returns the TTL of the keys and the length of the validity for an extension that starts when the lock
// has been held for that time. For an attempt, held is 0. MaxHold may shorten both.
func (t Timing) AtAge(held time.Duration) (ttl, validity time.Duration) {
	if t.MaxHold == 0 || t.Validity <= t.MaxHold-held {
		return t.TTL, t.Validity
	}
	validity = max(t.MaxHold-held, 0)
	return t.TTL - (t.Validity - validity).Truncate(time.Millisecond), validity
}

// rest returns how much of MinHold is left at now, for a lease whose acquire began at first: in whole
// milliseconds, rounded up, and 0 if nothing is left. It goes by the monotonic clock alone, because a step of the
// wall clock must not shorten the rest. After a suspension of the machine the result is too long. That does no
// harm: a release never makes a key last longer.
func (t Timing) rest(first, now clock.Instant) time.Duration {
	left := t.MinHold - (now.Mono - first.Mono)
	if t.MinHold == 0 || left <= 0 {
		return 0
	}
	return (left + time.Millisecond - 1).Truncate(time.Millisecond)
}

// lasts returns for how much longer a key may last by the nodes' clocks, if no node can have set its TTL later than at
// the monotonic time renewed. It is negative if the key must have run out. It goes by the monotonic clock alone, because
// a step of the wall clock must not end the repetitions of a release.
func (t Timing) lasts(renewed time.Duration, now clock.Instant) time.Duration {
	age := now.Mono - renewed
	left := sum(t.TTL-age, t.Expiry-t.Validity)
	if t.MinHold > 0 {
		left = max(left, sum(t.MinHold-age, t.Drift.Of(t.MinHold)))
	}
	return left
}

// sum returns a + b, or the longest duration if that is less. b must not be negative.
func sum(a, b time.Duration) time.Duration {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// limits is how long a round may take: the node deadline, and longer while connections are being opened.
func (t Timing) limits() quorum.Limits {
	return quorum.Limits{Decide: t.NodeTimeout, Node: t.NodeTimeout, Open: t.Expiry / 2, Reach: t.Reach, Far: t.Far}
}

// A Validity says how long a lease may be relied upon: for Length from Start. Start is taken before the
// first byte of the winning round is sent.
type Validity struct {
	Start  clock.Instant
	Length time.Duration
}

// Remaining returns how much of v is left at now, 0 when it is over.
func (v Validity) Remaining(now clock.Instant) time.Duration {
	return max(v.Length-now.Since(v.Start), 0)
}

// Holds reports whether v has not ended at now.
func (v Validity) Holds(now clock.Instant) bool { return v.Remaining(now) > 0 }

// Until returns the end of v, for display. To decide whether v has ended, use Remaining, which goes by both clocks.
func (v Validity) Until() time.Time { return v.Start.Wall.Add(v.Length) }

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

// newValue returns the value of an attempt that begins at start. A user's function may return one again: see valueLog.
func (t *Terms) newValue(start clock.Instant) (string, error) {
	value, err := t.Value()
	switch {
	case err != nil:
		return "", err
	case t.Owner != "":
		return script.OwnedValue(value, t.Keeper.Process, start.Wall, t.Owner), nil
	case !t.UserValues:
		return value, nil
	case value == "":
		return "", errors.New("redsync: WithGenValueFunc returned an empty value")
	case !script.MayBeValue(value, t.Claim.Shares()): // the value is a secret, so the error does not say it
		return "", errNoValue
	}
	return value, nil
}

var errNoValue = errors.New(
	`redsync: WithGenValueFunc returned a value that begins with "readers\n", or with WithShared has a line feed: no value may`)
