package model

import (
	"fmt"
	"math/bits"
)

// This file has the steps of the model of semaphore.go.

func (q semaphore) next(s semaphoreState, do func(Step, semaphoreState)) {
	for c := range q.weights {
		q.call(s, c, do)
		for n := range s.nodes {
			q.node(s, c, n, do)
		}
	}
}

// call adds the steps of call c.
func (q semaphore) call(s semaphoreState, c int, do func(Step, semaphoreState)) {
	switch s.calls[c].phase {
	case away:
		q.come(s, c, do)
	case barging, trying:
		if q.decided(&s, c) && !s.followed(c) {
			q.decide(s, c, do)
		}
	case waiting:
		if q.mayTry(&s, c) {
			q.goOn(s, c, do)
		}
		if q.cancels {
			q.cancel(s, c, do)
		}
	case holding:
		if q.keeps&bit(c) == 0 && !s.followed(c) {
			q.unlock(s, c, do)
		}
	}
}

// come begins Lock. The first attempt goes ahead of the waiters, unless the semaphore is fair or other calls of the
// process wait.
func (q semaphore) come(s semaphoreState, c int, do func(Step, semaphoreState)) {
	for earlier := range c {
		if q.process[earlier] == q.process[c] && s.calls[earlier].phase == away {
			return // the calls of a process begin in order
		}
	}
	if q.fair || q.lined || q.firstInLine(&s, q.process[c]) >= 0 {
		s.calls[c].phase, s.calls[c].ready = waiting, true
		do(Step{"{c} comes and waits", Choice, c, 0}, s)
		return
	}
	q.begin(s, c, plain, "{c} comes and tries ahead of the waiters", Choice, func(step Step, t semaphoreState) {
		t.calls[c].phase = barging
		do(step, t)
	})
}

// mayTry reports whether call c, which waits, may begin an attempt if it has a reason.
func (q semaphore) mayTry(s *semaphoreState, c int) bool {
	if q.firstInLine(s, q.process[c]) != c || q.crowded(s, c) {
		return false
	}
	return !q.heldWaits || !q.holdsAny(s, q.process[c])
}

// holdsAny reports whether a process holds permits.
func (q semaphore) holdsAny(s *semaphoreState, process uint8) bool {
	for c, p := range q.process {
		if p == process && s.calls[c].phase == holding {
			return true
		}
	}
	return false
}

// crowded reports whether there is no room for another message of call c.
func (q semaphore) crowded(s *semaphoreState, c int) bool {
	for _, n := range s.nodes {
		if n.sent[c] != 0 && (q.orderly || n.sent[c] != rollingBack) {
			return true
		}
	}
	return s.followed(c)
}

// followed reports whether a message of call c is on its way to a node, and another call of its process has sent one
// behind it.
func (s *semaphoreState) followed(c int) bool {
	for i := range s.nodes {
		if s.nodes[i].after.followed(c) {
			return true
		}
	}
	return false
}

// send puts a message of call c on its way to a node.
func (q semaphore) send(n *semaphoreNode, c int, m messages) {
	if n.sent[c] == 0 {
		var before uint8
		for o := range q.weights {
			if n.sent[o] != 0 {
				before |= bit(o)
			}
		}
		n.after.send(c, before&ofProcess(q.process, c))
	}
	n.sent[c] |= m
}

// arrived notes that a message of call c has been executed.
func (n *semaphoreNode) arrived(c int, m messages) {
	n.sent[c] &^= m
	if n.sent[c] == 0 {
		n.after.arrived(c)
	}
}

// forget drops what call c knows of the node.
func (n *semaphoreNode) forget(c int) {
	n.told &^= bit(c)
	n.found &^= bit(c)
	n.hangUp(c)
}

// hangUp drops the answer of the node to the open attempt of call c.
func (n *semaphoreNode) hangUp(c int) {
	n.heard &^= bit(c)
	n.got[c], n.free[c] = 0, 0
}

