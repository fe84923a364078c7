package model

import (
	"fmt"
	"math/bits"
	"strings"
)

// This file models waiting readers and writers. It has the states, the bounds, the rules and the promises. The steps
// are in readers_steps.go.
//
// It is the model of names.go, with calls that read. Each call is a reader, a writer, or a multi: a call for both
// names, which writes. On a node the key of a name has the value of one writer or multi, or the records of
// readers. Readers do not exclude each other. Only the first call of a line talks to the nodes, also if it is a
// reader. When a reader gets the lock, the readers behind it join its hold, up to the first call in the line that
// writes. A hold that was joined ends with the last of its calls. For a short time after the acquire, later
// readers join as well. Some readers join no hold, because their settings differ; they talk to the nodes when they
// are first in the line.
//
// A writer that holds may step down and hold as a reader.

const maxReaders = 4

type readersState struct {
	nodes    [numNodes]readersNode
	calls    [maxReaders]readersCall
	lost     uint8 // wake-ups lost so far
	overtook bool
}

type readersNode struct {
	lock  [maxNames]uint8 // the calls whose value or record the key has, as bits
	low   uint8           // the writers whose value the node has turned into a record, as bits
	queue [maxNames]uint8 // the calls whose tickets are queued, as bits
	told  [maxNames]uint8 // the calls that the node has told, since their last attempt began, that they may enter, as bits
	found [maxNames]uint8 // the calls that the node would have let in for that name in their last attempt, as bits
	slots [maxReaders]readersSlot
	after sendOrder
}

// A readersSlot is the message on its way from a call to a node, or the answer to the attempt of the call.
type readersSlot uint8

const (
	none readersSlot = iota
	letIn
	keptBack
	toAcquire
	toRelease
	toTurn     // a release, followed by the acquire of the next attempt
	toStepDown // an extension in the reader's form
)

func (m readersSlot) onTheWay() bool { return m >= toAcquire }

type readersPhase uint8

const (
	notCome   readersPhase = iota
	firstTry               // makes its first attempt, in no line and no queue
	tries                  // talks to the nodes
	waits                  // in its lines
	holds                  // has the lock, or has left it to calls that have joined
	hasJoined              // has the lock by the hold of another call
	ended
)

func (p readersPhase) inLine() bool { return p == tries || p == waits }

type readersCall struct {
	phase   readersPhase
	how     manner          // of the last attempt
	ready   bool            // it has a reason to try at once
	behind  bool            // if ready: it tries right behind a release of its process, without queueing
	queued  bool            // its ticket may be in queues
	shown   bool            // its ticket has been put in the queues of all its names
	leaves  uint8           // its releases take the ticket out of the queues of these names, as bits
	drops   uint8           // of a hold: calls that have joined; the release also takes out their tickets, as bits
	line    uint8           // the name for which it waits; without fair mode it stands in the line of that name
	before  uint8           // calls that it must not overtake in this attempt, as bits
	enters  [maxNames]uint8 // by name: 1 + the call whose ticket its release puts into the queue
	members uint8           // of a hold: the calls that still have it, as bits
	open    bool            // of a hold: later readers may join
	low     bool            // of a hold: the writer has stepped down
}

type readersBounds struct {
	name    string
	wants   []uint8 // of each call: the names, as bits
	reads   uint8   // the calls that read, as bits
	process []uint8 // of each call
	apart   uint8   // the readers that join no hold and whose hold nobody joins, as bits
	fair    bool
	each    bool  // all leading readers of a line talk to the nodes, not only the first
	lined   bool  // without fair mode: no first attempt goes ahead of the waiters
	orderly bool  // a call begins an attempt only when all its earlier messages have been executed
	patient bool  // an elapsed retry delay alone starts no attempt
	cancels bool  // waiters may give up
	steps   bool  // writers of one name may step down
	late    bool  // readers that come while a hold is young join it
	urgent  bool  // the calls of a process come in any order, as with priorities
	own     bool  // a node keeps a reader back for a writing ticket of its own process, too
	holds   uint8 // the calls that hold at the start, as bits
	losses  uint8 // of wake-ups of other processes; then all calls must be able to end, by timers if need be
	size    Size
}

