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

// Terms are what the locks of one Mutex have in common.
type Terms struct {
	*Policy
	Keeper *Keeper
	Claim  claim.Claim // without a value
	Events Events      // may be nil
}

// A Policy is what options come to: how locks are held, and waited for. It does not change.
type Policy struct {
	Timing     Timing
	Value      func() (string, error)
	Owner      string // the label in each value; may be ""
	UserValues bool   // Value is the user's: it may repeat a value, and the user may know each
	WaitAll    bool   // in every round
	Heals      bool   // an extension sets missing keys again
	Watchdog   bool
	Fencing    bool
	Passes     bool    // leases may be handed over within the process
	Joins      bool    // leases may share a hold within the process
	InDo       bool    // a Do will release the lease, so Detach refuses
	OfDo       *Policy // for the leases of a Do

	// For package queue:

	Fair         bool // nobody is overtaken
	Priority     int
	Delay        func(tries int) time.Duration
	Mean         time.Duration // of what Delay returns; negative if a user's function does
	Rests        bool          // the user has chosen no Delay: it does not make those try that nodes can wake
	EndsIfDenied bool          // a Lock ends if nodes deny it every quorum
}

// Errors are the library's errors for the end of a lease. This package interprets none.
type Errors struct {
	NotHeld error // unlocked, detached, or never held
	Expired error // its time is up
	MaxHold error // its time is up, and nothing can prolong it
	Spent   error // held, but nothing can prolong it
	Closed  error // by Close
	Failed  error // before the lease has reached its caller

	// Lost returns the error of a lease that somebody held. missed is the watchdog's last extension, unless it was
	// confirmed.
	Lost func(cause error, missed *quorum.Result) error

	// Rejected is for an end that the nodes have proved.
	Rejected func(name string, res quorum.Result) error

	// Forced is for an end by force.
	Forced func() error

	// Severed is for closed clients. res is from quorum.Set.Severed.
	Severed func(res quorum.Result) error
}

func (t *Terms) brief(op quorum.Op, call claim.Call) quorum.Brief {
	b := quorum.Brief{Op: op, Call: call, Within: t.Timing.NodeTimeout}
	if t.Events != nil {
		b.Tracer = t.Events
	}
	return b
}

func (t *Terms) lacksQueue(i int) bool {
	return t.Keeper.Set.Nodes[i].DeniesQueueOf(t.Claim.Lines()[0])
}

// deny notes that the client cannot use the queue on node i: its user lacks a permission (ofUser), the queue is a key
// of another type, or a cluster keeps it elsewhere. Several lines that a cluster keeps apart say nothing of a queue.
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
		t.Events.Denied(n, t.Claim.Name(), err)
	}
}

var errBlind = errors.New("redsync: the user may not read the queue")

// allows notes that node i has executed a script on the lock. If it has denied one on lock and queue, it denies the
// queue alone.
func (t *Terms) allows(i int) {
	n := t.Keeper.Set.Nodes[i]
	if t.Events == nil || !n.Doubts() {
		return
	}
	if err := n.Allows(t.Claim.Name()); err != nil {
		t.Events.Denied(n, t.Claim.Name(), err)
	}
}

func (t *Terms) wake(c claim.Claim, i int, first claim.Lines, undoes Turn) {
	for at, name := range c.Lines() {
		if first.Has(at) {
			t.Keeper.Waiters.Wake(name, i, undoes)
		}
	}
}

// A Timing holds the durations of a lease: see drift.go in the root of the library.
type Timing struct {
	Expiry      time.Duration // in whole milliseconds
	TTL         time.Duration // of the keys: expiry + lock delay; an acquire sets MinHold if that is longer
	Validity    time.Duration // of the holder: expiry - drift
	NodeTimeout time.Duration // of a round, for one node
	Reach       time.Duration // of a round, for one step of a connection that is being opened
	Far         time.Duration // the longest node deadline, of a far node
	MaxHold     time.Duration // the longest hold; 0: no limit
	MinHold     time.Duration // of the keys, from the acquire on: minimal hold + drift; 0: none
	Drift       quorum.Drift  // of the nodes' clocks
}

// LastsAs reports whether t and u differ in nothing but Drift.
func (t *Timing) LastsAs(u Timing) bool {
	u.Drift = t.Drift
	return *t == u
}

