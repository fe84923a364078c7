package queue

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/lease"
)

// This file is the lines of a group: the waiters of this process, and which of them talks to the nodes.

// lines are the lines of a group, by their names.
type lines struct {
	count   atomic.Int64  // number of lines; can be read without mu
	tickets atomic.Uint32 // made so far

	mu     sync.Mutex // guards the lines, and the fields of a waiter and of a sharing whose comment names lines.mu
	byName map[string]*line
	sweep  *time.Timer // removes lines that have had no waiter for a while
	silent silent
}

// isFirstLocked reports whether w is the first in every line in which it stands. Only such a waiter talks to
// the nodes.
func (ls *lines) isFirstLocked(w *waiter) bool {
	for _, name := range w.stands() {
		if ls.byName[name].first() != w {
			return false
		}
	}
	return true
}

// showsLocked reports whether w keeps its ticket in the queues of all its names while it may not try. In fair
// mode a waiter for several names does that as soon as it is the first in one of its lines. So no later call
// of another process gets that name before w, although w still waits for another name.
func (ls *lines) showsLocked(w *waiter) bool {
	return len(w.names) > 1 && w.terms.Fair && slices.ContainsFunc(w.names, func(name string) bool {
		return ls.byName[name].first() == w
	})
}

// pacesLocked reports whether w paces a line in which it stands: see line.paces.
func (ls *lines) pacesLocked(w *waiter) bool {
	for _, name := range w.stands() {
		if ls.byName[name].paces(w) {
			return true
		}
	}
	return false
}

// heldForLocked returns how much longer a lease of this process can hold a name for which w waits, 0 if the
// lines know of none.
func (ls *lines) heldForLocked(w *waiter) (left time.Duration) {
	for _, name := range w.stands() {
		left = max(left, ls.byName[name].heldFor())
	}
	return left
}

// collidesLocked reports whether another waiter that shares a name with w is trying, and one of the two wants
// several names. The two may stand in different lines, and would only take the nodes' grants from each other.
func (ls *lines) collidesLocked(w *waiter) bool {
	for _, name := range w.names {
		if l := ls.byName[name]; l.trying > 0 && len(l.several) > 0 {
			return true
		}
	}
	return false
}

// beginTryLocked notes that an attempt of w begins.
func (ls *lines) beginTryLocked(w *waiter) {
	w.state = trying
	for _, name := range w.names {
		ls.byName[name].trying++
	}
}

// endTryLocked notes that w, which is in a line, is not trying any more, if it was. Waiters that collided
// with it go on.
func (ls *lines) endTryLocked(w *waiter, to state) {
	was := w.state
	w.state = to
	if was != trying {
		return
	}
	for _, name := range w.names {
		l := ls.byName[name]
		if l == nil { // nobody else wants the name
			continue
		}
		l.trying--
		if len(w.names) == 1 && len(l.several) == 0 { // nobody can have collided with w
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

// mayBarge reports whether a first attempt may be made without joining the lines of these names. It may not be
// made while waiters of this process stand in one of these lines, or while such a line remembers that the last
// release found waiters of other processes: see emptiedLocked.
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

// whyTaken is for a call that must not overtake the waiters in the lines of these names. It returns the
// outcome of the last attempt in such a line as the reason why the call fails. The Kind of the outcome is
// Waiting if there was no attempt, and NotAsked if nobody waits there.
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

// join puts w in its lines. why is the outcome of its first attempt: NotAsked if it has made none. w tries at
// once, unless that attempt failed because nodes failed or were late.
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
			l.firstChanged(before) // see line.first
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
			l.why.Told = nil // observers of another call were told of it
		}
	}
}

// moveLocked makes w wait for another of its names. Unless w is fair, it also moves to the line of that name.
// queued says whether the nodes have its ticket, so that they tell it when that name is free. Otherwise w must
// ask at once: the name may have become free while nobody waited for it.
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

// reconsiderLocked makes w wait for another of its names if an answer to its last attempt shows that this name
// keeps it back. The first answers have decided that attempt, and the others come later. Without this rule w
// could wait for a name that is free on a quorum of nodes already, and that nobody will release.
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

// leave takes w out of its line, unless w has been handed the lock, and lets the next waiter try. holder is
// the lease that w has acquired, nil if w has acquired none.
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

