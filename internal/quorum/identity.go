package quorum

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/script"
	"github.com/seed14bd9ef4/redsync/internal/wire"
)

// This file tells which server answers for a node. Two nodes of one set that are one server count once: otherwise two
// quorums might share no server.
//
// In joint sets, a server that two nodes lead to counts only in sets that have both: one address may be wrong. With the
// sets {1, 2, 3} and {1, 2, 4}, an address of 4 that leads to server 3 would otherwise let joint processes win on
// {2, 3}, and others on {1, 4}.

// An identity is what is known of the servers behind the nodes.
type identity struct {
	asked   atomic.Bool                   // FirstToIdentify was called
	later   atomic.Bool                   // see IdentifyLater
	servers []atomic.Pointer[wire.Server] // by node: which answered last, if known

	mu        sync.Mutex             // guards asking, told, and the comparison of nodes
	asking    chan struct{}          // closed when the Identify that asks ends; or nil
	told      [][2]int               // pairs told to observers
	complete  atomic.Bool            // Identify need not ask
	news      atomic.Bool            // TellServers may have something to tell
	duplicate atomic.Pointer[[2]int] // see Duplicate
	barred    atomic.Uint64          // of joint sets: nodes that do not count: see notInBoth
}

// servers is what a Set knows of the servers behind its nodes. Sets with the same clients and rule share the identity.
type servers struct {
	Nodes []*Node

	rule     claim.Rule
	joint    bool // see mayCoincide
	identity *identity
}

// Rule returns the rule by which votes decide.
func (s *servers) Rule() claim.Rule { return s.rule }

// A Duplicate is a pair of nodes that are one server.
type Duplicate struct{ A, B *Node }

// Duplicate returns two nodes that are one server, if locks cannot go on: the distinct servers are no quorum.
func (s *servers) Duplicate() *Duplicate {
	if pair := s.identity.duplicate.Load(); pair != nil {
		return &Duplicate{s.Nodes[pair[0]], s.Nodes[pair[1]]}
	}
	return nil
}

// Pairs returns the pairs of nodes that are one server, but must be two.
func (s *servers) Pairs() (pairs [][2]int) {
	for b := range s.Nodes {
		for a := range b {
			if s.areOne(a, b) {
				pairs = append(pairs, [2]int{a, b})
			}
		}
	}
	return pairs
}

func (s *servers) areOne(a, b int) bool {
	known := s.identity
	return sameServer(known.servers[a].Load(), known.servers[b].Load()) && !s.twoDatabases(a, b)
}

// IsIdentified reports whether Identify has nothing to ask.
func (s *servers) IsIdentified() bool { return !s.joint || s.identity.complete.Load() }

// FirstToIdentify reports whether the caller's acquire must wait to learn which servers the nodes are: the first with
// these clients, and the next after IdentifyLater. So a dead node delays few. For joint sets Identify asks.
func (s *servers) FirstToIdentify() bool {
	known := s.identity
	if s.joint {
		return false
	}
	if known.asked.Load() || !known.asked.CompareAndSwap(false, true) {
		return known.later.Load() && known.later.CompareAndSwap(true, false)
	}
	first := false
	for _, n := range s.Nodes {
		known, ok := n.Pool.(wire.Met)
		first = !ok || !known.MetBefore() || first // last, so that MetBefore is called on every node
	}
	return first
}

// IdentifyLater makes the next acquire wait for that.
func (s *servers) IdentifyLater() { s.identity.later.Store(true) }

// Heard notes the server of a reply, and takes arguments of c out of it that an error repeats. Each reply to a command
// with the value of a lock passes here.
func (s *servers) Heard(i int, reply *wire.Reply, c *script.Command) {
	s.NoteServer(i, reply.Server)
	if reply.Err != nil {
		reply.Err = c.Conceal(reply.Err)
	}
}

// NoteServer notes which server process has answered for node i, if that is known.
func (s *servers) NoteServer(i int, server *wire.Server) {
	known := s.identity
	if !isKnown(server) || known.servers[i].Load() == server {
		return
	}
	known.mu.Lock()
	defer known.mu.Unlock()
	barred := known.barred.Load()
	known.servers[i].Store(server)
	s.compareLocked()
	if barred&^known.barred.Load() != 0 {
		known.complete.Store(false) // two nodes may be one server again, such as after a restart
	}
}

