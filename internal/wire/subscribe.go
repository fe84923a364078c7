package wire

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed14bd9ef4/redsync/internal/jitter"
)

// The pauses between attempts double from firstPause to lastPause. Up to half is added at random, so that not all
// subscribers of a restarted node reconnect at once.
const (
	firstPause = 50 * time.Millisecond
	lastPause  = time.Second
)

// After hangUps attempts in a row that ended in place of the answer to SUBSCRIBE, the pause is hungUpPause: the node
// may be a proxy that does not know it.
const (
	hangUps     = 3
	hungUpPause = 30 * time.Second
)

// HangsUp reports whether several connections in a row ended in place of an answer to SUBSCRIBE. The Subscription tries
// again after half a minute.
func HangsUp(err error) bool {
	var hung *hungUp
	return errors.As(err, &hung)
}

type hungUp struct{ wrapped }

type subscriptions struct {
	mu     sync.Mutex // guards what follows
	closed bool
	open   map[*Subscription]struct{}
}

func (p *clientPool) Subscribe(channel string, to Listener) (*Subscription, error) {
	switch {
	case p.Wrong != nil:
		return nil, p.Wrong
	case channel == "":
		return nil, errors.New("pool: Subscribe needs a channel")
	case to == nil:
		return nil, errors.New("pool: Subscribe needs a Listener")
	}
	s := &Subscription{client: p.owner, channel: channel, to: to, dial: p.dial, telling: make(chan struct{}, 1)}
	s.life, s.end = context.WithCancelCause(context.Background())
	if !p.subs.add(s) {
		s.end(nil)
		return nil, ErrClosed
	}
	s.watch = time.AfterFunc(time.Hour, s.look)
	s.watch.Reset(lookPause) // look, which also resets the timer, begins after watch is set
	go func() {
		defer p.subs.remove(s)
		defer s.end(nil)
		s.run(s.life)
	}()
	return s, nil
}

func (ss *subscriptions) add(s *Subscription) bool {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.closed {
		return false
	}
	if ss.open == nil {
		ss.open = make(map[*Subscription]struct{})
	}
	ss.open[s] = struct{}{}
	return true
}

func (ss *subscriptions) remove(s *Subscription) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	delete(ss.open, s)
}

func (ss *subscriptions) close() {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.closed = true
	for s := range ss.open {
		s.stop()
	}
}

// A Subscription is what Subscribe has started.
type Subscription struct {
	client  redis.UniversalClient
	channel string
	to      Listener
	dial    dialer

	life  context.Context //nolint:containedctx // of the subscription
	end   context.CancelCauseFunc
	watch *time.Timer

	closed atomic.Bool // the Listener hears nothing more

	// telling holds a token while a method of the Listener runs. testing/synctest does not see a goroutine that waits for
	// a sync.Mutex as durably blocked.
	telling chan struct{}
}

func (s *Subscription) stop() {
	s.closed.Store(true)
	s.end(nil)
}

// Close ends the Subscription, without waiting for the node. When it returns, no method of the Listener runs or will be
// called. It waits for a running method, so do not call it from one, or hold a mutex that one locks. The Pool's Close
// does not wait.
//
// A Dialer that ignores its context delays the end of the connection, and so do the timeouts of a client used directly.
func (s *Subscription) Close() {
	s.stop()
	s.telling <- struct{}{} // from here on tell calls no method
	<-s.telling
}

func (s *Subscription) tell(method func()) {
	s.telling <- struct{}{}
	defer func() { <-s.telling }()
	if !s.closed.Load() {
		method()
	}
}

