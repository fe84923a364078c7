package model

import (
	"fmt"
	"math/bits"
	"strings"
)

// This file models waiting for a lock: the queues on the nodes, and when waiters are woken.
//
// Each client is a call of Lock, and its number is its ticket: the lower ticket comes first. Two
// calls may belong to one process. The waiting calls of a process form a line, and only the first in
// line talks to the nodes. A node executes the messages of one process in the order in which they were
// sent. At most two messages of a call are on their way to a node at once. A wake-up arrives as soon as
// it is sent. The model has no time: a timer may fire at any moment. The model checks that calls make
// progress without timers where they must.
//
// A release that moves no ticket may be two commands of the server in place of the script: DELEX, which deletes the
// key if it has our value, and behind it EXISTS of the queue. If the answers are not enough, the client sends the
// script. Any node may execute any such release in either form, so that sets mixed by node are covered.

const maxCalls = 3

type queueState struct {
	nodes    [numNodes]queueNode
	calls    [maxCalls]queueCall
	lost     uint8 // acquires and replies lost so far
	died     uint8
	overtook bool
}

type queueNode struct {
	lock  uint8 // 1 + the call whose key is set; 0: no key
	queue uint8 // the calls whose tickets are queued, as bits
	woken uint8 // the calls that the node has woken since their last attempt began, as bits
	freed uint8 // the calls that rolled back a grant of this node in their last attempt, as bits
	taken uint8 // the calls that this node refused in their last attempt, as bits
	reads uint8 // the readers whose keys are set, as bits
	slots [maxCalls]slot
}

// A slot is the message on its way from a call to a node, or the node's answer to the attempt of
// the call.
type slot uint8

const (
	nothing slot = iota
	granted
	refused
	unheard   // no answer will arrive
	acquiring // the acquire is on its way
	releasing // the release is on its way
	turning   // the release is on its way, followed by the acquire of the next attempt
	undoing   // the acquire is on its way, followed by its release
	checking  // DELEX was executed, EXISTS is behind it
	telling   // DELEX and EXISTS were not enough: the client sends the script
)

func (s slot) onTheWay() bool { return s >= acquiring }

// isAhead reports whether the message is ahead of all that other calls of the process send later.
func (s slot) isAhead() bool { return s.onTheWay() && s != telling }

type queuePhase uint8

const (
	away    queuePhase = iota
	barging            // makes its first attempt, in no line and no queue
	trying
	waiting
	holding
	gone
	dead
)

func (p queuePhase) inLine() bool { return p == trying || p == waiting }

type queueCall struct {
	phase  queuePhase
	how    manner // of the last attempt
	ready  bool   // it has a reason to try at once
	behind bool   // if ready: it tries right behind a release of its process, without queueing
	queued bool   // its ticket may be in queues
	leaves bool   // its releases take the ticket out of the queues
	enters uint8  // 1 + the call whose ticket its release puts into the queues
	native bool   // its release may be DELEX and EXISTS
	before uint8  // calls ahead of it in a quorum of queues when its attempt began, as bits
}

type manner uint8

const (
	plain  manner = iota // enters no queue, and takes the lock if it is free
	strict               // enters the queue, and takes a free lock only if its process is first
	loose                // enters the queue, and takes the lock if it is free
)

type queueBounds struct {
	name    string
	process []uint8         // of each call
	reach   [maxCalls]uint8 // the nodes that each call reaches, as bits; 0: all
	ignores [maxCalls]uint8 // the nodes whose grants do not count for each call, as bits
	late    [maxCalls]uint8 // the nodes that are late for each call, as bits
	shares  uint8           // the calls that are readers, as bits
	fair    bool
	early   bool  // attempts end as soon as they are decided; otherwise when all nodes have answered
	orderly bool  // a call begins an attempt only when all its earlier messages have been executed
	grace   bool  // a single wake-up starts an attempt, unless that is hopeless; otherwise a quorum of nodes must be free
	patient bool  // an elapsed retry delay alone starts no attempt
	cancels bool  // waiters may give up
	native  uint8 // the calls whose releases may be DELEX and EXISTS, as bits
	exits   bool  // a first attempt may be the only one, a node may deny DELEX, and one process may exit after its release
	losses  uint8 // of acquires, or of the replies to them
	deaths  uint8
	deaf    bool  // no call can win
	goal    []int // from every state these calls must be able to end, by timers if need be; empty: no waiter may depend on a timer
	size    Size
}

