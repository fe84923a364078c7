package redsync

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// This file is those who wait for a lock in this process. Those who wait for one name
// stand in a line, and only the first one talks to the nodes, however many there are.
// A lock that is released may pass to it without the nodes knowing.

// lines are the lines of a core, by the name of the lock.
type lines struct {
	count atomic.Int64 // of lines: a look without the lock

	mu     sync.Mutex
	byName map[string]*line
	sweep  *time.Timer // removes lines where nobody waits
}

// A line is who waits for one name, by class and then in the order of arrival. It is
// kept for a while after the last one where other processes wait: see mayBarge.
type line struct {
	waiters []*waiter
	holder  *hold     // who got the lock out of this line, until it is released or over
	rivals  bool      // other processes waited when the lock was last released
	why     error     // of the last attempt
	empty   time.Time // since when nobody waits
}

// first returns who talks to the nodes, nil if nobody waits. l may be nil.
func (l *line) first() *waiter {
	if l == nil || len(l.waiters) == 0 {
		return nil
	}
	return l.waiters[0]
}

// held returns for how long the lock is held, as far as the line knows, at least.
func (l *line) held() time.Duration {
	if l.holder == nil {
		return 0
	}
	left := l.holder.remaining(now())
	if left == 0 {
		l.holder = nil
	}
	return left
}

// mayBarge reports whether a first attempt for name may come before those who wait:
// not where there are such in this process, nor right after a release that let in
// another one.
func (ls *lines) mayBarge(name string) bool {
	if ls.count.Load() == 0 {
		return true
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.byName[name]
	return l == nil || l.first() == nil && !l.rivals
}

// waits returns why the lock of that name is not free for somebody who comes now, nil
// if nobody waits in this process.
func (ls *lines) waits(name string) error {
	if ls.count.Load() == 0 {
		return nil
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if l := ls.byName[name]; l.first() != nil {
		return l.why
	}
	return nil
}

// join puts w in its line. why is why its first attempt failed, nil if it has made
// none. Unless the nodes are to blame there is reason to try at once.
func (ls *lines) join(w *waiter, why error) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.lineLocked(w.m.name)
	// Before the first of a lower class.
	i, _ := slices.BinarySearchFunc(l.waiters, w, func(in, w *waiter) int {
		return cmp.Or(cmp.Compare(w.m.set.class, in.m.set.class), -1)
	})
	l.waiters = slices.Insert(l.waiters, i, w)
	var taken *ErrTaken
	// Who comes before the former first does not know what that one has been told.
	w.ready = why == nil || errors.As(why, &taken) || i == 0 && len(l.waiters) > 1
	w.err, l.why = why, cmp.Or(why, l.why, errWaiting)
}

// errWaiting is the reason where none is known yet.
var errWaiting = because(&ErrTaken{}, errors.New("redsync: others of this process wait for it"))

func (ls *lines) lineLocked(name string) *line {
	l := ls.byName[name]
	if l == nil {
		l = &line{}
		if ls.byName == nil {
			ls.byName = make(map[string]*line)
		}
		ls.byName[name] = l
		ls.count.Add(1)
	}
	return l
}

// leave takes w out of its line, unless it has been handed the lock, and lets the
// next one try. holder is the hold that w has acquired, nil if it has not.
func (ls *lines) leave(w *waiter, holder *hold) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if w.given == nil {
		ls.removeLocked(w, holder)
	}
}

func (ls *lines) removeLocked(w *waiter, holder *hold) {
	l := ls.byName[w.m.name]
	i := slices.Index(l.waiters, w)
	l.waiters = slices.Delete(l.waiters, i, i+1)
	if holder != nil {
		l.holder = holder
	}
	switch next := l.first(); {
	case next == nil:
		ls.emptiedLocked(w.m.name, l)
	case i == 0:
		next.tryLocked()
	}
}

