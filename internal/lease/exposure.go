package lease

import "github.com/seed14bd9ef4/redsync/internal/clock"

// This file tracks whether the user may have seen the value of a lease. If so, other code may rely on the
// value: then the lease is not handed over to a waiter, and no later Lock releases its keys. Before a lease
// is handed over or released, it hides its value, so that nobody sees the value after that check.

// Value returns the value. It is for what is sent to nodes, not for the user.
func (l *Lease) Value() string { return l.Claim().Value() }

// Show returns the value for the user, who may pass it on; "" once it is hidden.
func (l *Lease) Show() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.showLocked()
}

// ShowHeld does what Show does while l may be relied upon; otherwise it returns "".
func (l *Lease) ShowHeld(now clock.Instant) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.notHeldLocked(now) != nil {
		return ""
	}
	return l.showLocked()
}

func (l *Lease) showLocked() string {
	if l.value.hidden {
		return ""
	}
	l.value.shown = true
	l.spoil()
	return l.claim.Value()
}

// Hide stops the value from being shown, and reports whether nobody has seen it. If somebody may have seen it,
// l must not be handed over, and only the user's own Unlock may release l.
func (l *Lease) Hide() (private bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.value.hidden = true
	return !l.value.shown
}

// ClearAway releases what l, which has ended, left on the nodes, unless the user may have seen the value.
// In that case another Mutex may hold the lock with the value, and only an Unlock releases the lock.
func (l *Lease) ClearAway() {
	if l.Hide() {
		l.terms.Keeper.Waiters.ReleaseAndAdmit(l)
	}
}

// ClearUnlessDelayed does what ClearAway does, for a lease that has ended because its time was up. With a
// lock delay it does nothing: the keys are meant to stay.
func (l *Lease) ClearUnlessDelayed() {
	if l.terms.Timing.TTL == l.terms.Timing.Expiry {
		l.ClearAway()
	}
}
