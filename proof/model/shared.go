package model

import (
	"fmt"
	"strings"
)

// This file models readers and writers of one name: who holds it, by the clocks.
//
// It is the model of lock.go with two kinds of attempts. On a node the key is either the value of one writer, or
// it has a record with a deadline for each reader, and expires with the latest of them. A reader extends and
// releases its own record. A writer may step down (Downgrade): from then on it holds as a reader. It sends an
// extension in the reader's form, with which a node turns the writer's value into a record.
//
// Time and messages are as in lock.go: a node may execute a message at any time after it was sent, and any
// number of times. A reply arrives at once or never.

const maxSharers = 3

type sharedState struct {
	nodes       [numNodes]sharedNode
	attempts    [maxSharers]sharer
	restarts    uint8 // so far
	interrupted bool  // a hold was extended although a hold that excludes it had come in between
	denied      bool  // a node has denied an extension although it has the attempt's value or record
}

type sharedNode struct {
	writer  uint8             // 1 + the attempt whose value the key is; 0: none
	left    uint8             // ticks until the key expires
	records [maxSharers]uint8 // ticks until the deadline of each reader; 0: no record
	between uint8             // with the flaw twoSteps: 1 + the attempt that has released, and not yet entered as a reader
	up      uint8             // uptime in ticks, up to the guard
	votes   [maxSharers]vote
}

// A form says whether an extension is sent as a writer's or as a reader's.
type form uint8

const (
	asWriter form = iota
	asReader
)

// A sharer is an attempt to read or to write.
type sharer struct {
	phase    lockPhase
	reads    bool // it asks to read, or holds as a reader
	open     bool // with some flaws: its stepping down is not confirmed
	form     form // of the open extension
	short    bool // the open extension is for one tick
	age      uint8
	left     uint8 // ticks of validity left; the hold ends at 0
	extended uint8
	sent     [2][2]bool // the extensions sent: by form, and for the whole TTL or for one tick
	began    bool       // the attempt once held
	broken   bool       // a hold that excludes this one has begun since
}

type sharedBounds struct {
	name      string
	reads     []bool  // of each attempt
	ttl       []uint8 // of each attempt
	extends   []uint8 // extensions of each attempt, apart from stepping down; nil: none
	shorter   bool    // extensions may be for one tick
	heals     bool    // extensions set missing records and keys again
	stepsDown bool    // attempt 0, a writer, may step down
	restarts  uint8
	size      Size
}

// Each field of sharedFlaws weakens a rule: see sharedRules.
type sharedFlaws struct {
	entersAnyway                         bool // acquires
	lastComer, purgesEarly, deletesAll   bool // the key and its records
	shortens, late, putBackCounts        bool // extensions
	healsOver, alwaysMine                bool // healing
	unguarded                            bool // restarts
	untilConfirmed, takenBack, twoSteps  bool // stepping down
	downShortens, minority, staysAWriter bool
}

type shared struct {
	sharedBounds
	sharedFlaws
}

