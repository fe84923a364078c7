package wire

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"
)

// This file decides what to do about a connection that owes a reply and is silent. Either the node is slow, or a
// firewall or a NAT has forgotten the connection.
//
// Once it has been silent for longer than its requests want (Request.Within), a search for a second one begins. If a
// node answers the second one's greeting while the first is still silent, the second replaces the first. If data
// arrives on the first before that, the second is closed. A frozen node answers on neither, and the search goes on.

const (
	// minPatience is the shortest silence before a search.
	minPatience = 50 * time.Millisecond

	// A second connection that was not needed doubles the patience: otherwise a slow link would cost a connection for each
	// request. Each forgetAfter halves it, so that a node that was once slow is watched again.
	maxDoubled  = 10
	forgetAfter = time.Minute
)

// A silence measures how long a connection has owed a reply without receiving one. All methods except start, pause,
// clock and lasts are called under the queue's mu.
type silence struct {
	timeout time.Duration // after this the connection is given up
	usual   time.Duration // the timeout after announced maintenance; 0: there is none
	started time.Time     // when clock began
	watch   *time.Timer

	// since is when the wait for the next owed reply began, by clock. It is 0 while no reply is owed, and while replies
	// are delivered.
	since atomic.Int64

	batchWithin   time.Duration // least in the batch that is being answered
	writtenWithin time.Duration // least of the requests written after it
	watching      bool
	armed         time.Duration
	second        *second // the search for a second connection, or nil
	doubled       int     // how often the patience was doubled
	doubledAt     int64   // by clock: when it was last doubled or halved
}

// A second is the search for a connection beside a silent one.
type second struct {
	since  int64              // by clock: when the silence began
	cancel context.CancelFunc // ends the search, and the connection that it has found
}

func (s *silence) start(check func()) {
	s.started = time.Now()
	s.watch = time.AfterFunc(s.timeout, check)
	s.watch.Stop()
}

// taken records that the connection has taken requests, the shortest Within of which is within. idle: nothing was in
// flight.
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

func (s *silence) nextBatch() { s.batchWithin, s.writtenWithin = s.writtenWithin, 0 }

// pause records that a reply has arrived. No silence is measured until broken is called.
func (s *silence) pause() {
	if s.since.Load() != 0 {
		s.since.Store(0)
	}
}

// broken records that all replies that had arrived are delivered. A new silence begins if the node owes another one. A
// search is dropped.
func (s *silence) broken(owing bool) {
	if owing {
		s.since.Store(s.clock())
	}
	if s.second != nil {
		s.drop()
	}
}

// check is called when the watch fires. It returns whether to give the connection up, and a search to begin, or nil.
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

// outlasted reports whether the connection stayed silent during d, so that what d has found replaces it. Otherwise it
// drops d.
func (s *silence) outlasted(d *second, found bool) bool {
	if s.second != d {
		return false // the connection has ended, or said something
	}
	if !found || s.since.Load() != d.since {
		s.drop()
		return false
	}
	s.second = nil
	return true
}

func (s *silence) end() {
	s.watch.Stop()
	if s.second != nil {
		s.second.cancel()
		s.second = nil
	}
}

// patience returns how long the connection may be silent before a search, timeout if none may begin.
func (s *silence) patience() time.Duration {
	within := sooner(s.batchWithin, s.writtenWithin)
	if within == 0 || within >= s.timeout || s.usual > 0 {
		return s.timeout
	}
	return min(max(within, minPatience)<<s.doubled, s.timeout)
}

// minPace is longer for a node that was silent before and well: it is asked less often.
func (s *silence) minPace() time.Duration { return min(minPace<<s.doubled, maxPace) }

// arm sets the watch after a silence of waited. Later replies leave it alone: check looks anew.
func (s *silence) arm(waited time.Duration) {
	s.armed = s.timeout - waited
	if s.second == nil {
		left := s.patience() - waited
		if left <= 0 { // a cancelled search has not ended yet
			left = minPatience
		}
		s.armed = min(s.armed, left)
	}
	s.watching = true
	s.watch.Reset(s.armed)
}

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

func (s *silence) forgive(now int64) {
	for s.doubled > 0 && now-s.doubledAt >= int64(forgetAfter) {
		s.doubled--
		s.doubledAt += int64(forgetAfter)
	}
}

// clock returns the time since start, never 0.
func (s *silence) clock() int64 { return int64(time.Since(s.started)) + 1 }

// lasts returns how long the silence has lasted, 0 if there is none.
func (s *silence) lasts() time.Duration {
	since := s.since.Load()
	if since == 0 {
		return 0 // perhaps start has not been called
	}
	return lasted(since, s.clock())
}

func lasted(since, now int64) time.Duration {
	if since > 0 {
		return time.Duration(now - since)
	}
	return 0
}

// relax gives the connection a longer timeout, and forbids second connections, until relax(0).
func (s *silence) relax(timeout time.Duration) {
	usual := cmp.Or(s.usual, s.timeout)
	s.timeout, s.usual = usual, 0
	if timeout > 0 {
		s.timeout, s.usual = max(usual, timeout), usual
	}
	if s.watching {
		s.arm(s.lasts())
	}
}
