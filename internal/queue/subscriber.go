package queue

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/lease"
	"github.com/seed14bd9ef4/redsync/internal/quorum"
	"github.com/seed14bd9ef4/redsync/internal/script"
	"github.com/seed14bd9ef4/redsync/internal/wire"
)

const (
	// idleSubscriber is how long the subscriptions outlast the last waiter and the last lease in holders.
	idleSubscriber = 30 * time.Second

	// maxWaitToHear bounds how long the first in line waits for its subscriptions.
	maxWaitToHear = showEvery
)

// A subscriber hears, for all members of a group, that a lock is free or was released by force. The process has one
// channel, and one subscription on each node. When a broken subscription stands again, the subscriber wakes the first
// in each line, because messages may be lost.
type subscriber struct {
	group *Group

	mu      sync.Mutex // guards what follows, and the last fields of the session
	session *session   // nil while nobody listens
	idle    *time.Timer
}

// A session is one set of subscriptions. A node has answered once it can be heard, or its subscription has failed. The
// session is ready when all nodes have answered, or wakeGrace after a quorum has, because each later answer causes an
// attempt.
type session struct {
	subscriber    *subscriber
	set           *quorum.Set
	rule          claim.Rule
	begun         time.Time
	subscriptions []*wire.Subscription
	pools         []wire.Pool // its own, to subscribe through

	// subscriber.mu guards what follows.
	answered claim.Nodes
	grace    *time.Timer
	ready    bool
	heard    claim.Nodes // the nodes that can be heard
	covers   bool        // heard blocks every quorum, so any release by force is heard
	covered  bool        // it was so at some time
}

func (s *subscriber) ready() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.session != nil && s.session.ready
}

// wakes reports whether a quorum of nodes can be heard without those that are late or unfit.
func (s *subscriber) wakes(unfit claim.Nodes) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.session != nil && s.session.ready && s.session.rule.Quorum(s.session.heard&^s.session.set.Late()&^unfit)
}

// hears returns until when an attempt must wait for the subscriptions: at most for the node deadline and maxWaitToHear
// since the session began. listens says that there is a session.
func (s *subscriber) hears(deadline time.Duration) (from time.Time, listens bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.session == nil {
		return time.Time{}, false
	}
	maxWait := min(deadline, maxWaitToHear)
	if s.session.ready || time.Since(s.session.begun) >= maxWait {
		return time.Time{}, true
	}
	return s.session.begun.Add(maxWait), true
}

// listen opens the subscriptions through the pools of one member, and does not wait for them. If a
// node refuses, events hears of it; it may be nil.
func (s *subscriber) listen(set *quorum.Set, events lease.Events) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.group.isOver() {
		return
	}
	if s.idle == nil {
		s.idle = time.AfterFunc(idleSubscriber, s.rest)
	}
	s.idle.Reset(idleSubscriber)
	if s.session == nil {
		s.session = &session{subscriber: s, set: set, rule: set.Rule(), begun: time.Now()}
		for _, n := range set.Nodes {
			s.session.subscribeLocked(listener{session: s.session, node: n, events: events})
		}
	}
}

func (s *session) subscribeLocked(l listener) {
	p, own := listenThrough(l.node.Pool)
	if own != nil {
		s.pools = append(s.pools, own)
	}
	if p != nil {
		subscription, err := p.Subscribe(s.subscriber.group.Process.Channel(), l)
		if err == nil {
			s.subscriptions = append(s.subscriptions, subscription)
			return
		}
	}
	s.answerLocked(l.node.Index) // no listener will
}

// listenThrough returns the pool to subscribe through at p's node: own, which no user closes, if p can make one.
func listenThrough(p wire.Pool) (s wire.Subscriber, own wire.Pool) {
	if shared, ok := p.(wire.Shared); ok {
		own = shared.Sibling()
		p = own
	}
	s, _ = p.(wire.Subscriber)
	return s, own
}

// learn notes whether node i can be heard. late says that waiters may have tried without hearing it, covers that no
// release by force goes unheard from now on, and first that this is new.
func (s *session) learn(i int, heard bool) (late, covers, first bool) {
	s.subscriber.mu.Lock()
	defer s.subscriber.mu.Unlock()
	before := s.covers
	if heard {
		s.heard = s.heard.With(i)
	} else {
		s.heard = s.heard.Without(i)
	}
	s.covers = s.rule.Blocks(s.heard)
	covers = s.covers && !before
	first = covers && !s.covered
	s.covered = s.covered || covers
	if s.answered.Has(i) {
		return true, covers, first
	}
	late = s.ready
	s.answerLocked(i)
	return late, covers, first
}

