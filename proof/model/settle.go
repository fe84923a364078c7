package model

import (
	"fmt"
	"slices"
	"strings"
)

// This file models a release that is repeated until it is settled, for one value on one node.
//
// Two commands set the value: the acquire, and an extension that sets missing keys again. The client
// sends each once. If the node does not have the script of a command, it answers that it has run nothing,
// and the client may then send the script in full. A command of the server that sets several keys or none,
// MSETEX, may do the same. A release follows. It is settled once its client knows that the value is gone and
// that nothing can set it any more. When a connection is lost, the node executes the commands in flight late
// or never, and the client learns that their fate is unknown.
//
// On an ordered connection the node executes the commands in the order in which the client sent them,
// and the replies arrive in that order. Without order both may happen in any order.
//
// If the connection is lost before the acquire is answered, the client may send it once more, on the next connection:
// the repetition. Its answer tells nothing of the first sending.
//
// On an ordered connection the first release may be DELEX, which deletes the key if it has the value, and behind it
// EXISTS of the queue. If DELEX has found the value, and nobody waits, that is all. Otherwise the script follows, and
// tells who waits. For a rollback DELEX need not have found it.

const (
	maxSetters  = 3
	repetition  = 2 // its index in settleState.setters
	maxReleases = 3 // settleState.sent counts no further, which keeps the states finite
)

type settleState struct {
	key      bool // the node has the value
	setters  [maxSetters]setter
	release  message // the release under way
	orderly  bool    // all setters had been answered when the release was sent
	found    bool    // the node had the value when it executed the release
	sent     uint8   // releases sent, counted up to maxReleases
	settled  bool
	replaced bool // the first connection was lost
	forgiven bool // the client takes the acquire for answered
	native   bool // the release under way is DELEX and EXISTS, and DELEX was executed or denied
	denied   bool // it was denied
	nobody   bool // EXISTS has found no queue
	waits    bool // somebody was refused because of the value, and no script has told it since
}

// A message says how far a command has got.
type message uint8

const (
	unsent message = iota
	flying
	stray    // its connection is lost: it may still be executed, without a reply
	replying // executed, the reply is on its way
	answered
	unknown // the client learned that its fate is unknown; it may have been executed
)

type setter struct {
	at       message
	noScript bool // the reply says that nothing was executed
	full     bool // it was sent in full
	new      bool // sent on the connection that replaced the first
}

type settleBounds struct {
	name    string
	ordered bool // one connection at a time, each of them ordered
	lossy   bool // a connection may be lost
	repeats bool // the acquire may be repeated
	native  bool // the first release may be DELEX and EXISTS
}

// Each field of settleFlaws weakens a rule: see settleRules.
type settleFlaws struct {
	trusting, anyOrder, overtakes, lateFull, once, forgives, uncounted bool
	missingIsOurs, errorIsMissing, halfIsEnough                        bool
}

type settle struct {
	settleBounds
	settleFlaws
}

var (
	settleOrdered = settleBounds{name: "an ordered connection, that may be lost", ordered: true, lossy: true}
	settleAny     = settleBounds{name: "connections without order"}
	settleRepeat  = settleBounds{name: "an ordered connection, that may be lost, and an acquire that is repeated", ordered: true, lossy: true, repeats: true}
	settleNative  = settleBounds{name: "an ordered connection, that may be lost, an acquire that is repeated, and DELEX", ordered: true, lossy: true, repeats: true, native: true}
	settleScatter = settleBounds{name: "connections without order, that may be lost, and an acquire that is repeated", lossy: true, repeats: true}
)

var settleRules = []struct {
	name, section, rule string
	bounds              settleBounds
	flaws               settleFlaws
}{
	{"the reply of a release always settles", "1 rounds, sending", "while the fate of a command that sets the value is unknown, a missing value does not settle a release", settleOrdered, settleFlaws{trusting: true}},
	{"any connection counts as ordered", "1 rounds, sending", "without order a release settles only if all commands that set the value had been answered when it was sent", settleAny, settleFlaws{anyOrder: true}},
	{"a release overtakes", "1 rounds", "a release does not overtake commands that set the value: it is sent behind them on their ordered connection", settleOrdered, settleFlaws{overtakes: true}},
	{"in full after the release", "1 rounds, sending", "if the node did not have a script, the client sends it in full only before it releases the value", settleOrdered, settleFlaws{lateFull: true}},
	{"a release is sent once", "1 rounds, settling", "a release that did not settle is repeated", settleOrdered, settleFlaws{once: true}},
	{"the answer to the repetition settles the acquire", "1 rounds, sending", "the answer to a repetition says nothing of the first sending, whose fate stays unknown", settleRepeat, settleFlaws{forgives: true}},
	{"the repetition is not counted", "1 rounds, sending", "a value that a release finds settles it only if one command was sent that sets it, and a repetition is another one", settleRepeat, settleFlaws{uncounted: true}},
	{"0 is read as ours", "1 rounds, settling", "only DELEX that has deleted has found the value: 0 says that it is missing, or another's", settleNative, settleFlaws{missingIsOurs: true}},
	{"an error is read as 0", "1 rounds, settling", "a node that denies DELEX, or does not know it, gets the script", settleNative, settleFlaws{errorIsMissing: true}},
	{"the answered half is enough", "6 waiting", "if the connection is lost before EXISTS is answered, the script is sent, although DELEX has deleted", settleNative, settleFlaws{halfIsEnough: true}},
}

