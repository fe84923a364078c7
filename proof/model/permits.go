package model

import (
	"fmt"
	"math/bits"
)

// This file models a semaphore: who holds its permits, by the clocks.
//
// It is the model of lock.go with slots. A semaphore of n permits has n slots, and each slot is a key. A call wants one
// permit or several: its weight. A node that executes the acquire of a call sets the first free slots in the order of
// the call, as many as the call wants, or none. A call holds when a quorum of nodes has granted the same slots. The
// other slots that nodes have granted to it are strays. A call that holds may send a giving-back, which deletes its
// strays. Its unlock deletes the slots that it holds. The release of a failed attempt deletes all slots of the call.
// Each of these three messages deletes a slot only where the slot has the value of the call.
//
// Time and messages are as in lock.go: a node may execute a message at any time after it was sent, and any number of
// times. A reply arrives at once or never.

const maxPermitsCalls = 3

type permitsState struct {
	nodes       [numNodes]permitsNode
	calls       [maxPermitsCalls]permitsCall
	restarts    uint8 // so far
	interrupted bool  // a hold was extended although another hold had one of its slots in between
}

type permitsNode struct {
	slots [maxSlots]uint8        // values; 0: the slot is free
	left  [maxSlots]uint8        // ticks until the slot expires
	up    uint8                  // uptime in ticks, up to the guard
	votes [maxPermitsCalls]uint8 // in the open round: the slots that were granted or are extended, as bits, or refusal; 0: no answer
}

// A refusal is a vote for no slots.
const refusal = 1 << maxSlots

// A permitsCall is a call that wants permits.
type permitsCall struct {
	phase  lockPhase
	start  uint8 // the slot with which its order begins
	age    uint8 // ticks since the round began
	left   uint8 // ticks of validity left; the hold ends at 0
	won    uint8 // the slots that it holds or held, as bits
	sent   uint8 // the extensions that it has sent
	broken uint8 // those of its slots that other calls have won since, as bits
}

type permitsBounds struct {
	name     string
	permits  []uint8 // of each call: how many permits it believes there are
	weights  []uint8 // of each call
	retry    bool    // calls 0 and 1 are of one client, one after the other
	ttl      uint8
	extends  uint8 // extensions of each hold
	heals    bool  // extensions set missing slots again
	hasty    bool  // a node executes a repeated acquire as if it were the first
	restarts uint8
	size     Size
}

// sized returns the bounds for a mutation that takes more or less time than the sound model.
func (b permitsBounds) sized(size Size) permitsBounds {
	b.size = size
	return b
}

// Each field of permitsFlaws weakens a rule: see permitsRules.
type permitsFlaws struct {
	perNode, parts, minority bool // acquires
	losesWon, bySlot, reused bool // releases
	anyExtends, late         bool // extensions
	unguarded                bool // restarts
}

type permits struct {
	permitsBounds
	permitsFlaws
}

var (
	permitsThree   = permitsBounds{name: "2 permits, three calls", permits: []uint8{2, 2, 2}, weights: ones[:3], ttl: 2, size: Large}
	permitsTick    = permitsBounds{name: "2 permits, three calls, one tick", permits: []uint8{2, 2, 2}, weights: ones[:3], ttl: 1, size: Medium}
	permitsShrinks = permitsBounds{name: "2 permits, three calls of which two know of one", permits: []uint8{2, 1, 1}, weights: ones[:3], ttl: 2, size: Large}
	permitsWeights = permitsBounds{name: "3 permits, calls for 2, 1 and 1, one tick", permits: []uint8{3, 3, 3}, weights: []uint8{2, 1, 1}, ttl: 1, size: Large}
	permitsPairs   = permitsBounds{name: "3 permits, calls for 2 and 2", permits: []uint8{3, 3}, weights: []uint8{2, 2}, ttl: 3}
	permitsTwo     = permitsBounds{name: "2 permits, two calls, extensions", permits: []uint8{2, 2}, weights: ones[:2], ttl: 2, extends: 1, size: Large}
	permitsExtends = permitsBounds{name: "3 permits, calls for 2 and 1, extensions", permits: []uint8{3, 3}, weights: []uint8{2, 1}, ttl: 2, extends: 1, size: Large}
	permitsHeals   = permitsBounds{name: "3 permits, calls for 2 and 1, extensions that set missing slots again", permits: []uint8{3, 3}, weights: []uint8{2, 1}, ttl: 2, extends: 1, heals: true, size: Large}
	permitsHasty   = permitsBounds{name: "2 permits, two calls, nodes take repetitions for new", permits: []uint8{2, 2}, weights: ones[:2], ttl: 2, hasty: true, size: Large}
	permitsRetry   = permitsBounds{name: "2 permits, two calls of one client and another one", permits: []uint8{2, 2, 2}, weights: ones[:3], retry: true, ttl: 2, size: Large}
	permitsRestart = permitsBounds{name: "2 permits, two calls, a restart", permits: []uint8{2, 2}, weights: ones[:2], ttl: 2, restarts: 1, size: Medium}
)

