package model

import (
	"fmt"
	"math/bits"
	"strings"
)

// This file models waiting for several names at once: all of them or none, beside locks of one name.
//
// It is the model of queue.go with two names and without deaths. Only wake-ups may be lost, no other messages. A
// lock of both names is called a multi here, and a lock of one name a single. A waiting call stands in lines within
// its process. A call is first if it is at the head of every line in which it stands. Only first calls talk to the
// nodes.
//
// In fair mode a call stands in the lines and in the queues of all its names. Without fair mode a call waits
// for one of its names, and stands only in the line of that name. After an attempt this is a name that kept the
// attempt back (see waitsFor), and before any attempt the call's first name. An attempt puts the ticket in the queues
// of all names. If the attempt fails, its release takes the ticket out of the queues of the other names.
//
// In some bounds the nodes put no call into their queues, and so tell nobody of a free name. Then the promise of
// waking holds only within one process: a release lets the next in the process's lines try.

const (
	maxNames      = 2
	maxNamesCalls = 4
	onlyA         = uint8(1) // what a call wants, as bits
	onlyB         = uint8(2)
	both          = onlyA | onlyB
)

type namesState struct {
	nodes    [numNodes]namesNode
	calls    [maxNamesCalls]namesCall
	lost     uint8 // wake-ups lost so far
	overtook bool
}

type namesNode struct {
	lock  [maxNames]uint8 // 1 + the call whose key is set; 0: no key
	queue [maxNames]uint8 // the calls whose tickets are queued, as bits
	told  [maxNames]uint8 // the calls that the node has told, since their last attempt began, that the name is free, as bits
	found [maxNames]uint8 // the calls whose last attempt found the name free on this node, as bits
	slots [maxNamesCalls]slot
	after sendOrder
}

type namesCall struct {
	phase  queuePhase
	how    manner          // of the last attempt
	ready  bool            // it has a reason to try at once
	behind bool            // if ready: it tries right behind a release of its process, without queueing
	queued bool            // its ticket may be in queues
	shown  bool            // its ticket has been put in the queues of all its names
	leaves uint8           // its releases take the ticket out of the queues of these names, as bits
	line   uint8           // the name for which it waits; without fair mode it stands in the line of that name
	late   uint8           // with the flaw movesLast: the calls behind which it has moved to its line, as bits
	before uint8           // calls that it must not overtake in this attempt, as bits
	enters [maxNames]uint8 // by name: 1 + the call whose ticket its release puts into the queue
}

type namesBounds struct {
	name    string
	wants   []uint8 // of each call: the names, as bits
	process []uint8 // of each call
	fair    bool
	early   bool  // attempts end as soon as they are decided; otherwise when all nodes have answered
	orderly bool  // a call begins an attempt only when all its earlier messages have been executed
	lined   bool  // without fair mode: no first attempt goes ahead of the waiters
	holds   uint8 // the calls that hold at the start, as bits
	patient bool  // an elapsed retry delay alone starts no attempt
	cancels bool  // waiters may give up
	denied  bool  // the nodes put no call into their queues; all calls are of one process
	eager   bool  // a call tries at once after a move, and nudges others, also where the nodes have queues
	urgent  bool  // the calls of a process begin in any order, as with priorities; otherwise in ticket order
	losses  uint8 // of wake-ups of other processes; then all calls must be able to end, by timers if need be
	size    Size
}

// sized returns the bounds for a mutation that takes more or less time than the sound model.
func (b namesBounds) sized(size Size) namesBounds {
	b.size = size
	return b
}

// Each field of namesFlaws weakens a rule: see namesRules.
type namesFlaws struct {
	staysInLine, allLines, fairOneLine, anyHead bool // lines
	movesLast                                   bool // order in a line
	otherNames, anyName, dropsOthers            bool // wake-ups
	forgetsName                                 bool
	leavesSilently, dropsReasons, firstEnters   bool // the next in line
	together, waitsForAll                       bool // what keeps a first call from trying
	anyVotes, nodesChoose                       bool // acquires
	firstTells, onlyDeleted, firstLost          bool // releases
	movesSilently, showsOnce                    bool // where nodes tell nobody
	waitsHidden                                 bool // tickets of calls that may not try
}

type names struct {
	namesBounds
	namesFlaws
}

