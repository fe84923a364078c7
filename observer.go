package redsync

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// This file is what can be seen of locks from outside: events for observers, and
// the observer that writes a log.

// An Attempt is one attempt of Lock or TryLock.
type Attempt struct {
	Name                     string
	Try                      int           // from 1
	Took                     time.Duration // until it was decided
	Granted, Refused, Failed int           // nodes; the others had not answered yet
	Err                      error         // nil if the lock was acquired
}

// A Vote is one node's answer to one request for a lock. Votes that come after the
// others have decided are told as well: a node that is slow shows here.
type Vote struct {
	Name    string
	Node    int           // index into the pools of New
	Op      string        // "lock", "extend", "valid" or "unlock"
	Latency time.Duration // since the requests were sent
	Late    bool          // it does not count any more
	Err     error         // nil if the node granted
}

// Acquired is a lock that Lock or TryLock has acquired, or Extend has adopted.
type Acquired struct {
	Name   string
	Waited time.Duration // since the call
	Tries  int           // attempts made, 0 if adopted
	Left   time.Duration // of the validity
}

// Extended is an extension that has ended, of Extend or of the watchdog.
type Extended struct {
	Name     string
	Watchdog bool
	Took     time.Duration
	Left     time.Duration // of the old validity when this one was decided: how close it came
	Err      error         // nil if it was confirmed
}

// Released is a lock that Unlock has released, or found to be over.
type Released struct {
	Name string
	Held time.Duration // since the start of the attempt that acquired it; 0 if adopted
	Left time.Duration // of the validity
	Took time.Duration
	Err  error // Unlock's
}

// Lost is a hold that has ended, and not by Unlock.
type Lost struct {
	Name string
	Held time.Duration
	Err  error // that of Mutex.Err
}

// Unsettled is a release that a node has not settled and that will be sent to it
// again.
type Unsettled struct {
	Name    string
	Node    int
	Pending int   // releases of all locks that nodes have not settled
	Dropped bool  // too many wait: the key is left to its expiry
	Err     error // the node's answer, nil if there was none or it proved nothing
}

// Missed says that events were dropped, because observers were too slow.
type Missed struct {
	Events int
}

// What an observer may implement.
type (
	AttemptObserver   interface{ ObserveAttempt(Attempt) }
	VoteObserver      interface{ ObserveVote(Vote) }
	AcquiredObserver  interface{ ObserveAcquired(Acquired) }
	ExtendedObserver  interface{ ObserveExtended(Extended) }
	ReleasedObserver  interface{ ObserveReleased(Released) }
	LostObserver      interface{ ObserveLost(Lost) }
	UnsettledObserver interface{ ObserveUnsettled(Unsettled) }
	MissedObserver    interface{ ObserveMissed(Missed) }
)

// WithObserver adds an observer, which has one or more of the methods of
// AttemptObserver, VoteObserver, AcquiredObserver, ExtendedObserver,
// ReleasedObserver, LostObserver, UnsettledObserver and MissedObserver. The default
// is none. Structs of events may get further fields.
//
// The methods may be called by many goroutines at once, and should return soon.
// ObserveVote is called where a node's replies are read: it must not block, and not
// call a Mutex. ObserveAttempt, ObserveAcquired, ObserveReleased and ObserveExtended
// delay the call they tell of. What happens in the background is told by a
// goroutine of its own, in order, and delays nothing; if more than 65,536 such
// events wait, further ones are dropped and counted by ObserveMissed.
func WithObserver(observer any) Option {
	return OptionFunc(func(m *Mutex) {
		switch observer.(type) {
		case AttemptObserver, VoteObserver, AcquiredObserver, ExtendedObserver,
			ReleasedObserver, LostObserver, UnsettledObserver, MissedObserver:
			set := m.change()
			set.observers = set.observers.with(observer)
		default:
			m.change().fail(fmt.Errorf("redsync: WithObserver(%T): it has none of the methods of an observer", observer))
		}
	})
}

// WithLogger writes a log: losses as errors; extensions that failed, attempts that
// too few nodes answered, releases that were given up and events that were dropped
// as warnings; all else for debugging. While all is well there is nothing above
// debug. The default is no log.
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