// The bounds in which the rules are explored. In traces the first attempt is A, and readers have lower-case letters.
var (
	sharedOne      = sharedBounds{name: "a reader and a writer, extensions", reads: []bool{true, false}, ttl: []uint8{2, 2}, extends: []uint8{1, 1}}
	sharedWriters  = sharedBounds{name: "a reader, two writers", reads: []bool{true, false, false}, ttl: []uint8{2, 2, 2}, size: Medium}
	sharedUnequal  = sharedBounds{name: "two readers of unequal TTL, a writer", reads: []bool{true, true, false}, ttl: []uint8{3, 1, 2}, size: Medium}
	sharedReaders  = sharedBounds{name: "two readers, a writer", reads: []bool{true, true, false}, ttl: []uint8{2, 2, 2}, size: Medium}
	sharedExtends  = sharedBounds{name: "two readers, a writer, extensions", reads: []bool{true, true, false}, ttl: []uint8{2, 2, 2}, extends: []uint8{1, 1, 0}, size: Large}
	sharedShorter  = sharedBounds{name: "a reader and a writer, extensions, of which some are shorter", reads: []bool{true, false}, ttl: []uint8{3, 3}, extends: []uint8{2, 2}, shorter: true, size: Large}
	sharedHeals    = sharedBounds{name: "a reader and a writer, extensions that set missing records again", reads: []bool{true, false}, ttl: []uint8{2, 2}, extends: []uint8{1, 1}, heals: true}
	sharedHealMore = sharedBounds{name: "a reader, a writer, a reader, extensions that set missing records again", reads: []bool{true, false, true}, ttl: []uint8{2, 2, 2}, extends: []uint8{1, 0, 0}, heals: true, size: Large}
	sharedStep     = sharedBounds{name: "a writer that steps down, a writer", reads: []bool{false, false}, ttl: []uint8{2, 2}, extends: []uint8{1, 1}, stepsDown: true}
	sharedStepRead = sharedBounds{name: "a writer that steps down, a reader", reads: []bool{false, true}, ttl: []uint8{2, 2}, extends: []uint8{1, 1}, stepsDown: true, size: Medium}
	sharedStepAll  = sharedBounds{name: "a writer that steps down, a reader, a writer", reads: []bool{false, true, false}, ttl: []uint8{2, 2, 2}, stepsDown: true, size: Large}
	sharedStepLess = sharedBounds{name: "a writer that steps down for less time, a writer", reads: []bool{false, false}, ttl: []uint8{3, 3}, extends: []uint8{1, 1}, stepsDown: true, shorter: true, size: Large}
	sharedStepHeal = sharedBounds{name: "a writer that steps down, a writer, extensions that set missing keys again", reads: []bool{false, false}, ttl: []uint8{2, 2}, extends: []uint8{1, 1}, stepsDown: true, heals: true, size: Medium}
	sharedRestart  = sharedBounds{name: "a reader and a writer, a restart", reads: []bool{true, false}, ttl: []uint8{2, 2}, extends: []uint8{1, 1}, restarts: 1, size: Medium}
	sharedRestarts = sharedBounds{name: "a reader and a writer, two restarts, extensions that set missing records again", reads: []bool{true, false}, ttl: []uint8{2, 2}, extends: []uint8{1, 1}, heals: true, restarts: 2, size: Large}
	sharedStepGone = sharedBounds{name: "a writer that steps down, a writer, a restart", reads: []bool{false, false}, ttl: []uint8{2, 2}, extends: []uint8{1, 1}, stepsDown: true, heals: true, restarts: 1, size: Large}
)