var permitsRules = []struct {
	name, section, rule string
	bounds              permitsBounds
	flaws               permitsFlaws
}{
	{"nodes count permits", "B1 slots", "a permit is a slot that a quorum of nodes has granted: it does not suffice that each node of a quorum has granted some slot", permitsTick.sized(Small), permitsFlaws{perNode: true}},
	{"any two slots will do", "B1 slots", "several permits are one set of slots that a quorum of nodes has granted", permitsWeights, permitsFlaws{perNode: true}},
	{"a node grants a part", "B1 slots", "a node grants as many slots as the call wants, or none", permitsPairs, permitsFlaws{parts: true}},
	{"a minority decides", "B1 slots", "slots are won by a quorum of nodes that have granted them", permitsTick.sized(Small), permitsFlaws{minority: true}},
	{"giving back deletes what is held", "B5 strays", "a giving-back keeps the slots that the call holds", permitsTick.sized(Small), permitsFlaws{losesWon: true}},
	{"giving back goes by the slot", "B5 strays", "a giving-back deletes a slot only where it has the value of the call", permitsTick, permitsFlaws{bySlot: true}},
	{"a value is used again", "B5 strays", "each attempt has a fresh value, so that a late giving-back of an earlier hold cannot delete slots of this one", permitsRetry.sized(Medium), permitsFlaws{reused: true}},
	{"one of two slots extends", "B7 weights", "a node votes for an extension only if it has all slots of the hold", permitsExtends, permitsFlaws{anyExtends: true}},
	{"an extension is confirmed late", "B7 weights", "an extension counts only if a quorum confirms it before the old validity has ended", permitsTwo.sized(Large), permitsFlaws{late: true}},
	{"no restart guard", "5 restart guard", "a node that has restarted does not count until every slot that it may have forgotten has run out", permitsRestart.sized(Small), permitsFlaws{unguarded: true}},
}

func permitsCases() (cases []Case) {
	for _, b := range []permitsBounds{
		permitsThree, permitsTick, permitsShrinks, permitsWeights, permitsPairs, permitsTwo, permitsExtends, permitsHeals, permitsHasty, permitsRetry, permitsRestart,
	} {
		cases = append(cases, Case{Model: "permits", Name: b.name, Size: b.size, Explore: permits{b, permitsFlaws{}}.explore})
	}
	return cases
}

func permitsMutations() (cases []Case) {
	for _, r := range permitsRules {
		cases = append(cases, Case{Model: "permits", Name: r.name, Rule: r.rule, Section: r.section, Size: r.bounds.size, Explore: permits{r.bounds, r.flaws}.explore})
	}
	return cases
}

func (l permits) explore(how Search) Result {
	var start permitsState
	for n := range start.nodes {
		start.nodes[n].up = l.guard()
	}
	names := []string{"A", "B", "C"}
	if l.retry {
		names = []string{"A", "A again", "B"}
	}
	return Find(System[permitsState]{
		Start: start, Clients: names, Next: l.next, Same: samePermits, Wrong: l.wrong,
		Show: func(s permitsState) string { return l.show(s, names) },
	}, how)
}

