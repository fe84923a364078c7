package queue

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/lease"
)

// This file is the lines of a group: who waits in this process, and who of them talks to the nodes.

// lines are the lines of a group, by their names.
type lines struct {
	group *Group
	count atomic.Int64 // of lines: a look without the lock

	mu     sync.Mutex // guards the lines, and what of their waiters says so
	byName map[string]*line
	sweep  *time.Timer // removes lines where nobody waits
}

// A line is who waits for one claim, by priority and then in the order of arrival. It is
// kept for a while after the last one where other processes wait: see mayBarge.
//
// Waiters with any settings stand in it. Those of the first one must not keep the others
// from a lock that is free: see first for its node deadline, and pacer for its retry delay.
type line struct {
	waiters []*waiter
	pacer   *waiter       // has the shortest retry delay; nil where nobody waits
	holder  *lease.Lease  // who got the lock out of this line, until it is released or over
	others  bool          // other processes waited when the lock was last released
	why     lease.Outcome // of the last attempt
	empty   time.Time     // since when nobody waits
}

// first returns who talks to the nodes, nil if nobody waits. l may be nil. That is the
// first in the line, unless its last attempt heard fewer nodes than a quorum, and somebody
// behind it has a longer node deadline: then the next such one.
func (l *line) first() *waiter {
	if l == nil || len(l.waiters) == 0 {
		return nil
	}
	first := l.waiters[0]
	if !first.heardTooFew || first.state == trying {
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

// paces reports whether w, which is not the first, says when that one polls: its retry
// delay is the shortest.
func (l *line) paces(w *waiter) bool {
	return l.pacer == w && w.pace.mean < l.first().pace.mean
}

// findPacer chooses the pacer, where the former one's delay was at least atLeast.
func (l *line) findPacer(atLeast time.Duration) {
	if l.pacer = l.first(); l.pacer == nil || l.pacer.pace.mean <= atLeast {
		return
	}
	for _, w := range l.waiters {
		if w.pace.mean < l.pacer.pace.mean {
			l.pacer = w
		}
	}
}

// turned lets those go on for whom it matters who is the first, if that is not before any
// more.
func (l *line) turned(before *waiter) {
	first := l.first()
	if first == nil || first == before {
		return
	}
	first.markReadyLocked()
	l.pacer.lookAgain()
}

// heldFor returns for how long the lock is held, as far as the line knows, at least.
func (l *line) heldFor() time.Duration {
	if l.holder == nil {
		return 0
	}
	left := l.holder.Remaining(clock.Now())
	if left == 0 {
		l.holder = nil
	}
	return left
}

// mayBarge reports whether a first attempt may come before those who wait in the line of that name:
// not where there are such in this process, nor right after a release that let in
// another one.
func (ls *lines) mayBarge(name string) bool {
	if ls.count.Load() == 0 {
		return true
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.byName[name]
	return l == nil || l.first() == nil && !l.others
}

// whyTaken returns why the lock is not free for somebody who comes now to the line of that name:
// NotAsked if nobody waits in this process.
func (ls *lines) whyTaken(name string) lease.Outcome {
	if ls.count.Load() == 0 {
		return lease.Outcome{}
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if l := ls.byName[name]; l.first() != nil {
		return l.why
	}
	return lease.Outcome{}
}

// join puts w in its line. why is what its first attempt came to: NotAsked if it has made
// none. Unless the nodes are to blame there is reason to try at once.
func (ls *lines) join(w *waiter, why lease.Outcome) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.lineLocked(w.line)
	before := l.first()
	asked, answered := why.Kind != lease.NotAsked, why.Taken()
	w.heardTooFew = asked && !answered
	// Before the first of a lower priority.
	i, _ := slices.BinarySearchFunc(l.waiters, w, func(in, w *waiter) int {
		return cmp.Or(cmp.Compare(w.terms.Priority, in.terms.Priority), -1)
	})
	l.waiters = slices.Insert(l.waiters, i, w)
	// Who comes before the former first does not know what that one has been told.
	first := l.first() == w
	w.agenda.ready = !asked || answered || first && before != nil
	w.why = why
	if asked {
		l.why = why
	}
	if l.pacer == nil || w.pace.mean < l.pacer.pace.mean {
		l.pacer = w
	}
	if first && l.pacer != w {
		l.pacer.lookAgain()
	}
}

func (ls *lines) lineLocked(name string) *line {
	l := ls.byName[name]
	if l == nil {
		l = &line{why: lease.Outcome{Kind: lease.Waiting}}
		if ls.byName == nil {
			ls.byName = make(map[string]*line)
		}
		ls.byName[name] = l
		ls.count.Add(1)
	}
	return l
}

// leave takes w out of its line, unless it has been handed the lock, and lets the
// next one try. holder is the lease that w has acquired, nil if it has not.
func (ls *lines) leave(w *waiter, holder *lease.Lease) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if w.state != served {
		ls.removeLocked(w, holder)
	}
}

func (ls *lines) removeLocked(w *waiter, holder *lease.Lease) {
	l := ls.byName[w.line]
	before := l.first()
	i := slices.Index(l.waiters, w)
	l.waiters = slices.Delete(l.waiters, i, i+1)
	if holder != nil {
		l.holder = holder
	}
	w.state = gone
	if holder != nil {
		w.state = served
	}
	if l.pacer == w {
		l.findPacer(w.pace.mean)
		if l.pacer != nil {
			l.pacer.lookAgain()
		}
	}
	if l.first() == nil {
		ls.emptiedLocked(w.line, l)
		return
	}
	l.turned(before)
}

// prompt lets the first in w's line poll, because the retry delay of w is over.
func (ls *lines) prompt(w *waiter) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if w.state == served { // it has left the line meanwhile
		return
	}
	l := ls.byName[w.line]
	if first := l.first(); l.paces(w) && first.state != trying {
		first.agenda.polls = true
		first.lookAgain()
	}
}

// setPace notes that w's retry delay is another now, of a function of the user's.
func (ls *lines) setPace(w *waiter, delay time.Duration) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l, former := ls.byName[w.line], w.pace.mean
	w.pace.mean = delay
	if w.state == served { // it has left the line meanwhile
		return
	}
	switch {
	case l.pacer == w && delay > former:
		l.findPacer(former)
		l.pacer.lookAgain()
	case l.pacer != w && delay < l.pacer.pace.mean:
		l.pacer = w
	}
}

