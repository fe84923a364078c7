package lease

import (
	"context"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/clock"
)

// This file is a lease that goes on in other hands: passed on inside the process, or given away.

// MayPass reports whether l may be handed over now, which Unlock has ended: it was acquired no longer
// than chain ago, and is worth as much as a lock that is acquired now, within a tenth.
//
// Where the user has seen the value Unlock releases it: somebody may use it to ask whether
// this lease has ended, or to release it a second time. Unlock has hidden it, so that
// nobody sees the value after this look.
func (l *Lease) MayPass(chain time.Duration) bool {
	now := clock.Now()
	return now.Since(l.chainStart) < chain && l.Hide() && l.fresh(now)
}

// fresh reports whether nine tenths of the validity are left.
func (l *Lease) fresh(now clock.Instant) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.validity.Remaining(now) >= l.terms.Timing.Span-l.terms.Timing.Span/10
}

// Pass returns the lease that goes on with the claim of l, by other terms with the same timing. The
// value and its validity go to it. No node is told, and nothing that is done later with l touches it.
func (l *Lease) Pass(t *Terms) *Lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	return &Lease{
		First: clock.Now(), terms: t, claim: l.claim, chainStart: l.chainStart, validity: l.validity, writes: l.writes,
	}
}

// AwaitReplies waits until every command that can set or prolong a key of l, which has
// ended, has been answered, for the node deadline at most.
func (l *Lease) AwaitReplies(ctx context.Context) {
	timer := time.NewTimer(l.terms.Timing.NodeTimeout)
	defer timer.Stop()
	select {
	case <-l.writes.awaitQuiet():
	case <-timer.C:
	case <-ctx.Done():
	}
}
