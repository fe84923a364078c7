package lease

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/clock"
)

// This file is about leases that others continue (by direct hand-off, or after Detach) or share: the leases of readers
// of one process have one value, and the last one that leaves releases it.

// A sharing is what leases with one hold have in common.
type sharing struct {
	acquired clock.Instant
	spoiled  atomic.Bool // nobody may join: the user has seen the value, or a lease was lost

	mu       sync.Mutex    // guards what follows, and Lease.seat; before Lease.mu
	leases   []*Lease      // those that have not left
	closed   bool          // nobody may join
	extender *Lease        // whose watchdog was the last to begin a round
	began    clock.Instant // by the extender
	extended clock.Instant // of the last confirmed extension

	room [1]*Lease // for leases
}

// A Likeness is what readers must have in common to share a hold. It is comparable.
type Likeness struct {
	name, owner                        string
	keeper                             *Keeper
	expiry, ttl, validity, nodeTimeout time.Duration // others, such as MaxHold, keep from sharing
	heals                              bool
}

// Likeness is for a reader with Policy.Joins.
func (t *Terms) Likeness() Likeness {
	return Likeness{
		t.Claim.Lines()[0], t.Owner, t.Keeper,
		t.Timing.Expiry, t.Timing.TTL, t.Timing.Validity, t.Timing.NodeTimeout, t.Heals,
	}
}

// BeginSharing lets others join l, which was just acquired, if its terms allow that, and reports whether they do.
func (l *Lease) BeginSharing() bool {
	if !l.terms.Joins {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sharing() == nil {
		s := &sharing{room: [1]*Lease{l}, acquired: clock.Now()}
		s.leases = s.room[:]
		l.shares.Store(s)
	}
	return true
}

// Join returns a new lease under terms t, of the same name, that shares the hold of l.
//
// It returns nil if the terms differ in what leases with one value must have in common: see Likeness. It also returns
// nil, and keeps everybody else from joining, if
//   - the hold was acquired window ago or earlier,
//   - less than nine tenths of the validity are left,
//   - the user has seen the value, or a lease of the hold was lost, or
//   - the last lease has left.
func (l *Lease) Join(t *Terms, window time.Duration) *Lease {
	s, now := l.sharing(), clock.Now()
	if s == nil || !t.Joins || t.Likeness() != l.terms.Likeness() {
		return nil
	}
	if now.Since(s.acquired) >= window {
		s.close()
		return nil
	}
	other := &Lease{First: now, terms: t, rareEnd: &noRareEnd, rare: &noRareLease} // made first, so that nobody waits for the memory
	other.shares.Store(s)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.spoiled.Load() || !l.passFresh(other, now) {
		s.closed = true
		return nil
	}
	other.seat = int32(len(s.leases)) //nolint:gosec // so many do not fit into the memory
	s.leases = append(s.leases, other)
	return other
}

// IsJoinable reports whether others may still join: see Join.
func (l *Lease) IsJoinable(window time.Duration) bool {
	s := l.sharing()
	if s == nil || s.spoiled.Load() {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.closed && clock.Now().Since(s.acquired) < window
}

func (s *sharing) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}

// Leave ends the part of l, which has ended, in its hold. It reports whether l must release the hold, because no other
// lease that is neither past nor lost has it. It may be called again.
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

func (s *sharing) hasLocked(l *Lease) bool {
	return int(l.seat) < len(s.leases) && s.leases[l.seat] == l
}

func (s *sharing) removeLocked(l *Lease) {
	end := len(s.leases) - 1
	s.leases[l.seat] = s.leases[end]
	s.leases[l.seat].seat = l.seat
	s.leases[end] = nil
	s.leases = s.leases[:end]
}

func (s *sharing) dropOverLocked(now clock.Instant) {
	for end := len(s.leases); end > 0 && !s.leases[end-1].mayStillHave(now); end = len(s.leases) {
		s.removeLocked(s.leases[end-1])
	}
}

// mayStillHave reports whether l has the hold, or was just unlocked and is about to leave.
func (l *Lease) mayStillHave(now clock.Instant) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch l.state {
	case Over, Dropped:
		return l.rareEnd.cause == nil
	default:
		return l.notHeldLocked(now) == nil
	}
}

// IsAlone reports whether only l has the hold. If so, and l stays alone, as for Detach, nobody can join any more.
func (l *Lease) IsAlone(stays bool) bool {
	s := l.sharing()
	if s == nil {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := clock.Now()
	alone := !slices.ContainsFunc(s.leases, func(other *Lease) bool { return other != l && other.mayStillHave(now) })
	s.closed = s.closed || alone && stays
	return alone
}

// A duty is what a watchdog does when a round is due.
type duty uint8

const (
	extendNow   duty = iota
	lookAgain        // soon: another lease has begun a round, but may leave before a quorum confirms it
	extendLater      // in the next third of the expiry: another lease has just extended
)

// duty keeps a watchdog from a round if another lease with the hold has extended it, or has begun to, less than a sixth
// of the expiry ago.
func (l *Lease) duty(now clock.Instant) duty {
	s := l.sharing()
	if s == nil {
		return extendNow
	}
	recent := l.terms.Timing.Expiry / 6
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.extender == nil || s.extender == l:
	case s.extended != clock.Instant{} && now.Since(s.extended) < recent:
		return extendLater
	case s.hasLocked(s.extender) && s.extender.mayStillHave(now) && now.Since(s.began) < recent:
		return lookAgain
	}
	s.extender, s.began = l, now
	return extendNow
}

// MayPass reports whether l, which Unlock has ended, may be handed over: the lock was acquired less than chain ago,
// nine tenths of the validity are left, and the user has not seen the value, which MayPass hides.
func (l *Lease) MayPass(chain time.Duration) bool {
	now := clock.Now()
	if l.chain+now.Since(l.First) >= chain || !l.Hide() {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.freshLocked(now)
}

func (l *Lease) freshLocked(now clock.Instant) bool {
	return l.validity.Remaining(now) >= l.terms.Timing.Validity-l.terms.Timing.Validity/10
}

// Pass returns the lease that continues l, under other terms with the same timing and owner. No node is told, and l
// does not affect it any more.
func (l *Lease) Pass(t *Terms) *Lease {
	other := &Lease{First: clock.Now(), terms: t, rareEnd: &noRareEnd, rare: &noRareLease}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.passLocked(other)
	return other
}

func (l *Lease) passFresh(other *Lease, now clock.Instant) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.freshLocked(now) {
		return false
	}
	l.passLocked(other)
	return true
}

func (l *Lease) passLocked(other *Lease) {
	other.claim, other.validity, other.writes = l.claim, l.validity, l.writes
	other.chain = l.chain + other.First.Since(l.First)
}

// AwaitReplies waits for the replies, or losses, of commands that can set or prolong a key of l, which has ended; at
// most for the node deadline, or until ctx is done.
func (l *Lease) AwaitReplies(ctx context.Context) {
	timer := time.NewTimer(l.terms.Timing.NodeTimeout)
	defer timer.Stop()
	select {
	case <-l.writes.awaitQuiet():
	case <-timer.C:
	case <-ctx.Done():
	}
}
