package lease

import (
	"slices"
	"sync"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/clock"
)

// This file is about readers of one process that share a hold: they have one value on the nodes, and a lease each.
// The nodes know of one reader then, however many there are. The last of the leases to leave releases the value.

// A sharing is what the leases that share a hold have in common.
type sharing struct {
	mu     sync.Mutex // guards what follows; it comes before Lease.mu
	leases []*Lease   // those that have not left
	closed bool       // nobody joins any more
}

// Open lets other leases join l, which was just acquired, if its terms allow that. It reports whether they do.
func (l *Lease) Open() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.terms.Joins && l.shares == nil {
		l.shares = &sharing{leases: []*Lease{l}}
	}
	return l.shares != nil
}

// Join returns a lease under other terms that shares the hold of l. It has the value and the validity of l. It returns
// nil if nobody may join any more, or not with these terms: the attempt that acquired the hold must have begun
// less than window ago, at least nine tenths of the validity must be left, nobody may have seen the value, and the terms
// must have the same claim and timing.
func (l *Lease) Join(t *Terms, window time.Duration) *Lease {
	s, now := l.sharing(), clock.Now()
	if s == nil || !t.Joins || t.Keeper != l.terms.Keeper || !t.Timing.LastsAs(l.terms.Timing) || t.Heals != l.terms.Heals {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	private := func(other *Lease) bool { return other.mayHave(now) && !other.isShown() }
	s.closed = s.closed || now.Since(l.chainStart) >= window || !l.fresh(now) || !private(l)
	for _, other := range s.leases {
		s.closed = s.closed || !private(other)
	}
	if s.closed {
		return nil
	}
	other := l.Pass(t)
	other.shares = s
	s.leases = append(s.leases, other)
	return other
}

func (l *Lease) sharing() *sharing {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.shares
}

func (l *Lease) isShown() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.value.shown
}

// Leave ends the part of l, which has ended, in the hold that it shares. It reports whether l must release the hold:
// whether no other lease has it. A lease that is past or lost does not have it any more.
func (l *Lease) Leave() (last bool) {
	s := l.sharing()
	if s == nil {
		return true
	}
	now := clock.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leases = slices.DeleteFunc(s.leases, func(other *Lease) bool { return other == l || !other.mayHave(now) })
	last = len(s.leases) == 0
	s.closed = s.closed || last || l.isShown()
	return last
}

// LeaveAlone closes the hold that l shares to others, and reports true, if l is the only one that has it. It is for
// Detach.
func (l *Lease) LeaveAlone() bool {
	s := l.sharing()
	if s == nil {
		return true
	}
	now := clock.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.ContainsFunc(s.leases, func(other *Lease) bool { return other != l && other.mayHave(now) }) {
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

// IsOpen reports whether nobody has closed the hold of l to others.
func (l *Lease) IsOpen() bool {
	s := l.sharing()
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.closed
}

// HeldFor returns for how much longer l or a lease that shares its hold may be relied upon.
func (l *Lease) HeldFor(now clock.Instant) (left time.Duration) {
	s := l.sharing()
	if s == nil {
		return l.Remaining(now)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, other := range s.leases {
		left = max(left, other.Remaining(now))
	}
	return left
}