var (
	// The name of a bound lists the calls of one process and then, mostly after a comma, those of another. The field
	// process has the process of each call.

	namesOne       = namesBounds{name: "a multi and a single, a single", wants: []uint8{both, onlyB, onlyA}, process: []uint8{0, 0, 1}, orderly: true, patient: true, cancels: true}
	namesTwo       = namesBounds{name: "two multis, a single", wants: []uint8{both, both, onlyA}, process: []uint8{0, 0, 1}, orderly: true, patient: true, cancels: true}
	namesPart      = namesBounds{name: "a multi and a single, a multi", wants: []uint8{both, both, onlyB}, process: []uint8{0, 1, 0}, orderly: true, patient: true, cancels: true, size: Large}
	namesSame      = namesBounds{name: "a multi and a single, a single of the same name", wants: []uint8{both, onlyB, onlyB}, process: []uint8{0, 0, 1}, orderly: true, patient: true, cancels: true}
	namesHeld      = namesBounds{name: "two singles hold, a multi behind them, a single", wants: []uint8{onlyA, onlyB, both, onlyA}, process: []uint8{0, 0, 0, 1}, holds: 3, lined: true, orderly: true, patient: true, cancels: true, size: Large}
	namesMoves     = namesBounds{name: "a single and a multi, two singles of which one holds", wants: []uint8{onlyA, both, onlyA, onlyB}, process: []uint8{0, 0, 1, 1}, holds: 4, lined: true, orderly: true, patient: true, cancels: true}
	namesGiven     = namesBounds{name: "a multi and two singles, a multi holds", wants: []uint8{both, onlyA, onlyB, both}, process: []uint8{0, 0, 0, 1}, holds: 8, lined: true, orderly: true, patient: true, cancels: true}
	namesBehind    = namesBounds{name: "a multi and a single behind it, two singles of which one holds", wants: []uint8{both, onlyA, onlyA, onlyB}, process: []uint8{0, 0, 1, 1}, holds: 4, lined: true, orderly: true, patient: true, cancels: true, size: Large}
	namesChain     = namesBounds{name: "a multi holds, a multi and a single behind it, a single", wants: []uint8{both, both, onlyB, onlyA}, process: []uint8{0, 0, 0, 1}, holds: 1, lined: true, orderly: true, patient: true, cancels: true, size: Large}
	namesFast      = namesBounds{name: "a multi and a single, a single, attempts follow at once", wants: []uint8{both, onlyB, onlyA}, process: []uint8{0, 0, 1}, cancels: true, size: Large}
	namesEarly     = namesBounds{name: "two multis, a single, attempts end early", wants: []uint8{both, both, onlyA}, process: []uint8{0, 0, 1}, early: true, patient: true, cancels: true, size: Large}
	namesPair      = namesBounds{name: "two processes with a multi and a single each, one multi holds", wants: []uint8{both, both, both, onlyB}, process: []uint8{0, 0, 1, 1}, holds: 4, lined: true, orderly: true, patient: true, cancels: true, size: Large}
	namesFour      = namesBounds{name: "a multi and a single, two singles", wants: []uint8{onlyA, onlyB, both, onlyA}, process: []uint8{1, 1, 0, 0}, lined: true, orderly: true, patient: true, cancels: true, size: Large}
	namesDisplaces = namesBounds{name: "two singles hold, a multi and a single behind them", wants: []uint8{onlyA, onlyB, both, onlyB}, process: []uint8{1, 0, 0, 0}, holds: 3, lined: true, orderly: true, patient: true, cancels: true}
	namesDisplaced = namesBounds{name: "two singles hold, a multi and a single behind the first", wants: []uint8{onlyA, onlyB, both, onlyB}, process: []uint8{0, 1, 0, 0}, holds: 3, lined: true, orderly: true, patient: true, cancels: true, size: Large}
	namesOrder     = namesBounds{name: "a multi and a single, two singles of the same name of which one holds", wants: []uint8{onlyB, both, onlyB, onlyB}, process: []uint8{1, 0, 1, 0}, holds: 1, lined: true, orderly: true, patient: true, cancels: true, size: Large}
	namesEager     = namesBounds{name: "a multi and a single, a single, all try after moves and first attempts", wants: []uint8{both, onlyB, onlyA}, process: []uint8{0, 0, 1}, orderly: true, patient: true, cancels: true, eager: true, size: Large}
	namesEagerFour = namesBounds{name: "a multi and a single behind it, two singles of which one holds, all try after moves", wants: []uint8{both, onlyA, onlyA, onlyB}, process: []uint8{0, 0, 1, 1}, holds: 4, lined: true, orderly: true, patient: true, cancels: true, eager: true, size: Large}
	namesUrgent    = namesBounds{name: "a multi and a single, a single, in any order", wants: []uint8{both, onlyB, onlyA}, process: []uint8{0, 0, 1}, orderly: true, patient: true, cancels: true, urgent: true, size: Large}
	namesLossy     = namesBounds{name: "a multi and a single, a single, two lost wake-ups", wants: []uint8{both, onlyB, onlyA}, process: []uint8{0, 0, 1}, orderly: true, losses: 2, size: Large}

	// In the next two bounds all calls are of one process.

	namesDenied      = namesBounds{name: "two singles hold, a multi and a single, without queues", wants: []uint8{onlyA, onlyB, both, onlyB}, process: []uint8{0, 0, 0, 0}, holds: 3, lined: true, orderly: true, patient: true, cancels: true, denied: true}
	namesDeniedFirst = namesBounds{name: "a single holds, a multi and two singles, without queues", wants: []uint8{onlyA, both, onlyB, onlyB}, process: []uint8{0, 0, 0, 0}, holds: 1, orderly: true, patient: true, cancels: true, denied: true, size: Large}

	namesFairOne    = namesBounds{name: "a multi and a single, a single, fair", wants: []uint8{both, onlyB, onlyA}, process: []uint8{0, 0, 1}, fair: true, cancels: true}
	namesFairTwo    = namesBounds{name: "two multis, a single, fair", wants: []uint8{both, both, onlyA}, process: []uint8{0, 0, 1}, fair: true, cancels: true, size: Large}
	namesFairPart   = namesBounds{name: "a multi and a single, a multi, fair", wants: []uint8{both, both, onlyB}, process: []uint8{0, 1, 0}, fair: true, cancels: true, size: Large}
	namesFairLast   = namesBounds{name: "a single and a multi, a single, fair", wants: []uint8{onlyB, both, onlyA}, process: []uint8{0, 0, 1}, fair: true, cancels: true}
	namesFairHeld   = namesBounds{name: "two singles hold, a multi behind them, a single, fair", wants: []uint8{onlyA, onlyB, both, onlyA}, process: []uint8{0, 0, 0, 1}, holds: 3, fair: true, orderly: true, cancels: true, size: Large}
	namesFairGiven  = namesBounds{name: "a multi and two singles, a multi holds, fair", wants: []uint8{both, onlyA, onlyB, both}, process: []uint8{0, 0, 0, 1}, holds: 8, fair: true, orderly: true, cancels: true}
	namesFairUrgent = namesBounds{name: "a multi and a single, a single, in any order, fair", wants: []uint8{both, onlyB, onlyA}, process: []uint8{0, 0, 1}, fair: true, cancels: true, urgent: true, size: Large}
	namesFairLossy  = namesBounds{name: "a multi and a single, a single, two lost wake-ups, fair", wants: []uint8{both, onlyB, onlyA}, process: []uint8{0, 0, 1}, fair: true, losses: 2, size: Large}
	namesFairBehind = namesBounds{name: "a multi and a single behind it, two singles of which one holds, fair", wants: []uint8{both, onlyA, onlyA, onlyB}, process: []uint8{0, 0, 1, 1}, holds: 4, fair: true, orderly: true, patient: true, cancels: true, size: Large}
	namesFairFour   = namesBounds{name: "a multi and a single, two singles, fair", wants: []uint8{both, onlyA, onlyA, onlyB}, process: []uint8{0, 0, 1, 1}, fair: true, orderly: true, patient: true, cancels: true, size: Large}
)

