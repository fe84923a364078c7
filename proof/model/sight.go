package model

import (
	"fmt"
	"strings"
)

// This file models a look (Inspect) at a lock. Client A tries once, holds, and unlocks, or its attempt fails, or its
// validity ends. A rival, B, also tries: its attempts never win, and what they set vanishes at some time. The look reads
// each node at another moment, and some nodes do not answer it.
//
// What a look promises is in proof/history/sights.go: whom it names had begun, and had not unlocked before. What it
// calls free nobody held for all of its time. Beside a holder it names nobody else.

type sightState struct {
	nodes    [numNodes]sightNode
	phase    sightPhase
	restarts uint8
	look     sightLook
}

type sightNode struct {
	value     uint8 // see mark
	young     bool  // it has restarted without its keys
	acquire   message
	granted   bool // and A counts it
	released  bool // a release was executed, or has got lost
	confirmed bool // and A counts it
	rival     bool // it has executed the acquire of the rival
	said      said
}

// A sightPhase says how far a client has got.
type sightPhase uint8

const (
	sightIdle      sightPhase = iota
	sightOpen                 // its acquires are sent
	sightHolds                // a quorum has granted
	sightFailed               // it has given up, and releases
	sightReleasing            // Unlock was called
	sightReleased             // Unlock has succeeded
	sightOver                 // the validity has ended
)

// A said is what a node has said to the look: nothing yet, that it is silent, or more: saysNothing plus the mark.
type said uint8

const (
	unasked said = iota
	silent
	hasNothing
)

type sightLook struct {
	begun, done bool
	free        bool
	named       uint8 // the clients that it names, as bits
	gone        bool  // A had unlocked when it began
	whole       bool  // A held when it began
}

type sightBounds struct {
	name     string
	lossy    bool // connections are lost
	restarts uint8
	size     Size
}

// Each field of sightFlaws weakens a rule: see sightRules.
type sightFlaws struct {
	oneWord, silentIsFree, silentHave, believesYoung, missing bool
}

type sight struct {
	sightBounds
	sightFlaws
}

var (
	sightLate     = sightBounds{name: "late messages, silent nodes", lossy: true, size: Medium}
	sightRestarts = sightBounds{name: "a restart without data", restarts: 1, size: Medium}
)

var sightRules = []struct {
	name, section, rule string
	bounds              sightBounds
	flaws               sightFlaws
}{
	{"one node's word", "1 rounds, Inspect", "a look names a holder only if a quorum of nodes has its value", sightLate, sightFlaws{oneWord: true}},
	{"a silent node has nothing", "1 rounds, Inspect", "a lock is free only if no value has a quorum, whatever the silent nodes have", sightLate, sightFlaws{silentIsFree: true}},
	{"a silent node has the value", "1 rounds, Inspect", "a look counts no silent node for a holder", sightLate, sightFlaws{silentHave: true}},
	{"a missing value confirms an Unlock", "1 rounds, release", "an Unlock succeeds only if a quorum of nodes had the value and has deleted it", sightLate, sightFlaws{missing: true}},
	{"a restarted node is believed", "5 restart guard", "a node that may have forgotten locks has not said that it has nothing", sightRestarts, sightFlaws{believesYoung: true}},
}

func sightCases() (cases []Case) {
	for _, b := range []sightBounds{sightLate, sightRestarts} {
		cases = append(cases, Case{Model: "sight", Name: b.name, Size: b.size, Explore: sight{b, sightFlaws{}}.explore})
	}
	return cases
}

func sightMutations() (cases []Case) {
	for _, r := range sightRules {
		cases = append(cases, Case{Model: "sight", Name: r.name, Rule: r.rule, Section: r.section, Size: r.bounds.size, Explore: sight{r.bounds, r.flaws}.explore})
	}
	return cases
}

func (m sight) explore(how Search) Result {
	return Find(System[sightState]{Next: m.next, Same: sameSight, Wrong: wrongSight, Show: showSight}, how)
}

func sameSight(s sightState) sightState {
	sortNodes(&s.nodes, func(n *sightNode) uint64 {
		return pack(n.value, flag(n.young), uint8(n.acquire), flag(n.granted), flag(n.released), flag(n.confirmed), flag(n.rival), uint8(n.said))
	})
	return s
}

func flag(is bool) uint8 {
	if is {
		return 1
	}
	return 0
}

// wrongSight checks the promises of a look.
func wrongSight(s sightState) string {
	const a = 1 // as a bit
	whole := s.look.whole && s.phase == sightHolds
	switch {
	case !s.look.done:
	case s.look.named&a != 0 && s.look.gone:
		return "the look names a client that had unlocked before"
	case whole && s.look.free:
		return "the look calls the lock free, and a client has held it all the time"
	case whole && s.look.named&^a != 0:
		return "the look names somebody else than the client that has held all the time"
	case whole && s.look.named == 0 && !s.anybodySilent():
		return "the look names nobody, though no node is silent, and a client has held all the time"
	}
	return ""
}

func (s *sightState) anybodySilent() bool {
	for _, n := range s.nodes {
		if n.said == silent {
			return true
		}
	}
	return false
}

func (m sight) next(s sightState, do func(Step, sightState)) {
	if s.look.done {
		return
	}
	m.client(s, do)
	for n := range s.nodes {
		m.acquire(s, n, do)
		m.release(s, n, do)
		m.rivals(s, n, do)
		m.restart(s, n, do)
		m.read(s, n, do)
	}
	m.looks(s, do)
}