// begin adds the steps in which an attempt of call c begins: one for each order of the slots that it may choose.
func (q semaphore) begin(s semaphoreState, c int, how manner, text string, kind Kind, do func(Step, semaphoreState)) {
	call := &s.calls[c]
	choices := q.permits // how many slots may come first in the order; 0: the order stays as it is
	switch {
	case call.begun && (!q.anySlot || call.knows):
		choices = 0
	case q.holds == nil && !s.anyBegun(): // all slots are still alike
		choices = 1
	}
	call.phase, call.how, call.begun, call.ready = trying, how, true, false
	for i := range s.nodes {
		n := &s.nodes[i]
		n.forget(c)
		q.send(n, c, asksSlots)
	}
	for o := range c {
		if how == strict && s.calls[o].phase.inLine() && (q.process[o] == q.process[c] || q.places(&s, o) >= quorum) {
			call.before |= bit(o)
		}
	}
	if choices == 0 {
		do(Step{text, kind, c, 0}, s)
		return
	}
	for pref := range choices {
		t := s
		t.calls[c].order = q.from(pref)
		do(Step{fmt.Sprintf("%s, slot %d first", text, pref), kind, c, 0}, t)
	}
}

// anyBegun reports whether any call has made an attempt.
func (s *semaphoreState) anyBegun() bool {
	for _, call := range s.calls {
		if call.begun {
			return true
		}
	}
	return false
}

// places returns on how many nodes call o has a place in the queue. It has one by its own ticket. In fair mode it also
// has one by the ticket of an earlier call of its process, because its own ticket will take that place.
func (q semaphore) places(s *semaphoreState, o int) (count int) {
	for _, n := range s.nodes {
		has := n.queue&bit(o) != 0
		for t := range o {
			call := s.calls[t]
			keeps := call.phase.inLine() || call.phase >= holding && call.enters > 0 && int(call.enters) <= o+1
			has = has || q.fair && q.process[t] == q.process[o] && n.queue&bit(t) != 0 && keeps
		}
		if has {
			count++
		}
	}
	return count
}

// from returns the order that begins with slot k and goes on in a circle.
func (q semaphore) from(k int) (o order) {
	for i := range q.permits {
		o[i] = uint8((k + i) % q.permits) //nolint:gosec // there are few
	}
	return o
}

// putFirst returns the order with these slots before the others.
func (q semaphore) putFirst(o order, slots uint8) (then order) {
	at := 0
	for _, first := range [...]bool{true, false} {
		for _, k := range o[:q.permits] {
			if (slots&bit(int(k)) != 0) == first {
				then[at] = k
				at++
			}
		}
	}
	return then
}

// granted returns the slots that most nodes have granted to the open attempt of call c, and how many nodes these are.
func (s *semaphoreState) granted(c int) (slots uint8, most int) {
	for _, n := range s.nodes {
		same := 0
		for _, o := range s.nodes {
			if o.got[c] == n.got[c] {
				same++
			}
		}
		if n.got[c] != 0 && same > most {
			slots, most = n.got[c], same
		}
	}
	return slots, most
}

// decided reports whether the attempt of call c is over: it is won, or no slots can reach a quorum any more, or all
// nodes have answered.
func (q semaphore) decided(s *semaphoreState, c int) bool {
	open := 0
	for _, n := range s.nodes {
		if n.sent[c]&rollingBack != 0 {
			return false // there is no room for another message
		}
		if n.heard&bit(c) == 0 {
			open++
		}
	}
	_, most := s.granted(c)
	return open == 0 || q.early && (most >= quorum || most+open < quorum)
}

func (q semaphore) decide(s semaphoreState, c int, do func(Step, semaphoreState)) {
	if slots, nodes := s.granted(c); nodes >= quorum {
		q.win(s, c, slots, do)
		return
	}
	q.rollBack(s, c, do)
}

