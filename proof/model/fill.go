package model

import "fmt"

// This file models how a hold fills up: it sends SET NX PX to nodes that have refused it.
//
// It is the model of lock.go, with fills. A fill is sent while its hold is held. It carries what is left of the TTL of
// the keys at that moment. Like every message it is executed at any later time, any number of times: after the release,
// after the end of the hold, after a restart of the node, before or after a rival's acquire. Some bounds have minimal
// holds, as in minhold.go.
//
// In some bounds a node restarts only once every node has confirmed the hold, or its minimal hold, and there is no
// guard: a hold that stands on all nodes survives the restart of one of them. In one of the bounds a node restarts only
// if a hold stands without it: such a restart is harmless as long as extensions do not count what only a fill has set.

type fillState struct {
	nodes       [numNodes]fillNode
	attempts    [maxAttempts]fillAttempt
	restarts    uint8 // so far
	interrupted bool  // a hold was extended although another hold had come in between
	soon        bool  // two jobs have begun too close together
}

type fillNode struct {
	value     uint8              // of the key; 0: no key
	left      uint8              // ticks until the key expires
	up        uint8              // uptime in ticks, up to the guard
	fast      uint8              // ticks that the clock of the node may still gain
	votes     [maxAttempts]vote  // in the open round of each attempt
	confirmed uint8              // by attempt, as bits: the node has told that it has the key
	granted   uint8              // by attempt, as bits: the node has granted the acquire, and no fill has set the key since
	lost      uint8              // by attempt, as bits: an acquire that was sent before a restart, which arrives no more
	cut       uint8              // the same of a fill
	since     [maxAttempts]uint8 // ticks since the node first told that a fill has set the key, plus 1; 0: it has not
}

type fillAttempt struct {
	phase    lockPhase
	age      uint8  // ticks since the round began
	left     uint8  // ticks of validity left; the hold ends at 0
	extended uint8  // extensions begun
	sent     bool   // an extension was sent
	filled   uint16 // the TTLs of the fills that were sent, as bits
	fills    uint8  // fills that were sent
	rest     uint8  // ticks until the keys run out, if clocks do not drift
	first    uint8  // ticks since the acquire was sent, up to the minimal hold
	began    bool   // the attempt once held the lock
	broken   bool   // another attempt has acquired the lock since this one did
	crashed  bool   // its process sends no release
}

type fillBounds struct {
	name     string
	attempts int
	retry    bool // attempts 0 and 1 are of one client
	ttl      uint8
	drift    uint8 // ticks that a node's clock may gain
	extends  uint8 // extensions of each hold
	fills    uint8 // fills of each hold
	restarts uint8
	guarded  bool  // restarts are guarded
	whole    bool  // a node restarts only while all nodes have confirmed a hold
	outside  bool  // a node restarts only while a hold stands without it
	ages     bool  // extensions count what a fill has set once the TTL has passed since
	least    uint8 // the minimal hold
	crashes  bool  // processes may crash
	size     Size
}

// Each field of fillFlaws weakens a rule (see fillRules), or varies one that the model does not need.
type fillFlaws struct {
	votesRest, votesYoung, countsFilled bool
	overwrites, setsTTL, restOfValidity bool
	nilConfirms, stale                  bool
	young                               bool
	votesFull, after, early, full       bool // variations
}

type filling struct {
	fillBounds
	fillFlaws
}