var sharedRules = []struct {
	name, section, rule string
	bounds              sharedBounds
	flaws               sharedFlaws
}{
	{"a reader enters anyway", "A1 readers", "a node lets a reader in only if the key is missing or is the readers'", sharedOne, sharedFlaws{entersAnyway: true}},
	{"the key lasts as long as the last comer", "A2 readers", "the key lasts as long as the latest deadline in it", sharedUnequal, sharedFlaws{lastComer: true}},
	{"a record is purged a tick early", "A2 readers", "only records whose deadlines have passed are purged", sharedReaders.sized(Small), sharedFlaws{purgesEarly: true}},
	{"a reader's release deletes the key", "A3 readers", "a release takes out its own record, and deletes the key only if no other is left", sharedReaders, sharedFlaws{deletesAll: true}},
	{"a reader's extension shortens", "A4 readers", "an extension never brings the deadline of a record forward", sharedShorter.sized(Small), sharedFlaws{shortens: true}},
	{"a reader's extension is confirmed late", "A4 readers", "an extension counts only if a quorum confirms it before the old validity has ended", sharedOne, sharedFlaws{late: true}},
	{"a record put back counts", "A4 readers", "a missing record is no vote, not even where the extension puts it back", sharedRestarts, sharedFlaws{putBackCounts: true}},
	{"healing overwrites a writer", "A4 readers", "healing puts a record back only where the key is missing or the readers'", sharedHealMore, sharedFlaws{healsOver: true}},
	{"another's key proves no loss", "A4 readers", "an answer that the key is another's is no vote for an extension", sharedHeals, sharedFlaws{alwaysMine: true}},
	{"readers are not guarded", "A5 readers", "the restart guard excludes votes for readers, too", sharedRestart.sized(Small), sharedFlaws{unguarded: true}},
	{"a writer until it is confirmed", "A7 stepping down", "the hold is a reader's from before the first send, whatever comes of the round", sharedStepRead.sized(Small), sharedFlaws{untilConfirmed: true}},
	{"stepping down is taken back", "A7 stepping down", "a hold that has stepped down does not become a writer's again, not even if the round fails", sharedStepRead.sized(Small), sharedFlaws{takenBack: true}},
	{"stepping down in two steps", "A7 stepping down", "a node turns a writer's value into a record in one step", sharedStep, sharedFlaws{twoSteps: true}},
	{"stepping down shortens", "A7 stepping down", "the record lasts no shorter than the key that it replaces", sharedStepLess.sized(Medium), sharedFlaws{downShortens: true}},
	{"one node confirms the stepping down", "A7 stepping down", "stepping down moves the end of the validity only if a quorum confirms it", sharedStep, sharedFlaws{minority: true}},
	{"later extensions are a writer's", "A7 stepping down", "after stepping down all extensions are a reader's, which find the hold in either form", sharedStepRead.sized(Small), sharedFlaws{staysAWriter: true}},
}

// sized returns the bounds for a mutation that takes more or less time than the sound model.
func (b sharedBounds) sized(size Size) sharedBounds {
	b.size = size
	return b
}

func sharedCases() (cases []Case) {
	for _, b := range []sharedBounds{
		sharedOne, sharedWriters, sharedUnequal, sharedReaders, sharedExtends, sharedShorter, sharedHeals, sharedHealMore,
		sharedStep, sharedStepRead, sharedStepAll, sharedStepLess, sharedStepHeal, sharedRestart, sharedRestarts, sharedStepGone,
	} {
		cases = append(cases, Case{Model: "shared", Name: b.name, Size: b.size, Explore: shared{b, sharedFlaws{}}.explore})
	}
	return cases
}

func sharedMutations() (cases []Case) {
	for _, r := range sharedRules {
		cases = append(cases, Case{Model: "shared", Name: r.name, Rule: r.rule, Section: r.section, Size: r.bounds.size, Explore: shared{r.bounds, r.flaws}.explore})
	}
	return cases
}

func (m shared) explore(how Search) Result {
	var start sharedState
	for n := range start.nodes {
		start.nodes[n].up = m.guard()
	}
	names := []string{"A", "B", "C"}
	for i, reads := range m.reads {
		start.attempts[i].reads = reads
		if reads {
			names[i] = strings.ToLower(names[i])
		}
	}
	return Find(System[sharedState]{
		Start: start, Clients: names, Next: m.next, Same: sameShared, Wrong: m.wrong,
		Show: func(s sharedState) string { return s.show(names) },
	}, how)
}

// wrong checks three promises: a writer holds alone, no hold is extended after a hold that excludes it has come in
// between, and a node that has the value or the record of a hold does not deny it.
func (m shared) wrong(s sharedState) string {
	readers, writers := 0, 0
	for _, a := range s.attempts {
		switch {
		case a.left == 0:
		case a.reads && !(m.untilConfirmed && a.open):
			readers++
		default:
			writers++
		}
	}
	switch {
	case writers > 1:
		return "two writers hold"
	case writers == 1 && readers > 0:
		return "a writer and a reader hold"
	case s.interrupted:
		return "a hold goes on although one that excludes it came in between"
	case s.denied:
		return "a node denies a hold that it has"
	}
	return ""
}