// Each field of queueFlaws weakens a rule: see queueRules.
type queueFlaws struct {
	lookFirst, dequeued, onlyDeleted, silentRollback, wakesItself, dropsWakes, onlyWoken bool
	stays, lets, unlockStays, notEntered, triesOnce, cancelsSilently                     bool
	hearsIgnored, hopes, neverLate, asksFirst, endsSilently, returnsEarly                bool
}

// sized returns the bounds for a mutation, which takes less time than the sound model.
func (b queueBounds) sized(size Size) queueBounds {
	b.size = size
	return b
}

type queue struct {
	queueBounds
	queueFlaws
}

var (
	queueTwo      = queueBounds{name: "two processes", process: []uint8{0, 1}, early: true, cancels: true}
	queueFairTwo  = queueBounds{name: "two processes, fair", process: []uint8{0, 1}, fair: true, early: true, cancels: true}
	queueGrace    = queueBounds{name: "two processes, fair, one wake-up is enough", process: []uint8{0, 1}, fair: true, orderly: true, grace: true}
	queueThree    = queueBounds{name: "three processes", process: []uint8{0, 1, 2}, orderly: true, patient: true, size: Large}
	queueFair     = queueBounds{name: "three processes, fair", process: []uint8{0, 1, 2}, fair: true, orderly: true, size: Large}
	queueGivesUp  = queueBounds{name: "three processes, fair, that may give up", process: []uint8{0, 1, 2}, fair: true, orderly: true, cancels: true, size: Large}
	queueLine     = queueBounds{name: "two processes, one with a line", process: []uint8{0, 1, 0}, orderly: true, size: Large}
	queueFairLine = queueBounds{name: "two processes, one with a line, fair", process: []uint8{0, 1, 0}, fair: true, orderly: true, cancels: true}
	queueLossy    = queueBounds{name: "two processes, a lost message", process: []uint8{0, 1}, fair: true, early: true, grace: true, losses: 1}
	queueTwoDeath = queueBounds{name: "two processes, one dies, a lost message", process: []uint8{0, 1}, fair: true, early: true, deaths: 1, losses: 1, goal: []int{0, 1}, size: Medium}
	queueMinority = queueBounds{name: "the first reaches one node only", process: []uint8{0, 1}, reach: [maxCalls]uint8{1, 3, 0}, fair: true, early: true, goal: []int{1}}
	queueDown     = queueBounds{name: "one node is down, fair", process: []uint8{0, 1}, reach: [maxCalls]uint8{3, 3, 0}, fair: true, early: true}
	queueDeath    = queueBounds{name: "three processes, one dies", process: []uint8{0, 1, 2}, fair: true, orderly: true, deaths: 1, goal: []int{0, 1, 2}, size: Large}
	queueFast     = queueBounds{name: "three processes, fair, attempts follow at once", process: []uint8{0, 1, 2}, fair: true, patient: true, size: Large}
	queueIgnored  = queueBounds{name: "two processes ignore a majority", process: []uint8{0, 1}, ignores: [maxCalls]uint8{3, 3, 0}, orderly: true, grace: true, deaf: true, size: Medium}
	queueMissing  = queueBounds{name: "readers, and a node without the writer's key", process: []uint8{0, 1, 2}, reach: [maxCalls]uint8{3, 7, 7}, shares: 6, orderly: true, grace: true, patient: true, size: Medium}
	queueLate     = queueBounds{name: "two nodes are late for the second, one for the first", process: []uint8{0, 1}, late: [maxCalls]uint8{4, 3, 0}, fair: true, early: true}
	queueNative   = queueBounds{name: "two processes, DELEX", process: []uint8{0, 1}, orderly: true, native: 3, exits: true}
	queueNatives  = queueBounds{name: "three processes, the first with DELEX", process: []uint8{0, 1, 2}, orderly: true, patient: true, native: 1, size: Large}
	queueOne      = queueBounds{name: "one process, DELEX", process: []uint8{0, 0}, early: true, native: 3, exits: true}
	queueHalf     = queueBounds{name: "one node is down, DELEX", process: []uint8{0, 1}, reach: [maxCalls]uint8{3, 3, 0}, early: true, orderly: true, grace: true, native: 3, exits: true}
	queueRow      = queueBounds{name: "two processes, one with a line, DELEX", process: []uint8{0, 1, 0}, orderly: true, patient: true, native: 7, size: Large}
	queueFastLine = queueBounds{name: "two processes, one with a line, attempts follow at once", process: []uint8{0, 1, 0}, size: Large}
)

