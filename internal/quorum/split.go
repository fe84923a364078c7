package quorum

import (
	"math"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/wire"
)

// This file ends an acquire early whose votes are split: several callers have taken some nodes each, and only silent
// nodes could give one of them a quorum. Otherwise all would wait for the node deadline, and the next attempts would be
// split again. Giving up is safe: the release follows the acquire to all nodes.

// WaitOutSplits turns the early end off, for tests, before s is used.
func (s *Set) WaitOutSplits() { s.known.waitsOut = true }

// Late returns the nodes that are known to be late.
func (s *Set) Late() claim.Nodes { return s.known.late.load() }

// isSplitLocked reports whether a quorum has answered, something else (such as another value or a higher token) is in
// the way, and only missing nodes can make a quorum.
func (r *Round) isSplitLocked() bool {
	if !r.proved.Explained || r.proved.Decided() || r.set.known.waitsOut {
		return false
	}
	if t, ok := r.rare.tally.(claim.LateTally); ok && t.Astray() != 0 {
		return true
	}
	return r.count.Refused != 0
}

func (r *Round) splitLocked() {
	if r.missingLocked()&^r.set.known.late.load() == 0 {
		r.giveUpLocked()
		return
	}
	r.hastenLocked()
}

// hastenLocked lets the patience begin. A further answer may end it earlier: see silentLocked.
func (r *Round) hastenLocked() {
	if r.timer != nil {
		r.hastened = true
		if soon, sooner := r.timer.hasten(r.silentLocked(), &r.set.known.late); sooner {
			r.inTime = clock.Now().Mono + soon
		}
	}
}

// postponeLocked lets the patience go on if a missing node has answered another request since.
func (r *Round) postponeLocked() bool {
	if r.timer == nil {
		return false
	}
	left := r.timer.postpone(r.silentLocked(), &r.set.known.late)
	r.inTime += left
	return left > 0
}

// silentLocked returns for how long missing nodes that are not late have been silent. Earlier requests count, to show
// which node is late while others refuse.
func (r *Round) silentLocked() time.Duration {
	least := time.Duration(math.MaxInt64)
	awaited := r.missingLocked() &^ r.set.known.late.load()
	for i, n := range r.set.Nodes {
		if awaited.Has(i) {
			least = min(least, n.silent())
		}
	}
	return least
}

func (r *Round) missingLocked() claim.Nodes { return r.Rule().All() &^ r.count.Voted() }

func (r *Round) giveUpLocked() {
	r.expired, r.closed, r.hastened = true, true, true
	r.stopClockLocked()
	r.decideLocked()
}

// stopClockLocked sets when an answer is too late. It reads the clock only while a node is late.
func (r *Round) stopClockLocked() {
	if r.inTime == 0 && r.set.known.late.load() != 0 {
		r.inTime = clock.Now().Mono + minPatience
	}
}

// NoteLate notes whether the fate of a request shows that node i is late.
func (r *Round) NoteLate(i int, fate wire.Fate) {
	late := &r.set.known.late
	switch {
	case fate != wire.Answered:
		late.add(claim.Nodes(0).With(i))
	case late.load().Has(i) && r.isInTime():
		late.remove(i)
	}
}

// noteTooLateLocked notes an answer after the round's patience: a caller that gave up earlier has not noted the missing
// nodes.
func (r *Round) noteTooLateLocked(i int) {
	now := clock.Now().Mono
	if now <= r.inTime {
		return
	}
	if op, ok := r.op.(Timed); ok {
		r.set.known.late.answered(i, now-op.Began())
		return
	}
	r.set.known.late.add(claim.Nodes(0).With(i))
}

// isInTime reports whether an answer is in time. If nobody waits for an undecided round, such as a release, it may come
// seconds later.
func (r *Round) isInTime() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.inTime == 0 {
		return r.timer != nil && !r.final && !r.expired
	}
	return clock.Now().Mono <= r.inTime
}
