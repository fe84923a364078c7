package lease

import "github.com/seed14bd9ef4/redsync/internal/clock"

// This file is who knows the value of a lease. The value belongs to one lease. Once the user has seen
// it, somebody else may rely on it: the lease is not handed over then, and no later Lock releases it.
// So a lease that is handed over or released hides its value first.

// An exposure is who has seen, and may see, the value of a lease.
type exposure struct {
	shown  bool // the user may have seen it
	hidden bool // nobody is shown it any more
}

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
	return l.claim.Value()
}

// Hide lets nobody see the value any more, and reports whether nobody has: then l
// may be handed over, or released on behalf of somebody who does not know of it.
func (l *Lease) Hide() (private bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.value.hidden = true
	return !l.value.shown
}

// ClearAway releases what l, which has ended, left on the nodes, if nobody else can know
// of it. Where the user has seen the value another Mutex may hold the lock by it: then
// only an Unlock releases it.
func (l *Lease) ClearAway() {
	if l.Hide() {
		l.terms.Keeper.Waiters.ReleaseAndAdmit(l)
	}
}

// ClearUnlessDelayed is ClearAway for a lease that time has ended. With a lock delay its
// keys are meant to stay.
func (l *Lease) ClearUnlessDelayed() {
	if l.terms.Timing.TTL == l.terms.Timing.Expiry {
		l.ClearAway()
	}
}
