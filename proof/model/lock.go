package model

import (
	"fmt"
	"strings"
)

// This file models a lock: acquire, extend and release on three nodes, and nodes that restart
// without data.
//
// Time passes in ticks, for all nodes and clients at once. A key's TTL and a client's validity are
// numbers of ticks. Each node may execute a message at any time after it was sent, and any number of
// times, which covers late, lost and repeated messages. A reply arrives at once or never. A client may
// win with any quorum of grants. It may also give up, however many grants it has. In the model, a client
// that dies is one that gives up and whose release no node executes.

// maxAttempts is the largest number of attempts. Attempt i has the value i+1; for exceptions see
// lock.value.
const maxAttempts = 3

// A lockState is the state of the nodes and of the attempts.
type lockState struct {
	nodes       [numNodes]lockNode
	attempts    [maxAttempts]lockAttempt
	restarts    uint8 // so far
	interrupted bool  // a hold was extended although another hold had come in between
}

type lockNode struct {
	value uint8             // of the key; 0: no key
	left  uint8             // ticks until the key expires
	up    uint8             // uptime in ticks, up to the guard
	fast  uint8             // ticks that the clock of the node may still gain
	votes [maxAttempts]vote // in the open round of each attempt
}

type lockPhase uint8

const (
	idle lockPhase = iota
	asking
	held
	extending // also holds the lock
	over
)

type lockAttempt struct {
	phase    lockPhase
	age      uint8 // ticks since the round began
	left     uint8 // ticks of validity left; the hold ends at 0
	extended uint8 // extensions begun
	short    bool  // the last extension was for one tick
	sent     [2]bool
	again    bool // the acquire was sent twice
	began    bool // the attempt once held the lock
	broken   bool // another attempt has acquired the lock since this one did
}

// lockBounds say what may happen, and how often.
type lockBounds struct {
	name     string
	attempts int
	retry    bool // attempts 0 and 1 are of one client
	ttl      uint8
	drift    uint8 // ticks that a node's clock may gain
	extends  uint8 // extensions of each hold
	shorter  bool  // extensions may be for one tick
	heals    bool  // extensions set missing keys again
	again    bool  // a granted acquire may be sent a second time, as for a fencing token
	restarts uint8
	shared   bool // all attempts share one value, and none is released
	size     Size
}

// Each field of lockFlaws weakens a rule: see lockRules.
type lockFlaws struct {
	minority, reused, ownCounts, blind                     bool
	fromReply, fromSecond, noDrift, clientClock            bool
	late, afterwards, shortens, unconfirmed, createdCounts bool
	noGuard, extendUnguarded, guardShort, youngTogether    bool
}

type lock struct {
	lockBounds
	lockFlaws
}

// The bounds in which the rules are explored.
var (
	lockGhosts  = lockBounds{name: "late messages, two attempts of one client and a rival", attempts: 3, retry: true, ttl: 2}
	lockThree   = lockBounds{name: "three clients", attempts: 3, ttl: 2}
	lockExtends = lockBounds{name: "extensions, of which some are shorter", attempts: 2, ttl: 2, extends: 2, shorter: true}
	lockHeals   = lockBounds{name: "extensions that set missing keys again", attempts: 2, ttl: 3, extends: 2, heals: true}
	lockAgain   = lockBounds{name: "the acquire is sent twice, for a token", attempts: 2, ttl: 3, again: true}
	lockDrift   = lockBounds{name: "clocks of nodes that get ahead", attempts: 2, ttl: 2, drift: 1, extends: 1}
	lockShared  = lockBounds{name: "one value for two clients, that let it run out", attempts: 2, ttl: 2, again: true, shared: true}
	lockRestart = lockBounds{name: "a restart without data", attempts: 2, ttl: 2, extends: 1, restarts: 1, size: Medium}
	lockMends   = lockBounds{name: "a restart, and extensions that set missing keys again", attempts: 2, ttl: 2, extends: 1, heals: true, restarts: 1, size: Medium}
	lockWhole   = lockBounds{name: "all of it", attempts: 3, retry: true, ttl: 2, drift: 1, extends: 1, shorter: true, heals: true, restarts: 1, size: Large}

	// The same bounds with more extensions, ticks or restarts, for the nightly run.
	lockThreeLarge   = lockThree.extending(1).large("three clients, extensions")
	lockExtendsLarge = lockExtends.lasting(3).large("extensions, of which some are shorter, longer TTLs")
	lockDriftLarge   = lockDrift.lasting(3).large("clocks of nodes that get ahead, longer TTLs")
	lockRestartLarge = lockRestart.restarting(2).large("two restarts without data")
	lockMendsLarge   = lockMends.restarting(2).large("two restarts, and extensions that set missing keys again")
)