// wrong checks three promises: no more permits are held than the largest number that a call believes there are, no two
// calls hold the same slot, and no hold is extended after another hold has had one of its slots in between.
func (l permits) wrong(s permitsState) string {
	var most uint8
	for _, n := range l.permits {
		most = max(most, n)
	}
	var held, slots uint8
	twice := false
	for i, weight := range l.weights {
		if t := s.calls[i]; t.left > 0 {
			held += weight
			twice = twice || slots&t.won != 0 && !l.perNode
			slots |= t.won
		}
	}
	switch {
	case held > most:
		return fmt.Sprintf("%d of %d permits are held", held, most)
	case twice:
		return "two calls hold the same slot"
	case s.interrupted:
		return "a hold goes on although another one had one of its slots in between"
	}
	return ""
}

// guard returns the uptime that a node must have reached before its votes count.
func (l permits) guard() uint8 {
	if l.restarts == 0 {
		return 0
	}
	return l.ttl
}

func (l permits) next(s permitsState, do func(Step, permitsState)) {
	for i := range l.weights {
		l.client(s, i, do)
		for n := range s.nodes {
			l.node(s, i, n, do)
		}
	}
	if s.restarts < l.restarts {
		for i := range s.nodes {
			t := s
			t.restarts++
			t.nodes[i].slots, t.nodes[i].left, t.nodes[i].up = [maxSlots]uint8{}, [maxSlots]uint8{}, 0
			do(Step{"node {n} restarts without data", Choice, 0, i}, t)
		}
	}
	l.tick(s, do)
}

// tick lets a tick pass for all nodes and calls.
func (l permits) tick(s permitsState, do func(Step, permitsState)) {
	for i := range s.nodes {
		n := &s.nodes[i]
		n.up = min(n.up+1, l.guard())
		for k := range n.slots {
			n.left[k] = max(n.left[k], 1) - 1
			if n.left[k] == 0 {
				n.slots[k] = 0
			}
		}
	}
	for i := range s.calls {
		t := &s.calls[i]
		if t.phase == asking || t.phase == extending {
			t.age = min(t.age+1, l.ttl)
		}
		t.left = max(t.left, 1) - 1
		switch t.phase {
		case asking:
			if t.age == l.ttl { // a grant would now come too late
				l.end(&s, i)
			}
		case held:
			if t.left == 0 {
				l.end(&s, i)
			}
		case extending:
			if t.left == 0 && (!l.late || t.age == l.ttl) {
				l.end(&s, i)
			}
		}
	}
	do(Step{Text: "a tick passes", Kind: Timer}, s)
}

// client adds the steps of the client of call i. Equal calls begin in their order, and the first call begins with slot
// 0: any other choice would only give other names to calls and slots.
func (l permits) client(s permitsState, i int, do func(Step, permitsState)) {
	t := &s.calls[i]
	switch t.phase {
	case idle:
		if i > 0 && s.calls[i-1].phase == idle && l.weights[i] == l.weights[i-1] && l.permits[i] == l.permits[i-1] {
			return
		}
		if l.retry && i == 1 && s.calls[0].phase != over {
			return
		}
		starts := l.permits[i]
		if s == l.untouched() && !l.differ() {
			starts = 1
		}
		for start := range starts {
			u := s
			u.calls[i].phase, u.calls[i].start = asking, start
			do(Step{fmt.Sprintf("{c} sends its acquire, slot %d first", start), Choice, i, 0}, u)
		}
	case asking:
		if won := l.wins(&s, i); won != 0 {
			l.win(s, i, won, do)
		}
		l.end(&s, i)
		do(Step{"{c} gives up and sends its release", Choice, i, 0}, s)
	case held:
		u := s
		l.end(&u, i)
		do(Step{"{c} unlocks and sends its release", Choice, i, 0}, u)
		if t.sent < l.extends {
			t.phase, t.age = extending, 0
			t.sent++
			do(Step{"{c} sends an extension", Choice, i, 0}, s)
		}
	case extending:
		if l.confirms(&s, i) {
			l.confirm(s, i, do)
		}
		t.phase, t.age = held, 0
		s.forget(i)
		if t.left == 0 {
			l.end(&s, i)
		}
		do(Step{"{c} waits no longer for its extension", Choice, i, 0}, s)
	}
}

// untouched returns the state at the start.
func (l permits) untouched() (s permitsState) {
	for n := range s.nodes {
		s.nodes[n].up = l.guard()
	}
	return s
}

