package model

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"
)

// This file models waiting for the permits of a semaphore. It has the states, the bounds, the rules and the promises.
// The steps are in semaphore_steps.go.
//
// It is the model of queue.go with slots, and without losses and deaths. A semaphore of n permits has n slots. A
// node that is asked for w permits grants the first w free slots in the order of the call, or none. A call has won
// when a quorum of nodes has granted the same slots. The other slots that nodes have granted to it are strays.
//
// When a node grants, the ticket of the call stays in its queue. A call that has won sends a giving-back to all nodes,
// unless it has entered no queue and knows of no strays. A giving-back deletes the strays, takes the ticket out of
// the queue, and tells the first in the queue if a slot is free. The release of a failed attempt deletes all slots of
// the call, and tells the first in the queue as well. An unlock deletes the slots that the call has won, and tells the
// first in the queue.
//
// The waiting calls of a process form a line, and only the first in line talks to the nodes. It may do so although
// its process holds permits. A call that wins leaves the line, and the next one tries. In fair mode the giving-back
// puts the ticket of the next one into the queue.

const (
	maxSlots          = 3
	maxSemaphoreCalls = 4
)

type semaphoreState struct {
	nodes    [numNodes]semaphoreNode
	calls    [maxSemaphoreCalls]semaphoreCall
	overtook bool
}

type semaphoreNode struct {
	slots [maxSlots]uint8             // 1 + the call whose value the slot has; 0: it is free
	queue uint8                       // the calls whose tickets are queued, as bits
	told  uint8                       // the calls that the node has told, since their last attempt began, that a slot is free, as bits
	found uint8                       // the calls that the node has let in since their last attempt began, as bits
	heard uint8                       // the calls whose open attempt the node has answered, as bits
	got   [maxSemaphoreCalls]uint8    // by call: the slots that the node has granted to its open attempt, as bits
	free  [maxSemaphoreCalls]uint8    // by call: the slots that were free when the node let in its open attempt, as bits
	sent  [maxSemaphoreCalls]messages // by call: its messages on their way to the node
	after sendOrder
}

// messages are the messages of a call that are on their way to a node, as bits. The node executes them in the order of
// the bits.
type messages uint8

const (
	rollingBack messages = 1 << iota // the release of an earlier attempt
	asksSlots                        // the acquire of the last attempt
	settles                          // what follows this acquire: a giving-back, or the release of the failed attempt
	unlocks
)

type semaphoreCall struct {
	phase  queuePhase
	how    manner // of the last attempt
	begun  bool   // it has made an attempt
	knows  bool   // slots that it has found free come first in its order
	ready  bool   // it has a reason to try at once
	queued bool   // its ticket may be in queues
	leaves bool   // its releases take the ticket out of the queues
	enters uint8  // 1 + the call whose ticket its giving-back puts into the queues
	before uint8  // calls that it must not overtake, as bits
	order  order  // in which a node looks for free slots
	won    uint8  // the slots that it holds or held, as bits
}

// An order is a permutation of the slots.
type order [maxSlots]uint8

type semaphoreBounds struct {
	name    string
	permits int
	weights []uint8 // of each call
	process []uint8 // of each call
	holds   []uint8 // of each call: the slots that it holds at the start, as bits; nil: none
	on      []uint8 // of each call: the nodes on which it has them, as bits; nil: all
	keeps   uint8   // the calls that hold at the start and never unlock, as bits
	queued  uint8   // the calls that wait at the start, with tickets in all queues, as bits
	behind  uint8   // the calls that wait at the start behind others of their process, in no queue, as bits
	fair    bool
	early   bool // attempts end as soon as they are decided; otherwise when all nodes have answered
	orderly bool // a call begins an attempt only when all its earlier messages have been executed
	lined   bool // without fair mode: no first attempt goes ahead of the waiters
	patient bool // an elapsed retry delay alone starts no attempt
	cancels bool // waiters may give up
	brief   bool // a node that grants the first slot of the order names no other free ones
	swaps   bool // a node may execute an unlock before the giving-back that was sent before it
	anySlot bool // an attempt that knows of no free slots begins with any slot; otherwise only the first attempt of a call does
	size    Size
}

// sized returns the bounds for a mutation that takes more or less time than the sound model.
func (b semaphoreBounds) sized(size Size) semaphoreBounds {
	b.size = size
	return b
}

