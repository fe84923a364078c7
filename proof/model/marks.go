package model

import (
	"fmt"
	"strings"
)

// This file models fencing for readers and writers: their tokens, and the two marks that the resource keeps.
//
// Each node has the key of a lock and a register, as in shared.go and fence.go. A reader proposes a token of its own,
// as a writer does. A read with token t passes if no write with a greater token has passed (t >= W). It then raises
// the mark R to t. A write passes if no read and no write with a greater token has passed (t >= W and t >= R). It then
// raises the mark W to t. An access may reach the resource long after its hold has ended. A writer may also read, and
// it may step down.
//
// The model has no time. A hold or an attempt may end at any moment, and from then on its keys may vanish.
// A node executes an acquire once, at any time after it was sent. For repeated messages see fence.go, which has no
// locks: there a node may grant any acquire, also to readers.

const maxMarks = 3

type marksState struct {
	nodes [numNodes]marksNode
	calls [maxMarks]marksCall
	write uint8 // the mark W: the greatest token of a write that has passed
	read  uint8 // the mark R: the greatest token of a read that has passed
	began uint8 // how many holds have begun
	fault marksFault
}

type marksNode struct {
	lock     uint8 // the calls whose value or record the key has, as bits
	low      uint8 // the writers whose value the node has turned into a record, as bits
	register uint8
	votes    [maxMarks]vote // yes: granted, and the proposal is stored
}

type marksCall struct {
	phase    lockPhase
	low      bool // the writer has stepped down
	proposal uint8
	seen     uint8 // the highest register that a node has shown
	rounds   uint8 // begun after the first
	token    uint8
	order    uint8 // the number of its hold, from 1
	read     bool  // one of its reads has passed
	wrote    bool  // one of its writes has passed
}

type marksFault uint8

const (
	noMarksFault marksFault = iota
	unordered
	lateAccess
	refusedHolder
)

type marksBounds struct {
	name      string
	reads     []bool // of each call
	proposals uint8  // a call proposes any number from 1 to this, because clocks need not agree
	rounds    uint8  // after the first round
	steps     bool   // writers may step down
	size      Size
}

// Each field of marksFlaws weakens a rule: see marksRules.
type marksFlaws struct {
	oneMark, readsLeaveNone, readsUnchecked, greater, highest bool
}

type marks struct {
	marksBounds
	marksFlaws
}

// The bounds in which the rules are explored.
var (
	marksTwo     = marksBounds{name: "a reader and a writer, two more rounds", reads: []bool{true, false}, proposals: 3, rounds: 2, size: Large}
	marksPair    = marksBounds{name: "a reader and a writer", reads: []bool{true, false}, proposals: 2}
	marksReaders = marksBounds{name: "two readers, a writer", reads: []bool{true, true, false}, proposals: 2, size: Large}
	marksWriters = marksBounds{name: "a reader, two writers", reads: []bool{true, false, false}, proposals: 2, size: Large}
	marksStep    = marksBounds{name: "a writer that may step down, a reader", reads: []bool{false, true}, proposals: 2, steps: true}
	marksRound   = marksBounds{name: "a writer that may step down, a reader, another round", reads: []bool{false, true}, proposals: 2, rounds: 1, steps: true, size: Large}
	marksSteps   = marksBounds{name: "a writer that may step down, a writer, another round", reads: []bool{false, false}, proposals: 2, rounds: 1, steps: true, size: Large}
)

var marksRules = []struct {
	name, rule string
	bounds     marksBounds
	flaws      marksFlaws
}{
	{"one mark", "the resource keeps a mark for reads and one for writes: with one, the reads of readers that hold at once refuse each other", marksReaders.sized(Medium), marksFlaws{oneMark: true}},
	{"reads leave no mark", "a read raises the mark R, so that a late write does not pass after the read of a later reader", marksPair, marksFlaws{readsLeaveNone: true}},
	{"reads are not checked", "a read passes only if no write with a greater token has passed, so that a late reader does not see half of a write", marksPair, marksFlaws{readsUnchecked: true}},
	{"greater instead of at least", "an access with a token that is equal to a mark passes: it is of the same hold", marksPair, marksFlaws{greater: true}},
	{"the highest register is a reader's token", "the token of a reader is a proposal that a quorum has stored, not the highest register that it has seen", marksWriters.sized(Medium), marksFlaws{highest: true}},
}