var queueRules = []struct {
	name, section, rule string
	bounds              queueBounds
	flaws               queueFlaws
}{
	{"looks before it enters", "6 waiting", "a node puts the ticket into the queue before it looks whose ticket is first", queueDown, queueFlaws{lookFirst: true}},
	{"a grant leaves the queue", "6 waiting", "a grant leaves the ticket in the queue, so that a call with too few grants keeps its place", queueDown, queueFlaws{dequeued: true}},
	{"a release tells only if it has deleted", "6 waiting", "if the lock is free after a release, the node wakes the first in its queue, even if the release has deleted nothing", queueFairLine, queueFlaws{onlyDeleted: true}},
	{"a rollback tells nobody", "6 waiting", "a rollback wakes the first in the queue, as every release does", queueDown, queueFlaws{silentRollback: true}},
	{"wakes itself", "6 waiting", "the rollback of a call does not wake the call itself", queueMissing, queueFlaws{wakesItself: true}},
	{"wake-ups during an attempt are dropped", "6 waiting", "a wake-up that comes during an attempt takes effect after it", queueFairTwo, queueFlaws{dropsWakes: true}},
	{"its own rollbacks are not counted", "6 waiting", "a waiter counts as free both the nodes that woke it and the nodes whose grants it rolled back", queueDown, queueFlaws{onlyWoken: true}},
	{"stays although it hears too few", "6 waiting", "a call that hears from fewer than a quorum leaves the queues", queueMinority, queueFlaws{stays: true}},
	{"anybody is let in", "6 waiting", "in fair mode a node grants the lock only to the process that is first in its queue", queueFairLine, queueFlaws{lets: true}},
	{"an unlock stays in the queue", "6 waiting", "a release takes the holder's ticket out of the queues", queueFairTwo, queueFlaws{unlockStays: true}},
	{"who gives up tells nobody", "6 waiting", "a call that gives up leaves the queues, and the nodes wake the next waiter", queueFairLine, queueFlaws{cancelsSilently: true}},
	{"the next in line is not entered", "6 waiting", "if other processes wait too, a release puts the ticket of the next in the process's line into the queues", queueFairLine, queueFlaws{notEntered: true}},
	{"nodes that do not count are heard", "6 waiting", "a waiter does not count as free the nodes whose grants would not count for it", queueIgnored, queueFlaws{hearsIgnored: true}},
	{"a hopeless attempt", "6 waiting", "a wake-up by fewer nodes than a quorum starts no attempt if too many of the others have refused the last one, and none of these has woken it", queueMissing, queueFlaws{hopes: true}},
	{"late nodes are never heard", "6 waiting", "late nodes do not count as free only if the others can make a quorum", queueLate, queueFlaws{neverLate: true}},
	{"EXISTS before DELEX", "6 waiting", "EXISTS of the queue is behind DELEX, so that it sees each waiter that was refused because of the key", queueNative, queueFlaws{asksFirst: true}},
	{"no script behind DELEX", "6 waiting", "if EXISTS finds a queue, the script of the release follows, although DELEX has deleted", queueNative, queueFlaws{endsSilently: true}},
	{"Unlock returns before the script", "6 waiting", "a node votes for a release only when no script need follow: after Unlock the process may exit", queueNative, queueFlaws{returnsEarly: true}},
	{"the attempt behind a release is the only one", "6 waiting", "a call that tried right behind a release, without queueing, tries again in the queues", queueLine.sized(Medium), queueFlaws{triesOnce: true}},
}

func queueCases() (cases []Case) {
	for _, b := range []queueBounds{
		queueTwo, queueFairTwo, queueGrace, queueThree, queueFair, queueGivesUp, queueLine, queueFairLine, queueLossy, queueTwoDeath, queueMinority, queueDown,
		queueDeath, queueFast, queueFastLine, queueIgnored, queueMissing, queueLate,
		queueNative, queueOne, queueHalf, queueNatives, queueRow,
	} {
		cases = append(cases, Case{Model: "queue", Name: b.name, Size: b.size, Explore: queue{b, queueFlaws{}}.explore})
	}
	return cases
}

func queueMutations() (cases []Case) {
	for _, r := range queueRules {
		cases = append(cases, Case{Model: "queue", Name: r.name, Rule: r.rule, Section: r.section, Size: r.bounds.size, Explore: queue{r.bounds, r.flaws}.explore})
	}
	return cases
}

func (q queue) explore(how Search) Result {
	sys := System[queueState]{
		Clients: []string{"A", "B", "C"}, Next: q.next, Same: sameQueue, Wrong: q.wrong, Show: q.show,
		Spins: q.losses == 0 && q.deaths == 0, // after a loss or a death only randomness, which the model lacks, may end the work
	}
	if q.reach != [maxCalls]uint8{} || q.ignores != [maxCalls]uint8{} || q.late != [maxCalls]uint8{} {
		sys.Same = nil // the nodes differ in which calls reach them
	}
	switch {
	case len(q.goal) > 0:
		sys.Goal = q.served
	case !q.deaf:
		sys.Rest = q.rest
	}
	return Find(sys, how)
}