var namesRules = []struct {
	name, section, rule string
	bounds              namesBounds
	flaws               namesFlaws
}{
	{"one name votes for all", "C several names", "a node sets all keys or none, and votes once", namesSame, namesFlaws{anyVotes: true}},
	{"the nodes choose the queue", "C several names, lines", "the process chooses the one queue in which a multi waits, the same on all nodes: the release of a failed attempt takes the ticket out of the others", namesHeld.sized(Medium), namesFlaws{nodesChoose: true}},
	{"waits in all lines", "C several names, lines", "without fair mode a multi waits in one line, and keeps nobody from its other names", namesOne, namesFlaws{allLines: true}},
	{"stays in the line of its first name", "C several names, lines", "a multi moves to the line of the name that keeps it back", namesBehind.sized(Medium), namesFlaws{staysInLine: true}},
	{"one line in fair mode", "C several names, lines", "in fair mode a multi stands in the lines of all its names", namesFairOne, namesFlaws{fairOneLine: true}},
	{"the head of any line is first", "C several names, lines", "a call is first only if it is at the head of every line in which it stands", namesFairLast, namesFlaws{anyHead: true}},
	{"two of a process try at once", "C several names, lines", "two calls of a process that want the same name do not try at the same time", namesGiven.sized(Large), namesFlaws{together: true}},
	{"waits until its process holds none of its names", "C several names, lines", "without fair mode a multi tries although its process holds a name, unless it stands in the line of that name", namesHeld.sized(Small), namesFlaws{waitsForAll: true}},
	{"wake-ups of another line are dropped", "C several names, wake-ups", "a wake-up about a name counts for every first call that wants the name, also for one that comes to wait for that name later", namesOne, namesFlaws{dropsOthers: true}},
	{"any wake-up is a reason", "C several names, wake-ups", "a wake-up is a reason to try only if it is about the name for which the call waits", namesMoves.sized(Large), namesFlaws{otherNames: true}},
	{"nodes are counted for any name", "C several names, wake-ups", "a call tries when the name for which it waits is free on a quorum of nodes: they have told it, or its last attempt found the name free there", namesMoves.sized(Large), namesFlaws{anyName: true}},
	{"an entry does not change the name", "C several names, wake-ups", "in fair mode a call whose ticket a release of its process enters in a queue waits for the name of that queue", namesFairLast, namesFlaws{forgetsName: true}},
	{"who leaves its line tells nobody", "C several names, lines", "a call that becomes the first because another has left the line has a reason to try", namesSame, namesFlaws{leavesSilently: true}},
	{"a reason during an attempt is dropped", "C several names, lines", "a call that becomes the first during its attempt tries again after it", namesSame, namesFlaws{dropsReasons: true}},
	{"the release enters the first name's next", "C several names, lines", "a release puts the ticket of the next in line of each of its names into the queue of that name", namesOne, namesFlaws{firstEnters: true}},
	{"the release tells the first name's queue", "C several names", "a release tells the head of each of its names that is free", namesOne, namesFlaws{firstTells: true}},
	{"a release tells only where it has deleted", "C several names", "a release tells the head of each of its names that is free, also if it has deleted nothing", namesHeld.sized(Small), namesFlaws{onlyDeleted: true}},
	{"one answer for all names", "C several names", "the answer to a release says that its process is first for one name although another process was told of another name", namesFairOne, namesFlaws{firstLost: true}},
	{"a call that moves goes to the end of the line", "C several names, lines", "the order in a line is that of the tickets, also when a call moves to that line", namesOrder, namesFlaws{movesLast: true}},
	{"a call that moves sleeps", "C several names, lines", "where the nodes deny their queues, a call that moves to another line tries at once", namesDenied, namesFlaws{movesSilently: true}},
	{"a call that may not try shows no ticket", "C several names, lines", "in fair mode a multi that is at the head of a line shows its ticket, although it may not try", namesFairLast, namesFlaws{waitsHidden: true}},
	{"a ticket is shown once", "C several names, wake-ups", "the first in line shows its ticket again after a while, because wake-ups may be lost", namesFairLossy.sized(Medium), namesFlaws{showsOnce: true}},
}