// win begins the hold of call c. It sends its giving-back, unless it has entered no queue and knows of no strays.
func (q semaphore) win(s semaphoreState, c int, won uint8, do func(Step, semaphoreState)) {
	for o := range c {
		if s.calls[c].before&bit(o) != 0 && s.calls[o].phase.inLine() {
			s.overtook = true
		}
	}
	q.passOn(&s, c)
	call, strays := &s.calls[c], false
	for _, n := range s.nodes {
		strays = strays || n.got[c]&^won != 0
	}
	queued := call.queued || call.how != plain
	*call = semaphoreCall{phase: holding, how: call.how, begun: true, order: call.order, won: won, leaves: queued}
	q.nextTries(&s, c)
	if q.fair && !q.nextHidden {
		if next := q.firstInLine(&s, q.process[c]); next >= 0 {
			call.enters = mark(next)
			s.calls[next].queued = true
		}
	}
	for i := range s.nodes {
		n := &s.nodes[i]
		if queued && !q.winStays || strays && !q.straysStay {
			q.send(n, c, settles)
		}
		n.forget(c)
	}
	do(Step{"{c} HOLDS", Work, c, 0}, s)
}

// passOn passes on the place of call c in the queues, before c leaves its line. In fair mode the calls behind c in the
// line keep that place, so later calls must not overtake them either. Only an attempt that began before c had its place
// may overtake them.
func (q semaphore) passOn(s *semaphoreState, c int) {
	for o := c + 1; q.fair && o < len(q.weights); o++ {
		if q.process[o] != q.process[c] || !s.calls[o].phase.inLine() || q.places(s, o) < quorum {
			continue
		}
		for later := o + 1; later < len(q.weights); later++ {
			if call := &s.calls[later]; call.phase == waiting || call.phase == trying && call.before&bit(c) != 0 {
				call.before |= bit(o)
			}
		}
	}
}

// nextTries gives a reason to try to the call that is the first in line now that call c has left it.
func (q semaphore) nextTries(s *semaphoreState, c int) {
	if next := q.firstInLine(s, q.process[c]); next > c {
		s.calls[next].ready = true
	}
}

// rollBack ends an attempt that has failed, and sends its release. If as many slots as the call wants were free
// together on a quorum of the nodes that have let it in, it tries again at once, with these slots first. Nobody else
// would tell the call that these slots are free.
func (q semaphore) rollBack(s semaphoreState, c int, do func(Step, semaphoreState)) {
	call := &s.calls[c]
	if call.phase == barging {
		call.ready = true
	} else {
		call.queued = true
	}
	first := q.freeTogether(&s, c)
	for i := range s.nodes {
		n := &s.nodes[i]
		if n.got[c] != 0 {
			n.found |= bit(c)
		}
		n.hangUp(c)
		m := rollingBack
		if n.sent[c]&asksSlots != 0 {
			m = settles
		}
		q.send(n, c, m)
	}
	if first != 0 && !q.splitSleeps {
		call.ready = true
	}
	if !q.sameOrder {
		call.order, call.knows = q.putFirst(call.order, first), q.anySlot && first != 0
	}
	call.phase, call.leaves = waiting, false
	if !q.fair {
		call.before = 0
	}
	do(Step{"{c} fails and takes its grants back", Work, c, 0}, s)
}

// freeTogether returns as many slots as call c wants that were free together on a quorum of the nodes that have let
// in its attempt, 0 if there are none.
func (q semaphore) freeTogether(s *semaphoreState, c int) (best uint8) {
	if q.oneByOne {
		return q.freeEach(s, c)
	}
	for i := range s.nodes {
		for j := range i {
			var slots uint8
			for _, k := range s.calls[c].order[:q.permits] {
				if bits.OnesCount8(slots) < int(q.weights[c]) {
					slots |= s.nodes[i].free[c] & s.nodes[j].free[c] & bit(int(k))
				}
			}
			if bits.OnesCount8(slots) == int(q.weights[c]) {
				best = max(best, slots)
			}
		}
	}
	return best
}

// freeEach replaces freeTogether with the flaw oneByOne: each slot was free on a quorum of nodes, but the quorums may
// differ.
func (q semaphore) freeEach(s *semaphoreState, c int) (slots uint8) {
	for k := range q.permits {
		free := 0
		for _, n := range s.nodes {
			free += int(n.free[c] >> k & 1)
		}
		if free >= quorum {
			slots |= bit(k)
		}
	}
	if bits.OnesCount8(slots) < int(q.weights[c]) {
		return 0
	}
	return slots
}