// lockRules are the mutations.
var lockRules = []struct {
	name, section, rule string
	bounds              lockBounds
	flaws               lockFlaws
}{
	{"a minority decides", "1 rounds", "an acquire is won by a quorum of grants: any two quorums share a node", lockGhosts, lockFlaws{minority: true}},
	{"a value is used again", "1 rounds, values", "each attempt has a fresh value, so that a late release of an earlier attempt cannot delete a grant of this one", lockGhosts, lockFlaws{reused: true}},
	{"the first send meets its own value", "1 rounds, values", "if a node already has the attempt's value, that is a grant only for an acquire that is sent again", lockShared, lockFlaws{ownCounts: true}},
	{"a release deletes whatever is there", "1 rounds, release", "a release deletes its own value only", lockGhosts, lockFlaws{blind: true}},
	{"validity from the decision", "2 validity", "the validity counts from before the first request is sent, not from the replies", lockGhosts, lockFlaws{fromReply: true}},
	{"validity from the second sending", "4 fencing tokens", "if the acquire is sent again for its token, the validity counts from the first sending", lockAgain, lockFlaws{fromSecond: true}},
	{"validity without drift", "2 validity", "the validity ends before the keys expire, by as much as a node's clock may get ahead", lockDrift, lockFlaws{noDrift: true}},
	{"expiry by the client's clock", "1 rounds, TTLs", "TTLs are relative: no client's clock says when a key expires", lockGhosts, lockFlaws{clientClock: true}},
	{"an extension is confirmed late", "2 validity, extend", "an extension counts only if a quorum confirms it before the old validity has ended", lockGhosts.extending(1), lockFlaws{late: true}},
	{"an ended hold is extended", "2 validity, extend", "no extension begins after the end of the hold, not even one that sets missing keys again", lockHeals.lasting(2), lockFlaws{afterwards: true}},
	{"an extension shortens a TTL", "2 validity, extend", "an extension never shortens a TTL, so the old end stays right if too few nodes extend", lockExtends, lockFlaws{shortens: true}},
	{"an extension counts when it is sent", "2 validity, extend", "the end of the validity moves only when a quorum has confirmed the extension", lockExtends, lockFlaws{unconfirmed: true}},
	{"a key set again counts", "2 validity, extend", "a key that an extension has set again is no vote, because others may have held the lock while the key was missing", lockMends, lockFlaws{createdCounts: true}},
	{"no restart guard", "5 restart guard", "a node that has restarted does not count until every key that it may have forgotten has run out", lockRestart, lockFlaws{noGuard: true}},
	{"extensions are not guarded", "5 restart guard", "the guard also excludes votes for extensions", lockRestart, lockFlaws{extendUnguarded: true}},
	{"the guard is a tick short", "5 restart guard", "the guard lasts for the longest TTL plus the ticks by which an uptime may be wrong", lockRestart, lockFlaws{guardShort: true}},
	{"nodes that are all young count", "5 restart guard", "if all nodes have just started, none of them counts, because all may have forgotten keys", lockRestart.restarting(3).extending(0), lockFlaws{youngTogether: true}},
}

// extending returns the bounds with n extensions of each hold.
func (b lockBounds) extending(n uint8) lockBounds {
	b.extends = n
	return b
}

// restarting returns the bounds with n restarts.
func (b lockBounds) restarting(n uint8) lockBounds {
	b.restarts = n
	return b
}

// lasting returns the bounds with keys that last for n ticks.
func (b lockBounds) lasting(n uint8) lockBounds {
	b.ttl = n
	return b
}

// large returns the bounds under another name, for the nightly run.
func (b lockBounds) large(name string) lockBounds {
	b.name, b.size = name, Large
	return b
}

