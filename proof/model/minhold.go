package model

import "fmt"

// This file models minimal holds (WithMinHold): a job that runs at most once per tick of its schedule.
//
// It is the model of lock.go, and each hold runs one job, which begins when the hold begins. The keys of a hold stay
// for at least the minimal hold, whatever its process does. So the TTL of the acquire is the expiry or the minimal hold
// plus the drift, whichever is longer. When a hold ends, its process sends a release. The release cuts the TTL of the
// keys to the rest of the minimal hold, counted from the first sending of the acquire. If no rest is left, the release
// deletes the keys. The release of a failed attempt always deletes them, because no job has run.
//
// Time and messages are as in lock.go: a node may execute a message at any time after it was sent, and any number of
// times. A release is sent again and again, and each sending names the rest that is left when it is sent. If a node
// executes the first sending late, the rest in it is too long by then. A process that crashes sends no release.

type minHoldState struct {
	nodes     [numNodes]minHoldNode
	attempts  [maxAttempts]minHoldAttempt
	restarts  uint8 // so far
	soon      bool  // two jobs have begun too close together
	prolonged bool  // a release has made a TTL longer
}

type minHoldNode struct {
	value uint8             // of the key; 0: no key
	left  uint8             // ticks until the key expires
	up    uint8             // uptime in ticks, up to the guard
	fast  uint8             // ticks that the clock of the node may still gain
	votes [maxAttempts]vote // in the open round of each attempt
}

type minHoldAttempt struct {
	phase    lockPhase
	began    bool  // it has won, and its job has begun
	crashed  bool  // its process sends no release
	deletes  bool  // with some flaws: its release deletes, whatever the rest
	sent     bool  // an extension was sent
	extended uint8 // extensions begun
	age      uint8 // ticks since the acquire was first sent
	ahead    uint8 // ticks that its process counts although they have not passed
	round    uint8 // ticks since the open extension was sent
	left     uint8 // ticks of validity left; the hold ends at 0
	rest     uint8 // the rest in the first release; 0: there is none, or it makes no difference any more
}

type minHoldBounds struct {
	name     string
	attempts int
	retry    bool // attempts 0 and 1 are of one call, which tries again after a failed attempt
	ttl      uint8
	least    uint8 // the minimal hold
	drift    uint8 // ticks that a node's clock may gain
	extends  uint8 // extensions of each hold
	heals    bool  // extensions set missing keys again
	restarts uint8
	crashes  bool // processes may crash
	jumps    bool // the wall clock of a holder may be set forward by a tick
	size     Size
}

// Each field of minHoldFlaws weakens a rule: see minHoldRules.
type minHoldFlaws struct {
	expiryOnly, ttlNoDrift                             bool // acquires
	deletesAll, deletesExpired, deletesAgain, anybodys bool // releases
	prolongs, runsOut, failureRests, reused            bool
	fromFirst, byWall, restNoDrift                     bool // the rest
	shortens, guardShort                               bool
}

type minHold struct {
	minHoldBounds
	minHoldFlaws
}

// The bounds in which the rules are explored.
var (
	minHoldThree   = minHoldBounds{name: "three processes", attempts: 3, ttl: 1, least: 2}
	minHoldRetry   = minHoldBounds{name: "two attempts of one call and a rival", attempts: 3, retry: true, ttl: 1, least: 2}
	minHoldExtends = minHoldBounds{name: "extensions", attempts: 2, ttl: 2, least: 3, extends: 1}
	minHoldExpiry  = minHoldBounds{name: "an expiry that is longer than the minimal hold", attempts: 2, ttl: 3, least: 1}
	minHoldCrash   = minHoldBounds{name: "processes that crash, extensions that set missing keys again", attempts: 2, ttl: 2, least: 3, extends: 1, heals: true, crashes: true}
	minHoldDrift   = minHoldBounds{name: "clocks of nodes that get ahead", attempts: 2, ttl: 2, least: 2, drift: 1}
	minHoldJumps   = minHoldBounds{name: "wall clocks of holders that are set forward", attempts: 2, ttl: 2, least: 3, jumps: true}
	minHoldRestart = minHoldBounds{name: "a restart without data", attempts: 2, ttl: 1, least: 2, restarts: 1}

	// The same bounds with longer TTLs, more extensions or more restarts, for the nightly run.
	minHoldThreeLarge   = minHoldThree.lasting(2, 3).large("three processes, longer TTLs")
	minHoldRetryLarge   = minHoldRetry.lasting(2, 3).large("two attempts of one call and a rival, longer TTLs")
	minHoldDriftLarge   = minHoldDrift.lasting(3, 3).extending(1).large("clocks of nodes that get ahead, extensions")
	minHoldRestartLarge = minHoldRestart.lasting(2, 3).extending(1).restarting(2).large("two restarts without data, extensions that set missing keys again")
)