// The bounds in which the rules are explored.
var (
	fillGhosts  = fillBounds{name: "late messages, two attempts of one client and a rival", attempts: 3, retry: true, ttl: 2, fills: 1, size: Medium}
	fillThree   = fillBounds{name: "three clients", attempts: 3, ttl: 2, fills: 1, size: Large}
	fillExtends = fillBounds{name: "extensions", attempts: 2, ttl: 3, extends: 2, fills: 2, size: Medium}
	fillDrift   = fillBounds{name: "clocks of nodes that get ahead, extensions", attempts: 2, ttl: 3, drift: 1, extends: 1, fills: 2, size: Large}
	fillRestart = fillBounds{name: "two restarts, guard, extensions", attempts: 2, ttl: 2, extends: 1, fills: 2, restarts: 2, guarded: true, size: Large}
	fillOutside = fillBounds{name: "no guard, a restart of a node without which a hold stands", attempts: 2, ttl: 2, extends: 1, fills: 1, restarts: 1, outside: true}
	fillAges    = fillBounds{name: "no guard, such a restart, extensions that count old fills", attempts: 2, ttl: 2, extends: 2, fills: 1, restarts: 1, outside: true, ages: true, size: Large}
	fillAgesTwo = fillBounds{name: "no guard, two such restarts, extensions that count old fills", attempts: 2, ttl: 2, extends: 2, fills: 1, restarts: 2, outside: true, ages: true, size: Large}
	fillMin     = fillBounds{name: "minimal holds, crashes, extensions", attempts: 2, ttl: 2, least: 3, extends: 1, fills: 1, crashes: true}
	fillMinTwo  = fillBounds{name: "minimal holds, two attempts and a rival", attempts: 3, retry: true, ttl: 1, least: 2, fills: 1, size: Large}
	fillMinSafe = fillBounds{name: "minimal holds, crashes, a restart, guard", attempts: 2, ttl: 1, least: 2, extends: 1, fills: 1, crashes: true, restarts: 1, guarded: true, size: Large}
	fillWhole   = fillBounds{name: "no guard, a restart once all nodes have confirmed", attempts: 3, ttl: 2, extends: 1, fills: 1, restarts: 1, whole: true, size: Large}
	fillWholeX  = fillBounds{name: "no guard, a restart once all nodes have confirmed, drift, extensions", attempts: 2, ttl: 3, drift: 1, extends: 1, fills: 1, restarts: 1, whole: true, size: Large}
	fillWholeD  = fillBounds{name: "no guard, a restart once all nodes have confirmed, drift", attempts: 2, ttl: 3, drift: 1, fills: 1, restarts: 1, whole: true, size: Medium}
	fillWholeM  = fillBounds{name: "no guard, a restart once all nodes have confirmed, minimal holds, crashes", attempts: 2, ttl: 1, least: 3, fills: 1, crashes: true, restarts: 1, whole: true}
	fillWholeMD = fillBounds{name: "no guard, a restart once all nodes have confirmed, minimal holds, drift", attempts: 2, ttl: 2, least: 2, drift: 1, fills: 1, crashes: true, restarts: 1, whole: true, size: Large}
)

// fillRules are the mutations.
var fillRules = []struct {
	name, rule string
	bounds     fillBounds
	flaws      fillFlaws
}{
	{"an extension counts the reply to a fill", "the reply to a fill is no vote of an extension, because the key lasts only for the rest of the TTL", fillExtends, fillFlaws{votesRest: true}},
	{"an extension counts the fill of a restarted node", "a node that has restarted does not count because of a fill", fillRestart, fillFlaws{votesYoung: true}},
	{"without a guard, extensions count what a fill has set", "without a guard, a fill that has just set the key does not count for extensions", fillOutside, fillFlaws{countsFilled: true}},
	{"without a guard, extensions count young fills", "without a guard, what a fill has set counts once the TTL has passed since", fillAges, fillFlaws{young: true}},
	{"a fill overwrites", "a fill sets a missing key only", fillGhosts, fillFlaws{overwrites: true}},
	{"a fill sets the TTL of its own key", "a fill does not change a key that is there, because an extension may have made it longer", fillExtends, fillFlaws{setsTTL: true}},
	{"a fill carries the rest of the validity", "a fill lasts as long as the other keys, which is longer than the validity", fillWholeD, fillFlaws{restOfValidity: true}},
	{"a fill carries the rest of the validity, not of the minimal hold", "with a minimal hold a fill lasts as long as that", fillWholeM, fillFlaws{restOfValidity: true}},
	{"a confirmation before an extension counts after it", "a hold stands on all nodes only once all of them have confirmed its last extension", fillWhole, fillFlaws{stale: true}},
	{"a refused fill confirms", "a fill that is refused confirms nothing", fillWhole, fillFlaws{nilConfirms: true}},
}

// fillVariations have no violation either: the code is stricter than the model needs.
var fillVariations = []struct {
	name   string
	bounds fillBounds
	flaws  fillFlaws
}{
	{"variation: a fill carries the full TTL", fillExtends, fillFlaws{full: true}},
	{"variation: a fill carries the full TTL, two restarts, guard", fillRestart, fillFlaws{full: true}},
	{"variation: a fill is sent after the end, too", fillGhosts, fillFlaws{after: true, full: true}},
	{"variation: a fill is sent before the hold", fillGhosts, fillFlaws{early: true}},
	{"variation: an extension counts a fill with the full TTL, guard", fillRestart, fillFlaws{votesFull: true}},
}

func fillCases() (cases []Case) {
	for _, b := range []fillBounds{
		fillGhosts, fillThree, fillExtends, fillDrift, fillRestart, fillOutside, fillAges, fillAgesTwo, fillMin, fillMinTwo, fillMinSafe,
		fillWhole, fillWholeX, fillWholeD, fillWholeM, fillWholeMD,
	} {
		cases = append(cases, Case{Model: "fill", Name: b.name, Size: b.size, Explore: filling{b, fillFlaws{}}.explore})
	}
	for _, v := range fillVariations {
		cases = append(cases, Case{Model: "fill", Name: v.name, Size: Large, Explore: filling{v.bounds, v.flaws}.explore})
	}
	return cases
}

