package lease

import (
	"context"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/quorum"
	"github.com/seed14bd9ef4/redsync/internal/script"
)

// This file tells a holder soon that its lock was released by force: ForceUnlock sends a message to the process that
// the value names. Anybody can send one, so the holder then asks the nodes.

// hearAfter is how long a lease must have been held until it listens. Shorter ones cost nothing.
const hearAfter = time.Second

// hearsFromLocked returns when l begins to listen, if it will: messages go to the process that the value names.
func (l *Lease) hearsFromLocked() (at time.Time, ok bool) {
	if l.hears || !script.IsOf(l.claim.Value(), l.terms.Keeper.Process) {
		return at, false
	}
	return l.First.After(hearAfter), true
}

func (l *Lease) hearByLocked(at time.Time) time.Time {
	if from, ok := l.hearsFromLocked(); ok && from.Before(at) {
		return from
	}
	return at
}

// hear begins to listen in time, and asks the nodes at once: l may have been released by force before.
func (l *Lease) hear(now clock.Instant) {
	l.mu.Lock()
	_, begins := l.hearsFromLocked()
	begins = begins && l.state == Held && now.Since(l.First) >= hearAfter
	l.hears = l.hears || begins
	l.mu.Unlock()
	if begins {
		k := l.terms.Keeper
		l.keepDoubts()
		k.Waiters.Hear(l)
		l.Doubt(true)
	}
}

// Doubt asks the nodes whether l, which listens, is still held. It does not wait. If they prove that it is not, l ends.
// A lease that heals from lost data ends only if told: a message has come, or may have before l listened.
func (l *Lease) Doubt(told bool) {
	k := l.terms.Keeper
	l.changeDoubts(func(d *doubts) {
		d.told = d.told || told
		if d.asks != nil {
			select {
			case d.asks <- struct{}{}:
			default: // ask will do so anyway
			}
			if d.cut != nil {
				d.cut()
			}
			return
		}
		if k.BeginCall() {
			d.asks = make(chan struct{}, 1)
			go l.ask(d.asks)
		}
	})
}

// ask asks the nodes until nobody has doubted for a while. A message may come before other nodes have deleted the
// value, so as many as there are nodes make it ask again at once.
func (l *Lease) ask(asks <-chan struct{}) {
	k := l.terms.Keeper
	defer k.EndCall()
	for atOnce := len(k.Set.Nodes); ; atOnce-- {
		since := clock.Now().Mono - goneBefore
		res := l.question(atOnce > 0)
		if l.endIfGone(res, since) {
			return
		}
		again := false
		pause := time.NewTimer(doubtPause)
		select {
		case <-pause.C:
		case <-onlyIf(atOnce > 0, asks):
			again = true
		case <-k.Closing():
		}
		pause.Stop()
		if l.endIfGone(res, since) || !again && l.settle(asks) {
			return
		}
	}
}

// question asks the nodes. If it mayBeCut, the next doubt ends it, because of silent nodes.
func (l *Lease) question(mayBeCut bool) quorum.Result {
	ctx, cut := context.WithCancel(quorum.NoCall)
	defer cut()
	note := func(cut func()) { l.changeDoubts(func(d *doubts) { d.cut = cut }) }
	if mayBeCut {
		note(cut)
		defer note(nil)
	}
	return l.check(ctx, false)
}

func onlyIf(is bool, c <-chan struct{}) <-chan struct{} {
	if is {
		return c
	}
	return nil
}

// endIfGone ends l and reports true if the nodes have proved its release. Nodes where an extension that heals found the
// key missing (gone) count, too.
func (l *Lease) endIfGone(res quorum.Result, since time.Duration) bool {
	k := l.terms.Keeper
	gone, told := l.goneSince(since)
	switch {
	case l.terms.Heals && !told:
		return false
	case !res.Rejected && (gone == 0 || !k.Set.Rule().Blocks(gone|res.Count.Refused)):
		return false
	}
	why := k.Errors.Rejected(l.terms.Claim.Name(), res) // nodes may have lost their data
	if told {
		why = k.Errors.Forced()
	}
	first := l.End(why)
	k.Waiters.Nudge(l.Claim().Lines())
	if first && told {
		// Release what an extension has set again, although the user may have passed the value on.
		l.Hide()
		k.Waiters.ReleaseAndAdmit(l)
	} else {
		l.ClearAway()
	}
	return true
}

// doubtPause makes a lease ask at most 20 times in a second.
const doubtPause = 50 * time.Millisecond

func (l *Lease) settle(asks <-chan struct{}) bool {
	again := false
	l.changeDoubts(func(d *doubts) {
		select {
		case <-asks:
			again = true
		default:
			d.asks, d.told = nil, false
		}
	})
	return !again
}

// doubts are what a lease has that listens, or whose claim was missing on a node. Lease.mu guards them.
type doubts struct {
	asks chan struct{} // nil if nothing is asked
	cut  func()        // ends the question under way; may be nil
	told bool          // see Doubt
	gone claim.Nodes   // see noteGone
	when time.Duration // of the last noteGone; monotonic
}

// changeDoubts changes and returns the doubts of l, unless l is past or has ended.
func (l *Lease) changeDoubts(change func(*doubts)) (now doubts) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if d := l.rareEnd.doubts; d != nil && l.state <= Held {
		change(d)
		now = *d
	}
	return now
}

func (l *Lease) keepDoubts() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w := l.needEndLocked(); w.doubts == nil {
		w.doubts = &doubts{}
	}
}

// goneBefore is how long a missing claim counts.
const goneBefore = time.Second

// noteGone notes that the claim was missing on a node, although an extension may have set it again, and l may not
// listen yet.
func (l *Lease) noteGone(node int) {
	l.keepDoubts()
	l.changeDoubts(func(d *doubts) {
		now := clock.Now().Mono
		if d.when < now-goneBefore {
			d.gone = 0
		}
		d.gone, d.when = d.gone.With(node), now
	})
}

func (l *Lease) goneSince(then time.Duration) (nodes claim.Nodes, told bool) {
	now := l.changeDoubts(func(*doubts) {})
	if now.when < then {
		return 0, now.told
	}
	return now.gone, now.told
}
