package quorum

import (
	"fmt"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/wire"
)

// This file gives the opening of connections its own deadline. A far node answers dial and greeting only after several
// round trips, so its node deadline begins when its connection is open. That costs validity, at most half of the
// expiry.
//
// A stopped machine may accept a dial and answer no greeting. So a node that has accepted must give a sign of life
// within Limits.Reach. The same holds for the dial of a late node, and while votes are split, because the round then
// keeps others from nodes.

// maxApart bounds Limits.Reach once another node has answered, maxSplit if votes are split.
const (
	maxApart = 400 * time.Millisecond
	maxSplit = 300 * time.Millisecond
)

func (n *Node) link() wire.Link {
	if n.linked != nil {
		return n.linked.Link()
	}
	return wire.Link{}
}

func isOpening(l wire.Link) bool { return !l.Open && !l.Since.IsZero() }

func (l Limits) opening(link wire.Link) time.Duration {
	if link.Limit > 0 {
		return min(l.Open, link.Limit)
	}
	return l.Open
}

// deadlineOf returns the node deadline, which begins when a request can be written.
func (l Limits) deadlineOf(link wire.Link) time.Duration {
	return max(l.Node, min(link.Distance+link.Distance/2, l.Far))
}

// awaitOpeningLocked prolongs the deadline, which has come, if nodes could decide whose connections are being opened,
// or are younger than the node deadline.
func (r *Round) awaitOpeningLocked() bool {
	limits, began := r.timer.limitsOfRound()
	if limits.Open == 0 || r.proved.Blocked {
		return false
	}
	var awaited claim.Nodes
	var wait time.Duration
	missing, late := r.missingLocked(), r.set.known.late.load()
	if r.hastened {
		missing &^= late
	}
	for i, n := range r.set.Nodes {
		if !missing.Has(i) {
			continue
		}
		if left := r.leftToAnswer(i, n.link(), limits, began, late.Has(i)); left > 0 {
			awaited, wait = awaited.With(i), max(wait, left)
		}
	}
	if awaited == 0 || !r.mayDecideLocked(awaited) {
		return false
	}
	wait = min(wait, limits.Node) // one that opens meanwhile begins its node deadline
	r.timer.prolong(wait)
	if r.inTime != 0 {
		r.inTime += wait
	}
	return true
}

// leftToAnswer returns how much longer r, which began that long ago, waits for node i.
func (r *Round) leftToAnswer(i int, l wire.Link, limits Limits, began time.Duration, late bool) time.Duration {
	lasts, deadline := time.Since(l.Since), limits.deadlineOf(l)
	if s := r.Ballots[i].sent; (s == InFull || s == Resent) && l.Distance > limits.Node/4 { // it has answered once
		deadline += min(l.Distance+l.Distance/2, limits.Far)
	}
	switch {
	case l.Open && lasts < began && r.hastened:
		return min(deadline, maxSplit) - lasts
	case l.Open && lasts < began:
		return deadline - lasts
	case l.Open && !r.hastened && !late:
		return deadline - began
	case !isOpening(l):
		return 0
	}
	left := min(limits.opening(l)-lasts, limits.Open-began)
	if r.hastened || late || l.Step == wire.Greeting {
		left = min(left, r.reach(l, limits)-time.Since(l.Sign))
	}
	return left
}

// connecting returns how long to wait for other nodes after the decision: until the node deadline of those whose
// connection has opened since, and a little for others.
func (r *Round) connecting(l Limits, took time.Duration) (wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l.Open == 0 {
		return 0
	}
	missing, late := r.missingLocked(), r.set.known.late.load()
	for i, n := range r.set.Nodes {
		if !missing.Has(i) {
			continue
		}
		link := n.link()
		left := r.leftToAnswer(i, link, l, took, late.Has(i))
		if isOpening(link) {
			left = min(left, r.set.known.late.patience(took))
		}
		wait = max(wait, left)
	}
	return wait
}

func (r *Round) reach(l wire.Link, limits Limits) time.Duration {
	reach := limits.Reach
	switch {
	case r.hastened:
		return min(reach, maxSplit)
	case r.count.Answered() != 0:
		reach = min(reach, max(limits.Node, maxApart))
	}
	return max(reach, limits.deadlineOf(l))
}

func (r *Round) mayDecideLocked(awaited claim.Nodes) bool {
	if r.rare.tally != nil {
		return true
	}
	count := r.count
	count.Failed |= r.missingLocked() &^ awaited
	return !r.Rule().Standing(count).Blocked
}

func (r *Round) noteOpening(within time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.final && r.all == nil {
		return // decided at the same moment
	}
	r.noteOpeningLocked(within)
}

// noteOpeningLocked notes an error for missing nodes that are opening a connection. within is 0 if ctx has ended the
// wait.
func (r *Round) noteOpeningLocked(within time.Duration) {
	missing := r.missingLocked()
	for i, n := range r.set.Nodes {
		if !missing.Has(i) || r.voteLocked(i).Err != nil {
			continue
		}
		if l := n.link(); isOpening(l) {
			r.keepErrLocked(i, noAnswerTo(l.Step, within))
		}
	}
}

func noAnswerTo(step wire.Step, within time.Duration) error {
	if within == 0 {
		return fmt.Errorf("%w to the %v yet", ErrNoAnswer, step)
	}
	return fmt.Errorf("%w to the %v within %v", ErrNoAnswer, step, within)
}

// inWords rounds d, so that equal failures have equal texts.
func inWords(d time.Duration) time.Duration {
	if d < 100*time.Millisecond {
		return max(d.Truncate(time.Millisecond), time.Millisecond)
	}
	return d.Truncate(100 * time.Millisecond)
}

// IsOpen reports whether connections to a quorum, and to all nodes that are not late, are open.
func (s *Set) IsOpen() bool {
	open := s.open()
	return claim.FirstNodes(len(s.Nodes))&^open&^s.known.late.load() == 0 && s.rule.Quorum(open)
}

// HasOpenQuorum reports whether connections to a quorum are open.
func (s *Set) HasOpenQuorum() bool { return s.rule.Quorum(s.open()) }

// open includes nodes whose pools do not tell.
func (s *Set) open() (open claim.Nodes) {
	for i, n := range s.Nodes {
		if n.linked == nil || n.linked.Link().Open {
			open = open.With(i)
		}
	}
	return open
}

// IsNear reports whether requests can be written to all nodes at once, and distance makes no node deadline longer than
// within.
func (s *Set) IsNear(within time.Duration) bool {
	for _, n := range s.Nodes {
		if n.linked == nil {
			continue
		}
		if l := n.linked.Link(); !l.Open || l.Distance+l.Distance/2 > within {
			return false
		}
	}
	return true
}
