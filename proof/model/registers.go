package model

import (
	"fmt"
	"slices"
	"strings"
)

// This file models fencing registers that no client can have written, and clocks of clients that are wrong. As in fence.go
// there are no keys of locks: a node may let anybody in at any time, or not answer. An acquire is executed late, never or
// repeatedly. Values are small: limit stands for 2^63, far for the time for which a register is kept. Somebody may set a
// register to a value that nobody has proposed. There is no time. In each state a fresh Lock must succeed if the nodes
// answer it.
//
// Or one node lies: it answers an acquire as it likes, and a fresh Lock must succeed without it. An answer that the script
// cannot give is a failed vote, as silence is. A liar can help two Locks to one token, because it can be the only node of
// two quorums that both have. So beside a liar only the size of tokens is checked, and that Locks succeed.

type regState struct {
	regs     [numNodes]uint8
	locks    [maxLocks]regLock
	poisoned uint8  // nodes, as bits
	used     uint32 // tokens
	believed uint8  // the highest register that a client has believed of one node, because it said "stored"
	fault    uint8
}

type regLock struct {
	phase    lockPhase
	clock    uint8
	proposal uint8
	earlier  [2]uint8
	rounds   uint8
	least    uint8
	token    uint8
	answers  [numNodes]uint8 // 0 none, 1 stored, else register + 2
}

type regBounds struct {
	name    string
	locks   int
	clocks  []uint8 // of the callers
	far     uint8   // a register that is further ahead of the caller's clock is far
	limit   uint8   // a register of this value or more is followed by nobody
	poison  []uint8 // what somebody may set the register of one node to
	lies    []uint8 // the registers of which one node tells
	rounds  uint8   // after the first round
	silent  int     // how many nodes may be silent when a fresh Lock must succeed; -1: it need not
	highest uint8   // the highest token, as long as no clock is wrong; 0: any
	memory  bool    // a caller may know the last token
	size    Size
}

// without returns the same bounds, but nobody sets a register, and no fresh Lock need succeed.
func (b regBounds) without() regBounds {
	b.poison, b.silent = nil, -1
	return b
}

// Each field of regFlaws weakens a rule: see regRules.
type regFlaws struct {
	ignoresHighest, countsFar, notFollowed, raises, followsHighest, judgesStored, believesStored, highestNeeded bool
}

type register struct {
	regBounds
	regFlaws
}

// Clocks 1 and 2 agree; clock 9 is wrong. 7 and 8 are near enough to be followed, 12 is far, 16 is the last register that
// is below the limit, 18 is above it.
var (
	regPoisoned = regBounds{name: "clocks agree, one register is poisoned", locks: 2, clocks: []uint8{1, 2}, far: 6, limit: 17, poison: []uint8{12, 16, 18}, rounds: 1, highest: 8}
	regTwice    = regBounds{name: "clocks agree, one register is poisoned, two more rounds", locks: 2, clocks: []uint8{1, 2}, far: 6, limit: 17, poison: []uint8{12}, rounds: 2, highest: 8, size: Large}
	regNear     = regBounds{name: "clocks agree, one register is poisoned, not far", locks: 2, clocks: []uint8{1, 2}, far: 6, limit: 17, poison: []uint8{7, 8}, rounds: 1, highest: 11, size: Medium}
	regWrong    = regBounds{name: "a clock is wrong, one register is poisoned", locks: 2, clocks: []uint8{1, 9}, far: 6, limit: 17, poison: []uint8{16}, rounds: 1, memory: true}
	regThree    = regBounds{name: "a clock is wrong, three locks", locks: 3, clocks: []uint8{1, 9}, far: 6, limit: 17, silent: -1, size: Medium}
	regLiar     = regBounds{name: "clocks agree, one node lies", locks: 2, clocks: []uint8{1, 2}, far: 6, limit: 17, lies: []uint8{12, 15}, rounds: 1, silent: 1, highest: 8, memory: true}
	regLiarFar  = regBounds{name: "a clock is wrong, one node lies", locks: 2, clocks: []uint8{1, 9}, far: 6, limit: 24, lies: []uint8{22}, rounds: 1, silent: -1, highest: 12, memory: true}
	regSilent   = regBounds{name: "clocks agree, one node is silent", locks: 2, clocks: []uint8{1, 2, 3}, far: 6, limit: 17, rounds: 1, silent: 1, highest: 8}
)

