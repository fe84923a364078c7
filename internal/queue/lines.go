package queue

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/lease"
	"github.com/seed14bd9ef4/redsync/internal/quorum"
)

// lines are the waiters of this process, by name. They decide which of them talks to the nodes.
type lines struct {
	count   atomic.Int64 // can be read without mu
	tickets atomic.Uint32

	mu     sync.Mutex // guards the lines, and fields of waiters and of the sharing where a comment says so
	byName map[string]*line
	sweep  *time.Timer // removes empty lines

	// silent has the locks that were found to be released without a message: by redsync v4, or on a node whose user may
	// not publish.
	silent quorum.Recent
}

func (ls *lines) isFirstLocked(w *waiter) bool {
	for _, name := range w.stands() {
		if ls.byName[name].first() != w {
			return false
		}
	}
	return true
}

// showsLocked reports whether w shows its ticket while it may not try: if it is fair, and the first for one of several
// names. So no later call of another process gets that name before w.
func (ls *lines) showsLocked(w *waiter) bool {
	return len(w.names) > 1 && w.terms.Fair && slices.ContainsFunc(w.names, func(name string) bool {
		return ls.byName[name].first() == w
	})
}

func (ls *lines) pacesLocked(w *waiter) bool {
	for _, name := range w.stands() {
		if ls.byName[name].paces(w) {
			return true
		}
	}
	return false
}

func (ls *lines) heldForLocked(w *waiter) (left time.Duration) {
	for _, name := range w.stands() {
		left = max(left, ls.byName[name].heldFor())
	}
	return left
}

// collidesLocked reports whether another waiter that shares a name with w is trying. The two would take grants from
// each other.
func (ls *lines) collidesLocked(w *waiter) bool {
	for _, name := range w.names {
		if l := ls.byName[name]; l.trying > 0 && len(l.several) > 0 {
			return true
		}
	}
	return false
}

func (ls *lines) beginTryLocked(w *waiter) {
	w.state = trying
	for _, name := range w.names {
		ls.byName[name].trying++
	}
}

// endTryLocked lets the waiters go on that collided with w.
func (ls *lines) endTryLocked(w *waiter, to state) {
	was := w.state
	w.state = to
	if was != trying {
		return
	}
	for _, name := range w.names {
		l := ls.byName[name]
		if l == nil {
			continue
		}
		l.trying--
		if len(w.names) == 1 && len(l.several) == 0 { // nobody collided with w
			continue
		}
		if first := l.first(); first != nil {
			first.lookAgain()
		}
		for _, other := range l.several {
			other.lookAgain()
		}
	}
}

