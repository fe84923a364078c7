// Package observe has the events of locks, and Hooks: the functions that are told of them.
//
// redsync.WithHooks sets Hooks:
//
//	rs = rs.With(redsync.WithHooks(&observe.Hooks{
//		Lost: func(_ context.Context, l observe.Lost) { lost.Add(1) },
//	}))
//
// # Context and time
//
// An event of a call (Lock, Extend, Valid, Unlock or Detach) comes with the context of that call. The context
// may be done by then. An Extended of the watchdog comes with the values of the context of the call that acquired
// the lock, but it is never done. All other events, such as those of a lost lock, of a node that is down or up
// again, and of a release that must be sent again, come with context.Background(). Votes come with it, too, on a
// round of the watchdog, and on a release that no Unlock waits for: after a failed attempt, after a lost lock, on
// Close, and when a lock had expired before Unlock. The events of Do are those of the Lock or Extend and of the
// Unlock that it makes.
//
// Start is when the operation began, and Took is how long it lasted. A tracer makes a span from these two,
// and finds the parent of the span in the context. The context is the caller's own. So the spans of attempts
// and votes are siblings of the span of their call, not its children. Took is measured by the clock on which
// more time has passed, monotonic or wall: it includes a suspension of the machine and a step forward of the
// wall clock. Only the Took of a Vote is measured by the monotonic clock alone.
//
// # Which goroutine
//
// Many goroutines of the library may call the functions at once. The functions should return soon.
//
//   - Vote runs on the goroutine that reads a node's replies. If there is no reply, it may run on
//     another goroutine of the library. It must not block, panic or call a Mutex.
//   - Attempt, Waiting, Acquired, NotAcquired, Released and Detached run on the goroutine of the call, before the
//     call returns, and delay it. So does Extended for a call of Extend. They may call a Mutex. If they call Close,
//     Close waits for the call that they delay, at most for the node deadline. A call for which Close has given up
//     waiting tells of its end after Close.
//     If one of these functions panics, that of other Hooks is called all the same.
//     Then the panic goes on in the caller. After that, Lock has acquired nothing, and an Extend that was to
//     adopt a lock has adopted nothing: a Lost follows an Acquired, and a NotAcquired follows a Waiting. A lock
//     that Detach was to give away is released unless its value was read.
//   - All other events come from one goroutine for each New or Open, in the order in which they happened.
//     They delay no lock. A hook that blocks there delays all events behind it. A panic there ends the
//     program. If 65,536 such events wait, further ones are dropped. EventsDropped tells how many. Close waits
//     until these events have been told, at most for the node deadline. Later ones are dropped.
//
// There is no order between goroutines: Lost or Released may be called before Acquired has returned for the same lock.
//
// # Counting
//
// An Acquired says that a Mutex has a lock from now on. Exactly one event says that it has ended: a Lost, a Detached, or
// a Released whose Ended is set. So the locks that are held are the Acquired events minus these. A Released without
// Ended is an Unlock that came too late: a Lost tells of that lock. Readers that share a lock have an Acquired and an
// end each.
//
// A Waiting says that a call waits. Exactly one event says that it does not wait any more: the Acquired or the
// NotAcquired that has the same Call.
//
// # Labels
//
// Mode, Op, Node, Watchdog and Late have few values, so they fit as labels of metrics. So does the error of package
// redsync that Err matches. Name and the text of Err do not fit: nothing bounds how many values they have.
//
// # Compatibility
//
// This package is experimental (docs/versions.md). A later version may add fields to Hooks and to the events: name the
// fields in a literal.
package observe

import (
	"context"
	"time"
)

// Hooks are functions that the library calls with the events. All may be nil: a nil function costs nothing. The package
// comment says with which context each function is called, and on which goroutine.
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

// A Mode is what kind of lock a Mutex is. It is that of the lock as it was acquired: Downgrade does not change it.
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
// The counts leave out a node that had not answered when the others decided, or when the context ended. If the attempt
// ended undecided at the node deadline, such a node counts as Failed.
type Attempt struct {
	Name    string
	Mode    Mode
	Start   time.Time
	Took    time.Duration
	Try     int // 1 plus the retry delays that have elapsed; several attempts may have the same Try
	Granted int // nodes that granted the lock
	Refused int // nodes that hold another value
	Failed  int // nodes with an error, or without an answer

	// Err is nil if a quorum granted in time. It matches redsync.ErrFailed and *redsync.ErrTaken if the lock is taken,
	// and redsync.ErrNoQuorum if too few nodes answered in time. If the call's context has cut the attempt, which then
	// proves nothing, Err is the error of that context and its cause.
	Err error
}