// emptiedLocked removes l, where nobody waits any more, now or after a while.
func (ls *lines) emptiedLocked(name string, l *line) {
	if !l.rivals {
		delete(ls.byName, name)
		ls.count.Add(-1)
		return
	}
	l.empty, l.holder = time.Now(), nil
	if ls.sweep == nil {
		ls.sweep = time.AfterFunc(aliveFor, ls.removeEmpty)
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
		case time.Since(l.empty) >= aliveFor:
			delete(ls.byName, name)
			ls.count.Add(-1)
		case ls.sweep == nil:
			ls.sweep = time.AfterFunc(aliveFor, ls.removeEmpty)
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

// letGo releases what h, which has ended, left on the nodes, and lets in who waits for
// it in this process. Who enters the queues is for letGo to say.
func (h *hold) letGo(how releasing) *release {
	ls := &h.core.lines
	if ls.count.Load() == 0 {
		return startRelease(h, how)
	}
	heard := h.core.ear.stands()
	first, s := ls.succeed(h, heard)
	how.enters = s.enters
	rel := startRelease(h, how)
	if s.tries {
		ls.mu.Lock()
		defer ls.mu.Unlock()
		first.behind = s.enters == nil
		first.tryLocked()
	}
	return rel
}

// A succession is what becomes of the first in line with a release.
//
//	other processes wait, or it is fair    ticket enters; the nodes tell whose turn it is
//	the same, and they cannot be heard     ticket enters, and tries at once
//	the same, and it is trying now         ticket enters, and tries again
//	nobody else waits, as far as is known  tries at once, right behind the release
type succession struct {
	enters any  // the ticket that enters the queues with the release; nil for none
	tries  bool // the first in line tries behind the release
}

func (ls *lines) succeed(h *hold, heard bool) (first *waiter, s succession) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.byName[h.lock.Name()]
	first = l.first()
	if first == nil {
		return nil, succession{}
	}
	if l.holder != nil && l.holder.value() == h.value() {
		l.holder = nil
	}
	if !l.rivals && !first.m.set.fair {
		return first, succession{tries: true}
	}
	first.enteredLocked(h)
	s = succession{enters: first.placeLocked(), tries: first.trying || !heard}
	if !s.tries {
		first.ready = false
	}
	return first, s
}

// tellRivals notes whether other processes waited when the lock of that name was
// released.
func (ls *lines) tellRivals(name string, waited bool) {
	if !waited && ls.count.Load() == 0 {
		return
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.byName[name]
	if l == nil {
		if !waited {
			return
		}
		l = ls.lineLocked(name)
	}
	l.rivals = waited
	if l.first() == nil {
		ls.emptiedLocked(name, l)
	}
}

// tryFirst makes the first in line try, because something has been released on the
// way.
func (ls *lines) tryFirst(name string) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if w := ls.byName[name].first(); w != nil {
		w.tryLocked()
	}
}

// wake notes that the lock of that name is free on node i and the turn of this
// process. by is the waiter that has freed it itself, nil for anybody else.
func (ls *lines) wake(name string, i int, by *waiter) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.byName[name]
	if w := l.first(); w != nil && w != by && l.held() == 0 {
		w.wakeLocked(i)
	}
}

// wakeAll notes that node i may have told about any lock, and nobody heard.
func (ls *lines) wakeAll(i int) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(ls.byName)) { // the same comes of it each time
		l := ls.byName[name]
		if w := l.first(); w != nil && l.held() == 0 {
			w.wakeLocked(i)
		}
	}
}

// maxChain is for how long a lock is handed over within the process since it was
// acquired, a tenth of its expiry at most: for so long other processes are not let in.
// It pays for the acquire many times.
const maxChain = 20 * time.Millisecond

// handOver passes the lock of h, which has been ended by Unlock, to the first in
// line, and reports whether it did. The value and its validity go to a new hold. No
// node is told, and nothing that the giver does later touches the new hold.
//
// It must be worth as much as a lock that is acquired now, within a tenth; and other
// processes are let in every maxChain.
func (ls *lines) handOver(h *hold) bool {
	if ls.count.Load() == 0 || !h.mayPass() {
		return false
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	w := ls.byName[h.lock.Name()].first()
	if w == nil || w.trying || !w.m.set.passes() || w.timing != h.timing {
		return false
	}
	w.given = h.pass(w.m.set)
	if w.last != nil {
		w.given.leaveQueues(w.ticket)
	}
	ls.removeLocked(w, w.given)
	w.lookAgain()
	return true
}

// passes reports whether locks with these settings may be handed over.
func (s *settings) passes() bool {
	return !s.noHandOver && !s.fair && !s.fencing && !s.customValues && s.value == "" && s.maxHold == 0
}

// mayPass reports whether the lock of h may be handed over now. h has been ended by
// Unlock.
//
// Where the user has seen the value Unlock releases it: somebody may use it to ask whether
// this hold has ended, or to release it a second time. Unlock has withdrawn h, so that
// nobody sees the value after this look.
func (h *hold) mayPass() bool {
	now := now()
	return h.set.passes() && now.since(h.acquired) < min(h.timing.expiry/10, maxChain) && h.withdraw() && h.fresh(now)
}

// fresh reports whether nine tenths of the validity are left.
func (h *hold) fresh(now instant) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.past && h.validity.remaining(now) >= h.timing.span-h.timing.span/10
}

// pass returns the hold that goes on with the lock of h.
func (h *hold) pass(set *settings) *hold {
	h.mu.Lock()
	defer h.mu.Unlock()
	return &hold{
		core: h.core, set: set, lock: h.lock, timing: h.timing,
		first: now(), acquired: h.acquired, validity: h.validity, trail: h.trail,
	}
}
