package quorum

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/pool"
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
	servers []atomic.Pointer[pool.Server] // by node: the process that answered last, if known

	mu        sync.Mutex               // guards asking, told, and the comparison of all nodes when one of them changes
	asking    chan struct{}            // closed when the call of Identify that asks the nodes has ended; nil if none asks
	told      [][2]int                 // the pairs of one server that observers have been told of
	complete  atomic.Bool              // Identify has asked the nodes, and no pair of merged has come apart since
	news      atomic.Bool              // observers may have to be told of a pair, or that one has come apart
	duplicate atomic.Pointer[[2]int]   // two nodes that are one server, if too few servers are left; otherwise nil
	merged    atomic.Pointer[[][2]int] // of joint sets: pairs of nodes at one address of both sets; nil if there are none
	barred    atomic.Uint64            // of joint sets: the nodes that do not count, because their server has another address
}

// A Duplicate is a pair of nodes that are one server.
type Duplicate struct{ A, B *Node }

// Duplicate returns two nodes that are one server, if the distinct servers are no quorum of all nodes, or if three nodes
// of joint sets are one server. Otherwise it returns nil: locks go on.
func (s *Set) Duplicate() *Duplicate {
	if pair := s.known.identity.duplicate.Load(); pair != nil {
		return &Duplicate{s.Nodes[pair[0]], s.Nodes[pair[1]]}
	}
	return nil
}

// Pairs returns the pairs of nodes that are known to be one server, and must be two.
func (s *Set) Pairs() (pairs [][2]*Node) {
	known := &s.known.identity
	for b := range s.Nodes {
		for a := range b {
			if sameServer(known.servers[a].Load(), known.servers[b].Load()) && !s.oneAddress(a, b) {
				pairs = append(pairs, [2]*Node{s.Nodes[a], s.Nodes[b]})
			}
		}
	}
	return pairs
}

// FirstToIdentify reports whether the caller's acquire must wait to learn which server each node is. Only the first
// acquire on the nodes must wait, and only if a client is new in this process, or a pool does not tell whether its
// client is. So a dead node delays only one acquire, however that one ends. FirstToIdentify reports false for joint
// sets, because Identify asks there.
func (s *Set) FirstToIdentify() bool {
	known := &s.known.identity
	if s.joint {
		return false
	}
	if known.asked.Load() || !known.asked.CompareAndSwap(false, true) {
		return known.later.Load() && known.later.CompareAndSwap(true, false)
	}
	first := false
	for _, n := range s.Nodes {
		known, ok := n.Pool.(pool.Met)
		first = !ok || !known.MetBefore() || first // first stands last, so that MetBefore is called on every node
	}
	return first
}

// IdentifyLater makes the next acquire wait to learn which server each node is, because the caller's has failed.
func (s *Set) IdentifyLater() { s.known.identity.later.Store(true) }

// Identify asks the nodes of joint sets which servers they are, if two of them may be one server. One call asks; calls
// that come meanwhile wait for it, each for its own IdentifyTimeout at most. Without Identify the first acquire would
// ask such a server twice, and the server would refuse the second time. Identify reports whether it has waited.
func (s *Set) Identify(ctx context.Context, nodeTimeout time.Duration) (waited bool) {
	known := &s.known.identity
	if !s.joint || known.complete.Load() {
		return false
	}
	timer := time.NewTimer(IdentifyTimeout(ctx, nodeTimeout))
	defer timer.Stop()
	for !known.complete.Load() {
		others, own := known.ask()
		if own != nil {
			s.identify(ctx, nodeTimeout, own)
			return true
		}
		select {
		case <-others: // if that call was cut short by its context, this one asks
		case <-timer.C:
			return true
		case <-ctx.Done():
			return true
		}
	}
	return true
}

// ask returns in others the channel of the call that asks the nodes. If no call does, it returns a new channel in own:
// then the caller must ask the nodes, and close own.
func (k *identity) ask() (others <-chan struct{}, own chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.asking != nil {
		return k.asking, nil
	}
	k.asking = make(chan struct{})
	return nil, k.asking
}

// identify asks the nodes, and closes done. If ctx leaves less time than the node deadline, and no quorum answers in
// that time, the next call asks again.
func (s *Set) identify(ctx context.Context, nodeTimeout time.Duration, done chan struct{}) {
	known, complete := &s.known.identity, false
	defer func() {
		known.mu.Lock()
		known.asking = nil
		known.complete.Store(complete)
		known.mu.Unlock()
		close(done)
	}()
	timeout := IdentifyTimeout(ctx, nodeTimeout)
	res := s.Start(ctx, Ping{}, true).Wait(ctx, Limits{Decide: timeout, Node: timeout})
	complete = res.Won || timeout == min(nodeTimeout, maxIdentify) && ctx.Err() == nil
}