// AtAge returns the TTL of the keys and the length of the validity for an extension at that age of the lease; for an
// attempt held is 0. Both count from that moment. MaxHold may shorten both.
func (t *Timing) AtAge(held time.Duration) (ttl, validity time.Duration) {
	if t.MaxHold == 0 || t.Validity <= t.MaxHold-held {
		return t.TTL, t.Validity
	}
	validity = max(t.MaxHold-held, 0)
	return t.TTL - (t.Validity - validity).Truncate(time.Millisecond), validity
}

// rest returns how much of MinHold is left, in whole milliseconds, rounded up. It goes by the monotonic clock alone: a
// step of the wall clock must not shorten the rest. After a suspension it is too long, which does no harm.
func (t *Timing) rest(first, now clock.Instant) time.Duration {
	left := t.MinHold - (now.Mono - first.Mono)
	if t.MinHold == 0 || left <= 0 {
		return 0
	}
	return (left + time.Millisecond - 1).Truncate(time.Millisecond)
}

// lasts returns for how much longer a key may last by the nodes' clocks, if its TTL was set at renewed or before;
// perhaps negative. A step of the wall clock must not end the repetitions of a release.
func (t *Timing) lasts(renewed time.Duration, now clock.Instant) time.Duration {
	age := now.Mono - renewed
	left := sum(t.TTL-age, t.Expiry-t.Validity)
	if t.MinHold > 0 {
		left = max(left, sum(t.MinHold-age, t.Drift.Of(t.MinHold)))
	}
	return left
}

// sum avoids an overflow. b must not be negative.
func sum(a, b time.Duration) time.Duration {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

func (t *Timing) limits() quorum.Limits {
	return quorum.Limits{Decide: t.NodeTimeout, Node: t.NodeTimeout, Open: t.Expiry / 2, Reach: t.Reach, Far: t.Far}
}

// A Validity says how long a lease may be relied upon. Start comes before the first byte of the winning round.
type Validity struct {
	Start  clock.Instant
	Length time.Duration
}

// Remaining returns how much of v is left at now.
func (v Validity) Remaining(now clock.Instant) time.Duration {
	return max(v.Length-now.Since(v.Start), 0)
}

// Holds reports whether v has not ended at now.
func (v Validity) Holds(now clock.Instant) bool { return v.Remaining(now) > 0 }

// Until returns the end of v, for display. Only Remaining goes by both clocks.
func (v Validity) Until() time.Time { return v.Start.Wall.Add(v.Length) }

// Events hears of the locks of one Mutex. Its methods must not block, except Waits and Attempted, which may panic, too.
type Events interface {
	quorum.Tracer

	// Lost tells that a lease that was held has ended, but not by Unlock or Detach.
	Lost(l *Lease, held time.Duration, err error)

	// Extended tells how an extension of the watchdog has ended, or stands. lost says that the lease is lost. left is
	// how long the lease was still valid at start.
	Extended(l *Lease, res quorum.Result, lost bool, start time.Time, took, left time.Duration)

	// Unconfirmed tells that a node has not settled a release. pending is how many are not settled everywhere. givenUp
	// says that this one is not sent again.
	Unconfirmed(n *quorum.Node, pending int, givenUp bool, err error)

	// Left tells at the end of Close how many releases a node has not confirmed, and for how long their keys may last.
	Left(n *quorum.Node, releases int, within time.Duration, err error)

	// Audience returns a comparable value for those who are told.
	Audience() any

	// Denied tells that a node denies the client's user the queue of a lock, or, without a name, a subscription.
	Denied(n *quorum.Node, lock string, err error)

	// Ignored tells of a fencing register that no client can have written.
	Ignored(n *quorum.Node, err error)

	// Waits tells that the call that began at start waits from now on.
	Waits(ctx context.Context, start clock.Instant, number uint64)

	// Attempted tells how an attempt has ended, and returns why it has failed. Then the call waits if joins.
	Attempted(ctx context.Context, l *Lease, o Outcome, joins bool) error
}

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
	case !script.MayBeValue(value, t.Claim.Shares()): // the error keeps the value secret
		return "", errNoValue
	}
	return value, nil
}

var errNoValue = errors.New(
	`redsync: WithGenValueFunc returned a value that begins with "readers\n", or with WithShared has a line feed: no value may`)