var regRules = []struct {
	name, rule string
	bounds     regBounds
	flaws      regFlaws
}{
	{"the highest register is ignored", "a vote counts only if the node has stored the proposal", regPoisoned.without(), regFlaws{ignoresHighest: true}},
	{"a far register is a grant", "the vote of a node whose register is far does not count", regWrong.without(), regFlaws{countsFar: true}},
	{"far registers are not followed", "if a quorum is far, a clock was wrong, and the next proposal follows them", regWrong, regFlaws{notFollowed: true}},
	{"one far register is followed", "a register is followed only if a quorum is not below it", regPoisoned, regFlaws{raises: true}},
	{"the highest far register is followed", "the next proposal is just above the highest value that a quorum reaches", regWrong, regFlaws{followsHighest: true}},
	{"stored is believed with another register", "a node that has stored the proposal can answer no other register", regLiar, regFlaws{believesStored: true}},
	{"far registers are followed as high as a quorum needs", "beyond the day ahead of its clock a client follows what a quorum shows", regLiarFar, regFlaws{highestNeeded: true}},
	{"a far proposal that was stored does not count", "a proposal that a node has stored is never judged", regWrong, regFlaws{judgesStored: true}},
}

func registerCases() (cases []Case) {
	for _, b := range []regBounds{regPoisoned, regTwice, regNear, regWrong, regThree, regLiar, regLiarFar, regSilent} {
		cases = append(cases, Case{Model: "registers", Name: b.name, Size: b.size, Explore: register{b, regFlaws{}}.explore})
	}
	return cases
}

func registerMutations() (cases []Case) {
	for _, r := range regRules {
		cases = append(cases, Case{Model: "registers", Name: r.name, Rule: r.rule, Section: "4 fencing tokens", Size: r.bounds.size, Explore: register{r.bounds, r.flaws}.explore})
	}
	return cases
}

func (r register) explore(how Search) Result {
	var start regState
	if r.lies != nil {
		start.poisoned = 1
	}
	return Find(System[regState]{
		Start: start, Clients: []string{"A", "B", "C"}, Next: r.next, Same: r.same, Wrong: r.wrong, Show: r.show,
	}, how)
}

func (r register) wrong(s regState) string {
	switch s.fault {
	case 1:
		return "a token is not above one that was returned before its Lock was called"
	case 2:
		return "the same token twice"
	case 3:
		return "what stands on a minority has become a token"
	}
	for _, c := range r.clocks {
		if why := r.stuck(&s, c); why != "" {
			return why
		}
	}
	return ""
}

// stuck says why a fresh Lock, alone, fails although at most silent nodes do not answer it.
func (r register) stuck(s *regState, clock uint8) string {
	for silent := range 1 << numNodes {
		down := 0
		for n := range numNodes {
			down += silent >> n & 1
		}
		if down > r.silent || r.lies != nil && silent != int(s.poisoned) { // the liar is gone
			continue
		}
		regs, l := s.regs, regLock{clock: clock, proposal: clock}
		won := false
		for range 3 {
			l.answers = [numNodes]uint8{}
			for n := range numNodes {
				if silent>>n&1 == 0 {
					l.answers[n] = r.answer(&regs[n], l.proposal)
				}
			}
			if r.stored(&l) >= quorum {
				won = true
				break
			}
			next := r.catchUp(&l)
			if next == 0 {
				break
			}
			l.proposal = next
		}
		if !won {
			return fmt.Sprintf("no Lock by clock %d succeeds any more with node set %b silent", clock, silent)
		}
	}
	return ""
}

