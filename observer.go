package redsync

import (
	"slices"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/lease"
	"github.com/seed14bd9ef4/redsync/internal/notice"
	"github.com/seed14bd9ef4/redsync/internal/quorum"
)

// This file is what can be seen of locks from outside: events, and who is told of them.

// An Attempt is one attempt of Lock or TryLock. Err matches *ErrTaken if others
// were first; any other error is about nodes, or about the caller's context.
//
// Nodes that are in none of the counts had not answered when the others decided.
// Where nothing was decided (the node deadline, the context) they count as Failed.
type Attempt struct {
	Name    string
	Try     int           // 1 plus the retry delays that have elapsed; an attempt for another reason does not raise it
	Took    time.Duration // from its start until Lock went on
	Granted int           // nodes
	Refused int           // nodes: they hold another value
	Failed  int           // nodes: an error, or no answer
	Err     error         // nil if the lock was acquired
}

// A Vote is one node's first answer in one round of requests, or its failure to
// answer. Votes that come after the others have decided are told as well: a node
// that is slow shows here. One that does not answer is told when its connection is
// given up, up to some seconds later.
type Vote struct {
	Name    string
	Node    int           // index into the pools of New or the addresses of Open, from 0
	Op      string        // "lock", "extend", "valid" or "unlock": also of attempts that failed and locks that were lost
	Latency time.Duration // since the requests were sent
	Late    bool          // it does not count any more
	Err     error         // nil if the node granted, else *ErrNodeTaken, *RedisError or that it has no key
}

// Acquired is a lock that Lock or TryLock has acquired, or Extend has adopted (see
// WithValue).
type Acquired struct {
	Name   string
	Waited time.Duration // since the call
	Tries  int           // retry delays that have elapsed, and 1; 0 if adopted or handed over
	Left   time.Duration // of the validity
}

// Extended is an extension that has ended, of Extend or of the watchdog, which
// tries again while the lock is held. Err matches ErrExtendFailed, or what ended
// the hold.
type Extended struct {
	Name     string
	Watchdog bool
	Took     time.Duration
	Left     time.Duration // of the old validity when the extension ended; near 0: it hardly made it
	Err      error         // nil if it was confirmed
}

// Released is a lock that Unlock has released, or could not. Err matches
// ErrLockAlreadyExpired if the lock was over before.
type Released struct {
	Name string
	Held time.Duration // when Unlock was called; 0 if adopted and never extended
	Left time.Duration // of the validity when Unlock was called; 0 as above
	Took time.Duration // Unlock
	Err  error         // Unlock's
}

// Detached is a lock that Detach has given away.
type Detached struct {
	Name string
	Held time.Duration // when Detach was called
	Left time.Duration // of the validity when Detach returned
}

// Lost is a hold that has ended, and not by Unlock or Detach: each is told once.
type Lost struct {
	Name string
	Held time.Duration // since the start of the attempt that acquired it
	Err  error         // as of Mutex.Err: it matches ErrLockLost and the cause
}

// Unsettled is a release that a node has not settled. It is sent again until the
// keys have run out, unless Dropped.
type Unsettled struct {
	Name    string
	Node    int   // index into the pools of New or the addresses of Open, from 0
	Pending int   // releases, of all locks, that some node has not settled
	Dropped bool  // it will not be sent again: Close was called, or 65,536 releases are waiting
	Err     error // why; nil if the node's answer proved nothing
}

// Unwoken says that a node does not let its user be woken when a lock is released, by
// its ACL: it refuses SUBSCRIBE, or the keys beside the lock's own. Whoever waits goes
// by its retry delay then. It is told once for each node where keys are refused, and each
// time that the nodes are listened to where it is SUBSCRIBE.
type Unwoken struct {
	Name string // of the lock whose keys are refused; "" where it is SUBSCRIBE
	Node int    // index into the pools of New or the addresses of Open, from 0
	Err  error  // its answer
}

// NodeDown says that a node has failed to do what a lock asked of it, after it had been
// doing so: its connection failed or could not be opened, it refused (LOADING, NOAUTH,
// READONLY, ...), it owes too many replies, it has restarted under pool.WithRestartGuard,
// or it is the same server as another node. Locks keep working while a quorum of nodes is
// up. Nothing is sent to find out: a frozen node is reported when its connection is given
// up, some seconds later.
//
// Only the observers of the lock whose request failed are told. They are told once until
// the node is up again, and at most once per second for each node.
type NodeDown struct {
	Node    int    // index into the pools of New or the addresses of Open, from 0
	Address string // of the node, as its Pool's String has it
	Omitted int    // how often it has been down and up again since the last NodeDown that was told
	Err     error  // the cause
}

// NodeUp says that a node does again what locks ask of it. Each NodeUp follows a NodeDown.
type NodeUp struct {
	Node    int           // index into the pools of New or the addresses of Open, from 0
	Address string        // of the node, as its Pool's String has it
	Down    time.Duration // since it was seen to be down
}

// Missed says that events were dropped, because an observer was too slow.
type Missed struct {
	Events int // dropped since the last Missed
}

