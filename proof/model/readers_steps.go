package model

import (
	"fmt"
	"math/bits"
)

// This file has the steps of the model of readers.go.

func (q readersModel) next(s readersState, do func(Step, readersState)) {
	for c := range q.wants {
		q.call(s, c, do)
		for n := range s.nodes {
			q.node(s, c, n, do)
		}
	}
}

// call adds the steps of call c.
func (q readersModel) call(s readersState, c int, do func(Step, readersState)) {
	switch s.calls[c].phase {
	case notCome:
		q.come(s, c, do)
	case firstTry, tries:
		if q.answered(&s, c) && !s.followed(c) {
			q.decide(s, c, do)
		}
	case waits:
		if q.mayTry(&s, c) {
			q.goOn(s, c, do)
		}
		if q.mustShow(&s, c) && !s.calls[c].shown && !q.crowded(&s, c) && !q.hidden {
			q.showTicket(s, c, do)
		}
		if q.cancels {
			q.cancel(s, c, do)
		}
	case holds:
		q.hold(s, c, do)
	}
}

// mayTry reports whether call c, which waits, may begin an attempt if it has a reason.
func (q readersModel) mayTry(s *readersState, c int) bool {
	if !q.isFirst(s, c) || q.crowded(s, c) {
		return false
	}
	for o, process := range q.process {
		if process == q.process[c] && q.excludes(s, o, c) && s.calls[o].phase == tries {
			return false
		}
	}
	return true
}

// come begins Lock. A reader may join a young hold. The first attempt goes ahead of the waiters, unless the lock
// is fair or other calls of the process wait in the line of one of its names.
func (q readersModel) come(s readersState, c int, do func(Step, readersState)) {
	call := &s.calls[c]
	for earlier := range c {
		if !q.urgent && q.process[earlier] == q.process[c] && s.calls[earlier].phase == notCome {
			return // the calls of a process begin in order
		}
	}
	call.line = uint8(bits.TrailingZeros8(q.wants[c])) //nolint:gosec // there are few
	if h := q.youngHold(&s, c); h >= 0 {
		q.join(&s, c, h)
		do(Step{"{c} comes and joins", Choice, c, 0}, s)
		return
	}
	behind := q.fair || q.lined
	for k := range maxNames {
		behind = behind || q.wants[c]&bit(k) != 0 && q.line(&s, q.process[c], k) != 0
	}
	if behind {
		before := q.firsts(&s)
		call.phase, call.ready = waits, true
		q.firstsTry(&s, before)
		do(Step{"{c} comes and waits", Choice, c, 0}, s)
		return
	}
	q.begin(&s, c, plain)
	call.phase = firstTry
	do(Step{"{c} comes and tries ahead of the waiters", Choice, c, 0}, s)
}

// youngHold returns the hold that reader c may join when it comes, -1 for none.
func (q readersModel) youngHold(s *readersState, c int) int {
	if q.apart&bit(c) != 0 || q.reads&bit(c) == 0 {
		return -1
	}
	line := q.line(s, q.process[c], int(s.calls[c].line))
	if line&^q.reads != 0 && !q.joinsPastLate {
		return -1
	}
	for h, p := range q.process {
		open := s.calls[h].open || q.joinsEver && q.reads&^q.apart&bit(h) != 0
		if p == q.process[c] && q.wants[h] == q.wants[c] && s.calls[h].phase == holds && open {
			return h
		}
	}
	return -1
}

// join makes reader c a member of hold h.
func (q readersModel) join(s *readersState, c, h int) {
	for o := range c {
		if o == h || !q.excludes(s, o, c) || !s.calls[o].phase.inLine() {
			continue
		}
		behind := q.process[o] == q.process[c] && q.lines(s, o)&q.wants[c] != 0
		if behind || q.late && !s.calls[h].open && q.inQueues(s, o, q.wants[c]) {
			s.overtook = true
		}
	}
	if s.calls[c].queued && !q.ticketStays {
		s.calls[h].drops |= bit(c)
	}
	s.calls[h].members |= bit(c)
	s.calls[c] = readersCall{phase: hasJoined, leaves: s.calls[c].leaves}
	for i := range s.nodes {
		n := &s.nodes[i]
		n.forget(c)
		if !n.slots[c].onTheWay() {
			n.slots[c] = none
		}
	}
}

