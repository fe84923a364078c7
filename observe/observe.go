// Package observe has the events of locks, and the interfaces of those who are told of them.
//
// An observer is a value with one or more of the methods of this package: of AttemptObserver,
// VoteObserver and so on. redsync.WithObserver takes it. A declaration makes the compiler check the
// signature of a method, which otherwise would not be found:
//
//	var _ observe.LostObserver = (*metrics)(nil)
//
// # Context and time
//
// Each method gets the context of the call that the event is part of: of Lock, Extend, Valid, Unlock or
// Detach. It may be done by then. An event that is part of no call gets context.Background(): what the
// watchdog does, a release that is sent again, a lost lock, a node that is down.
//
// Start is when the thing began that the event tells of, and Took how long it has lasted. Both together
// make a span of a trace, whose parent is in the context.
//
// # Which goroutine
//
// The methods may be called by many goroutines at once, and should return soon.
//
//   - ObserveVote is called where a node's replies are read. It must not block, not panic and not call a
//     Mutex.
//   - The observers of what a call does (Attempt, Acquired, NotAcquired, Released, Detached, and Extended
//     by Extend) are called before that call returns, and delay it. If one panics, the panic goes on in
//     the caller: then Lock has acquired nothing, and an Extend that was to adopt a value has adopted
//     nothing.
//   - All other events come from one goroutine per New or Open, in the order in which they happened. They
//     delay no lock. An observer that blocks there delays the other observers. If more than 65,536 such
//     events wait, further ones are dropped; EventsDropped tells how many.
//
// # Labels
//
// For metrics: Op, Node, Watchdog, Late, and which error of package redsync Err matches, have few values
// and fit as labels. Name and the text of Err may have any number.
//
// Structs of events may get further fields.
package observe

import (
	"context"
	"time"
)

// An Attempt is one attempt of Lock or TryLock.
//
// A node that is in none of the counts had not answered when the others decided. If nothing was decided
// (at the node deadline, or when the context was done) such a node counts as Failed.
type Attempt struct {
	Name    string
	Start   time.Time
	Took    time.Duration
	Try     int   // 1, and 1 more for each retry delay that has elapsed
	Granted int   // nodes that granted the lock
	Refused int   // nodes that hold another value
	Failed  int   // nodes with an error, or without an answer
	Err     error // nil if the lock was acquired; *redsync.ErrTaken if others were first; else of nodes or the context
}

// A Vote is one node's first answer in one round of requests, or its failure to answer. Votes that come after
// the others have decided are told as well: they show a slow node. The vote of a node that does not answer
// comes when its connection is given up, up to some seconds later.
type Vote struct {
	Name  string
	Start time.Time     // when the requests were sent
	Took  time.Duration // until the answer came
	Node  int           // index into the pools of New or the addresses of Open, from 0
	Op    string        // "lock", "extend", "valid" or "unlock": also of failed attempts and lost locks
	Late  bool          // the vote does not count any more
	Err   error         // nil if the node granted; else *redsync.ErrNodeTaken, *redsync.RedisError, or that it has no key
}

// Acquired is a lock that Lock or TryLock has acquired, or Extend has adopted (see redsync.WithValue).
type Acquired struct {
	Name   string
	Start  time.Time     // of the call
	Took   time.Duration // the call
	Waited time.Duration // the part of Took before the attempt that won; all of it if the lock was handed over
	Tries  int           // 1, and 1 more for each retry delay that has elapsed; 0 if adopted or handed over
	Left   time.Duration // of the validity
}

// NotAcquired is a call of Lock or TryLock that has acquired nothing. A call that is refused at once is not
// told: one with an option out of its range, or after Close.
type NotAcquired struct {
	Name  string
	Start time.Time     // of the call
	Took  time.Duration // the call
	Err   error         // what the call returns
}

// Extended is an extension that has ended, of Extend or of the watchdog. The watchdog tries again while the
// lock is held.
type Extended struct {
	Name     string
	Start    time.Time
	Took     time.Duration
	Watchdog bool
	Left     time.Duration // of the old validity when the extension ended; near 0, it was almost too late
	Err      error         // nil if it was confirmed; else it matches redsync.ErrExtendFailed, or what ended the hold
}

// Released is a lock that Unlock has released, or could not.
type Released struct {
	Name  string
	Start time.Time     // of the call
	Took  time.Duration // the call
	Held  time.Duration // when Unlock was called; 0 if adopted and never extended
	Left  time.Duration // of the validity when Unlock was called; 0 if adopted and never extended
	Err   error         // what Unlock returns; it matches redsync.ErrLockAlreadyExpired if the lock was over before
}

