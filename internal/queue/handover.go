package queue

import (
	"cmp"
	"context"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/lease"
	"github.com/seed14bd9ef4/redsync/internal/script"
)

// This file decides what the waiters of this process do when a lock is released. Leases see them as a
// Group, which implements lease.Waiters.

// maxChain limits for how long after its acquire a lock may be handed on within the process, without a turn
// for other processes. If a tenth of the expiry is shorter, that is the limit. maxChain is much longer than
// an acquire takes.
const maxChain = 20 * time.Millisecond

// HandOver passes the lock of l, which Unlock has ended, to the first in line by direct hand-off, and
// reports whether it did. The value and its validity go to a new lease. No node is told, and nothing that
// is done later with l affects the new lease.
//
// HandOver passes the lock only if nine tenths of its validity are left, and only until the limit of
// maxChain: after that, other processes have their turn. It passes the lock only within one Redsync, because
// another Redsync of the group may be closed meanwhile. If the first in line belongs to another Redsync,
// HandOver reports false, and the release admits that waiter.
func (g *Group) HandOver(l *lease.Lease) bool {
	ls, t := &g.lines, l.Terms()
	if ls.count.Load() == 0 || !t.Passes || !l.MayPass(min(t.Timing.Expiry/10, maxChain)) {
		return false
	}
	c := l.Claim()
	ls.mu.Lock()
	defer ls.mu.Unlock()
	w := ls.byName[c.Lines()[0]].first()
	if w == nil || w.state == trying || !w.terms.Passes {
		return false
	}
	if w.terms.Keeper != t.Keeper || !w.terms.Timing.LastsAs(t.Timing) || !c.PassesTo(w.terms.Claim) {
		return false
	}
	w.handedOff = l.Pass(&w.terms.Terms)
	ls.removeLocked(w, w.handedOff)
	w.lookAgain()
	return true
}

// ReleaseAwaited sends the release of l, which Unlock has ended, and admits the next waiter. The caller,
// whose context is ctx, waits for the release.
func (g *Group) ReleaseAwaited(ctx context.Context, l *lease.Lease) *lease.Release {
	return g.releaseAndAdmit(l, lease.Releasing{Caller: ctx})
}

// Unlocked notes whether the release of l has found waiters of other processes.
func (g *Group) Unlocked(l *lease.Lease, rel *lease.Release) {
	if others := rel.Others(); others || g.Any() {
		g.lines.tellOthers(l.Claim().Lines()[0], others)
	}
}

// Any implements lease.Waiters.
func (g *Group) Any() bool { return g.lines.count.Load() > 0 }

// ReleaseAndAdmit implements lease.Waiters.
func (g *Group) ReleaseAndAdmit(l *lease.Lease) { g.releaseAndAdmit(l, lease.Releasing{}) }

// Nudge implements lease.Waiters.
func (g *Group) Nudge(lines []string) {
	for _, name := range lines {
		g.lines.nudge(name)
	}
}

// Wake implements lease.Waiters.
func (g *Group) Wake(lines []string, node int, undoes lease.Turn) {
	for _, name := range lines {
		g.lines.wake(name, node, undoes)
	}
}

// releaseAndAdmit releases what l, which has ended, left on the nodes, and admits the first in line of
// this process. succeed decides whether the ticket of that waiter enters the queues with the release.
// Lease.Release drops the ticket if the waiter has given up meanwhile.
func (g *Group) releaseAndAdmit(l *lease.Lease, how lease.Releasing) *lease.Release {
	ls := &g.lines
	if ls.count.Load() == 0 {
		return l.Release(how)
	}
	heard := g.subscriber.ready()
	first, s := ls.succeed(l, heard)
	how.Enters = s.enters
	rel := l.Release(how)
	// If first no longer waits with this ticket, the release of another lease may have removed the ticket from the
	// queue of a node before this release of l put it there. A second release of l removes it.
	if !s.enters.IsZero() && !ls.entered(first, s.enters, l) {
		l.LeaveQueuesOnRelease(s.enters)
		l.Release(lease.Releasing{})
	}
	if s.tries {
		ls.mu.Lock()
		defer ls.mu.Unlock()
		first.agenda.followsRelease = s.enters.IsZero()
		first.markReadyLocked()
	}
	return rel
}

// entered notes that the release of l, which has been sent, puts this ticket of w into the queues. It reports false
// if w has left its line or has given up the ticket meanwhile. Then l is not noted.
//
// Before the release of l is sent, w does not know l. A waiter that gives up releases w.last, and must not release
// a lock before its Unlock does: if another process acquired the lock in between, Unlock would fail.
func (ls *lines) entered(w *waiter, ticket script.Ticket, l *lease.Lease) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if w.state == gone || w.state == served || w.ticket != ticket {
		return false
	}
	w.last = cmp.Or(w.last, l)
	return true
}

// A succession says what the first in line does at a release.
//
// If the waiter is without fair mode, and no other process is known to wait, it tries at once, right behind
// the release. Otherwise its ticket enters the queues with the release, and what it does next depends:
//
//	if it is trying now               it tries again
//	if it cannot hear the nodes       it tries at once
//	otherwise                         it waits until a node tells it that its turn has come
type succession struct {
	enters script.Ticket // enters the queues with the release; zero: none
	tries  bool          // the first in line tries behind the release
}

func (ls *lines) succeed(h *lease.Lease, heard bool) (first *waiter, s succession) {
	c := h.Claim()
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.byName[c.Lines()[0]]
	first = l.first()
	if first == nil {
		return nil, succession{}
	}
	if l.holder != nil && l.holder.Value() == c.Value() {
		l.holder = nil
	}
	if !l.others && !first.terms.Fair {
		return first, succession{tries: true}
	}
	first.entersLocked()
	s = succession{enters: first.ticketLocked(), tries: first.state == trying || !heard}
	if !s.tries {
		first.agenda.ready = false
	}
	return first, s
}
