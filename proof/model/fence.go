package model

import (
	"fmt"
	"strings"
)

// This file models fencing tokens: registers on three nodes, and Locks that propose tokens.
//
// The model leaves out the keys of locks. A node may grant any acquire, or not answer. That covers every
// behavior of a lock, even a violation of exclusion. The answer that the lock is taken is left out,
// because a node that gives this answer does not touch its register. Messages are as in lock.go: a node
// executes them late, never or repeatedly, with or without a reply.
//
// Some bounds have no time. In these, clocks need not agree at all: a client proposes any number up to a
// limit. The bounds in which registers expire or nodes restart have time. In these, a client proposes the
// time, counted from 1, plus the ticks by which its clock is ahead.

const maxLocks = 3

type fenceState struct {
	nodes    [numNodes]fenceNode
	locks    [maxLocks]fenceLock
	now      uint8
	used     uint16 // the tokens that Locks have returned, as bits
	fault    fenceFault
	restarts uint8 // so far
}

type fenceNode struct {
	register uint8
	idle     uint8          // ticks since the register was last used
	young    uint8          // ticks until the node's votes count
	votes    [maxLocks]vote // yes: it has stored the proposal
}

type fenceLock struct {
	phase    lockPhase // idle, asking or held
	proposal uint8
	earlier  [2]uint8 // proposals of earlier rounds, still on their way
	seen     uint8    // the highest register that a node has shown
	rounds   uint8    // begun after the first
	least    uint8    // the highest token returned before this Lock was called
	called   uint8    // when Lock was called
	asked    uint8    // when the last round began
	token    uint8    // that Lock has returned
}

type fenceFault uint8

const (
	noFault fenceFault = iota
	notAbove
	twice
)

type fenceBounds struct {
	name      string
	locks     int
	proposals uint8 // the highest proposal of a first round, in bounds without time; the lowest is 1
	highest   uint8 // the highest token
	rounds    uint8 // after the first round

	ticks    uint8 // how long the model lasts; 0: without time
	skew     uint8 // the most ticks by which a client's clock is ahead
	window   uint8 // ticks within which a Lock succeeds or fails
	ttl      uint8 // of a register since its last use; 0: for ever
	restarts uint8
	guard    uint8 // ticks after a restart for which a node does not count
	agree    bool  // clocks agree, a message takes at least a tick, and two Locks may return the same token
	size     Size
}

// Each field of fenceFlaws weakens a rule: see fenceRules.
type fenceFlaws struct {
	equal, unstored, kept, expires, noGuard, short bool
}

// sized returns the same bounds with another size. It serves mutations, which take less time than the sound
// model.
func (b fenceBounds) sized(size Size) fenceBounds {
	b.size = size
	return b
}

type fence struct {
	fenceBounds
	fenceFlaws
}

var (
	fenceSkewed   = fenceBounds{name: "two locks, any proposals", locks: 2, proposals: 3, highest: 5, rounds: 1}
	fenceTwice    = fenceBounds{name: "two locks, any proposals, two more rounds", locks: 2, proposals: 4, highest: 7, rounds: 2, size: Large}
	fenceThree    = fenceBounds{name: "three locks, any proposals", locks: 3, proposals: 3, highest: 3, size: Large}
	fenceExpires  = fenceBounds{name: "registers expire", locks: 2, highest: 12, ticks: 4, skew: 1, window: 1, ttl: 3}
	fenceRestarts = fenceBounds{name: "restarts without data, with the guard", locks: 2, highest: 12, ticks: 4, skew: 1, window: 1, restarts: 1, guard: 3, size: Large}
	fenceAgree    = fenceBounds{name: "restarts without the guard, clocks agree", locks: 2, highest: 12, rounds: 1, ticks: 3, window: 2, restarts: 2, agree: true, size: Medium}
)

var fenceRules = []struct {
	name, section, rule string
	bounds              fenceBounds
	flaws               fenceFlaws
}{
	{"a register as high as the proposal will do", "4 fencing tokens", "a node stores a proposal only if it is above the register; otherwise two Locks may return the same token", fenceSkewed, fenceFlaws{equal: true}},
	{"a grant will do", "4 fencing tokens", "the token is the proposal that a quorum has stored; nodes that granted the lock but not the token do not count", fenceSkewed, fenceFlaws{unstored: true}},
	{"votes of the round before", "4 fencing tokens", "a round with a higher proposal begins without the votes of the round before", fenceSkewed, fenceFlaws{kept: true}},
	{"registers expire too early", "4 fencing tokens", "a register lasts longer than the skew of the clocks plus the time that an attempt takes", fenceExpires, fenceFlaws{expires: true}},
	{"no restart guard", "5 restart guard", "if clocks may disagree, a node that has restarted does not count until its guard has passed", fenceRestarts.sized(Medium), fenceFlaws{noGuard: true}},
	{"the guard is a tick short", "5 restart guard", "the guard lasts longer than the skew of the clocks plus the time that an attempt takes", fenceRestarts.sized(Medium), fenceFlaws{short: true}},
}