func fillMutations() (cases []Case) {
	for _, r := range fillRules {
		cases = append(cases, Case{Model: "fill", Name: r.name, Rule: r.rule, Section: "1 filling up", Size: r.bounds.size, Explore: filling{r.bounds, r.flaws}.explore})
	}
	return cases
}

func (f filling) keyTTL() uint8 { return max(f.ttl, f.leastTTL()) }
func (f filling) leastTTL() uint8 {
	if f.least == 0 {
		return 0
	}
	return f.least + f.drift
}

func (f filling) span(ttl uint8) uint8 {
	if ttl <= f.drift {
		return ttl
	}
	return ttl - f.drift
}

func (f filling) guard() uint8 {
	if !f.guarded {
		return 0
	}
	return f.keyTTL() + f.drift
}

// old returns how old a fill must be to count, as fillNode.since has it.
func (f filling) old() uint8 {
	if f.young {
		return 1
	}
	return f.ttl + 1
}

func (f filling) explore(how Search) Result {
	start := fillState{}
	for n := range start.nodes {
		start.nodes[n].up, start.nodes[n].fast = f.guard(), f.drift
	}
	names := []string{"A", "B", "C"}
	if f.retry {
		names = []string{"A", "A again", "B"}
	}
	return Find(System[fillState]{
		Start: start, Clients: names, Next: f.next, Same: sameFill, Wrong: wrongFill,
		Show: func(s fillState) string { return s.show(names) },
	}, how)
}

func wrongFill(s fillState) string {
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
	case s.soon:
		return "a job begins before the minimal hold of another one is over"
	}
	return ""
}

func (f filling) next(s fillState, do func(Step, fillState)) {
	for i := range s.nodes {
		if n := s.nodes[i]; f.drift > 0 && n.fast > 0 {
			t := s
			t.nodes[i].fast--
			f.ageNode(&t.nodes[i])
			do(Step{"the clock of node {n} gets ahead by a tick", Choice, 0, i}, t)
		}
	}
	if s.restarts < f.restarts && (!f.whole || f.isWhole(&s)) {
		for i := range s.nodes {
			t := s
			n := &t.nodes[i]
			if f.outside && !s.standsWithout(i) {
				continue
			}
			t.restarts++
			n.value, n.left, n.up, n.confirmed = 0, 0, 0, 0
			for j, a := range t.attempts {
				if f.ages && a.phase != idle {
					n.lost |= 1 << j
				}
				if f.ages && a.filled != 0 {
					n.cut |= 1 << j
				}
			}
			do(Step{"node {n} restarts without data", Choice, 0, i}, t)
		}
	}
	for i := range f.attempts {
		f.client(s, i, do)
		for n := range s.nodes {
			f.node(s, i, n, do)
		}
	}
	f.tick(s, do)
}

// isWhole reports whether a hold, or the minimal hold of a job, is confirmed by all nodes.
func (f filling) isWhole(s *fillState) bool {
	for i, a := range s.attempts {
		on := 0
		for _, n := range s.nodes {
			if n.confirmed>>i&1 == 1 {
				on++
			}
		}
		period := a.left > 0 && (a.phase == held || f.stale)
		if on == numNodes && (period || f.least > 0 && a.began && a.first < f.least) {
			return true
		}
	}
	return false
}

// standsWithout reports whether there is a hold, and none has its key on a node.
func (s *fillState) standsWithout(node int) bool {
	holds := false
	for i, a := range s.attempts {
		if a.left > 0 {
			holds = true
			if s.nodes[node].value == mark(i) {
				return false
			}
		}
	}
	return holds
}

func (f filling) ageNode(n *fillNode) {
	n.up = min(n.up+1, f.guard())
	n.left = max(n.left, 1) - 1
	if n.left == 0 {
		n.value = 0
	}
}

func (f filling) tick(s fillState, do func(Step, fillState)) {
	for n := range s.nodes {
		f.ageNode(&s.nodes[n])
		for i, since := range s.nodes[n].since {
			if since > 0 {
				s.nodes[n].since[i] = min(since+1, f.old())
			}
		}
	}
	for i := range s.attempts {
		a := &s.attempts[i]
		if a.phase == asking || a.phase == extending {
			a.age = min(a.age+1, f.ttl)
		}
		if a.phase != idle && f.least > 0 {
			a.first = min(a.first+1, f.least)
		}
		a.rest = max(a.rest, 1) - 1
		a.left = max(a.left, 1) - 1
		switch a.phase {
		case asking:
			if a.age >= f.span(f.ttl) {
				f.end(&s, i)
			}
		case held, extending:
			if a.left == 0 {
				f.end(&s, i)
			}
		}
	}
	do(Step{Text: "a tick passes", Kind: Timer}, s)
}