// guard returns the uptime that a node must have reached before its votes count.
func (m shared) guard() (ticks uint8) {
	if m.restarts == 0 {
		return 0
	}
	for _, ttl := range m.ttl {
		ticks = max(ticks, ttl)
	}
	return ticks
}

func (m shared) next(s sharedState, do func(Step, sharedState)) {
	if s.restarts < m.restarts {
		for i := range s.nodes {
			t := s
			t.restarts++
			t.nodes[i].clear()
			t.nodes[i].up = 0
			do(Step{"node {n} restarts without data", Choice, 0, i}, t)
		}
	}
	for i := range m.reads {
		m.client(s, i, do)
		for n := range s.nodes {
			m.node(s, i, n, do)
		}
	}
	m.tick(s, do)
}

// clear deletes the key.
func (n *sharedNode) clear() { n.writer, n.left, n.records = 0, 0, [maxSharers]uint8{} }

// latest returns the latest deadline of a record.
func (n *sharedNode) latest() (ticks uint8) {
	for _, r := range n.records {
		ticks = max(ticks, r)
	}
	return ticks
}

// record sets the record of attempt i, and the TTL of the key.
func (n *sharedNode) record(i int, ticks uint8) {
	n.writer, n.records[i] = 0, ticks
	n.left = n.latest()
}

func (m shared) tick(s sharedState, do func(Step, sharedState)) {
	for i := range s.nodes {
		n := &s.nodes[i]
		n.up = min(n.up+1, m.guard())
		n.left = max(n.left, 1) - 1
		for r := range n.records {
			n.records[r] = max(n.records[r], 1) - 1
		}
		if n.left == 0 {
			n.clear()
		}
	}
	for i, ttl := range m.ttl {
		a := &s.attempts[i]
		if a.phase == asking || a.phase == extending {
			a.age = min(a.age+1, ttl)
		}
		a.left = max(a.left, 1) - 1
		switch a.phase {
		case asking:
			if a.age == ttl { // a grant would now come too late
				s.end(i)
			}
		case held:
			if a.left == 0 {
				s.end(i)
			}
		case extending:
			if a.left == 0 && (!m.late || a.age == ttl) {
				s.end(i)
			}
		}
	}
	do(Step{Text: "a tick passes", Kind: Timer}, s)
}

// client adds the steps of the client of attempt i.
func (m shared) client(s sharedState, i int, do func(Step, sharedState)) {
	a := &s.attempts[i]
	votes := 0
	for _, n := range s.nodes {
		if n.votes[i] == yes {
			votes++
		}
	}
	switch a.phase {
	case idle:
		a.phase = asking
		do(Step{"{c} sends its acquire", Choice, i, 0}, s)
	case asking:
		if votes >= quorum {
			m.win(s, i, do)
		}
		s.end(i)
		do(Step{"{c} gives up and sends its release", Choice, i, 0}, s)
	case held:
		m.hold(s, i, do)
	case extending:
		if votes >= quorum || m.minority && a.open && votes > 0 {
			m.confirm(s, i, do)
		}
		if m.takenBack && a.open {
			a.reads, a.open = false, false
		}
		a.phase, a.age = held, 0
		s.forget(i)
		if a.left == 0 {
			s.end(i)
		}
		do(Step{"{c} waits no longer for its extension", Choice, i, 0}, s)
	}
}

func (m shared) win(s sharedState, i int, do func(Step, sharedState)) {
	a := &s.attempts[i]
	a.phase, a.left, a.age, a.began = held, m.ttl[i]-a.age, 0, true
	s.forget(i)
	for j := range s.attempts {
		if o := &s.attempts[j]; j != i && o.began && !(o.reads && a.reads) {
			o.broken = true
		}
	}
	do(Step{"{c} HOLDS", Work, i, 0}, s)
}

