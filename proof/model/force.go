package model

import (
	"fmt"
	"strings"
)

// This file models ForceUnlock. Client A holds a lock. An operator, who has read its value, releases it on each node, and
// each node tells A so: a message, which may be late, lost or false. A message makes A ask the nodes. A rival, B, tries
// again and again; it holds the lock while a quorum of nodes has its value.
//
// There is no time. The validity of A may end at any moment, and from then on its keys may vanish. Messages to nodes are
// executed at any later moment, once, and the operator's in any order with those of A.

type forceState struct {
	nodes     [numNodes]forceNode
	phase     forcePhase
	extended  uint8 // extensions begun
	extending bool  // the last one is not decided
	gone      bool  // a quorum has told an extension that the value was missing
	asking    bool  // A asks the nodes
	again     bool  // and another message has come meanwhile
	lied      bool  // a false message has come
	forgot    bool  // a node has forgotten its key
	rival     bool  // B holds the lock
	robbed    bool  // the operator has deleted a value of B
}

type forceNode struct {
	value   uint8   // see mark
	acquire message // of A
	refused bool    // it has refused the acquire, so a fill may follow
	filled  message // the fill
	extend  message // the last extension
	old     bool    // an extension before that is under way
	told    answer  // to the last extension
	said    answer  // to the question of A
	missed  bool    // it has told any extension that the value was missing
	force   forced
	hint    message // that it has released the lock by force
}

// A forcePhase says how far A has got.
type forcePhase uint8

const (
	forceHolds     forcePhase = iota
	forceHeard                // a message has made A ask, and it gave up
	forceDisproved            // an extension was disproved
	forceOver                 // A has unlocked, or its validity has ended
)

// An answer is what a node has said of the value of A.
type answer uint8

const (
	toldNothing answer = iota
	toldMine
	toldMissing
	toldOthers
)

// A forced says whether the operator's release was executed.
type forced uint8

const (
	unforced forced = iota
	nothingToForce
	deleted
)

type forceBounds struct {
	name    string
	heals   bool  // extensions set missing keys again
	hears   bool  // A listens
	extends uint8 // extensions
	fills   bool  // nodes that have refused A are filled
	late    bool  // the acquire may come behind the operator's release
	lies    bool  // one message may be false
	forgets bool  // all nodes have granted A, and one may forget its key
	whole   bool  // A must have ended only once all nodes have told it, not a quorum
	each    bool  // A counts the nodes that were missing its value in any answers
	size    Size
}

// Each field of forceFlaws weakens a rule: see forceRules.
type forceFlaws struct {
	blind, believes, keeps, ignores, afterwards, hasty, early, drops, stays, deaf bool
}

type forcing struct {
	forceBounds
	forceFlaws
}

var (
	forcePlain = forceBounds{name: "a holder that hears, a false message", hears: true, extends: 1, lies: true}
	forceFills = forceBounds{name: "a holder that hears, late acquires, fills", hears: true, extends: 1, fills: true, late: true, size: Medium}
	forceMute  = forceBounds{name: "a holder that does not hear, late acquires, fills", extends: 2, fills: true, late: true}
	forceHeals = forceBounds{name: "a holder that hears and heals", hears: true, heals: true, extends: 1, whole: true, size: Medium}
	forceLoses = forceBounds{name: "a holder that hears and heals, a false message, a node forgets", hears: true, heals: true, extends: 1, lies: true, forgets: true, whole: true, size: Medium}
	forceDeaf  = forceBounds{name: "a holder that heals and does not hear, late acquires, fills", heals: true, extends: 2, fills: true, late: true}
	forceEach  = forceBounds{name: "a holder that hears and heals, and counts a node that was missing the value in any answer", hears: true, heals: true, extends: 1, fills: true, late: true, each: true, size: Large}
)