// sized returns the bounds for a mutation that takes less time than the sound model.
func (b marksBounds) sized(size Size) marksBounds {
	b.size = size
	return b
}

func marksCases() (cases []Case) {
	for _, b := range []marksBounds{marksTwo, marksPair, marksReaders, marksWriters, marksStep, marksRound, marksSteps} {
		cases = append(cases, Case{Model: "marks", Name: b.name, Size: b.size, Explore: marks{b, marksFlaws{}}.explore})
	}
	return cases
}

func marksMutations() (cases []Case) {
	for _, r := range marksRules {
		cases = append(cases, Case{Model: "marks", Name: r.name, Rule: r.rule, Section: "A9 fencing", Size: r.bounds.size, Explore: marks{r.bounds, r.flaws}.explore})
	}
	return cases
}

func (m marks) explore(how Search) Result {
	names := []string{"A", "B", "C"}
	for i, reads := range m.reads {
		if reads {
			names[i] = strings.ToLower(names[i])
		}
	}
	return Find(System[marksState]{
		Clients: names, Next: m.next, Same: sameMarks, Wrong: wrongMarks,
		Show: func(s marksState) string { return m.show(s, names) },
	}, how)
}

// wrongMarks checks three promises. If two holds exclude each other, the later one has the greater token. No access
// passes after a conflicting access of a later hold. No access is refused while its hold lasts.
func wrongMarks(s marksState) string {
	return [...]string{
		"",
		"a later hold has a token that is not greater",
		"an access passes after a conflicting one of a later hold",
		"an access of a hold that lasts is refused",
	}[s.fault]
}

func (m marks) next(s marksState, do func(Step, marksState)) {
	for i := range m.reads {
		m.client(s, i, do)
		for n := range s.nodes {
			m.node(s, i, n, do)
		}
		if s.calls[i].token > 0 {
			m.access(s, i, false, do)
			if !m.reads[i] {
				m.access(s, i, true, do)
			}
		}
	}
}

// client adds the steps of the client of call i.
func (m marks) client(s marksState, i int, do func(Step, marksState)) {
	c := &s.calls[i]
	switch c.phase {
	case idle:
		for p := uint8(1); p <= m.proposals; p++ {
			t := s
			t.calls[i].phase, t.calls[i].proposal = asking, p
			do(Step{"{c} sends its acquire", Choice, i, 0}, t)
		}
	case asking:
		m.decide(s, i, do)
	case held:
		if m.steps && !m.reads[i] && !c.low {
			t := s
			t.calls[i].low = true
			do(Step{"{c} STEPS DOWN", Choice, i, 0}, t)
		}
		s.settle(i, over)
		do(Step{"{c}'s hold ends", Choice, i, 0}, s)
	}
}

// decide adds the steps of call i after it has sent its acquire.
func (m marks) decide(s marksState, i int, do func(Step, marksState)) {
	votes := 0
	for _, n := range s.nodes {
		if n.votes[i] == yes {
			votes++
		}
	}
	c := s.calls[i]
	if votes >= quorum {
		m.win(s, i, do)
	}
	if c.rounds < m.rounds && c.seen >= c.proposal {
		t := s
		then := &t.calls[i]
		then.proposal, then.rounds = c.seen+1, c.rounds+1
		for n := range t.nodes {
			t.nodes[n].votes[i] = pending
		}
		do(Step{"{c} proposes more and sends its acquire again", Work, i, 0}, t)
	}
	s.settle(i, over)
	do(Step{"{c} gives up", Choice, i, 0}, s)
}

// win begins hold i.
func (m marks) win(s marksState, i int, do func(Step, marksState)) {
	c := &s.calls[i]
	s.began++
	c.token, c.order = c.proposal, s.began
	if m.highest && m.reads[i] {
		c.token = c.seen
	}
	for j, o := range s.calls {
		if o.order > 0 && o.order < c.order && !(m.reads[i] && m.reads[j]) && o.token >= c.token {
			s.fault = unordered
		}
	}
	s.settle(i, held)
	do(Step{"{c} HOLDS", Work, i, 0}, s)
}