// sized returns the bounds for a mutation that takes more or less time than the sound model.
func (b readersBounds) sized(size Size) readersBounds {
	b.size = size
	return b
}

// Each field of readersFlaws weakens a rule: see readersRules.
type readersFlaws struct {
	passes, anyWriter                                bool // acquires
	lastSilent, headOnly, leftSilent, leftMulti      bool // releases
	ownSilent, oneAnswer                             bool
	stepStays, stepSilent, stepOwn, stepUnseen       bool // stepping down
	joinsPast, joinsPastLate, joinsEver, joinsTrying bool // joins
	ticketStays, firstEnds                           bool
	heldDrops, heldWaits, forgetsReason, sleepsOn    bool // the line
	hidden, showsOnce                                bool
}

type readersModel struct {
	readersBounds
	readersFlaws
}

var (
	// The name of a bound lists the calls of one process and then, mostly after a comma, those of another. The field
	// process has the process of each call. Readers and writers want the name a, unless the text says b. A multi wants
	// both. Readers "apart" do not join.

	readersFair    = readersBounds{name: "a writer and a reader, a reader, fair", wants: []uint8{1, 1, 1}, reads: 6, process: []uint8{0, 0, 1}, fair: true, orderly: true, patient: true, cancels: true, late: true}
	readersBetween = readersBounds{name: "two readers, a writer between them, fair", wants: []uint8{1, 1, 1}, reads: 5, process: []uint8{0, 1, 0}, fair: true, orderly: true, patient: true, cancels: true, late: true}
	readersBehind  = readersBounds{name: "a reader and a writer, a writer before them, fair", wants: []uint8{1, 1, 1}, reads: 2, process: []uint8{1, 0, 0}, fair: true, orderly: true, patient: true, cancels: true}
	readersAhead   = readersBounds{name: "a writer and a reader, a reader before them, fair", wants: []uint8{1, 1, 1}, reads: 5, process: []uint8{1, 0, 0}, fair: true, orderly: true, patient: true, cancels: true}
	readersAlone   = readersBounds{name: "a reader, a writer and a reader of one process", wants: []uint8{1, 1, 1}, reads: 5, process: []uint8{0, 0, 0}, orderly: true, patient: true, cancels: true, late: true}
	readersApart   = readersBounds{name: "two readers apart, a reader, fair", wants: []uint8{1, 1, 1}, reads: 7, apart: 3, process: []uint8{0, 0, 1}, fair: true, orderly: true, patient: true}
	readersDiffer  = readersBounds{name: "two readers apart, a writer before them, fair", wants: []uint8{1, 1, 1}, reads: 6, apart: 6, process: []uint8{1, 0, 0}, fair: true, orderly: true, patient: true, cancels: true, size: Medium}
	readersLast    = readersBounds{name: "two readers apart, a writer behind them, fair", wants: []uint8{1, 1, 1}, reads: 3, apart: 3, process: []uint8{0, 0, 1}, fair: true, orderly: true, patient: true, cancels: true, size: Medium}
	readersStep    = readersBounds{name: "a writer that may step down and a reader, a reader, fair", wants: []uint8{1, 1, 1}, reads: 6, process: []uint8{0, 0, 1}, fair: true, orderly: true, patient: true, cancels: true, steps: true, size: Medium}
	readersPolls   = readersBounds{name: "a writer that may step down and a reader, retry delays, fair", wants: []uint8{1, 1}, reads: 2, process: []uint8{0, 0}, fair: true, orderly: true, steps: true}
	readersShows   = readersBounds{name: "a reader and a writer behind it, a reader, fair", wants: []uint8{1, 1, 1}, reads: 5, process: []uint8{0, 0, 1}, fair: true, orderly: true, patient: true, cancels: true, steps: true}
	readersFast    = readersBounds{name: "a reader, a writer, attempts follow at once", wants: []uint8{1, 1}, reads: 1, process: []uint8{0, 1}, patient: true, cancels: true}

	readersPlain     = readersBounds{name: "a writer and a reader, a reader", wants: []uint8{1, 1, 1}, reads: 6, process: []uint8{0, 0, 1}, orderly: true, patient: true, cancels: true, size: Medium}
	readersMiddle    = readersBounds{name: "two readers, a writer between them", wants: []uint8{1, 1, 1}, reads: 5, process: []uint8{0, 1, 0}, orderly: true, patient: true, cancels: true, late: true, size: Large}
	readersWriters   = readersBounds{name: "a reader and a writer, a writer before them", wants: []uint8{1, 1, 1}, reads: 2, process: []uint8{1, 0, 0}, orderly: true, patient: true, cancels: true, size: Large}
	readersSteps     = readersBounds{name: "a writer and a reader, a writer between them, writers may step down", wants: []uint8{1, 1, 1}, reads: 4, process: []uint8{0, 1, 0}, orderly: true, lined: true, patient: true, cancels: true, steps: true, late: true, size: Large}
	readersFour      = readersBounds{name: "a writer that holds and may step down and two readers, a writer between them", wants: []uint8{1, 1, 1, 1}, reads: 10, process: []uint8{0, 0, 1, 0}, holds: 1, lined: true, orderly: true, patient: true, cancels: true, steps: true, late: true, size: Large}
	readersEnter     = readersBounds{name: "a writer holds, a reader and a writer and a reader between them wait, fair", wants: []uint8{1, 1, 1, 1}, reads: 6, process: []uint8{1, 0, 1, 0}, holds: 1, fair: true, orderly: true, patient: true, cancels: true, steps: true, late: true, size: Large}
	readersHeld      = readersBounds{name: "a reader holds and a writer and a reader behind it, a reader, fair", wants: []uint8{1, 1, 1, 1}, reads: 13, process: []uint8{0, 0, 0, 1}, holds: 1, fair: true, orderly: true, patient: true, cancels: true, steps: true, late: true, size: Large}
	readersUrgent    = readersBounds{name: "two readers in any order, two writers of which one holds, fair", wants: []uint8{1, 1, 1, 1}, reads: 6, process: []uint8{1, 0, 0, 1}, holds: 1, fair: true, orderly: true, patient: true, cancels: true, urgent: true, size: Large}
	readersDelays    = readersBounds{name: "a writer that may step down and a reader, a reader, retry delays", wants: []uint8{1, 1, 1}, reads: 6, process: []uint8{0, 0, 1}, lined: true, orderly: true, steps: true, size: Large}
	readersFastFair  = readersBounds{name: "two readers, a writer between them, fair, attempts follow at once", wants: []uint8{1, 1, 1}, reads: 5, process: []uint8{0, 1, 0}, fair: true, patient: true, cancels: true, size: Large}
	readersFastPlain = readersBounds{name: "two readers, a writer between them, attempts follow at once", wants: []uint8{1, 1, 1}, reads: 5, process: []uint8{0, 1, 0}, patient: true, cancels: true, size: Large}
	readersLossy     = readersBounds{name: "two readers, a writer between them, two lost wake-ups, fair", wants: []uint8{1, 1, 1}, reads: 5, process: []uint8{0, 1, 0}, fair: true, orderly: true, losses: 2, size: Large}
	readersEach      = readersBounds{name: "two readers, a writer between them, all leading readers talk to the nodes", wants: []uint8{1, 1, 1}, reads: 5, process: []uint8{0, 1, 0}, each: true, lined: true, orderly: true, patient: true, cancels: true, size: Large}
	readersEachApart = readersBounds{name: "two readers apart and a writer, a writer holds, all leading readers talk to the nodes", wants: []uint8{1, 1, 1, 1}, reads: 6, apart: 6, process: []uint8{1, 0, 0, 0}, holds: 1, each: true, lined: true, orderly: true, patient: true, cancels: true, size: Large}
	readersOwn       = readersBounds{name: "two readers apart in any order, a writer before them, writing tickets of the own process count", wants: []uint8{1, 1, 1}, reads: 6, apart: 6, process: []uint8{1, 0, 0}, orderly: true, patient: true, cancels: true, urgent: true, own: true, size: Large}

	readersMulti      = readersBounds{name: "a multi and a reader, a reader, fair", wants: []uint8{both, 1, 1}, reads: 6, process: []uint8{0, 0, 1}, fair: true, orderly: true, patient: true, cancels: true}
	readersMultiPlain = readersBounds{name: "a multi and a reader of b, a reader of a", wants: []uint8{both, onlyB, onlyA}, reads: 6, process: []uint8{0, 0, 1}, lined: true, orderly: true, patient: true, cancels: true, late: true, size: Medium}
	readersMultiTwo   = readersBounds{name: "two readers, a multi between them", wants: []uint8{1, both, 1}, reads: 5, process: []uint8{0, 1, 0}, orderly: true, patient: true, cancels: true, size: Large}
	readersMultiHeld  = readersBounds{name: "a multi and a reader, a writer of b holds, a reader", wants: []uint8{both, onlyB, onlyA, onlyA}, reads: 12, process: []uint8{0, 1, 0, 1}, holds: 2, fair: true, orderly: true, patient: true, cancels: true, late: true, size: Large}
	readersMultiLeft  = readersBounds{name: "a multi, a writer of b holds, two readers of which one is apart", wants: []uint8{onlyB, both, onlyA, onlyA}, reads: 12, apart: 8, process: []uint8{1, 0, 1, 1}, holds: 1, lined: true, orderly: true, patient: true, cancels: true, size: Large}
	readersMultiStep  = readersBounds{name: "a writer that holds and may step down and a multi, a writer of b holds, a reader", wants: []uint8{onlyA, onlyB, both, onlyA}, reads: 8, process: []uint8{0, 1, 0, 1}, holds: 3, fair: true, orderly: true, patient: true, steps: true, size: Large}
)