// wrong checks two promises: at most one holder (not checked if calls may die), and no call overtakes a
// call that was queued before it.
func (q queue) wrong(s queueState) string {
	holders, writers := 0, 0
	for c := range s.calls {
		if s.calls[c].phase == holding {
			holders++
			if !q.isReader(c) {
				writers++
			}
		}
	}
	switch {
	case holders > 1 && writers > 0 && q.deaths == 0:
		return "two holders"
	case s.overtook:
		return "a later ticket has overtaken an earlier one"
	}
	return ""
}

// rest checks the promise of waking: while a call waits, another holds the lock or a message is
// on its way.
func (q queue) rest(s queueState) string {
	waits := false
	for _, c := range s.calls {
		if c.phase == holding {
			return ""
		}
		waits = waits || c.phase == waiting
	}
	if waits {
		return "a stall: the lock is free, and only a timer helps the waiter"
	}
	return ""
}

func (q queue) served(s queueState) bool {
	for _, c := range q.goal {
		if s.calls[c].phase < gone {
			return false
		}
	}
	return true
}

func (q queue) next(s queueState, do func(Step, queueState)) {
	for c := range q.process {
		q.call(s, c, do)
		for n := range s.nodes {
			q.node(s, c, n, do)
		}
		if q.exits && s.died == 0 && s.calls[c].native {
			q.exit(s, c, do)
		}
		if s.died < q.deaths && s.calls[c].phase != away && s.calls[c].phase < gone {
			q.die(s, c, do)
		}
	}
}

// call adds the steps of call c.
func (q queue) call(s queueState, c int, do func(Step, queueState)) {
	switch s.calls[c].phase {
	case away:
		q.come(s, c, do)
	case barging, trying:
		if q.decided(&s, c) {
			q.decide(s, c, do)
		}
	case waiting:
		if q.firstInLine(&s, q.process[c]) == c && !q.holds(&s, q.process[c]) && !q.crowded(&s, c) {
			q.goOn(s, c, do)
		}
		if q.cancels {
			q.cancel(s, c, do)
		}
	case holding:
		q.unlock(s, c, do)
	}
}

// come begins Lock. Its first attempt goes ahead of the waiters, unless the lock is fair or other
// calls of the process wait.
func (q queue) come(s queueState, c int, do func(Step, queueState)) {
	call := &s.calls[c]
	for earlier := range c {
		if q.process[earlier] == q.process[c] && s.calls[earlier].phase == away {
			return // the calls of a process begin in order
		}
	}
	if q.fair || q.firstInLine(&s, q.process[c]) >= 0 {
		call.phase, call.ready = waiting, true
		do(Step{"{c} comes and waits", Choice, c, 0}, s)
		return
	}
	q.begin(&s, c, plain)
	call.phase = barging
	do(Step{"{c} comes and tries ahead of the waiters", Choice, c, 0}, s)
}

// firstInLine returns the call of a process that talks to the nodes, -1 for none.
func (q queue) firstInLine(s *queueState, process uint8) int {
	for c, p := range q.process {
		if p == process && s.calls[c].phase.inLine() {
			return c
		}
	}
	return -1
}

func (q queue) holds(s *queueState, process uint8) bool {
	for c, p := range q.process {
		if p == process && s.calls[c].phase == holding {
			return true
		}
	}
	return false
}

// crowded reports whether there is no room for another message of call c.
func (q queue) crowded(s *queueState, c int) bool {
	for _, n := range s.nodes {
		if n.slots[c].onTheWay() && (q.orderly || n.slots[c] != releasing) {
			return true
		}
	}
	return false
}

// begin sends the acquires of an attempt.
func (q queue) begin(s *queueState, c int, how manner) {
	call := &s.calls[c]
	call.phase, call.how, call.ready, call.behind = trying, how, false, false
	for i := range s.nodes {
		n := &s.nodes[i]
		n.woken &^= bit(c)
		n.freed &^= bit(c)
		n.taken &^= bit(c)
		switch {
		case !q.reaches(c, i):
			n.slots[c] = unheard
		case n.slots[c] == releasing:
			n.slots[c] = turning
		default:
			n.slots[c] = acquiring
		}
	}
	call.before = 0
	if how != strict {
		return
	}
	for other := range c {
		if s.calls[other].phase.inLine() && s.inQueues(other) >= quorum && !(q.isReader(c) && q.isReader(other)) {
			call.before |= bit(other)
		}
	}
}