// A Vote is one node's first answer in one round of requests, or its failure to answer. Hooks are also
// told of votes that come after the decision, because these show a slow node. If a node does not answer, its
// vote comes when the connection is given up, up to some seconds later. If the connection breaks during an
// Unlock, the vote comes with the answer to the repetition, at the latest when the keys have run out.
type Vote struct {
	Name  string
	Mode  Mode
	Start time.Time     // when the requests were sent
	Took  time.Duration // until the answer came
	Node  int           // index into the pools of New or the addresses of Open, from 0
	Op    string        // "lock", "extend", "valid" or "unlock"; "unlock" also where a failed attempt is released
	Late  bool          // it came too late to count
	Err   error         // nil if the node agreed; else *redsync.ErrNodeTaken, *redsync.RedisError, or "no such key"
}

// Waiting is a call of Lock that begins to wait: its first attempt has failed, or other callers of its process are ahead,
// or its Mutex has the lock. Each call has at most one. TryLock does not wait, and has none, although it may repeat its
// attempt. The Acquired or NotAcquired at the end of the wait has the same Call.
type Waiting struct {
	Name  string
	Mode  Mode
	Start time.Time // of the call
	Call  uint64    // a number that no other call of this process has
}

// Acquired is a lock that Lock or TryLock has acquired, or Extend has adopted (see redsync.WithSequencer). A
// reader that shares the hold of another reader of its process has acquired it without an attempt (see
// redsync.WithShared).
type Acquired struct {
	Name   string
	Mode   Mode
	Start  time.Time     // of the call
	Took   time.Duration // by the call
	Waited time.Duration // until the attempt that won began, or until the lock was handed over or shared
	Tries  int           // 1 plus the retry delays that have elapsed; 0 if adopted, handed over or shared
	Left   time.Duration // validity that is left
	Call   uint64        // that of its Waiting; 0 if the call did not wait
}

// NotAcquired is a call of Lock or TryLock that has acquired nothing. No event tells of a call that cannot
// begin: after Close, or if the name, the pools or an option cannot be used.
type NotAcquired struct {
	Name  string
	Mode  Mode
	Start time.Time     // of the call
	Took  time.Duration // by the call
	Call  uint64        // that of its Waiting; 0 if the call did not wait
	Err   error         // what the call returns
}

// Extended is an extension by Extend, Downgrade or the watchdog, whether or not it was confirmed. While too
// few nodes answer, the watchdog sends its extension again and again. Each sending has an event and a Start
// of its own. An Extend that adopts a lock has the event Acquired instead, unless it fails.
type Extended struct {
	Name     string
	Mode     Mode
	Start    time.Time
	Took     time.Duration
	Watchdog bool
	Left     time.Duration // what was left of the old validity at the end; near 0, the extension was almost too late
	Err      error         // nil if it was confirmed; else it matches redsync.ErrExtendFailed, or what ended the hold
}

// Released is an Unlock of a lock, whether or not it succeeded. An Unlock that hands the lock over to a waiter
// counts as a success. An Unlock of a Mutex that is not held has no event.
//
// If a lock has run out and its Unlock comes after that, there is a Lost and a Released without Ended. If the Unlock
// itself finds that the nodes have the lock no more, there is a Released alone, with Ended and an Err. Both errors
// match redsync.ErrLockAlreadyExpired.
type Released struct {
	Name  string
	Mode  Mode
	Start time.Time     // of the call
	Took  time.Duration // by the call
	Held  time.Duration // from the acquisition to Unlock, even if the lock was over before; 0 if adopted and never extended
	Left  time.Duration // validity that was left when Unlock was called; 0 if adopted and never extended
	Ended bool          // this Unlock has ended a lock that an Acquired has told of; see Counting
	Err   error         // what Unlock returns; it matches redsync.ErrLockAlreadyExpired if the lock was over before
}