var forceRules = []struct {
	name, rule string
	bounds     forceBounds
	flaws      forceFlaws
}{
	{"a force deletes whatever is there", "a force deletes the value that was read, and nothing else", forcePlain, forceFlaws{blind: true}},
	{"a message is believed", "a message makes the holder ask: only the nodes' answers end its hold", forcePlain, forceFlaws{believes: true}},
	{"a hold that heals keeps what is missing", "after a message missing keys disprove a hold that heals, too", forceHeals, forceFlaws{keeps: true}},
	{"answers to an extension do not count", "if an extension sets the keys again before the nodes are asked, it is its answers that disprove the hold", forceHeals, forceFlaws{ignores: true}},
	{"answers before the message do not count", "the answers to an extension count, too, if they have come before the message", forceHeals, forceFlaws{afterwards: true}},
	{"an extension under way is not waited for", "who asks waits for the answers to an extension that is under way", forceHeals, forceFlaws{hasty: true}},
	{"the message overtakes the release", "each node sends its message after it has released the lock", forcePlain, forceFlaws{early: true}},
	{"messages during a question are dropped", "a message that comes while the holder asks makes it ask again", forcePlain, forceFlaws{drops: true}},
	{"what was set again stays", "a holder that has heard of a force releases what its extensions have set again", forceHeals, forceFlaws{stays: true}},
	{"the answers of one round alone count", "the answers to questions and extensions add up by node, because an extension may come between the releases on two nodes", forceHeals.reachingAQuorum(), forceFlaws{}},
	{"a holder that heals does not hear", "a hold that heals ends only if its holder hears of the force; else its extension takes the lock back", forceHeals, forceFlaws{deaf: true}},
}

// reachingAQuorum returns the bounds in which A must have ended once a quorum has deleted its value.
func (b forceBounds) reachingAQuorum() forceBounds {
	b.whole = false
	return b
}

func forceCases() (cases []Case) {
	for _, b := range []forceBounds{forcePlain, forceFills, forceMute, forceHeals, forceLoses, forceDeaf, forceEach} {
		cases = append(cases, Case{Model: "force", Name: b.name, Size: b.size, Explore: forcing{b, forceFlaws{}}.explore})
	}
	return cases
}

func forceMutations() (cases []Case) {
	for _, r := range forceRules {
		cases = append(cases, Case{Model: "force", Name: r.name, Rule: r.rule, Section: "E3 forces", Size: r.bounds.size, Explore: forcing{r.bounds, r.flaws}.explore})
	}
	return cases
}

// explore begins when A has the lock.
func (f forcing) explore(how Search) Result {
	start := forceState{}
	for n := range start.nodes {
		start.nodes[n].acquire = answered
		start.nodes[n].value = mark(0)
	}
	if !f.forgets {
		start.nodes[numNodes-1] = forceNode{acquire: flying}
	}
	return Find(System[forceState]{Start: start, Next: f.next, Same: sameForce, Wrong: f.wrong, Rest: restForce, Show: showForce}, how)
}

func sameForce(s forceState) forceState {
	sortNodes(&s.nodes, func(n *forceNode) uint64 {
		return pack(n.value, uint8(n.acquire), flag(n.refused), uint8(n.filled), uint8(n.extend), flag(n.old), uint8(n.told), uint8(n.said), flag(n.missed), uint8(n.force), uint8(n.hint))
	})
	return s
}

