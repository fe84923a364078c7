package queue

import (
	"time"

	"github.com/seed14bd9ef4/redsync/internal/claim"
)

// This file decides why and when a waiter tries next. It takes no lock, reads no clock and does no I/O itself:
// a view gives it what it needs.

// An agenda is what a waiter knows of why and when to try next. Each attempt begins with an empty one.
type agenda struct {
	ready          bool        // try at once: it is new or now the first, must repeat its attempt, or the lock was released
	followsRelease bool        // try right behind a release of this process: no other process is known to wait
	polls          bool        // it polls, because the retry delay of its pacer is over
	woken          claim.Nodes // the nodes that have woken it since the last attempt began
	freed          claim.Nodes // the nodes that granted the last attempt, whose release frees them
	graceEnd       time.Time   // when it tries even if fewer nodes than a quorum have woken it; zero: no node has
	runsOut        time.Time   // when the claim that refused the last attempt runs out on a quorum; zero: not known
	refresh        time.Time   // when the ticket must be shown to the nodes again
}

// An event is what makes a waiter go on.
type event int

const (
	nothing      event = iota
	handed             // the lock has been handed over to it
	tryNow             // there is reason to try
	elapsed            // the retry delay of this waiter is over
	prompted           // the retry delay of its pacer is over
	notFirst           // nothing: it is neither the first in line nor the pacer
	unsubscribed       // there is reason to try, but no subscription has been opened
	ended              // the context is done, or the Redsync closed
)

// A view is what a waiter sees around it.
type view struct {
	now       time.Time // zero if handedOff, or if neither first nor paces
	handedOff bool      // the lock has been handed over to it
	first     bool      // it is the first in its line
	paces     bool      // it is not the first, but its retry delay decides when the first polls
	tick      time.Time // when its retry delay is over

	// Set for the first in line only.
	held          time.Duration // how much longer this process holds the lock, as far as the line knows
	rule          claim.Rule
	subscriptions subscriptions
}

// subscriptions tell whether a waiter can hear the nodes: see subscriber.hears.
type subscriptions interface {
	hears() (from time.Time, listens bool)
}

// next returns what the waiter must do now, and until when it may wait if that is nothing. The time is only
// for the first in line and the waiter that paces it. The others go by pace.sleep.
func (v view) next(a agenda) (event, time.Time) {
	switch {
	case v.handedOff:
		return handed, v.tick
	case !v.first && !v.paces:
		return notFirst, v.tick
	case !v.now.Before(v.tick):
		return elapsed, v.tick
	case !v.first:
		return nothing, v.tick
	case a.polls:
		return prompted, v.tick
	case v.held > 0:
		return nothing, earlier(v.tick, v.now.Add(v.held))
	}
	at := earlier(earlier(a.runsOut, a.refresh), a.graceEnd)
	if !a.ready && !a.wokenBy(v.rule) && (at.IsZero() || at.After(v.now)) {
		return nothing, earlier(v.tick, at)
	}
	switch from, listens := v.subscriptions.hears(); {
	case !listens:
		return unsubscribed, v.now
	case !from.IsZero():
		return nothing, earlier(v.tick, from)
	}
	return tryNow, v.now
}

// wokenBy reports whether the lock is free on a quorum: on the nodes that have woken the waiter (at least
// one) and on the nodes that the waiter's own release has freed.
func (a agenda) wokenBy(rule claim.Rule) bool {
	return !a.graceEnd.IsZero() && rule.Quorum(a.woken|a.freed)
}

// earlier returns the earlier of two times. A zero time is never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