func namesCases() (cases []Case) {
	for _, b := range []namesBounds{
		namesOne, namesTwo, namesPart, namesSame, namesHeld, namesMoves, namesGiven, namesBehind, namesChain, namesFast, namesEarly, namesPair, namesFour,
		namesDisplaces, namesDisplaced, namesOrder, namesEager, namesEagerFour, namesUrgent, namesLossy, namesDenied, namesDeniedFirst,
		namesFairOne, namesFairTwo, namesFairPart, namesFairLast, namesFairHeld, namesFairGiven, namesFairUrgent, namesFairLossy, namesFairBehind, namesFairFour,
	} {
		cases = append(cases, Case{Model: "names", Name: b.name, Size: b.size, Explore: names{b, namesFlaws{}}.explore})
	}
	return cases
}

func namesMutations() (cases []Case) {
	for _, r := range namesRules {
		cases = append(cases, Case{Model: "names", Name: r.name, Rule: r.rule, Section: r.section, Size: r.bounds.size, Explore: names{r.bounds, r.flaws}.explore})
	}
	return cases
}

func (q names) explore(how Search) Result {
	sys := System[namesState]{
		Start:   q.start(),
		Clients: []string{"A", "B", "C", "D"}, Next: q.next, Same: sameNames, Wrong: q.wrong, Show: q.show,
		Spins: true,
	}
	if q.losses > 0 {
		sys.Goal = q.served
	} else {
		sys.Rest = q.rest
	}
	return Find(sys, how)
}

// served reports whether all calls have ended.
func (q names) served(s namesState) bool {
	for c := range q.wants {
		if s.calls[c].phase != gone {
			return false
		}
	}
	return true
}

// start returns the state at the start: the calls in holds hold.
func (q names) start() (s namesState) {
	for c := range q.wants {
		if q.holds&bit(c) != 0 {
			s.calls[c].phase = holding
		}
	}
	for i := range s.nodes {
		for k := range maxNames {
			for c, want := range q.wants {
				if q.holds&bit(c) != 0 && want&bit(k) != 0 {
					s.nodes[i].lock[k] = mark(c)
				}
			}
		}
	}
	return s
}

// wrong checks two promises: at most one holder of each name, and no call overtakes a call that it must not
// overtake.
func (q names) wrong(s namesState) string {
	var held uint8
	for c, want := range q.wants {
		if s.calls[c].phase != holding {
			continue
		}
		if held&want != 0 {
			return "two holders"
		}
		held |= want
	}
	if s.overtook {
		return "a later ticket has overtaken an earlier one"
	}
	return ""
}

// rest checks the promise of waking in a state in which no message is on its way: if a call waits, another call
// holds one of its names. In fair mode a call may also wait because an earlier call wants one of its names, if that
// one has such a reason to wait. Also in fair mode, a multi at the head of a line must have its place in the queue of
// that name.
func (q names) rest(s namesState) string {
	for c := range q.wants {
		for k := range maxNames {
			placed := 0
			for _, n := range s.nodes {
				placed += int(n.queue[k] >> c & 1)
			}
			if q.fair && s.calls[c].phase == waiting && q.heads(&s, c)&bit(k) != 0 && placed < quorum {
				return fmt.Sprintf("%c is the first of its process for %c, and later calls may overtake it", 'A'+c, 'a'+k)
			}
		}
	}
	var excused uint8
	for c := range q.wants {
		if s.calls[c].phase != waiting {
			continue
		}
		for o := range q.wants {
			if o == c || q.wants[o]&q.wants[c] == 0 {
				continue
			}
			if s.calls[o].phase == holding || q.fair && o < c && excused&bit(o) != 0 {
				excused |= bit(c)
			}
		}
		if excused&bit(c) == 0 {
			return fmt.Sprintf("a stall: the names that %c wants are free, and only a timer helps it", 'A'+c)
		}
	}
	return ""
}

func (q names) next(s namesState, do func(Step, namesState)) {
	for c := range q.wants {
		q.call(s, c, do)
		for n := range s.nodes {
			q.node(s, c, n, do)
		}
	}
}

// call adds the steps of call c.
func (q names) call(s namesState, c int, do func(Step, namesState)) {
	switch s.calls[c].phase {
	case away:
		q.come(s, c, do)
	case barging, trying:
		if q.decided(&s, c) && !s.followed(c) {
			q.decide(s, c, do)
		}
	case waiting:
		switch {
		case q.mayTry(&s, c):
			q.goOn(s, c, do)
		case q.mustShow(&s, c):
			q.showTicket(s, c, do)
		}
		if q.cancels {
			q.cancel(s, c, do)
		}
	case holding:
		if !s.followed(c) {
			q.unlock(s, c, do)
		}
	}
}

// lines returns the names in whose lines call c stands, as bits.
func (q names) lines(s *namesState, c int) uint8 {
	switch {
	case !s.calls[c].phase.inLine():
		return 0
	case q.fair && !q.fairOneLine || q.allLines:
		return q.wants[c]
	case q.staysInLine || q.fairOneLine:
		return q.wants[c] & -q.wants[c]
	}
	return bit(int(s.calls[c].line))
}

// headOf returns the first call of a process in the line of a name, -1 if the line is empty.
func (q names) headOf(s *namesState, process uint8, name int) int {
	var line uint8
	for c, p := range q.process {
		if p == process && q.lines(s, c)&bit(name) != 0 {
			line |= bit(c)
		}
	}
	for c := range q.process {
		if line&bit(c) != 0 && line&s.calls[c].late == 0 {
			return c
		}
	}
	return -1
}

// goLast puts call c, which has moved, behind the other calls in its line.
func (q names) goLast(s *namesState, c int) {
	for o := range q.process {
		s.calls[o].late &^= bit(c)
	}
	for o := range q.process {
		if o != c && q.process[o] == q.process[c] && q.lines(s, o) == q.lines(s, c) {
			s.calls[c].late |= bit(o)
		}
	}
}