// Each field of semaphoreFlaws weakens a rule: see semaphoreRules.
type semaphoreFlaws struct {
	winStays, winSilent, grantLeaves, nextHidden    bool // the ticket of a call that wins
	straysStay, lateStays, lateUnlocked, unlockEnds bool // giving back
	failSilent, unlockSilent, allFree, ownSilent    bool // wake-ups
	splitSleeps, sameOrder, countsRefused, oneByOne bool // attempts that have failed
	passes, heldWaits, heldDrops                    bool // whose turn it is
}

type semaphore struct {
	semaphoreBounds
	semaphoreFlaws
}

var (
	ones = []uint8{1, 1, 1, 1}

	// In the names of these bounds, calls are of different processes unless the text says otherwise. "One of it" is a
	// call of the same process as the call before it.

	semaphoreHeld        = semaphoreBounds{name: "2 permits, both held, two wait, fair", permits: 2, weights: ones, process: []uint8{0, 1, 2, 3}, holds: []uint8{1, 2, 0, 0}, queued: 12, fair: true, orderly: true, patient: true, cancels: true, size: Medium}
	semaphoreSwaps       = semaphoreBounds{name: "2 permits, both held, two wait, fair, an unlock may come before the giving-back", permits: 2, weights: ones, process: []uint8{0, 1, 2, 3}, holds: []uint8{1, 2, 0, 0}, queued: 12, fair: true, orderly: true, patient: true, swaps: true, cancels: true, size: Large}
	semaphoreFast        = semaphoreBounds{name: "2 permits, both held, two wait, fair, attempts follow at once", permits: 2, weights: ones, process: []uint8{0, 1, 2, 3}, holds: []uint8{1, 2, 0, 0}, queued: 12, fair: true, patient: true, cancels: true, size: Large}
	semaphoreHeldDelays  = semaphoreBounds{name: "2 permits, both held, two wait, fair, retry delays", permits: 2, weights: ones, process: []uint8{0, 1, 2, 3}, holds: []uint8{1, 2, 0, 0}, queued: 12, fair: true, orderly: true, size: Large}
	semaphoreTwo         = semaphoreBounds{name: "2 permits, one is held, two come, fair", permits: 2, weights: ones[:3], process: []uint8{0, 1, 2}, holds: []uint8{1, 0, 0}, fair: true, orderly: true, patient: true, cancels: true, size: Large}
	semaphoreBarge       = semaphoreBounds{name: "2 permits, one is held, two come", permits: 2, weights: ones[:3], process: []uint8{0, 1, 2}, holds: []uint8{1, 0, 0}, orderly: true, patient: true, cancels: true, size: Large}
	semaphoreDelays      = semaphoreBounds{name: "2 permits, one is held, two come, retry delays, any slot first", permits: 2, weights: ones[:3], process: []uint8{0, 1, 2}, holds: []uint8{1, 0, 0}, orderly: true, anySlot: true, lined: true, size: Large}
	semaphoreEarly       = semaphoreBounds{name: "2 permits, two come, attempts end early", permits: 2, weights: ones[:2], process: []uint8{0, 1}, early: true, patient: true, cancels: true}
	semaphoreEarlyFair   = semaphoreBounds{name: "2 permits, both held, two wait, fair, attempts end early", permits: 2, weights: ones, process: []uint8{0, 1, 2, 3}, holds: []uint8{1, 2, 0, 0}, queued: 12, fair: true, early: true, patient: true, cancels: true, size: Large}
	semaphoreSplit       = semaphoreBounds{name: "3 permits, two are held on two nodes each, one comes", permits: 3, weights: ones[:3], process: []uint8{0, 1, 2}, holds: []uint8{1, 2, 0}, on: []uint8{6, 5, 0}, orderly: true, patient: true, cancels: true}
	semaphoreSplitFair   = semaphoreBounds{name: "3 permits, two are held on two nodes each, one comes, fair", permits: 3, weights: ones[:3], process: []uint8{0, 1, 2}, holds: []uint8{1, 2, 0}, on: []uint8{6, 5, 0}, fair: true, orderly: true, patient: true, cancels: true}
	semaphoreBrief       = semaphoreBounds{name: "3 permits, two are held on two nodes each, one comes, fair, short answers", permits: 3, weights: ones[:3], process: []uint8{0, 1, 2}, holds: []uint8{1, 2, 0}, on: []uint8{6, 5, 0}, fair: true, orderly: true, patient: true, brief: true, cancels: true}
	semaphoreSplitTwo    = semaphoreBounds{name: "3 permits, two are held on two nodes each and kept, two come, fair", permits: 3, weights: ones, process: []uint8{0, 1, 2, 3}, holds: []uint8{1, 2, 0, 0}, on: []uint8{6, 5, 0, 0}, keeps: 3, fair: true, orderly: true, patient: true, size: Large}
	semaphoreBriefTwo    = semaphoreBounds{name: "3 permits, two are held on two nodes each and kept, two come, fair, short answers", permits: 3, weights: ones, process: []uint8{0, 1, 2, 3}, holds: []uint8{1, 2, 0, 0}, on: []uint8{6, 5, 0, 0}, keeps: 3, fair: true, orderly: true, patient: true, brief: true, size: Large}
	semaphoreSplitBarge  = semaphoreBounds{name: "3 permits, two are held on two nodes each and kept, two come", permits: 3, weights: ones, process: []uint8{0, 1, 2, 3}, holds: []uint8{1, 2, 0, 0}, on: []uint8{6, 5, 0, 0}, keeps: 3, orderly: true, patient: true, size: Large}
	semaphoreLine        = semaphoreBounds{name: "2 permits, one is held, one of it and one come, fair", permits: 2, weights: ones[:3], process: []uint8{0, 0, 1}, holds: []uint8{1, 0, 0}, fair: true, orderly: true, patient: true, cancels: true, size: Large}
	semaphoreLineBarge   = semaphoreBounds{name: "2 permits, one is held, one of it and one come", permits: 2, weights: ones[:3], process: []uint8{0, 0, 1}, holds: []uint8{1, 0, 0}, orderly: true, patient: true, cancels: true, size: Medium}
	semaphoreLineTwo     = semaphoreBounds{name: "2 permits, one is held, two of a process come", permits: 2, weights: ones[:3], process: []uint8{0, 1, 1}, holds: []uint8{1, 0, 0}, orderly: true, patient: true, cancels: true}
	semaphoreLineHeld    = semaphoreBounds{name: "2 permits, both held by a process, one of it waits, one comes, fair", permits: 2, weights: ones, process: []uint8{0, 0, 0, 1}, holds: []uint8{1, 2, 0, 0}, queued: 4, fair: true, orderly: true, patient: true, cancels: true, size: Medium}
	semaphoreLines       = semaphoreBounds{name: "2 permits, held by two processes, one of each waits, fair", permits: 2, weights: ones, process: []uint8{0, 1, 0, 1}, holds: []uint8{1, 2, 0, 0}, queued: 12, fair: true, orderly: true, patient: true, cancels: true}
	semaphoreBehind      = semaphoreBounds{name: "2 permits, both held by one, two of a process and one behind them wait, fair", permits: 2, weights: []uint8{2, 1, 1, 1}, process: []uint8{0, 1, 1, 2}, holds: []uint8{3, 0, 0, 0}, queued: 10, behind: 4, fair: true, orderly: true, patient: true, cancels: true, size: Large}
	semaphoreBehindBarge = semaphoreBounds{name: "2 permits, both held by one, two of a process and one behind them wait", permits: 2, weights: []uint8{2, 1, 1, 1}, process: []uint8{0, 1, 1, 2}, holds: []uint8{3, 0, 0, 0}, queued: 10, behind: 4, lined: true, orderly: true, patient: true, cancels: true, size: Large}
	semaphoreUrgent      = semaphoreBounds{name: "2 permits, both held by one, two wait, one comes that is the first of its process, fair", permits: 2, weights: []uint8{2, 1, 1, 1}, process: []uint8{0, 1, 1, 2}, holds: []uint8{3, 0, 0, 0}, queued: 12, fair: true, orderly: true, patient: true, size: Large}
	semaphoreLineEarly   = semaphoreBounds{name: "2 permits, both held by one, two of a process and one behind them wait, fair, attempts end early", permits: 2, weights: []uint8{2, 1, 1, 1}, process: []uint8{0, 1, 1, 2}, holds: []uint8{3, 0, 0, 0}, queued: 10, behind: 4, fair: true, early: true, patient: true, size: Large}
	semaphoreLineSwaps   = semaphoreBounds{name: "2 permits, held by two processes, one of each waits, fair, an unlock may come before the giving-back", permits: 2, weights: ones, process: []uint8{0, 1, 0, 1}, holds: []uint8{1, 2, 0, 0}, queued: 12, fair: true, orderly: true, patient: true, swaps: true, cancels: true, size: Large}
	semaphoreEarlyThree  = semaphoreBounds{name: "2 permits, one is held, two come, attempts end early", permits: 2, weights: ones[:3], process: []uint8{0, 1, 2}, holds: []uint8{1, 0, 0}, early: true, orderly: true, patient: true, size: Large}
	semaphoreWeight      = semaphoreBounds{name: "3 permits, 2 are held by one, one that wants 2 waits, one comes, fair", permits: 3, weights: []uint8{2, 2, 1}, process: []uint8{0, 1, 2}, holds: []uint8{3, 0, 0}, queued: 2, fair: true, orderly: true, patient: true, cancels: true}
	semaphoreWeights     = semaphoreBounds{name: "3 permits, two are held, one that wants 2 and one wait, fair", permits: 3, weights: []uint8{1, 1, 2, 1}, process: []uint8{0, 1, 2, 3}, holds: []uint8{1, 2, 0, 0}, queued: 12, fair: true, orderly: true, patient: true, cancels: true, size: Large}
	semaphoreHeavy       = semaphoreBounds{name: "3 permits, all held, one that wants 2 and one wait, fair", permits: 3, weights: []uint8{2, 1, 2, 1}, process: []uint8{0, 1, 2, 3}, holds: []uint8{3, 4, 0, 0}, queued: 12, fair: true, orderly: true, patient: true, cancels: true, size: Medium}
	semaphoreHeavyLast   = semaphoreBounds{name: "3 permits, all held, one and one that wants 2 wait, fair", permits: 3, weights: []uint8{2, 1, 1, 2}, process: []uint8{0, 1, 2, 3}, holds: []uint8{3, 4, 0, 0}, queued: 12, fair: true, orderly: true, patient: true, cancels: true, size: Large}
	semaphoreHeavyLine   = semaphoreBounds{name: "3 permits, 2 are held by one, one that wants 2 and one of it and one wait, fair", permits: 3, weights: []uint8{2, 2, 1, 1}, process: []uint8{0, 1, 1, 2}, holds: []uint8{3, 0, 0, 0}, queued: 10, behind: 4, fair: true, orderly: true, patient: true, cancels: true, size: Large}
)