func fenceCases() (cases []Case) {
	for _, b := range []fenceBounds{fenceSkewed, fenceTwice, fenceThree, fenceExpires, fenceRestarts, fenceAgree} {
		cases = append(cases, Case{Model: "fence", Name: b.name, Size: b.size, Explore: fence{b, fenceFlaws{}}.explore})
	}
	return cases
}

func fenceMutations() (cases []Case) {
	for _, r := range fenceRules {
		cases = append(cases, Case{Model: "fence", Name: r.name, Rule: r.rule, Section: r.section, Size: r.bounds.size, Explore: fence{r.bounds, r.flaws}.explore})
	}
	return cases
}

func (f fence) explore(how Search) Result {
	return Find(System[fenceState]{
		Clients: []string{"A", "B", "C"}, Next: f.next, Same: sameFence, Wrong: wrongFence, Show: func(s fenceState) string { return s.show() },
	}, how)
}

// wrongFence checks the promise: a token is above all tokens returned before its Lock was called,
// and no two tokens are equal.
func wrongFence(s fenceState) string {
	switch s.fault {
	case notAbove:
		return "a token is not above one that was returned before its Lock was called"
	case twice:
		return "the same token twice"
	}
	return ""
}

func (f fence) next(s fenceState, do func(Step, fenceState)) {
	if f.harmless(&s) {
		return
	}
	for i := range f.locks {
		f.client(s, i, do)
		for n := range s.nodes {
			f.node(s, i, n, do)
		}
	}
	if s.restarts < f.restarts {
		f.restart(s, do)
	}
	if s.now < f.ticks {
		f.tick(s, do)
	}
}

// harmless reports whether no violation can follow. A violation needs two Locks that succeed, and the second
// of them must still be under way or not yet called.
func (f fence) harmless(s *fenceState) bool {
	successes, open := 0, 0
	for i, l := range s.locks[:f.locks] {
		switch {
		case l.phase == held:
			successes++
		case l.phase == idle || !f.late(s, i):
			open++
		}
	}
	return open == 0 || successes+open < 2
}

// client adds the steps of the client of Lock i.
func (f fence) client(s fenceState, i int, do func(Step, fenceState)) {
	l := &s.locks[i]
	switch l.phase {
	case idle:
		if i > 0 && s.locks[i-1].phase == idle {
			return // Locks are called in order, because they are interchangeable
		}
		f.call(s, i, do)
	case asking:
		if f.late(&s, i) {
			return
		}
		if f.stored(&s, i) {
			f.win(s, i, do)
		}
		if l.rounds < f.rounds && l.seen >= l.proposal && l.seen < f.highest {
			f.proposeMore(s, i, do)
		}
	}
}

// call begins Lock i, once for each proposal that its client may make.
func (f fence) call(s fenceState, i int, do func(Step, fenceState)) {
	lowest, highest := uint8(1), f.proposals
	if f.ticks > 0 {
		lowest, highest = s.now+1, s.now+1+f.skew
	}
	for p := lowest; p <= highest; p++ {
		t := s
		l := &t.locks[i]
		l.phase, l.proposal, l.called, l.asked = asking, p, s.now, s.now
		l.least = highestToken(s.used)
		do(Step{"{c} calls Lock and sends its acquire", Choice, i, 0}, t)
	}
}

func highestToken(used uint16) (token uint8) {
	for ; used > 1; used >>= 1 {
		token++
	}
	return token
}

// late reports whether it is too late for Lock i to succeed.
func (f fence) late(s *fenceState, i int) bool {
	return f.ticks > 0 && s.now-s.locks[i].called > f.window
}

// stored reports whether a quorum has stored the proposal of Lock i.
func (f fence) stored(s *fenceState, i int) bool {
	votes := 0
	for _, n := range s.nodes {
		if n.votes[i] == yes || n.votes[i] == no && f.unstored {
			votes++
		}
	}
	return votes >= quorum
}