var minHoldRules = []struct {
	name, section, rule string
	bounds              minHoldBounds
	flaws               minHoldFlaws
}{
	{"the TTL is the expiry", "G1 minimal holds", "the TTL of the acquire covers the minimal hold, because a process that crashes sends nothing", minHoldCrash, minHoldFlaws{expiryOnly: true}},
	{"the TTL has no drift", "G1 minimal holds", "the TTL is longer than the minimal hold by as much as a node's clock may get ahead", minHoldDrift, minHoldFlaws{ttlNoDrift: true}},
	{"an Unlock deletes", "G2 minimal holds", "the release of a hold leaves its keys for the rest of the minimal hold", minHoldThree, minHoldFlaws{deletesAll: true}},
	{"an expired hold is cleared away", "G2 minimal holds", "the release of a hold that has expired leaves the rest, too, because the keys outlive the validity", minHoldThree, minHoldFlaws{deletesExpired: true}},
	{"the second release deletes", "G2 minimal holds", "whatever releases a hold once more leaves the rest, too", minHoldThree, minHoldFlaws{deletesAgain: true}},
	{"a release shortens another's key", "G2 minimal holds", "a release cuts the TTL of its own value only", minHoldThree, minHoldFlaws{anybodys: true}},
	{"a release prolongs", "G2 minimal holds", "a release never makes a TTL longer", minHoldThree, minHoldFlaws{prolongs: true}},
	{"keys run out", "G2 minimal holds", "an Unlock cuts a TTL that is longer than the rest", minHoldExpiry, minHoldFlaws{runsOut: true}},
	{"a failed attempt leaves a rest", "G2 minimal holds", "the release of a failed attempt deletes, because no job has run", minHoldRetry, minHoldFlaws{failureRests: true}},
	{"the rest has no drift", "G2 minimal holds", "the rest is longer by as much as a node's clock may get ahead", minHoldDrift, minHoldFlaws{restNoDrift: true}},
	{"the rest counts by the wall clock", "G2 minimal holds", "the rest counts by the clock by which less time has passed, which is the opposite of the validity", minHoldJumps, minHoldFlaws{byWall: true}},
	{"the rest counts from the first attempt", "G3 minimal holds", "the rest counts from the attempt that has won", minHoldRetry.lasting(2, 2), minHoldFlaws{fromFirst: true}},
	{"a value is used again", "1 rounds, values", "each attempt has a fresh value, so that a late release of a failed one deletes no key of this one", minHoldRetry, minHoldFlaws{reused: true}},
	{"an extension shortens a TTL", "2 validity, extend", "an extension never shortens a TTL, not even one that is longer than the expiry from the start", minHoldExtends, minHoldFlaws{shortens: true}},
	{"the guard covers the expiry", "5 restart guard", "the guard lasts for the longest TTL, and a minimal hold counts as one", minHoldRestart, minHoldFlaws{guardShort: true}},
}

// lasting returns the bounds with another expiry and minimal hold.
func (b minHoldBounds) lasting(ttl, least uint8) minHoldBounds {
	b.ttl, b.least = ttl, least
	return b
}

// extending returns the bounds with n extensions of each hold.
func (b minHoldBounds) extending(n uint8) minHoldBounds {
	b.extends = n
	return b
}

// restarting returns the bounds with n restarts, and with extensions that set missing keys again.
func (b minHoldBounds) restarting(n uint8) minHoldBounds {
	b.restarts, b.heals = n, true
	return b
}

// large returns the bounds under another name, for the nightly run.
func (b minHoldBounds) large(name string) minHoldBounds {
	b.name, b.size = name, Large
	return b
}

func minHoldCases() (cases []Case) {
	for _, b := range []minHoldBounds{
		minHoldThree, minHoldThreeLarge, minHoldRetry, minHoldRetryLarge, minHoldExtends, minHoldExpiry, minHoldCrash,
		minHoldDrift, minHoldDriftLarge, minHoldJumps, minHoldRestart, minHoldRestartLarge,
	} {
		cases = append(cases, Case{Model: "min hold", Name: b.name, Size: b.size, Explore: minHold{b, minHoldFlaws{}}.explore})
	}
	return cases
}