// wrong checks the promises.
func (f forcing) wrong(s forceState) string {
	had, has, taken, all, heard := 0, 0, 0, 0, 0
	for _, n := range s.nodes {
		has += int(flag(n.value == mark(0)))
		taken += int(flag(n.value == mark(1)))
		had += int(flag(n.force == deleted))
		if n.force != unforced {
			all++
		}
		if n.hint == answered && (n.force == deleted || f.whole) {
			heard++
		}
	}
	holds, settled := s.phase == forceHolds, !s.asking && !s.extending
	needed := quorum
	if f.whole {
		needed = numNodes
	}
	switch {
	case f.deaf:
		if holds && settled && all == numNodes && has >= quorum {
			return "a forced hold has the lock back"
		}
	case s.robbed:
		return "the operator has deleted the lock of another"
	case s.rival && taken < quorum:
		return "the rival holds a lock that no quorum has"
	case s.rival && holds && all == 0:
		return "two holders, and nobody was forced"
	case s.phase == forceHeard && all == 0:
		return "a hold was lost to a false message"
	case holds && settled && heard >= needed:
		return "a forced hold goes on, although its holder has heard of it"
	case holds && !f.heals && had >= quorum && has >= quorum:
		return "a forced hold that does not heal has the lock back"
	}
	return ""
}

func restForce(s forceState) string {
	for _, n := range s.nodes {
		if s.phase == forceHeard && n.value == mark(0) {
			return "a holder that has heard of a force leaves a key"
		}
	}
	return ""
}

func (f forcing) next(s forceState, do func(Step, forceState)) {
	if s.phase == forceHolds {
		f.ends(s, do)
		f.extendings(s, do)
		f.asks(s, do)
		f.lieTo(s, do)
	}
	for n := range s.nodes {
		f.sets(s, n, do)
		f.extension(s, n, do)
		f.question(s, n, do)
		f.forces(s, n, do)
		f.hint(s, n, do)
		f.clears(s, n, do)
		f.rivals(s, n, do)
	}
	f.rivalry(s, do)
}

// ends lets A unlock, or its validity end.
func (f forcing) ends(s forceState, do func(Step, forceState)) {
	f.end(&s, forceOver)
	do(Step{Text: "A unlocks, or its validity ends", Kind: Choice}, s)
}

// end ends the hold of A. Its messages remain on their way.
func (f forcing) end(s *forceState, phase forcePhase) {
	s.phase = phase
	s.extended, s.extending, s.gone, s.asking, s.again = 0, false, false, false, false
	for n := range s.nodes {
		at := &s.nodes[n]
		at.told, at.said, at.missed, at.hint, at.force = toldNothing, toldNothing, false, 0, min(at.force, nothingToForce)
		if !f.heals { // an extension changes nothing any more
			at.extend, at.old = 0, false
		}
		at.old = at.old || at.extend == flying
		at.extend = 0
	}
}

// extendings begins an extension, or acts on the answers to it.
func (f forcing) extendings(s forceState, do func(Step, forceState)) {
	told := f.count(&s, func(n *forceNode) answer { return n.told })
	if !s.extending {
		if s.extended == f.extends {
			return
		}
		s.extended++
		s.extending = true
		for n := range s.nodes {
			at := &s.nodes[n]
			at.old = at.old || at.extend == flying
			at.extend, at.told = flying, toldNothing
		}
		do(Step{Text: "A sends an extension", Kind: Choice}, s)
		return
	}
	disproved := told[toldMissing] + told[toldOthers]
	switch {
	case told[toldMine] >= quorum:
		f.decided(&s)
		do(Step{Text: "A's extension is CONFIRMED", Kind: Work}, s)
	case told[toldOthers] >= quorum || !f.heals && disproved >= quorum:
		f.end(&s, forceDisproved)
		do(Step{Text: "A's extension is DISPROVED", Kind: Work}, s)
	case disproved >= quorum:
		f.decided(&s)
		s.gone = f.hears && !f.ignores && !f.each && (s.asking || !f.afterwards)
		do(Step{Text: "A notes that a quorum was missing its value", Kind: Work}, s)
	case told[toldNothing] == 0:
		f.decided(&s)
		do(Step{Text: "A's extension has failed", Kind: Work}, s)
	}
}

// decided ends the extension. Answers that come later do not count.
func (f forcing) decided(s *forceState) {
	s.extending = false
	for n := range s.nodes {
		s.nodes[n].told = toldNothing
		if !f.heals { // it changes nothing any more
			s.nodes[n].extend = unsent
		}
	}
}

