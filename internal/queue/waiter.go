package queue

import (
	"cmp"
	"slices"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/jitter"
	"github.com/seed14bd9ef4/redsync/internal/lease"
	"github.com/seed14bd9ef4/redsync/internal/script"
)

// This file is what the lines know of a call of Lock that waits.

// wakeGrace is how long the first in line waits, after its first wake-up, for the wake-ups of a quorum. A random
// time of up to wakeGrace is added. The wait has an end, because wake-ups may be lost. A session waits for
// wakeGrace as well.
const wakeGrace = 2 * time.Millisecond

// A waiter is one call of Lock that waits.
type waiter struct {
	terms *lease.Terms
	names []string // of the lines in which it can stand: see stands
	start clock.Instant
	look  chan struct{} // has room for one token: something has changed

	// lines.mu guards what follows.
	state       state
	heardTooFew bool           // the last attempt heard fewer nodes than a quorum
	vain        bool           // too few nodes had caused an attempt in vain: they cause no other until it polls or shows its ticket
	attempts    uint16         // made so far, modulo 65536
	tries       uint32         // the number of its last attempt, as observers are told
	place       uint32         // the order in which waiters have joined their lines
	number      uint32         // the number of its next ticket
	ticket      script.Ticket  // its place in the queues; zero until Group.ticketLocked makes it
	mean        time.Duration  // of its retry delays; the last delay if a function of the user's makes them
	handedOff   *lease.Lease   // the lease that was handed over to it, or by which it shares a hold; nil if none was
	agenda      agenda         // why and when it tries next
	at          int            // the index of the name that it waits for: the one that kept it back
	news        []news         // by name
	sight       *sight         // what its last attempt has seen; nil for one name, and for a waiter in no line
	denials     denials        // of the lock
	unfit       claim.Nodes    // the nodes whose grants would not count, as their last answers show
	entered     []*lease.Lease // the leases whose releases take the ticket out of the queues; none if it is in no queue

	roomOfNews    [1]news
	roomOfEntered [1]*lease.Lease
}

// A state is where a waiter is.
//
//	waiting <--> trying --won--> served
//	   |            |
//	   |            +--> gone
//	   +--> served (it was handed the lock, or has joined a hold), gone
type state uint8

const (
	waiting state = iota // in its line
	trying               // an attempt is under way, or has won: the lock is not handed over to it
	served               // it has the lock, and has left its line
	gone                 // it has left its line without the lock
)

// stands returns the names of the lines in which w stands while it waits: in fair mode all its names,
// otherwise the name that it waits for. In either mode only news of the name that it waits for make it try. If
// news of any name did, two waiters could wake each other for ever while a name that both want is taken: each
// failed attempt takes their free names for a moment, and its release tells the first waiters for these names.
func (w *waiter) stands() []string {
	if w.terms.Fair {
		return w.names
	}
	return w.names[w.at : w.at+1]
}

func (w *waiter) isFair() bool { return w.terms.Fair }

// shares reports whether w is a reader.
func (w *waiter) shares() bool { return w.terms.Claim.Shares() }

// standsInOneOfSeveral reports whether w has several names, and stands in the line of one of them at a time.
func (w *waiter) standsInOneOfSeveral() bool { return len(w.names) > 1 && !w.terms.Fair }

// isQueued reports whether the ticket of w may be in the queue of a node.
func (w *waiter) isQueued() bool { return len(w.entered) > 0 }

// compare returns a negative number if w stands before other in every line. That is the order of their tickets: if it were
// another, the nodes could tell the process that it is the turn of one waiter while another is the first in line. Only two
// waiters that came in the same microsecond may have their tickets in the other order.
func (w *waiter) compare(other *waiter) int {
	return cmp.Or(
		cmp.Compare(other.terms.Priority, w.terms.Priority),
		cmp.Compare(w.start.Wall.UnixMicro(), other.start.Wall.UnixMicro()),
		cmp.Compare(w.place, other.place),
	)
}

func (w *waiter) markReadyLocked() {
	w.agenda.ready = true
	w.lookAgain()
}