// isFirst reports whether call c is at the head of every line in which it stands.
func (q names) isFirst(s *namesState, c int) bool {
	heads, lines := uint8(0), q.lines(s, c)
	for k := range maxNames {
		if lines&bit(k) != 0 && q.headOf(s, q.process[c], k) == c {
			heads |= bit(k)
		}
	}
	return heads != 0 && (heads == lines || q.anyHead)
}

// firsts returns the calls that are first, as bits.
func (q names) firsts(s *namesState) (firsts uint8) {
	for c := range q.wants {
		if q.isFirst(s, c) {
			firsts |= bit(c)
		}
	}
	return firsts
}

// firstsTry gives a reason to try to the calls that have become first, also to one whose attempt is under way.
func (q names) firstsTry(s *namesState, before uint8) {
	for c := range q.wants {
		if q.firsts(s)&^before&bit(c) != 0 && (s.calls[c].phase == waiting || !q.dropsReasons) {
			s.calls[c].ready = true
		}
	}
}

// held returns the names that a process holds, as bits.
func (q names) held(s *namesState, process uint8) (held uint8) {
	for c, p := range q.process {
		if p == process && s.calls[c].phase == holding {
			held |= q.wants[c]
		}
	}
	return held
}

// mayTry reports whether call c, which waits, may begin an attempt if it has a reason.
func (q names) mayTry(s *namesState, c int) bool {
	if !q.isFirst(s, c) || q.crowded(s, c) {
		return false
	}
	for o, process := range q.process {
		if process == q.process[c] && q.wants[o]&q.wants[c] != 0 && s.calls[o].phase == trying && !q.together {
			return false
		}
	}
	lines := q.lines(s, c)
	if q.waitsForAll {
		lines = q.wants[c]
	}
	return q.held(s, q.process[c])&lines == 0
}

// mustShow reports whether the multi c must show its ticket although it may not try. In fair mode it must if it is at
// the head of one of its lines. Then it has its place in the queue of that name while it still waits for the other.
func (q names) mustShow(s *namesState, c int) bool {
	call := s.calls[c]
	if !q.fair || q.waitsHidden || call.shown || q.crowded(s, c) {
		return false
	}
	return q.heads(s, c) != 0 && (!q.isFirst(s, c) || q.held(s, q.process[c])&q.wants[c] != 0)
}

// heads returns the names in whose lines the multi c is the first, as bits; none if c is a single.
func (q names) heads(s *namesState, c int) (heads uint8) {
	for k := range maxNames {
		if q.wants[c] == both && q.headOf(s, q.process[c], k) == c {
			heads |= bit(k)
		}
	}
	return heads
}

// showTicket sends a release for a value that no node has. All that this release does is to put the ticket of call c
// in the queues of its names.
func (q names) showTicket(s namesState, c int, do func(Step, namesState)) {
	call := &s.calls[c]
	call.shown, call.queued = true, true
	for k := range maxNames {
		call.enters[k] = mark(c)
	}
	q.release(&s, c)
	do(Step{"{c} shows its ticket", Work, c, 0}, s)
}

// come begins Lock. Its first attempt goes ahead of the waiters, unless the lock is fair or other
// calls of the process wait in the line of one of its names.
func (q names) come(s namesState, c int, do func(Step, namesState)) {
	call := &s.calls[c]
	for earlier := range c {
		if !q.urgent && q.process[earlier] == q.process[c] && s.calls[earlier].phase == away {
			return // the calls of a process begin in order
		}
	}
	call.line = uint8(bits.TrailingZeros8(q.wants[c])) //nolint:gosec // there are few
	waits := q.fair || q.lined
	for k := range maxNames {
		waits = waits || q.wants[c]&bit(k) != 0 && q.headOf(&s, q.process[c], k) >= 0
	}
	if waits {
		call.phase, call.ready = waiting, true
		do(Step{"{c} comes and waits", Choice, c, 0}, s)
		return
	}
	q.begin(&s, c, plain)
	call.phase = barging
	do(Step{"{c} comes and tries ahead of the waiters", Choice, c, 0}, s)
}

// crowded reports whether there is no room for another message of call c.
func (q names) crowded(s *namesState, c int) bool {
	for _, n := range s.nodes {
		if n.slots[c].onTheWay() && (q.orderly || n.slots[c] != releasing) {
			return true
		}
	}
	return s.followed(c)
}

// followed reports whether a message of call c is on its way to a node, and another call of its process has sent one
// behind it.
func (s *namesState) followed(c int) bool {
	for i := range s.nodes {
		if s.nodes[i].after.followed(c) {
			return true
		}
	}
	return false
}

// send puts a message of call c on its way to a node.
func (q names) send(n *namesNode, c int, to slot) {
	if !n.slots[c].onTheWay() {
		n.after.send(c, n.onTheWay()&ofProcess(q.process, c))
	}
	n.slots[c] = to
}

// onTheWay returns the calls that have messages on their way to the node, as bits.
func (n *namesNode) onTheWay() (calls uint8) {
	for c, m := range n.slots {
		if m.onTheWay() {
			calls |= bit(c)
		}
	}
	return calls
}

// arrived notes that the last message of call c has been executed, and its answer.
func (n *namesNode) arrived(c int, answer slot) {
	n.slots[c] = answer
	n.after.arrived(c)
}

// forget drops what call c knows of the node.
func (n *namesNode) forget(c int) {
	for k := range maxNames {
		n.told[k] &^= bit(c)
		n.found[k] &^= bit(c)
	}
}