var semaphoreRules = []struct {
	name, section, rule string
	bounds              semaphoreBounds
	flaws               semaphoreFlaws
}{
	{"others pass a head that wants more", "B4 strict", "in fair mode a node lets in only the process that is first in its queue, also if too few slots are free for that one", semaphoreWeight, semaphoreFlaws{passes: true}},
	{"a grant leaves the queue", "B4 wins", "a grant leaves the ticket in the queue, and only the giving-back of a call that has won takes it out", semaphoreLineHeld.sized(Small), semaphoreFlaws{grantLeaves: true}},
	{"the ticket of a call that has won stays", "B4 wins", "a call that has won takes its ticket out of the queues at once, and not with its unlock", semaphoreLines, semaphoreFlaws{winStays: true}},
	{"a call that has won tells nobody", "B4 wins", "a giving-back tells the first in the queue if a slot is free", semaphoreLines, semaphoreFlaws{winSilent: true}},
	{"a giving-back enters nobody", "B4 wins, lines", "in fair mode a giving-back puts the ticket of the next in its line in the place of that of the call that has won", semaphoreBehind.sized(Small), semaphoreFlaws{nextHidden: true}},
	{"an unlock ends the giving-back", "B4 wins", "a giving-back that has not arrived is repeated also after the unlock", semaphoreLines, semaphoreFlaws{unlockEnds: true}},
	{"a failed attempt tells nobody", "B4 wake-ups", "the release of a failed attempt tells the first in the queue if a slot is free", semaphoreLines, semaphoreFlaws{failSilent: true}},
	{"an unlock tells nobody", "B6 wake-ups", "an unlock tells the first in the queue", semaphoreLines, semaphoreFlaws{unlockSilent: true}},
	{"a node tells when all slots are free", "B6 wake-ups", "one free slot is enough to tell the first in the queue", semaphoreLines, semaphoreFlaws{allFree: true}},
	{"the answer does not say that the own process leads", "B6 wake-ups, lines", "the answer to a release says whether a ticket of the same process leads, and that wakes the first in its line", semaphoreLines, semaphoreFlaws{ownSilent: true}},
	{"wake-ups are dropped while the process holds a permit", "B6 wake-ups, lines", "a wake-up counts although the process holds permits", semaphoreLineHeld.sized(Small), semaphoreFlaws{heldDrops: true}},
	{"waits until its process holds nothing", "B6 lines", "the first in line tries although its process holds permits", semaphoreLineHeld.sized(Small), semaphoreFlaws{heldWaits: true}},
	{"strays are kept", "B5 strays", "a call that has won gives back the other slots that it was granted", semaphoreSplit, semaphoreFlaws{straysStay: true}},
	{"late strays are kept", "B5 strays", "strays that a node grants after the decision are given back, too", semaphoreEarly, semaphoreFlaws{lateStays: true}},
	{"strays are kept after the unlock", "B5 strays", "strays are given back also if the call has unlocked when it learns of them", semaphoreEarly, semaphoreFlaws{lateUnlocked: true}},
	{"a split attempt waits to be told", "B3 split votes", "an attempt that has failed although enough slots are free on a quorum of the nodes that have let it in is repeated at once: nobody will tell the call", semaphoreSplitFair, semaphoreFlaws{splitSleeps: true}},
	{"a split attempt is repeated in the same order", "B3 split votes", "the next attempt begins with the slots that were free on a quorum of nodes", semaphoreLines, semaphoreFlaws{sameOrder: true}},
	{"nodes that refuse are counted", "B3 split votes", "only nodes that have let in the attempt count, not those that have refused it because of their queues", semaphoreHeavy.sized(Medium), semaphoreFlaws{countsRefused: true}},
	{"slots are counted one by one", "B3 split votes, B7 weights", "several slots must have been free together on the same quorum of nodes", semaphoreWeights, semaphoreFlaws{oneByOne: true}},
}

