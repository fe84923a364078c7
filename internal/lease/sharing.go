package lease

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/clock"
)

// This file is about a lease that others continue or share. A waiter of this process continues it by direct hand-off, or a
// Mutex adopts its value after Detach. Readers of one process share a hold: each has a lease of its own, and all leases have
// one value on the nodes. To the nodes they are one reader. The last lease that leaves releases the value.

// A sharing is what the leases that share a hold have in common.
type sharing struct {
	acquired clock.Instant // when the hold was acquired
	spoiled  atomic.Bool   // nobody may join: the user has seen the value, or a lease was lost

	mu       sync.Mutex    // guards what follows, and Lease.seat; it comes before Lease.mu
	leases   []*Lease      // those that have not left
	closed   bool          // nobody may join: see Join, Leave and IsAlone
	extender *Lease        // the lease whose watchdog was the last to begin a round; nil if none has
	began    clock.Instant // when the extender began it
	extended clock.Instant // the start of the last extension that a quorum has confirmed

	room [1]*Lease // for leases, while there is one
}

// A Likeness is what readers must have in common to share a hold. It is comparable.
type Likeness struct {
	name, owner                        string
	keeper                             *Keeper
	expiry, ttl, validity, nodeTimeout time.Duration // the rest of Timing is equal: MaxHold and MinHold keep from sharing
	heals                              bool
}

// Likeness returns what leases with these terms must have in common to share a hold. The terms must be those of
// a reader with Policy.Joins.
func (t *Terms) Likeness() Likeness {
	return Likeness{
		t.Claim.Lines()[0], t.Owner, t.Keeper,
		t.Timing.Expiry, t.Timing.TTL, t.Timing.Validity, t.Timing.NodeTimeout, t.Heals,
	}
}

// BeginSharing lets other leases join l, which was just acquired, if its terms allow that. It reports whether
// they do.
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

// Join returns a new lease under terms t that shares the hold of l. It has the value and the validity of l. t
// must have the name of l.
//
// Join returns nil if t and the terms of l differ in something that leases with one value must have in common,
// such as the TTL or the owner. It also returns nil, and keeps everybody else from joining, if
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
	other := &Lease{First: now, terms: t, rareEnd: &noRareEnd, rare: &noRareLease} // made before s.mu is locked, so that others do not wait for the memory
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

// IsJoinable reports whether others may still join the hold of l. For window see Join.
func (l *Lease) IsJoinable(window time.Duration) bool {
	s := l.sharing()
	if s == nil || s.spoiled.Load() {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.closed && clock.Now().Since(s.acquired) < window
}

// close keeps others from joining the hold.
func (s *sharing) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}

// Leave ends the part of l, which has ended, in the hold that it shares. It reports whether l must release
// the hold, because no other lease has it. A lease that is past or lost does not have it any more. A second
// Leave reports the same, unless others have left meanwhile.
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

// removeLocked takes l out of leases. The last lease gets its seat.
func (s *sharing) removeLocked(l *Lease) {
	end := len(s.leases) - 1
	s.leases[l.seat] = s.leases[end]
	s.leases[l.seat].seat = l.seat
	s.leases[end] = nil
	s.leases = s.leases[:end]
}

// dropOverLocked removes leases that do not have the hold any more from the end of leases. It stops at a lease
// that has the hold, because Leave only needs to know that there is one.
func (s *sharing) dropOverLocked(now clock.Instant) {
	for end := len(s.leases); end > 0 && !s.leases[end-1].mayStillHave(now); end = len(s.leases) {
		s.removeLocked(s.leases[end-1])
	}
}

// mayStillHave reports whether l has the hold that it shares, or was unlocked just now and is about to leave.
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

// IsAlone reports whether l is the only lease that has the hold. If so, and if l is to stay alone, as for Detach, nobody can
// join the hold any more.
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

// A duty is what a watchdog does when it is time for a round.
type duty uint8

const (
	extendNow   duty = iota // begin a round
	lookAgain               // look again soon: another lease has begun a round, but may leave before a quorum confirms it
	extendLater             // begin a round in the next third of the expiry: another lease has just extended the hold
)

// duty says whether the watchdog of l should begin a round at now. A round of another lease that shares the
// hold prolongs l, too. So l should not begin one if another lease has extended the hold less than a sixth of
// the expiry ago, or if one that still has the hold has begun a round in that time.
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

// MayPass reports whether l, which Unlock has ended, may be handed over now. The attempt that acquired the
// lock must have begun less than chain ago, at least nine tenths of the validity must be left, and the user
// must not have seen the value.
//
// If the user has seen the value, Unlock must release the lock: other code may use the value to ask whether
// this lease has ended, or to release it a second time. MayPass hides the value, so that nobody sees it
// after this check.
func (l *Lease) MayPass(chain time.Duration) bool {
	now := clock.Now()
	if l.chain+now.Since(l.First) >= chain || !l.Hide() {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.freshLocked(now)
}

// freshLocked reports whether nine tenths of the validity are left.
func (l *Lease) freshLocked(now clock.Instant) bool {
	return l.validity.Remaining(now) >= l.terms.Timing.Validity-l.terms.Timing.Validity/10
}

// Pass returns the lease that continues l, under other terms with the same timing and owner. The claim with its value
// and the validity go to the new lease. No node is told, and nothing that is done later with l affects the
// new lease.
func (l *Lease) Pass(t *Terms) *Lease {
	other := &Lease{First: clock.Now(), terms: t, rareEnd: &noRareEnd, rare: &noRareLease}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.passLocked(other)
	return other
}

// passFresh gives the claim and the validity of l to other, which is new, if nine tenths of the validity are
// left. It reports whether they are.
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

// AwaitReplies waits until every command that can set or prolong a key of l has been answered or is known to
// be lost. It waits no longer than the node deadline, and not after ctx is done. l must have ended.
func (l *Lease) AwaitReplies(ctx context.Context) {
	timer := time.NewTimer(l.terms.Timing.NodeTimeout)
	defer timer.Stop()
	select {
	case <-l.writes.awaitQuiet():
	case <-timer.C:
	case <-ctx.Done():
	}
}
