// Package quorum asks independent nodes for votes, and decides once enough of them have voted. A
// round sends one command to all nodes. A server that is known to be two nodes of joint sets gets it once. The
// root of the library hands down the rule by which votes decide.
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
	"github.com/seed14bd9ef4/redsync/pool"
)

// A Set is the nodes of one Redsync, and what is known of them.
type Set struct {
	Nodes []*Node

	rule    claim.Rule // holds unless two nodes are known to be one server: see Rule
	joint   bool       // two nodes in different sets of rule may be one server: see mayCoincide
	guarded *Node      // the node with the shortest guard; nil if no node has a guard
	timers  roundTimers
	known   *Known
	merged  atomic.Pointer[merger] // the last one made
	retired atomic.Bool            // see Retire
}

// Known is what the traffic of locks has shown of the nodes. All Sets with the same clients and the same rule
// share it.
type Known struct {
	health   []Health // by node
	tenants  []tenant // by node
	identity identity
	late     lateNodes
	waitsOut bool // see WaitOutSplits
}

// NewKnown returns a Known for that many nodes. Nothing is known of them yet.
func NewKnown(nodes int) *Known {
	return &Known{
		health: make([]Health, nodes), tenants: make([]tenant, nodes),
		identity: identity{servers: make([]atomic.Pointer[pool.Server], nodes)},
	}
}

// NewSet returns the set of the nodes behind pools. A nil pool makes a node that nothing may be sent to.
func NewSet(pools []pool.Pool, known *Known, rule claim.Rule) *Set {
	s := &Set{rule: rule, known: known}
	for i, p := range pools {
		n := newNode(i, p)
		n.health, n.tenant = &known.health[i], &known.tenants[i]
		s.Nodes = append(s.Nodes, n)
		if n.guard != 0 && (s.guarded == nil || n.guard < s.guarded.guard) {
			s.guarded = n
		}
	}
	s.joint = s.mayCoincide()
	return s
}

// Retire ends what s tells of the health of nodes: later answers count only for other Sets with the same clients.
func (s *Set) Retire() { s.retired.Store(true) }

// FullRule returns the rule that treats every node as a separate server. It is for work that concerns every
// node, such as the subscriptions.
func (s *Set) FullRule() claim.Rule { return s.rule }

// Rule returns the rule by which votes decide. A round keeps to the rule that it began with.
func (s *Set) Rule() claim.Rule {
	if m := s.merger(); m != nil {
		return m.rule
	}
	return s.rule
}

// A Node is one independent Redis, as a Set knows it.
type Node struct {
	pool.Pool
	Index int

	usable   bool
	listed   string        // what stands for it in a list of addresses: see pool.Pool
	guard    time.Duration // the longest TTL that it may have forgotten by a restart; 0: no guard
	keyspace any           // equal for two nodes of one server if they have the same keys; nil if not known
	health   *Health
	tenant   *tenant

	denials denials
}

func newNode(i int, p pool.Pool) *Node {
	n := &Node{Pool: p, Index: i}
	if n.usable = Unusable(p) == nil; n.usable {
		n.listed, n.keyspace = p.String(), Keyspace(p)
		if known, ok := p.(pool.Listed); ok {
			n.listed = known.Listed()
		}
	}
	if guarded, ok := p.(pool.Guarded); ok {
		n.guard = guarded.RestartGuard()
	}
	return n
}

// Address returns what the pool calls the node now, "" if the pool is unusable.
func (n *Node) Address() string {
	if !n.usable {
		return ""
	}
	return n.String()
}

// Keyspace returns a comparable value that is equal for two pools of one server if they use the same keys there,
// nil if p does not tell.
func Keyspace(p pool.Pool) any {
	if known, ok := p.(pool.Keyed); ok {
		return known.Keyspace()
	}
	return nil
}

// Apart returns a node on which two of these keys may lie on different servers, and the two keys. It returns nil if
// there is no such node.
func (s *Set) Apart(keys []string) (n *Node, a, b string) {
	for _, n := range s.Nodes {
		if spread, ok := n.Pool.(pool.Spread); ok {
			for _, key := range keys[1:] {
				if !spread.Together(keys[0], key) {
					return n, keys[0], key
				}
			}
		}
	}
	return nil, "", ""
}

// IsBehind reports whether a node that answers is behind with its replies: see pool.Pool.
func (s *Set) IsBehind() bool {
	for _, n := range s.Nodes {
		if p, ok := n.Pool.(pool.Limited); ok && p.IsBehind() {
			return true
		}
	}
	return false
}

// Unusable returns why p can never serve, nil if it may.
func Unusable(p pool.Pool) error {
	if p == nil {
		return errors.New("it is nil")
	}
	if known, ok := p.(pool.Failing); ok {
		return known.Err()
	}
	return nil
}