// mayBarge reports whether a first attempt may be made: nobody stands in the lines of these names, and none of them
// remembers waiters of other processes.
func (ls *lines) mayBarge(names []string) bool {
	if ls.count.Load() == 0 {
		return true
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, name := range names {
		if l := ls.byName[name]; l != nil && (l.first() != nil || l.others) {
			return false
		}
	}
	return true
}

// whyTaken returns the last outcome in a line of these names in which somebody waits. Its Kind is Waiting if there was
// no attempt, and NotAsked if nobody waits.
func (ls *lines) whyTaken(names []string) lease.Outcome {
	if ls.count.Load() == 0 {
		return lease.Outcome{}
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, name := range names {
		if l := ls.byName[name]; l.first() != nil {
			return l.why
		}
	}
	return lease.Outcome{}
}

// join puts w in its lines. why is the outcome of its first attempt. w tries at once, unless nodes failed or were late.
func (ls *lines) join(w *waiter, why lease.Outcome) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	asked, answered := why.Kind != lease.NotAsked, why.Taken()
	w.heardTooFew = asked && !answered
	w.place = ls.tickets.Add(1)
	if len(w.names) > 1 {
		for _, name := range w.names {
			l := ls.lineLocked(name)
			before := l.first()
			l.several = append(l.several, w)
			l.firstChanged(before)
		}
	}
	if answered && len(w.names) > 1 {
		w.at = KeptBackBy(why)
	}
	w.agenda.ready = !asked || answered
	for _, name := range w.stands() {
		l := ls.lineLocked(name)
		l.put(w)
		if asked {
			l.why = why
			l.why.Told = nil // only observers of w's call were told of it
		}
	}
}

// moveLocked makes w wait for another of its names. Unless queued says that nodes have its ticket for that name, it
// asks at once: the name may be free by now.
func (ls *lines) moveLocked(w *waiter, to int, queued bool) {
	if to == w.at {
		return
	}
	if w.terms.Fair {
		w.at = to
	} else {
		from := w.names[w.at]
		l := ls.byName[from]
		before := l.first()
		l.take(w)
		ls.leftLocked(from, before)
		w.at = to
		ls.byName[w.names[to]].put(w)
	}
	w.agenda.graceEnd = time.Time{}
	if w.news[to].woken != 0 {
		w.beginGraceLocked()
	}
	if w.news[to].ended || !queued {
		w.markReadyLocked()
	}
}

// reconsiderLocked moves w after a late answer to its last attempt. Otherwise w could wait for a name that is already
// free on a quorum.
func (ls *lines) reconsiderLocked(w *waiter) {
	if w.state == waiting && w.sight != nil && w.isQueued() {
		ls.moveLocked(w, w.sight.keptBackBy(w.at), w.terms.Fair)
	}
}

func (ls *lines) lineLocked(name string) *line {
	l := ls.byName[name]
	if l == nil {
		l = &line{why: lease.Outcome{Kind: lease.Waiting}}
		l.waiters = l.roomOfWaiters[:0]
		if ls.byName == nil {
			ls.byName = make(map[string]*line)
		}
		ls.byName[name] = l
		ls.count.Add(1)
	}
	return l
}

// leave takes w out of its line, unless it was handed the lock. holder is the lease that it has acquired, if any.
func (ls *lines) leave(w *waiter, holder *lease.Lease) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if w.state != served {
		ls.removeLocked(w, holder)
	}
}

func (ls *lines) removeLocked(w *waiter, holder *lease.Lease) {
	for _, name := range w.names {
		l := ls.byName[name]
		before := l.first()
		if len(w.names) > 1 {
			l.several = slices.DeleteFunc(l.several, func(other *waiter) bool { return other == w })
		}
		if slices.Contains(w.stands(), name) {
			l.take(w)
		}
		if holder != nil {
			l.holder = holder
		}
		ls.leftLocked(name, before)
	}
	to := gone
	if holder != nil {
		to = served
		w.leaveQueuesWithLocked(holder)
	}
	ls.endTryLocked(w, to)
}

func (ls *lines) leftLocked(name string, before *waiter) {
	l := ls.byName[name]
	if l.first() == nil {
		ls.emptiedLocked(name, l)
		return
	}
	l.firstChanged(before)
}

// prompt lets the first poll in each line that w paces.
func (ls *lines) prompt(w *waiter) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if w.state == served { // it has left meanwhile
		return
	}
	for _, name := range w.stands() {
		l := ls.byName[name]
		if first := l.first(); l.paces(w) && first.state != trying {
			first.agenda.polls = true
			first.lookAgain()
		}
	}
}

func (ls *lines) setMean(w *waiter, delay time.Duration) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	former := w.mean
	w.mean = delay
	if w.state == served { // it has left meanwhile
		return
	}
	for _, name := range w.stands() {
		ls.byName[name].delayChanged(w, former)
	}
}

// triedLocked notes that an attempt of w has ended. A winner stays in the state trying until it leaves its line, so
// that it is not handed the lock as well.
func (ls *lines) triedLocked(w *waiter, won, heard bool, took time.Duration) {
	for _, name := range w.stands() {
		l := ls.byName[name]
		before := l.first()
		w.heardTooFew = !heard
		if !won {
			ls.endTryLocked(w, waiting)
		}
		if heard {
			l.heardWithin(took)
		}
		l.firstChanged(before)
	}
}