// answer executes an acquire on a register.
func (r register) answer(reg *uint8, p uint8) uint8 {
	if p > *reg {
		*reg = p
		return 1
	}
	return *reg + 2
}

// stored counts the votes for the proposal.
func (r register) stored(l *regLock) int {
	votes, highest := 0, 0
	for n, a := range l.answers[:numNodes] {
		if a >= 2 && a > max(l.answers[highest], 1) {
			highest = n
		}
	}
	for n, a := range l.answers[:numNodes] {
		switch {
		case a == 1 && !(r.judgesStored && l.proposal > l.clock+r.far):
			votes++
		case a >= 2 && r.ignoresHighest && n == highest:
			votes++
		case a >= 2 && r.countsFar && a-2 > l.clock+r.far:
			votes++
		}
	}
	return votes
}

// catchUp returns the next proposal, 0 for none.
func (r register) catchUp(l *regLock) uint8 {
	counted, far, near := 0, 0, l.proposal
	var all []uint8
	for _, a := range l.answers[:numNodes] {
		switch {
		case a == 0:
			continue
		case a == 1:
			all = append(all, l.proposal)
		default:
			all = append(all, a-2)
		}
		switch {
		case a == 1 || a-2 <= l.clock+r.far || r.raises:
			counted++
			near = max(near, all[len(all)-1])
		case a-2 < r.limit:
			far++
		}
	}
	if counted < quorum && (far < quorum || r.notFollowed) {
		return 0
	}
	slices.Sort(all)
	next := all[len(all)-1] + 1
	switch {
	case r.raises, r.followsHighest:
	case counted >= quorum:
		next = near + 1
	case r.highestNeeded:
		next = all[quorum-1] + 1 // the q-th lowest
	default:
		next = all[len(all)-quorum] + 1 // the q-th highest: more nodes than a minority show it
	}
	if next <= l.proposal || next >= r.limit || next > 24 {
		return 0
	}
	return next
}

// harmless reports whether no violation can follow: each Lock has its token, and no fresh Lock need succeed.
func (r register) harmless(s *regState) bool {
	if r.silent >= 0 || r.highest > 0 {
		return false
	}
	successes, open := 0, 0
	for _, l := range s.locks[:r.locks] {
		if l.phase == held {
			successes++
		} else {
			open++
		}
	}
	return open == 0 || successes+open < 2
}

func (r register) next(s regState, do func(Step, regState)) {
	if r.harmless(&s) {
		return
	}
	for i := range r.locks {
		r.client(s, i, do)
		for n := range numNodes {
			r.node(s, i, n, do)
		}
	}
	for n := range numNodes {
		if s.poisoned != 0 {
			continue
		}
		for _, p := range r.poison {
			if p > s.regs[n] {
				t := s
				t.regs[n] = p
				t.poisoned |= 1 << n
				do(Step{fmt.Sprintf("somebody sets the register of node {n} to %d", p), Choice, 0, n}, t)
			}
		}
	}
}

func highestRegToken(used uint32) (token uint8) {
	for ; used > 1; used >>= 1 {
		token++
	}
	return token
}

func (r register) client(s regState, i int, do func(Step, regState)) {
	l := &s.locks[i]
	switch l.phase {
	case idle:
		if i > 0 && s.locks[i-1].phase == idle {
			return
		}
		for _, c := range r.clocks {
			proposals := []uint8{c}
			known := highestRegToken(s.used)
			if known > c+r.far {
				known = 0
			}
			if known = max(known, s.believed) + 1; r.memory && known > c && known < r.limit {
				proposals = append(proposals, known)
			}
			for _, p := range proposals {
				t := s
				next := &t.locks[i]
				next.phase, next.clock, next.proposal, next.least = asking, c, p, highestRegToken(s.used)
				do(Step{fmt.Sprintf("{c}, whose clock says %d, calls Lock and proposes %d", c, p), Choice, i, 0}, t)
			}
		}
	case asking:
		if r.stored(l) >= quorum {
			t := s
			r.win(&t, i)
			do(Step{"{c}'s Lock RETURNS its token", Work, i, 0}, t)
		}
		if next := r.catchUp(l); next > 0 && l.rounds < r.rounds {
			l.earlier[l.rounds] = l.proposal
			l.rounds++
			l.proposal, l.answers = next, [numNodes]uint8{}
			do(Step{fmt.Sprintf("{c} proposes %d", next), Work, i, 0}, s)
		}
	}
}