func isKnown(s *wire.Server) bool { return s != nil && s.RunID != "" }

func (s *servers) compareLocked() {
	known := s.identity
	pairs := s.Pairs()
	var barred claim.Nodes
	servers := s.rule.All() // a node for each
	for _, pair := range pairs {
		out := s.notInBoth(pair[0], pair[1])
		barred |= out
		if servers &^= out; out == 0 {
			servers = servers.Without(pair[1])
		}
	}
	known.barred.Store(uint64(barred))
	var duplicate *[2]int
	if !s.rule.Quorum(servers) {
		duplicate = &pairs[0]
	}
	known.duplicate.Store(duplicate) // once: others read it meanwhile
	known.news.Store(!slices.Equal(pairs, known.told))
}

// notInBoth returns which of two addresses of one server do not count: it counts only in sets with both.
func (s *servers) notInBoth(a, b int) (out claim.Nodes) {
	both := s.rule.Sets(a) & s.rule.Sets(b)
	for _, i := range [...]int{a, b} {
		if s.rule.Sets(i) != both {
			out = out.With(i)
		}
	}
	return out
}

// twoDatabases reports whether a and b are two databases at one address, in different sets: each counts in its own.
func (s *servers) twoDatabases(a, b int) bool {
	first, second := s.Nodes[a], s.Nodes[b]
	return !s.apart(a, b) && first.listed == second.listed && first.keyspace != second.keyspace
}

// TellServers tells t, once, which nodes have turned out to be one server, and which of these have come apart.
func (s *servers) TellServers(t Tracer) {
	known := s.identity
	if t == nil || !known.news.Load() {
		return
	}
	known.mu.Lock()
	defer known.mu.Unlock()
	told := known.told[:0:0]
	for b := range s.Nodes {
		for a := range b {
			pair := [2]int{a, b}
			first, second := known.servers[a].Load(), known.servers[b].Load()
			before := slices.Contains(known.told, pair)
			now := s.areOne(a, b)
			switch over := !now && first != nil && second != nil; {
			case now && !before:
				t.OneServer(s.Nodes[a], s.Nodes[b], first.RunID)
			case before && over:
				t.TwoServers(s.Nodes[a], s.Nodes[b])
			}
			if now || before && (first == nil || second == nil) { // nothing has come apart yet
				told = append(told, pair)
			}
		}
	}
	known.told = told
	known.news.Store(false)
}

// RunID returns which server process is node i, "" if that is not known.
func (s *servers) RunID(i int) string {
	if known := s.identity.servers[i].Load(); known != nil {
		return known.RunID
	}
	return ""
}

// MayBeOne reports whether node i of s and node j of t may be one server with the same keys.
func (s *Set) MayBeOne(i int, t *Set, j int) bool {
	a, b := s.Nodes[i].keyspace, t.Nodes[j].keyspace
	switch mine, other := s.RunID(i), t.RunID(j); {
	case s.identity == t.identity && i == j:
		return true
	case a != nil && b != nil && a != b:
		return false
	case mine != "" && other != "":
		return mine == other
	}
	return s.identity != t.identity
}

func sameServer(s, t *wire.Server) bool {
	return isKnown(s) && isKnown(t) && s.RunID == t.RunID
}

func (s *servers) apart(a, b int) bool {
	return s.rule.Sets(a)&s.rule.Sets(b) != 0
}

// mayCoincide reports whether two nodes of different sets may be one server.
func (s *servers) mayCoincide() bool {
	for b := range s.Nodes {
		for a := range b {
			if !s.apart(a, b) && !s.twoDatabases(a, b) {
				return true
			}
		}
	}
	return false
}

// Forget forgets which servers the nodes are.
func (s *servers) Forget() {
	known := s.identity
	known.mu.Lock()
	defer known.mu.Unlock()
	for i := range known.servers {
		known.servers[i].Store(nil)
	}
	s.compareLocked()
}