func lockCases() (cases []Case) {
	for _, b := range []lockBounds{
		lockGhosts, lockThree, lockThreeLarge, lockExtends, lockExtendsLarge, lockHeals, lockAgain, lockDrift, lockDriftLarge, lockShared,
		lockRestart, lockRestartLarge, lockMends, lockMendsLarge, lockWhole,
	} {
		cases = append(cases, Case{Model: "lock", Name: b.name, Size: b.size, Explore: lock{b, lockFlaws{}}.explore})
	}
	return cases
}

func lockMutations() (cases []Case) {
	for _, r := range lockRules {
		cases = append(cases, Case{Model: "lock", Name: r.name, Rule: r.rule, Section: r.section, Size: r.bounds.size, Explore: lock{r.bounds, r.flaws}.explore})
	}
	return cases
}

func (l lock) explore(how Search) Result {
	start := lockState{}
	for n := range start.nodes {
		start.nodes[n].up, start.nodes[n].fast = l.guard(), l.drift
	}
	names := []string{"A", "B", "C"}
	if l.retry {
		names = []string{"A", "A again", "B"}
	}
	return Find(System[lockState]{
		Start: start, Clients: names, Next: l.next, Same: sameLock, Wrong: wrongLock,
		Show: func(s lockState) string { return s.show(names) },
	}, how)
}

// wrongLock checks two promises: at most one holder, and no hold is extended after another hold has
// come in between.
func wrongLock(s lockState) string {
	holders := 0
	for _, a := range s.attempts {
		if a.left > 0 {
			holders++
		}
	}
	switch {
	case holders > 1:
		return "two holders"
	case s.interrupted:
		return "a hold goes on although another one came in between"
	}
	return ""
}

func (l lock) next(s lockState, do func(Step, lockState)) {
	if l.drift > 0 {
		l.getAhead(s, do)
	}
	if s.restarts < l.restarts {
		restart(s, do)
	}
	for i := range l.attempts {
		l.client(s, i, do)
		for n := range s.nodes {
			l.node(s, i, n, do)
		}
	}
	l.tick(s, do)
}

// tick lets a tick pass for all nodes and attempts.
func (l lock) tick(s lockState, do func(Step, lockState)) {
	for n := range s.nodes {
		l.age(&s.nodes[n])
	}
	for i := range s.attempts {
		a := &s.attempts[i]
		if a.phase == asking || a.phase == extending {
			a.age = min(a.age+1, l.ttl)
		}
		a.left = max(a.left, 1) - 1
		switch a.phase {
		case asking:
			if a.age >= l.span(l.ttl) { // a grant would now come too late
				l.end(&s, i)
			}
		case held:
			if a.left == 0 {
				l.end(&s, i)
			}
		case extending:
			if a.left == 0 && (!l.late && !l.afterwards || a.age == l.ttl) {
				l.end(&s, i)
			}
		}
	}
	do(Step{Text: "a tick passes", Kind: Timer}, s)
}

// age lets a tick pass on a node.
func (l lock) age(n *lockNode) {
	n.up = min(n.up+1, l.guard())
	n.left = max(n.left, 1) - 1
	if n.left == 0 {
		n.value = 0
	}
}

// getAhead lets a tick pass on one node only.
func (l lock) getAhead(s lockState, do func(Step, lockState)) {
	for i := range s.nodes {
		t := s
		if n := &t.nodes[i]; n.fast > 0 {
			n.fast--
			l.age(n)
			do(Step{"the clock of node {n} gets ahead by a tick", Choice, 0, i}, t)
		}
	}
}

func restart(s lockState, do func(Step, lockState)) {
	s.restarts++
	for i := range s.nodes {
		t := s
		n := &t.nodes[i]
		n.value, n.left, n.up = 0, 0, 0
		do(Step{"node {n} restarts without data", Choice, 0, i}, t)
	}
}

// guard returns the uptime that a node must have reached before its votes count.
func (l lock) guard() uint8 {
	switch {
	case l.restarts == 0:
		return 0
	case l.guardShort:
		return l.ttl + l.drift - 1
	}
	return l.ttl + l.drift
}

// counts reports whether the votes of a node count.
func (l lock) counts(s *lockState, node int) bool {
	if l.youngTogether {
		together := true
		for _, n := range s.nodes {
			together = together && n.up < l.guard()
		}
		if together {
			return true
		}
	}
	return l.noGuard || s.nodes[node].up >= l.guard()
}

