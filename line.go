package redsync

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/clock"
)

// This file is those who wait for a lock in this process. Those who wait for one name
// stand in a line, and only the first one talks to the nodes, however many there are.
// A lock that is released may pass to it without the nodes knowing.

// lines are the lines of a group, by the name of the lock.
type lines struct {
	count atomic.Int64 // of lines: a look without the lock

	mu     sync.Mutex
	byName map[string]*line
	sweep  *time.Timer // removes lines where nobody waits
}

// A line is who waits for one name, by class and then in the order of arrival. It is
// kept for a while after the last one where other processes wait: see mayBarge.
//
// Waiters with any settings stand in it. Those of the first one must not keep the others
// from a lock that is free: see first for its node deadline, and pacer for its retry delay.
type line struct {
	waiters []*waiter
	pacer   *waiter   // has the shortest retry delay; nil where nobody waits
	holder  *hold     // who got the lock out of this line, until it is released or over
	rivals  bool      // other processes waited when the lock was last released
	why     error     // of the last attempt
	empty   time.Time // since when nobody waits
}

// first returns who talks to the nodes, nil if nobody waits. l may be nil. That is the
// first in the line, unless its last attempt heard fewer nodes than a quorum, and somebody
// behind it has a longer node deadline: then the next such one.
func (l *line) first() *waiter {
	if l == nil || len(l.waiters) == 0 {
		return nil
	}
	first := l.waiters[0]
	if !first.unheard || first.trying {
		return first
	}
	for _, w := range l.waiters[1:] {
		if w.timing.nodeTimeout <= first.timing.nodeTimeout {
			continue
		}
		first = w
		if !w.unheard || w.trying {
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
	first.tryLocked()
	l.pacer.lookAgain()
}

// held returns for how long the lock is held, as far as the line knows, at least.
func (l *line) held() time.Duration {
	if l.holder == nil {
		return 0
	}
	left := l.holder.remaining(clock.Now())
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
	before := l.first()
	var taken *ErrTaken
	answered := errors.As(why, &taken)
	w.unheard = why != nil && !answered
	// Before the first of a lower class.
	i, _ := slices.BinarySearchFunc(l.waiters, w, func(in, w *waiter) int {
		return cmp.Or(cmp.Compare(w.m.set.class, in.m.set.class), -1)
	})
	l.waiters = slices.Insert(l.waiters, i, w)
	// Who comes before the former first does not know what that one has been told.
	first := l.first() == w
	w.ready = why == nil || answered || first && before != nil
	w.err, l.why = why, cmp.Or(why, l.why, errWaiting)
	if l.pacer == nil || w.pace.mean < l.pacer.pace.mean {
		l.pacer = w
	}
	if first && l.pacer != w {
		l.pacer.lookAgain()
	}
}

// errWaiting is the reason where no node has been asked yet.
var errWaiting = errors.New("redsync: others of this process wait for it")

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
	before := l.first()
	i := slices.Index(l.waiters, w)
	l.waiters = slices.Delete(l.waiters, i, i+1)
	if holder != nil {
		l.holder = holder
	}
	w.gone = holder == nil
	if l.pacer == w {
		l.findPacer(w.pace.mean)
		if l.pacer != nil {
			l.pacer.lookAgain()
		}
	}
	if l.first() == nil {
		ls.emptiedLocked(w.m.name, l)
		return
	}
	l.turned(before)
}

// prompt lets the first in w's line poll, because the retry delay of w is over.
func (ls *lines) prompt(w *waiter) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if w.given != nil { // it has left the line meanwhile
		return
	}
	l := ls.byName[w.m.name]
	if first := l.first(); l.paces(w) && !first.trying {
		first.polls = true
		first.lookAgain()
	}
}

// setPace notes that w's retry delay is another now, of a function of the user's.
func (ls *lines) setPace(w *waiter, delay time.Duration) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l, former := ls.byName[w.m.name], w.pace.mean
	w.pace.mean = delay
	if w.given != nil { // it has left the line meanwhile
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
	l := ls.byName[w.m.name]
	before := l.first()
	w.trying, w.unheard = won, !heard
	if heard {
		for _, other := range l.waiters {
			other.unheard = other.unheard && other.timing.nodeTimeout < took
		}
	}
	l.turned(before)
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
	if s.enters != nil && ls.hasGone(first) { // its own removal of the ticket may have come before
		h.leaveQueues(s.enters)
		startRelease(h, releasing{})
	}
	if s.tries {
		ls.mu.Lock()
		defer ls.mu.Unlock()
		first.behind = s.enters == nil
		first.tryLocked()
	}
	return rel
}

// hasGone reports whether w has left its line without the lock.
func (ls *lines) hasGone(w *waiter) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return w.gone
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
	l := ls.byName[h.claim.Name()]
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

// tryAll makes the first in each line try.
func (ls *lines) tryAll() {
	ls.eachFirst((*waiter).tryLocked)
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
		if w := l.first(); w != nil && l.held() == 0 {
			do(w)
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
// processes are let in every maxChain. It stays within one core: another one of the group
// may be closed meanwhile, and tries right behind the release.
func (ls *lines) handOver(h *hold) bool {
	if ls.count.Load() == 0 || !h.mayPass() {
		return false
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	w := ls.byName[h.claim.Name()].first()
	if w == nil || w.m.core != h.core || w.trying || !w.m.set.passes() || w.timing != h.timing {
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
	now := clock.Now()
	return h.set.passes() && now.Since(h.acquired) < min(h.timing.expiry/10, maxChain) && h.withdraw() && h.fresh(now)
}

// fresh reports whether nine tenths of the validity are left.
func (h *hold) fresh(now clock.Instant) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.past && h.validity.remaining(now) >= h.timing.span-h.timing.span/10
}

// pass returns the hold that goes on with the lock of h.
func (h *hold) pass(set *settings) *hold {
	h.mu.Lock()
	defer h.mu.Unlock()
	return &hold{
		core: h.core, set: set, claim: h.claim, timing: h.timing,
		first: clock.Now(), acquired: h.acquired, validity: h.validity, trail: h.trail,
	}
}