// emptiedLocked removes an empty line. If it remembers waiters of other processes, it stays for a while.
func (ls *lines) emptiedLocked(name string, l *line) {
	switch {
	case len(l.several) > 0:
		return
	case !l.others:
		delete(ls.byName, name)
		ls.count.Add(-1)
		return
	}
	l.empty, l.holder = time.Now(), nil
	if ls.sweep == nil {
		ls.sweep = time.AfterFunc(aliveFor, ls.removeEmpty)
	}
}

// removeEmpty removes the lines that have been empty for aliveFor: what they remember is out of date.
func (ls *lines) removeEmpty() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.sweep = nil
	for name, l := range ls.byName {
		switch {
		case l.first() != nil, len(l.several) > 0:
		case time.Since(l.empty) >= aliveFor:
			delete(ls.byName, name)
			ls.count.Add(-1)
		case ls.sweep == nil:
			ls.sweep = time.AfterFunc(aliveFor, ls.removeEmpty)
		}
	}
}

// tellOthers notes whether a release has found waiters of other processes.
func (ls *lines) tellOthers(name string, others bool) {
	if !others && ls.count.Load() == 0 {
		return
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.byName[name]
	if l == nil {
		if !others {
			return
		}
		l = ls.lineLocked(name)
	}
	l.others = others
	if l.first() == nil {
		ls.emptiedLocked(name, l)
	}
}

func (ls *lines) nudge(name string) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.eachFirstLocked(name, (*waiter).nudgeLocked)
}

// wake notes that the lock is free on node i, and that it is the turn of this process. message is false if a reply
// tells that. except, which may be nil, is left out.
func (ls *lines) wake(name string, i int, message bool, except *waiter) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.byName[name].heldFor() > 0 {
		return
	}
	ls.eachFirstLocked(name, func(w *waiter, name string) {
		if w != except {
			w.wakeLocked(name, i, message)
		}
	})
}

func (ls *lines) nudgeAll() { ls.eachFirstOfFree((*waiter).nudgeLocked) }

func (ls *lines) lookAgain() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, l := range ls.byName {
		for _, w := range slices.Concat(l.waiters, l.several) {
			w.lookAgain()
		}
	}
}

// wakeAll wakes waiters as if by messages of node i, because some may have been missed.
func (ls *lines) wakeAll(i int) {
	ls.eachFirstOfFree(func(w *waiter, name string) { w.wakeLocked(name, i, true) })
}

func (ls *lines) eachFirstOfFree(do func(w *waiter, name string)) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(ls.byName)) { // sorted for tests
		if ls.byName[name].heldFor() == 0 {
			ls.eachFirstLocked(name, do)
		}
	}
}

// eachFirstLocked calls do for each waiter that wants the name and may talk to the nodes, in whichever line it stands.
func (ls *lines) eachFirstLocked(name string, do func(w *waiter, name string)) {
	l := ls.byName[name]
	if l == nil {
		return
	}
	if w := l.first(); w != nil && len(w.names) == 1 {
		do(w, name)
	}
	for _, w := range l.several {
		if ls.isFirstLocked(w) {
			do(w, name)
		}
	}
}

// silentFor is how long waiters poll for a lock that was found free without a message.
const silentFor = 10 * time.Second

// A line holds the waiters of this process for one name, in the order of their tickets.
//
// Waiters with different settings stand in one line. The first must not keep the others from a free lock by its short node
// deadline or its long retry delay: see first and pacer.
//
// A waiter for several names stands in the line of the name that keeps it back, in fair mode in the lines of all. It
// talks to the nodes only if it is the first in all its lines. These have the same order, so that no two waiters stand
// in each other's way.
type line struct {
	waiters []*waiter
	readers int           // among the waiters
	several []*waiter     // want this name and others, in whichever line they stand
	trying  int           // how many waiters for this name are
	pacer   *waiter       // has the shortest retry delay
	holder  *lease.Lease  // of a waiter for this name, until it is released; it may be over
	others  bool          // other processes waited when the lock was last released
	why     lease.Outcome // of the last attempt that its context has not cut, without Told
	empty   time.Time     // since when nobody waits

	roomOfWaiters [1]*waiter
}