func bit(i int) uint8 { return 1 << i }

func (q queue) isReader(c int) bool { return q.shares&bit(c) != 0 }

func (q queue) isLate(c, node int) bool { return q.late[c]&bit(node) != 0 }

func (q queue) counts(c, node int) bool { return q.ignores[c]&bit(node) == 0 }

func (q queue) reaches(c, node int) bool { return q.reach[c] == 0 || q.reach[c]&bit(node) != 0 }

// inQueues returns in how many queues call c is.
func (s *queueState) inQueues(c int) (count int) {
	for _, n := range s.nodes {
		if n.queue&bit(c) != 0 {
			count++
		}
	}
	return count
}

// answers counts the answers of the nodes to the attempt of call c.
func (q queue) answers(s *queueState, c int) (grants, refusals, silent, open int) {
	for i, n := range s.nodes {
		switch n.slots[c] {
		case granted:
			if q.counts(c, i) {
				grants++
			} else {
				silent++
			}
		case refused:
			refusals++
		case unheard:
			silent++
		default:
			open++
		}
	}
	return grants, refusals, silent, open
}

// decided reports whether the attempt of call c is over.
func (q queue) decided(s *queueState, c int) bool {
	grants, refusals, silent, open := q.answers(s, c)
	awaited := open
	for i, n := range s.nodes {
		switch {
		case n.slots[c] == turning:
			return false // there is no room for another message
		case n.slots[c] == acquiring && q.isLate(c, i):
			awaited--
		}
	}
	if open == 0 || awaited == 0 && refusals > 0 && grants+refusals >= quorum {
		return true
	}
	const minority = numNodes - quorum
	explained := grants+refusals >= quorum || silent > minority
	return q.early && (grants >= quorum || refusals+silent > minority && explained)
}

func (q queue) decide(s queueState, c int, do func(Step, queueState)) {
	if grants, _, _, _ := q.answers(&s, c); grants >= quorum {
		q.win(s, c, do)
		return
	}
	q.rollBack(s, c, do)
}

func (q queue) win(s queueState, c int, do func(Step, queueState)) {
	call := &s.calls[c]
	for other := range c {
		if call.before&bit(other) != 0 && s.calls[other].phase.inLine() {
			s.overtook = true
		}
	}
	*call = queueCall{phase: holding, how: call.how, leaves: (call.queued || call.how != plain) && !q.unlockStays}
	for i := range s.nodes {
		n := &s.nodes[i]
		if !n.slots[c].onTheWay() {
			n.slots[c] = nothing
		}
		n.woken &^= bit(c)
		n.freed &^= bit(c)
		n.taken &^= bit(c)
	}
	q.makeFirstTry(&s, c)
	do(Step{"{c} HOLDS the lock", Work, c, 0}, s)
}

// makeFirstTry makes the call behind c ready to try if that call is now the first in the line.
func (q queue) makeFirstTry(s *queueState, c int) {
	if next := q.firstInLine(s, q.process[c]); next > c && s.calls[next].phase == waiting {
		s.calls[next].ready = true
	}
}

// rollBack ends an attempt that has failed, and sends its release.
func (q queue) rollBack(s queueState, c int, do func(Step, queueState)) {
	call := &s.calls[c]
	if q.exits && q.native&bit(c) != 0 && call.phase == barging && q.firstInLine(&s, q.process[c]) < 0 {
		t := s
		t.calls[c] = queueCall{phase: gone, native: true}
		q.release(&t, c)
		do(Step{"{c} fails, takes its grants back and goes", Choice, c, 0}, t)
	}
	grants, refusals, _, _ := q.answers(&s, c)
	heard := grants+refusals >= quorum
	switch {
	case call.phase == barging:
		call.ready = heard
	case call.how == plain:
		call.ready = !q.triesOnce
	default:
		call.queued, call.leaves = heard || q.stays, !heard && !q.stays
	}
	if !call.queued {
		for other := range s.calls {
			s.calls[other].before &^= bit(c)
		}
	}
	call.phase, call.before = waiting, 0
	for i := range s.nodes {
		switch n := &s.nodes[i]; n.slots[c] {
		case granted:
			n.freed |= bit(c)
		case refused:
			q.noteTaken(n, c)
		}
	}
	q.release(&s, c)
	do(Step{"{c} fails and takes its grants back", Work, c, 0}, s)
}

// noteTaken notes that a node has refused call c. That matters only to a call that a single wake-up makes try.
func (q queue) noteTaken(n *queueNode, c int) {
	if q.grace {
		n.taken |= bit(c)
	}
}