// forget discards the votes in the round of attempt i.
func (s *fillState) forget(i int) {
	for n := range s.nodes {
		s.nodes[n].votes[i] = pending
	}
}

func (f filling) end(s *fillState, i int) {
	a := &s.attempts[i]
	then := fillAttempt{phase: over, sent: a.sent, filled: a.filled, crashed: a.crashed, began: a.began, first: a.first}
	if f.after && a.began {
		then.fills, then.rest = a.fills, a.rest
	}
	if f.least == 0 {
		then.began = f.after && a.began
	}
	*a = then
	s.forget(i)
	for n := range s.nodes {
		s.nodes[n].granted &^= 1 << i
		s.nodes[n].since[i] = 0
	}
	if f.least == 0 {
		for n := range s.nodes {
			s.nodes[n].confirmed &^= 1 << i
		}
	}
}

func (f filling) grants(s *fillState, i int) bool {
	votes := 0
	for _, n := range s.nodes {
		if n.votes[i] == yes {
			votes++
		}
	}
	return votes >= quorum
}

func (f filling) client(s fillState, i int, do func(Step, fillState)) {
	a := &s.attempts[i]
	switch {
	case a.phase == idle && (i != 1 || !f.retry || s.attempts[0].phase == over):
		a.phase, a.rest = asking, f.keyTTL()
		do(Step{"{c} sends its acquire", Choice, i, 0}, s)
	case a.phase == asking:
		t := s
		f.end(&t, i)
		do(Step{"{c} gives up and sends its release", Choice, i, 0}, t)
		if f.early {
			f.fill(s, i, do)
		}
		if f.grants(&s, i) {
			f.win(s, i, do)
		}
	case a.phase == held:
		t := s
		f.end(&t, i)
		do(Step{"{c} unlocks and sends its release", Choice, i, 0}, t)
		if f.crashes {
			t := s
			t.attempts[i].crashed = true
			f.end(&t, i)
			do(Step{"{c}'s process crashes", Choice, i, 0}, t)
		}
		f.fill(s, i, do)
		if a.extended < f.extends {
			a.phase, a.age, a.sent = extending, 0, true
			a.extended++
			do(Step{"{c} sends an extension", Choice, i, 0}, s)
		}
	case a.phase == extending:
		f.fill(s, i, do)
		if f.grants(&s, i) {
			t := s
			f.confirm(t, i, do)
		}
		a.phase, a.age = held, 0
		s.forget(i)
		do(Step{"{c} waits no longer for its extension", Choice, i, 0}, s)
	case a.phase == over && f.after && a.began && !a.crashed:
		f.fill(s, i, do)
	}
}

// fill sends a fill, with the rest of the TTL of the keys.
func (f filling) fill(s fillState, i int, do func(Step, fillState)) {
	a := &s.attempts[i]
	if a.fills == f.fills {
		return
	}
	rest := a.rest
	switch {
	case f.full:
		rest = f.keyTTL()
	case f.restOfValidity && a.phase != asking:
		rest = a.left
	}
	if rest == 0 {
		return
	}
	a.fills++
	a.filled |= 1 << rest
	do(Step{fmt.Sprintf("{c} sends a fill for %d", rest), Choice, i, 0}, s)
}

func (f filling) win(s fillState, i int, do func(Step, fillState)) {
	a := &s.attempts[i]
	a.left = f.span(f.ttl) - a.age
	a.phase, a.age, a.began = held, 0, true
	for j := range s.attempts {
		if other := &s.attempts[j]; j != i && other.began {
			other.broken = true
			if f.least > 0 && other.first < f.least {
				s.soon = true
			}
		}
	}
	s.forget(i)
	do(Step{"{c} HOLDS the lock", Work, i, 0}, s)
}

func (f filling) confirm(s fillState, i int, do func(Step, fillState)) {
	a := &s.attempts[i]
	if span := f.span(f.ttl); span > a.age {
		a.left = max(a.left, span-a.age)
	}
	a.rest = max(a.rest, f.ttl-a.age)
	for n := range s.nodes {
		if !f.stale && s.nodes[n].votes[i] != yes {
			s.nodes[n].confirmed &^= 1 << i // it may still have the key of the former period only
		}
	}
	a.phase, a.age = held, 0
	s.forget(i)
	s.interrupted = a.broken
	do(Step{"{c}'s extension is CONFIRMED", Work, i, 0}, s)
}

