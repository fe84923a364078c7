package quorum

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/script"
	"github.com/seed14bd9ef4/redsync/internal/wire"
)

// This file tells which server answers for a node. Two nodes of one set that are one server count once:
// otherwise two quorums might have no server in common. Locks go on while the distinct servers are still a quorum of
// all nodes, because any two such quorums have a server in common.
//
// A server that is a node of each of two joint sets at the same address is asked once and counts in both. A server that
// two addresses lead to counts only in the sets that have both addresses: one of them may be wrong. With the sets
// {1, 2, 3} and {1, 2, 4}, an address of 4 that leads to server 3 would let joint processes win on {2, 3}, and processes
// of the later set on {1, 4}.

// An identity is what is known of the servers behind the nodes.
type identity struct {
	asked   atomic.Bool                   // the first acquire has called FirstToIdentify: no later one waits to learn which servers the nodes are
	later   atomic.Bool                   // that acquire has failed: the next one waits
	servers []atomic.Pointer[wire.Server] // by node: the process that answered last, if known

	mu        sync.Mutex               // guards asking, told, and the comparison of all nodes when one of them changes
	asking    chan struct{}            // closed when the call of Identify that asks the nodes has ended; nil if none asks
	told      [][2]int                 // the pairs of one server that observers have been told of
	complete  atomic.Bool              // Identify has asked the nodes, and no pair of merged has come apart since
	news      atomic.Bool              // observers may have to be told of a pair, or that one has come apart
	duplicate atomic.Pointer[[2]int]   // two nodes that are one server, if too few servers are left; otherwise nil
	merged    atomic.Pointer[[][2]int] // of joint sets: pairs of nodes at one address of both sets; nil if there are none
	barred    atomic.Uint64            // of joint sets: the nodes that do not count, because their server has another address
}

// servers is what a Set knows of the servers behind its nodes: it embeds one. What the nodes' answers have shown stands in
// identity, which all Sets with the same clients and the same rule share.
type servers struct {
	Nodes []*Node

	rule     claim.Rule // holds unless two nodes are known to be one server: see Rule
	joint    bool       // two nodes in different sets of rule may be one server: see mayCoincide
	identity *identity
	merged   atomic.Pointer[merger] // the last one made
}

// FullRule returns the rule that treats every node as a separate server. It is for work that concerns every
// node, such as the subscriptions.
func (s *servers) FullRule() claim.Rule { return s.rule }

// Rule returns the rule by which votes decide. A round keeps to the rule that it began with.
func (s *servers) Rule() claim.Rule {
	if m := s.merger(); m != nil {
		return m.rule
	}
	return s.rule
}

// A Duplicate is a pair of nodes that are one server.
type Duplicate struct{ A, B *Node }

// Duplicate returns two nodes that are one server, if the distinct servers are no quorum of all nodes, or if three nodes
// of joint sets are one server. Otherwise it returns nil: locks go on.
func (s *servers) Duplicate() *Duplicate {
	if pair := s.identity.duplicate.Load(); pair != nil {
		return &Duplicate{s.Nodes[pair[0]], s.Nodes[pair[1]]}
	}
	return nil
}

// Pairs returns the pairs of nodes that are known to be one server, and must be two.
func (s *servers) Pairs() (pairs [][2]*Node) {
	known := s.identity
	for b := range s.Nodes {
		for a := range b {
			if sameServer(known.servers[a].Load(), known.servers[b].Load()) && !s.oneAddress(a, b) {
				pairs = append(pairs, [2]*Node{s.Nodes[a], s.Nodes[b]})
			}
		}
	}
	return pairs
}

// IsIdentified reports whether Identify has nothing to ask. Callers ask it first, so that a plain lock does not enter
// meeting.go.
func (s *servers) IsIdentified() bool { return !s.joint || s.identity.complete.Load() }