// leftLocked notes that a waiter has left the line of a name. before was the first in that line. If the line
// has another first now, that waiter tries.
func (ls *lines) leftLocked(name string, before *waiter) {
	l := ls.byName[name]
	if l.first() == nil {
		ls.emptiedLocked(name, l)
		return
	}
	l.firstChanged(before)
}

// prompt lets the first poll in each line that w paces, because the retry delay of w is over.
func (ls *lines) prompt(w *waiter) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if w.state == served { // it has left the line meanwhile
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

// setMean notes the next retry delay of w, which a function of the user's has returned.
func (ls *lines) setMean(w *waiter, delay time.Duration) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	former := w.mean
	w.mean = delay
	if w.state == served { // it has left the line meanwhile
		return
	}
	for _, name := range w.stands() {
		ls.byName[name].delayChanged(w, former)
	}
}

// triedLocked notes that an attempt of w, which is in its line, has ended: whether it has won, whether it
// has heard a quorum of nodes, and how long it took. A waiter that has won remains in the state trying until
// it leaves its line, so that it is not handed the lock as well.
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

// emptiedLocked removes l, in which nobody waits, unless somebody in another line wants its name, too. If l
// remembers waiters of other processes, it is removed after a while.
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

// removeEmpty removes the lines that have been empty for aliveFor or longer. What such a line remembers of
// the waiters of other processes is out of date.
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

// tellOthers notes whether waiters of other processes were known when the lock of that line was
// released.
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

// nudge makes the first in a line try, because something that it waited for has ended.
func (ls *lines) nudge(name string) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.eachFirstLocked(name, (*waiter).nudgeLocked)
}

// wake wakes the waiters that talk to the nodes for that name: the lock is free on node i, and it is the turn
// of this process. message says that a message tells that, and not a reply. wake does nothing while this process holds the
// lock. It does not wake except, which may be nil.
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

// nudgeAll makes the waiters that talk to the nodes try, except for locks that this process holds.
func (ls *lines) nudgeAll() { ls.eachFirstOfFree((*waiter).nudgeLocked) }

// lookAgain makes all waiters look what they must do.
func (ls *lines) lookAgain() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, l := range ls.byName {
		for _, w := range slices.Concat(l.waiters, l.several) {
			w.lookAgain()
		}
	}
}

// wakeAll wakes the waiters that talk to the nodes as if node i had told them that the locks are free,
// because this process may have missed messages of that node. It leaves out the locks that this process
// holds.
func (ls *lines) wakeAll(i int) {
	ls.eachFirstOfFree(func(w *waiter, name string) { w.wakeLocked(name, i, true) })
}

// eachFirstOfFree calls do for each name whose lock this process does not hold: see eachFirstLocked.
func (ls *lines) eachFirstOfFree(do func(w *waiter, name string)) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(ls.byName)) { // in the same order each time, for tests
		if ls.byName[name].heldFor() == 0 {
			ls.eachFirstLocked(name, do)
		}
	}
}

// eachFirstLocked calls do for each waiter that wants the name and talks to the nodes: the first in its line,
// and waiters for several names that are first in other lines.
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

const (
	// silentFor is how long the waiters for a lock poll after it was found free although no message had said so.
	silentFor = 10 * time.Second

	// maxSilent is how many such locks a silent remembers at most.
	maxSilent = 1000
)

// silent remembers the locks that somebody has released without a message, and when that was seen. redsync v4 does so, and
// a node whose user may not publish. lines.mu guards it.
type silent map[string]time.Time

func (s *silent) noteLocked(name string) {
	now := time.Now()
	if len(*s) >= maxSilent {
		for name, at := range *s {
			if now.Sub(at) >= silentFor {
				delete(*s, name)
			}
		}
	}
	if *s == nil || len(*s) >= maxSilent {
		*s = make(silent)
	}
	(*s)[name] = now
}

func (s *silent) hasLocked(name string) bool {
	at, noted := (*s)[name]
	if noted && time.Since(at) >= silentFor {
		delete(*s, name)
		return false
	}
	return noted
}