var readersRules = []struct {
	name, section, rule string
	bounds              readersBounds
	flaws               readersFlaws
}{
	{"a reader without a ticket passes writers", "A1 readers", "a reader without a ticket is let in only if no writing ticket stands in the queue", readersMiddle.sized(Small), readersFlaws{passes: true}},
	{"a reader waits for later writers", "A1 readers", "a reader with a ticket is kept back only by writing tickets before its own", readersLast.sized(Small), readersFlaws{anyWriter: true}},
	{"the last reader tells nobody", "A6 wake-ups", "the release of the last reader tells the first in the queue", readersBetween, readersFlaws{lastSilent: true}},
	{"one reader is told", "A6 wake-ups", "all leading readers are told, also those of other processes", readersAhead, readersFlaws{headOnly: true}},
	{"a writer that gives up tells no readers", "A6 wake-ups", "a release that takes a writing ticket out of the queue while readers hold tells the leading readers", readersBetween, readersFlaws{leftSilent: true}},
	{"a multi that leaves a queue tells no readers", "A6 wake-ups, C several names", "that goes for the release of a multi, too, in the queue of each of its names", readersMultiLeft, readersFlaws{leftMulti: true}},
	{"the answer does not say that the own process leads", "A6 wake-ups", "the answer to a release says whether the ticket of a call of the same process leads", readersBehind, readersFlaws{ownSilent: true}},
	{"one answer for all leading readers", "A6 wake-ups", "the answer to a release says that a reader of its process leads although other processes were told", readersAhead, readersFlaws{oneAnswer: true}},
	{"a writer that steps down stays in the queue", "A7 stepping down", "stepping down takes the holder's ticket out of the queues, where it would keep readers back", readersStep.sized(Small), readersFlaws{stepStays: true}},
	{"stepping down tells nobody", "A7 stepping down", "stepping down tells the leading readers of other processes", readersStep.sized(Small), readersFlaws{stepSilent: true}},
	{"stepping down gives its line no reason", "A7 stepping down, lines", "stepping down makes the first of the line try, if that is a reader", readersPolls, readersFlaws{stepOwn: true}},
	{"the line takes it for a writer", "A7 stepping down, lines", "the line knows at once that the holder of its process has become a reader", readersStep.sized(Small), readersFlaws{stepUnseen: true}},
	{"readers behind a writer join", "A11 joins", "only the readers before the first writer of the line join when the first has the lock", readersAlone, readersFlaws{joinsPast: true}},
	{"a late reader joins past a writer", "A11 joins", "no reader joins later while a writer waits in the line", readersAlone, readersFlaws{joinsPastLate: true}},
	{"readers join for ever", "A11 joins", "readers join only for a short time after the acquire, so that a queued writer of another process gets its turn", readersBetween, readersFlaws{joinsEver: true}},
	{"a reader joins during its attempt", "A11 joins", "a reader whose attempt is under way does not join: nobody would release what the nodes grant it", readersMiddle.sized(Medium), readersFlaws{joinsTrying: true}},
	{"the ticket of a reader that joined stays", "A11 joins", "the release of the hold takes the tickets of all that have joined out of the queues", readersUrgent, readersFlaws{ticketStays: true}},
	{"the first Unlock ends the hold of all", "A11 joins", "a hold that was joined is released by the last Unlock", readersBetween, readersFlaws{firstEnds: true}},
	{"readers wait until their process holds nothing", "A11 lines", "a reader that is the first tries although its process holds the lock as a reader", readersDiffer.sized(Small), readersFlaws{heldWaits: true}},
	{"wake-ups are dropped while the process reads", "A11 lines", "a wake-up counts for a reader that is the first although its process holds the lock as a reader", readersDiffer.sized(Small), readersFlaws{heldDrops: true}},
	{"a reader's release takes the next reader's reason", "A11 lines", "the release of a reader's hold does not make the next reader of the line wait for a wake-up: it keeps its own reason to try", readersApart, readersFlaws{forgetsReason: true}},
	{"who is the first sleeps on", "A11 lines", "a call that becomes the first, also because others have joined, has a reason to try", readersMiddle.sized(Medium), readersFlaws{sleepsOn: true}},
	{"a writer behind its process's readers hides", "A11 lines", "in fair mode a writer at the head of its line shows its ticket while its process holds the lock as a reader, or later readers of other processes would enter before it", readersShows, readersFlaws{hidden: true}},
	{"a ticket is shown once", "A6 wake-ups", "the first in line shows its ticket again after a while, because wake-ups may be lost", readersLossy, readersFlaws{showsOnce: true}},
}

