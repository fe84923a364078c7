package queue

import (
	"context"

	"github.com/seed14bd9ef4/redsync/internal/lease"
)

// A sharing finds the holds that readers can share. When a reader acquires a lock, those behind it in the line join its
// hold, up to the first writer: a waiter that wants the lock alone. Readers that come soon after join it, too, while no
// writer waits. Later ones ask the nodes, to see writers of other processes.
type sharing struct {
	lines *lines

	// lines.mu guards what follows.
	holds    map[lease.Likeness]*lease.Lease
	sweep    int // from this number of holds on, put removes old ones
	openings map[lease.Likeness]*opening
}

// An opening is an attempt whose hold others may share. Calls that come meanwhile wait for it, which spares the nodes.
type opening struct {
	done chan struct{} // closed when others can join the hold, or there is none
	won  bool          // valid once done is closed
}

func (s *sharing) joinHold(t *lease.Terms) *lease.Lease {
	s.lines.mu.Lock()
	hold := s.joinableLocked(t)
	s.lines.mu.Unlock()
	return join(t, hold)
}

// join shares hold, which may be nil, if that is still possible. A writer that has joined the line meanwhile came at
// the same time as the reader.
func join(t *lease.Terms, hold *lease.Lease) *lease.Lease {
	if hold == nil {
		return nil
	}
	return hold.Join(t, chain(t))
}

func (s *sharing) joinableLocked(t *lease.Terms) *lease.Lease {
	hold := s.holds[t.Likeness()]
	if hold == nil || s.lines.byName[t.Claim.Lines()[0]].hasWriter() || !hold.IsJoinable(chain(t)) {
		return nil
	}
	return hold
}

// joinOrOpen returns a lease that shares a hold, if need be after an attempt that is under way. Otherwise the call must
// make its own attempt, and call done when others can join its hold or it has failed.
func (s *sharing) joinOrOpen(ctx context.Context, t *lease.Terms) (l *lease.Lease, done func(won bool)) {
	for {
		hold, other, own := s.findOrOpen(t)
		switch l := join(t, hold); {
		case l != nil:
			return l, nil
		case own != nil:
			return nil, func(won bool) { s.opened(t, own, won) }
		case hold == nil && (other == nil || !other.await(ctx, t)):
			return nil, func(bool) {}
		}
	}
}

// findOrOpen returns the hold that a call may share, or another call's attempt, or else the call's own. While a writer
// waits it returns nothing.
func (s *sharing) findOrOpen(t *lease.Terms) (hold *lease.Lease, other, own *opening) {
	s.lines.mu.Lock()
	defer s.lines.mu.Unlock()
	if s.lines.byName[t.Claim.Lines()[0]].hasWriter() {
		return nil, nil, nil
	}
	if hold = s.joinableLocked(t); hold != nil {
		return hold, nil, nil
	}
	like := t.Likeness()
	if other = s.openings[like]; other != nil {
		return nil, other, nil
	}
	own = &opening{done: make(chan struct{})}
	if s.openings == nil {
		s.openings = make(map[lease.Likeness]*opening)
	}
	s.openings[like] = own
	return nil, nil, own
}

func (s *sharing) opened(t *lease.Terms, own *opening, won bool) {
	s.lines.mu.Lock()
	defer s.lines.mu.Unlock()
	own.won = won
	delete(s.openings, t.Likeness())
	close(own.done)
}

// await reports whether the attempt has won. Observers may hold it up, so the wait ends at the node deadline of t.
func (o *opening) await(ctx context.Context, t *lease.Terms) (won bool) {
	t.Keeper.Pause(ctx, t.Timing.NodeTimeout, o.done)
	select {
	case <-o.done:
		return o.won
	default:
		return false
	}
}

// share lets other readers join hold, which the call of w has just acquired, and takes w out of its line. w is nil if
// the call stood in none.
func (s *sharing) share(hold *lease.Lease, w *waiter) {
	s.lines.mu.Lock()
	if w != nil {
		s.lines.removeLocked(w, hold)
	}
	joined := s.shareLocked(hold)
	s.lines.mu.Unlock()
	for _, w := range joined {
		w.lookAgain()
	}
}

// shareLocked lets readers join hold: at once those in the line up to the first writer. The caller unlocks lines.mu and
// tells them to look again.
func (s *sharing) shareLocked(hold *lease.Lease) (joined []*waiter) {
	name := hold.Claim().Lines()[0]
	s.put(hold)
	l := s.lines.byName[name]
	if l == nil {
		return nil
	}
	before := l.first()
	for _, w := range l.waiters {
		if !w.shares() {
			break
		}
		if w.state == trying { // it may win its own hold
			continue
		}
		if w.handedOff = hold.Join(w.terms, chain(w.terms)); w.handedOff != nil {
			w.leaveQueuesWithLocked(w.handedOff)
			w.state, l.holder = served, w.handedOff
			joined = append(joined, w)
		}
	}
	if len(joined) > 0 {
		l.takeServed()
		s.lines.leftLocked(name, before)
	}
	return joined
}

func (s *sharing) put(hold *lease.Lease) {
	if len(s.holds) >= s.sweep {
		for other, h := range s.holds {
			if !h.IsJoinable(chain(h.Terms())) {
				delete(s.holds, other)
			}
		}
		s.sweep = 2*len(s.holds) + 64
	}
	if s.holds == nil {
		s.holds = make(map[lease.Likeness]*lease.Lease)
	}
	s.holds[hold.Terms().Likeness()] = hold
}

func (s *sharing) forgetHold(hold *lease.Lease) {
	like := hold.Terms().Likeness()
	s.lines.mu.Lock()
	defer s.lines.mu.Unlock()
	if h := s.holds[like]; h != nil && !h.IsJoinable(chain(h.Terms())) {
		delete(s.holds, like)
	}
}