// count returns how many nodes have given each answer.
func (f forcing) count(s *forceState, of func(n *forceNode) answer) (counts [toldOthers + 1]int) {
	for n := range s.nodes {
		counts[of(&s.nodes[n])]++
	}
	return counts
}

// lieTo brings A a message that is false.
func (f forcing) lieTo(s forceState, do func(Step, forceState)) {
	if f.lies && !s.lied {
		s.lied = true
		f.doubt(&s)
		do(Step{Text: "A hears a FALSE message", Kind: Choice}, s)
	}
}

// doubt makes A ask the nodes.
func (f forcing) doubt(s *forceState) {
	switch {
	case f.deaf:
	case f.believes:
		f.end(s, forceHeard)
	case !s.asking:
		s.asking = true
	case !f.drops:
		s.again = true
	}
}

// asks acts on the answers to A's question. They are enough when a quorum has the value or has not, or all have answered.
// A then waits for an extension that is under way.
func (f forcing) asks(s forceState, do func(Step, forceState)) {
	if !s.asking {
		return
	}
	said := f.count(&s, f.counted)
	enough := said[toldMine] >= quorum || said[toldNothing] == 0
	switch {
	case said[toldMissing]+said[toldOthers] >= quorum || enough && s.gone:
		f.end(&s, forceHeard)
		do(Step{Text: "A learns that it was FORCED", Kind: Work}, s)
	case enough && (s.again || !s.extending || f.hasty):
		s.asking, s.again = s.again, false
		for n := range s.nodes {
			s.nodes[n].said = toldNothing
		}
		do(Step{Text: "A goes on", Kind: Work}, s)
	}
}

// counted returns how A counts the answer of a node to its question.
func (f forcing) counted(n *forceNode) answer {
	switch {
	case f.each && n.missed:
		return toldMissing
	case f.keeps && n.said == toldMissing:
		return toldMine
	}
	return n.said
}

// sets adds the steps in which node n executes A's acquire, or is filled.
func (f forcing) sets(s forceState, n int, do func(Step, forceState)) {
	at := &s.nodes[n]
	if at.acquire == flying && (f.late || at.force == unforced) {
		t := s
		t.nodes[n].acquire = answered
		t.nodes[n].refused = at.value != 0 && f.fills
		if at.value == 0 {
			t.nodes[n].value = mark(0)
		}
		do(Step{"node {n} executes A's acquire", Choice, 0, n}, t)
	}
	if at.refused && at.filled == unsent && s.phase == forceHolds {
		t := s
		t.nodes[n].filled = flying
		do(Step{"A sends a fill to node {n}", Choice, 0, n}, t)
	}
	if at.filled == flying {
		at.filled = answered
		if at.value == 0 {
			at.value = mark(0)
		}
		do(Step{"node {n} executes A's fill", Choice, 0, n}, s)
	}
}

// extension adds the steps in which node n executes an extension.
func (f forcing) extension(s forceState, n int, do func(Step, forceState)) {
	if s.nodes[n].old {
		t := s
		t.nodes[n].old = false
		_ = f.executeExtension(&t, n)
		do(Step{"node {n} executes an old extension of A", Work, 0, n}, t)
	}
	if s.nodes[n].extend == flying {
		told := f.executeExtension(&s, n)
		s.nodes[n].extend = answered
		if s.extending {
			s.nodes[n].told = told
		}
		do(Step{"node {n} executes A's extension", Work, 0, n}, s)
	}
}

func (f forcing) executeExtension(s *forceState, n int) answer {
	at := &s.nodes[n]
	told := at.has()
	if told == toldOthers && !f.heals {
		told = toldMissing // which is the same to A
	}
	if told == toldMissing && f.heals {
		at.value = mark(0)
	}
	at.missed = at.missed || told == toldMissing && f.each && s.phase == forceHolds
	return told
}

