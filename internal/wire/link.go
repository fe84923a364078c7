package wire

import (
	"sync/atomic"
	"time"
)

// A Link is the connection of a Pool, or the attempt to open one.
type Link struct {
	Open  bool      // a request can be written at once
	Since time.Time // when it was opened, or the opening began; or zero
	Step  Step
	Sign  time.Time     // last sign of life during the opening; at first Since
	Limit time.Duration // of a dial

	// Distance is the longest wait for a sign of life when the last connection was opened, about a round trip; or 0.
	Distance time.Duration
}

// A Step is a part of the opening of a connection.
type Step uint8

// A dial includes TLS.
const (
	Dial Step = iota
	Greeting
)

// String returns what the node has not answered.
func (s Step) String() string { return [...]string{"dial", "greeting"}[s] }

type progress struct {
	since   time.Time
	sign    atomic.Int64 // counted from since
	greeted atomic.Bool  // a dial has ended
}

// dialed ignores a further dial: a stopped machine may accept each.
func (p *progress) dialed() {
	if p != nil && !p.greeted.Swap(true) {
		p.heard()
	}
}

func (p *progress) heard() {
	if p != nil {
		p.sign.Store(int64(time.Since(p.since)))
	}
}

func (p *progress) link() Link {
	l := Link{Since: p.since, Sign: p.since.Add(time.Duration(p.sign.Load()))}
	if p.greeted.Load() {
		l.Step = Greeting
	}
	return l
}