// joinAll lets the readers that lead the line join the hold of c.
func (q readersModel) joinAll(s *readersState, c int) {
	line := q.line(s, q.process[c], bits.TrailingZeros8(q.wants[c]))
	joining := q.leadingReaders(line)
	if q.joinsPast {
		joining = line & q.reads
	}
	for w := range q.wants {
		if joining&^q.apart&bit(w) != 0 && (s.calls[w].phase == waits || q.joinsTrying) {
			q.join(s, w, c)
		}
	}
}

// crowded reports whether there is no room for another message of call c.
func (q readersModel) crowded(s *readersState, c int) bool {
	for _, n := range s.nodes {
		if n.slots[c].onTheWay() && (q.orderly || n.slots[c] != toRelease) {
			return true
		}
	}
	return s.followed(c)
}

// followed reports whether a message of call c is on its way to a node, and another call of its process has sent one
// behind it.
func (s *readersState) followed(c int) bool {
	for i := range s.nodes {
		if s.nodes[i].after.followed(c) {
			return true
		}
	}
	return false
}

// send puts a message of call c on its way to a node.
func (q readersModel) send(n *readersNode, c int, m readersSlot) {
	if !n.slots[c].onTheWay() {
		n.after.send(c, n.onTheWay()&ofProcess(q.process, c))
	}
	n.slots[c] = m
}

// onTheWay returns the calls that have messages on their way to the node, as bits.
func (n *readersNode) onTheWay() (calls uint8) {
	for c, m := range n.slots {
		if m.onTheWay() {
			calls |= bit(c)
		}
	}
	return calls
}

// arrived notes that the last message of call c has been executed, and its answer.
func (n *readersNode) arrived(c int, answer readersSlot) {
	n.slots[c] = answer
	n.after.arrived(c)
}

// forget drops what call c knows of the node.
func (n *readersNode) forget(c int) {
	for k := range maxNames {
		n.told[k] &^= bit(c)
		n.found[k] &^= bit(c)
	}
}

// begin sends the acquires of an attempt.
func (q readersModel) begin(s *readersState, c int, how manner) {
	call := &s.calls[c]
	call.phase, call.how, call.ready, call.behind, call.before = tries, how, false, false, 0
	for i := range s.nodes {
		n := &s.nodes[i]
		n.forget(c)
		if n.slots[c] == toRelease {
			q.send(n, c, toTurn)
		} else {
			q.send(n, c, toAcquire)
		}
	}
	for o := range q.wants {
		if o != c && s.calls[o].phase.inLine() && q.mustWait(s, o, c, how) {
			call.before |= bit(o)
		}
	}
}

// mustWait reports whether call c must not overtake call o: o stands in a quorum of the queues of a name that both
// want, or before c in a line. A reader without a ticket must not overtake any writer that is queued. Without fair
// mode nothing is promised to multis.
func (q readersModel) mustWait(s *readersState, o, c int, how manner) bool {
	reader := q.reads&bit(c) != 0
	switch {
	case !q.excludes(s, o, c), how == loose, how == plain && !reader:
		return false
	case !q.fair && (q.wants[o] == both || q.wants[c] == both):
		return false
	case q.process[o] == q.process[c]:
		return o < c && how != plain
	}
	return (o < c || how == plain) && q.inQueues(s, o, q.wants[c])
}

// inQueues reports whether call o stands in a quorum of the queues of one of these names.
func (q readersModel) inQueues(s *readersState, o int, names uint8) bool {
	for k := range maxNames {
		count := 0
		for _, n := range s.nodes {
			if names&bit(k) != 0 && n.queue[k]&bit(o) != 0 {
				count++
			}
		}
		if count >= quorum {
			return true
		}
	}
	return false
}