// FirstToIdentify reports whether the caller's acquire must wait to learn which server each node is. Only the first
// acquire on the nodes must wait, and only if a client is new in this process, or a pool does not tell whether its
// client is. So a dead node delays only one acquire, however that one ends. FirstToIdentify reports false for joint
// sets, because Identify asks there.
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
		first = !ok || !known.MetBefore() || first // first stands last, so that MetBefore is called on every node
	}
	return first
}

// IdentifyLater makes the next acquire wait to learn which server each node is, because the caller's has failed.
func (s *servers) IdentifyLater() { s.identity.later.Store(true) }

// Heard returns node i's reply to c, without arguments of c that it repeats in the text of an error. Each reply to a command
// with the value of a lock passes here first. Heard also does what NoteReply does.
func (s *servers) Heard(i int, reply wire.Reply, c *script.Command) wire.Reply {
	s.NoteReply(i, reply)
	if reply.Err != nil {
		reply.Err = c.Conceal(reply.Err)
	}
	return reply
}

// NoteReply notes which server process has sent a reply for node i. If that process is not known, node i of joint sets
// may lead to another server by now. Then node i counts for itself alone.
func (s *servers) NoteReply(i int, reply wire.Reply) {
	if isKnown(reply.Server) {
		s.NoteServer(i, reply.Server)
	} else if s.joint && reply.Fate == wire.Answered && s.identity.servers[i].Load() != nil {
		s.note(i, nil)
	}
}

// NoteServer notes the server process that has answered for node i. It costs one comparison if the process
// is the same as before.
func (s *servers) NoteServer(i int, server *wire.Server) {
	if isKnown(server) && s.identity.servers[i].Load() != server {
		s.note(i, server)
	}
}

// isKnown reports whether s says which server it is.
func isKnown(s *wire.Server) bool { return s != nil && s.RunID != "" }

func (s *servers) note(i int, server *wire.Server) {
	known := s.identity
	known.mu.Lock()
	defer known.mu.Unlock()
	before := pairsOf(known.merged.Load())
	known.servers[i].Store(server)
	s.compareLocked()
	after := pairsOf(known.merged.Load())
	if slices.ContainsFunc(before, func(pair [2]int) bool { return !slices.Contains(after, pair) }) {
		known.complete.Store(false) // the two may be one server again, such as after a restart
	}
}

func pairsOf(merged *[][2]int) [][2]int {
	if merged == nil {
		return nil
	}
	return *merged
}

// compareLocked finds the nodes that are one server.
func (s *servers) compareLocked() {
	known := s.identity
	var merged, pairs [][2]int
	var barred claim.Nodes
	servers := s.rule.All() // a node for each distinct server
	var duplicate *[2]int
	for b := range s.Nodes {
		for a := range b {
			switch {
			case !sameServer(known.servers[a].Load(), known.servers[b].Load()):
			case s.oneAddress(a, b):
				switch {
				case !s.sameKeys(a, b):
				case s.thirdLocked(a, b):
					duplicate = &[2]int{a, b}
				default:
					merged = append(merged, [2]int{a, b})
				}
			default:
				pairs = append(pairs, [2]int{a, b})
				out := s.notInBoth(a, b)
				barred |= out
				if servers &^= out; out == 0 {
					servers = servers.Without(b)
				}
			}
		}
	}
	known.barred.Store(uint64(barred))
	if !s.rule.Quorum(servers) {
		duplicate = &pairs[0]
	}
	known.duplicate.Store(duplicate) // once: others read it meanwhile
	known.news.Store(!slices.Equal(pairs, known.told))
	switch {
	case merged == nil:
		known.merged.Store(nil)
	case !slices.Equal(pairsOf(known.merged.Load()), merged):
		known.merged.Store(&merged)
	}
}

// notInBoth returns which of nodes a and b, two addresses of one server, do not count. The server counts only in the
// sets that have both.
func (s *servers) notInBoth(a, b int) (out claim.Nodes) {
	both := s.rule.Sets(a) & s.rule.Sets(b)
	for _, i := range [...]int{a, b} {
		if s.rule.Sets(i) != both {
			out = out.With(i)
		}
	}
	return out
}

