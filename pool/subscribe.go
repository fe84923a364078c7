package pool

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed14bd9ef4/redsync/internal/jitter"
)

// The pauses between attempts double from firstPause to lastPause. Up to half a pause is added at
// random, so that the subscribers of a restarted node do not all reconnect at once.
const (
	firstPause = 50 * time.Millisecond
	lastPause  = time.Second
)

// subscriptions are the running subscriptions of a Pool.
type subscriptions struct {
	mu     sync.Mutex // guards what follows
	closed bool
	open   map[*subscription]struct{}
}

func (ss *subscriptions) start(cfg *config, channel string, to Listener, dial dialer) (Subscription, error) {
	switch {
	case cfg.err != nil:
		return nil, cfg.err
	case channel == "":
		return nil, errors.New("pool: Subscribe needs a channel")
	case to == nil:
		return nil, errors.New("pool: Subscribe needs a Listener")
	}
	ctx, end := context.WithCancel(context.Background())
	s := &subscription{channel: channel, to: to, dial: dial, end: end, telling: make(chan struct{}, 1)}
	if !ss.add(s) {
		end()
		return nil, ErrClosed
	}
	go func() {
		defer ss.remove(s)
		defer end()
		s.run(ctx)
	}()
	return s, nil
}

// add records s and returns true, unless the Pool is closed.
func (ss *subscriptions) add(s *subscription) bool {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.closed {
		return false
	}
	if ss.open == nil {
		ss.open = make(map[*subscription]struct{})
	}
	ss.open[s] = struct{}{}
	return true
}

func (ss *subscriptions) remove(s *subscription) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	delete(ss.open, s)
}

// close ends all subscriptions and refuses new ones.
func (ss *subscriptions) close() {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.closed = true
	for s := range ss.open {
		s.stop()
	}
}

// subscription is a Subscription of a Pool of New.
type subscription struct {
	channel string
	to      Listener
	dial    dialer
	end     context.CancelFunc // of the context of run

	closed atomic.Bool // no method of the Listener is called any more

	// telling holds a token while a method of the Listener runs. It serves as a mutex. It is a
	// channel, because testing/synctest regards a goroutine that waits for a channel as durably
	// blocked, but not one that waits for a sync.Mutex.
	telling chan struct{}
}

func (s *subscription) stop() {
	s.closed.Store(true)
	s.end()
}

func (s *subscription) Close() {
	s.stop()
	// From here on tell finds closed set and calls no method. If a method is running now, wait
	// for it, unless the caller is itself a method of some Listener. A method must not wait for
	// itself, and two methods that close each other's subscription would wait for ever.
	select {
	case s.telling <- struct{}{}:
	default:
		if inListener() {
			return
		}
		s.telling <- struct{}{}
	}
	<-s.telling
}

// tell calls a method of the Listener, unless s is closed.
func (s *subscription) tell(method func()) {
	s.telling <- struct{}{}
	defer func() { <-s.telling }()
	if !s.closed.Load() {
		listener(method)
	}
}

// listener calls a method of a Listener, so that inListener finds listener on the stack.
//
//go:noinline
func listener(method func()) { method() }

var listenerEntry = reflect.ValueOf(listener).Pointer()

// inListener reports whether its caller was called by a method of a Listener.
func inListener() bool {
	pcs := make([]uintptr, 64)
	n := runtime.Callers(1, pcs)
	for ; n == len(pcs); n = runtime.Callers(1, pcs) {
		pcs = make([]uintptr, 2*len(pcs))
	}
	for frames := runtime.CallersFrames(pcs[:n]); ; {
		frame, more := frames.Next()
		if frame.Entry == listenerEntry {
			return true
		}
		if !more {
			return false
		}
	}
}

// run keeps s subscribed until ctx ends or the node refuses.
func (s *subscription) run(ctx context.Context) {
	pause := firstPause
	for {
		lasted, err := s.listen(ctx)
		var refused *refusedError
		switch {
		case ctx.Err() != nil:
			return
		case errors.As(err, &refused):
			s.tell(func() { s.to.Refused(err) })
			return
		}
		s.tell(func() { s.to.Unsubscribed(err) })
		if lasted >= lastPause {
			pause = firstPause
		}
		if !sleep(ctx, pause+jitter.N(pause/2)) {
			return
		}
		pause = min(2*pause, lastPause)
	}
}

// sleep reports whether d has passed before the end of ctx.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// listen delivers the messages of one connection until the connection or ctx ends. It returns how
// long the subscription lasted from the node's confirmation on, and why listen ended.
func (s *subscription) listen(ctx context.Context) (lasted time.Duration, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	start := time.Now()
	w, err := s.dial(ctx, s.channel)
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

// confirm waits for the answer to SUBSCRIBE, which is the first reply on its connection.
func (s *subscription) confirm(w wire, timeout time.Duration) error {
	h, err := w.receive(max(timeout, 1)) // 0 would mean no timeout
	switch {
	case isAnswer(err) && !passes(err):
		return &refusedError{s.channel, err}
	case err != nil:
		return fmt.Errorf("pool: SUBSCRIBE not confirmed: %w", err)
	case h.subscribed != s.channel:
		return fmt.Errorf("pool: SUBSCRIBE not confirmed: %w", errUnsolicited)
	}
	return nil
}

// deliver calls the Listener for everything that arrives, until the connection is lost. A read
// that timed out may have consumed part of a message, so a timeout has to end the connection.
// Therefore PING is sent by a timer while the read is waiting.
func (s *subscription) deliver(w wire) error {
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

// passing holds the beginnings of temporary errors.
var passing = []string{
	"LOADING ", "BUSY ", "TRYAGAIN ", "CLUSTERDOWN ", "MASTERDOWN ", "READONLY ", "OOM ",
	"max number of clients reached", // after an ERR, which HasErrorPrefix skips
}

func passes(err error) bool {
	return slices.ContainsFunc(passing, func(prefix string) bool { return redis.HasErrorPrefix(err, prefix) })
}

// A refusedError is the error of Refused.
type refusedError struct {
	channel string
	answer  error
}

func (e *refusedError) Error() string {
	return fmt.Sprintf("pool: subscribing to %q is refused: %v", cut(e.channel), e.answer)
}

func (e *refusedError) Unwrap() error { return e.answer }