func readersCases() (cases []Case) {
	for _, b := range []readersBounds{
		readersFair, readersBetween, readersBehind, readersAhead, readersAlone, readersApart, readersDiffer, readersLast, readersStep, readersPolls, readersShows, readersFast,
		readersPlain, readersMiddle, readersWriters, readersSteps, readersFour, readersEnter, readersHeld, readersUrgent, readersDelays, readersFastFair, readersFastPlain, readersLossy,
		readersEach, readersEachApart, readersOwn,
		readersMulti, readersMultiPlain, readersMultiTwo, readersMultiHeld, readersMultiLeft, readersMultiStep,
	} {
		cases = append(cases, Case{Model: "readers", Name: b.name, Size: b.size, Explore: readersModel{b, readersFlaws{}}.explore})
	}
	return cases
}

func readersMutations() (cases []Case) {
	for _, r := range readersRules {
		cases = append(cases, Case{Model: "readers", Name: r.name, Rule: r.rule, Section: r.section, Size: r.bounds.size, Explore: readersModel{r.bounds, r.flaws}.explore})
	}
	return cases
}

func (q readersModel) explore(how Search) Result {
	sys := System[readersState]{
		Start: q.start(), Next: q.next, Same: q.same, Wrong: q.wrong, Show: q.show, Spins: true,
	}
	for c := range q.wants {
		sys.Clients = append(sys.Clients, q.callName(c))
	}
	if q.losses > 0 {
		sys.Goal = q.served
	} else {
		sys.Rest = q.rest
	}
	return Find(sys, how)
}