// A line holds the waiters of this process for one name, in the order of their tickets: see waiter.compare.
// If other processes wait, the line stays for a while after its last waiter has left: see mayBarge.
//
// Waiters with different settings stand in the same line. A short node deadline or a long retry delay of
// the first waiter must not keep the others from a free lock. line.first takes care of the deadline, and
// line.pacer of the delay.
//
// A waiter for several names stands in one line at a time: in the line of the name that keeps it back. So it
// keeps nobody from its other names. In fair mode it stands in the lines of all its names. A waiter talks to
// the nodes only if it is the first in every line in which it stands. All lines have the same order, so that
// no two waiters stand in each other's way.
type line struct {
	waiters []*waiter
	readers int           // how many of the waiters are readers
	several []*waiter     // the waiters that want this name and others, in whichever line they stand
	trying  int           // how many waiters for this name are trying
	pacer   *waiter       // has the shortest retry delay; nil if nobody waits
	holder  *lease.Lease  // the lease that a waiter for this name got, until it is released or over
	others  bool          // other processes waited when the lock was last released
	why     lease.Outcome // the outcome of the last attempt that its context has not cut, without Told
	empty   time.Time     // since when nobody waits

	roomOfWaiters [1]*waiter
}

// first returns the waiter at the head of the line, nil if nobody waits. l may be nil.
//
// But if the last attempt of that waiter heard fewer nodes than a quorum, and it is not trying now, the next
// waiter with a longer node deadline takes its place, if there is one. The same rule applies to that waiter in
// turn. The rule does not apply to a line in which a fair waiter for several names stands, because such a
// waiter must be in the same place in all its lines.
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

// put adds w in its place. A node may have told the former first waiter something that w was not told, such as
// that the lock is free there. Or the former first has another reason to try. So if w takes the place of that
// waiter, it tries at once.
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

// take takes w out.
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

// takeServed takes out the readers that have joined a hold.
func (l *line) takeServed() {
	isServed := func(w *waiter) bool { return w.state == served }
	n := len(l.waiters)
	l.waiters = slices.DeleteFunc(l.waiters, isServed)
	l.readers -= n - len(l.waiters)
	if isServed(l.pacer) {
		l.findPacer(l.pacer.mean)
	}
}

// hasWriter reports whether a writer waits for the name of l. l may be nil.
func (l *line) hasWriter() bool {
	return l != nil && (len(l.several) > 0 || l.readers < len(l.waiters))
}

// paces reports whether the retry delay of w, which is not the first, decides when the first polls. That is so
// if no retry delay in the line is shorter than that of w, and that of the first is longer.
func (l *line) paces(w *waiter) bool {
	return l.pacer == w && w.mean < l.first().mean
}

// findPacer chooses the waiter with the shortest retry delay as the pacer, after the former one has left or has a longer
// delay now. The caller knows that no delay in the line is shorter than atLeast. So if the first waiter's delay is that
// short, findPacer need not search.
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

// delayChanged notes that the retry delay of w was former before.
func (l *line) delayChanged(w *waiter, former time.Duration) {
	switch {
	case l.pacer == w && w.mean > former:
		l.findPacer(former)
	case l.pacer != w && w.mean < l.pacer.mean:
		l.pacer = w
	}
}

// heardWithin notes that an attempt of a waiter in l has heard a quorum of nodes, and how long it took. A waiter whose
// node deadline is at least took would have heard the quorum, too.
func (l *line) heardWithin(took time.Duration) {
	for _, w := range l.waiters {
		w.heardTooFew = w.heardTooFew && w.terms.Timing.NodeTimeout < took
	}
}

// firstChanged makes the first in line try, and the line's pacer look again, if before is no longer the
// first.
func (l *line) firstChanged(before *waiter) {
	first := l.first()
	if first == nil || first == before {
		return
	}
	first.markReadyLocked()
	l.pacer.lookAgain()
}

// heldFor returns how much longer a lease of this process can hold the lock alone, 0 if the line knows of
// none. l may be nil. A lease of a permit does not count, because other permits may be free. A lease of a
// reader does not count, because it does not keep other readers back. A writer behind a reader must show its
// ticket to the nodes as if another process held the lock. Otherwise the nodes would let in readers of other
// processes that come later.
func (l *line) heldFor() time.Duration {
	if l == nil || l.holder == nil || !l.holder.Claim().HoldsAlone() {
		return 0
	}
	left := l.holder.Remaining(clock.Now())
	if left == 0 {
		l.holder = nil
	}
	return left
}
