// Package observe has the events of locks, and [Hooks], the functions that are told of them:
//
//	rs = rs.With(redsync.WithHooks(&observe.Hooks{
//		Lost: func(_ context.Context, l observe.Lost) { lost.Add(1) },
//	}))
//
// # Fields
//
// Node is the index into the pools of New or the addresses of Open, from 0, and Address what the String of that Pool
// says. Start is when the call or the operation began, and Took is how long it lasted.
//
// # Context and time
//
// An event of a call (Lock, Extend, Valid, Unlock or Detach) comes with the context of that call, which may be done. An
// Extended of the watchdog has the values of the context that acquired the lock, and is never done. All other events
// come with context.Background(), and so do Votes on a round of the watchdog or on a release that no Unlock waits for.
// The events of Do are those of its Lock or Extend and its Unlock.
//
// A tracer makes a span from Start and Took, and finds its parent in the context, which is the caller's own. So the
// spans of attempts and votes are siblings of the span of their call. Took is the longer of monotonic and wall time: it
// includes a suspension of the machine and a step forward of the wall clock. That of a Vote is by the monotonic clock.
//
// # Which goroutine
//
// Many goroutines may call the functions at once. These should return soon.
//
//   - Vote runs on the goroutine that reads a node's replies, or on another one of the library. It must not block,
//     panic or call a Mutex.
//   - Attempt, Waiting, Acquired, NotAcquired, Released and Detached run on the goroutine of the call, before it
//     returns, and delay it. So does Extended for a call of Extend. They may call a Mutex. If they call Close, Close
//     waits for the call that they delay, at most for the node deadline. A call for which Close has given up waiting
//     tells of its end after Close. If one of these functions panics, that of other Hooks is called all the same. Then
//     the panic goes on in the caller. Lock, or an Extend that adopts, has then acquired nothing: a Lost follows an
//     Acquired, and a NotAcquired a Waiting. A lock that Detach was to give away is released unless its value was read.
//   - All other events come from one goroutine for each New or Open, in the order in which they happened. They delay no
//     lock, only the events behind them. A panic ends the program. If 65,536 events wait, further ones are dropped, and
//     EventsDropped tells how many. Close waits for these events, at most for the node deadline, and drops later ones.
//
// There is no order between goroutines: Lost or Released may come before Acquired of the same lock has returned.
//
// # Counting
//
// An Acquired says that a Mutex has a lock. Exactly one event says that it has ended: a Lost, a Detached, or a Released
// whose Ended is set. A Released without Ended is an Unlock that came too late: a Lost tells of that lock. Readers that
// share a lock have an Acquired and an end each.
//
// A Waiting says that a call waits. Exactly one event ends that: the Acquired or NotAcquired with the same Call.
//
// # Labels
//
// Mode, Op, Node, Watchdog and Late have few values, so they fit as labels of metrics. So does the error of package
// redsync that Err matches. Name and the text of Err do not: nothing bounds their number.
//
// # Compatibility
//
// This package is experimental (docs/versions.md). A later version may add fields: name the fields in a literal.
package observe

import (
	"context"
	"time"
)

// Hooks are functions that the library calls with events. A nil function costs nothing.
type Hooks struct {
	Attempt            func(ctx context.Context, a Attempt)            // each attempt of Lock and TryLock
	Vote               func(ctx context.Context, v Vote)               // each node's answers
	Waiting            func(ctx context.Context, w Waiting)            // a call begins to wait
	Acquired           func(ctx context.Context, a Acquired)           // a lock was acquired
	NotAcquired        func(ctx context.Context, n NotAcquired)        // a call has acquired nothing
	Extended           func(ctx context.Context, e Extended)           // each extension
	Released           func(ctx context.Context, r Released)           // each Unlock of a lock
	Detached           func(ctx context.Context, d Detached)           // a lock was given away
	Lost               func(ctx context.Context, l Lost)               // a lock was lost
	ReleaseUnconfirmed func(ctx context.Context, r ReleaseUnconfirmed) // a release must be sent again, or was given up
	WakeUpDenied       func(ctx context.Context, w WakeUpDenied)       // a node does not wake waiters
	NodeDown           func(ctx context.Context, n NodeDown)           // a node begins to fail
	NodeUp             func(ctx context.Context, n NodeUp)             // a node works again
	OneServer          func(ctx context.Context, o OneServer)          // two addresses lead to one server
	TwoServers         func(ctx context.Context, t TwoServers)         // they lead to different servers again
	RegisterIgnored    func(ctx context.Context, r RegisterIgnored)    // a fencing register has an impossible value
	EventsDropped      func(ctx context.Context, d EventsDropped)      // events were dropped
}

