package quorum

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/pool"
)

// This file finds out which server answers for a node. Two nodes of one set that are one server count once:
// otherwise two quorums might have no server in common. If a server has one address in each of two joint sets,
// it is asked at one of them and counts in both sets.

// An identity is what is known of the servers behind the nodes.
type identity struct {
	asked   atomic.Bool                   // the first acquire has called FirstToIdentify: no later one waits to learn which servers the nodes are
	servers []atomic.Pointer[pool.Server] // by node: the process that answered last, if known

	mu         sync.Mutex                      // guards identified, and the comparison of all nodes when one of them changes
	identified chan struct{}                   // closed when Identify has asked the nodes; nil until it begins
	complete   atomic.Bool                     // Identify has asked the nodes
	duplicate  atomic.Pointer[[2]int]          // two nodes of one set that are one server; nil if there are none
	merged     atomic.Pointer[claim.JointRule] // joint sets: the rule by which two nodes of one server are one; nil if there are none
}

// A Duplicate is a pair of nodes of one set that are one server.
type Duplicate struct{ A, B *Node }

// Duplicate returns two nodes of one set that are one server, nil if there are none.
func (s *Set) Duplicate() *Duplicate {
	if pair := s.known.identity.duplicate.Load(); pair != nil {
		return &Duplicate{s.Nodes[pair[0]], s.Nodes[pair[1]]}
	}
	return nil
}

// FirstToIdentify reports whether the caller's acquire must wait to learn which server each node is. Only the
// first acquire on the nodes does, and only if one of the clients is new in this process, or its pool does not
// tell. So a dead node delays only one acquire, however that one ends. FirstToIdentify always reports false for
// the sets for which Identify asks the nodes.
func (s *Set) FirstToIdentify() bool {
	known := &s.known.identity
	if s.joint || known.asked.Load() || !known.asked.CompareAndSwap(false, true) {
		return false
	}
	first := false
	for _, n := range s.Nodes {
		known, ok := n.Pool.(interface{ MetBefore() bool })
		first = !ok || !known.MetBefore() || first // first stands last, so that MetBefore is called on every node
	}
	return first
}

// Identify asks the nodes of joint sets which servers they are, if two of them may be one server. Only the first
// call asks; calls that come meanwhile wait for it. Without Identify the first acquire would ask such a server
// twice, and the server would refuse the second time. Identify reports whether it has waited.
func (s *Set) Identify(ctx context.Context, nodeTimeout time.Duration) (waited bool) {
	if !s.joint || s.known.identity.complete.Load() {
		return false
	}
	known := &s.known.identity
	known.mu.Lock()
	done, first := known.identified, known.identified == nil
	if first {
		done = make(chan struct{})
		known.identified = done
	}
	known.mu.Unlock()
	if !first {
		select {
		case <-done:
		case <-ctx.Done():
		}
		return true
	}
	defer close(done)
	defer known.complete.Store(true)
	timeout := IdentifyTimeout(ctx, nodeTimeout)
	s.Start(ctx, Ping{}, true).Wait(ctx, Limits{Decide: timeout, Node: timeout})
	return true
}

// IdentifyTimeout returns how long at most a call waits to learn which server each node is: the node
// deadline, or half of the time that ctx has left if that is less. The caller needs the other half for the
// lock itself and its work.
func IdentifyTimeout(ctx context.Context, nodeTimeout time.Duration) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return nodeTimeout
	}
	return min(nodeTimeout, time.Until(deadline)/2)
}

// NoteServer notes the server process that has answered for node i. It costs one comparison if the process
// is the same as before.
func (s *Set) NoteServer(i int, server *pool.Server) {
	known := &s.known.identity
	if server == nil || known.servers[i].Load() == server {
		return
	}
	known.mu.Lock()
	defer known.mu.Unlock()
	known.servers[i].Store(server)
	s.compareLocked()
}

// compareLocked notes which nodes are one server: as a duplicate if they are in one set, otherwise in merged if
// they have the same keys. The caller holds the identity's mutex.
func (s *Set) compareLocked() {
	known := &s.known.identity
	var duplicate *[2]int
	var merged *claim.JointRule
	for b := range s.Nodes {
		for a := range b {
			switch {
			case !sameServer(known.servers[a].Load(), known.servers[b].Load()):
			case s.apart(a, b):
				duplicate = &[2]int{a, b}
			case s.sameKeys(a, b):
				rule := s.rule.(claim.JointRule)
				if merged != nil {
					rule = *merged
				}
				stands, other := a, b // the pool with the longer guard asks for both
				if s.Nodes[b].guard > s.Nodes[a].guard {
					stands, other = b, a
				}
				rule = rule.AsOne(stands, other)
				merged = &rule
			}
		}
	}
	known.duplicate.Store(duplicate)
	known.merged.Store(merged)
}

// sameServer reports whether two answers are known to come from one process.
func sameServer(s, t *pool.Server) bool {
	return s != nil && t != nil && s.RunID == t.RunID
}

// apart reports whether nodes a and b must be two servers, because they are in one set.
func (s *Set) apart(a, b int) bool {
	joint, ok := s.rule.(claim.JointRule)
	return !ok || joint.Sets(a)&joint.Sets(b) != 0
}

// standsForLess reports whether node i counted in more sets by rule, with which a round began, than it does now.
// When the round began, node i and another node were known to be one server, so i counted for both. That is not
// known any more, usually because another server has answered for one of them since.
func (s *Set) standsForLess(i int, rule claim.Rule) bool {
	if !s.joint {
		return false
	}
	return rule.(claim.JointRule).Sets(i)&^s.Rule().(claim.JointRule).Sets(i) != 0
}

// sameKeys reports whether nodes a and b have the same keys if they are one server.
func (s *Set) sameKeys(a, b int) bool {
	return s.Nodes[a].keyspace != nil && s.Nodes[a].keyspace == s.Nodes[b].keyspace
}

// mayCoincide reports whether two nodes of different sets may turn out to be one server, which then counts in both
// sets.
func (s *Set) mayCoincide() bool {
	for b := range s.Nodes {
		for a := range b {
			if !s.apart(a, b) && s.sameKeys(a, b) {
				return true
			}
		}
	}
	return false
}

// Forget forgets which servers the nodes are, until each answers again.
func (s *Set) Forget() {
	known := &s.known.identity
	known.mu.Lock()
	defer known.mu.Unlock()
	for i := range known.servers {
		known.servers[i].Store(nil)
	}
	s.compareLocked()
}