// wakeLocked notes that node i has told w that the lock of a name is free. message says that w has not asked for it. This
// is a reason to try only if w waits for that name. w may come to wait for it later.
func (w *waiter) wakeLocked(name string, i int, message bool) {
	at := slices.Index(w.names, name)
	w.news[at].woken = w.news[at].woken.With(i)
	w.news[at].told = w.news[at].told || message
	if at != w.at {
		return
	}
	w.beginGraceLocked()
	w.lookAgain()
}

func (w *waiter) beginGraceLocked() {
	if w.agenda.graceEnd.IsZero() {
		w.agenda.graceEnd = time.Now().Add(wakeGrace + jitter.N(wakeGrace))
	}
}

// nudgeLocked notes that something that held a name has ended. This is a reason to try if w waits for that
// name.
func (w *waiter) nudgeLocked(name string) {
	at := slices.Index(w.names, name)
	if at == w.at {
		w.markReadyLocked()
		return
	}
	w.news[at].ended = true
	w.lookAgain() // w may have waited for the end of a hold of its process: see heldForLocked
}

// leaveQueuesWithLocked lets the release of holder, the lease that w has got, take the ticket of w out of the
// queues. The ticket may have entered a queue after the attempt of w that won.
func (w *waiter) leaveQueuesWithLocked(holder *lease.Lease) {
	if w.isQueued() {
		holder.LeaveQueuesOnRelease(w.ticket)
	}
}

func (w *waiter) lookAgain() {
	select {
	case w.look <- struct{}{}:
	default:
	}
}

// KeptBackBy returns the index of the claim's line that has kept back the attempt with the outcome o. Its Result must have a
// Rule.
func KeptBackBy(o lease.Outcome) int { return sightOf(o).keptBackBy(0) }

// sightOf returns what the attempt with the outcome o has seen. Its Result must have a Rule.
func sightOf(o lease.Outcome) *sight {
	s := newSight(o.Result.Rule, len(o.Lines))
	s.failed = o.Result.Count.Failed
	for i, v := range o.Result.Votes {
		if v.Choice == claim.Granted || v.Choice == claim.Refused {
			s.add(i, v.FreeIn())
		}
	}
	return s
}

// A sight is what an attempt has seen of the lines of its claim: on which nodes nothing was in its way in each line.
type sight struct {
	rule             claim.Rule
	answered, failed claim.Nodes
	free             []claim.Nodes // by line
}

// newSight returns the sight of an attempt on that many lines. It has seen nothing yet.
func newSight(rule claim.Rule, lines int) *sight {
	return &sight{rule: rule, free: make([]claim.Nodes, lines)}
}

// add adds the answer of a node: the lines in which nothing was in the way.
func (s *sight) add(node int, lines claim.Lines) {
	s.answered = s.answered.With(node)
	for at := range s.free {
		if lines.Has(at) {
			s.free[at] = s.free[at].With(node)
		}
	}
}

// addLate adds the answers of other that s does not have, except those of nodes that have failed.
func (s *sight) addLate(other *sight) {
	late := other.answered &^ s.answered &^ s.failed
	s.answered |= late
	for at := range s.free {
		s.free[at] |= other.free[at] & late
	}
}

// keptBackBy returns the index of the line that has kept the attempt back. That is a line that is not free on a quorum
// of nodes, even if it is free on all nodes that have not answered. If there is no such line, some nodes have refused
// because of one line and some because of another. Then keptBackBy returns a line because of which a node has refused.
//
// was is the index of the line for which the waiter has waited. keptBackBy returns it if it is among the lines from
// which it must choose, and otherwise the first of them. So the choice seldom depends on which nodes have answered
// first, and the waiter does not move back and forth between two lines.
func (s *sight) keptBackBy(was int) int {
	for _, is := range []func(at int) bool{s.keepsBack, s.isTaken} {
		if is(was) {
			return was
		}
		for at := range s.free {
			if is(at) {
				return at
			}
		}
	}
	return was
}

// keepsBack reports whether a line is not free on a quorum of nodes. Nodes that have not answered count as free.
func (s *sight) keepsBack(at int) bool {
	return !s.rule.Quorum(s.rule.All() &^ s.failed &^ s.takenOn(at))
}

// isTaken reports whether a node has refused because of a line.
func (s *sight) isTaken(at int) bool { return s.takenOn(at) != 0 }

// takenOn returns the nodes on which something was in the way in a line.
func (s *sight) takenOn(at int) claim.Nodes { return s.answered &^ s.free[at] }