func minHoldMutations() (cases []Case) {
	for _, r := range minHoldRules {
		cases = append(cases, Case{Model: "min hold", Name: r.name, Rule: r.rule, Section: r.section, Size: r.bounds.size, Explore: minHold{r.bounds, r.flaws}.explore})
	}
	return cases
}

func (m minHold) explore(how Search) Result {
	var start minHoldState
	for n := range start.nodes {
		start.nodes[n].up, start.nodes[n].fast = m.guard(), m.drift
	}
	names := []string{"A", "B", "C"}
	if m.retry {
		names = []string{"A", "A again", "B"}
	}
	return Find(System[minHoldState]{
		Start: start, Clients: names, Next: m.next, Same: sameMinHold, Wrong: wrongMinHold, Rest: m.lingers,
		Show: func(s minHoldState) string { return s.show(names) },
	}, how)
}

// wrongMinHold checks three promises: at most one holder, no job begins within the minimal hold of the acquire of an
// earlier one, and a release never makes a TTL longer.
func wrongMinHold(s minHoldState) string {
	holders := 0
	for _, a := range s.attempts {
		if a.left > 0 {
			holders++
		}
	}
	switch {
	case holders > 1:
		return "two holders"
	case s.soon:
		return "a job begins although the minimal hold of an earlier one has not passed"
	case s.prolonged:
		return "a release makes a TTL longer"
	}
	return ""
}

// lingers says which key stays for too long when no message is on its way.
func (m minHold) lingers(s minHoldState) string {
	for _, n := range s.nodes {
		for i, a := range s.attempts {
			switch {
			case n.value != m.value(i) || a.phase != over || a.crashed:
			case !a.began:
				return "the key of a failed attempt stays"
			case n.left > a.rest:
				return "a key stays for longer than the minimal hold"
			}
		}
	}
	return ""
}

func (m minHold) next(s minHoldState, do func(Step, minHoldState)) {
	m.disturb(s, do)
	for i := range m.attempts {
		m.client(s, i, do)
		for n := range s.nodes {
			m.node(s, i, n, do)
		}
	}
	m.tick(s, do)
}

// disturb adds the faults: clocks that get ahead, restarts, and wall clocks that are set forward.
func (m minHold) disturb(s minHoldState, do func(Step, minHoldState)) {
	for i := range s.nodes {
		if s.nodes[i].fast > 0 {
			t := s
			t.nodes[i].fast--
			m.age(&t.nodes[i])
			do(Step{"the clock of node {n} gets ahead by a tick", Choice, 0, i}, t)
		}
		if s.restarts < m.restarts {
			t := s
			t.restarts++
			t.nodes[i].value, t.nodes[i].left, t.nodes[i].up = 0, 0, 0
			do(Step{"node {n} restarts without data", Choice, 0, i}, t)
		}
	}
	for i := range s.attempts {
		if a := s.attempts[i]; m.jumps && a.phase == held && a.ahead == 0 {
			t := s
			t.attempts[i].ahead = 1
			t.attempts[i].left--
			m.expire(&t, i)
			do(Step{"{c}'s wall clock is set forward by a tick", Choice, i, 0}, t)
		}
	}
}

// tick lets a tick pass for all nodes and attempts.
func (m minHold) tick(s minHoldState, do func(Step, minHoldState)) {
	for n := range s.nodes {
		m.age(&s.nodes[n])
	}
	for i := range s.attempts {
		a := &s.attempts[i]
		if a.phase != idle && (a.phase != over || a.began || m.fromFirst) {
			a.age = min(a.age+1, m.least+m.drift)
		}
		if a.phase == extending {
			a.round = min(a.round+1, m.ttl)
		}
		if a.phase == over && m.restOf(a) == 0 && !m.anybodys {
			a.rest = 0 // a new release deletes from now on, so the first one makes no difference any more
		}
		a.left = max(a.left, 1) - 1
		switch {
		case a.phase == asking && a.round+1 == m.span(): // a grant would now come too late
			m.end(&s, i)
		case a.phase == asking:
			a.round++
		default:
			m.expire(&s, i)
		}
	}
	do(Step{Text: "a tick passes", Kind: Timer}, s)
}

