package redsync

import (
	"context"
	"sync"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/script"
	"github.com/seed14bd9ef4/redsync/pool"
)

// This file is how a process hears that a lock is free: on a channel of its own, by
// one subscription on each node, however many locks it waits for.

// idleEar is how long the subscriptions outlast the last one who waits.
const idleEar = 30 * time.Second

// An ear listens while somebody waits. A node that cannot be heard is made up for when
// it can be again: everybody looks again.
type ear struct {
	core *core

	mu      sync.Mutex
	open    []pool.Subscription
	unknown map[int]bool  // nodes of open that have not answered yet
	known   chan struct{} // closed when unknown is empty
	idle    *time.Timer
	closed  bool
}

// listen returns when each node can be heard, or has failed to let us listen; or once
// after timeout, and when ctx is done. Observers are told of a node that refuses.
func (e *ear) listen(ctx context.Context, timeout time.Duration, observers *observers) {
	known := e.start(observers)
	if known == nil {
		return
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-known:
	case <-timer.C:
		e.giveUp()
	case <-ctx.Done():
	case <-e.core.closing:
	}
}

// stands reports whether each node can be heard, or has failed to let us listen.
func (e *ear) stands() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.open != nil && len(e.unknown) == 0
}

// start makes sure that the subscriptions stand, or are about to. It returns what is
// closed when it is known which do, nil if it is.
func (e *ear) start(observers *observers) (known <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil
	}
	if e.idle == nil {
		e.idle = time.AfterFunc(idleEar, e.rest)
	}
	e.idle.Reset(idleEar)
	if e.open == nil {
		e.open = []pool.Subscription{}
		e.unknown, e.known = make(map[int]bool), make(chan struct{})
		for i, n := range e.core.nodes {
			e.subscribeLocked(i, n, observers)
		}
	}
	if len(e.unknown) == 0 {
		return nil
	}
	return e.known
}

func (e *ear) subscribeLocked(i int, n *node, observers *observers) {
	p, ok := n.Pool.(pool.Subscriber)
	if !ok {
		return
	}
	s, err := p.Subscribe(script.Channel(e.core.process.(string)), listener{e.core, i, observers})
	if err == nil {
		e.open = append(e.open, s)
		e.unknown[i] = true
	}
}

// learn notes that node i has answered, and reports whether that was waited for.
func (e *ear) learn(i int) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.unknown[i] {
		return false
	}
	delete(e.unknown, i)
	if len(e.unknown) == 0 {
		close(e.known)
	}
	return true
}

// giveUp lets nobody wait any longer for nodes that have not answered.
func (e *ear) giveUp() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.giveUpLocked()
}

func (e *ear) giveUpLocked() {
	if len(e.unknown) > 0 {
		clear(e.unknown)
		close(e.known)
	}
}

// rest ends the subscriptions if nobody waits any more.
func (e *ear) rest() {
	if !e.core.lines.anybody() {
		e.stop(false)
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.idle.Reset(idleEar)
}

func (e *ear) close() { e.stop(true) }

func (e *ear) stop(forGood bool) {
	e.mu.Lock()
	open := e.open
	e.open, e.closed = nil, e.closed || forGood
	if e.idle != nil {
		e.idle.Stop()
	}
	e.giveUpLocked()
	e.mu.Unlock()
	for _, s := range open {
		s.Close()
	}
}

// A listener hears what node i has to say.
type listener struct {
	core      *core
	i         int
	observers *observers
}

// Subscribed implements pool.Listener.
func (l listener) Subscribed() {
	if !l.core.ear.learn(l.i) {
		l.core.lines.wakeAll(l.i)
	}
}

// Message implements pool.Listener.
func (l listener) Message(name string) { l.core.lines.wake(name, l.i, nil) }

// Unsubscribed implements pool.Listener. Until it stands again the timers serve.
func (l listener) Unsubscribed(error) { l.core.ear.learn(l.i) }

// Refused implements pool.Listener.
func (l listener) Refused(err error) {
	l.core.ear.learn(l.i)
	tellLater(l.core, l.observers, UnwokenObserver.ObserveUnwoken, Unwoken{Node: l.i, Err: err})
}

// deniedFor is for how long a node that did not let its user touch the queue of one
// lock is not asked for another's on the way.
const deniedFor = 5 * time.Second

// deny notes that node i does not let its user touch the queue of h's lock.
func (h *hold) deny(i int, err error) {
	n := h.core.nodes[i]
	n.deniedUntil.Store(int64(now().mono + deniedFor))
	if !n.toldDenied.Swap(true) {
		tellLater(h.core, h.set.observers, UnwokenObserver.ObserveUnwoken, Unwoken{Name: h.lock.Name(), Node: i, Err: err})
	}
}

// denies reports whether n has lately not let its user touch a queue.
func (n *node) denies() bool {
	until := n.deniedUntil.Load()
	return until != 0 && int64(now().mono) < until
}