// answered reports whether all nodes have answered the attempt of call c.
func (q readersModel) answered(s *readersState, c int) bool {
	for _, n := range s.nodes {
		if n.slots[c].onTheWay() {
			return false
		}
	}
	return true
}

func (q readersModel) decide(s readersState, c int, do func(Step, readersState)) {
	grants := 0
	for _, n := range s.nodes {
		if n.slots[c] == letIn {
			grants++
		}
	}
	if grants >= quorum {
		q.win(s, c, do)
		return
	}
	q.rollBack(s, c, do)
}

func (q readersModel) win(s readersState, c int, do func(Step, readersState)) {
	call, before := &s.calls[c], q.firsts(&s)
	for o := range q.wants {
		if call.before&bit(o) != 0 && s.calls[o].phase.inLine() {
			s.overtook = true
		}
	}
	then := readersCall{phase: holds, members: bit(c)}
	if call.queued || call.how != plain {
		then.leaves = q.wants[c]
	}
	*call = then
	for i := range s.nodes {
		s.nodes[i].slots[c] = none
		s.nodes[i].forget(c)
	}
	if q.reads&bit(c) != 0 && q.apart&bit(c) == 0 {
		call.open = q.late
		q.joinAll(&s, c)
	}
	q.firstsTry(&s, before)
	do(Step{"{c} HOLDS", Work, c, 0}, s)
}

// rollBack ends an attempt that has failed, and sends its release. The call moves to the line of the
// name for which it waits now.
func (q readersModel) rollBack(s readersState, c int, do func(Step, readersState)) {
	call, before := &s.calls[c], q.firsts(&s)
	switch {
	case call.phase == firstTry, call.how == plain:
		call.ready = true
	default:
		call.queued, call.shown = true, q.fair
	}
	if call.how != plain || !call.queued { // otherwise its ticket is in the queue of the former name
		call.line = q.waitsFor(&s, c)
	}
	call.phase, call.before, call.leaves = waits, 0, 0
	if !q.fair {
		call.leaves = q.wants[c] &^ bit(int(call.line))
	}
	q.firstsTry(&s, before)
	q.release(&s, c)
	do(Step{"{c} fails and takes its grants back", Work, c, 0}, s)
}

// waitsFor returns the name for which call c waits after an attempt: the first of its names that fewer than a quorum of
// nodes found free, or its last name if there is none.
func (q readersModel) waitsFor(s *readersState, c int) (name uint8) {
	for k := range maxNames {
		if q.wants[c]&bit(k) == 0 {
			continue
		}
		name = uint8(k) //nolint:gosec // there are few
		found := 0
		for _, n := range s.nodes {
			if n.found[k]&bit(c) != 0 {
				found++
			}
		}
		if found < quorum {
			break
		}
	}
	return name
}

// showTicket sends a release for a value that no node has. All that this release does is to put the ticket of call c
// in the queues of its names.
func (q readersModel) showTicket(s readersState, c int, do func(Step, readersState)) {
	call := &s.calls[c]
	call.shown, call.queued = true, true
	for k := range maxNames {
		call.enters[k] = mark(c)
	}
	q.release(&s, c)
	do(Step{"{c} shows its ticket", Work, c, 0}, s)
}

// release sends the release of call c after all its earlier messages.
func (q readersModel) release(s *readersState, c int) {
	for i := range s.nodes {
		q.send(&s.nodes[i], c, toRelease)
	}
}

// goOn begins the next attempt of the waiting call c, for the first reason that applies.
func (q readersModel) goOn(s readersState, c int, do func(Step, readersState)) {
	call := s.calls[c]
	woken, free := 0, 0
	for _, n := range s.nodes {
		told, found := n.told[call.line], n.found[call.line]
		if told&bit(c) != 0 {
			woken++
		}
		if (told|found)&bit(c) != 0 {
			free++
		}
	}
	held := q.heldAgainst(&s, c, q.heldWaits)&q.lines(&s, c) != 0 // then it may poll, and nothing else
	switch {
	case held && (q.patient || q.losses > 0):
	case held:
		q.poll(s, c, do)
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
		q.poll(s, c, do)
	}
}