func semaphoreAll() []semaphoreBounds {
	return []semaphoreBounds{
		semaphoreHeld, semaphoreHeldDelays, semaphoreSwaps, semaphoreFast, semaphoreTwo, semaphoreBarge, semaphoreDelays, semaphoreEarly, semaphoreEarlyFair,
		semaphoreSplit, semaphoreSplitFair, semaphoreBrief, semaphoreSplitTwo, semaphoreBriefTwo, semaphoreSplitBarge,
		semaphoreLine, semaphoreLineBarge, semaphoreLineTwo, semaphoreLineHeld, semaphoreLines, semaphoreBehind, semaphoreBehindBarge,
		semaphoreUrgent, semaphoreLineEarly, semaphoreLineSwaps, semaphoreEarlyThree,
		semaphoreWeight, semaphoreWeights, semaphoreHeavy, semaphoreHeavyLast, semaphoreHeavyLine,
	}
}

func semaphoreCases() (cases []Case) {
	for _, b := range semaphoreAll() {
		cases = append(cases, Case{Model: "semaphore", Name: b.name, Size: b.size, Explore: semaphore{b, semaphoreFlaws{}}.explore})
	}
	return cases
}

func semaphoreMutations() (cases []Case) {
	for _, r := range semaphoreRules {
		cases = append(cases, Case{Model: "semaphore", Name: r.name, Rule: r.rule, Section: r.section, Size: r.bounds.size, Explore: semaphore{r.bounds, r.flaws}.explore})
	}
	return cases
}

