package queue

import (
	"time"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/jitter"
	"github.com/seed14bd9ef4/redsync/internal/lease"
)

// This file keeps waiters from haste. The release of each failed attempt wakes other waiters. If they try although they
// cannot win, they wake others in turn, for ever and without a pause. So a waiter hears only nodes whose votes count for its
// claim, and tries only if these can make a quorum. If it fails all the same, and no rival holds the lock, it pauses.

const (
	// maxHasty is how many attempts in a row a waiter makes in haste while its votes are split, before it pauses. Mostly the
	// order of the queues ends a split with the next attempt.
	maxHasty = 3

	// maxPause bounds the pause. The waiter does not show its ticket meanwhile.
	maxPause = showEvery / 2
)

// A Rash switches rules of this file off, for tests that show what they are good for.
type Rash uint8

// The rules.
const (
	HearsAll    Rash = 1 << iota // nodes that do not count are heard
	HearsLate                    // late nodes are heard
	Hopes                        // a wake-up is a reason to try, even if that is hopeless
	NeverPauses                  // no attempt is followed by a pause
)

// freeLocked returns the nodes on which the name that c waits for is free, as far as c knows: those that have told it, and
// those on which the release of its last attempt leaves the name free. Only nodes whose votes count are heard.
func (c *call) freeLocked() claim.Nodes {
	return (c.news[c.at].woken | c.news[c.at].freed) & c.votesLocked()
}

// isHopelessLocked reports whether c cannot win before more nodes tell it that the name is free: those that have not said that
// it is taken are no quorum. If one of those that have said so wakes c, something has been released, and the messages of the
// others may be lost. That is a reason to try, unless such an attempt was in vain not long ago, or some nodes are not heard: what
// a late node has been sent may reach it while others release.
func (c *call) isHopelessLocked() bool {
	if c.group.Rash&Hopes != 0 || !c.areFewLocked() {
		return false
	}
	n := &c.news[c.at]
	return n.taken&n.woken == 0 || c.votesLocked() != c.terms.Keeper.Set.Rule().All() || c.vain
}

// areFewLocked reports whether the nodes that have not said that the name is taken, or have woken c since, are no quorum.
func (c *call) areFewLocked() bool {
	n := &c.news[c.at]
	return !c.terms.Keeper.Set.Rule().Quorum(c.votesLocked() &^ (n.taken &^ n.woken))
}

// votesLocked returns the nodes whose votes count for the next attempt of c. Late nodes are left out if the others can make a
// quorum: the attempt does not wait for late nodes then, unless it is patient.
func (c *call) votesLocked() claim.Nodes {
	set := c.terms.Keeper.Set
	rule := set.Rule()
	votes := rule.All() &^ c.unfit
	if c.group.Rash&HearsAll != 0 {
		votes = rule.All()
	}
	if c.group.Rash&HearsLate != 0 {
		return votes
	}
	if near := votes &^ set.Late(); rule.Quorum(near) && !(c.split != nil && c.split.arePatient()) {
		return near
	}
	return votes
}

// isHastyLocked reports whether c tries because of what it has heard, and not because a time has passed.
func (c *call) isHastyLocked() bool {
	a, now := &c.agenda, time.Now()
	passed := func(t time.Time) bool { return !t.IsZero() && !t.After(now) }
	return !passed(a.runsOut) && !passed(a.refresh)
}

// pauseLocked returns until when c pauses after its attempt u with the outcome o has failed; zero if it need not pause.
func (c *call) pauseLocked(u *turn, o lease.Outcome) (end time.Time) {
	rule := o.Result.Rule
	switch {
	case rule == nil || rule.Quorum(o.Result.Taken): // a rival may hold the lock, and its release is a reason to try at once
		c.hasty = 0
		return end
	case u.hasty:
		c.hasty = min(c.hasty+1, maxHasty+maxRepeats+1) // the pause grows no further
	}
	n := int(c.hasty)
	if o.Result.Taken != 0 {
		n -= maxHasty // rivals are trying
	}
	if n <= 0 || c.group.Rash&NeverPauses != 0 {
		return end
	}
	took := time.Since(u.began)
	return time.Now().Add(min(jitter.N(max(2*took, minJitter)<<min(n-1, maxRepeats)), maxPause))
}
