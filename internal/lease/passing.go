package lease

import (
	"context"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/clock"
)

// This file is about a lease that somebody else continues: a waiter of this process by direct hand-off, or
// the Mutex that adopts its value after Detach.

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
	other := &Lease{First: clock.Now(), terms: t, watched: &unwatched, special: &plain}
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
