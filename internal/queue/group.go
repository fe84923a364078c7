package queue

import (
	"runtime"
	"sync"
	"sync/atomic"
	"weak"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/lease"
	"github.com/seed14bd9ef4/redsync/internal/quorum"
	"github.com/seed14bd9ef4/redsync/internal/script"
	"github.com/seed14bd9ef4/redsync/internal/wire"
)

// A Group is what Redsyncs of one process share if they have the same clients in the same order, and the same rule:
// what is a quorum by one may be none by another. A program may call New for every request. A Redsync whose pools do
// not tell their clients has its own group.
type Group struct {
	Process script.Process // identifies this process's waiters to the nodes
	Tokens  lease.Tokens
	Known   *quorum.Known
	Rash    Rash // set before it is used

	lines      lines
	sharing    sharing
	leftovers  leftovers
	holders    holders
	subscriber subscriber
	severed    atomic.Bool // no quorum of clients is open any more

	members atomic.Int64 // Redsyncs that are neither closed nor collected
}

// Waiting returns the names for which calls with leases of k wait, and how many tries they have made. A lock on several
// names counts as one.
func (g *Group) Waiting(k *lease.Keeper) map[string]int {
	ls := &g.lines
	ls.mu.Lock()
	defer ls.mu.Unlock()
	names := make(map[string]int)
	for _, l := range ls.byName {
		for _, w := range l.waiters {
			if name := w.terms.Claim.Name(); w.terms.Keeper == k {
				names[name] = max(names[name], int(w.tries))
			}
		}
	}
	return names
}

func (g *Group) ticketLocked(w *waiter) script.Ticket {
	if w.ticket.IsZero() {
		w.ticket = script.NewTicket(w.terms.Priority, w.start.Wall.UnixMicro(), g.Process, w.number)
		if w.shares() {
			w.ticket = w.ticket.Shared()
		}
		w.number = g.lines.tickets.Add(1)
	}
	return w.ticket
}

// look ends all waiting and the subscriptions if the user has closed too many clients.
func (g *Group) look(set *quorum.Set) {
	if _, severed := set.Severed(); severed {
		g.severed.Store(true)
		g.lines.lookAgain()
		g.subscriber.stop(nil)
	}
}

// groups finds groups. It keeps none in memory: only Redsyncs and open subscriptions do.
var groups struct {
	sync.Mutex // guards byKey
	byKey      map[groupKey]weak.Pointer[Group]
}

type groupKey struct {
	clients any // see clientsOf
	rule    claim.Rule
}

// A clientList is a comparable list: all clients but the last, and the last.
type clientList struct{ first, next any }

// clientsOf returns a comparable list of the clients of these pools, nil if one does not tell its client.
func clientsOf(pools []wire.Pool) (list any) {
	for _, p := range pools {
		shared, ok := p.(wire.Shared)
		if !ok {
			return nil
		}
		client := shared.Client()
		if client == nil {
			return nil
		}
		list = clientList{list, client}
	}
	return list
}

// GroupOf returns the group of a Redsync with these pools and this rule.
func GroupOf(pools []wire.Pool, rule claim.Rule) *Group {
	key := groupKey{clientsOf(pools), rule}
	if key.clients == nil {
		return newGroup(len(pools))
	}
	groups.Lock()
	defer groups.Unlock()
	if g := groups.byKey[key].Value(); g != nil {
		return g
	}
	g := newGroup(len(pools))
	if groups.byKey == nil {
		groups.byKey = make(map[groupKey]weak.Pointer[Group])
	}
	groups.byKey[key] = weak.Make(g)
	runtime.AddCleanup(g, forgetGroup, key)
	return g
}

func forgetGroup(key groupKey) {
	groups.Lock()
	defer groups.Unlock()
	if groups.byKey[key].Value() == nil {
		delete(groups.byKey, key)
	}
}

func newGroup(nodes int) *Group {
	g := &Group{Process: script.NewProcess(), Known: quorum.NewKnown(nodes)}
	g.sharing.lines = &g.lines
	g.subscriber.group = g
	return g
}

// A Member is the membership of a Redsync in its group, until Close or garbage collection.
type Member struct {
	Group *Group
	ended atomic.Bool
}

// Join adds a member.
func (g *Group) Join() *Member {
	g.members.Add(1)
	return &Member{Group: g}
}

// Leave ends the membership. The subscriptions end with the last member.
func (m *Member) Leave() {
	if m.end() {
		m.Group.subscriber.stop(m.Group.abandoned)
	}
}

// Collected ends the membership of a Redsync that nobody has closed. The subscriptions end later, because a cleanup
// must not wait.
func (m *Member) Collected() { m.end() }

func (m *Member) end() (last bool) {
	return m.ended.CompareAndSwap(false, true) && m.Group.members.Add(-1) == 0
}

func (g *Group) abandoned() bool { return g.members.Load() == 0 }

// isOver reports whether no call of the group can acquire a lock any more.
func (g *Group) isOver() bool { return g.abandoned() || g.severed.Load() }