// goOn begins the next attempt of the waiting call c, for the first reason that applies.
func (q semaphore) goOn(s semaphoreState, c int, do func(Step, semaphoreState)) {
	woken, free := 0, 0
	for _, n := range s.nodes {
		if n.told&bit(c) != 0 {
			woken++
		}
		if (n.told|n.found)&bit(c) != 0 {
			free++
		}
	}
	switch {
	case s.calls[c].ready:
		q.begin(s, c, strict, "{c} tries", Work, do)
	case woken > 0 && free >= quorum:
		q.begin(s, c, strict, "{c} wakes up and tries", Work, do)
	case !q.patient:
		how := strict
		if !q.fair {
			how = loose
		}
		q.begin(s, c, how, "{c}'s retry delay has elapsed", Timer, do)
	}
}

// cancel makes call c stop waiting.
func (q semaphore) cancel(s semaphoreState, c int, do func(Step, semaphoreState)) {
	if q.crowded(&s, c) {
		return
	}
	call := &s.calls[c]
	wasFirst := q.firstInLine(&s, q.process[c]) == c
	if call.queued {
		call.leaves = true
		for i := range s.nodes {
			q.send(&s.nodes[i], c, rollingBack)
		}
	}
	*call = semaphoreCall{phase: gone, begun: call.begun, leaves: call.leaves}
	for i := range s.nodes {
		s.nodes[i].forget(c)
	}
	for o := range s.calls { // the calls behind c have lost their place
		s.calls[o].before &^= ofProcess(q.process, c) &^ q.queuedCalls(&s)
	}
	if wasFirst {
		q.nextTries(&s, c)
	}
	do(Step{"{c} gives up", Choice, c, 0}, s)
}

// queuedCalls returns the calls that stand in a quorum of queues, as bits.
func (q semaphore) queuedCalls(s *semaphoreState) (calls uint8) {
	for c := range q.weights {
		count := 0
		for _, n := range s.nodes {
			count += int(n.queue >> c & 1)
		}
		if count >= quorum {
			calls |= bit(c)
		}
	}
	return calls
}

// unlock ends the hold of call c.
func (q semaphore) unlock(s semaphoreState, c int, do func(Step, semaphoreState)) {
	s.calls[c].phase = gone
	for i := range s.nodes {
		n := &s.nodes[i]
		if q.unlockEnds {
			n.sent[c] &^= settles
		}
		q.send(n, c, unlocks)
	}
	do(Step{"{c} unlocks", Choice, c, 0}, s)
}

// node adds the steps in which a node executes a message of call c.
func (q semaphore) node(s semaphoreState, c, node int, do func(Step, semaphoreState)) {
	n := &s.nodes[node]
	sent := n.sent[c]
	if n.after.follows(c) || sent == 0 {
		return
	}
	if q.swaps && sent == settles|unlocks {
		t := s
		q.executeUnlock(&t, c, node)
		do(Step{"node {n} executes {c}'s unlock first", Work, c, node}, t)
	}
	switch sent & -sent {
	case rollingBack:
		q.executeRelease(&s, c, node, rollingBack)
		do(Step{"node {n} executes {c}'s release", Work, c, node}, s)
	case asksSlots:
		q.executeAcquire(&s, c, node)
		do(Step{"node {n} executes {c}'s acquire", Work, c, node}, s)
	case settles:
		q.executeRelease(&s, c, node, settles)
		do(Step{"node {n} executes {c}'s giving-back", Work, c, node}, s)
	case unlocks:
		q.executeUnlock(&s, c, node)
		do(Step{"node {n} executes {c}'s unlock", Work, c, node}, s)
	}
}

// isFirst reports whether the first in a queue is of c's process, or the queue is empty.
func (q semaphore) isFirst(queue uint8, c int) bool {
	return queue == 0 || q.process[bits.TrailingZeros8(queue)] == q.process[c]
}