// A Mode is what kind of lock a Mutex has acquired. Downgrade does not change it.
type Mode string

// The modes of locks.
const (
	Plain   Mode = "plain"   // one name, one holder
	Names   Mode = "names"   // several names: redsync.NewMultiMutex
	Shared  Mode = "shared"  // a reader: redsync.WithShared
	Permits Mode = "permits" // one of n holders: redsync.WithPermits
)

// An Attempt is one attempt of Lock or TryLock.
//
// The counts leave out a node that had not answered when the others decided, or the context ended. After an undecided
// end at the node deadline, such a node counts as Failed.
type Attempt struct {
	Name    string
	Mode    Mode
	Start   time.Time
	Took    time.Duration
	Try     int // 1 plus the retry delays that have elapsed; several attempts may have the same one
	Granted int // nodes that granted the lock
	Refused int // nodes that hold another value
	Failed  int // nodes with an error, or without an answer

	// Err is nil if a quorum granted in time. It matches redsync.ErrFailed and *redsync.ErrTaken if the lock is taken, and
	// redsync.ErrNoQuorum if too few nodes answered in time. If the call's context has cut the attempt, Err is the error
	// of that context and its cause.
	Err error
}

// A Vote is one node's first answer in one round of requests, or its failure to answer. Hooks are told even after the
// decision, because that shows a slow node. If a node does not answer, its vote comes when the connection is given up,
// some seconds later. If it breaks during an Unlock, it comes with the answer to the repetition, at the latest when the
// keys have run out.
type Vote struct {
	Name  string
	Mode  Mode
	Start time.Time     // when the requests were sent
	Took  time.Duration // until the answer came
	Node  int
	Op    string // "lock", "extend", "valid" or "unlock", which also undoes a failed attempt or renews a place in a queue
	Late  bool   // it came too late to count
	Err   error  // nil if the node agreed; else *redsync.ErrNodeTaken, *redsync.RedisError, or "no such key"
}

// Waiting is a call of Lock that begins to wait: its first attempt has failed, other callers of its process are ahead,
// or its Mutex has the lock. Each call has at most one, a TryLock none.
type Waiting struct {
	Name  string
	Mode  Mode
	Start time.Time
	Call  uint64 // a number that no other call of this process has
}

// Acquired is a lock that Lock or TryLock has acquired, or Extend has adopted (see redsync.WithSequencer). A reader may
// share the hold of another of its process, without an attempt (see redsync.WithShared).
type Acquired struct {
	Name   string
	Mode   Mode
	Start  time.Time
	Took   time.Duration
	Waited time.Duration // until the attempt that won began, or until the lock was handed over or shared
	Tries  int           // 1 plus the retry delays that have elapsed; 0 if adopted, handed over or shared
	Left   time.Duration // validity that is left
	Call   uint64        // that of its Waiting; 0 if the call did not wait
}

// NotAcquired is a call of Lock or TryLock that has acquired nothing. A call that cannot begin has no event: after
// Close, or if the name, the pools or an option cannot be used.
type NotAcquired struct {
	Name  string
	Mode  Mode
	Start time.Time
	Took  time.Duration
	Call  uint64 // that of its Waiting; 0 if the call did not wait
	Err   error  // what the call returns
}

// Extended is an extension by Extend, Downgrade or the watchdog, confirmed or not. While too few nodes answer, the
// watchdog repeats it: each sending has its own event. An Extend that adopts a lock has an Acquired instead, unless it
// fails.
type Extended struct {
	Name     string
	Mode     Mode
	Start    time.Time
	Took     time.Duration
	Watchdog bool
	Left     time.Duration // of the old validity, at the end; near 0 it was almost too late
	Err      error         // nil if it was confirmed; else it matches redsync.ErrExtendFailed, or what ended the hold
}

