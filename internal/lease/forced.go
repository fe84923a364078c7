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

// Doubt asks the nodes whether l is still held, and ends it if they prove that it is not. It does not wait.
func (l *Lease) Doubt() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state != Held {
		return
	}
	w := l.watchedLocked()
	if w.doubts != nil {
		select {
		case w.doubts <- struct{}{}:
		default: // ask will ask once more anyway
		}
		return
	}
	if l.terms.Keeper.BeginCall() {
		w.doubts = make(chan struct{}, 1)
		go l.ask(w.doubts)
	}
}

// ask asks the nodes until nobody has doubted for a while. The message of one node may be here before others have deleted
// the value, so their messages make it ask again at once. All others have to wait.
func (l *Lease) ask(doubts <-chan struct{}) {
	k := l.terms.Keeper
	defer k.EndCall()
	for atOnce := len(k.Set.Nodes); ; atOnce-- {
		since := clock.Now().Mono - goneBefore
		res := l.check(quorum.NoCall, false)
		if l.forced(res, since) {
			return
		}
		again := false
		pause := time.NewTimer(doubtPause)
		select {
		case <-pause.C:
		case <-onlyIf(atOnce > 0, doubts):
			again = true
		case <-k.Closing():
		}
		pause.Stop()
		if l.forced(res, since) || !again && l.settle(doubts) {
			return
		}
	}
}

// onlyIf returns c, or a channel that nothing comes from.
func onlyIf(is bool, c <-chan struct{}) <-chan struct{} {
	if is {
		return c
	}
	return nil
}

// forced ends l and reports true if the nodes have proved that it was released. An extension that heals may have set the
// keys again after that. Then the nodes have told it that they were missing, and that is proof enough, too.
func (l *Lease) forced(res quorum.Result, since time.Duration) bool {
	if !res.Rejected && !l.wasGoneSince(since) {
		return false
	}
	_ = l.Lose(l.terms.Keeper.Errors.Forced(l.terms.Claim.Name(), res))
	l.ClearAway() // what was set again
	return true
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

// doubtPause is how long ask waits after it has asked, so that messages make a lease ask at most 20 times in a second, and
// once more for each node.
const doubtPause = 50 * time.Millisecond

// settle reports whether nobody has doubted meanwhile, or l has ended.
func (l *Lease) settle(doubts <-chan struct{}) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-doubts:
		if l.state == Held {
			return false
		}
	default:
	}
	l.watchedLocked().doubts = nil
	return true
}
