package redsync

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/clock"
)

// This file is what can be seen of locks from outside: events for observers, and
// the observer that writes a log.

// An Attempt is one attempt of Lock or TryLock. Err matches *ErrTaken if others
// were first; any other error is about nodes, or about the caller's context.
//
// Nodes that are in none of the counts had not answered when the others decided.
// Where nothing was decided (the node deadline, the context) they count as Failed.
type Attempt struct {
	Name    string
	Try     int           // retry delays that have elapsed, and 1: attempts for another reason have that of the one before
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

// WithObserver adds an observer, which has one or more of the methods of
// AttemptObserver, VoteObserver, AcquiredObserver, ExtendedObserver, ReleasedObserver,
// DetachedObserver, LostObserver, UnsettledObserver, UnwokenObserver, NodeDownObserver,
// NodeUpObserver and MissedObserver. The default is none; each WithObserver adds one to
// those of the Redsync. A method with another signature is not found; the declaration
// var _ redsync.LostObserver = (*metrics)(nil) makes the compiler check it.
// Structs of events may get further fields.
//
// For metrics: Op, Node, Watchdog, Late and which error of this package Err matches
// are few, and fit as labels. Name and the text of Err may be any number.
//
// The methods may be called by many goroutines at once, and should return soon.
// ObserveVote is called where a node's replies are read: it must not block, not panic, and
// not call a Mutex. ObserveAttempt, ObserveAcquired, ObserveReleased, ObserveDetached and
// the ObserveExtended of Extend are called before the call they tell of returns, and
// delay it; a panic in one of them goes on in the caller. If an observer panics, Lock has
// acquired nothing, and an Extend that was to adopt a value has adopted nothing.
//
// Losses, extensions of the watchdog, Unsettled, NodeDown and NodeUp are told in order by
// one goroutine per New or Open, and delay no lock; Close does not wait for it. An observer
// that blocks there delays the others. If more than 65,536 such events wait, further ones
// are dropped and counted by ObserveMissed.
func WithObserver(observer any) Option {
	return OptionFunc(func(m *Mutex) {
		switch observer.(type) {
		case AttemptObserver, VoteObserver, AcquiredObserver, ExtendedObserver,
			ReleasedObserver, DetachedObserver, LostObserver, UnsettledObserver, UnwokenObserver,
			NodeDownObserver, NodeUpObserver, MissedObserver:
			set := m.change()
			set.observers = set.observers.with(observer)
		default:
			m.change().fail(fmt.Errorf("redsync: WithObserver(%T): it has no method of an observer (see AttemptObserver and so on)", observer))
		}
	})
}

// WithLogger writes a log. The default is none. Its levels:
//
//   - Error: losses, except by Close.
//   - Warn: attempts, extensions and Unlocks that failed; releases given up; nodes
//     that are down, each once; nodes that do not wake who waits; events that were dropped.
//   - Info: nodes that are up again.
//   - Debug: everything else, also an attempt that failed because the lock is taken
//     or the context was canceled. While all is well there is nothing above Debug.
//
// The messages begin with "redsync: ". The attributes are "lock", "error" and those
// named like the fields of the events. A lock's value is not among them.
func WithLogger(logger *slog.Logger) Option {
	if logger == nil {
		return OptionFunc(func(m *Mutex) { m.change().fail(errors.New("redsync: WithLogger(nil)")) })
	}
	return WithObserver(&logObserver{logger})
}

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

// tellLater queues an event for the goroutine of c's notices.
func tellLater[O, E any](c *core, to *observers, method func(O, E), event E) {
	if to != nil {
		c.notices.Add(to, func() { tell(to, method, event) })
	}
}

// A witness tells observers of the votes of one round.
type witness struct {
	to       *observers
	name, op string
	start    time.Time
}

// witness returns nil where nobody listens.
func (h *hold) witness(op string) *witness {
	to := h.set.observers
	if to == nil || !to.votes {
		return nil
	}
	return &witness{to, h.claim.Name(), op, time.Now()}
}

func (w *witness) saw(i int, late bool, err error) {
	tell(w.to, VoteObserver.ObserveVote,
		Vote{Name: w.name, Node: i, Op: w.op, Latency: time.Since(w.start), Late: late, Err: err})
}

// extendedEvent tells of an extension that began at start, with so much left, and
// has just ended.
func (h *hold) extendedEvent(start clock.Instant, left time.Duration, err error) Extended {
	took := clock.Now().Since(start)
	return Extended{Name: h.claim.Name(), Took: took, Left: max(left-took, 0), Err: err}
}

// logObserver is the observer of WithLogger.
type logObserver struct{ log *slog.Logger }

func (l *logObserver) ObserveAttempt(a Attempt) {
	level, message := outcome(a.Err, "redsync: attempt won", "redsync: attempt failed")
	var taken *ErrTaken
	if errors.As(a.Err, &taken) || errors.Is(a.Err, context.Canceled) {
		level = slog.LevelDebug
	}
	l.write(level, message, a.Name, a.Err, "try", a.Try, "took", a.Took,
		"granted", a.Granted, "refused", a.Refused, "failed", a.Failed)
}

func (l *logObserver) ObserveAcquired(a Acquired) {
	l.write(slog.LevelDebug, "redsync: acquired", a.Name, nil, "waited", a.Waited, "tries", a.Tries, "left", a.Left)
}

func (l *logObserver) ObserveExtended(e Extended) {
	level, message := outcome(e.Err, "redsync: extended", "redsync: extend failed")
	l.write(level, message, e.Name, e.Err, "watchdog", e.Watchdog, "took", e.Took, "left", e.Left)
}

func (l *logObserver) ObserveReleased(r Released) {
	level, message := outcome(r.Err, "redsync: unlocked", "redsync: unlock failed")
	l.write(level, message, r.Name, r.Err, "held", r.Held, "left", r.Left, "took", r.Took)
}

func (l *logObserver) ObserveDetached(d Detached) {
	l.write(slog.LevelDebug, "redsync: detached", d.Name, nil, "held", d.Held, "left", d.Left)
}

func (l *logObserver) ObserveLost(lost Lost) {
	level := slog.LevelError
	if errors.Is(lost.Err, ErrClosed) { // as was asked for
		level = slog.LevelDebug
	}
	l.write(level, "redsync: lost", lost.Name, lost.Err, "held", lost.Held)
}

func (l *logObserver) ObserveUnsettled(u Unsettled) {
	level, message := slog.LevelDebug, "redsync: release will be repeated"
	if u.Dropped {
		level, message = slog.LevelWarn, "redsync: release given up"
	}
	l.write(level, message, u.Name, u.Err, "node", u.Node, "pending", u.Pending)
}

func (l *logObserver) ObserveUnwoken(u Unwoken) {
	l.write(slog.LevelWarn, "redsync: nobody is woken by the node", u.Name, u.Err, "node", u.Node)
}

func (l *logObserver) ObserveNodeDown(d NodeDown) {
	args := []any{"node", d.Node, "address", d.Address, "error", d.Err}
	if d.Omitted > 0 {
		args = append(args, "omitted", d.Omitted)
	}
	l.log.Warn("redsync: node is down", args...)
}

func (l *logObserver) ObserveNodeUp(u NodeUp) {
	l.log.Info("redsync: node is up again", "node", u.Node, "address", u.Address, "down", u.Down)
}

func (l *logObserver) ObserveMissed(m Missed) {
	l.log.Warn("redsync: events were dropped", "events", m.Events)
}

// outcome returns what to write of something that succeeded or failed.
func outcome(err error, success, failure string) (slog.Level, string) {
	if err != nil {
		return slog.LevelWarn, failure
	}
	return slog.LevelDebug, success
}

func (l *logObserver) write(level slog.Level, message, name string, err error, args ...any) {
	if !l.log.Enabled(context.Background(), level) {
		return
	}
	if err != nil {
		args = append(args, "error", err)
	}
	l.log.Log(context.Background(), level, message, append([]any{"lock", name}, args...)...)
}