func (s *Subscription) run(ctx context.Context) {
	pause, at, cuts := firstPause, "", 0
	for {
		lasted, err := s.listen(ctx, at)
		if cuts++; !isCutOffAt(err, "SUBSCRIBE") {
			cuts = 0
		}
		if cuts >= hangUps {
			err = &hungUp{wrapped{err}}
		}
		at = ""
		var refused *refusedError
		var moved *movedError
		switch {
		case s.isOver(ctx, err):
			return
		case errors.As(err, &refused):
			s.tell(func() { s.to.Refused(err) })
			return
		}
		s.tell(func() { s.to.Unsubscribed(err) })
		if errors.Is(err, errMoved) {
			continue
		}
		if errors.As(err, &moved) && lasted >= firstPause {
			at = moved.to // at once: the client has moved, too
			continue
		}
		if lasted >= lastPause {
			pause = firstPause
		}
		if cuts >= hangUps {
			pause = hungUpPause
		}
		sleep(ctx, pause+jitter.N(pause/2))
		if s.isOver(ctx, nil) {
			return
		}
		pause = min(2*pause, lastPause)
	}
}

func (s *Subscription) look() {
	if isClosed(s.client) {
		s.end(ErrClientClosed)
	}
	if s.life.Err() == nil {
		s.watch.Reset(lookPause)
	}
}

// isOver reports whether s has ended. If the user has closed the client, it tells the Listener.
func (s *Subscription) isOver(ctx context.Context, err error) bool {
	if errors.Is(context.Cause(ctx), ErrClientClosed) || errors.Is(err, redis.ErrClosed) {
		s.tell(func() { s.to.Refused(ErrClientClosed) })
		return true
	}
	return ctx.Err() != nil
}

// listen delivers the messages of one connection. It returns how long the subscription lasted since its confirmation.
func (s *Subscription) listen(ctx context.Context, at string) (lasted time.Duration, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	start := time.Now()
	w, err := s.dial(ctx, s.channel, at)
	if err != nil {
		return 0, fmt.Errorf("pool: not subscribed: %w", err)
	}
	defer func() { _ = w.Close() }()
	if err := s.confirm(w, time.Until(start.Add(openTimeout))); err != nil {
		return 0, err
	}
	start = time.Now()
	s.tell(s.to.Subscribed)
	err = s.deliver(w)
	return time.Since(start), fmt.Errorf("pool: connection lost: %w", err)
}

func (s *Subscription) confirm(w wire, timeout time.Duration) error {
	h, err := w.receive(max(timeout, 1)) // 0 would mean no timeout
	switch {
	case isAnswer(err) && !passes(err):
		return &refusedError{s.channel, wrapped{err}}
	case err != nil:
		return fmt.Errorf("pool: SUBSCRIBE not confirmed: %w", err)
	case h.subscribed != s.channel:
		return fmt.Errorf("pool: SUBSCRIBE not confirmed: %w", errUnsolicited)
	}
	return nil
}

// deliver calls the Listener for everything that arrives. A read that timed out ends the connection, because part of a
// message may be lost. So a timer sends PING while the read waits.
func (s *Subscription) deliver(w wire) error {
	ping := time.AfterFunc(pingAfter, w.ping)
	defer ping.Stop()
	for {
		h, err := w.receive(maxSilence)
		if err != nil && !isAnswer(err) { // a node that denies PING still answers it
			return err
		}
		ping.Reset(pingAfter)
		switch {
		case h.message:
			s.tell(func() { s.to.Message(h.text) })
		case h.subscribed != "":
			s.tell(s.to.Subscribed)
		}
	}
}

// passes reports whether err is an answer that a later SUBSCRIBE may not get.
func passes(err error) bool {
	return beginsWith(err, "LOADING ", "BUSY ", "TRYAGAIN ", "CLUSTERDOWN ", "MASTERDOWN ", "READONLY ", "OOM ",
		"max number of clients reached") // after an ERR, which HasErrorPrefix skips
}

// A refusedError is the error of Refused.
type refusedError struct {
	channel string
	wrapped
}

func (e *refusedError) Error() string {
	return fmt.Sprintf("pool: subscribing to %q is refused: %v", Cut(e.channel), e.error)
}
