package queue

import (
	"slices"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/lease"
)

// This file is one line: who is the first in it, and whose retry delay counts.

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