func settleCases() (cases []Case) {
	for _, b := range []settleBounds{settleOrdered, settleAny, settleRepeat, settleScatter, settleNative} {
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

func (m settle) explore(how Search) Result {
	return Find(System[settleState]{
		Clients: []string{"the acquire", "the extension", "the repetition"}, Next: m.next, Wrong: wrongSettle, Show: func(s settleState) string { return s.show() },
		// If the fate of a setter is unknown, only the expiry of the keys settles the release. The model
		// then demands a second release and no more.
		Goal: func(s settleState) bool { return s.settled || s.anybodyUnknown() && s.sent > 1 },
	}, how)
}

// wrongSettle checks the promise: a settled release leaves nothing behind.
func wrongSettle(s settleState) string {
	if !s.settled {
		return ""
	}
	switch {
	case s.key:
		return "the node has the value although the release is settled"
	case s.waits:
		return "nobody has told the waiter although the release is settled"
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
	if s.key && m.native && !s.waits {
		t := s
		t.waits = true
		do(Step{Text: "somebody is refused and enters the queue", Kind: Choice}, t)
	}
	if s.key {
		s.key = false
		do(Step{Text: "the key runs out", Kind: Timer}, s)
	}
}

// setter adds the steps of a command that sets the value.
func (m settle) setter(s settleState, i int, do func(Step, settleState)) {
	c := &s.setters[i]
	switch {
	case c.at == unsent && s.sent == 0 && m.maySend(&s, i):
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
	case c.at == replying && (!m.ordered || !s.repliesBefore(i)):
		m.answer(s, i, do)
	}
}

// maySend reports whether the client may send setter i, before the release. It repeats an acquire whose fate it does not
// know.
func (m settle) maySend(s *settleState, i int) bool {
	first := s.setters[0].at
	if i == repetition {
		return m.repeats && (first == stray || first == unknown)
	}
	return i == 0 || first != unsent
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
	if i == repetition && m.forgives {
		s.forgiven = true
	}
	do(Step{"the reply to {c} comes", Work, i, 0}, s)
}

// before reports whether an earlier command on the connection of setter i has not been executed. The repetition and the
// extension may be sent in either order: what is executed first was sent first.
func (s *settleState) before(i int) bool {
	return i > 0 && s.setters[0].at == flying && s.setters[0].new == s.setters[i].new
}

// repliesBefore reports whether an earlier reply is on its way to the client.
func (s *settleState) repliesBefore(i int) bool { return i > 0 && s.setters[0].at == replying }

// anybodyOpen reports whether a setter is unanswered, as far as the client knows.
func (s *settleState) anybodyOpen() bool {
	for _, c := range s.setters {
		if c.at == flying || c.at == replying {
			return true
		}
	}
	return false
}

// anybodyUnknown reports whether the fate of a setter is unknown.
func (s *settleState) anybodyUnknown() bool {
	for i, c := range s.setters {
		if (c.at == stray || c.at == unknown) && !(i == 0 && s.forgiven) {
			return true
		}
	}
	return false
}

// releases adds the steps of the release under way, or of the next one.
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
		if m.native && s.sent == 1 {
			m.executeNative(s, do)
			if s.native {
				return
			}
		}
		s.found, s.waits, s.key, s.release = s.found || s.key, false, false, replying
		do(Step{Text: "the node executes the release", Kind: Work}, s)
	case replying:
		if m.ordered && !m.overtakes && s.anybodyOpen() {
			return // the replies to the setters come first
		}
		if s.native {
			m.answerNative(s, do)
			return
		}
		m.over(s, do)
	}
}

// over ends the release under way.
func (m settle) over(s settleState, do func(Step, settleState)) {
	s.settled = m.settles(&s)
	s.release, s.found, s.native, s.denied, s.nobody = unsent, false, false, false, false
	do(Step{Text: "the reply to the release comes", Kind: Work}, s)
}

// executeNative executes DELEX, and then EXISTS.
func (m settle) executeNative(s settleState, do func(Step, settleState)) {
	if s.native {
		s.nobody, s.release = !s.waits, replying
		do(Step{Text: "the node executes EXISTS", Kind: Work}, s)
		return
	}
	s.native = true
	t := s
	t.found, t.key = s.key, false
	do(Step{Text: "the node executes DELEX", Kind: Work}, t)
	s.denied = true
	do(Step{Text: "the node denies DELEX", Kind: Choice}, s)
}

// answerNative takes the replies to DELEX and EXISTS. The script follows unless they suffice.
func (m settle) answerNative(s settleState, do func(Step, settleState)) {
	denied := s.denied && !m.errorIsMissing
	ends := s
	ends.found = s.found || m.missingIsOurs
	if s.nobody && !denied {
		m.over(ends, do)
		if s.found {
			return
		}
	}
	s.native, s.denied, s.nobody = false, false, false
	s.release, s.sent = flying, 2
	do(Step{Text: "the script of the release is sent behind it", Kind: Work}, s)
}

func (s *settleState) anybodyFlying() bool {
	return slices.ContainsFunc(s.setters[:], func(c setter) bool { return c.at == flying })
}

// settles reports whether the reply to the release proves that the value is gone for good.
func (m settle) settles(s *settleState) bool {
	switch {
	case m.trusting, s.orderly:
		return true
	case s.found && m.sentSetters(s) == 1:
		return true // the node executes a command at most once
	case m.ordered || m.anyOrder:
		return !s.anybodyOpen() && !s.anybodyUnknown()
	}
	return false
}

// sentSetters returns how many commands were sent that set the value.
func (m settle) sentSetters(s *settleState) (n int) {
	for i, c := range s.setters {
		if c.at != unsent && !(i == repetition && m.uncounted) {
			n++
		}
	}
	return n
}

// lose loses the connection. The node executes commands in flight late or never.
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
		s.settled = m.halfIsEnough && s.native && s.found && m.settles(&s)
		s.release, s.found, s.native, s.denied, s.nobody = unknown, false, false, false, false
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
	if s.waits {
		b.WriteString(", somebody waits")
	}
	return b.String()
}