func (q semaphore) explore(how Search) Result {
	return Find(System[semaphoreState]{
		Start: q.start(), Clients: []string{"A", "B", "C", "D"}, Next: q.next, Same: sameSemaphore,
		Wrong: q.wrong, Rest: q.rest, Spins: true, Show: q.show,
	}, how)
}

// start returns the state at the start.
func (q semaphore) start() (s semaphoreState) {
	for c, slots := range q.holds {
		if slots == 0 {
			continue
		}
		s.calls[c].phase, s.calls[c].won = holding, slots
		for i := range s.nodes {
			for k := range q.permits {
				if slots&bit(k) != 0 && (q.on == nil || q.on[c]&bit(i) != 0) {
					s.nodes[i].slots[k] = mark(c)
				}
			}
		}
	}
	for c := range q.weights {
		if q.queued&bit(c) != 0 {
			s.calls[c].phase, s.calls[c].queued, s.calls[c].begun = waiting, true, true
			s.calls[c].order = q.from(0)
		}
		if q.behind&bit(c) != 0 {
			s.calls[c].phase, s.calls[c].ready = waiting, true
		}
	}
	for i := range s.nodes {
		s.nodes[i].queue = q.queued
	}
	return s
}

// held returns how many permits are held.
func (q semaphore) held(s *semaphoreState) (held int) {
	for c, weight := range q.weights {
		if s.calls[c].phase == holding {
			held += int(weight)
		}
	}
	return held
}

// firstInLine returns the call of a process that talks to the nodes, -1 for none.
func (q semaphore) firstInLine(s *semaphoreState, process uint8) int {
	for c, p := range q.process {
		if p == process && s.calls[c].phase.inLine() {
			return c
		}
	}
	return -1
}

