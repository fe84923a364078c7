// Package quorum asks independent nodes for votes, and decides once enough of them have voted. A
// round sends one command to all nodes. The root of the library hands down the rule by which votes decide.
//
// A command goes down through Set.Start, Round.Send and pool.Pool.Send. A reply comes back through
// Round.Receive, Operation.Judge, Round.Cast and Round.add. Only lease.Release sends and receives by itself,
// because it repeats its command on each node until that node is settled. It uses a Round just to count.
package quorum

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/pool"
)

// A Set is the nodes of one Redsync, and what is known of them.
type Set struct {
	Nodes []*Node
	Rule  claim.Rule

	guarded  *Node // the node with the shortest guard; nil if no node has a guard
	timers   roundTimers
	identity identity
}

// NewSet returns the set of the nodes behind pools. health is by node; other Sets with the same clients
// share it. A nil pool makes a node that nothing may be sent to.
func NewSet(pools []pool.Pool, health []Health, rule claim.Rule) *Set {
	s := &Set{Rule: rule}
	for i, p := range pools {
		n := newNode(i, p)
		n.health = &health[i]
		s.Nodes = append(s.Nodes, n)
		if n.guard != 0 && (s.guarded == nil || n.guard < s.guarded.guard) {
			s.guarded = n
		}
	}
	return s
}

// A Node is one independent Redis, as a Set knows it.
type Node struct {
	pool.Pool
	Index   int
	Address string // as the pool names it; "" if the pool is unusable

	guard  time.Duration               // the longest TTL that it may have forgotten by a restart; 0: no guard
	server atomic.Pointer[pool.Server] // the process that answered last, if known
	health *Health

	deniedUntil atomic.Int64 // monotonic time; see Denies
	toldDenied  atomic.Bool
}

func newNode(i int, p pool.Pool) *Node {
	n := &Node{Pool: p, Index: i}
	if Unusable(p) == nil {
		n.Address = p.String()
	}
	if guarded, ok := p.(interface{ RestartGuard() time.Duration }); ok {
		n.guard = guarded.RestartGuard()
	}
	return n
}

// Unusable returns why p can never serve, nil if it may.
func Unusable(p pool.Pool) error {
	if p == nil {
		return errors.New("it is nil")
	}
	if known, ok := p.(interface{ Err() error }); ok {
		return known.Err()
	}
	return nil
}

// deniedFor is for how long releases leave out the queue on a node, after it has denied the client's user
// access to a queue.
const deniedFor = 5 * time.Second

// Deny notes that the node denies the client's user access to a queue. It reports whether that is the first
// time.
func (n *Node) Deny() (first bool) {
	n.deniedUntil.Store(int64(clock.Now().Mono + deniedFor))
	return !n.toldDenied.Swap(true)
}

// Denies reports whether the node has denied the client's user access to a queue less than deniedFor ago.
func (n *Node) Denies() bool {
	until := n.deniedUntil.Load()
	return until != 0 && int64(clock.Now().Mono) < until
}
