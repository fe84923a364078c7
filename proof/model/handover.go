package model

import (
	"fmt"
	"strings"
)

// This file models a direct hand-off within a process: the giver's Unlock passes the value and
// the rest of the validity to the taker, the first waiter of the process, without telling any node.
//
// There is only one node here; lock.go models a quorum. A rival in another process wants the
// lock, too. Time passes in ticks. The giver may have an extension on its way that sets a missing
// key again. If the giver's connection is lost, the node executes the extension late or never.
//
// Instead of unlocking, the giver may show its value to an adopter in another process. The
// adopter extends the lock with that value, for longer than the giver does, holds it, and unlocks it. The giver
// and the adopter share one hold.
//
// The giver's extension may also be SET IFEQ, which sets the TTL of a key that has our value, even if that shortens
// it.

type handState struct {
	key      handKey
	left     uint8           // ticks until the key expires
	validity [numHands]uint8 // ticks for which each participant still believes that it holds the lock
	phase    [numHands]lockPhase
	extends  message // the giver's extension
	native   bool    // it is SET IFEQ
	age      uint8   // ticks since the extension was sent
	release  message // of our value
	settled  bool    // the release is known to have left nothing behind
	again    bool    // the giver has called Unlock twice
	shown    bool    // the adopter may know the value
}

// handKey says whose value the key on the node has.
type handKey uint8

const (
	noKey handKey = iota
	ourKey
	rivalKey
)

// The participants that may hold the lock.
const (
	giver = iota
	taker
	rival
	adopter
	numHands
)

const (
	handTTL  = 3
	adoptTTL = 4
)

// Each field of handFlaws weakens a rule: see handRules.
type handFlaws struct {
	fresh, alsoReleases, unlocksAgain, ownTrail, extendsOn, handsShown, dropsShown, nativeShown, showsEarly bool
}

var handRules = []struct {
	name, section, rule string
	flaws               handFlaws
}{
	{"the taker's validity begins anew", "6 waiting, hand-over", "the taker gets only the rest of the giver's validity, because no node was told of the hand-off", handFlaws{fresh: true}},
	{"the giver releases as well", "6 waiting, hand-over", "the giver does not release a lock that it hands over", handFlaws{alsoReleases: true}},
	{"the giver's second Unlock releases", "6 waiting, hand-over", "after the hand-off the giver's calls affect only its own hold, which is over", handFlaws{unlocksAgain: true}},
	{"the taker does not know what the giver has sent", "6 waiting, hand-over", "the taker's release is settled only when the commands that the giver sent are settled too", handFlaws{ownTrail: true}},
	{"the giver's extensions go on", "6 waiting, hand-over", "the giver's extensions have ended before the lock is handed over", handFlaws{extendsOn: true}},
	{"a value that was shown is handed over", "6 waiting, hand-over", "a value that was shown is not passed to another hold, because any client that knows it may release it", handFlaws{handsShown: true}},
	{"the giver's next Lock releases a value that was shown", "api, a value that was shown", "a giver that locks again does not release a value that it has shown, because the adopter may hold the lock with it", handFlaws{dropsShown: true}},
	{"SET IFEQ of a value that was shown", "2 validity, extend", "a value that was shown is extended by the script, which never shortens a TTL, because an adopter may rely on a longer one", handFlaws{nativeShown: true}},
	{"a value is shown while SET IFEQ is on its way", "2 validity, extend", "if an adopter may have a longer TTL, a value is not shown while SET IFEQ of it may still be executed", handFlaws{showsEarly: true}},
}

func handOverCases() []Case {
	return []Case{{Model: "hand-over", Name: "a giver, a taker, a rival and an adopter", Explore: handFlaws{}.explore}}
}

func handOverMutations() (cases []Case) {
	for _, r := range handRules {
		cases = append(cases, Case{Model: "hand-over", Name: r.name, Rule: r.rule, Section: r.section, Explore: r.flaws.explore})
	}
	return cases
}