// callName returns the letter of call c: lower case for a reader.
func (q readersModel) callName(c int) string {
	if q.reads&bit(c) != 0 {
		return string("abcd"[c])
	}
	return string("ABCD"[c])
}

// start returns the state at the start: the calls in holds hold.
func (q readersModel) start() (s readersState) {
	for c, want := range q.wants {
		if q.holds&bit(c) == 0 {
			continue
		}
		s.calls[c].phase, s.calls[c].members = holds, bit(c)
		for i := range s.nodes {
			for k := range maxNames {
				if want&bit(k) != 0 {
					s.nodes[i].lock[k] |= bit(c)
				}
			}
		}
	}
	return s
}

// writes reports whether what call c asks for or holds excludes readers.
func (q readersModel) writes(s *readersState, c int) bool {
	return q.reads&bit(c) == 0 && !s.calls[c].low
}

// excludes reports whether calls a and b must not hold at once.
func (q readersModel) excludes(s *readersState, a, b int) bool {
	return q.wants[a]&q.wants[b] != 0 && (q.writes(s, a) || q.writes(s, b))
}

// lines returns the names in whose lines call c stands, as bits.
func (q readersModel) lines(s *readersState, c int) uint8 {
	switch {
	case !s.calls[c].phase.inLine():
		return 0
	case q.fair:
		return q.wants[c]
	}
	return bit(int(s.calls[c].line))
}