// release sends the release of call c after all its earlier messages.
func (q queue) release(s *queueState, c int) {
	for i := range s.nodes {
		n := &s.nodes[i]
		switch {
		case !q.reaches(c, i):
			n.slots[c] = nothing
		case n.slots[c] == acquiring:
			n.slots[c] = undoing
		default:
			n.slots[c] = releasing
		}
	}
}

// goOn begins the next attempt of the waiting call c, for the first reason that applies.
func (q queue) goOn(s queueState, c int, do func(Step, queueState)) {
	call := s.calls[c]
	woken, free, possible, released := 0, 0, 0, false
	for i, n := range s.nodes {
		if n.woken&bit(c) != 0 {
			woken++ // of nodes that are not heard, too: it makes the waiter look again
		}
		if !q.hears(c, i) {
			continue
		}
		if (n.woken|n.freed)&bit(c) != 0 && !(q.onlyWoken && n.woken&bit(c) == 0) {
			free++
		}
		if n.taken&bit(c) == 0 {
			possible++
		}
		released = released || (n.taken&n.woken)&bit(c) != 0
	}
	t := s
	switch {
	case call.ready && call.behind:
		q.begin(&t, c, plain)
		do(Step{"{c} tries right behind the release", Work, c, 0}, t)
	case call.ready:
		q.begin(&t, c, strict)
		do(Step{"{c} tries", Work, c, 0}, t)
	case woken > 0 && (free >= quorum || q.grace && (released || possible >= quorum || q.hopes)):
		q.begin(&t, c, strict)
		do(Step{"{c} wakes up and tries", Work, c, 0}, t)
	case !q.patient:
		how := strict
		if !q.fair {
			how = loose
		}
		q.begin(&t, c, how)
		do(Step{"{c}'s retry delay has elapsed", Timer, c, 0}, t)
	}
}

// hears reports whether the waiting call c heeds what a node says of the lock: its grant must count, and it must not be late,
// unless the others are no quorum.
func (q queue) hears(c, node int) bool {
	near := 0
	for i := range numNodes {
		if q.counts(c, i) && !q.isLate(c, i) {
			near++
		}
	}
	return (q.counts(c, node) || q.hearsIgnored) && (!q.isLate(c, node) || near < quorum && !q.neverLate)
}

// cancel makes call c stop waiting.
func (q queue) cancel(s queueState, c int, do func(Step, queueState)) {
	call := &s.calls[c]
	if q.crowded(&s, c) {
		return
	}
	wasFirst := q.firstInLine(&s, q.process[c]) == c
	if call.queued && !q.cancelsSilently {
		call.leaves = true
		q.release(&s, c)
	}
	*call = queueCall{phase: gone, leaves: call.leaves}
	for i := range s.nodes {
		n := &s.nodes[i]
		if q.cancelsSilently {
			n.queue &^= bit(c)
		}
		n.woken &^= bit(c)
		n.freed &^= bit(c)
		n.taken &^= bit(c)
	}
	if wasFirst {
		q.makeFirstTry(&s, c)
	}
	do(Step{"{c} gives up", Choice, c, 0}, s)
}

// unlock ends the hold of call c. Either the next in line tries right behind the release, or the
// release puts the next one's ticket into the queues and the nodes decide whose turn it is. The library
// chooses by whether it knows of waiters in other processes, so the model allows both. A fair lock
// always uses the queues, because they define its order.
func (q queue) unlock(s queueState, c int, do func(Step, queueState)) {
	s.calls[c].phase = gone
	q.release(&s, c)
	next := q.firstInLine(&s, q.process[c])
	if next < 0 {
		s.calls[c].native = q.native&bit(c) != 0 && !s.calls[c].leaves
		do(Step{"{c} unlocks", Choice, c, 0}, s)
		return
	}
	if !q.fair {
		t := s
		t.calls[next].ready, t.calls[next].behind = true, true
		do(Step{"{c} unlocks, the next in line tries", Choice, c, 0}, t)
	}
	if !q.notEntered {
		s.calls[c].enters = mark(next)
		s.calls[next].queued = true
	}
	s.calls[next].ready = s.calls[next].phase == trying
	do(Step{"{c} unlocks, the next in line enters the queues", Choice, c, 0}, s)
}