// wrong checks three promises: no more permits are held than there are, no two calls hold the same slot, and no call
// overtakes a call that it must not overtake.
func (q semaphore) wrong(s semaphoreState) string {
	if held := q.held(&s); held > q.permits {
		return fmt.Sprintf("%d of %d permits are held", held, q.permits)
	}
	var slots uint8
	for c := range q.weights {
		if s.calls[c].phase != holding {
			continue
		}
		if slots&s.calls[c].won != 0 {
			return "two calls hold the same slot"
		}
		slots |= s.calls[c].won
	}
	if s.overtook {
		return "a later call has overtaken an earlier one"
	}
	return ""
}

// rest checks two promises in a state in which no message is on its way. If a slot on a node has the value of a call,
// that call holds the slot. If a call waits, fewer permits are free than it wants, or, in fair mode, than an earlier
// waiting call wants.
func (q semaphore) rest(s semaphoreState) string {
	for _, n := range s.nodes {
		for k, owner := range n.slots {
			if owner == 0 {
				continue
			}
			if call := s.calls[owner-1]; call.phase != holding || call.won&bit(k) == 0 {
				return fmt.Sprintf("a node keeps slot %d for %c, which does not hold it", k, 'A'+owner-1)
			}
		}
	}
	free, excused := q.permits-q.held(&s), false
	for c, weight := range q.weights {
		if s.calls[c].phase != waiting {
			continue
		}
		excused = excused && q.fair || int(weight) > free
		if !excused {
			return fmt.Sprintf("a stall: %d of %d permits are free, and only a timer helps %c", free, q.permits, 'A'+c)
		}
	}
	return ""
}

// sameSemaphore sorts the nodes, and drops what nothing depends on any more.
func sameSemaphore(s semaphoreState) semaphoreState {
	for c := range s.calls {
		call := &s.calls[c]
		if call.phase < holding {
			continue
		}
		var sent messages
		for _, n := range s.nodes {
			sent |= n.sent[c]
		}
		if sent&asksSlots == 0 {
			call.order, call.how = order{}, 0
		}
		if sent == 0 {
			call.enters = 0
		}
		if sent == 0 && call.phase == gone {
			*call = semaphoreCall{phase: gone, begun: true}
		}
	}
	for i := range s.nodes {
		for j := range i {
			if compareSemaphoreNodes(&s.nodes[i], &s.nodes[j]) < 0 {
				s.nodes[i], s.nodes[j] = s.nodes[j], s.nodes[i]
			}
		}
	}
	return s
}

// compareSemaphoreNodes compares two nodes for sorting. It returns 0 only if they are equal.
func compareSemaphoreNodes(a, b *semaphoreNode) int {
	for _, lists := range [...][2][]uint8{{a.slots[:], b.slots[:]}, {a.got[:], b.got[:]}, {a.free[:], b.free[:]}, {a.after[:], b.after[:]}} {
		if order := slices.Compare(lists[0], lists[1]); order != 0 {
			return order
		}
	}
	if order := slices.Compare(a.sent[:], b.sent[:]); order != 0 {
		return order
	}
	return slices.Compare([]uint8{a.queue, a.told, a.found, a.heard}, []uint8{b.queue, b.told, b.found, b.heard})
}

func (q semaphore) show(s semaphoreState) string {
	var b strings.Builder
	for _, n := range s.nodes {
		b.WriteString("  ")
		for k := range q.permits {
			b.WriteByte("-ABCD"[n.slots[k]])
		}
		b.WriteString(" [")
		for c := range q.weights {
			if n.queue&bit(c) != 0 {
				b.WriteByte("ABCD"[c])
			}
		}
		b.WriteString("]")
	}
	for c, call := range s.calls {
		woken := 0
		for _, n := range s.nodes {
			woken += int(n.told >> c & 1)
		}
		if woken > 0 {
			fmt.Fprintf(&b, "  %c woken by %d", 'A'+c, woken)
		}
		if call.phase == holding {
			fmt.Fprintf(&b, "  %c has %s", 'A'+c, slotNames(call.won))
		}
	}
	return b.String()
}

// slotNames returns the numbers of slots.
func slotNames(slots uint8) (text string) {
	for ; slots != 0; slots &= slots - 1 {
		if text != "" {
			text += "+"
		}
		text += fmt.Sprint(bits.TrailingZeros8(slots))
	}
	return text
}
