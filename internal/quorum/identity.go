package quorum

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed14bd9ef4/redsync/pool"
)

// This file tells which server answers for a node. Two nodes that are one server count once: otherwise two
// quorums might have no server in common.

// An identity is what is known of the servers behind the nodes.
type identity struct {
	asked atomic.Bool // the first acquire has called FirstToIdentify: no later one waits to learn which servers the nodes are

	mu        sync.Mutex // guards the comparison of all nodes when one of them changes
	duplicate atomic.Pointer[Duplicate]
}

// A Duplicate is a pair of nodes that are one server.
type Duplicate struct{ A, B *Node }

// Duplicate returns two nodes that are one server, nil if there are none.
func (s *Set) Duplicate() *Duplicate { return s.identity.duplicate.Load() }

// FirstToIdentify reports whether the caller's acquire must wait to learn which server each node is. Only the
// first acquire on a Set does, and only if one of the clients is new in this process, or its pool does not
// tell. So a dead node delays only one acquire, however that one ends.
func (s *Set) FirstToIdentify() bool {
	if s.identity.asked.Load() || !s.identity.asked.CompareAndSwap(false, true) {
		return false
	}
	first := false
	for _, n := range s.Nodes {
		known, ok := n.Pool.(interface{ MetBefore() bool })
		first = !ok || !known.MetBefore() || first // first stands last, so that MetBefore is called on every node
	}
	return first
}

// IdentifyTimeout returns how long at most an acquire waits to learn which server each node is: the node
// deadline, or half of the time that ctx has left if that is less. The caller needs the other half for its
// work with the lock.
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
	if server == nil || s.Nodes[i].server.Load() == server {
		return
	}
	s.identity.mu.Lock()
	defer s.identity.mu.Unlock()
	s.Nodes[i].server.Store(server)
	var found *Duplicate
	for b := range s.Nodes {
		for a := range b {
			if sameServer(s.Nodes[a].server.Load(), s.Nodes[b].server.Load()) {
				found = &Duplicate{s.Nodes[a], s.Nodes[b]}
			}
		}
	}
	s.identity.duplicate.Store(found)
}

// sameServer reports whether two answers are known to come from one process.
func sameServer(s, t *pool.Server) bool {
	return s != nil && t != nil && s.RunID == t.RunID
}

// Forget forgets which servers the nodes are, until each answers again.
func (s *Set) Forget() {
	s.identity.mu.Lock()
	defer s.identity.mu.Unlock()
	for _, n := range s.Nodes {
		n.server.Store(nil)
	}
	s.identity.duplicate.Store(nil)
}
