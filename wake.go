package redsync

import (
	"sync"
	"time"
	"weak"

	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/pool"
)

// This file is how a process hears that a lock is free: on a channel of its own, by
// one subscription on each node, however many locks it waits for.

const (
	// idleEar is how long the subscriptions outlast the last one who waits.
	idleEar = 30 * time.Second

	// maxDeaf is how long the first in line waits to be able to hear, before it tries
	// all the same, at most: its ticket is shown again in time.
	maxDeaf = aliveFor / 2
)

// An ear listens while somebody waits, on behalf of all cores of a group. A node that
// cannot be heard may have told something meanwhile: when it can be heard again, the first
// in each line tries again.
type ear struct {
	group *group

	mu      sync.Mutex
	session *session // nil while nobody listens
	idle    *time.Timer
}

// A session is the subscriptions from when somebody begins to wait until nobody does.
//
// It is ready once a quorum of nodes can be heard, or has failed to let us listen: from
// then on a release reaches who waits. The others are given wakeGrace, lest each of them
// were reason for an attempt of its own.
type session struct {
	ear           *ear
	begun         time.Time
	subscriptions []pool.Subscription
	pools         []pool.Pool // the session's own, through which it subscribes

	// With ear.mu.
	answered []bool // by node
	missing  int    // nodes that have not answered
	grace    *time.Timer
	ready    bool
}

// stands reports whether the process can hear that a lock is free.
func (e *ear) stands() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.session != nil && e.session.ready
}

// hears returns when an attempt may rely on being told: the zero time if that is now, and
// after maxWait at the latest, although nothing stands then. It reports whether anybody
// listens at all.
func (e *ear) hears(maxWait time.Duration) (from time.Time, listens bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.session
	if s == nil {
		return time.Time{}, false
	}
	if s.ready || time.Since(s.begun) >= maxWait {
		return time.Time{}, true
	}
	return s.begun.Add(maxWait), true
}

// listen makes sure that subscriptions stand, or are about to: to the nodes of c, which
// is of the group. It does not wait for them. Observers are told of a node that refuses.
func (e *ear) listen(c *core, observers *observers) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.group.abandoned() {
		return
	}
	if e.idle == nil {
		e.idle = time.AfterFunc(idleEar, e.rest)
	}
	e.idle.Reset(idleEar)
	if e.session == nil {
		e.session = &session{ear: e, begun: time.Now(), answered: make([]bool, len(c.nodes)), missing: len(c.nodes)}
		for i, n := range c.nodes {
			e.session.subscribeLocked(n, listener{session: e.session, core: weak.Make(c), i: i, observers: observers})
		}
	}
}

func (s *session) subscribeLocked(n *node, l listener) {
	p, own := listenThrough(n.Pool)
	if own != nil {
		s.pools = append(s.pools, own)
	}
	if p != nil {
		subscription, err := p.Subscribe(s.ear.group.channel(), l)
		if err == nil {
			s.subscriptions = append(s.subscriptions, subscription)
			return
		}
	}
	s.answerLocked(l.i) // it never will
}

// learn notes that node i has answered, and reports whether that comes too late for those
// who have tried already.
func (s *session) learn(i int) (late bool) {
	s.ear.mu.Lock()
	defer s.ear.mu.Unlock()
	if s.answered[i] {
		return true
	}
	late = s.ready
	s.answerLocked(i)
	return late
}

func (s *session) answerLocked(i int) {
	s.answered[i] = true
	s.missing--
	n := len(s.answered)
	switch {
	case s.ready || n-s.missing < quorumOf(n):
	case s.grace == nil && s.missing > 0:
		s.grace = time.AfterFunc(wakeGrace, s.becomeReady)
	case s.grace == nil:
		s.grace = time.AfterFunc(0, s.becomeReady)
	case s.missing == 0:
		s.grace.Reset(0)
	}
}

// becomeReady lets the first in each line try: those who could not hear before, and those
// who have tried all the same, because they may have missed something.
func (s *session) becomeReady() {
	s.ear.mu.Lock()
	s.ready = true
	s.ear.mu.Unlock()
	s.ear.group.lines.tryAll()
}

// rest ends the subscriptions if nobody waits any more.
func (e *ear) rest() {
	if !e.group.lines.anybody() {
		e.stop(nil)
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.idle.Reset(idleEar)
}

// stop ends the subscriptions, if still is nil or still true.
func (e *ear) stop(still func() bool) {
	e.mu.Lock()
	if still != nil && !still() {
		e.mu.Unlock()
		return
	}
	s := e.session
	e.session = nil
	if e.idle != nil {
		e.idle.Stop()
	}
	if s != nil && s.grace != nil {
		s.grace.Stop()
	}
	e.mu.Unlock()
	if s == nil {
		return
	}
	for _, subscription := range s.subscriptions {
		subscription.Close()
	}
	for _, p := range s.pools {
		_ = p.Close() // never fails, and does not wait
	}
}

// A listener hears what node i has to say.
type listener struct {
	session   *session
	core      weak.Pointer[core] // whose observers these are: it need not outlive its users
	i         int
	observers *observers
}

func (l listener) lines() *lines { return &l.session.ear.group.lines }

// Subscribed implements pool.Listener.
func (l listener) Subscribed() {
	if l.session.learn(l.i) {
		l.lines().wakeAll(l.i)
	}
}

// Message implements pool.Listener.
func (l listener) Message(name string) { l.lines().wake(name, l.i, nil) }

// Unsubscribed implements pool.Listener. Until it stands again the timers serve.
func (l listener) Unsubscribed(error) { l.session.learn(l.i) }

// Refused implements pool.Listener.
func (l listener) Refused(err error) {
	l.session.learn(l.i)
	if c := l.core.Value(); c != nil {
		tellLater(c, l.observers, UnwokenObserver.ObserveUnwoken, Unwoken{Node: l.i, Err: err})
	}
}

// deniedFor is for how long a node that did not let its user touch the queue of one
// lock is not asked for another's on the way.
const deniedFor = 5 * time.Second

// deny notes that node i does not let its user touch the queue of h's lock.
func (h *hold) deny(i int, err error) {
	n := h.core.nodes[i]
	n.deniedUntil.Store(int64(clock.Now().Mono + deniedFor))
	if !n.toldDenied.Swap(true) {
		tellLater(h.core, h.set.observers, UnwokenObserver.ObserveUnwoken, Unwoken{Name: h.claim.Name(), Node: i, Err: err})
	}
}

// denies reports whether n has lately not let its user touch a queue.
func (n *node) denies() bool {
	until := n.deniedUntil.Load()
	return until != 0 && int64(clock.Now().Mono) < until
}