// differ reports whether calls believe in different numbers of permits.
func (l permits) differ() bool {
	for _, n := range l.permits {
		if n != l.permits[0] {
			return true
		}
	}
	return false
}

// wins returns the slots that call i has won, 0 for none.
func (l permits) wins(s *permitsState, i int) uint8 {
	grants := 0
	for _, n := range s.nodes {
		v, same := n.votes[i], 0
		if v == 0 || v == refusal {
			continue
		}
		grants++
		for _, o := range s.nodes {
			if o.votes[i] == v {
				same++
			}
		}
		if same >= quorum || l.minority || l.perNode && grants >= quorum {
			return v
		}
	}
	return 0
}

func (l permits) win(s permitsState, i int, won uint8, do func(Step, permitsState)) {
	t := &s.calls[i]
	t.phase, t.left, t.age, t.won = held, l.ttl-t.age, 0, won
	if !l.bySlot {
		s.forget(i)
	}
	for j := range s.calls {
		if o := &s.calls[j]; j != i {
			o.broken |= o.won & won
		}
	}
	do(Step{"{c} HOLDS", Work, i, 0}, s)
}

// confirms reports whether a quorum confirms the extension of call i.
func (l permits) confirms(s *permitsState, i int) bool {
	votes := 0
	for _, n := range s.nodes {
		if v := n.votes[i]; v != 0 && v != refusal {
			votes++
		}
	}
	return votes >= quorum
}

// confirm extends hold i.
func (l permits) confirm(s permitsState, i int, do func(Step, permitsState)) {
	t := &s.calls[i]
	t.left = max(t.left, l.ttl-t.age)
	t.phase, t.age = held, 0
	s.forget(i)
	if t.left == 0 {
		return
	}
	s.interrupted = t.broken != 0
	do(Step{"{c}'s extension is CONFIRMED", Work, i, 0}, s)
}

// end ends call i. Its messages remain on their way. It forgets which slots the call held if that makes no difference
// any more. For a call of weight 1 a node has at most one slot, and any of its messages may delete that slot. So the
// held slots matter only for a greater weight, for a late extension, and where nodes are hasty.
func (l permits) end(s *permitsState, i int) {
	t := s.calls[i]
	s.calls[i] = permitsCall{phase: over, start: t.start, sent: t.sent}
	if l.weights[i] > 1 || t.sent > 0 || l.hasty {
		s.calls[i].won = t.won
	}
	s.forget(i)
}

// forget discards the votes in the round of call i.
func (s *permitsState) forget(i int) {
	for n := range s.nodes {
		s.nodes[n].votes[i] = 0
	}
}

// node adds the steps in which a node executes a message of call i.
func (l permits) node(s permitsState, i, node int, do func(Step, permitsState)) {
	t := s.calls[i]
	if t.phase == idle {
		return
	}
	l.executeAcquire(s, i, node, do)
	if t.sent > 0 {
		l.executeExtend(s, i, node, do)
	}
	if t.won != 0 {
		l.executeGivingBack(s, i, node, do)
	}
	if t.phase == over {
		slots := t.won
		if slots == 0 {
			slots = refusal - 1
		}
		l.executeRelease(s, i, node, slots, "{c}'s release", do)
	}
}

// value returns the value of call i.
func (l permits) value(i int) uint8 {
	if l.reused && i == 1 {
		return 1
	}
	return mark(i)
}

// mine returns the slots of call i on a node, as bits.
func (l permits) mine(n *permitsNode, i int) (slots uint8) {
	for k, v := range n.slots {
		if v == l.value(i) {
			slots |= bit(k)
		}
	}
	return slots
}

// vote counts the first answer of a node in the open round of call i.
func (l permits) vote(n *permitsNode, i int, slots uint8) {
	if n.up < l.guard() && !l.unguarded {
		slots = 0
	}
	if n.votes[i] != 0 {
		return
	}
	n.votes[i] = refusal
	if slots != 0 {
		n.votes[i] = slots
	}
}