// line returns the calls of a process in the line of a name, as bits. They stand in the order of their tickets.
func (q readersModel) line(s *readersState, process uint8, name int) (line uint8) {
	for c, p := range q.process {
		if p == process && q.lines(s, c)&bit(name) != 0 {
			line |= bit(c)
		}
	}
	return line
}

// leadingReaders returns the readers in calls that stand before the first call that writes. calls is a line or a
// queue, as bits.
func (q readersModel) leadingReaders(calls uint8) uint8 {
	writing := calls &^ q.reads
	return calls & q.reads & (writing&-writing - 1)
}

// isFirst reports whether call c is first in every line in which it stands. With the bound each, the readers
// behind a first reader are also first.
func (q readersModel) isFirst(s *readersState, c int) bool {
	lines := q.lines(s, c)
	for k := range maxNames {
		if lines&bit(k) == 0 {
			continue
		}
		line := q.line(s, q.process[c], k)
		if line&-line != bit(c) && !(q.each && q.leadingReaders(line)&bit(c) != 0) {
			return false
		}
	}
	return lines != 0
}

// firsts returns the calls that are first, as bits.
func (q readersModel) firsts(s *readersState) (firsts uint8) {
	for c := range q.wants {
		if q.isFirst(s, c) {
			firsts |= bit(c)
		}
	}
	return firsts
}

// firstsTry gives a reason to try to the calls that have become first, also to one whose attempt is under way.
func (q readersModel) firstsTry(s *readersState, before uint8) {
	for c := range q.wants {
		if q.firsts(s)&^before&bit(c) != 0 && !q.sleepsOn {
			s.calls[c].ready = true
		}
	}
}

// heldAgainst returns the names that the process of call c has by holds that exclude c, as bits. If anyHold is set, all
// its holds count.
func (q readersModel) heldAgainst(s *readersState, c int, anyHold bool) (held uint8) {
	for o, p := range q.process {
		stillWrites := q.stepUnseen && s.calls[o].low
		if p == q.process[c] && s.calls[o].phase == holds && (anyHold || stillWrites || q.excludes(s, o, c)) {
			held |= q.wants[o]
		}
	}
	return held
}