// poll begins an attempt of call c whose only reason is that the retry delay has elapsed.
func (q readersModel) poll(s readersState, c int, do func(Step, readersState)) {
	how := strict
	if !q.fair && q.reads&bit(c) == 0 {
		how = loose
	}
	q.begin(&s, c, how)
	do(Step{"{c}'s retry delay has elapsed", Timer, c, 0}, s)
}

// cancel makes call c stop waiting.
func (q readersModel) cancel(s readersState, c int, do func(Step, readersState)) {
	if q.crowded(&s, c) {
		return
	}
	call, before := &s.calls[c], q.firsts(&s)
	if call.queued {
		call.leaves = q.wants[c]
		q.release(&s, c)
	}
	*call = readersCall{phase: ended, leaves: call.leaves}
	for i := range s.nodes {
		s.nodes[i].forget(c)
	}
	q.firstsTry(&s, before)
	do(Step{"{c} gives up", Choice, c, 0}, s)
}

// hold adds the steps of hold c.
func (q readersModel) hold(s readersState, c int, do func(Step, readersState)) {
	if s.calls[c].open {
		t := s
		t.calls[c].open = false
		do(Step{"the time to join {c} has passed", Timer, c, 0}, t)
	}
	if q.crowded(&s, c) {
		return
	}
	for m := range q.wants {
		if s.calls[c].members&bit(m) != 0 {
			q.unlock(s, c, m, do)
		}
	}
	if q.steps && q.writes(&s, c) && q.wants[c] != both {
		q.stepDown(s, c, do)
	}
}

// stepDown makes the writer c hold as a reader. If the first in its line is a reader, that reader then tries.
func (q readersModel) stepDown(s readersState, c int, do func(Step, readersState)) {
	s.calls[c].low = true
	for i := range s.nodes {
		q.send(&s.nodes[i], c, toStepDown)
	}
	for w := range q.wants {
		if !q.stepOwn && q.process[w] == q.process[c] && q.reads&q.firsts(&s)&bit(w) != 0 && q.wants[w]&q.wants[c] != 0 {
			s.calls[w].ready = true
		}
	}
	do(Step{"{c} STEPS DOWN", Choice, c, 0}, s)
}

// unlock takes call m out of hold c. The last call to leave the hold sends the release. For each of the names the next
// in line either tries right behind the release, or the release puts its ticket into the queue and the nodes decide
// whose turn it is: see queue.unlock. A reader that could already try while the hold lasted keeps its own reason.
func (q readersModel) unlock(s readersState, c, m int, do func(Step, readersState)) {
	if m != c {
		s.calls[m].phase = ended
	}
	s.calls[c].members &^= bit(m)
	if s.calls[c].members != 0 && !q.firstEnds {
		do(Step{"{c} leaves its hold to others", Choice, m, 0}, s)
		return
	}
	shared := !q.writes(&s, c)
	s.calls[c].phase, s.calls[c].open = ended, false
	q.release(&s, c)
	var next uint8
	for w := range q.wants {
		if q.process[w] != q.process[c] || !q.isFirst(&s, w) || q.lines(&s, w)&q.wants[c] == 0 {
			continue
		}
		if shared && q.reads&bit(w) != 0 && !q.forgetsReason {
			continue
		}
		next |= bit(w)
	}
	q.admit(s, c, m, next, 0, do)
}

