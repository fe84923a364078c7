package pool

import (
	"sync/atomic"
	"time"
)

// This file tells a Redsync whether a connection is open, and what requests wait for while it is being opened.

// A Link is the connection of a Pool to its node, or the attempt to open one.
type Link struct {
	Open  bool          // a request can be written at once
	Since time.Time     // since when it is open, or is being opened; zero if neither
	Step  Step          // what is waited for while it is being opened
	Sign  time.Time     // while it is being opened: when the node gave the last sign of life, at first Since
	Limit time.Duration // how long the client lets a dial take
}

// A Step is a part of the opening of a connection.
type Step uint8

// The steps, in order. A dial includes TLS.
const (
	Dial Step = iota
	Greeting
)

// String returns what the node has not answered.
func (s Step) String() string { return [...]string{"dial", "greeting"}[s] }

// A progress is how far the opening of a connection has come.
type progress struct {
	since   time.Time
	sign    atomic.Int64 // counted from since
	greeted atomic.Bool  // a dial has ended
}

// signed notes a sign of life. dialed says that the dial has ended.
func (p *progress) signed(dialed bool) {
	if p == nil {
		return
	}
	p.sign.Store(int64(time.Since(p.since)))
	if dialed {
		p.greeted.Store(true)
	}
}

func (p *progress) link() Link {
	l := Link{Since: p.since, Sign: p.since.Add(time.Duration(p.sign.Load()))}
	if p.greeted.Load() {
		l.Step = Greeting
	}
	return l
}

// IsOpen implements Connecting.
func (p *streamPool) IsOpen() bool {
	s := p.last.Load()
	return s != nil && s.conn.Load() != nil
}

// Link implements Linked.
func (p *streamPool) Link() (l Link) {
	if s := p.last.Load(); s != nil {
		l = s.link()
	}
	l.Limit = dialTimeout(p.client.Options())
	return l
}

// Connect implements Connecting.
func (p *streamPool) Connect(tried func(open bool)) {
	for p.err == nil {
		s, err := p.running()
		if err != nil {
			break
		}
		if s.connectFor(tried) {
			return
		}
		p.last.CompareAndSwap(s, nil) // s has ended: continue with another one
	}
	tried(false)
}

func (s *stream) link() Link {
	if c := s.conn.Load(); c != nil {
		return Link{Open: true, Since: c.ready}
	}
	if p := s.opening.Load(); p != nil {
		return p.link()
	}
	return Link{}
}

// connectFor makes the stream connect, and calls tried when it has. It reports false if the stream has stopped.
func (s *stream) connectFor(tried func(open bool)) bool {
	s.mu.Lock()
	open := s.conn.Load() != nil
	if s.stopped.Load() {
		s.mu.Unlock()
		return false
	}
	if !open {
		s.awaiting = append(s.awaiting, tried)
		s.nudge()
	}
	s.mu.Unlock()
	if open {
		tried(true)
	}
	return true
}

// tellTried tells those who have called Connect whether a connection is open.
func (s *stream) tellTried(open bool) {
	s.mu.Lock()
	waiting := s.awaiting
	s.awaiting = nil
	s.mu.Unlock()
	for _, tried := range waiting {
		tried(open)
	}
}

// Link implements Linked. It tells of the node whose connection was opened last, or is still being opened.
func (p *routedPool) Link() (l Link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.queue) > 0 && !p.loading.IsZero() { // the client learns which nodes there are
		return Link{Since: p.loading, Sign: p.loading, Limit: routeTimeout}
	}
	for _, node := range p.nodes {
		of := node.Link()
		if of.Since.IsZero() || !l.Since.IsZero() && l.Open != of.Open && of.Open || l.Open == of.Open && of.Since.Before(l.Since) {
			continue
		}
		l = of
	}
	return l
}