// die ends call c. Its messages remain on their way.
func (q queue) die(s queueState, c int, do func(Step, queueState)) {
	s.died++
	s.calls[c] = queueCall{phase: dead, how: s.calls[c].how, leaves: s.calls[c].leaves}
	for i := range s.nodes {
		n := &s.nodes[i]
		if !n.slots[c].onTheWay() {
			n.slots[c] = nothing
		}
		n.woken &^= bit(c)
		n.freed &^= bit(c)
		n.taken &^= bit(c)
	}
	for other := range s.calls {
		s.calls[other].before &^= bit(c)
	}
	do(Step{"{c} DIES", Choice, c, 0}, s)
}

// exit ends the process of call c, if it has no other call, once a quorum of nodes has voted for the release: then
// Unlock has returned. The client sends nothing more.
func (q queue) exit(s queueState, c int, do func(Step, queueState)) {
	if bits.OnesCount8(ofProcess(q.process, c)) > 1 {
		return
	}
	votes, open := 0, false
	for i := range s.nodes {
		at := &s.nodes[i].slots[c]
		open = open || at.onTheWay()
		if *at == nothing && q.reaches(c, i) || *at == telling && q.returnsEarly && s.nodes[i].lock != mark(c) {
			votes++
		}
		if *at == telling {
			*at = nothing
		}
	}
	if votes >= quorum && open {
		s.died++
		s.calls[c].phase = dead
		do(Step{"{c}'s process EXITS", Choice, c, 0}, s)
	}
}

// node adds the steps in which a node executes a message of call c.
func (q queue) node(s queueState, c, node int, do func(Step, queueState)) {
	n := &s.nodes[node]
	if s.calls[c].phase == dead && !n.slots[c].onTheWay() {
		q.expire(s, c, node, do)
		return
	}
	for earlier := range c {
		if q.process[earlier] == q.process[c] && n.slots[earlier].isAhead() {
			return // the earlier call's message was sent first
		}
	}
	switch n.slots[c] {
	case acquiring, undoing:
		if s.lost < q.losses && n.slots[c] == acquiring {
			q.lose(s, c, node, do)
		}
		q.executeAcquire(&s, c, node)
		do(Step{"node {n} executes {c}'s acquire", Work, c, node}, s)
	case releasing, turning, telling:
		if s.calls[c].native && n.slots[c] != telling {
			q.executeFirst(s, c, node, do)
		}
		q.executeRelease(&s, c, node)
		do(Step{"node {n} executes {c}'s release", Work, c, node}, s)
	case checking:
		q.executeSecond(s, c, node, do)
	}
}

// executeFirst adds the steps of the first of the two commands: DELEX, or EXISTS in a mutation.
func (q queue) executeFirst(s queueState, c, node int, do func(Step, queueState)) {
	t := s
	n := &t.nodes[node]
	n.slots[c] = checking
	switch {
	case !q.asksFirst:
		n.drop(c)
	case n.queue != 0:
		n.drop(c)
		t.follow(c, node)
	}
	do(Step{"node {n} executes {c}'s first command of two", Work, c, node}, t)
	if !q.exits {
		return
	}
	s.follow(c, node)
	do(Step{"node {n} denies {c}'s DELEX", Choice, c, node}, s)
}

// executeSecond adds the steps of the second. The script may follow although nobody waits: if the answer is lost,
// or the caller must know whose key is there.
func (q queue) executeSecond(s queueState, c, node int, do func(Step, queueState)) {
	n := &s.nodes[node]
	if q.asksFirst {
		n.drop(c)
	}
	if n.queue == 0 || q.asksFirst || q.endsSilently {
		t := s
		t.nodes[node].slots[c] = nothing
		do(Step{"node {n} executes EXISTS, which ends {c}'s release", Work, c, node}, t)
	}
	s.follow(c, node)
	do(Step{"node {n} executes EXISTS, and {c} must send the script", Work, c, node}, s)
}

// follow notes that call c must send the script of its release. It cannot if its process has exited.
func (s *queueState) follow(c, node int) {
	at := &s.nodes[node].slots[c]
	if *at = telling; s.calls[c].phase == dead {
		*at = nothing
	}
}

// drop deletes the key of call c.
func (n *queueNode) drop(c int) {
	if n.lock == mark(c) {
		n.lock = 0
	}
}

// lose loses an acquire, or the reply to it.
func (q queue) lose(s queueState, c, node int, do func(Step, queueState)) {
	s.lost++
	t := s
	t.nodes[node].slots[c] = unheard
	do(Step{"{c}'s acquire is LOST on the way to node {n}", Choice, c, node}, t)
	q.executeAcquire(&s, c, node)
	s.nodes[node].slots[c] = unheard
	do(Step{"node {n} executes {c}'s acquire, the reply is LOST", Choice, c, node}, s)
}

