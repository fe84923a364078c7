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

// wakeGrace is how long the first in line waits at least, after a wake-up, for those of a quorum. Some may be lost.
const wakeGrace = 2 * time.Millisecond

// A waiter is what the lines know of a call of Lock that waits.
type waiter struct {
	terms *lease.Terms
	names []string
	start clock.Instant
	look  chan struct{} // room for one token

	// lines.mu guards what follows.
	state       state
	heardTooFew bool          // its last attempt heard no quorum
	vain        bool          // too few nodes caused an attempt in vain: they cause none until it polls or shows its ticket
	attempts    uint16        // modulo 65536
	tries       uint32        // of its last attempt, for observers
	place       uint32        // the order of joining
	number      uint32        // of its next ticket
	ticket      script.Ticket // zero until Group.ticketLocked makes it
	mean        time.Duration // of its retry delays; the last if they are the user's
	handedOff   *lease.Lease  // what it was handed, or shares a hold by
	agenda      agenda
	at          int    // the index of the name that it waits for
	news        []news // by name
	sight       *sight // of its last attempt; nil for one name, and for a waiter in no line
	denials     denials
	unfit       claim.Nodes    // the nodes whose grants would not count, by their last answers
	entered     []*lease.Lease // the leases whose releases take the ticket out of the queues

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
	waiting state = iota
	trying        // an attempt is under way, or has won: it is not handed the lock
	served        // it has the lock and has left its line
	gone
)

// stands returns the names of the lines in which w stands: in fair mode all, otherwise the one that it waits for. In
// either mode only news of that one make it try. Otherwise two waiters could wake each other for ever: each failed
// attempt takes free names for a moment, and its release wakes waiters for these.
func (w *waiter) stands() []string {
	if w.terms.Fair {
		return w.names
	}
	return w.names[w.at : w.at+1]
}

func (w *waiter) isFair() bool { return w.terms.Fair }

func (w *waiter) shares() bool { return w.terms.Claim.Shares() }

func (w *waiter) standsInOneOfSeveral() bool { return len(w.names) > 1 && !w.terms.Fair }

// isQueued reports whether the ticket of w may be in a node's queue.
func (w *waiter) isQueued() bool { return len(w.entered) > 0 }

// compare orders waiters as their tickets are ordered, or nodes could wake one that is not the first. Only waiters of
// the same microsecond may be in the other order.
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

func (w *waiter) nudgeLocked(name string) {
	at := slices.Index(w.names, name)
	if at == w.at {
		w.markReadyLocked()
		return
	}
	w.news[at].ended = true
	w.lookAgain() // it may have waited for this process: see heldForLocked
}

// leaveQueuesWithLocked lets the release of holder, the lease of w, take out a ticket that may have entered queues
// late.
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

// KeptBackBy returns the index of the claim's line that has kept back the attempt with the outcome o. Its Result must
// have a Rule.
func KeptBackBy(o lease.Outcome) int { return sightOf(o).keptBackBy(0) }

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

// A sight is what an attempt has seen: on which nodes nothing was in its way in each line of its claim.
type sight struct {
	rule             claim.Rule
	answered, failed claim.Nodes
	free             []claim.Nodes // by line
}

func newSight(rule claim.Rule, lines int) *sight {
	return &sight{rule: rule, free: make([]claim.Nodes, lines)}
}

func (s *sight) add(node int, lines claim.Lines) {
	s.answered = s.answered.With(node)
	for at := range s.free {
		if lines.Has(at) {
			s.free[at] = s.free[at].With(node)
		}
	}
}

func (s *sight) addLate(other *sight) {
	late := other.answered &^ s.answered &^ s.failed
	s.answered |= late
	for at := range s.free {
		s.free[at] |= other.free[at] & late
	}
}

// keptBackBy returns the index of the line that has kept the attempt back: one that keepsBack, or else one that
// isTaken. It prefers was, for which the waiter has waited, and then the first, so that the waiter does not move back
// and forth.
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

// keepsBack reports whether a line is not free on a quorum, even if it is free on all nodes that have not answered.
func (s *sight) keepsBack(at int) bool {
	return !s.rule.Quorum(s.rule.All() &^ s.failed &^ s.takenOn(at))
}

func (s *sight) isTaken(at int) bool { return s.takenOn(at) != 0 }

func (s *sight) takenOn(at int) claim.Nodes { return s.answered &^ s.free[at] }
