package lease

import (
	"time"

	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/quorum"
	"github.com/seed14bd9ef4/redsync/internal/script"
)

// This file lets a holder learn soon that its lock was released by force: ForceUnlock sends a message to the process that
// the value names. A message proves nothing, because anybody can send one. It makes the holder ask the nodes.

// hearAfter is how long a lease must have been held until it listens. Shorter ones cost nothing.
const hearAfter = time.Second

// hearsFrom returns when l begins to listen. It reports false if l listens already, or if nobody can name it: messages go
// to the process in the value.
func (l *Lease) hearsFromLocked() (at time.Time, ok bool) {
	if l.watched.hears || !script.IsOf(l.claim.Value(), l.terms.Keeper.Process) {
		return at, false
	}
	return l.First.After(hearAfter), true
}

// hearByLocked returns at, or when l begins to listen if that comes first.
func (l *Lease) hearByLocked(at time.Time) time.Time {
	if from, ok := l.hearsFromLocked(); ok && from.Before(at) {
		return from
	}
	return at
}

// hear begins to listen if it is time. It asks the nodes at once: l may have been released by force before.
func (l *Lease) hear(now clock.Instant) {
	l.mu.Lock()
	begins := l.state == Held && now.Since(l.First) >= hearAfter
	if _, ok := l.hearsFromLocked(); !ok || !begins {
		l.mu.Unlock()
		return
	}
	l.watchedLocked().hears = true
	l.mu.Unlock()
	l.terms.Keeper.Waiters.Hear(l)
	l.Doubt()
}

// Doubt asks the nodes whether l is still held, and ends it if they prove that it is not. It does not wait, and while it
// asks, another Doubt makes it ask once more.
func (l *Lease) Doubt() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state != Held {
		return
	}
	w := l.watchedLocked()
	if w.doubts++; w.doubts == 1 && l.terms.Keeper.BeginCall() {
		go l.ask()
	}
}

// ask asks the nodes until nobody has doubted meanwhile. An extension that heals may have set the keys again since the
// force. Then the nodes have told it that they were missing, and that is proof enough, too.
func (l *Lease) ask() {
	defer l.terms.Keeper.EndCall()
	for {
		before, now := l.doubts(), clock.Now()
		res := l.check(quorum.NoCall, false)
		goesOn := !res.Rejected && l.terms.Keeper.Pause(quorum.NoCall, doubtPause, l.Done())
		if res.Rejected || l.wasGoneSince(now.Mono-goneBefore) {
			_ = l.Lose(l.terms.Keeper.Errors.Forced(l.terms.Claim.Name(), res))
			l.ClearAway() // what was set again
			return
		}
		if !goesOn || l.settle(before) {
			return
		}
	}
}

// goneBefore is for how long before a message the answers to an extension count.
const goneBefore = time.Second

// noteGone notes that the nodes have proved the claim missing, although extensions set it again.
func (l *Lease) noteGone() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watchedLocked().gone = clock.Now().Mono
}

// wasGoneSince reports whether noteGone was called since then, by the monotonic clock.
func (l *Lease) wasGoneSince(then time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.watched.gone != 0 && l.watched.gone >= then
}

// doubtPause is how long ask waits after it has asked, so that messages make a lease ask at most 20 times in a second.
const doubtPause = 50 * time.Millisecond

func (l *Lease) doubts() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.watched.doubts
}

// settle reports whether nobody has doubted since there were that many doubts, or l has ended.
func (l *Lease) settle(before int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state == Held && l.watched.doubts > before {
		return false
	}
	l.watchedLocked().doubts = 0
	return true
}