func (q queue) executeAcquire(s *queueState, c, node int) {
	n, call := &s.nodes[node], s.calls[c]
	first := q.isFirst(n.queue, c)
	if call.how != plain {
		n.queue |= bit(c)
		if !q.lookFirst {
			first = q.isFirst(n.queue, c)
		}
	}
	letIn := n.lock == 0 && (n.reads == 0 || q.isReader(c)) && (call.how != strict || first || q.lets)
	if letIn {
		if q.isReader(c) {
			n.reads |= bit(c)
		} else {
			n.lock = mark(c)
		}
		if q.dequeued {
			n.queue &^= bit(c)
		}
	}
	switch {
	case n.slots[c] == undoing:
		n.slots[c] = releasing
		switch {
		case call.phase != waiting:
		case letIn:
			n.freed |= bit(c)
		default:
			q.noteTaken(n, c)
		}
	case !call.phase.inLine() && call.phase != barging:
		n.slots[c] = nothing
	case letIn:
		n.slots[c] = granted
	default:
		n.slots[c] = refused
	}
}

// isFirst reports whether the first in a queue is of c's process, or the queue is empty. For a reader only writers count.
func (q queue) isFirst(queue uint8, c int) bool {
	if q.isReader(c) {
		queue &^= q.shares
		queue &= bit(c) - 1
	}
	return queue == 0 || q.process[bits.TrailingZeros8(queue)] == q.process[c]
}

func (q queue) executeRelease(s *queueState, c, node int) {
	n, call := &s.nodes[node], s.calls[c]
	deleted := n.lock == mark(c) || n.reads&bit(c) != 0
	n.drop(c)
	n.reads &^= bit(c)
	if call.leaves {
		n.queue &^= bit(c)
	}
	if call.enters > 0 {
		n.queue |= bit(int(call.enters) - 1)
	}
	if n.slots[c] == turning {
		n.slots[c] = acquiring
	} else {
		n.slots[c] = nothing
	}
	rollback := call.phase < holding
	switch {
	case q.onlyDeleted && !deleted, q.silentRollback && rollback, n.lock != 0 || n.reads != 0 || n.queue == 0:
		return
	}
	q.tell(s, c, node)
}

// tell wakes the first in line of the process that is first in the queue of a node, and the readers behind a reader. It does not wake
// call c, which has released, nor any call of a process that holds the lock.
func (q queue) tell(s *queueState, c, node int) {
	n := &s.nodes[node]
	head := bits.TrailingZeros8(n.queue)
	q.wake(s, c, node, q.process[head])
	for other := head + 1; other < len(q.process) && q.isReader(head); other++ { // all readers before the first writer
		if n.queue&bit(other) == 0 {
			continue
		}
		if !q.isReader(other) {
			break
		}
		q.wake(s, c, node, q.process[other])
	}
}

func (q queue) wake(s *queueState, c, node int, process uint8) {
	n, w := &s.nodes[node], q.firstInLine(s, process)
	switch {
	case w < 0 || q.holds(s, process):
	case w == c && !q.wakesItself:
	case s.calls[w].phase == trying && q.dropsWakes:
	default:
		n.woken |= bit(w)
	}
}

// expire removes the key or the ticket that a dead call has left on a node.
func (q queue) expire(s queueState, c, node int, do func(Step, queueState)) {
	n := &s.nodes[node]
	if n.lock == mark(c) {
		t := s
		t.nodes[node].lock = 0
		do(Step{"{c}'s key on node {n} runs out", Timer, c, node}, t)
	}
	if n.queue&bit(c) != 0 {
		n.queue &^= bit(c)
		do(Step{"{c} counts as dead on node {n}", Timer, c, node}, s)
	}
}

func sameQueue(s queueState) queueState {
	sortNodes(&s.nodes, func(n *queueNode) uint64 {
		return pack(n.lock, n.queue, n.woken, n.freed, n.taken, n.reads, uint8(n.slots[0]), uint8(n.slots[1]), uint8(n.slots[2]))
	})
	return s
}

func (q queue) show(s queueState) string {
	var b strings.Builder
	for _, n := range s.nodes {
		b.WriteString("  " + string("-ABC"[n.lock]) + " [")
		for c := range q.process {
			if n.queue&bit(c) != 0 {
				b.WriteByte("ABC"[c])
			}
		}
		b.WriteString("]")
	}
	for c := range q.process {
		woken := 0
		for _, n := range s.nodes {
			woken += int(n.woken >> c & 1)
		}
		if woken > 0 {
			fmt.Fprintf(&b, "  %c woken by %d", 'A'+c, woken)
		}
	}
	return b.String()
}