// admit goes through the calls in next, from call w on. Each of them either tries or enters the queues.
func (q readersModel) admit(s readersState, c, m int, next uint8, w int, do func(Step, readersState)) {
	for w < len(q.wants) && next&bit(w) == 0 {
		w++
	}
	if w == len(q.wants) {
		do(Step{"{c} unlocks" + q.admitted(&s, next), Choice, m, 0}, s)
		return
	}
	if !q.fair {
		t := s
		t.calls[w].ready, t.calls[w].behind = true, true
		q.admit(t, c, m, next, w+1, do)
	}
	lines := q.lines(&s, w) & q.wants[c]
	for k := range maxNames {
		if lines&bit(k) != 0 {
			s.calls[c].enters[k] = mark(w)
			s.calls[w].queued = true
			if q.fair {
				s.calls[w].line = uint8(k) //nolint:gosec // there are few
			}
		}
	}
	s.calls[w].ready, s.calls[w].behind = s.calls[w].phase == tries, false
	q.admit(s, c, m, next, w+1, do)
}

// admitted says what the calls in next do behind a release.
func (q readersModel) admitted(s *readersState, next uint8) (text string) {
	for w := range q.wants {
		if next&bit(w) == 0 {
			continue
		}
		if text += fmt.Sprintf(", %s ", q.callName(w)); s.calls[w].behind {
			text += "tries"
		} else {
			text += "enters"
		}
	}
	return text
}

// node adds the steps in which a node executes a message of call c.
func (q readersModel) node(s readersState, c, node int, do func(Step, readersState)) {
	n := &s.nodes[node]
	if n.after.follows(c) {
		return // another message of the process was sent first
	}
	switch n.slots[c] {
	case toAcquire:
		q.executeAcquire(&s, c, node)
		do(Step{"node {n} executes {c}'s acquire", Work, c, node}, s)
	case toRelease, toTurn:
		t := s
		if q.executeRelease(&s, c, node, true) && s.lost < q.losses {
			q.executeRelease(&t, c, node, false)
			t.lost++
			do(Step{"node {n} executes {c}'s release, its wake-ups are lost", Choice, c, node}, t)
		}
		do(Step{"node {n} executes {c}'s release", Work, c, node}, s)
	case toStepDown:
		q.executeStepDown(&s, c, node)
		do(Step{"node {n} executes {c}'s stepping down", Work, c, node}, s)
	}
}

// writers returns the calls in lock that have a value in the key and not a reader's record, as bits.
func (q readersModel) writers(n *readersNode, lock uint8) uint8 { return lock &^ q.reads &^ n.low }

// keepsBack reports whether a name keeps call c back on a node, because of its key or of tickets in its queue.
func (q readersModel) keepsBack(n *readersNode, c, name int, how manner) bool {
	lock, ahead := n.lock[name], n.queue[name]&(bit(c)-1)
	if q.reads&bit(c) != 0 {
		if q.writers(n, lock) != 0 {
			return true
		}
		if how == plain {
			return n.queue[name]&^q.reads != 0 && !q.passes
		}
		if q.anyWriter {
			ahead = n.queue[name]
		}
		ahead &^= q.reads
		if q.own {
			return ahead != 0
		}
	} else if lock != 0 || how != strict {
		return lock != 0
	}
	for o, p := range q.process {
		if ahead&bit(o) != 0 && p != q.process[c] {
			return true
		}
	}
	return false
}

// executeAcquire sets all keys or none, and puts the ticket in the queues of all names.
func (q readersModel) executeAcquire(s *readersState, c, node int) {
	n, call, want := &s.nodes[node], &s.calls[c], q.wants[c]
	by := maxNames
	for k := range maxNames {
		if want&bit(k) != 0 && by == maxNames && q.keepsBack(n, c, k, call.how) {
			by = k
		}
	}
	for k := range maxNames {
		if want&bit(k) == 0 {
			continue
		}
		if by == maxNames {
			n.lock[k] |= bit(c)
		}
		if call.how != plain {
			n.queue[k] |= bit(c)
		}
		if k < by {
			n.found[k] |= bit(c)
		}
	}
	switch {
	case call.phase != tries && call.phase != firstTry:
		n.arrived(c, none)
	case by == maxNames:
		n.arrived(c, letIn)
	default:
		n.arrived(c, keptBack)
	}
}