// win makes Lock i return its proposal as the token.
func (f fence) win(s fenceState, i int, do func(Step, fenceState)) {
	l := &s.locks[i]
	switch {
	case l.proposal <= l.least:
		s.fault = notAbove
	case s.used>>l.proposal&1 == 1 && !f.agree:
		s.fault = twice
	}
	s.used |= 1 << l.proposal
	l.phase, l.token, l.seen = held, l.proposal, 0
	s.forget(i)
	do(Step{"{c}'s Lock RETURNS its token", Work, i, 0}, s)
}

// proposeMore begins another round of Lock i, with a proposal above every register that the Lock has seen.
func (f fence) proposeMore(s fenceState, i int, do func(Step, fenceState)) {
	l := &s.locks[i]
	l.earlier[l.rounds] = l.proposal
	l.rounds++
	l.proposal, l.asked = l.seen+1, s.now
	if !f.kept {
		s.forget(i)
	}
	do(Step{"{c} proposes more and sends its acquire again", Work, i, 0}, s)
}

func (s *fenceState) forget(i int) {
	for n := range s.nodes {
		s.nodes[n].votes[i] = pending
	}
}

// node adds the steps in which a node executes a message of Lock i. The message is the acquire of this
// round, with or without a reply, or the acquire of an earlier round. After the Lock has returned, the
// message may also be the release, which raises the register to the token.
func (f fence) node(s fenceState, i, node int, do func(Step, fenceState)) {
	l := s.locks[i]
	if l.phase == idle {
		return
	}
	onTheWay := f.agree && s.now == l.asked
	for k, p := range [...]uint8{l.earlier[0], l.earlier[1], l.proposal} {
		if k == 2 && onTheWay {
			return
		}
		t := s
		if p > 0 {
			t.nodes[node].grant(p)
		}
		if t != s {
			do(Step{"node {n} executes an acquire of {c}'s, unnoticed", Work, i, node}, t)
		}
	}
	if l.phase != asking || s.nodes[node].votes[i] != pending {
		return
	}
	n := &s.nodes[node]
	stored := n.register < l.proposal || f.equal && n.register == l.proposal
	n.grant(l.proposal)
	n.votes[i] = no
	if stored && n.young == 0 {
		n.votes[i] = yes
	}
	s.locks[i].seen = max(l.seen, n.register)
	do(Step{"node {n} executes {c}'s acquire", Work, i, node}, s)
}

// grant is the effect of an acquire on the register of a node where the lock is free.
func (n *fenceNode) grant(proposal uint8) {
	n.register, n.idle = max(n.register, proposal), 0
}

func (f fence) restart(s fenceState, do func(Step, fenceState)) {
	s.restarts++
	for i := range s.nodes {
		t := s
		n := &t.nodes[i]
		n.register, n.idle, n.young = 0, 0, f.quarantine()
		do(Step{"node {n} restarts without data", Choice, 0, i}, t)
	}
}

func (f fence) quarantine() uint8 {
	switch {
	case f.noGuard:
		return 0
	case f.short:
		return f.guard - 1
	}
	return f.guard
}

func (f fence) tick(s fenceState, do func(Step, fenceState)) {
	s.now++
	ttl := f.ttl
	if f.expires {
		ttl--
	}
	for i := range s.nodes {
		n := &s.nodes[i]
		n.young = max(n.young, 1) - 1
		if n.register > 0 && ttl > 0 {
			n.idle++
			if n.idle == ttl {
				n.register, n.idle = 0, 0
			}
		}
	}
	do(Step{Text: "a tick passes", Kind: Timer}, s)
}

func sameFence(s fenceState) fenceState {
	sortNodes(&s.nodes, func(n *fenceNode) uint64 {
		return pack(n.register, n.idle, n.young, uint8(n.votes[0]), uint8(n.votes[1]), uint8(n.votes[2]))
	})
	return s
}

func (s *fenceState) show() string {
	var b strings.Builder
	b.WriteString("registers")
	for _, n := range s.nodes {
		fmt.Fprintf(&b, " %d", n.register)
	}
	for i, l := range s.locks {
		switch {
		case l.token > 0:
			fmt.Fprintf(&b, "  %c has token %d", 'A'+i, l.token)
		case l.phase == asking:
			fmt.Fprintf(&b, "  %c proposes %d", 'A'+i, l.proposal)
		}
	}
	return b.String()
}