// maxNotices bounds the events that wait to be told.
const maxNotices = 1 << 16

// notices are events of goroutines that must not wait for an observer. They are
// told by a goroutine that runs while there are any.
type notices struct {
	mu      sync.Mutex
	waiting []func()
	running bool
	missed  map[*observers]int // events dropped since the last that were told
}

func (n *notices) add(to *observers, notice func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.waiting) >= maxNotices {
		n.miss(to)
		return
	}
	n.waiting = append(n.waiting, notice)
	if !n.running {
		n.running = true
		go n.run()
	}
}

// miss counts an event that is dropped; n.mu is held. Where every lock has
// observers of its own those of some may not hear of it.
func (n *notices) miss(to *observers) {
	if n.missed == nil {
		n.missed = make(map[*observers]int)
	}
	if _, known := n.missed[to]; known || len(n.missed) < maxNotices {
		n.missed[to]++
	}
}

func (n *notices) run() {
	for {
		n.mu.Lock()
		now, missed := n.waiting, n.missed
		n.waiting, n.missed = nil, nil
		n.running = len(now) > 0
		n.mu.Unlock()
		if len(now) == 0 {
			return
		}
		for _, notice := range now {
			notice()
		}
		for to, events := range missed {
			tell(to, MissedObserver.ObserveMissed, Missed{events})
		}
	}
}

// later tells an event by a goroutine of its own.
func later[O, E any](c *core, to *observers, method func(O, E), event E) {
	if to != nil {
		c.notices.add(to, func() { tell(to, method, event) })
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
	return &witness{to, h.lock.Name(), op, time.Now()}
}

func (w *witness) saw(i int, late bool, err error) {
	tell(w.to, VoteObserver.ObserveVote,
		Vote{Name: w.name, Node: i, Op: w.op, Latency: time.Since(w.start), Late: late, Err: err})
}

// extendedEvent tells of an extension that began at start, with so much left, and
// has just ended.
func (h *hold) extendedEvent(start instant, left time.Duration, err error) Extended {
	took := now().since(start)
	return Extended{Name: h.lock.Name(), Took: took, Left: max(left-took, 0), Err: err}
}

// logObserver is the observer of WithLogger.
type logObserver struct{ log *slog.Logger }

func (l *logObserver) ObserveAttempt(a Attempt) {
	level := slog.LevelDebug
	if a.Err != nil && a.Failed > a.Granted+a.Refused {
		level = slog.LevelWarn
	}
	l.write(level, "redsync: attempt", a.Name, a.Err, "try", a.Try, "took", a.Took,
		"granted", a.Granted, "refused", a.Refused, "failed", a.Failed)
}

func (l *logObserver) ObserveAcquired(a Acquired) {
	l.write(slog.LevelDebug, "redsync: acquired", a.Name, nil, "waited", a.Waited, "tries", a.Tries, "left", a.Left)
}

func (l *logObserver) ObserveExtended(e Extended) {
	level := slog.LevelDebug
	if e.Err != nil {
		level = slog.LevelWarn
	}
	l.write(level, "redsync: extended", e.Name, e.Err, "watchdog", e.Watchdog, "took", e.Took, "left", e.Left)
}

func (l *logObserver) ObserveReleased(r Released) {
	l.write(slog.LevelDebug, "redsync: released", r.Name, r.Err, "held", r.Held, "left", r.Left, "took", r.Took)
}

func (l *logObserver) ObserveLost(lost Lost) {
	l.write(slog.LevelError, "redsync: lost", lost.Name, lost.Err, "held", lost.Held)
}

func (l *logObserver) ObserveUnsettled(u Unsettled) {
	level, message := slog.LevelDebug, "redsync: release will be repeated"
	if u.Dropped {
		level, message = slog.LevelWarn, "redsync: release given up"
	}
	l.write(level, message, u.Name, u.Err, "node", u.Node, "pending", u.Pending)
}

func (l *logObserver) ObserveMissed(m Missed) {
	l.log.Warn("redsync: events were dropped", "events", m.Events)
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
