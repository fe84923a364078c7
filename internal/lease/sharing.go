package lease

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/clock"
)

// This file is about readers of one process that share a hold: they have one value on the nodes, and a lease each.
// To the nodes they are one reader, however many there are. The last of the leases to leave releases the value.

// A sharing is what the leases that share a hold have in common.
type sharing struct {
	spoiled atomic.Bool // the user has seen the value of a lease, or a lease was lost: nobody joins any more

	mu     sync.Mutex    // guards what follows, and Lease.seat; it comes before Lease.mu
	leases []*Lease      // those that have not left
	closed bool          // nobody joins any more
	by     *Lease        // the one whose watchdog has begun a round last; nil if none has
	began  clock.Instant // when that was
	fresh  clock.Instant // the start of the last extension that a quorum has confirmed

	opened clock.Instant // when the hold was acquired
	room   [1]*Lease     // for leases, while there is one
}

// A Likeness is what readers must have in common to share a hold. It is comparable.
type Likeness struct {
	name   string
	keeper *Keeper
	timing Timing
	heals  bool
}

// Likeness returns what leases with these terms must have in common to share a hold. The terms must be those of a
// reader.
func (t *Terms) Likeness() Likeness {
	timing := t.Timing
	timing.Drift = nil // the Redsync decides it
	return Likeness{t.Claim.Lines()[0], t.Keeper, timing, t.Heals}
}

// Open lets other leases join l, which was just acquired, if its terms allow that. It reports whether they do.
func (l *Lease) Open() bool {
	if !l.terms.Joins {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sharing() == nil {
		s := &sharing{room: [1]*Lease{l}, opened: clock.Now()}
		s.leases = s.room[:]
		l.shares.Store(s)
	}
	return true
}

// Join returns a lease under other terms that shares the hold of l. It has the value and the validity of l. Join
// returns nil if nobody may join any more, or not with these terms: the hold must have been acquired less than window
// ago, at least nine tenths of the validity must be left, nobody may have seen the value, no
// lease of the hold may be lost, and the terms must have the same claim and timing.
func (l *Lease) Join(t *Terms, window time.Duration) *Lease {
	s, now := l.sharing(), clock.Now()
	if s == nil || !t.Joins || t.Likeness() != l.terms.Likeness() {
		return nil
	}
	if now.Since(s.opened) >= window {
		s.close()
		return nil
	}
	other := &Lease{First: now, terms: t} // made here, so that others do not wait for the memory
	other.shares.Store(s)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.spoiled.Load() || !l.passFresh(other, now) {
		s.closed = true
		return nil
	}
	other.seat = len(s.leases)
	s.leases = append(s.leases, other)
	return other
}

// close keeps others from joining the hold.
func (s *sharing) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}

// sharing returns what l has in common with others. It never changes once Open has set it.
func (l *Lease) sharing() *sharing { return l.shares.Load() }

// spoil keeps others from joining the hold of l.
func (l *Lease) spoil() {
	if s := l.sharing(); s != nil {
		s.spoiled.Store(true)
	}
}

// Leave ends the part of l, which has ended, in the hold that it shares. It reports whether l must release the hold:
// whether no other lease has it. A lease that is past or lost does not have it any more. A second Leave reports the
// same, unless others have left meanwhile.
func (l *Lease) Leave() (last bool) {
	s := l.sharing()
	if s == nil {
		return true
	}
	now := clock.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hasLocked(l) {
		s.removeLocked(l)
	}
	s.dropOverLocked(now)
	last = len(s.leases) == 0
	s.closed = s.closed || last
	return last
}

func (s *sharing) hasLocked(l *Lease) bool { return l.seat < len(s.leases) && s.leases[l.seat] == l }

// removeLocked takes l out of its seat.
func (s *sharing) removeLocked(l *Lease) {
	end := len(s.leases) - 1
	s.leases[l.seat] = s.leases[end]
	s.leases[l.seat].seat = l.seat
	s.leases[end] = nil
	s.leases = s.leases[:end]
}

// dropOverLocked takes out leases that do not have the hold any more, until the last in leases has it.
func (s *sharing) dropOverLocked(now clock.Instant) {
	for end := len(s.leases); end > 0 && !s.leases[end-1].mayHave(now); end = len(s.leases) {
		s.removeLocked(s.leases[end-1])
	}
}

// IsAlone reports whether l is the only lease that has the hold.
func (l *Lease) IsAlone() bool {
	s := l.sharing()
	if s == nil {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.isAloneLocked(l)
}

func (s *sharing) isAloneLocked(l *Lease) bool {
	now := clock.Now()
	return !slices.ContainsFunc(s.leases, func(other *Lease) bool { return other != l && other.mayHave(now) })
}

// LeaveAlone reports whether l is the only lease that has the hold, and then keeps others from joining it. It is for
// Detach.
func (l *Lease) LeaveAlone() bool {
	s := l.sharing()
	if s == nil {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.isAloneLocked(l) {
		return false
	}
	s.closed = true
	return true
}

// mayHave reports whether l has the hold that it shares, or has only just ended and is about to leave.
func (l *Lease) mayHave(now clock.Instant) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch l.state {
	case Over, Dropped:
		return l.cause == nil
	default:
		return l.notHeldLocked(now) == nil
	}
}

// IsOpen reports whether others may still join the hold of l. For window see Join.
func (l *Lease) IsOpen(window time.Duration) bool {
	s := l.sharing()
	if s == nil || s.spoiled.Load() {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.closed && clock.Now().Since(s.opened) < window
}

// prolongOthers gives the validity of e, which a quorum has confirmed, to the other leases that share the hold.
func (e Extension) prolongOthers(confirmed clock.Instant) {
	s := e.lease.sharing()
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fresh = e.start
	for _, other := range s.leases {
		if other != e.lease {
			other.Prolong(e, confirmed)
		}
	}
}

// A shift says whether the watchdog of a lease should begin a round.
type shift uint8

const (
	own      shift = iota // it should begin one
	others                // another lease that shares the hold extends it, but may leave it before a quorum has confirmed that
	extended              // another lease has just extended it
)

// shift says whether the watchdog of l should begin a round at now. It should not if another lease that shares the
// hold has extended it less than a sixth of the expiry ago, or still has it and began a round of its own in that time:
// that round prolongs l, too.
func (l *Lease) shift(now clock.Instant) shift {
	s := l.sharing()
	if s == nil {
		return own
	}
	recent := l.terms.Timing.Expiry / 6
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.by == nil || s.by == l:
	case s.fresh != clock.Instant{} && now.Since(s.fresh) < recent:
		return extended
	case s.hasLocked(s.by) && s.by.mayHave(now) && now.Since(s.began) < recent:
		return others
	}
	s.by, s.began = l, now
	return own
}