// begin sends the acquires of an attempt.
func (q names) begin(s *namesState, c int, how manner) {
	call := &s.calls[c]
	call.phase, call.how, call.ready, call.behind, call.before = trying, how, false, false, 0
	for i := range s.nodes {
		n := &s.nodes[i]
		n.forget(c)
		if n.slots[c] == releasing {
			q.send(n, c, turning)
		} else {
			q.send(n, c, acquiring)
		}
	}
	if how != strict {
		return
	}
	for o := range c {
		if q.keepsPlace(s, o, c) {
			call.before |= bit(o)
		}
	}
}

// keepsPlace reports whether call c, which comes later, must not overtake call o: o stands in a quorum of the
// queues of a name that both want, or before c in a line. Without fair mode that is promised only among singles.
func (q names) keepsPlace(s *namesState, o, c int) bool {
	shared := q.wants[o] & q.wants[c]
	switch {
	case !s.calls[o].phase.inLine() || shared == 0:
		return false
	case !q.fair && (q.wants[o] == both || q.wants[c] == both):
		return false
	case q.process[o] == q.process[c]:
		return true
	}
	for k := range maxNames {
		count := 0
		for _, n := range s.nodes {
			if shared&bit(k) != 0 && n.queue[k]&bit(o) != 0 {
				count++
			}
		}
		if count >= quorum {
			return true
		}
	}
	return false
}

// answers counts the answers of the nodes to the attempt of call c.
func (s *namesState) answers(c int) (grants, refusals, open int) {
	for _, n := range s.nodes {
		switch n.slots[c] {
		case granted:
			grants++
		case refused:
			refusals++
		default:
			open++
		}
	}
	return grants, refusals, open
}

// decided reports whether the attempt of call c is over.
func (q names) decided(s *namesState, c int) bool {
	for _, n := range s.nodes {
		if n.slots[c] == turning {
			return false // there is no room for another message
		}
	}
	grants, refusals, open := s.answers(c)
	return open == 0 || q.early && (grants >= quorum || refusals > numNodes-quorum)
}

func (q names) decide(s namesState, c int, do func(Step, namesState)) {
	if grants, _, _ := s.answers(c); grants >= quorum {
		q.win(s, c, do)
		return
	}
	q.rollBack(s, c, do)
}

func (q names) win(s namesState, c int, do func(Step, namesState)) {
	call, before := &s.calls[c], q.firsts(&s)
	for o := range c {
		if call.before&bit(o) != 0 && s.calls[o].phase.inLine() {
			s.overtook = true
		}
	}
	leaves := uint8(0)
	if call.queued || call.how != plain {
		leaves = q.wants[c]
	}
	*call = namesCall{phase: holding, how: call.how, leaves: leaves}
	for i := range s.nodes {
		n := &s.nodes[i]
		if !n.slots[c].onTheWay() {
			n.slots[c] = nothing
		}
		n.forget(c)
	}
	if !q.leavesSilently {
		q.firstsTry(&s, before)
	}
	do(Step{"{c} HOLDS", Work, c, 0}, s)
}

// rollBack ends an attempt that has failed, and sends its release. The call moves to the line of the
// name for which it waits now.
func (q names) rollBack(s namesState, c int, do func(Step, namesState)) {
	call, before := &s.calls[c], q.firsts(&s)
	if call.phase == barging {
		q.nudge(&s, c)
	}
	switch {
	case call.phase == barging, call.how == plain && !q.denied:
		call.ready = true
	case !q.denied:
		call.queued, call.shown = true, q.fair
	}
	moves := call.how != plain || !call.queued // otherwise its ticket is in the queue of the former name
	call.phase, call.before = waiting, 0
	if moves {
		former := call.line
		call.line = q.waitsFor(&s, c)
		if call.line != former {
			call.ready = call.ready || (q.denied || q.eager) && !q.movesSilently
			if q.movesLast {
				q.goLast(&s, c)
			}
		}
	}
	call.leaves = 0
	if !q.fair && !q.nodesChoose {
		call.leaves = q.wants[c] &^ bit(int(call.line))
	}
	q.firstsTry(&s, before)
	q.release(&s, c)
	do(Step{"{c} fails and takes its grants back", Work, c, 0}, s)
}

// nudge gives a reason to try to the first call in the line of each name of call c. The first attempt of c, which has
// failed, may have kept these calls from a name.
func (q names) nudge(s *namesState, c int) {
	if !q.denied && !q.eager {
		return
	}
	for k := range maxNames {
		if w := q.headOf(s, q.process[c], k); w >= 0 && q.wants[c]&bit(k) != 0 {
			s.calls[w].ready = true
		}
	}
}

// waitsFor returns the name for which call c waits after an attempt. That is a name that cannot be free on a quorum of
// nodes, whatever the nodes find that have not answered. If there is no such name, it is a name that some node did not
// find free. If both names qualify, the call goes on waiting for the same one.
func (q names) waitsFor(s *namesState, c int) uint8 {
	was := s.calls[c].line
	if q.wants[c] != both {
		return was
	}
	var blocks, taken [maxNames]bool
	for k := range maxNames {
		free := 0
		for _, n := range s.nodes {
			switch {
			case n.found[k]&bit(c) != 0, n.slots[c] == acquiring, n.slots[c] == undoing:
				free++
			default:
				taken[k] = true
			}
		}
		blocks[k] = free < quorum
	}
	for _, is := range [][maxNames]bool{blocks, taken} {
		switch {
		case is[was]:
			return was
		case is[1-was]:
			return 1 - was
		}
	}
	return was
}