func (f filling) counts(s *fillState, node int) bool { return s.nodes[node].up >= f.guard() }

func (s *fillState) vote(i, node int, granted bool) {
	v := &s.nodes[node].votes[i]
	switch {
	case *v != pending:
	case granted:
		*v = yes
	default:
		*v = no
	}
}

func (f filling) node(s fillState, i, node int, do func(Step, fillState)) {
	a := s.attempts[i]
	if a.phase == idle {
		return
	}
	{ // the acquire
		t := s
		n, granted := &t.nodes[node], false
		if n.value == 0 && n.lost>>i&1 == 0 {
			n.value, n.left, granted = mark(i), f.keyTTL(), true
		}
		if a.phase == asking {
			t.vote(i, node, granted && f.counts(&t, node))
			if granted && f.outside {
				n.granted |= 1 << i
			}
			if granted && f.whole {
				n.confirmed |= 1 << i
			}
		}
		if t != s {
			do(Step{"node {n} executes {c}'s acquire", Work, i, node}, t)
		}
	}
	if a.sent {
		t := s
		n, confirmed := &t.nodes[node], false
		if n.value == mark(i) {
			n.left, confirmed = max(n.left, f.ttl), true
		}
		if a.phase == extending {
			counts := !f.outside || f.countsFilled || n.granted>>i&1 == 1 || f.ages && n.since[i] == f.old()
			t.vote(i, node, confirmed && counts && f.counts(&t, node))
		}
		if (a.phase == held || a.phase == extending) && confirmed && f.whole {
			n.confirmed |= 1 << i
		}
		if t != s {
			do(Step{"node {n} executes {c}'s extension", Work, i, node}, t)
		}
	}
	for rest := uint8(1); rest < 16; rest++ {
		if a.filled>>rest&1 == 1 && s.nodes[node].cut>>i&1 == 0 {
			f.executeFill(s, i, node, rest, do)
		}
	}
	if a.phase == over && !a.crashed && s.nodes[node].value == mark(i) {
		n := &s.nodes[node]
		if stays := f.least + f.drift - min(a.first, f.least+f.drift); f.least > 0 && a.began && a.first < f.least {
			if n.left > stays {
				n.left = stays
				do(Step{"node {n} executes {c}'s release, which cuts the TTL", Work, i, node}, s)
			}
			return
		}
		n.value, n.left = 0, 0
		n.confirmed &^= 1 << i
		do(Step{"node {n} executes {c}'s release", Work, i, node}, s)
	}
}

func (f filling) executeFill(s fillState, i, node int, rest uint8, do func(Step, fillState)) {
	before, a := s, s.attempts[i]
	n, done := &s.nodes[node], false
	switch {
	case n.value == 0 || f.overwrites:
		n.value, n.left, done = mark(i), rest, true
	case n.value == mark(i) && f.setsTTL:
		n.left = rest
	}
	lasts := a.extended == 0 || f.stale || rest >= a.left+f.drift // a fill of a former period confirms nothing
	if (done || f.nilConfirms) && lasts && (a.phase == held || a.phase == extending) && f.whole {
		n.confirmed |= 1 << i
	}
	if done {
		n.granted &^= 1 << i
	}
	if done && f.ages && (a.phase == held || a.phase == extending) {
		n.since[i] = max(n.since[i], 1)
	}
	if a.phase == extending {
		switch {
		case done && f.votesFull:
			n.left = f.ttl
			s.vote(i, node, f.counts(&s, node))
		case done && f.votesRest:
			s.vote(i, node, f.counts(&s, node))
		case done && f.votesYoung:
			n.left = f.ttl
			s.vote(i, node, true)
		}
	}
	if s != before {
		do(Step{fmt.Sprintf("node {n} executes {c}'s fill for %d", rest), Work, i, node}, s)
	}
}

func sameFill(s fillState) fillState {
	sortNodes(&s.nodes, func(n *fillNode) uint64 {
		return pack(n.value, n.left, n.up, n.fast, n.confirmed, n.granted, n.lost, n.cut, n.since[0], n.since[1], n.since[2], uint8(n.votes[0]), uint8(n.votes[1]), uint8(n.votes[2]))
	})
	return s
}

func (s *fillState) show(names []string) string {
	var v keysAndHolds
	for _, n := range s.nodes {
		v.key(names, n.value, n.left)
	}
	for i, a := range s.attempts {
		v.hold(names[i], a.left)
	}
	return v.String()
}