// freeSlots returns the slots that are free on a node, as bits.
func (q semaphore) freeSlots(n *semaphoreNode) (free uint8) {
	for k := range q.permits {
		if n.slots[k] == 0 {
			free |= bit(k)
		}
	}
	return free
}

// executeAcquire takes the first free slots in the order of the call, as many as it wants, or none.
func (q semaphore) executeAcquire(s *semaphoreState, c, node int) {
	n, call := &s.nodes[node], &s.calls[c]
	if call.how != plain {
		n.queue |= bit(c)
	}
	free, weight := q.freeSlots(n), int(q.weights[c])
	var got uint8
	if bits.OnesCount8(free) >= weight && (call.how != strict || q.isFirst(n.queue, c) || q.passes) {
		for _, k := range call.order[:q.permits] {
			if free&bit(int(k)) != 0 && bits.OnesCount8(got) < weight {
				got |= bit(int(k))
				n.slots[k] = mark(c)
			}
		}
	}
	switch {
	case call.phase.inLine() && n.sent[c]&settles == 0, call.phase == barging:
		n.heard |= bit(c)
		if q.brief && got == bit(int(call.order[0])) {
			free = got
		}
		if n.got[c] = got; got != 0 || q.countsRefused {
			n.free[c] = free
		}
	case call.phase == waiting && got != 0: // it has failed, and the release follows
		n.found |= bit(c)
	}
	n.arrived(c, asksSlots)
	switch {
	case call.won == 0 && n.sent[c]&settles != 0:
		n.sent[c] = n.sent[c]&^settles | rollingBack
	case call.won != 0 && got&^call.won != 0 && !q.lateStays && !(q.lateUnlocked && call.phase == gone):
		q.send(n, c, settles) // the answer names strays
	}
	if got != 0 && q.grantLeaves {
		n.queue &^= bit(c)
		q.tell(s, c, node)
	}
}

// executeRelease executes the release of an attempt that has failed, or the giving-back of a call that has won.
func (q semaphore) executeRelease(s *semaphoreState, c, node int, m messages) {
	n, call := &s.nodes[node], &s.calls[c]
	changed := call.leaves || call.enters > 0
	for k := range q.permits {
		if n.slots[k] == mark(c) && call.won&bit(k) == 0 {
			n.slots[k], changed = 0, true
		}
	}
	switch {
	case call.leaves:
		n.queue &^= bit(c)
	case call.queued && q.grantLeaves:
		n.queue |= bit(c)
	}
	if call.enters > 0 {
		n.queue |= bit(int(call.enters) - 1)
	}
	n.arrived(c, m)
	if changed && q.freeSlots(n) != 0 && !(q.winSilent && call.won != 0) && !(q.failSilent && call.won == 0) {
		q.tell(s, c, node)
	}
}

// executeUnlock executes an unlock. It tells the first in the queue if a slot that the unlock names is free then.
func (q semaphore) executeUnlock(s *semaphoreState, c, node int) {
	n, call := &s.nodes[node], &s.calls[c]
	for k := range q.permits {
		if n.slots[k] == mark(c) && call.won&bit(k) != 0 {
			n.slots[k] = 0
		}
	}
	if q.winStays && call.leaves {
		n.queue &^= bit(c)
	}
	n.arrived(c, unlocks)
	if q.freeSlots(n)&call.won != 0 && !q.unlockSilent {
		q.tell(s, c, node)
	}
}

// tell wakes the first in line of the process that is first in the queue of a node. If this is the process of call c,
// it learns that from the answer to c. Call c itself, which has released, is not woken.
func (q semaphore) tell(s *semaphoreState, c, node int) {
	n := &s.nodes[node]
	if n.queue == 0 || q.allFree && bits.OnesCount8(q.freeSlots(n)) < q.permits {
		return
	}
	process := q.process[bits.TrailingZeros8(n.queue)]
	w := q.firstInLine(s, process)
	switch {
	case w < 0, w == c, q.ownSilent && process == q.process[c], q.heldDrops && q.holdsAny(s, process):
	default:
		n.told |= bit(w)
	}
}