// client adds the steps of A.
func (m sight) client(s sightState, do func(Step, sightState)) {
	granted, confirmed := 0, 0
	for _, n := range s.nodes {
		granted += int(flag(n.granted))
		confirmed += int(flag(n.confirmed))
	}
	to := func(text string, kind Kind, phase sightPhase) {
		t := s
		t.phase = phase
		for n := range t.nodes { // these counts are used up
			t.nodes[n].granted = false
			t.nodes[n].confirmed = false
			if phase == sightOpen {
				t.nodes[n].acquire = flying
			}
		}
		do(Step{Text: text, Kind: kind}, t)
	}
	switch s.phase {
	case sightIdle:
		to("A sends its acquires", Choice, sightOpen)
	case sightOpen:
		if granted >= quorum {
			to("A holds", Work, sightHolds)
		}
		to("A gives up", Choice, sightFailed)
	case sightHolds:
		to("A calls Unlock", Choice, sightReleasing)
		to("the validity of A ends", Timer, sightOver)
	case sightReleasing:
		if confirmed >= quorum {
			to("the Unlock of A succeeds", Work, sightReleased)
		}
	default:
	}
}

// acquire adds the steps of A's acquire at node n. If its connection is lost, the node executes it late or never.
func (m sight) acquire(s sightState, n int, do func(Step, sightState)) {
	at := &s.nodes[n]
	switch at.acquire {
	case flying:
		if m.lossy {
			t := s
			t.nodes[n].acquire = stray
			do(Step{"the connection of A to node {n} is LOST", Choice, 0, n}, t)
		}
		at.acquire = answered
		if at.value == 0 {
			at.value, at.granted = mark(0), !at.young && s.phase == sightOpen
		}
		do(Step{"node {n} executes A's acquire", Work, 0, n}, s)
	case stray:
		at.acquire = answered
		if at.value == 0 {
			at.value = mark(0)
		}
		do(Step{"node {n} executes A's lost acquire late", Choice, 0, n}, s)
	default:
	}
}

// release adds the steps of A's release at node n. It does not overtake the acquire on its connection.
func (m sight) release(s sightState, n int, do func(Step, sightState)) {
	at := &s.nodes[n]
	if p := s.phase; p != sightFailed && p != sightReleasing && p != sightReleased || at.released || at.acquire == flying {
		return
	}
	at.released = true
	if m.lossy {
		do(Step{"A's release to node {n} is LOST", Choice, 0, n}, s)
	}
	at.confirmed = s.phase == sightReleasing && (at.value == mark(0) || m.missing)
	if at.value == mark(0) {
		at.value = 0
	}
	do(Step{"node {n} executes A's release", Work, 0, n}, s)
}

// rivals adds the steps of the rival at node n, and lets a key run out of which nobody is promised anything.
func (m sight) rivals(s sightState, n int, do func(Step, sightState)) {
	at := &s.nodes[n]
	t := s
	switch {
	case at.value == 0 && !at.rival:
		t.nodes[n].value, t.nodes[n].rival = mark(1), true
		do(Step{"node {n} executes the acquire of B", Choice, 0, n}, t)
	case at.value == mark(1), at.value == mark(0) && s.phase != sightHolds && s.phase != sightOpen:
		t.nodes[n].value = 0
		do(Step{"the key on node {n} vanishes", Timer, 0, n}, t)
	}
}

// restart restarts node n without its keys.
func (m sight) restart(s sightState, n int, do func(Step, sightState)) {
	if s.restarts < m.restarts {
		s.restarts++
		s.nodes[n].value, s.nodes[n].young = 0, true
		do(Step{"node {n} RESTARTS without its keys", Choice, 0, n}, s)
	}
}

// read adds the steps of node n in a look.
func (m sight) read(s sightState, n int, do func(Step, sightState)) {
	at := &s.nodes[n]
	if !s.look.begun || at.said != unasked {
		return
	}
	t := s
	t.nodes[n].said = silent
	do(Step{"node {n} does not answer the look", Choice, 0, n}, t)
	if at.young && !m.believesYoung {
		return
	}
	at.said = hasNothing + said(at.value)
	do(Step{"the look reads node {n}", Work, 0, n}, s)
}

// looks begins a look, or ends it when each node has answered or is silent.
func (m sight) looks(s sightState, do func(Step, sightState)) {
	l := &s.look
	if !l.begun {
		l.begun, l.gone, l.whole = true, s.phase == sightReleased, s.phase == sightHolds
		do(Step{Text: "the look begins", Kind: Choice}, s)
		return
	}
	var have [2]int // by client
	quiet := 0
	for _, n := range s.nodes {
		switch n.said {
		case unasked:
			return
		case silent:
			quiet++
		case hasNothing:
		default:
			have[n.said-hasNothing-1]++
		}
	}
	l.done = true
	l.free = quiet < quorum || m.silentIsFree
	for c, nodes := range have {
		if nodes >= quorum || m.oneWord && nodes > 0 || m.silentHave && nodes > 0 && nodes+quiet >= quorum {
			l.named |= bit(c)
		}
		if l.named != 0 || nodes+quiet >= quorum && !m.silentIsFree {
			l.free = false
		}
	}
	do(Step{Text: "the look ends", Kind: Work}, s)
}

func showSight(s sightState) string {
	var b strings.Builder
	for _, n := range s.nodes {
		fmt.Fprintf(&b, "%c", "-AB"[n.value])
	}
	fmt.Fprintf(&b, " A %s", [...]string{"idle", "tries", "holds", "failed", "unlocks", "unlocked", "over"}[s.phase])
	if !s.look.begun {
		return b.String()
	}
	b.WriteString(", look:")
	for _, n := range s.nodes {
		fmt.Fprintf(&b, " %s", [...]string{"?", "silent", "-", "A", "B"}[n.said])
	}
	return b.String()
}
