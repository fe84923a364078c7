package queue

import (
	"time"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/jitter"
	"github.com/seed14bd9ef4/redsync/internal/lease"
)

// This file keeps waiters from haste. The release of each failed attempt wakes other waiters. If they try in vain, they
// wake others in turn, for ever. So a waiter hears only nodes whose votes count for it, and tries only if these can
// make a quorum. If it fails all the same, and no rival holds the lock, it pauses.

const (
	// maxHasty is how many attempts in a row a waiter makes in haste. Mostly the order of the queues ends a split with
	// the next one.
	maxHasty = 3

	// maxPause bounds the pause, in which the waiter does not show its ticket.
	maxPause = showEvery / 2
)

// A Rash switches rules of this file off, for tests.
type Rash uint8

// What a waiter does without a rule.
const (
	HearsAll    Rash = 1 << iota // hears nodes that do not count
	HearsLate                    // hears late nodes
	Hopes                        // tries even if that is hopeless
	NeverPauses                  // makes no pause
)

// A listening is how a waiter hears nodes.
type listening struct {
	*waiter
	rash    Rash
	patient bool // waits for late nodes
}

// freeLocked returns the nodes that count on which the name is free: they have told it, or the release of h's last
// attempt leaves it free.
func (h listening) freeLocked() claim.Nodes {
	return (h.news[h.at].woken | h.news[h.at].freed) & h.votesLocked()
}

// isHopelessLocked reports whether h cannot win before more nodes are free. If a node that was taken wakes h, messages
// of others may be lost. Then h tries, unless such an attempt was in vain lately, or late nodes are not heard.
func (h listening) isHopelessLocked() bool {
	if !h.areFewLocked() {
		return false
	}
	n := &h.news[h.at]
	return n.taken&n.woken == 0 || h.votesLocked() != h.terms.Keeper.Set.Rule().All() || h.vain
}

// areFewLocked reports whether the nodes that are not known to be taken are no quorum.
func (h listening) areFewLocked() bool {
	n := &h.news[h.at]
	return h.rash&Hopes == 0 && !h.terms.Keeper.Set.Rule().Quorum(h.votesLocked()&^(n.taken&^n.woken))
}

// votesLocked returns the nodes whose votes count for the next attempt, which waits for late nodes only if it is
// patient, or if the others are no quorum.
func (h listening) votesLocked() claim.Nodes {
	set := h.terms.Keeper.Set
	rule := set.Rule()
	votes := rule.All() &^ h.unfit
	if h.rash&HearsAll != 0 {
		votes = rule.All()
	}
	if h.rash&HearsLate != 0 {
		return votes
	}
	if near := votes &^ set.Late(); rule.Quorum(near) && !h.patient {
		return near
	}
	return votes
}

// isHastyLocked reports whether w tries because of news, and not because a time has passed.
func (w *waiter) isHastyLocked() bool {
	a, now := &w.agenda, time.Now()
	passed := func(t time.Time) bool { return !t.IsZero() && !t.After(now) }
	return !passed(a.runsOut) && !passed(a.refresh)
}

// afterLocked returns for how long h pauses after a failed attempt. hasty is how many of its last attempts were in
// haste and in vain, and now is the next such number.
func (h listening) afterLocked(o lease.Outcome, took time.Duration, inHaste bool, hasty int8) (pause time.Duration, now int8) {
	rule := o.Result.Rule
	switch {
	case rule == nil || rule.Quorum(o.Result.Taken): // the release of a rival is a reason to try at once
		return 0, 0
	case inHaste:
		hasty = min(hasty+1, maxHasty+maxRepeats+1) // more would not lengthen the pause
	}
	n := int(hasty)
	if o.Result.Taken != 0 {
		n -= maxHasty
	}
	if n <= 0 || h.rash&NeverPauses != 0 {
		return 0, hasty
	}
	return min(jitter.N(max(2*took, minJitter)<<min(n-1, maxRepeats)), maxPause), hasty
}