// age lets a tick pass on a node.
func (m minHold) age(n *minHoldNode) {
	n.up = min(n.up+1, m.guard())
	n.left = max(n.left, 1) - 1
	if n.left == 0 {
		n.value = 0
	}
}

// expire ends the hold of attempt i if its validity has ended.
func (m minHold) expire(s *minHoldState, i int) {
	if a := &s.attempts[i]; a.left == 0 && (a.phase == held || a.phase == extending) {
		m.end(s, i)
		a.deletes = m.deletesExpired
	}
}

// acquireTTL returns the TTL that the acquire sets.
func (m minHold) acquireTTL() uint8 {
	switch {
	case m.expiryOnly:
		return m.ttl
	case m.ttlNoDrift:
		return max(m.ttl, m.least)
	}
	return max(m.ttl, m.least+m.drift)
}

// span returns for how many ticks a holder relies on its keys.
func (m minHold) span() uint8 { return m.ttl - m.drift }

// guard returns the uptime that a node must have reached before its votes count.
func (m minHold) guard() uint8 {
	switch {
	case m.restarts == 0:
		return 0
	case m.guardShort:
		return m.ttl + m.drift
	}
	return m.acquireTTL() + m.drift
}

// restOf returns the rest of the minimal hold of an attempt, as its process sees it.
func (m minHold) restOf(a *minHoldAttempt) uint8 {
	least := m.least + m.drift
	if m.restNoDrift {
		least = m.least
	}
	return least - min(least, a.age+a.ahead)
}

// client adds the steps of the client of attempt i.
func (m minHold) client(s minHoldState, i int, do func(Step, minHoldState)) {
	a := &s.attempts[i]
	grants := 0
	for _, n := range s.nodes {
		if n.votes[i] == yes {
			grants++
		}
	}
	switch a.phase {
	case idle:
		if !m.retry || i != 1 || s.attempts[0].phase == over && !s.attempts[0].began {
			a.phase = asking
			if m.fromFirst && i == 1 {
				a.ahead = s.attempts[0].age
			}
			do(Step{"{c} sends its acquire", Choice, i, 0}, s)
		}
	case asking:
		if grants >= quorum {
			m.win(s, i, do)
		}
		m.end(&s, i)
		do(Step{"{c} gives up and sends its release", Choice, i, 0}, s)
	case held:
		m.hold(s, i, do)
	case extending:
		if grants >= quorum {
			m.confirm(s, i, do)
		}
		a.phase, a.round = held, 0
		s.forget(i)
		do(Step{"{c} waits no longer for its extension", Choice, i, 0}, s)
	case over:
		if m.deletesAgain && a.began && !a.deletes {
			a.deletes = true
			do(Step{"{c} sends another release", Choice, i, 0}, s)
		}
	}
}

// win begins the hold and the job of attempt i.
func (m minHold) win(s minHoldState, i int, do func(Step, minHoldState)) {
	a := &s.attempts[i]
	a.phase, a.left, a.round, a.began = held, m.span()-a.round, 0, true
	s.forget(i)
	for j := range s.attempts {
		if o := &s.attempts[j]; j != i && o.began && o.age < m.least {
			s.soon = true
		}
	}
	do(Step{"{c} HOLDS the lock and begins its job", Work, i, 0}, s)
}

// hold adds the steps of a holder.
func (m minHold) hold(s minHoldState, i int, do func(Step, minHoldState)) {
	t := s
	m.end(&t, i)
	do(Step{"{c} unlocks and sends its release", Choice, i, 0}, t)
	if m.crashes {
		t := s
		m.end(&t, i)
		t.attempts[i].crashed = true
		do(Step{"{c} crashes", Choice, i, 0}, t)
	}
	if a := &s.attempts[i]; a.extended < m.extends {
		a.phase, a.round, a.sent = extending, 0, true
		a.extended++
		do(Step{"{c} sends an extension", Choice, i, 0}, s)
	}
}

// confirm lets attempt i know of its extension. Too late a confirmation prolongs nothing.
func (m minHold) confirm(s minHoldState, i int, do func(Step, minHoldState)) {
	a := &s.attempts[i]
	if m.span() > a.round {
		a.left = max(a.left, m.span()-a.round)
	}
	a.phase, a.round = held, 0
	s.forget(i)
	do(Step{"{c}'s extension is CONFIRMED", Work, i, 0}, s)
}