func (f handFlaws) explore(how Search) Result {
	start := handState{key: ourKey, left: handTTL}
	start.validity[giver], start.phase[giver] = handTTL, held
	return Find(System[handState]{
		Start: start, Clients: []string{"the giver", "the taker", "the rival", "the adopter"},
		Next: f.next, Wrong: wrongHand, Show: func(s handState) string { return s.show() },
	}, how)
}

// wrongHand checks two promises: at most one holder, and a settled release leaves nothing behind.
func wrongHand(s handState) string {
	holders := 0
	for _, left := range s.validity {
		if left > 0 {
			holders++
		}
	}
	if s.validity[giver] > 0 && s.validity[adopter] > 0 {
		holders-- // they share one hold
	}
	onItsWay := s.extends == flying || s.extends == stray
	switch {
	case holders > 1:
		return "two holders"
	case s.settled && (s.key == ourKey || onItsWay):
		return "the release is settled, and the key is there or may come back"
	}
	return ""
}

func (f handFlaws) next(s handState, do func(Step, handState)) {
	f.giver(s, do)
	f.extension(s, do)
	f.taker(s, do)
	f.node(s, do)
	adopt(s, do)
	rivals(s, do)
	tick(s, do)
}

func (f handFlaws) giver(s handState, do func(Step, handState)) {
	over := s.phase[giver] == over
	if s.extends == unsent && (!over || f.extendsOn) {
		t := s
		t.extends, t.age = flying, 0
		do(Step{"{c} sends an extension", Choice, giver, 0}, t)
		if !s.shown || f.nativeShown {
			t.native = true
			do(Step{"{c} sends SET IFEQ", Choice, giver, 0}, t)
		}
	}
	switch {
	case !over:
		if !s.shown && (!s.native || f.showsEarly) {
			t := s
			t.shown = true
			do(Step{"{c} SHOWS its value", Choice, giver, 0}, t)
		}
		if s.extends == flying && !f.extendsOn {
			return // Unlock waits for its extensions, or for the loss of their connection
		}
		if s.shown {
			f.part(s, do)
			return
		}
		f.unlock(s, do)
	case !s.again && f.unlocksAgain:
		s.again, s.release = true, flying
		do(Step{"{c} unlocks AGAIN and sends a release", Choice, giver, 0}, s)
	}
}

// unlock ends the giver's hold: it hands the lock over, or releases it.
func (f handFlaws) unlock(s handState, do func(Step, handState)) {
	left := s.validity[giver]
	s.validity[giver], s.phase[giver] = 0, over
	t := s
	t.release = flying
	do(Step{"{c} unlocks and sends its release", Choice, giver, 0}, t)
	if left == 0 || s.phase[taker] != idle {
		return
	}
	s.phase[taker], s.validity[taker] = held, left
	if f.fresh {
		s.validity[taker] = handTTL
	}
	if f.alsoReleases {
		s.release = flying
	}
	do(Step{"{c} unlocks: it HANDS the lock OVER", Choice, giver, 0}, s)
}

// part ends the hold of a giver that has shown its value: the giver stops without sending anything. In
// two mutations it may instead lock again and release the old value, or unlock and hand the lock over.
func (f handFlaws) part(s handState, do func(Step, handState)) {
	left := s.validity[giver]
	s.validity[giver], s.phase[giver] = 0, over
	do(Step{"{c} gives the lock AWAY", Choice, giver, 0}, s)
	switch {
	case left == 0 && f.dropsShown:
		s.release = flying
		do(Step{"{c} locks again and RELEASES its old value", Choice, giver, 0}, s)
	case left > 0 && f.handsShown && s.phase[taker] == idle:
		s.phase[taker], s.validity[taker] = held, left
		do(Step{"{c} unlocks: it HANDS the lock OVER", Choice, giver, 0}, s)
	}
}