func (s *session) answerLocked(i int) {
	s.answered = s.answered.With(i)
	all := s.answered == s.rule.All()
	switch {
	case s.ready || !s.rule.Quorum(s.answered):
	case s.grace == nil && !all:
		s.grace = time.AfterFunc(wakeGrace, s.becomeReady)
	case s.grace == nil:
		s.grace = time.AfterFunc(0, s.becomeReady)
	case all:
		s.grace.Reset(0)
	}
}

// becomeReady lets the first in each line try, which has waited for that or may have missed a message.
func (s *session) becomeReady() {
	s.subscriber.mu.Lock()
	s.ready = true
	s.subscriber.mu.Unlock()
	s.subscriber.group.lines.nudgeAll()
}

func (s *subscriber) rest() {
	if s.group.lines.count.Load() == 0 && s.stop(func() bool { return s.group.holders.count.Load() == 0 }) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.idle.Reset(idleSubscriber)
}

// stop ends the subscriptions, unless still is set and reports false. still is called under s.mu: a lease that is added
// to holders afterwards finds no session.
func (s *subscriber) stop(still func() bool) (stopped bool) {
	s.mu.Lock()
	if still != nil && !still() {
		s.mu.Unlock()
		return false
	}
	ended := s.session
	s.session = nil
	if s.idle != nil {
		s.idle.Stop()
	}
	if ended != nil && ended.grace != nil {
		ended.grace.Stop()
	}
	s.mu.Unlock()
	if ended == nil {
		return true
	}
	for _, subscription := range ended.subscriptions {
		subscription.Close()
	}
	for _, p := range ended.pools {
		_ = p.Close() // never fails nor waits
	}
	return true
}

type listener struct {
	session *session
	node    *quorum.Node
	events  lease.Events // may be nil
}

func (l listener) group() *Group { return l.session.subscriber.group }

// Subscribed implements wire.Listener.
func (l listener) Subscribed() {
	late, covers, first := l.session.learn(l.node.Index, true)
	if holders := &l.group().holders; covers && holders.count.Load() > 0 {
		holders.doubtAll(first)
	}
	if late {
		l.group().lines.wakeAll(l.node.Index)
	}
}

// Message implements wire.Listener.
func (l listener) Message(key string) {
	if id, ok := strings.CutPrefix(key, script.Forced); ok {
		l.group().holders.doubt(id)
	} // no return: the name of a lock may begin like that
	l.group().lines.wake(script.LineOf(key), l.node.Index, true, nil)
}

// Unsubscribed implements wire.Listener. Waiters then go by their timers.
func (l listener) Unsubscribed(err error) {
	l.session.learn(l.node.Index, false)
	if wire.HangsUp(err) && l.events != nil {
		l.events.Denied(l.node, "", err)
	}
}

// Refused implements wire.Listener.
func (l listener) Refused(err error) {
	l.session.learn(l.node.Index, false)
	switch {
	case errors.Is(err, wire.ErrClientClosed):
		go l.group().look(l.session.set) // it waits for listeners
	case l.events != nil:
		l.events.Denied(l.node, "", err)
	}
}

// holders are the leases that want to hear when they are released by force, by the ID of their values.
type holders struct {
	count atomic.Int64 // of leases; can be read without mu

	mu   sync.Mutex // guards what follows
	byID map[string][]*lease.Lease
}

// A holding takes a lease out of holders when it ends.
type holding struct {
	of    *holders
	id    string
	lease *lease.Lease
}

// Ended implements lease.Listener.
func (h holding) Ended(error) { h.of.remove(h.id, h.lease) }

func (h *holders) add(id string, l *lease.Lease) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.byID == nil {
		h.byID = make(map[string][]*lease.Lease)
	}
	h.byID[id] = append(h.byID[id], l)
	h.count.Add(1)
}

func (h *holders) remove(id string, l *lease.Lease) {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := len(h.byID[id])
	h.byID[id] = slices.DeleteFunc(h.byID[id], func(other *lease.Lease) bool { return other == l })
	h.count.Add(int64(len(h.byID[id]) - all))
	if len(h.byID[id]) == 0 {
		delete(h.byID, id)
	}
}

// doubt makes leases ask the nodes whether they are still held.
func (h *holders) doubt(id string) {
	h.mu.Lock()
	all := slices.Clone(h.byID[id])
	h.mu.Unlock()
	for _, l := range all {
		l.Doubt(true)
	}
}

// doubtAll makes all leases ask. told says that a message may have come before the process listened at all.
func (h *holders) doubtAll(told bool) {
	h.mu.Lock()
	var all []*lease.Lease
	for _, some := range h.byID {
		all = append(all, some...)
	}
	h.mu.Unlock()
	for _, l := range all {
		l.Doubt(told)
	}
}