// hold adds the steps of a holder.
func (m shared) hold(s sharedState, i int, do func(Step, sharedState)) {
	a := s.attempts[i]
	t := s
	t.end(i)
	do(Step{"{c} unlocks and sends its release", Choice, i, 0}, t)
	if m.extends != nil && a.extended < m.extends[i] {
		t := s
		t.attempts[i].extended++
		f := asWriter
		if a.reads && (!m.staysAWriter || m.reads[i]) {
			f = asReader
		}
		m.extend(t, i, f, "{c} sends an extension", do)
	}
	if m.stepsDown && i == 0 && !a.reads {
		t := s
		t.attempts[i].reads = true
		t.attempts[i].open = m.untilConfirmed || m.takenBack || m.minority
		m.extend(t, i, asReader, "{c} STEPS DOWN and sends an extension", do)
	}
}

// extend begins an extension of hold i, for the whole TTL or for one tick.
func (m shared) extend(s sharedState, i int, f form, text string, do func(Step, sharedState)) {
	for _, short := range [...]bool{false, true} {
		if short && !m.shorter {
			return
		}
		t := s
		a := &t.attempts[i]
		a.phase, a.age, a.form, a.short = extending, 0, f, short
		a.sent[f][length(short)] = true
		do(Step{text + [...]string{"", " for one tick"}[length(short)], Choice, i, 0}, t)
	}
}

// extension returns the TTL that an extension of attempt i asks for.
func (m shared) extension(i int, short bool) uint8 {
	if short {
		return 1
	}
	return m.ttl[i]
}

// confirm extends hold i, if that makes it longer.
func (m shared) confirm(s sharedState, i int, do func(Step, sharedState)) {
	a := &s.attempts[i]
	if ttl := m.extension(i, a.short); ttl > a.age {
		a.left = max(a.left, ttl-a.age)
	}
	a.phase, a.age, a.open = held, 0, false
	s.forget(i)
	if a.left == 0 {
		return
	}
	s.interrupted = a.broken
	do(Step{"{c}'s extension is CONFIRMED", Work, i, 0}, s)
}

// end ends attempt i. Its messages remain on their way.
func (s *sharedState) end(i int) {
	a := &s.attempts[i]
	*a = sharer{phase: over, reads: a.reads, sent: a.sent}
	s.forget(i)
}

// forget discards the votes in the round of attempt i.
func (s *sharedState) forget(i int) {
	for n := range s.nodes {
		s.nodes[n].votes[i] = pending
	}
}

// vote counts the first answer of a node in the open round of attempt i.
func (n *sharedNode) vote(i int, granted bool) {
	if n.votes[i] != pending {
		return
	}
	n.votes[i] = no
	if granted {
		n.votes[i] = yes
	}
}

// node adds the steps in which a node executes a message of attempt i.
func (m shared) node(s sharedState, i, node int, do func(Step, sharedState)) {
	a := &s.attempts[i]
	if a.phase == idle {
		return
	}
	m.executeAcquire(s, i, node, do)
	for _, f := range [...]form{asWriter, asReader} {
		for _, short := range [...]bool{false, true} {
			if a.sent[f][length(short)] {
				m.executeExtend(s, i, node, f, short, do)
			}
		}
	}
	if a.phase == over {
		m.executeRelease(s, i, node, do)
	}
}

// counts reports whether the votes of a node for attempt i count.
func (m shared) counts(n *sharedNode, i int) bool {
	return n.up >= m.guard() || m.unguarded && m.reads[i]
}

// executeAcquire executes the acquire of attempt i. A reader that finds its own record was let in before.
func (m shared) executeAcquire(s sharedState, i, node int, do func(Step, sharedState)) {
	before := s
	n := &s.nodes[node]
	if m.purgesEarly {
		n.purgeEarly()
	}
	granted := false
	switch {
	case m.reads[i] && n.records[i] > 0:
		granted = true
	case m.reads[i] && (n.writer == 0 || m.entersAnyway):
		n.record(i, m.ttl[i])
		if m.lastComer {
			n.left = m.ttl[i]
		}
		granted = true
	case !m.reads[i] && n.left == 0:
		n.writer, n.left = mark(i), m.ttl[i]
		granted = true
	}
	if s.attempts[i].phase == asking {
		n.vote(i, granted && m.counts(n, i))
	}
	if s != before {
		do(Step{"node {n} executes {c}'s acquire", Work, i, node}, s)
	}
}