// reconsider makes call c wait for the other name, if an answer that came after the decision says so.
func (q names) reconsider(s *namesState, c int) {
	call := &s.calls[c]
	if call.phase != waiting || q.wants[c] != both || q.denied {
		return
	}
	to := q.waitsFor(s, c)
	if to == call.line {
		return
	}
	before := q.firsts(s)
	call.line = to
	if !q.fair {
		call.ready = true
	}
	q.firstsTry(s, before)
}

// release sends the release of call c after all its earlier messages.
func (q names) release(s *namesState, c int) {
	for i := range s.nodes {
		n := &s.nodes[i]
		if n.slots[c] == acquiring {
			q.send(n, c, undoing)
		} else {
			q.send(n, c, releasing)
		}
	}
}

// goOn begins the next attempt of the waiting call c, for the first reason that applies.
func (q names) goOn(s namesState, c int, do func(Step, namesState)) {
	call := s.calls[c]
	woken, free := 0, 0
	for _, n := range s.nodes {
		told, found := n.told[call.line], n.found[call.line]
		if q.anyName {
			told, found = n.told[0]|n.told[1], n.found[0]|n.found[1]
		}
		if told&bit(c) != 0 {
			woken++
		}
		if (told|found)&bit(c) != 0 {
			free++
		}
	}
	switch {
	case call.ready && call.behind:
		q.begin(&s, c, plain)
		do(Step{"{c} tries right behind the release", Work, c, 0}, s)
	case call.ready:
		q.begin(&s, c, strict)
		do(Step{"{c} tries", Work, c, 0}, s)
	case woken > 0 && free >= quorum:
		q.begin(&s, c, strict)
		do(Step{"{c} wakes up and tries", Work, c, 0}, s)
	case q.losses > 0 && !q.showsOnce:
		q.begin(&s, c, strict)
		do(Step{"{c} shows its ticket again", Timer, c, 0}, s)
	case !q.patient && q.losses == 0:
		how := strict
		if !q.fair {
			how = loose
		}
		q.begin(&s, c, how)
		do(Step{"{c}'s retry delay has elapsed", Timer, c, 0}, s)
	}
}

// cancel makes call c stop waiting.
func (q names) cancel(s namesState, c int, do func(Step, namesState)) {
	if q.crowded(&s, c) {
		return
	}
	call, before := &s.calls[c], q.firsts(&s)
	if call.queued {
		call.leaves = q.wants[c]
		q.release(&s, c)
	}
	*call = namesCall{phase: gone, leaves: call.leaves}
	for i := range s.nodes {
		s.nodes[i].forget(c)
	}
	if !q.leavesSilently {
		q.firstsTry(&s, before)
	}
	do(Step{"{c} gives up", Choice, c, 0}, s)
}

// unlock ends the hold of call c. For each of its names the next in line either tries right behind the
// release, or the release puts its ticket into the queue and the nodes decide whose turn it is: see
// queue.unlock.
func (q names) unlock(s namesState, c int, do func(Step, namesState)) {
	s.calls[c].phase = gone
	q.release(&s, c)
	var next uint8
	for w := range q.wants {
		if q.process[w] != q.process[c] || q.wants[w]&q.wants[c] == 0 || !q.isFirst(&s, w) {
			continue
		}
		if q.lines(&s, w)&q.wants[c] != 0 {
			next |= bit(w)
		}
	}
	q.admit(s, c, next, 0, do)
}

// admit goes through the calls in next, from call w on. Each of them either tries or enters the queues.
func (q names) admit(s namesState, c int, next uint8, w int, do func(Step, namesState)) {
	for w < len(q.wants) && next&bit(w) == 0 {
		w++
	}
	if w == len(q.wants) {
		do(Step{"{c} unlocks" + q.admitted(&s, next), Choice, c, 0}, s)
		return
	}
	if !q.fair {
		t := s
		t.calls[w].ready, t.calls[w].behind = true, true
		q.admit(t, c, next, w+1, do)
	}
	if q.denied {
		return
	}
	lines := q.lines(&s, w) & q.wants[c]
	for k := range maxNames {
		if lines&bit(k) != 0 && !(q.firstEnters && q.wants[c]&(bit(k)-1) != 0) {
			s.calls[c].enters[k] = mark(w)
			s.calls[w].queued = true
			if q.fair && !q.forgetsName {
				s.calls[w].line = uint8(k) //nolint:gosec // there are few
			}
		}
	}
	s.calls[w].ready, s.calls[w].behind = s.calls[w].phase == trying, false
	q.admit(s, c, next, w+1, do)
}

// admitted says what the calls in next do behind a release.
func (q names) admitted(s *namesState, next uint8) (text string) {
	for w := range q.wants {
		if next&bit(w) == 0 {
			continue
		}
		if text += fmt.Sprintf(", %c ", 'A'+w); s.calls[w].behind {
			text += "tries"
		} else {
			text += "enters"
		}
	}
	return text
}

// node adds the steps in which a node executes a message of call c.
func (q names) node(s namesState, c, node int, do func(Step, namesState)) {
	n := &s.nodes[node]
	if n.after.follows(c) {
		return // another message of the process was sent first
	}
	switch n.slots[c] {
	case acquiring, undoing:
		q.executeAcquire(&s, c, node)
		do(Step{"node {n} executes {c}'s acquire", Work, c, node}, s)
	case releasing, turning:
		t := s
		if q.executeRelease(&s, c, node, true) && s.lost < q.losses {
			q.executeRelease(&t, c, node, false)
			t.lost++
			do(Step{"node {n} executes {c}'s release, its wake-up is lost", Choice, c, node}, t)
		}
		do(Step{"node {n} executes {c}'s release", Work, c, node}, s)
	}
}

