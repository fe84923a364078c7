// Package quorum asks independent nodes for votes, and decides once enough of them have voted.
//
// A command goes down through Set.Start, Round.Send and wire.Pool.Send. A reply comes back through Round.Receive,
// Operation.Judge, Round.Cast and Round.addLocked. Only the releases and fills of package lease send and receive by
// themselves.
package quorum

import (
	"sync/atomic"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/wire"
)

// A Set is the nodes of one Redsync.
type Set struct {
	servers
	guarded *Node
	timers  roundTimers
	known   *Known
	retired atomic.Bool
}

// Known is what traffic has shown of the nodes. All Sets with the same clients and rule share it.
type Known struct {
	health   []Health
	tenants  []tenant
	identity identity
	late     lateNodes
	waitsOut bool
}

// NewKnown returns a Known that knows nothing yet.
func NewKnown(nodes int) *Known {
	return &Known{
		health: make([]Health, nodes), tenants: make([]tenant, nodes),
		identity: identity{servers: make([]atomic.Pointer[wire.Server], nodes)},
	}
}

// NewSet returns the set of the nodes behind pools. Nothing may be sent to a nil pool.
func NewSet(pools []wire.Pool, known *Known, rule claim.Rule) *Set {
	s := &Set{known: known}
	s.rule, s.identity = rule, &known.identity
	for i, p := range pools {
		n := newNode(i, p, &known.tenants[i])
		s.Nodes = append(s.Nodes, n)
		if n.IsGuarded() && (s.guarded == nil || n.covers < s.guarded.covers) {
			s.guarded = n
		}
	}
	s.joint = s.mayCoincide()
	return s
}

// Retire ends what s tells of nodes' health.
func (s *Set) Retire() { s.retired.Store(true) }

// Guard returns the node with the shortest restart guard, and its length, which all guards cover; nil and 0 without a
// guard.
func (s *Set) Guard() (n *Node, longest time.Duration) {
	if s.guarded == nil {
		return nil, 0
	}
	return s.guarded, s.guarded.covers
}

// Apart returns a node on which two of these keys may be on different servers, and these keys; or nil.
func (s *Set) Apart(keys []string) (n *Node, a, b string) {
	for _, n := range s.Nodes {
		if spread, ok := n.Pool.(wire.Spread); ok {
			for _, key := range keys[1:] {
				if !spread.Together(keys[0], key) {
					return n, keys[0], key
				}
			}
		}
	}
	return nil, "", ""
}

// Publish sends a message to all nodes, and waits for none. It may be lost: who needs it also asks.
func (s *Set) Publish(channel, message string) {
	args := []any{"publish", channel, message}
	for _, n := range s.Nodes {
		_ = n.Send(wire.Request{Args: args, To: nobody{}})
	}
}

type nobody struct{}

// Receive implements wire.Receiver.
func (nobody) Receive(int, wire.Reply) {}

// IsBehind reports whether a node is behind with its replies: see wire.Pool.
func (s *Set) IsBehind() bool {
	for _, n := range s.Nodes {
		if p, ok := n.Pool.(wire.Limited); ok && p.IsBehind() {
			return true
		}
	}
	return false
}