// Detached is a lock that Detach has given away.
type Detached struct {
	Name  string
	Start time.Time     // of the call
	Took  time.Duration // the call
	Held  time.Duration // when Detach was called
	Left  time.Duration // of the validity when Detach returned
}

// Lost is a hold that has ended, but not by Unlock or Detach. Each is told once.
type Lost struct {
	Name string
	Held time.Duration // since the start of the attempt that acquired it
	Err  error         // as of Mutex.Err: it matches redsync.ErrLockLost and the cause
}

// ReleaseUnconfirmed is a release that a node has not confirmed. It is sent again until the node confirms it
// or the keys have run out, unless GivenUp.
type ReleaseUnconfirmed struct {
	Name    string
	Node    int   // index into the pools of New or the addresses of Open, from 0
	Pending int   // releases, of all locks, that some node has not confirmed
	GivenUp bool  // it is not sent again: Close was called, or 65,536 releases wait to be sent again
	Err     error // why; nil if the node's answer proved nothing
}

// WakeUpDenied says that the ACL of a node does not let its user be woken when a lock is released: the node
// refuses SUBSCRIBE, or the keys beside the lock's own. Waiters then try again after their retry delays. It
// is told once for each node where keys are refused, and with each subscription where it is SUBSCRIBE.
type WakeUpDenied struct {
	Name string // of the lock whose keys are refused; "" where it is SUBSCRIBE
	Node int    // index into the pools of New or the addresses of Open, from 0
	Err  error  // the node's answer
}

// NodeDown says that a node has begun to fail: its connection failed or could not be opened, it refused
// (LOADING, NOAUTH, READONLY, ...), it owes too many replies, it has restarted under pool.WithRestartGuard,
// or it is the same server as another node. Locks keep working while a quorum of nodes is up. Nothing is
// sent to find out: a frozen node is reported when its connection is given up, some seconds later.
//
// Only the observers of the lock whose request failed are told. They are told once until the node is up
// again, and at most once per second for each node.
type NodeDown struct {
	Node    int    // index into the pools of New or the addresses of Open, from 0
	Address string // of the node, as its Pool's String has it
	Omitted int    // how often the node has gone down and come up again since the last NodeDown
	Err     error  // the cause
}

// NodeUp says that a node works again. Each NodeUp follows a NodeDown.
type NodeUp struct {
	Node    int           // index into the pools of New or the addresses of Open, from 0
	Address string        // of the node, as its Pool's String has it
	Down    time.Duration // since it was seen to be down
}

// EventsDropped says that events were dropped, because an observer was too slow.
type EventsDropped struct {
	Events int // dropped since the last EventsDropped
}

type (
	// An AttemptObserver is told of every attempt of Lock and TryLock.
	AttemptObserver interface {
		ObserveAttempt(ctx context.Context, a Attempt)
	}
	// A VoteObserver is told of every node's answers.
	VoteObserver interface {
		ObserveVote(ctx context.Context, v Vote)
	}
	// An AcquiredObserver is told of locks that were acquired.
	AcquiredObserver interface {
		ObserveAcquired(ctx context.Context, a Acquired)
	}
	// A NotAcquiredObserver is told of calls that acquired nothing.
	NotAcquiredObserver interface {
		ObserveNotAcquired(ctx context.Context, n NotAcquired)
	}
	// An ExtendedObserver is told of every extension.
	ExtendedObserver interface {
		ObserveExtended(ctx context.Context, e Extended)
	}
	// A ReleasedObserver is told of every Unlock of a lock.
	ReleasedObserver interface {
		ObserveReleased(ctx context.Context, r Released)
	}
	// A DetachedObserver is told of every lock that is given away.
	DetachedObserver interface {
		ObserveDetached(ctx context.Context, d Detached)
	}
	// A LostObserver is told of every loss.
	LostObserver interface {
		ObserveLost(ctx context.Context, l Lost)
	}
	// A ReleaseUnconfirmedObserver is told of releases that must be sent again.
	ReleaseUnconfirmedObserver interface {
		ObserveReleaseUnconfirmed(ctx context.Context, r ReleaseUnconfirmed)
	}
	// A WakeUpDeniedObserver is told of nodes that do not wake waiters.
	WakeUpDeniedObserver interface {
		ObserveWakeUpDenied(ctx context.Context, w WakeUpDenied)
	}
	// A NodeDownObserver is told of nodes that begin to fail.
	NodeDownObserver interface {
		ObserveNodeDown(ctx context.Context, n NodeDown)
	}
	// A NodeUpObserver is told of nodes that work again.
	NodeUpObserver interface {
		ObserveNodeUp(ctx context.Context, n NodeUp)
	}
	// An EventsDroppedObserver is told how many events were dropped.
	EventsDroppedObserver interface {
		ObserveEventsDropped(ctx context.Context, d EventsDropped)
	}
)