// keepsBack reports whether a name keeps call c back on a node: its key is set, or, for a strict attempt, a
// ticket of another process stands before that of c in its queue.
func (q names) keepsBack(n *namesNode, c, name int, how manner) bool {
	if n.lock[name] != 0 {
		return true
	}
	if how != strict {
		return false
	}
	for o := range c {
		if n.queue[name]&bit(o) != 0 && q.process[o] != q.process[c] {
			return true
		}
	}
	return false
}

// executeAcquire sets all keys or none, and puts the ticket in the queues of all names.
func (q names) executeAcquire(s *namesState, c, node int) {
	n, call, want := &s.nodes[node], &s.calls[c], q.wants[c]
	by := -1
	for k := range maxNames {
		if want&bit(k) != 0 && by < 0 && q.keepsBack(n, c, k, call.how) {
			by = k
		}
	}
	letIn := by < 0 || q.anyVotes
	for k := range maxNames {
		if want&bit(k) == 0 {
			continue
		}
		if letIn && !q.keepsBack(n, c, k, call.how) {
			n.lock[k] = mark(c)
		}
		switch {
		case call.how == plain, q.denied:
		case letIn || q.fair || !q.nodesChoose || k == by:
			n.queue[k] |= bit(c)
		default:
			n.queue[k] &^= bit(c)
		}
	}
	if call.phase.inLine() || call.phase == barging {
		defer q.reconsider(s, c)
		for k := range maxNames {
			if want&bit(k) != 0 && (letIn || !q.keepsBack(n, c, k, call.how)) {
				n.found[k] |= bit(c)
			}
		}
	}
	switch {
	case n.slots[c] == undoing:
		n.slots[c] = releasing
	case !call.phase.inLine() && call.phase != barging:
		n.arrived(c, nothing)
	case letIn:
		n.arrived(c, granted)
	default:
		n.arrived(c, refused)
	}
}

// executeRelease executes the release of call c, and reports whether the node wakes another process. That
// wake-up arrives only if heard is set.
func (q names) executeRelease(s *namesState, c, node int, heard bool) (wakes bool) {
	n, call := &s.nodes[node], s.calls[c]
	var others, own uint8 // the names whose queue is led by another process, or by this one
	for k := range maxNames {
		if q.wants[c]&bit(k) == 0 {
			continue
		}
		deleted := n.lock[k] == mark(c)
		if deleted {
			n.lock[k] = 0
		}
		if call.leaves&bit(k) != 0 {
			n.queue[k] &^= bit(c)
		}
		if call.enters[k] > 0 {
			n.queue[k] |= bit(int(call.enters[k]) - 1)
		}
		switch {
		case n.lock[k] != 0 || n.queue[k] == 0, q.onlyDeleted && !deleted, q.firstTells && q.wants[c]&(bit(k)-1) != 0:
			continue
		}
		if head := bits.TrailingZeros8(n.queue[k]); q.process[head] == q.process[c] {
			own |= bit(k)
		} else {
			others |= bit(k)
			if heard {
				q.wake(s, q.process[head], c, node, bit(k))
			}
		}
	}
	if q.firstLost && others != 0 {
		own = 0
	}
	q.wake(s, q.process[c], c, node, own)
	if n.slots[c] == turning {
		n.slots[c] = acquiring
	} else {
		n.arrived(c, nothing)
	}
	return others != 0
}

// wake tells a process that names are free on a node and that it is the turn of this process. by is the call whose
// release the node has executed. Its own process learns this from the answer, another process from a message. wake
// wakes the first waiters that want such a name, unless the process holds the name. It never wakes the releasing call.
func (q names) wake(s *namesState, process uint8, by, node int, free uint8) {
	free &^= q.held(s, process)
	for w := range q.wants {
		if w == by || q.process[w] != process || !q.isFirst(s, w) {
			continue
		}
		for k := range maxNames {
			switch {
			case free&q.wants[w]&bit(k) == 0, q.dropsOthers && q.lines(s, w)&bit(k) == 0:
			default:
				s.nodes[node].told[k] |= bit(w)
				if q.otherNames && s.calls[w].phase == waiting && k != int(s.calls[w].line) {
					s.calls[w].ready = true
				}
			}
		}
	}
}

func sameNames(s namesState) namesState {
	sortNodes(&s.nodes, func(n *namesNode) uint64 {
		return pack(n.lock[0], n.lock[1], n.queue[0], n.queue[1], n.told[0], n.told[1], n.found[0], n.found[1],
			uint8(n.slots[0]), uint8(n.slots[1]), uint8(n.slots[2]), uint8(n.slots[3]),
			n.after[0], n.after[1], n.after[2], n.after[3])
	})
	return s
}

func (q names) show(s namesState) string {
	var b strings.Builder
	for _, n := range s.nodes {
		b.WriteString(" ")
		for k := range maxNames {
			b.WriteString(" " + string("-ABCD"[n.lock[k]]) + " [")
			for c := range q.wants {
				if n.queue[k]&bit(c) != 0 {
					b.WriteByte("ABCD"[c])
				}
			}
			b.WriteString("]")
		}
	}
	for c := range q.wants {
		woken := 0
		for _, n := range s.nodes {
			woken += int((n.told[0] | n.told[1]) >> c & 1)
		}
		if woken > 0 {
			fmt.Fprintf(&b, "  %c woken by %d", 'A'+c, woken)
		}
	}
	return b.String()
}
