package model

import (
	"fmt"
	"strings"
)

// This file is the release that is repeated until it is settled: one value on one node.
//
// Commands set the value: the acquire, and an extension that heals. Each is sent once; a
// node without its script answers that it has run nothing, and then it may be sent in
// full. A release follows. It is settled once its client knows that nothing is left of
// the value and that nothing can set it any more. What was in flight on a connection
// that is lost is executed later or never, and the client is told that nobody knows.
//
// A node executes what comes on one connection in the order in which it was sent, if the
// client has ordered connections; else in any order. The replies come in the order of
// the execution.

const (
	maxSetters  = 2
	maxReleases = 3 // enough to meet each state of the setters: later ones do the same
)

type settleState struct {
	key      bool // the node has the value
	setters  [maxSetters]setter
	release  message // the one under way
	orderly  bool    // when it was sent, all setters had been answered
	sent     uint8   // releases sent
	settled  bool
	replaced bool // the first connection is lost
}

// A message is where something sent is.
type message uint8

const (
	unsent message = iota
	flying
	stray    // on a connection that is lost: it may still be executed, unheard
	replying // executed, the reply is on its way
	answered
	unknown // the client was told that nobody knows; it may have been executed
)

type setter struct {
	at       message
	noScript bool // the reply says that nothing was executed
	full     bool // it has been sent in full
	new      bool // on the connection that replaced the first
}

type settleBounds struct {
	name    string
	ordered bool // one connection after another, each in order
	lossy   bool // a connection may be lost
}

type settleFlaws struct {
	trusting, anyOrder, overtakes, lateFull, once bool
}

type settle struct {
	settleBounds
	settleFlaws
}

var (
	settleOrdered = settleBounds{name: "an ordered connection, that may be lost", ordered: true, lossy: true}
	settleAny     = settleBounds{name: "connections without order"}
)

var settleRules = []struct {
	name, section, rule string
	bounds              settleBounds
	flaws               settleFlaws
}{
	{"the reply of a release always settles", "1 rounds, sending", "where nobody knows what became of a command that sets the value, that it is missing settles nothing", settleOrdered, settleFlaws{trusting: true}},
	{"any connection counts as ordered", "1 rounds, sending", "without order a release settles only if all that sets the value had been answered when it was sent", settleAny, settleFlaws{anyOrder: true}},
	{"a release overtakes", "1 rounds", "a release goes behind all that sets the value, in the same order", settleOrdered, settleFlaws{overtakes: true}},
	{"in full after the release", "1 rounds, sending", "a script that the node did not have is sent in full only while its value has not been released", settleOrdered, settleFlaws{lateFull: true}},
	{"a release is sent once", "1 rounds, settling", "a release that did not settle is repeated", settleOrdered, settleFlaws{once: true}},
}

func settleCases() (cases []Case) {
	for _, b := range []settleBounds{settleOrdered, settleAny} {
		cases = append(cases, Case{Model: "settle", Name: b.name, Explore: settle{b, settleFlaws{}}.explore})
	}
	return cases
}

func settleMutations() (cases []Case) {
	for _, r := range settleRules {
		cases = append(cases, Case{Model: "settle", Name: r.name, Rule: r.rule, Section: r.section, Explore: settle{r.bounds, r.flaws}.explore})
	}
	return cases
}

func (m settle) explore(limit int) Result {
	return Explore(System[settleState]{
		Clients: []string{"the acquire", "the extension"}, Next: m.next, Wrong: wrongSettle, Show: func(s settleState) string { return s.show() },
		// With a lost setter only time settles: the keys run out.
		Goal: func(s settleState) bool { return s.settled || s.anybodyUnknown() && s.sent > 1 },
	}, limit)
}

// wrongSettle is the promise: what is settled leaves nothing behind.
func wrongSettle(s settleState) string {
	if !s.settled {
		return ""
	}
	if s.key {
		return "the node has the value although the release is settled"
	}
	for _, c := range s.setters {
		if (c.at == flying || c.at == stray) && !c.noScript {
			return "a command that sets the value is on its way although the release is settled"
		}
	}
	return ""
}

func (m settle) next(s settleState, do func(Step, settleState)) {
	if s.settled {
		return
	}
	for i := range s.setters {
		m.setter(s, i, do)
	}
	m.releases(s, do)
	if m.lossy && !s.replaced {
		m.lose(s, do)
	}
	if s.key {
		s.key = false
		do(Step{Text: "the key runs out", Kind: Timer}, s)
	}
}