// leading returns the calls that a node tells when the name is free, as bits: the first in its queue, or all
// leading readers.
func (q readersModel) leading(queue uint8) uint8 {
	head := queue & -queue
	if head&q.reads == 0 || q.headOnly {
		return head
	}
	return q.leadingReaders(queue)
}

// executeRelease executes the release of call c, and reports whether the node wakes another process. That
// wake-up arrives only if heard is set.
func (q readersModel) executeRelease(s *readersState, c, node int, heard bool) (wakes bool) {
	n, call := &s.nodes[node], &s.calls[c]
	var told [maxReaders]uint8 // by call: the names for which it is told
	for k := range maxNames {
		if q.wants[c]&bit(k) == 0 {
			continue
		}
		left := call.leaves&bit(k) != 0 && n.queue[k]&^q.reads&bit(c) != 0 // a writing ticket leaves
		n.lock[k] &^= bit(c)
		if call.leaves&bit(k) != 0 {
			n.queue[k] &^= bit(c) | call.drops
		}
		if call.enters[k] > 0 {
			n.queue[k] |= bit(int(call.enters[k]) - 1)
		}
		lead := q.leading(n.queue[k])
		mayEnter := lead&q.reads != 0 && q.writers(n, n.lock[k]) == 0
		readersOnly := left && mayEnter && !q.leftSilent && !(q.leftMulti && q.wants[c] == both)
		if q.lastSilent && q.reads&bit(c) != 0 || n.lock[k] != 0 && !readersOnly {
			continue
		}
		for w := range q.wants {
			if lead&bit(w) != 0 {
				told[w] |= bit(k)
			}
		}
	}
	n.low &^= bit(c)
	if n.slots[c] == toTurn {
		n.slots[c] = toAcquire
	} else {
		n.arrived(c, none)
	}
	return q.tell(s, c, node, told, heard)
}

// tell tells calls that names are free on a node. told has these names by call. by is the call whose message the node
// has executed. Its own process learns this from the answer. Other processes learn it from messages, which arrive only
// if heard is set. tell reports whether there are such messages.
func (q readersModel) tell(s *readersState, by, node int, told [maxReaders]uint8, heard bool) (wakes bool) {
	for w := range q.wants {
		wakes = wakes || told[w] != 0 && q.process[w] != q.process[by]
	}
	for w := range q.wants {
		own := q.process[w] == q.process[by]
		switch {
		case told[w] == 0, own && q.ownSilent, own && q.oneAnswer && wakes, !own && !heard:
		default:
			q.wake(s, q.process[w], by, node, told[w])
		}
	}
	return wakes
}

// wake wakes the first calls of a process that want one of the free names. It skips a name if the process has it by a
// hold that excludes the call. It never wakes the releasing call, by.
func (q readersModel) wake(s *readersState, process uint8, by, node int, free uint8) {
	for w := range q.wants {
		if w == by || q.process[w] != process || !q.isFirst(s, w) {
			continue
		}
		for k := range maxNames {
			if free&q.wants[w]&^q.heldAgainst(s, w, q.heldDrops)&bit(k) != 0 {
				s.nodes[node].told[k] |= bit(w)
			}
		}
	}
}

// executeStepDown turns the value of call c into a record, takes its ticket out of the queue, and tells the
// leading readers of other processes.
func (q readersModel) executeStepDown(s *readersState, c, node int) {
	n := &s.nodes[node]
	k := bits.TrailingZeros8(q.wants[c])
	if n.lock[k]&bit(c) != 0 {
		n.low |= bit(c)
	}
	if !q.stepStays {
		n.queue[k] &^= bit(c)
	}
	n.arrived(c, none)
	var told [maxReaders]uint8
	for w := range q.wants {
		leads := q.leading(n.queue[k])&q.reads&bit(w) != 0
		if leads && q.process[w] != q.process[c] && q.writers(n, n.lock[k]) == 0 && !q.stepSilent {
			told[w] = bit(k)
		}
	}
	q.tell(s, c, node, told, true)
}