// span returns for how many ticks a holder relies on keys with the given TTL.
func (l lock) span(ttl uint8) uint8 {
	if l.noDrift || ttl <= l.drift {
		return ttl
	}
	return ttl - l.drift
}

// client adds the steps of the client of attempt i.
func (l lock) client(s lockState, i int, do func(Step, lockState)) {
	a := &s.attempts[i]
	mayBegin := i != 1 || !l.retry || s.attempts[0].phase == over
	grants := l.grants(&s, i)
	switch {
	case a.phase == idle && mayBegin:
		a.phase = asking
		do(Step{"{c} sends its acquire", Choice, i, 0}, s)
	case a.phase == asking:
		t := s
		l.end(&t, i)
		do(Step{"{c} gives up and sends its release", Choice, i, 0}, t)
		if grants {
			l.win(s, i, do)
		}
		if l.again && grants && !a.again {
			l.sendAgain(s, i, do)
		}
	case a.phase == held:
		t := s
		l.end(&t, i)
		do(Step{"{c} unlocks and sends its release", Choice, i, 0}, t)
		l.extend(s, i, do)
	case a.phase == extending:
		if grants {
			l.confirm(s, i, do)
		}
		a.phase, a.age = held, 0
		s.forget(i)
		if a.left == 0 {
			l.end(&s, i)
		}
		do(Step{"{c} waits no longer for its extension", Choice, i, 0}, s)
	case a.phase == over && l.afterwards && a.began:
		l.extend(s, i, do)
	}
}

func (l lock) grants(s *lockState, i int) bool {
	votes := 0
	for _, n := range s.nodes {
		if n.votes[i] == yes {
			votes++
		}
	}
	return votes >= quorum || l.minority && votes > 0
}

// win begins the hold of attempt i.
func (l lock) win(s lockState, i int, do func(Step, lockState)) {
	a := &s.attempts[i]
	a.left = l.span(l.ttl) - a.age
	if l.fromReply {
		a.left = l.span(l.ttl)
	}
	a.phase, a.age, a.began = held, 0, true
	s.forget(i)
	for j := range s.attempts {
		if other := &s.attempts[j]; j != i && other.began {
			other.broken = true
		}
	}
	do(Step{"{c} HOLDS the lock", Work, i, 0}, s)
}

func (l lock) sendAgain(s lockState, i int, do func(Step, lockState)) {
	a := &s.attempts[i]
	a.again = true
	if l.fromSecond {
		a.age = 0
	}
	s.forget(i)
	do(Step{"{c} sends its acquire again", Work, i, 0}, s)
}

// extend begins an extension of hold i, for the whole TTL or for one tick.
func (l lock) extend(s lockState, i int, do func(Step, lockState)) {
	if s.attempts[i].extended == l.extends {
		return
	}
	for _, short := range [...]bool{false, true} {
		if short && !l.shorter {
			return
		}
		t := s
		a := &t.attempts[i]
		a.phase, a.age, a.short = extending, 0, short
		a.extended++
		a.sent[length(short)] = true
		if l.unconfirmed {
			a.left = max(a.left, l.span(l.extension(short)))
		}
		do(Step{[...]string{"{c} sends an extension", "{c} sends an extension for one tick"}[length(short)], Choice, i, 0}, t)
	}
}

// length returns an index: 1 for a short extension, 0 for any other.
func length(short bool) int {
	if short {
		return 1
	}
	return 0
}

// extension returns the TTL that an extension asks for.
func (l lock) extension(short bool) uint8 {
	if short {
		return 1
	}
	return l.ttl
}

// confirm extends hold i, if that makes it longer.
func (l lock) confirm(s lockState, i int, do func(Step, lockState)) {
	a := &s.attempts[i]
	if span := l.span(l.extension(a.short)); span > a.age {
		a.left = max(a.left, span-a.age)
	}
	a.phase, a.age = held, 0
	s.forget(i)
	if a.left == 0 {
		return
	}
	s.interrupted = a.broken
	do(Step{"{c}'s extension is CONFIRMED", Work, i, 0}, s)
}

// end ends attempt i. Its messages remain on their way.
func (l lock) end(s *lockState, i int) {
	a := &s.attempts[i]
	then := lockAttempt{phase: over, sent: a.sent}
	if l.afterwards {
		then.extended, then.began, then.broken = a.extended, a.began, a.broken
	}
	*a = then
	s.forget(i)
}

