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

// This file holds the lines of a group: the waiters of this process, and which of them talks to the nodes.

// lines are the lines of a group, by their names.
type lines struct {
	group *Group
	count atomic.Int64 // number of lines; can be read without mu

	mu     sync.Mutex // guards the lines, and those fields of a waiter whose comment names lines.mu
	byName map[string]*line
	sweep  *time.Timer // removes lines that have had no waiter for a while
}

// A line holds the waiters of this process for one claim, ordered by priority and then by arrival. If
// other processes wait, the line stays for a while after its last waiter has left: see mayBarge.
//
// Waiters with different settings stand in the same line. A short node deadline or a long retry delay of
// the first waiter must not keep the others from a free lock. line.first takes care of the deadline, and
// line.pacer of the delay.
type line struct {
	waiters []*waiter
	pacer   *waiter       // has the shortest retry delay; nil if nobody waits
	holder  *lease.Lease  // the lease that a waiter of this line got, until it is released or over
	others  bool          // other processes waited when the lock was last released
	why     lease.Outcome // the outcome of the last attempt
	empty   time.Time     // since when nobody waits
}

// first returns the waiter that talks to the nodes, nil if nobody waits. l may be nil.
//
// That is the waiter at the head of the line. But if its last attempt heard fewer nodes than a quorum, and
// it is not trying now, the next waiter with a longer node deadline takes its place, if there is one. The
// same rule goes for that waiter in turn.
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

// paces reports whether the retry delay of w, which is not the first, decides when the first polls. That is
// so if no retry delay in the line is shorter, and that of the first is longer.
func (l *line) paces(w *waiter) bool {
	return l.pacer == w && w.pace.mean < l.first().pace.mean
}

// findPacer chooses the waiter with the shortest retry delay as the pacer. The caller knows that no delay in
// the line is shorter than atLeast. So if the first waiter's delay is that short, findPacer need not search.
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

// heldFor returns how much longer a lease from this line can hold the lock, 0 if the line knows of none.
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

// mayBarge reports whether a first attempt may be made without joining the line of that name. It may not
// while waiters of this process stand in the line, nor while the line remembers that the last release found
// waiters of other processes: see emptiedLocked.
func (ls *lines) mayBarge(name string) bool {
	if ls.count.Load() == 0 {
		return true
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.byName[name]
	return l == nil || l.first() == nil && !l.others
}

// whyTaken is for a call that must not overtake the waiters in the line of that name. It returns the outcome
// of their last attempt as the reason why the call fails: a Kind of Waiting if there was no attempt, and of
// NotAsked if nobody waits there.
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

// join puts w in its line. why is the outcome of its first attempt: NotAsked if it has made none. w tries at
// once, unless that attempt failed because nodes failed or were late.
func (ls *lines) join(w *waiter, why lease.Outcome) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.lineLocked(w.line)
	before := l.first()
	asked, answered := why.Kind != lease.NotAsked, why.Taken()
	w.heardTooFew = asked && !answered
	// w stands before the first waiter of a lower priority.
	i, _ := slices.BinarySearchFunc(l.waiters, w, func(in, w *waiter) int {
		return cmp.Or(cmp.Compare(w.terms.Priority, in.terms.Priority), -1)
	})
	l.waiters = slices.Insert(l.waiters, i, w)
	// A node may have told the former first waiter something that w was not told, such as that the lock is
	// free there. So if w takes the place of that waiter, it tries at once.
	first := l.first() == w
	w.agenda.ready = !asked || answered || first && before != nil
	if asked {
		own := why
		w.why, l.why = &own, why
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
		if w.last != nil { // the ticket may have entered the queues after the attempt of w that won
			holder.LeaveQueuesOnRelease(w.ticket)
		}
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
	l.firstChanged(before)
}

// prompt lets the first in w's line poll if w paces it, because the retry delay of w is over.
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

// setPace notes the next retry delay of w, which a function of the user's has returned.
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

// triedLocked notes that an attempt of w, which is in its line, has ended: whether it has won, whether it
// has heard a quorum of nodes, and how long it took. A waiter whose node deadline is at least took would
// have heard the quorum, too. A waiter that has won remains in the state trying until it leaves its line, so
// that it is not handed the lock as well.
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
	l.firstChanged(before)
}

// emptiedLocked removes l, in which nobody waits: at once, or after a while if l remembers waiters of other
// processes.
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

// removeEmpty removes the lines that have been empty for AliveFor or longer. What such a line remembers of
// the waiters of other processes is out of date.
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

// nudge makes the first in a line try, because something that it waited for has ended.
func (ls *lines) nudge(name string) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if w := ls.byName[name].first(); w != nil {
		w.markReadyLocked()
	}
}

// wake wakes the first in that line: the lock is free on node i, and it is the turn of this process. It does
// nothing while this process holds the lock. For undoes see lease.Waiters.
func (ls *lines) wake(name string, i int, undoes lease.Turn) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.byName[name]
	u, _ := undoes.(*turn)
	if w := l.first(); w != nil && (u == nil || u.waiter != w) && l.heldFor() == 0 {
		w.wakeLocked(i)
	}
}

// nudgeAll makes the first in each line try, except in lines whose lock this process holds.
func (ls *lines) nudgeAll() {
	ls.eachFirst((*waiter).markReadyLocked)
}

// wakeAll wakes the first in each line as if node i had told it that the lock is free, because this process
// may have missed messages of that node. It leaves out lines whose lock this process holds.
func (ls *lines) wakeAll(i int) {
	ls.eachFirst(func(w *waiter) { w.wakeLocked(i) })
}

// eachFirst calls do for the first in each line, except in lines whose lock this process holds.
func (ls *lines) eachFirst(do func(*waiter)) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(ls.byName)) { // in the same order each time, for tests
		l := ls.byName[name]
		if w := l.first(); w != nil && l.heldFor() == 0 {
			do(w)
		}
	}
}
