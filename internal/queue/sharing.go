package queue

import (
	"slices"

	"github.com/seed14bd9ef4/redsync/internal/lease"
)

// This file is about readers of this process that share a hold. When a reader acquires a lock, the readers
// behind it in the line join its hold, up to the first writer: a waiter that wants the lock alone. So do
// readers that come a little later, while no writer waits in the process. After that a reader asks the nodes,
// and so sees the writers of other processes.

// shared finds the hold that a reader can share, by name. A hold that nobody can join any more may stay in it for a
// while.
type shared struct {
	byName map[string]*lease.Lease
	sweep  int // the number of holds at which put removes those that nobody can join
}

// joinHold returns a lease that shares a hold of this process, nil if a call with these terms can share none.
func (ls *lines) joinHold(t *Terms) *lease.Lease {
	if !t.Joins {
		return nil
	}
	// A writer that joins the line between the two steps came at the same time as this reader, which may go first.
	hold := ls.joinable(t.Claim.Lines()[0])
	if hold == nil {
		return nil
	}
	return hold.Join(&t.Terms, chain(&t.Terms))
}

// joinable returns the hold of a name that a reader can share, perhaps. It returns nil while a writer waits.
func (ls *lines) joinable(name string) *lease.Lease {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	hold := ls.shared.byName[name]
	if hold == nil || ls.byName[name].hasWriter() {
		return nil
	}
	return hold
}

// hasWriter reports whether a writer waits for the name of l. l may be nil.
func (l *line) hasWriter() bool {
	return l != nil && (len(l.several) > 0 || l.readers < len(l.waiters))
}

// share lets other readers join hold, if its terms allow that. A call that stood in no line has acquired it.
func (ls *lines) share(hold *lease.Lease) {
	if !hold.BeginSharing() {
		return
	}
	ls.mu.Lock()
	joined := ls.shareLocked(hold)
	ls.mu.Unlock()
	for _, w := range joined {
		w.lookAgain()
	}
}

// shareLocked lets other readers join hold, which somebody has just acquired: now the readers at the head of
// the line, up to the first writer, and later those that joinHold lets in. A reader with other terms goes on
// waiting.
//
// It returns the readers that have joined. The caller must tell them to look again. They need lines.mu then,
// so the caller should unlock it before.
func (ls *lines) shareLocked(hold *lease.Lease) (joined []*waiter) {
	name := hold.Claim().Lines()[0]
	ls.shared.put(name, hold)
	l := ls.byName[name]
	if l == nil {
		return nil
	}
	before := l.first()
	for _, w := range l.waiters {
		if !w.shares() {
			break
		}
		if w.state == trying { // its attempt may win a hold of its own
			continue
		}
		if w.handedOff = hold.Join(&w.terms.Terms, chain(&w.terms.Terms)); w.handedOff != nil {
			w.leaveQueuesWithLocked(w.handedOff)
			w.state, l.holder = served, w.handedOff
			joined = append(joined, w)
		}
	}
	if len(joined) > 0 {
		l.takeServed()
		ls.leftLocked(name, before)
	}
	return joined
}

// takeServed takes the readers that have joined a hold out of the line.
func (l *line) takeServed() {
	isServed := func(w *waiter) bool { return w.state == served }
	n := len(l.waiters)
	l.waiters = slices.DeleteFunc(l.waiters, isServed)
	l.readers -= n - len(l.waiters)
	if isServed(l.pacer) {
		l.replacePacer(l.pacer.pace.mean)
	}
}

// put notes that readers can join hold.
func (s *shared) put(name string, hold *lease.Lease) {
	if len(s.byName) >= s.sweep {
		for other, h := range s.byName {
			if !h.IsJoinable(chain(h.Terms())) {
				delete(s.byName, other)
			}
		}
		s.sweep = 2*len(s.byName) + 64
	}
	if s.byName == nil {
		s.byName = make(map[string]*lease.Lease)
	}
	s.byName[name] = hold
}

// forgetHold notes that nobody can share hold any more.
func (ls *lines) forgetHold(hold *lease.Lease) {
	if !hold.Terms().Joins {
		return
	}
	name := hold.Claim().Lines()[0]
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if h := ls.shared.byName[name]; h != nil && !h.IsJoinable(chain(h.Terms())) {
		delete(ls.shared.byName, name)
	}
}