// settle ends the attempt or the hold of call i, which goes to the phase to. settle also clears what no later step
// depends on, so that fewer states differ.
func (s *marksState) settle(i int, to lockPhase) {
	c := &s.calls[i]
	c.phase, c.seen, c.rounds = to, 0, 0
	for n := range s.nodes {
		if s.nodes[n].votes[i] == yes {
			s.nodes[n].votes[i] = no
		}
	}
}

// node adds the steps in which a node executes the acquire of call i or its stepping down, and in which a key of call
// i vanishes.
func (m marks) node(s marksState, i, node int, do func(Step, marksState)) {
	n, c := &s.nodes[node], s.calls[i]
	if c.phase != idle && n.votes[i] == pending {
		t := s
		m.executeAcquire(&t, i, node)
		do(Step{"node {n} executes {c}'s acquire", Work, i, node}, t)
	}
	if n.lock&bit(i) == 0 {
		return
	}
	if c.low && n.low&bit(i) == 0 {
		t := s
		t.nodes[node].low |= bit(i)
		do(Step{"node {n} executes {c}'s stepping down", Work, i, node}, t)
	}
	if c.phase == over {
		n.lock &^= bit(i)
		n.low &^= bit(i)
		do(Step{"{c}'s key on node {n} vanishes", Work, i, node}, s)
	}
}

func (m marks) executeAcquire(s *marksState, i, node int) {
	n, c := &s.nodes[node], &s.calls[i]
	n.votes[i] = no
	others := n.lock &^ bit(i)
	if m.reads[i] {
		for j, reads := range m.reads {
			if reads {
				others &^= bit(j)
			}
		}
		others &^= n.low
	}
	if others != 0 {
		return
	}
	n.lock |= bit(i)
	granted := true
	switch {
	case m.highest && m.reads[i]:
	case c.proposal > n.register:
		n.register = c.proposal
	default:
		granted = false
	}
	if c.phase != asking {
		return
	}
	if m.rounds > 0 || m.highest {
		c.seen = max(c.seen, n.register)
	}
	if granted {
		n.votes[i] = yes
	}
}

// access adds the step in which an access of call i reaches the resource, during its hold or later.
func (m marks) access(s marksState, i int, write bool, do func(Step, marksState)) {
	before := s
	c := &s.calls[i]
	passes := m.reaches(c.token, s.write) && (!write || m.reaches(c.token, s.read))
	if m.readsUnchecked && !write {
		passes = true
	}
	lasts := c.phase == held && !(write && c.low)
	switch {
	case !passes && lasts:
		s.fault = refusedHolder
	case !passes:
	case write:
		s.write, c.wrote = c.token, true
	default:
		c.read = true
		if m.oneMark {
			s.write = c.token
		} else if !m.readsLeaveNone {
			s.read = max(s.read, c.token)
		}
	}
	for _, o := range s.calls {
		if passes && o.order > c.order && (o.wrote || write && o.read) {
			s.fault = lateAccess
		}
	}
	if s == before {
		return
	}
	text := "{c}'s read"
	if write {
		text = "{c}'s write"
	}
	if passes {
		text += " passes"
	} else {
		text += " is refused"
	}
	do(Step{text, Choice, i, 0}, s)
}

// reaches reports whether a token is high enough for a mark.
func (m marks) reaches(token, mark uint8) bool {
	return token > mark || token == mark && !m.greater
}

func sameMarks(s marksState) marksState {
	sortNodes(&s.nodes, func(n *marksNode) uint64 {
		return pack(n.lock, n.low, n.register, uint8(n.votes[0]), uint8(n.votes[1]), uint8(n.votes[2]))
	})
	return s
}

func (m marks) show(s marksState, names []string) string {
	var b strings.Builder
	for _, n := range s.nodes {
		b.WriteString(" ")
		for i := range m.reads {
			if n.lock&bit(i) != 0 {
				b.WriteString(names[i])
			}
		}
		fmt.Fprintf(&b, "/%d", n.register)
	}
	fmt.Fprintf(&b, "  W %d, R %d", s.write, s.read)
	for i, c := range s.calls {
		switch c.phase {
		case asking:
			fmt.Fprintf(&b, "  %s proposes %d", names[i], c.proposal)
		case held:
			fmt.Fprintf(&b, "  %s holds with %d", names[i], c.token)
		case over:
			if c.token > 0 {
				fmt.Fprintf(&b, "  %s had %d", names[i], c.token)
			}
		}
	}
	return b.String()
}
