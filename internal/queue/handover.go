package queue

import (
	"context"
	"slices"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/lease"
	"github.com/seed14bd9ef4/redsync/internal/script"
)

// This file decides what the waiters of this process do when a lock is released. Leases see them as a
// Group, which implements lease.Waiters. Its method Wake stands in attempt.go, because it knows turns.

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
	if ls.count.Load() == 0 || !t.Passes || !l.MayPass(chain(t)) {
		return false
	}
	c := l.Claim()
	ls.mu.Lock()
	defer ls.mu.Unlock()
	w := ls.byName[c.Lines()[0]].first()
	if w == nil || w.state == trying || !w.terms.Passes {
		return false
	}
	if w.terms.Keeper != t.Keeper || !w.terms.Timing.LastsAs(t.Timing) || w.terms.Owner != t.Owner || !c.PassesTo(w.terms.Claim) {
		return false
	}
	w.handedOff = l.Pass(w.terms)
	ls.removeLocked(w, w.handedOff)
	w.lookAgain()
	return true
}

// ReleaseAwaited sends the release of l, which Unlock has ended, and admits the next waiter. The caller,
// whose context is ctx, waits for the release. No other lease may share the hold of l: see Lease.Leave.
func (g *Group) ReleaseAwaited(ctx context.Context, l *lease.Lease) *lease.Release {
	return g.releaseAndAdmit(l, lease.Releasing{Caller: ctx})
}

// Unlocked notes whether the release of l has found waiters of other processes.
func (g *Group) Unlocked(l *lease.Lease, rel *lease.Release) {
	others := rel.Others()
	if others == 0 && !g.Any() {
		return
	}
	for i, name := range l.Claim().Lines() {
		g.lines.tellOthers(name, others.Has(i))
	}
}

// Any implements lease.Waiters.
func (g *Group) Any() bool { return g.lines.count.Load() > 0 }

// ReleaseAndAdmit implements lease.Waiters.
func (g *Group) ReleaseAndAdmit(l *lease.Lease) {
	if l.Leave() {
		g.releaseAndAdmit(l, lease.Releasing{})
	}
}

// Nudge implements lease.Waiters.
func (g *Group) Nudge(lines []string) {
	for _, name := range lines {
		g.lines.nudge(name)
	}
}

// Hear implements lease.Waiters.
func (g *Group) Hear(l *lease.Lease) {
	id := script.IDOf(l.Value())
	g.holders.add(id, l)
	l.Listen(holding{&g.holders, id, l})
	g.subscriber.listen(l.Terms().Keeper.Set, l.Terms().Events)
}

// releaseAndAdmit releases what l, which has ended, left on the nodes, and admits the first waiter of this
// process in each of its lines. admit decides whether the ticket of that waiter enters the queue with the
// release. Lease.Release drops the ticket if the waiter has given up meanwhile.
func (g *Group) releaseAndAdmit(l *lease.Lease, how lease.Releasing) *lease.Release {
	ls := &g.lines
	if l.Terms().Joins {
		g.sharing.forgetHold(l)
	}
	if ls.count.Load() == 0 {
		return l.Release(how)
	}
	var room [1]admission
	all := g.admit(room[:0], l, g.subscriber.ready())
	for _, a := range all {
		if a.enters {
			if how.Enters == nil {
				how.Enters = make([]script.Ticket, len(l.Claim().Lines()))
			}
			how.Enters[a.line] = a.ticket
		}
	}
	rel := l.Release(how)
	for _, a := range all {
		// The waiter may no longer wait with this ticket. Then the release of another lease, which removes the
		// ticket, may have reached a node before this release of l put the ticket into the queue there. A
		// second release of l removes the ticket.
		if a.enters && !ls.entered(a, l) {
			l.LeaveQueuesOnRelease(a.ticket)
			l.Release(lease.Releasing{})
		}
	}
	for _, a := range all {
		if a.tries {
			ls.letTry(a.waiter)
		}
	}
	return rel
}

// leaveOnWin takes the ticket of a waiter that has won l off the queues, unless it may stay there until l is
// released: see Lease.Leaver. The waiter must have left its line. The same command puts the ticket of the
// next waiter of this process into the queues. With two commands, a later call of another process could be
// the first in between, and overtake that waiter.
func (g *Group) leaveOnWin(l *lease.Lease, ticket script.Ticket) {
	if nobody := l.Leaver(ticket); nobody != nil {
		g.releaseAndAdmit(nobody, lease.Releasing{})
	}
}

// entered notes that the release of l, which has been sent, puts the ticket of the admission a into a queue.
// It reports false if the waiter has left its line or has given up the ticket meanwhile. Then l is not noted.
//
// Before the release of l is sent, the waiter does not know l. A waiter that gives up releases the leases
// that it knows, and must not release a lock before its Unlock does: if another process acquired the lock in
// between, Unlock would fail.
func (ls *lines) entered(a admission, l *lease.Lease) bool {
	w := a.waiter
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if w.state == gone || w.state == served || w.ticket != a.ticket {
		return false
	}
	name := l.Claim().Lines()[a.line]
	removes := func(l *lease.Lease) bool { return slices.Contains(l.Claim().Lines(), name) }
	if !slices.ContainsFunc(w.entered, removes) {
		w.entered = append(w.entered, l)
	}
	return true
}

// letTry lets w try right after a release.
func (ls *lines) letTry(w *waiter) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	w.markReadyLocked()
}

// An admission says what the first in a line does at a release.
//
// If the waiter is without fair mode, and no other process is known to wait, it tries at once, right after the
// release. Otherwise its ticket enters the queue of the line with the release, and what it does next depends:
//
//	if it is trying now               it tries again
//	if it cannot hear the nodes       it tries at once
//	otherwise                         it waits until a node tells it that its turn has come
type admission struct {
	waiter *waiter
	line   int           // the index in the lines of the released claim
	ticket script.Ticket // of the waiter, if it enters the queue
	enters bool          // the ticket enters the queue with the release
	tries  bool          // the waiter tries right after the release
}

// admit appends to all what the first in each line of h's claim does at the release of h. heard says whether
// the nodes can be heard.
func (g *Group) admit(all []admission, h *lease.Lease, heard bool) []admission {
	ls, c := &g.lines, h.Claim()
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for i, name := range c.Lines() {
		l := ls.byName[name]
		if l == nil {
			continue
		}
		if l.holder != nil && l.holder.Value() == c.Value() {
			l.holder = nil
		}
		first := l.first()
		if first == nil || !ls.isFirstLocked(first) {
			continue
		}
		first.news[slices.Index(first.names, name)].told = true
		_, downgraded := c.(*claim.Downgraded) // on some nodes it may still be a writer's claim
		if c.Shares() && first.shares() && !downgraded {
			continue // readers do not keep each other back, so it waits for something else
		}
		// It is said now, because a node may tell the waiter of the release before letTry does.
		first.agenda.followsRelease = !l.others && !first.terms.Fair
		if first.agenda.followsRelease {
			all = append(all, admission{waiter: first, line: i, tries: true})
			continue
		}
		if len(first.names) > 1 && first.terms.Fair { // the released name has kept it back
			ls.moveLocked(first, slices.Index(first.names, name), true)
		}
		if !first.terms.Fair || ls.heldForLocked(first) == 0 { // otherwise it shows its ticket itself
			first.agenda.refresh = time.Now().Add(showEvery)
			first.lookAgain()
		}
		a := admission{waiter: first, line: i, ticket: g.ticketLocked(first), enters: true}
		a.tries = first.state == trying || !heard
		if !a.tries {
			first.agenda.ready = false
		}
		all = append(all, a)
	}
	return all
}
