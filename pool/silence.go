package pool

import (
	"context"
	"sync/atomic"
	"time"
)

// This file decides what is done about a connection that owes a reply and is silent.
// Either the node is slow, or the connection is dead and nobody says so: a firewall or a
// NAT has forgotten it. The silence does not tell which.
//
// So the connection is not given up at once. Once it has been silent for longer than
// the requests in flight wait (Request.Within), a second one is opened. If the
// second is greeted while the first is still silent, the node is well and the first
// connection is dead: the second goes on in its place. If the first says something first,
// the second is closed. A node that is frozen answers neither.

const (
	// minPatience is the least silence that a second connection is opened for.
	minPatience = 50 * time.Millisecond

	// A second connection that did not help doubles the patience with the first, so that
	// a slow link does not cost a connection for each request. Half of that is forgotten
	// after each forgetAfter: a node that is slow now and then does not leave its
	// connection unwatched for ever. No patience is longer than the timeout.
	maxDoubled  = 10
	forgetAfter = time.Minute

	// lastLook is how long a second connection that has been greeted waits before the
	// first is given up: what has come on the first is read meanwhile.
	lastLook = time.Millisecond
)

// A silence counts for how long one connection has owed a reply and said nothing, and says
// what is to be done about it: the connection does it. Everything but start and pause is
// called under the queue's mu.
type silence struct {
	timeout time.Duration // how long it may last
	started time.Time     // when clock began
	watch   *time.Timer   // fires when something is to be done

	// since is the time at which, as clock has it, the wait for a whole reply that is
	// owed began; 0 while none is owed or those that have come are delivered.
	since atomic.Int64

	batchWithin   time.Duration // the least Within of the requests that are being answered
	writtenWithin time.Duration // that of the requests behind them
	watching      bool          // watch is running
	armed         time.Duration // for how long it was set
	second        *second       // is being opened; nil while none is
	doubled       int           // how often the patience was doubled
	doubledAt     int64         // when it last was or was halved, as clock has it
}

// A second is a connection that is being opened beside a silent one.
type second struct {
	since  int64              // when the silence began, as clock has it
	cancel context.CancelFunc // ends the connection, also once it is greeted
}

// start makes the watch call check when something is to be done.
func (s *silence) start(check func()) {
	s.started = time.Now()
	s.watch = time.AfterFunc(s.timeout, check)
	s.watch.Stop()
}

// taken notes that the connection has taken requests, whose least Within is within. If it
// was idle, nothing was in flight, and a silence begins. The watch is set in time for them.
func (s *silence) taken(within time.Duration, idle bool) {
	if idle {
		s.batchWithin, s.writtenWithin = 0, 0
		s.since.Store(s.clock())
	}
	s.writtenWithin = sooner(s.writtenWithin, within)
	if !s.watching || s.second == nil && s.patience() < s.armed {
		s.arm(0)
	}
}

// nextBatch notes that the requests behind those that have been answered are next.
func (s *silence) nextBatch() { s.batchWithin, s.writtenWithin = s.writtenWithin, 0 }

// pause notes that a reply has come. Nothing is counted until it and those that came with it
// have been delivered, which broken notes.
func (s *silence) pause() {
	if s.since.Load() != 0 {
		s.since.Store(0)
	}
}

// broken notes that the replies that had come have been delivered. A silence begins anew if
// the node owes another one, else with the next request.
func (s *silence) broken(owing bool) {
	if owing {
		s.since.Store(s.clock())
	}
	if s.second != nil {
		s.drop()
	}
}

// check says what is to be done when the watch has fired: whether to give the connection up,
// or which second one to open beside it, nil for none. owes says whether the connection owes
// a reply, mayOpen whether a second one may be opened.
func (s *silence) check(owes, mayOpen bool) (giveUp bool, open *second) {
	now, since := s.clock(), s.since.Load()
	waited := lasted(since, now)
	s.forgive(now)
	s.watching = owes
	switch {
	case !owes:
		return false, nil
	case waited >= s.timeout:
		return true, nil
	case mayOpen && s.second == nil && waited >= s.patience():
		open = &second{since: since}
		s.second = open
	}
	s.arm(waited)
	return false, open
}

// outlasted reports whether the connection was silent all the while d was being opened: then
// d goes on in its place. opened says whether d could be opened; if not, d is dropped.
func (s *silence) outlasted(d *second, opened bool) bool {
	if s.second != d {
		return false // the connection has ended, or said something
	}
	if !opened || s.since.Load() != d.since {
		s.drop()
		return false
	}
	s.second = nil
	return true
}

// end stops the watch, and the second connection if one is being opened.
func (s *silence) end() {
	s.watch.Stop()
	if s.second != nil {
		s.second.cancel()
		s.second = nil
	}
}

// patience returns for how long the connection may be silent until a second one is
// opened. From timeout on none is.
func (s *silence) patience() time.Duration {
	within := sooner(s.batchWithin, s.writtenWithin)
	if within == 0 || within >= s.timeout {
		return s.timeout
	}
	return min(max(within, minPatience)<<s.doubled, s.timeout)
}

// arm sets the watch for the next thing to do about a silence that has lasted for waited.
// What comes meanwhile leaves the watch alone: check looks at the silence anew when it fires.
func (s *silence) arm(waited time.Duration) {
	s.armed = s.timeout - waited
	if s.second == nil {
		left := s.patience() - waited
		if left <= 0 { // one that was cancelled is being opened still
			left = minPatience
		}
		s.armed = min(s.armed, left)
	}
	s.watching = true
	s.watch.Reset(s.armed)
}

// drop ends the attempt to replace the connection. The next one, if it is silent still or
// again, comes after twice the patience.
func (s *silence) drop() {
	s.second.cancel()
	s.second = nil
	if s.doubled < maxDoubled {
		s.doubled++
	}
	now := s.clock()
	s.doubledAt = now
	s.arm(lasted(s.since.Load(), now))
}

// forgive halves the patience for each forgetAfter since it was doubled.
func (s *silence) forgive(now int64) {
	for s.doubled > 0 && now-s.doubledAt >= int64(forgetAfter) {
		s.doubled--
		s.doubledAt += int64(forgetAfter)
	}
}

// clock returns the time since the connection began to serve, never 0.
func (s *silence) clock() int64 { return int64(time.Since(s.started)) + 1 }

// lasted returns how long a silence has lasted that began at since, 0 if there is none.
func lasted(since, now int64) time.Duration {
	if since > 0 {
		return time.Duration(now - since)
	}
	return 0
}
