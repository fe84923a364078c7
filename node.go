package redsync

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed14bd9ef4/redsync/pool"
)

// This file is who the nodes are: which server process answers for a node, for how
// long it has been running, and whether two nodes are one.

// A node is one independent Redis, as a core knows it.
type node struct {
	pool.Pool
	index   int
	address string                      // as the pool names it
	guard   time.Duration               // the longest TTL in use that it may have forgotten; 0: no guard
	server  atomic.Pointer[pool.Server] // the process that answered last, if known

	deniedUntil atomic.Int64 // monotonic time; see denies
	toldDenied  atomic.Bool

	health *health // the group's
	drain  drain   // of Close
}

func newNode(i int, p pool.Pool) *node {
	n := &node{Pool: p, index: i}
	if unusable(p) == nil {
		n.address = p.String()
	}
	if guarded, ok := p.(interface{ RestartGuard() time.Duration }); ok {
		n.guard = guarded.RestartGuard()
	}
	return n
}

// uptimeGranularity is what an uptime may be too much: INFO reports whole seconds.
const uptimeGranularity = time.Second

// distrust returns why what a node granted or confirmed does not count, nil if it
// does. sent is a time before the request was. A node that has restarted may have forgotten
// locks, until the longest-lived of them has run out everywhere, and for a margin its
// fencing registers.
func (n *node) distrust(s *pool.Server, sent time.Time, driftFactor float64, margin time.Duration) error {
	switch {
	case n.guard == 0:
		return nil
	case s == nil:
		return errUnknownServer
	case s.New && s.Age(sent) >= 0: // less: it started after the request, which another one answered
		return nil
	}
	quarantine := n.quarantine(driftFactor, margin)
	if age := s.Age(sent); age < quarantine {
		return &distrust{max(age, 0).Round(time.Millisecond), quarantine}
	}
	return nil
}

// A distrust is why a node that has restarted does not count yet.
type distrust struct{ age, quarantine time.Duration }

func (e *distrust) Error() string {
	return fmt.Sprintf("restarted %v before: it counts from %v on", e.age, e.quarantine)
}

// isDistrust reports whether err is of a node that answers, but whose grants do not count.
func isDistrust(err error) bool {
	restarted, ok := err.(*distrust)                         //nolint:errorlint // it is not wrapped
	return ok && restarted != nil || err == errUnknownServer //nolint:errorlint // a sentinel
}

// quarantine returns for how long a node does not count after its start.
func (n *node) quarantine(driftFactor float64, margin time.Duration) time.Duration {
	margin += scale(n.guard, driftFactor)
	if n.guard > math.MaxInt64-clockDrift-uptimeGranularity-margin { // it overflows
		return math.MaxInt64
	}
	return n.guard + margin + clockDrift + uptimeGranularity
}

var errUnknownServer = errors.New("it is not known how long the server has been running (INFO)")

// census knows which nodes are one server at two addresses. Two nodes with one
// memory count once: else two quorums might share no node.
type census struct {
	known atomic.Bool // an acquire has waited, or need not wait, for what every node has to say

	mu    sync.Mutex
	twins atomic.Pointer[twins] // nil if there are none
}

// introduces reports whether the caller's acquire is the one that waits to hear which
// server each node is: the first on a client in this process. No other acquire waits, so
// that a node which does not answer is waited for once, however this one ends.
func (c *core) introduces() bool {
	if c.census.known.Load() || !c.census.known.CompareAndSwap(false, true) {
		return false
	}
	first := false
	for _, n := range c.nodes {
		known, ok := n.Pool.(interface{ MetBefore() bool })
		first = !ok || !known.MetBefore() || first // ask each of them
	}
	return first
}

// introduction returns for how long at most an acquire waits to hear which server each
// node is: for the node deadline, and half of the time that ctx has left. The caller
// needs the rest for what it does with the lock.
func introduction(ctx context.Context, nodeTimeout time.Duration) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return nodeTimeout
	}
	return min(nodeTimeout, time.Until(deadline)/2)
}

// twins are two nodes that are one server.
type twins struct {
	a, b      int
	addresses [2]string
}

func (t *twins) err() error {
	if t.addresses[0] == t.addresses[1] {
		return fmt.Errorf("%w: #%d and #%d (%s)", ErrDuplicateNode, t.a, t.b, t.addresses[0])
	}
	return fmt.Errorf("%w: #%d (%s) and #%d (%s)", ErrDuplicateNode, t.a, t.addresses[0], t.b, t.addresses[1])
}

// meet notes the process that has answered for node i. It costs a comparison when
// that is no other than before.
func (c *core) meet(i int, s *pool.Server) {
	if s == nil || c.nodes[i].server.Load() == s {
		return
	}
	c.census.mu.Lock()
	defer c.census.mu.Unlock()
	c.nodes[i].server.Store(s)
	var found *twins
	for b := range c.nodes {
		for a := range b {
			if sameServer(c.nodes[a].server.Load(), c.nodes[b].server.Load()) {
				found = &twins{a, b, [2]string{c.nodes[a].address, c.nodes[b].address}}
			}
		}
	}
	c.census.twins.Store(found)
}

// sameServer reports whether two answers are known to be of one process.
func sameServer(s, t *pool.Server) bool {
	return s != nil && t != nil && s.RunID == t.RunID
}

// duplicate returns ErrDuplicateNode, with the nodes, if two are one server.
func (c *core) duplicate() error {
	if t := c.census.twins.Load(); t != nil {
		return t.err()
	}
	return nil
}

// stillDuplicate asks the nodes again where two were one server, and returns
// ErrDuplicateNode if they are: an address may lead elsewhere by now, and nothing else is
// sent that could tell.
func (c *core) stillDuplicate(ctx context.Context, t timing) error {
	c.forget()
	startRound(c, ping{}, true).wait(ctx, bounds{decide: t.nodeTimeout, node: t.nodeTimeout})
	return c.duplicate()
}

// forget forgets who the nodes are, until each answers.
func (c *core) forget() {
	c.census.mu.Lock()
	defer c.census.mu.Unlock()
	for _, n := range c.nodes {
		n.server.Store(nil)
	}
	c.census.twins.Store(nil)
}

// allows returns an error if a guarded node does not reckon with so long a TTL.
func (c *core) allows(ttl time.Duration) error {
	if c.guarded == nil || ttl <= c.guarded.guard {
		return nil
	}
	return outOfRange("WithExpiry and WithLockDelay", ttl, fmt.Sprintf(
		"together at most %v, which pool #%d guards (pool.WithRestartGuard)", c.guarded.guard, c.guarded.index))
}