// executeAcquire takes the first free slots in the order of call i. A node that has slots of the call already has
// executed the acquire before, and takes no more.
func (l permits) executeAcquire(s permitsState, i, node int, do func(Step, permitsState)) {
	before := s
	n, t := &s.nodes[node], &s.calls[i]
	var slots uint8
	for j := range l.permits[i] {
		k := (t.start + j) % l.permits[i]
		if n.slots[k] == 0 && bits.OnesCount8(slots) < int(l.weights[i]) {
			slots |= bit(int(k))
		}
	}
	part := bits.OnesCount8(slots) < int(l.weights[i])
	if part && !l.parts || l.mine(n, i) != 0 && !l.hasty {
		slots = 0
	}
	for k := range n.slots {
		if slots&bit(k) != 0 {
			n.slots[k], n.left[k] = l.value(i), l.ttl
		}
	}
	if t.phase == asking {
		l.vote(n, i, slots)
	}
	if s != before {
		do(Step{"node {n} executes {c}'s acquire", Work, i, node}, s)
	}
}

// executeExtend extends the slots of hold i if the node has all of them. If some are missing, and none has another
// value, it may set the missing ones again, but then the node does not vote for the extension.
func (l permits) executeExtend(s permitsState, i, node int, do func(Step, permitsState)) {
	before := s
	n, t := &s.nodes[node], s.calls[i]
	mine, others := l.mine(n, i)&t.won, uint8(0)
	for k, v := range n.slots {
		if t.won&bit(k) != 0 && v != 0 && v != l.value(i) {
			others |= bit(k)
		}
	}
	votes := mine == t.won || l.anyExtends && mine != 0
	slots := mine
	switch {
	case votes:
	case l.heals && others == 0:
		slots = t.won
	default:
		slots = 0
	}
	for k := range n.slots {
		if slots&bit(k) != 0 {
			n.slots[k], n.left[k] = l.value(i), max(n.left[k], l.ttl)
		}
	}
	if t.phase == extending {
		if !votes {
			slots = 0
		}
		l.vote(n, i, slots)
	}
	if s != before {
		do(Step{"node {n} executes {c}'s extension", Work, i, node}, s)
	}
}

// executeGivingBack deletes the slots of call i that it does not hold.
func (l permits) executeGivingBack(s permitsState, i, node int, do func(Step, permitsState)) {
	t, n := s.calls[i], s.nodes[node]
	switch {
	case l.losesWon:
		l.executeRelease(s, i, node, refusal-1, "{c}'s giving-back", do)
	case l.bySlot && n.votes[i] != refusal:
		for k := range n.slots {
			if n.votes[i]&^t.won&bit(k) != 0 {
				n.slots[k], n.left[k] = 0, 0
			}
		}
		if n != s.nodes[node] {
			s.nodes[node] = n
			do(Step{"node {n} executes {c}'s giving-back", Work, i, node}, s)
		}
	default:
		l.executeRelease(s, i, node, refusal-1-t.won, "{c}'s giving-back", do)
	}
}

// executeRelease deletes those of the given slots that have the value of call i.
func (l permits) executeRelease(s permitsState, i, node int, slots uint8, what string, do func(Step, permitsState)) {
	n := &s.nodes[node]
	mine := l.mine(n, i) & slots
	if mine == 0 {
		return
	}
	for k := range n.slots {
		if mine&bit(k) != 0 {
			n.slots[k], n.left[k] = 0, 0
		}
	}
	do(Step{"node {n} executes " + what, Work, i, node}, s)
}

func samePermits(s permitsState) permitsState {
	sortNodes(&s.nodes, func(n *permitsNode) uint64 {
		return pack(n.slots[0], n.slots[1], n.slots[2], n.left[0], n.left[1], n.left[2], n.up, n.votes[0], n.votes[1], n.votes[2])
	})
	return s
}

func (l permits) show(s permitsState, names []string) string {
	var v keysAndHolds
	var most uint8
	for _, n := range l.permits {
		most = max(most, n)
	}
	for _, n := range s.nodes {
		for k := range most {
			v.key(names, n.slots[k], n.left[k])
		}
		fmt.Fprint(&v, "| ")
	}
	for i, t := range s.calls {
		v.hold(names[i], t.left)
		if t.left > 0 {
			fmt.Fprintf(&v, " of %s", slotNames(t.won))
		}
	}
	return v.String()
}