func (n *forceNode) has() answer { return [...]answer{toldMissing, toldMine, toldOthers}[n.value] }

// question adds the step in which node n answers the question of A.
func (f forcing) question(s forceState, n int, do func(Step, forceState)) {
	said := f.count(&s, f.counted)
	enough := said[toldMine] >= quorum || said[toldMissing] >= quorum
	if at := &s.nodes[n]; s.asking && at.said == toldNothing && !enough {
		at.said = at.has()
		if at.said == toldOthers && !f.keeps {
			at.said = toldMissing
		}
		do(Step{"node {n} answers the question of A", Work, 0, n}, s)
	}
}

// forces adds the step in which node n executes the operator's release.
func (f forcing) forces(s forceState, n int, do func(Step, forceState)) {
	at := &s.nodes[n]
	if at.force != unforced {
		return
	}
	at.force = nothingToForce
	switch {
	case at.value == mark(0):
		at.value, at.force = 0, deleted
	case at.value != 0 && f.blind:
		at.value, s.robbed = 0, true
	}
	if s.phase == forceHolds && f.hears && at.hint == unsent {
		at.hint = flying
	}
	do(Step{"node {n} executes the FORCE", Choice, 0, n}, s)
}

// hint adds the step in which A hears the message of node n.
func (f forcing) hint(s forceState, n int, do func(Step, forceState)) {
	at := &s.nodes[n]
	if s.phase == forceHolds && (at.hint == flying || f.early && f.hears && at.hint == unsent) {
		at.hint = answered
		f.doubt(&s)
		do(Step{"A hears the message of node {n}", Choice, 0, n}, s)
	}
}

// clears adds the steps in which the key of A on node n is released, runs out or is forgotten.
func (f forcing) clears(s forceState, n int, do func(Step, forceState)) {
	at := &s.nodes[n]
	if at.value != mark(0) {
		return
	}
	all := true
	for _, other := range s.nodes {
		all = all && other.value == mark(0)
	}
	at.value = 0
	switch {
	case s.phase == forceHeard && (!f.stays || at.force == unforced):
		do(Step{"node {n} executes A's release", Work, 0, n}, s)
	case s.phase != forceHolds:
		do(Step{"the key of A on node {n} vanishes", Timer, 0, n}, s)
	case f.forgets && !s.forgot && all:
		s.forgot = true
		do(Step{"node {n} FORGETS its key", Choice, 0, n}, s)
	}
}

// rivals adds the steps of B's attempts on node n.
func (f forcing) rivals(s forceState, n int, do func(Step, forceState)) {
	at := &s.nodes[n]
	switch {
	case at.value == 0:
		at.value = mark(1)
		do(Step{"node {n} executes B's acquire", Choice, 0, n}, s)
	case at.value == mark(1) && !s.rival:
		at.value = 0
		do(Step{"the key of B on node {n} vanishes", Timer, 0, n}, s)
	}
}

// rivalry begins or ends the hold of B.
func (f forcing) rivalry(s forceState, do func(Step, forceState)) {
	has := 0
	for _, n := range s.nodes {
		has += int(flag(n.value == mark(1)))
	}
	if s.rival {
		s.rival = false
		do(Step{Text: "B unlocks", Kind: Choice}, s)
	} else if has >= quorum {
		s.rival = true
		do(Step{Text: "B HOLDS the lock", Kind: Choice}, s)
	}
}

func showForce(s forceState) string {
	var b strings.Builder
	for _, n := range s.nodes {
		fmt.Fprintf(&b, "%c", "-AB"[n.value])
	}
	fmt.Fprintf(&b, " A %s", [...]string{"holds", "was told", "was disproved", "over"}[s.phase])
	if s.extending {
		b.WriteString(", extends")
	}
	if s.asking {
		b.WriteString(", asks")
	}
	if s.rival {
		b.WriteString(", B holds")
	}
	return b.String()
}