// mustShow reports whether call c must show its ticket although it may not try. In fair mode a writer at the head of a
// line must, in two cases: it is not first in its other line, or its process holds the lock as a reader. Without its
// ticket in the queue, later readers of other processes could enter before it.
func (q readersModel) mustShow(s *readersState, c int) bool {
	if !q.fair || q.reads&bit(c) != 0 {
		return false
	}
	heads := uint8(0)
	for k := range maxNames {
		line := q.line(s, q.process[c], k)
		if line&-line == bit(c) {
			heads |= bit(k)
		}
	}
	for o, p := range q.process {
		if p == q.process[c] && s.calls[o].phase == holds && q.wants[o]&heads != 0 && !q.writes(s, o) {
			return true
		}
	}
	return heads != 0 && heads != q.wants[c]
}

// served reports whether all calls have ended.
func (q readersModel) served(s readersState) bool {
	for c := range q.wants {
		if s.calls[c].phase != ended {
			return false
		}
	}
	return true
}

// wrong checks two promises: no two calls hold that exclude each other, and no call overtakes a call that it must
// not overtake.
func (q readersModel) wrong(s readersState) string {
	for a := range q.wants {
		for b := range a {
			if s.has(a) && s.has(b) && q.excludes(&s, a, b) {
				return "two holders that exclude each other"
			}
		}
	}
	if s.overtook {
		return "a later call has overtaken an earlier one that it excludes"
	}
	return ""
}

// has reports whether call c has the lock.
func (s *readersState) has(c int) bool {
	return s.calls[c].phase == holds || s.calls[c].phase == hasJoined
}

// rest checks the promise of waking in a state in which no message is on its way: each waiting call has a reason to
// wait. One reason is a holder that excludes it. Another is an earlier waiting call that excludes it and has a reason
// itself. The second reason counts for all calls in fair mode, otherwise only for a reader behind a call that writes.
// rest also checks that a call that must show its ticket has its place in the queues.
func (q readersModel) rest(s readersState) string {
	var excused uint8
	for c := range q.wants {
		if s.calls[c].phase != waits {
			continue
		}
		if q.mustShow(&s, c) && !q.inQueues(&s, c, q.wants[c]) {
			return fmt.Sprintf("%s is at the head of a line, and later readers may overtake it", q.callName(c))
		}
		for o := range q.wants {
			if o == c || !q.excludes(&s, o, c) {
				continue
			}
			behind := q.fair || q.reads&bit(c) != 0 && q.lines(&s, o)&q.wants[c] != 0
			if s.has(o) || o < c && excused&bit(o) != 0 && behind {
				excused |= bit(c)
			}
		}
		if excused&bit(c) == 0 {
			return fmt.Sprintf("a stall: nothing keeps %s back, and only a timer helps it", q.callName(c))
		}
	}
	return ""
}

func (q readersModel) same(s readersState) readersState {
	sortNodes(&s.nodes, func(n *readersNode) (key uint64) {
		for _, m := range n.slots {
			key = key<<3 | uint64(m)
		}
		return key<<52 | pack(n.low, n.lock[0], n.lock[1], n.queue[0], n.queue[1], n.told[0], n.told[1], n.found[0], n.found[1],
			n.after[0], n.after[1], n.after[2], n.after[3])
	})
	return s
}

func (q readersModel) show(s readersState) string {
	var b strings.Builder
	var names uint8
	for _, w := range q.wants {
		names |= w
	}
	set := func(calls uint8) (text string) {
		for c := range q.wants {
			if calls&bit(c) != 0 {
				text += q.callName(c)
			}
		}
		return text
	}
	for _, n := range s.nodes {
		b.WriteString(" ")
		for k := range bits.Len8(names) {
			text := set(n.lock[k])
			if text == "" {
				text = "-"
			}
			fmt.Fprintf(&b, " %s [%s]", text, set(n.queue[k]))
		}
	}
	for c := range q.wants {
		woken := 0
		for _, n := range s.nodes {
			woken += int((n.told[0] | n.told[1]) >> c & 1)
		}
		if woken > 0 {
			fmt.Fprintf(&b, "  %s woken by %d", q.callName(c), woken)
		}
		if s.has(c) {
			fmt.Fprintf(&b, "  %s HAS", q.callName(c))
		}
	}
	return b.String()
}