// end ends attempt i. Its messages remain on their way.
func (m minHold) end(s *minHoldState, i int) {
	a := &s.attempts[i]
	then := minHoldAttempt{phase: over, began: a.began, sent: a.sent}
	if a.began || m.fromFirst || m.failureRests {
		then.age = a.age
	}
	if m.byWall || m.fromFirst {
		then.ahead = a.ahead
	}
	if a.began || m.failureRests {
		then.rest = m.restOf(&then)
	}
	*a = then
	s.forget(i)
}

// forget discards the votes in the round of attempt i.
func (s *minHoldState) forget(i int) {
	for n := range s.nodes {
		s.nodes[n].votes[i] = pending
	}
}

// vote counts the first answer of node n in the open round of attempt i.
func (m minHold) vote(n *minHoldNode, i int, granted bool) {
	switch {
	case n.votes[i] != pending:
	case granted && n.up >= m.guard():
		n.votes[i] = yes
	default:
		n.votes[i] = no
	}
}

// value returns the value to which attempt i sets the key.
func (m minHold) value(i int) uint8 {
	if m.reused && i == 1 {
		return 1
	}
	return mark(i)
}

// node adds the steps in which a node executes a message of attempt i.
func (m minHold) node(s minHoldState, i, node int, do func(Step, minHoldState)) {
	a := &s.attempts[i]
	if a.phase == idle {
		return
	}
	m.executeAcquire(s, i, node, do)
	if a.sent {
		m.executeExtend(s, i, node, do)
	}
	if a.phase != over || a.crashed {
		return
	}
	now := m.restOf(a)
	switch {
	case a.deletes || m.deletesAll || !a.began && !m.failureRests:
		m.executeRelease(s, i, node, 0, do)
	case m.runsOut && now > 0:
		return
	}
	if a.began || m.failureRests {
		m.executeRelease(s, i, node, now, do)
		if a.rest > now {
			m.executeRelease(s, i, node, a.rest, do)
		}
	}
}

func (m minHold) executeAcquire(s minHoldState, i, node int, do func(Step, minHoldState)) {
	before := s
	n := &s.nodes[node]
	granted := n.value == 0
	if granted {
		n.value, n.left = m.value(i), m.acquireTTL()
	}
	if s.attempts[i].phase == asking {
		m.vote(n, i, granted)
	}
	if s != before {
		do(Step{"node {n} executes {c}'s acquire", Work, i, node}, s)
	}
}

func (m minHold) executeExtend(s minHoldState, i, node int, do func(Step, minHoldState)) {
	before := s
	n := &s.nodes[node]
	mine := n.value == m.value(i)
	switch {
	case mine && (m.ttl > n.left || m.shortens):
		n.left = m.ttl
	case n.value == 0 && m.heals:
		n.value, n.left = m.value(i), m.ttl
	}
	if s.attempts[i].phase == extending {
		m.vote(n, i, mine)
	}
	if s != before {
		do(Step{"node {n} executes {c}'s extension", Work, i, node}, s)
	}
}

// executeRelease cuts the TTL of the key of attempt i to the rest, or deletes the key if there is no rest.
func (m minHold) executeRelease(s minHoldState, i, node int, rest uint8, do func(Step, minHoldState)) {
	before := s
	n := &s.nodes[node]
	if n.value == 0 || n.value != m.value(i) && (!m.anybodys || rest == 0) {
		return
	}
	s.prolonged = m.prolongs && rest > n.left
	if rest < n.left || m.prolongs {
		n.left = rest
	}
	if n.left == 0 {
		n.value = 0
	}
	if s != before {
		do(Step{"node {n} executes {c}'s release" + restText(rest), Work, i, node}, s)
	}
}

// restText returns what a release says about the rest.
func restText(rest uint8) string {
	if rest == 0 {
		return ""
	}
	return fmt.Sprintf(" with a rest of %d", rest)
}

func sameMinHold(s minHoldState) minHoldState {
	sortNodes(&s.nodes, func(n *minHoldNode) uint64 {
		return pack(n.value, n.left, n.up, n.fast, uint8(n.votes[0]), uint8(n.votes[1]), uint8(n.votes[2]))
	})
	return s
}

func (s *minHoldState) show(names []string) string {
	var v keysAndHolds
	for _, n := range s.nodes {
		v.key(names, n.value, n.left)
	}
	for i, a := range s.attempts {
		v.hold(names[i], a.left)
	}
	return v.String()
}