// oneAddress reports whether nodes a and b, of different sets, have the same address. Then the address stands in both
// lists, with other clients or other databases.
func (s *servers) oneAddress(a, b int) bool {
	return !s.apart(a, b) && s.Nodes[a].listed == s.Nodes[b].listed
}

// TellServers tells t which nodes have turned out to be one server, and which such nodes have come apart again. It tells
// each once, whichever Redsync with the same clients asks.
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
			now := sameServer(first, second) && !s.oneAddress(a, b)
			switch over := !now && first != nil && second != nil; {
			case now && !before:
				t.OneServer(s.Nodes[a], s.Nodes[b], first.RunID)
			case before && over:
				t.TwoServers(s.Nodes[a], s.Nodes[b])
			}
			if now || before && (first == nil || second == nil) { // not known: nothing has come apart yet
				told = append(told, pair)
			}
		}
	}
	known.told = told
	known.news.Store(false)
}

// thirdLocked reports whether a third node is the server of nodes a and b. Then two of the three are in one set. Merging
// them would make that set smaller, so they are a Duplicate.
func (s *servers) thirdLocked(a, b int) bool {
	servers := s.identity.servers
	for c := range s.Nodes {
		if c != a && c != b && sameServer(servers[a].Load(), servers[c].Load()) {
			return true
		}
	}
	return false
}

// A merger is the rule of joint sets in which some pairs of nodes are one server.
type merger struct {
	pairs *[][2]int
	rule  claim.Rule
	other []int // by node: the node that it stands for as well; -1 for none
}

// merger returns the merger for the servers known by now, nil if no two nodes are known to be one server. If two nodes
// are one server, a round asks the node with the longer restart guard.
func (s *servers) merger() *merger {
	pairs := s.identity.merged.Load()
	if !s.joint || pairs == nil {
		return nil
	}
	if m := s.merged.Load(); m != nil && m.pairs == pairs {
		return m
	}
	m := &merger{pairs, s.rule, make([]int, len(s.Nodes))}
	for i := range m.other {
		m.other[i] = -1
	}
	for _, pair := range *pairs {
		asked, other := pair[0], pair[1]
		if s.Nodes[other].covers > s.Nodes[asked].covers {
			asked, other = other, asked
		}
		m.rule, m.other[asked] = m.rule.AsOne(asked, other), other
	}
	s.merged.Store(m)
	return m
}

// RunID returns which server process is known to be node i, "" if none is.
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

// sameServer reports whether two answers are known to come from one process.
func sameServer(s, t *wire.Server) bool {
	return isKnown(s) && isKnown(t) && s.RunID == t.RunID
}

// apart reports whether nodes a and b must be two servers, because they are in one set.
func (s *servers) apart(a, b int) bool {
	return s.rule.Sets(a)&s.rule.Sets(b) != 0
}

// standsForLess reports whether node i has left a set since a round began with rule. It was in that set only because
// its server was another node as well. Now another server answers for node i.
func (s *servers) standsForLess(i int, rule claim.Rule) bool {
	if !s.joint {
		return false
	}
	return rule.Sets(i)&^s.rule.Sets(i)&^s.Rule().Sets(i) != 0
}

// sameKeys reports whether nodes a and b have the same keys if they are one server.
func (s *servers) sameKeys(a, b int) bool {
	return s.Nodes[a].keyspace != nil && s.Nodes[a].keyspace == s.Nodes[b].keyspace
}

// mayCoincide reports whether two nodes of different sets may turn out to be one server.
func (s *servers) mayCoincide() bool {
	for b := range s.Nodes {
		for a := range b {
			if !s.apart(a, b) && (s.sameKeys(a, b) || !s.oneAddress(a, b)) {
				return true
			}
		}
	}
	return false
}

// Forget forgets which servers the nodes are, until each answers again.
func (s *servers) Forget() {
	known := s.identity
	known.mu.Lock()
	defer known.mu.Unlock()
	for i := range known.servers {
		known.servers[i].Store(nil)
	}
	s.compareLocked()
}