// Released is an Unlock of a lock, successful or not. Handing the lock over to a waiter is a success. An Unlock of a
// Mutex that is not held has no event.
//
// If a lock runs out before its Unlock, there is a Lost and a Released without Ended. If the Unlock itself finds that
// the nodes have the lock no more, there is a Released alone, with Ended and an Err. Both errors match
// redsync.ErrLockAlreadyExpired.
type Released struct {
	Name  string
	Mode  Mode
	Start time.Time
	Took  time.Duration
	Held  time.Duration // from acquisition to Unlock, even if the lock was over before; 0 if adopted and never extended
	Left  time.Duration // of the validity, when Unlock was called; 0 as Held
	Ended bool          // this Unlock has ended the lock of an Acquired; see Counting
	Err   error         // what Unlock returns
}

// Detached is a lock that Detach has given away. A Detach that fails has no event.
type Detached struct {
	Name  string
	Mode  Mode
	Start time.Time
	Took  time.Duration
	Held  time.Duration // from the acquisition to Detach
	Left  time.Duration // validity that is left
}

// Lost is a lock that has ended, but not by Unlock or Detach. Each such lock has one event.
type Lost struct {
	Name string
	Mode Mode
	Held time.Duration // since the start of the attempt that acquired it, or since it was handed over
	Err  error         // what Mutex.Err returns: it matches redsync.ErrLockLost and the cause
}

// ReleaseUnconfirmed is a release that a node has not confirmed. It is sent again until it is confirmed or the keys
// have run out, unless GivenUp. At the end of Close there is one event, without a Name, for each node with unconfirmed
// releases.
type ReleaseUnconfirmed struct {
	Name    string
	Mode    Mode
	Node    int
	Address string
	Pending int           // unconfirmed releases of this New or Open; without a Name, those on that Node
	GivenUp bool          // it is not sent again: Close has ended, or 65,536 releases wait to be sent again
	Within  time.Duration // without a Name: the keys on that node have run out by then; else 0
	Err     error         // why; nil if the node's answer proved nothing
}

// WakeUpDenied says that a node does not wake the waiters of this process when a lock is released: it refuses
// SUBSCRIBE, with an event for each subscription, or the key {name}:queue, with one event for each node. Mostly its ACL
// denies them. Waiters then try again every half second and after their retry delays. A denied PUBLISH has no event.
type WakeUpDenied struct {
	Name    string // of the lock whose key the node refuses; "" if it refuses SUBSCRIBE
	Node    int
	Address string
	Err     error // the node's answer
}

// NodeDown says that a node has begun to fail: its connection failed or could not be opened, it refused (LOADING,
// NOAUTH, READONLY, ...), it left too many requests unanswered, it has restarted under pool.WithRestartGuard, or its
// address leads to another server. Locks keep working while a quorum is up. The library sends nothing to find out, so a
// frozen node is reported only when its connection is given up, some seconds later.
//
// Only the hooks of the lock whose request failed are told, once until the node is up again, and at most once per
// second for each node. Nodes that deny the keys of a lock (ACL) are down unless they leave no quorum. One that grants
// other locks is down so at most once in an hour, unless it grants none for a second.
type NodeDown struct {
	Node    int
	Address string
	Omitted int   // how often the node has gone down and come up since the last NodeDown, without an event
	Err     error // the first cause; if another one follows before the NodeUp, only the log says so
}

// NodeUp says that a node works again, as a request of some lock has shown. Under pool.WithRestartGuard its guard must
// have ended, too. The hooks that were told of the NodeDown are told, or, if their Redsync is closed, those of the lock
// whose request has shown it.
type NodeUp struct {
	Node    int
	Address string
	Down    time.Duration // since a request first showed that it was down
}

// OneServer says that the addresses of two nodes lead to one server. Its votes count once. Locks go on while the
// distinct servers are a quorum of all nodes; with fewer, Lock fails with redsync.ErrDuplicateNode. Of two addresses in
// different sets of redsync.NewJoint neither counts. The hooks of the lock whose request showed it are told, once until
// TwoServers. A Redsync with the same clients tells nobody again.
type OneServer struct {
	Nodes     [2]int
	Addresses [2]string
	RunID     string // of the server
}

// TwoServers says that the addresses of a OneServer lead to different servers again.
type TwoServers struct {
	Nodes     [2]int
	Addresses [2]string
}

// RegisterIgnored says that a node's fencing register of a lock has a value that no client can have written, so its
// votes for the lock do not count. It comes once for each lock and node in a process.
type RegisterIgnored struct {
	Name    string // of the lock
	Node    int
	Address string
	Err     error // it names the key and the value
}

// EventsDropped says that events were dropped because a hook was too slow.
type EventsDropped struct {
	Events int // dropped since the last EventsDropped
}
