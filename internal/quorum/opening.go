package quorum

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/pool"
)

// This file gives the opening of connections a deadline of its own. A far node has answered a dial and a greeting only
// after several round trips, and a request can be written only then. So the node deadline of such a node begins when its
// connection is open.
//
// An acquire first waits until a quorum of nodes is open, and takes its start then: see Connect. Nothing has been sent for
// it before, so that is safe, and the lock has its whole validity. Every other round, and an acquire that needs further
// nodes, waits at its deadline: see awaitOpeningLocked. Its start is not moved, so that costs validity at most.

// maxOpeningSilence is how long a node that is being connected may give no sign of life while the votes are split: the
// longest round trip that distance explains. A round does not hold nodes for longer against others that want them.
const maxOpeningSilence = 500 * time.Millisecond

// link returns the connection of n, zero if the pool does not tell.
func (n *Node) link() pool.Link {
	if n.linked != nil {
		return n.linked.Link()
	}
	return pool.Link{}
}

// isOpening reports whether a connection is being opened.
func isOpening(l pool.Link) bool { return !l.Open && !l.Since.IsZero() }

// openingLimit returns how long the opening of l may take: as the client says, and at most limit.
func openingLimit(l pool.Link, limit time.Duration) time.Duration {
	if l.Limit > 0 {
		return min(limit, l.Limit)
	}
	return limit
}

// IsOpen reports whether requests can be written to a quorum of nodes at once.
func (s *Set) IsOpen() bool {
	var open claim.Nodes
	for i, n := range s.Nodes {
		if n.connecting == nil || n.connecting.IsOpen() {
			open = open.With(i)
		}
	}
	rule := s.Rule()
	return rule.Quorum(open & rule.All())
}

// Unopened returns the result of a round that was not begun, because ctx has ended in Connect. It names the nodes to which
// connections are being opened.
func (s *Set) Unopened() Result {
	res := Result{Cut: true, Set: s, Rule: s.Rule(), Votes: make([]claim.Vote, len(s.Nodes))}
	for i, n := range s.Nodes {
		if l := n.link(); isOpening(l) && res.Rule.All().Has(i) {
			res.Votes[i] = claim.Failure(noAnswerTo(l.Step, 0))
			res.Count = res.Count.With(i, claim.Failed)
		}
	}
	return res
}

// Connect waits until requests can be written to a quorum of nodes, or until so many connections could not be opened that
// no quorum is left. It does not wait for a connection that has been opening for longer than limit, or than its client
// allows. It also returns when ctx is done or over is closed.
func (s *Set) Connect(ctx context.Context, limit time.Duration, over <-chan struct{}) {
	c := &connecting{rule: s.Rule(), over: make(chan struct{})}
	c.missing = c.rule.All()
	wait := time.Duration(0)
	for i, n := range s.Nodes {
		if n.connecting == nil {
			c.tried(i, true)
			continue
		}
		left := limit
		if l := n.link(); isOpening(l) {
			left = openingLimit(l, limit) - time.Since(l.Since)
		}
		if left <= 0 {
			c.tried(i, false)
			continue
		}
		wait = max(wait, left)
		n.connecting.Connect(func(open bool) { c.tried(i, open) })
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-c.over:
	case <-timer.C:
	case <-ctx.Done():
	case <-over:
	}
}

// A connecting waits for connections.
type connecting struct {
	rule claim.Rule
	over chan struct{} // closed when the wait is over

	mu      sync.Mutex // guards what follows
	open    claim.Nodes
	missing claim.Nodes // no connection is open, and none has failed
	ended   bool
}

// tried notes that a connection to node i is open, or could not be opened.
func (c *connecting) tried(i int, open bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.missing = c.missing.Without(i)
	if open && c.rule.All().Has(i) {
		c.open = c.open.With(i)
	}
	if !c.ended && (c.rule.Quorum(c.open) || !c.rule.Quorum(c.open|c.missing)) {
		c.ended = true
		close(c.over)
	}
}

// awaitOpeningLocked makes the deadline of r, which has come, come later, if connections to missing nodes are still being
// opened or have been open for less than the node deadline, and these nodes could still decide. It reports whether it does.
func (r *Round) awaitOpeningLocked() bool {
	if r.timer == nil || r.proved.Blocked {
		return false
	}
	limits, began := r.timer.limitsOfRound()
	if limits.Open == 0 {
		return false
	}
	var awaited claim.Nodes
	var wait time.Duration
	missing := r.missingLocked()
	if r.hastened {
		missing &^= r.set.known.late.load()
	}
	for i, n := range r.set.Nodes {
		if !missing.Has(i) {
			continue
		}
		if left := leftToAnswer(n.link(), limits, began, r.hastened); left > 0 {
			awaited, wait = awaited.With(i), max(wait, left)
		}
	}
	if awaited == 0 || !r.mayDecideLocked(awaited) {
		return false
	}
	wait = min(wait, limits.Node) // a connection that opens meanwhile starts its node deadline
	r.timer.prolong(wait)
	if r.inTime != 0 {
		r.inTime += wait
	}
	return true
}

// leftToAnswer returns for how much longer a round that began that long ago waits for a node with the link l.
func leftToAnswer(l pool.Link, limits Limits, began time.Duration, split bool) time.Duration {
	switch lasts := time.Since(l.Since); {
	case l.Open && lasts < began:
		return limits.Node - lasts
	case !isOpening(l):
		return 0
	case split:
		return min(openingLimit(l, limits.Open)-lasts, limits.Open-began, maxOpeningSilence-time.Since(l.Sign))
	default:
		return min(openingLimit(l, limits.Open)-lasts, limits.Open-began)
	}
}

// mayDecideLocked reports whether a quorum could grant if all other missing nodes failed.
func (r *Round) mayDecideLocked(awaited claim.Nodes) bool {
	if r.rare.tally != nil {
		return true
	}
	count := r.count
	count.Failed |= r.missingLocked() &^ awaited
	return !r.Rule().Standing(count).Blocked
}

// noteOpening is noteOpeningLocked, at the end of a caller's wait.
func (r *Round) noteOpening(within time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.final && r.all == nil {
		return // it was decided at the same moment, and nobody waits for the other nodes
	}
	r.noteOpeningLocked(func(pool.Link) time.Duration { return within })
}

// noteOpeningLocked notes the errors of missing nodes to which a connection is being opened. within returns the time in
// which such a node has not answered; 0 if the caller's context was shorter.
func (r *Round) noteOpeningLocked(within func(l pool.Link) time.Duration) {
	missing := r.missingLocked()
	for i, n := range r.set.Nodes {
		if !missing.Has(i) || r.voteLocked(i).Err != nil {
			continue
		}
		if l := n.link(); isOpening(l) {
			r.keepErrLocked(i, noAnswerTo(l.Step, within(l)))
		}
	}
}

// noAnswerTo returns the error of a node whose connection could not be opened in that time.
func noAnswerTo(step pool.Step, within time.Duration) error {
	if within == 0 {
		return fmt.Errorf("%w to the %v yet", ErrNoAnswer, step)
	}
	return fmt.Errorf("%w to the %v within %v", ErrNoAnswer, step, within)
}