// setter is what may become of a command that sets the value.
func (m settle) setter(s settleState, i int, do func(Step, settleState)) {
	c := &s.setters[i]
	switch {
	case c.at == unsent && s.sent == 0 && (i == 0 || s.setters[0].at != unsent):
		c.at, c.new = flying, s.replaced
		do(Step{"{c} is sent", Choice, i, 0}, s)
	case c.at == flying && (!m.ordered || !s.before(i)):
		t := s
		t.key, t.setters[i].at = true, replying
		do(Step{"the node executes {c}", Work, i, 0}, t)
		if !c.full {
			c.at, c.noScript = replying, true
			do(Step{"the node does not have the script of {c}", Choice, i, 0}, s)
		}
	case c.at == stray:
		c.at, s.key = unknown, true
		do(Step{"the node executes {c}, which was lost, late", Choice, i, 0}, s)
	case c.at == replying && (!m.ordered || i == 0 || s.setters[0].at != replying):
		m.answer(s, i, do)
	}
}

// answer takes the reply to a command that sets the value.
func (m settle) answer(s settleState, i int, do func(Step, settleState)) {
	c := &s.setters[i]
	if c.noScript && (s.sent == 0 || m.lateFull) {
		*c = setter{at: flying, full: true, new: s.replaced}
		do(Step{"{c} is sent in full", Work, i, 0}, s)
		return
	}
	c.at, c.noScript = answered, false
	do(Step{"the reply to {c} comes", Work, i, 0}, s)
}

// before reports whether something that was sent before setter i, on its connection, has
// not been executed.
func (s *settleState) before(i int) bool {
	return i > 0 && s.setters[0].at == flying && s.setters[0].new == s.setters[i].new
}

// anybodyOpen reports whether a setter has not been answered, as far as the client knows.
func (s *settleState) anybodyOpen() bool {
	for _, c := range s.setters {
		if c.at == flying || c.at == replying {
			return true
		}
	}
	return false
}

// anybodyUnknown reports whether nobody knows what has become of a setter.
func (s *settleState) anybodyUnknown() bool {
	for _, c := range s.setters {
		if c.at == stray || c.at == unknown {
			return true
		}
	}
	return false
}

// releases is what may become of the release under way, or of the next.
func (m settle) releases(s settleState, do func(Step, settleState)) {
	switch s.release {
	case unsent, unknown:
		if s.setters[0].at == unsent || s.sent > 0 && m.once {
			return
		}
		s.release, s.orderly = flying, !s.anybodyOpen() && !s.anybodyUnknown()
		s.sent = min(s.sent+1, maxReleases)
		do(Step{Text: "the release is sent", Kind: Work}, s)
	case flying:
		if m.ordered && !m.overtakes && s.anybodyFlying() {
			return
		}
		s.key, s.release = false, replying
		do(Step{Text: "the node executes the release", Kind: Work}, s)
	case replying:
		if m.ordered && !m.overtakes && s.anybodyOpen() {
			return // their replies come first
		}
		s.settled = m.settles(&s)
		s.release = unsent
		do(Step{Text: "the reply to the release comes", Kind: Work}, s)
	}
}

func (s *settleState) anybodyFlying() bool {
	return s.setters[0].at == flying || s.setters[1].at == flying
}

// settles reports whether the reply that has come now shows that the node is done with
// the value.
func (m settle) settles(s *settleState) bool {
	switch {
	case m.trusting, s.orderly:
		return true
	case m.ordered || m.anyOrder:
		return !s.anybodyOpen() && !s.anybodyUnknown()
	}
	return false
}

// lose loses the connection. What was in flight is executed late or never.
func (m settle) lose(s settleState, do func(Step, settleState)) {
	s.replaced = true
	for i := range s.setters {
		switch c := &s.setters[i]; c.at {
		case flying:
			c.at = stray
		case replying:
			c.at = unknown
		}
	}
	if s.release != unsent {
		s.release = unknown
	}
	do(Step{Text: "the connection is LOST", Kind: Choice}, s)
}

func (s *settleState) show() string {
	var b strings.Builder
	if s.key {
		b.WriteString("the node has the value")
	}
	if s.settled {
		fmt.Fprintf(&b, " settled")
	}
	return b.String()
}