// adopt adds the steps of the adopter: it extends the lock with the value that it was shown, and
// unlocks it.
func adopt(s handState, do func(Step, handState)) {
	switch {
	case s.shown && s.phase[adopter] == idle && s.key == ourKey:
		s.left, s.validity[adopter], s.phase[adopter] = adoptTTL, adoptTTL, held
		do(Step{"{c} extends and HOLDS the lock", Choice, adopter, 0}, s)
	case s.phase[adopter] == held && s.validity[giver] == 0: // an earlier unlock would end the giver's hold too
		s.validity[adopter], s.phase[adopter] = 0, over
		if s.key == ourKey {
			s.key, s.left = noKey, 0
		}
		do(Step{"{c} unlocks", Choice, adopter, 0}, s)
	}
}

// extension adds the steps of the giver's extension.
func (f handFlaws) extension(s handState, do func(Step, handState)) {
	if s.extends != flying && s.extends != stray {
		return
	}
	t := s
	executed := t.extend()
	t.extends, t.native = unknown, false
	if s.extends == flying {
		t.extends = answered
		if left := handTTL - s.age; executed && s.phase[giver] == held && s.validity[giver] > 0 && s.age < handTTL {
			t.validity[giver] = max(s.validity[giver], left)
		}
		t.age = 0
		lost := s
		lost.extends, lost.age = stray, 0
		do(Step{"the connection with {c}'s extension is LOST", Choice, giver, 0}, lost)
	}
	do(Step{"the node executes {c}'s extension", Work, giver, 0}, t)
}

// extend executes an extension that sets a missing key again, or SET IFEQ, which does not. It reports whether the
// key had our value before.
func (s *handState) extend() bool {
	there := s.key == ourKey
	switch {
	case s.native && there:
		s.left = handTTL
	case !s.native && s.key != rivalKey:
		s.key, s.left = ourKey, max(s.left, handTTL)
	}
	return there
}

func (f handFlaws) taker(s handState, do func(Step, handState)) {
	if s.phase[taker] == held {
		s.phase[taker], s.validity[taker], s.release = over, 0, flying
		do(Step{"{c} unlocks and sends its release", Choice, taker, 0}, s)
	}
}

// node executes the release. The release is settled if the giver's extension was never sent or has been
// answered, and the taker does not hold the lock. The library repeats a release that is not settled
// until the keys have expired; the model does not.
func (f handFlaws) node(s handState, do func(Step, handState)) {
	if s.release != flying {
		return
	}
	if s.key == ourKey {
		s.key, s.left = noKey, 0
	}
	s.release = answered
	nothing := s.extends == unsent || s.extends == answered
	s.settled = s.phase[taker] != held && (nothing || f.ownTrail && s.phase[taker] == over)
	do(Step{"the node executes the release of {c}'s value", Work, giver, 0}, s)
}

func rivals(s handState, do func(Step, handState)) {
	switch {
	case s.phase[rival] == idle && s.key == noKey:
		s.key, s.left, s.validity[rival], s.phase[rival] = rivalKey, handTTL, handTTL, held
		do(Step{"{c} HOLDS the lock", Choice, rival, 0}, s)
	case s.phase[rival] == held:
		s.validity[rival], s.phase[rival] = 0, over
		if s.key == rivalKey {
			s.key, s.left = noKey, 0
		}
		do(Step{"{c} unlocks", Choice, rival, 0}, s)
	}
}

func tick(s handState, do func(Step, handState)) {
	for i := range s.validity {
		s.validity[i] = max(s.validity[i], 1) - 1
	}
	s.left = max(s.left, 1) - 1
	if s.left == 0 {
		s.key = noKey
	}
	if s.extends == flying {
		s.age = min(s.age+1, handTTL)
	}
	do(Step{Text: "a tick passes", Kind: Timer}, s)
}

func (s *handState) show() string {
	var b strings.Builder
	b.WriteString([...]string{"no key", "our key", "the rival's key"}[s.key])
	for i, who := range [...]string{"giver", "taker", "rival", "adopter"} {
		if s.validity[i] > 0 {
			fmt.Fprintf(&b, ", the %s has %d", who, s.validity[i])
		}
	}
	if s.settled {
		b.WriteString(", settled")
	}
	return b.String()
}