// first returns the waiter at the head of the line. If its last attempt heard no quorum, the next waiter with a longer
// node deadline takes its place, except among fair waiters for several names, which must have one place in all their
// lines. l may be nil.
func (l *line) first() *waiter {
	if l == nil || len(l.waiters) == 0 {
		return nil
	}
	first := l.waiters[0]
	if !first.heardTooFew || first.state == trying || slices.ContainsFunc(l.several, (*waiter).isFair) {
		return first
	}
	for _, w := range l.waiters[1:] {
		if w.terms.Timing.NodeTimeout <= first.terms.Timing.NodeTimeout {
			continue
		}
		first = w
		if !w.heardTooFew || w.state == trying {
			break
		}
	}
	return first
}

// put adds w in its place. A new first tries at once: it does not know what the former one was told.
func (l *line) put(w *waiter) {
	before := l.first()
	i, _ := slices.BinarySearchFunc(l.waiters, w, (*waiter).compare)
	l.waiters = slices.Insert(l.waiters, i, w)
	if w.shares() {
		l.readers++
	}
	if l.pacer == nil || w.mean < l.pacer.mean {
		l.pacer = w
	}
	if l.first() != w {
		return
	}
	if before != nil {
		w.markReadyLocked()
	}
	if l.pacer != w {
		l.pacer.lookAgain()
	}
}

func (l *line) take(w *waiter) {
	i := slices.Index(l.waiters, w)
	l.waiters = slices.Delete(l.waiters, i, i+1)
	if w.shares() {
		l.readers--
	}
	if l.pacer == w {
		l.findPacer(w.mean)
	}
}

func (l *line) takeServed() {
	isServed := func(w *waiter) bool { return w.state == served }
	n := len(l.waiters)
	l.waiters = slices.DeleteFunc(l.waiters, isServed)
	l.readers -= n - len(l.waiters)
	if isServed(l.pacer) {
		l.findPacer(l.pacer.mean)
	}
}

func (l *line) hasWriter() bool {
	return l != nil && (len(l.several) > 0 || l.readers < len(l.waiters))
}

// paces reports whether the retry delay of w, and not that of the first, decides when the first polls.
func (l *line) paces(w *waiter) bool {
	return l.pacer == w && w.mean < l.first().mean
}

// findPacer chooses the pacer anew. A first with the delay atLeast, the shortest in the line, needs no search.
func (l *line) findPacer(atLeast time.Duration) {
	if l.pacer = l.first(); l.pacer == nil {
		return
	}
	if l.pacer.mean > atLeast {
		for _, w := range l.waiters {
			if w.mean < l.pacer.mean {
				l.pacer = w
			}
		}
	}
	l.pacer.lookAgain()
}

func (l *line) delayChanged(w *waiter, former time.Duration) {
	switch {
	case l.pacer == w && w.mean > former:
		l.findPacer(former)
	case l.pacer != w && w.mean < l.pacer.mean:
		l.pacer = w
	}
}

// heardWithin notes that an attempt of that length has heard a quorum. So would waiters with a longer node deadline.
func (l *line) heardWithin(took time.Duration) {
	for _, w := range l.waiters {
		w.heardTooFew = w.heardTooFew && w.terms.Timing.NodeTimeout < took
	}
}

// firstChanged makes the first in line try, unless it was the first before.
func (l *line) firstChanged(before *waiter) {
	first := l.first()
	if first == nil || first == before {
		return
	}
	first.markReadyLocked()
	l.pacer.lookAgain()
}

// heldFor returns how much longer a lease of this process can hold the lock alone. A reader's does not count: a writer
// behind it must show its ticket, or the nodes would let in later readers.
func (l *line) heldFor() time.Duration {
	if l == nil || l.holder == nil || !l.holder.Claim().HoldsAlone() {
		return 0
	}
	return l.holder.Remaining(clock.Now())
}