// Detached is a lock that Detach has given away. A Detach that fails has no event.
type Detached struct {
	Name  string
	Mode  Mode
	Start time.Time     // of the call
	Took  time.Duration // by the call
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

// ReleaseUnconfirmed is a release that a node has not confirmed. It is sent again until the node confirms it
// or the keys have run out, unless GivenUp. At the end of Close there is one event, without a Name, for each node that
// has not confirmed some releases.
type ReleaseUnconfirmed struct {
	Name    string
	Mode    Mode
	Node    int           // index into the pools of New or the addresses of Open, from 0
	Address string        // of the node, as its Pool's String has it
	Pending int           // unconfirmed releases: of all locks of this New or Open; without a Name, those on that Node
	GivenUp bool          // it is not sent again: Close has ended, or 65,536 releases wait to be sent again
	Within  time.Duration // without a Name: the keys on that node have run out by then; else 0
	Err     error         // why; nil if the node's answer proved nothing
}

// WakeUpDenied says that a node does not wake the waiters of this process when a lock is released, because it
// refuses SUBSCRIBE or the key {name}:queue. In most cases its ACL denies them. Waiters then try again every half
// second and after their retry delays. There is no event for a process whose releases wake nobody because its ACL
// denies PUBLISH. If a node refuses the key, the event comes once for each node. If it refuses SUBSCRIBE, the
// event comes with each subscription.
type WakeUpDenied struct {
	Name    string // of the lock whose key the node refuses; "" if it refuses SUBSCRIBE
	Node    int    // index into the pools of New or the addresses of Open, from 0
	Address string // of the node, as its Pool's String has it
	Err     error  // the node's answer
}

// NodeDown says that a node has begun to fail, for one of these reasons: its connection failed or could not
// be opened, it refused (LOADING, NOAUTH, READONLY, ...), it has left too many requests unanswered, it has
// restarted under pool.WithRestartGuard, or its address leads to another server now. Locks keep working while
// a quorum of nodes is up. The library sends nothing to find out. So a frozen node is reported only when
// its connection is given up, some seconds later.
//
// Only the hooks of the lock whose request failed are told. They are told once until the node is up
// again, and at most once per second for each node. If so many nodes deny the keys of a lock (ACL) that it cannot be had,
// none is down. If fewer do, these are, but at most once in an hour after they have granted another lock, unless they
// grant none for a second.
type NodeDown struct {
	Node    int    // index into the pools of New or the addresses of Open, from 0
	Address string // of the node, as its Pool's String has it
	Omitted int    // how often the node has gone down and come up without an event since the last NodeDown
	Err     error  // the first cause; if another one follows before the NodeUp, only the log says so
}

// NodeUp says that a node works again: a request of some lock has shown that. Under pool.WithRestartGuard a node
// that answers is up only when its guard has ended. The hooks that were told of the NodeDown are told of the
// NodeUp. If their Redsync was closed in between, those of the lock are told whose request has shown it.
type NodeUp struct {
	Node    int           // index into the pools of New or the addresses of Open, from 0
	Address string        // of the node, as its Pool's String has it
	Down    time.Duration // since a request first showed that it was down
}

// OneServer says that the addresses of two nodes lead to one server. Its votes count once. Locks go on while the
// distinct servers are a quorum of all nodes; with fewer, Lock fails with redsync.ErrDuplicateNode. Of two addresses
// in different sets of redsync.NewJoint neither counts. The hooks of the lock whose request showed it are told,
// once until TwoServers. A Redsync with the same clients tells nobody again.
type OneServer struct {
	Nodes     [2]int    // indices into the pools of New or the addresses of Open, from 0
	Addresses [2]string // of the nodes, as the String of each Pool has it
	RunID     string    // of the server
}

// TwoServers says that the addresses of a OneServer lead to different servers again.
type TwoServers struct {
	Nodes     [2]int    // indices into the pools of New or the addresses of Open, from 0
	Addresses [2]string // of the nodes, as the String of each Pool has it
}

// RegisterIgnored says that the fencing register of a lock has a value on a node that no client can have written, so
// that the node's votes for that lock do not count. The event comes once for each lock and node in a process.
type RegisterIgnored struct {
	Name    string // of the lock
	Node    int    // index into the pools of New or the addresses of Open, from 0
	Address string // of the node, as its Pool's String has it
	Err     error  // it names the key and the value
}

// EventsDropped says that events were dropped, because a hook was too slow.
type EventsDropped struct {
	Events int // dropped since the last EventsDropped
}