// triedLocked notes that an attempt of w, which is in its line, has ended: whether it has
// won, and whether it has heard a quorum of nodes in the time that it took. Waiters with
// that much time would have heard them, too. A waiter that has won goes on trying until it
// leaves its line, so that it is not handed the lock as well.
func (ls *lines) triedLocked(w *waiter, won, heard bool, took time.Duration) {
	l := ls.byName[w.line]
	before := l.first()
	w.heardTooFew = !heard
	if !won {
		w.state = waiting
	}
	if heard {
		for _, other := range l.waiters {
			other.heardTooFew = other.heardTooFew && other.terms.Timing.NodeTimeout < took
		}
	}
	l.turned(before)
}

// emptiedLocked removes l, where nobody waits any more, now or after a while.
func (ls *lines) emptiedLocked(name string, l *line) {
	if !l.others {
		delete(ls.byName, name)
		ls.count.Add(-1)
		return
	}
	l.empty, l.holder = time.Now(), nil
	if ls.sweep == nil {
		ls.sweep = time.AfterFunc(lease.AliveFor, ls.removeEmpty)
	}
}

// removeEmpty removes the lines that have been empty for so long that those who waited
// in other processes have been served, or are gone.
func (ls *lines) removeEmpty() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.sweep = nil
	for name, l := range ls.byName {
		switch {
		case l.first() != nil:
		case time.Since(l.empty) >= lease.AliveFor:
			delete(ls.byName, name)
			ls.count.Add(-1)
		case ls.sweep == nil:
			ls.sweep = time.AfterFunc(lease.AliveFor, ls.removeEmpty)
		}
	}
}

// anybody reports whether anybody waits.
func (ls *lines) anybody() bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, l := range ls.byName {
		if l.first() != nil {
			return true
		}
	}
	return false
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

// nudge makes the first in a line try, because something has been released on the
// way.
func (ls *lines) nudge(name string) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if w := ls.byName[name].first(); w != nil {
		w.markReadyLocked()
	}
}

// wake notes that the lock of that line is free on node i and the turn of this
// process. undoes is as in lease.Waiters.
func (ls *lines) wake(name string, i int, undoes lease.Turn) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.byName[name]
	u, _ := undoes.(*turn)
	if w := l.first(); w != nil && (u == nil || u.waiter != w) && l.heldFor() == 0 {
		w.wakeLocked(i)
	}
}

// nudgeAll makes the first in each line try.
func (ls *lines) nudgeAll() {
	ls.eachFirst((*waiter).markReadyLocked)
}

// wakeAll notes that node i may have told about any lock, and nobody heard.
func (ls *lines) wakeAll(i int) {
	ls.eachFirst(func(w *waiter) { w.wakeLocked(i) })
}

// eachFirst does something to the first in each line, unless this process has the lock.
func (ls *lines) eachFirst(do func(*waiter)) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(ls.byName)) { // the same comes of it each time
		l := ls.byName[name]
		if w := l.first(); w != nil && l.heldFor() == 0 {
			do(w)
		}
	}
}