func (r register) win(s *regState, i int) {
	l := &s.locks[i]
	switch {
	case l.proposal <= l.least && r.lies == nil:
		s.fault = 1
	case s.used>>l.proposal&1 == 1 && r.lies == nil:
		s.fault = 2
	case r.highest > 0 && l.proposal > r.highest:
		s.fault = 3
	}
	s.used |= 1 << l.proposal
	l.phase, l.token, l.answers, l.clock = held, l.proposal, [numNodes]uint8{}, 0
}

func (r register) node(s regState, i, node int, do func(Step, regState)) {
	l := s.locks[i]
	if l.phase == idle {
		return
	}
	for _, p := range [...]uint8{l.earlier[0], l.earlier[1], l.proposal} {
		if p > s.regs[node] {
			t := s
			t.regs[node] = p
			do(Step{"node {n} executes an acquire or the release of {c}, unnoticed", Work, i, node}, t)
		}
	}
	if l.phase != asking || l.answers[node] != 0 {
		return
	}
	if s.poisoned>>node&1 == 1 && r.lies != nil {
		r.lie(s, i, node, do)
		return
	}
	a := r.answer(&s.regs[node], l.proposal)
	s.locks[i].answers[node] = a
	do(Step{"node {n} executes {c}'s acquire", Work, i, node}, s)
}

// lie makes a node answer what it likes.
func (r register) lie(s regState, i, node int, do func(Step, regState)) {
	answers := &s.locks[i].answers[node]
	*answers = 1
	do(Step{"node {n} tells {c} that it has stored the proposal", Choice, i, node}, s)
	for _, v := range r.lies {
		t := s
		if r.believesStored {
			t.believed = max(t.believed, v)
			do(Step{fmt.Sprintf("node {n} tells {c} that it has stored the proposal, and that its register is %d", v), Choice, i, node}, t)
			t = s
		}
		if v >= s.locks[i].proposal {
			t.locks[i].answers[node] = v + 2
			do(Step{fmt.Sprintf("node {n} tells {c} that its register is %d", v), Choice, i, node}, t)
		}
	}
}

// same sorts the nodes.
func (r register) same(s regState) regState {
	type key [maxLocks + 2]uint8
	get := func(n int) (k key) {
		k[0], k[1] = s.regs[n], s.poisoned>>n&1
		for i := range maxLocks {
			k[2+i] = s.locks[i].answers[n]
		}
		return k
	}
	var keys [numNodes]key
	for n := range numNodes {
		keys[n] = get(n)
	}
	slices.SortFunc(keys[:numNodes], func(a, b key) int { return slices.Compare(a[:], b[:]) })
	s.poisoned = 0
	for n := range numNodes {
		k := keys[n]
		s.regs[n] = k[0]
		s.poisoned |= k[1] << n
		for i := range maxLocks {
			s.locks[i].answers[n] = k[2+i]
		}
	}
	return s
}

func (r register) show(s regState) string {
	var b strings.Builder
	for n := range numNodes {
		fmt.Fprintf(&b, "%d ", s.regs[n])
	}
	for i, l := range s.locks {
		if l.token > 0 {
			fmt.Fprintf(&b, " %c has token %d", 'A'+i, l.token)
		}
	}
	return b.String()
}