// forget discards the votes in the round of attempt i.
func (s *lockState) forget(i int) {
	for n := range s.nodes {
		s.nodes[n].votes[i] = pending
	}
}

// node adds the steps in which node n executes a message of attempt i.
func (l lock) node(s lockState, i, n int, do func(Step, lockState)) {
	a := &s.attempts[i]
	if a.phase == idle {
		return
	}
	l.executeAcquire(s, i, n, do)
	for _, short := range [...]bool{false, true} {
		if a.sent[length(short)] {
			l.executeExtend(s, i, n, short, do)
		}
	}
	if a.phase == over && !l.shared {
		l.executeRelease(s, i, n, do)
	}
}

// value returns the value to which attempt i sets the key.
func (l lock) value(i int) uint8 {
	if l.shared || l.reused && i == 1 {
		return 1
	}
	return mark(i)
}

func (l lock) executeAcquire(s lockState, i, node int, do func(Step, lockState)) {
	before := s
	n, a := &s.nodes[node], s.attempts[i]
	granted := n.value == l.value(i) && (a.again || l.ownCounts)
	if n.value == 0 {
		n.value, n.left = l.value(i), l.ttl
		if l.clientClock { // the client's clock is a tick behind the node's
			n.left = max(l.ttl-a.age, 1) - 1
			if n.left == 0 {
				n.value = 0
			}
		}
		granted = true
	}
	if a.phase == asking {
		s.vote(i, node, granted && l.counts(&s, node))
	}
	if s != before {
		do(Step{"node {n} executes {c}'s acquire", Work, i, node}, s)
	}
}

func (l lock) executeExtend(s lockState, i, node int, short bool, do func(Step, lockState)) {
	before := s
	n, a := &s.nodes[node], s.attempts[i]
	confirmed, counts, ttl := false, l.counts(&s, node) || l.extendUnguarded, l.extension(short)
	switch {
	case n.value == l.value(i):
		if ttl > n.left || l.shortens {
			n.left = ttl
		}
		confirmed = true
	case n.value == 0 && l.heals:
		n.value, n.left = l.value(i), ttl
		confirmed, counts = l.createdCounts, true
	}
	if a.phase == extending && a.short == short {
		s.vote(i, node, confirmed && counts)
	}
	if s != before {
		do(Step{"node {n} executes {c}'s extension", Work, i, node}, s)
	}
}

func (l lock) executeRelease(s lockState, i, node int, do func(Step, lockState)) {
	n := &s.nodes[node]
	if n.value == l.value(i) || l.blind && n.value != 0 {
		n.value, n.left = 0, 0
		do(Step{"node {n} executes {c}'s release", Work, i, node}, s)
	}
}

// vote counts the first answer of a node in the open round of attempt i.
func (s *lockState) vote(i, node int, granted bool) {
	v := &s.nodes[node].votes[i]
	switch {
	case *v != pending:
	case granted:
		*v = yes
	default:
		*v = no
	}
}

func sameLock(s lockState) lockState {
	sortNodes(&s.nodes, func(n *lockNode) uint64 {
		return pack(n.value, n.left, n.up, n.fast, uint8(n.votes[0]), uint8(n.votes[1]), uint8(n.votes[2]))
	})
	return s
}

func (s *lockState) show(names []string) string {
	var v keysAndHolds
	for _, n := range s.nodes {
		v.key(names, n.value, n.left)
	}
	for i, a := range s.attempts {
		v.hold(names[i], a.left)
	}
	return v.String()
}

// keysAndHolds is the text of a state: the key of each node, and who holds the lock for how long.
type keysAndHolds struct{ strings.Builder }

// key adds the key of a node. value is that of attempt value-1; 0 means no key.
func (v *keysAndHolds) key(names []string, value, left uint8) {
	if value == 0 {
		fmt.Fprint(v, "- ")
		return
	}
	fmt.Fprintf(v, "%s:%d ", names[value-1], left)
}

// hold adds a hold with the given validity left, if there is any.
func (v *keysAndHolds) hold(name string, left uint8) {
	if left > 0 {
		fmt.Fprintf(v, " %s has %d", name, left)
	}
}