// maxIdentify is how long at most an operation waits to learn which server each node is. A duplicate that is found later
// counts once from then on.
const maxIdentify = 400 * time.Millisecond

// IdentifyTimeout returns how long at most an operation waits to learn which server each node is: maxIdentify, the node
// deadline, or half of the time that ctx has left, whichever is least. The caller needs the other half for its work
// with the lock.
func IdentifyTimeout(ctx context.Context, nodeTimeout time.Duration) time.Duration {
	timeout := min(nodeTimeout, maxIdentify)
	if deadline, ok := ctx.Deadline(); ok {
		timeout = min(timeout, time.Until(deadline)/2)
	}
	return timeout
}

// NoteReply notes which server process has sent a reply for node i. If that process is not known, node i of joint sets
// may lead to another server by now. Then node i counts for itself alone.
func (s *Set) NoteReply(i int, reply pool.Reply) {
	if reply.Server != nil {
		s.NoteServer(i, reply.Server)
	} else if s.joint && reply.Fate == pool.Answered && s.known.identity.servers[i].Load() != nil {
		s.note(i, nil)
	}
}

// NoteServer notes the server process that has answered for node i. It costs one comparison if the process
// is the same as before.
func (s *Set) NoteServer(i int, server *pool.Server) {
	if server != nil && s.known.identity.servers[i].Load() != server {
		s.note(i, server)
	}
}

func (s *Set) note(i int, server *pool.Server) {
	known := &s.known.identity
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
func (s *Set) compareLocked() {
	known := &s.known.identity
	var merged, pairs [][2]int
	var barred claim.Nodes
	servers := s.rule.All() // a node for each distinct server
	known.duplicate.Store(nil)
	for b := range s.Nodes {
		for a := range b {
			switch {
			case !sameServer(known.servers[a].Load(), known.servers[b].Load()):
			case s.oneAddress(a, b):
				switch {
				case !s.sameKeys(a, b):
				case s.thirdLocked(a, b):
					known.duplicate.Store(&[2]int{a, b})
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
		known.duplicate.Store(&pairs[0])
	}
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
func (s *Set) notInBoth(a, b int) (out claim.Nodes) {
	joint, ok := s.rule.(claim.JointRule)
	if !ok {
		return 0
	}
	both := joint.Sets(a) & joint.Sets(b)
	for _, i := range [...]int{a, b} {
		if joint.Sets(i) != both {
			out = out.With(i)
		}
	}
	return out
}

// oneAddress reports whether nodes a and b, of different sets, have the same address. Then the address stands in both
// lists, with other clients or other databases.
func (s *Set) oneAddress(a, b int) bool {
	return !s.apart(a, b) && s.Nodes[a].listed == s.Nodes[b].listed
}

// TellServers tells t which nodes have turned out to be one server, and which such nodes have come apart again. It tells
// each once, whichever Redsync with the same clients asks.
func (s *Set) TellServers(t Tracer) {
	known := &s.known.identity
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
func (s *Set) thirdLocked(a, b int) bool {
	servers := s.known.identity.servers
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
func (s *Set) merger() *merger {
	pairs := s.known.identity.merged.Load()
	if !s.joint || pairs == nil {
		return nil
	}
	if m := s.merged.Load(); m != nil && m.pairs == pairs {
		return m
	}
	rule, m := s.rule.(claim.JointRule), &merger{pairs: pairs, other: make([]int, len(s.Nodes))}
	for i := range m.other {
		m.other[i] = -1
	}
	for _, pair := range *pairs {
		asked, other := pair[0], pair[1]
		if s.Nodes[other].guard > s.Nodes[asked].guard {
			asked, other = other, asked
		}
		rule, m.other[asked] = rule.AsOne(asked, other), other
	}
	m.rule = rule
	s.merged.Store(m)
	return m
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

// standsForLess reports whether node i has left a set since a round began with rule. It was in that set only because
// its server was another node as well. Now another server answers for node i.
func (s *Set) standsForLess(i int, rule claim.Rule) bool {
	if !s.joint {
		return false
	}
	own, now := s.rule.(claim.JointRule).Sets(i), s.Rule().(claim.JointRule).Sets(i)
	return rule.(claim.JointRule).Sets(i)&^own&^now != 0
}

// sameKeys reports whether nodes a and b have the same keys if they are one server.
func (s *Set) sameKeys(a, b int) bool {
	return s.Nodes[a].keyspace != nil && s.Nodes[a].keyspace == s.Nodes[b].keyspace
}

// mayCoincide reports whether two nodes of different sets may turn out to be one server.
func (s *Set) mayCoincide() bool {
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
func (s *Set) Forget() {
	known := &s.known.identity
	known.mu.Lock()
	defer known.mu.Unlock()
	for i := range known.servers {
		known.servers[i].Store(nil)
	}
	s.compareLocked()
}