// purgeEarly removes the records whose deadlines are one tick away.
func (n *sharedNode) purgeEarly() {
	if n.writer != 0 {
		return
	}
	for i := range n.records {
		if n.records[i] == 1 {
			n.records[i] = 0
		}
	}
	if n.left = n.latest(); n.left == 0 {
		n.clear()
	}
}

// executeExtend executes an extension of attempt i. In the reader's form it turns the value of a writer that has
// stepped down into a record.
func (m shared) executeExtend(s sharedState, i, node int, f form, short bool, do func(Step, sharedState)) {
	before := s
	n, a, ttl := &s.nodes[node], s.attempts[i], m.extension(i, short)
	found := n.writer == mark(i) || n.records[i] > 0
	mine, guarded := false, true // the answer, and whether the restart guard may exclude it
	switch {
	case f == asWriter && n.writer == mark(i):
		n.left = max(n.left, ttl)
		mine = true
	case f == asWriter && n.left == 0 && m.heals:
		n.writer, n.left = mark(i), ttl
	case f == asWriter:
	case n.writer == mark(i) && m.twoSteps:
		n.clear()
		n.between = mark(i)
	case n.writer == mark(i):
		if !m.downShortens {
			ttl = max(ttl, n.left)
		}
		n.record(i, ttl)
		mine = true
	case n.between == mark(i) && n.writer == 0:
		n.between = 0
		n.record(i, ttl)
		mine = true
	case n.records[i] > 0:
		if !m.shortens {
			ttl = max(ttl, n.records[i])
		}
		n.record(i, ttl)
		mine = true
	case m.heals && (n.writer == 0 || m.healsOver):
		n.record(i, ttl)
		mine, guarded = m.putBackCounts, !m.putBackCounts
	case n.writer != 0:
		mine = m.alwaysMine
	}
	if a.phase == extending && a.short == short && a.form == f {
		n.vote(i, mine && (!guarded || m.counts(n, i)))
		s.denied = s.denied || found && !mine && !m.twoSteps && !m.takenBack
	}
	if s != before {
		do(Step{"node {n} executes {c}'s extension" + [...]string{"", " as a reader"}[f], Work, i, node}, s)
	}
}

// executeRelease removes the value or the record of attempt i.
func (m shared) executeRelease(s sharedState, i, node int, do func(Step, sharedState)) {
	before := s
	n := &s.nodes[node]
	switch {
	case n.writer == mark(i):
		n.clear()
	case n.records[i] > 0:
		n.record(i, 0)
		if n.left == 0 || m.deletesAll {
			n.clear()
		}
	}
	if s != before {
		do(Step{"node {n} executes {c}'s release", Work, i, node}, s)
	}
}

func sameShared(s sharedState) sharedState {
	sortNodes(&s.nodes, func(n *sharedNode) uint64 {
		return pack(n.writer, n.left, n.records[0], n.records[1], n.records[2], n.between, n.up,
			uint8(n.votes[0]), uint8(n.votes[1]), uint8(n.votes[2]))
	})
	return s
}

func (s *sharedState) show(names []string) string {
	var v keysAndHolds
	for _, n := range s.nodes {
		if n.latest() == 0 {
			v.key(names, n.writer, n.left)
			continue
		}
		for i, r := range n.records {
			if r > 0 {
				fmt.Fprintf(&v, "(%s:%d)", names[i], r)
			}
		}
		fmt.Fprint(&v, " ")
	}
	for i, a := range s.attempts {
		v.hold(names[i], a.left)
		if a.left > 0 && a.reads {
			fmt.Fprint(&v, " to read")
		}
	}
	return v.String()
}