type (
	// An AttemptObserver is told of every attempt of Lock and TryLock.
	AttemptObserver interface{ ObserveAttempt(Attempt) }
	// A VoteObserver is told of every node's answers.
	VoteObserver interface{ ObserveVote(Vote) }
	// An AcquiredObserver is told of locks that were acquired.
	AcquiredObserver interface{ ObserveAcquired(Acquired) }
	// An ExtendedObserver is told of every extension.
	ExtendedObserver interface{ ObserveExtended(Extended) }
	// A ReleasedObserver is told of every Unlock of a lock.
	ReleasedObserver interface{ ObserveReleased(Released) }
	// A DetachedObserver is told of every lock that is given away.
	DetachedObserver interface{ ObserveDetached(Detached) }
	// A LostObserver is told of every loss.
	LostObserver interface{ ObserveLost(Lost) }
	// An UnsettledObserver is told of releases that must be repeated.
	UnsettledObserver interface{ ObserveUnsettled(Unsettled) }
	// An UnwokenObserver is told of nodes that do not wake who waits.
	UnwokenObserver interface{ ObserveUnwoken(Unwoken) }
	// A NodeDownObserver is told of nodes that stop answering.
	NodeDownObserver interface{ ObserveNodeDown(NodeDown) }
	// A NodeUpObserver is told of nodes that answer again.
	NodeUpObserver interface{ ObserveNodeUp(NodeUp) }
	// A MissedObserver is told how many events were dropped.
	MissedObserver interface{ ObserveMissed(Missed) }
)

// observers are told of events. They do not change: Redsyncs made by With share
// them. nil are none.
type observers struct {
	all   []any
	votes bool // one of them is a VoteObserver
}

// with returns o and another observer.
func (o *observers) with(observer any) *observers {
	_, votes := observer.(VoteObserver)
	more := &observers{all: []any{observer}, votes: votes}
	if o != nil {
		more.all = append(slices.Clone(o.all), observer)
		more.votes = votes || o.votes
	}
	return more
}

// tell calls method, of the observer interface O, where it is implemented.
func tell[O, E any](to *observers, method func(O, E), event E) {
	if to == nil {
		return
	}
	for _, o := range to.all {
		if o, ok := o.(O); ok {
			method(o, event)
		}
	}
}

// Dropped implements notice.Receiver.
func (o *observers) Dropped(events int) { tell(o, MissedObserver.ObserveMissed, Missed{events}) }

// events makes events for the observers of one Mutex of what the engine below tells. It implements
// lease.Events and queue.Events.
type events struct {
	to      *observers
	notices *notice.Queue // of what must not wait for an observer
	name    string        // of the Mutex
}

// tellLater queues an event for the goroutine of e's notices.
func tellLater[O, E any](e *events, method func(O, E), event E) {
	e.notices.Add(e.to, func() { tell(e.to, method, event) })
}

// TracesVotes implements quorum.Tracer.
func (e *events) TracesVotes() bool { return e.to.votes }

// Voted implements quorum.Tracer.
func (e *events) Voted(v quorum.Voted, later bool) {
	event := Vote{
		Name: e.name, Node: v.Node.Index, Op: v.Op.String(), Latency: v.Latency, Late: v.Late, Err: explain(v.Node, v.Vote),
	}
	if later {
		tellLater(e, VoteObserver.ObserveVote, event)
		return
	}
	tell(e.to, VoteObserver.ObserveVote, event)
}

// NodeDown implements quorum.Tracer.
func (e *events) NodeDown(n *quorum.Node, omitted int, err error) {
	if err == quorum.ErrDuplicate { //nolint:errorlint // a sentinel that nobody wraps
		err = ErrDuplicateNode
	}
	tellLater(e, NodeDownObserver.ObserveNodeDown, NodeDown{Node: n.Index, Address: n.Address, Omitted: omitted, Err: err})
}

// NodeUp implements quorum.Tracer.
func (e *events) NodeUp(n *quorum.Node, down time.Duration) {
	tellLater(e, NodeUpObserver.ObserveNodeUp, NodeUp{Node: n.Index, Address: n.Address, Down: down})
}

// Lost implements lease.Events.
func (e *events) Lost(held time.Duration, err error) {
	tellLater(e, LostObserver.ObserveLost, Lost{Name: e.name, Held: held, Err: err})
}

// Extended implements lease.Events.
func (e *events) Extended(res quorum.Result, took, left time.Duration) {
	event := Extended{Name: e.name, Watchdog: true, Took: took, Left: max(left-took, 0)}
	if !res.Won {
		event.Err = because(ErrExtendFailed, notGranted(res))
	}
	tellLater(e, ExtendedObserver.ObserveExtended, event)
}

// Unsettled implements lease.Events.
func (e *events) Unsettled(n *quorum.Node, pending int, dropped bool, err error) {
	tellLater(e, UnsettledObserver.ObserveUnsettled,
		Unsettled{Name: e.name, Node: n.Index, Pending: pending, Dropped: dropped, Err: err})
}

// Denied implements lease.Events.
func (e *events) Denied(n *quorum.Node, err error) {
	tellLater(e, UnwokenObserver.ObserveUnwoken, Unwoken{Name: e.name, Node: n.Index, Err: err})
}

// Refused implements queue.Events.
func (e *events) Refused(node int, err error) {
	tellLater(e, UnwokenObserver.ObserveUnwoken, Unwoken{Node: node, Err: err})
}

// Attempted implements queue.Events.
func (e *events) Attempted(l *lease.Lease, o lease.Outcome) error {
	count, why := o.Result.Count, whyNot(o)
	tell(e.to, AttemptObserver.ObserveAttempt, Attempt{
		Name: e.name, Try: l.Try, Took: clock.Now().Since(l.First), Err: why,
		Granted: count.Granted.Len(), Refused: count.Refused.Len(), Failed: count.Failed.Len(),
	})
	return why
}
