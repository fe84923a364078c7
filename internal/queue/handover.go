package queue

import (
	"context"
	"slices"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/lease"
	"github.com/seed14bd9ef4/redsync/internal/script"
)

// HandOver passes the lock of l, which Unlock has ended, to the first in line by direct hand-off, and reports whether
// it did. The value and its validity go to a new lease. No node is told.
//
// It does so only while nine tenths of the validity are left, and for maxChain at most: then other processes have their
// turn. The lock stays within one Redsync, because another may be closed.
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

// ReleaseAwaited sends the release of l, which Unlock has ended, and admits the next waiter. The caller waits for it
// with ctx. No other lease may share the hold of l: see Lease.Leave.
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

// releaseAndAdmit releases what l has left on the nodes, and admits waiters. Lease.Release drops tickets of waiters
// that have given up meanwhile.
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
		// The waiter may have given up its ticket, and the release that removes it may come before this one. A second one
		// removes it.
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

// leaveOnWin takes the ticket of a waiter that has won l, and left its line, off the queues, unless it may stay until l
// is released: see Lease.Leaver. The same command adds the ticket of the next waiter, so that no later call overtakes
// it.
func (g *Group) leaveOnWin(l *lease.Lease, ticket script.Ticket) {
	if nobody := l.Leaver(ticket); nobody != nil {
		g.releaseAndAdmit(nobody, lease.Releasing{})
	}
}

// entered notes that the release of l puts a's ticket into a queue. It reports false if the waiter has given up that
// ticket.
//
// The waiter must not know l before the release is sent: if it gave up, it would release l, another process could get
// the lock, and Unlock would fail.
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

func (ls *lines) letTry(w *waiter) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	w.markReadyLocked()
}

// An admission says what the first in a line does at a release.
//
// A waiter without fair mode tries right after the release if no other process is known to wait. Otherwise its ticket
// enters the queue with the release, and then:
//
//	if it is trying now               it tries again
//	if it cannot hear the nodes       it tries at once
//	otherwise                         it waits until a node tells it that its turn has come
type admission struct {
	waiter *waiter
	line   int           // the index in the lines of the claim
	ticket script.Ticket // set if enters
	enters bool          // its ticket enters the queue
	tries  bool          // it tries right after the release
}

// admit appends what the first in each line of h's claim does. heard says that the nodes can be heard.
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
		_, downgraded := c.(*claim.Downgraded) // some nodes may still have a writer's claim
		if c.Shares() && first.shares() && !downgraded {
			continue // a reader does not keep it back
		}
		// Before the release: a node may tell the waiter of it before letTry does.
		first.agenda.followsRelease = !l.others && !first.terms.Fair
		if first.agenda.followsRelease {
			all = append(all, admission{waiter: first, line: i, tries: true})
			continue
		}
		if len(first.names) > 1 && first.terms.Fair { // it has waited for this name
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
