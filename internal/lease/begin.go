package lease

import (
	"time"

	"github.com/seed14bd9ef4/redsync/internal/clock"
)

// This file has what the Keeper's alarms do with a lease, from Begin on.

// Begin makes l held. From now on the alarms of the Keeper make l past at the end of its validity, extend it
// before that if it has a watchdog, and release it on Close. An error of Begin says why l cannot begin: its
// validity has ended since the attempt, or Close has begun. In that case l was never held, and observers are
// not told of a loss.
func (l *Lease) Begin() error {
	if err := l.begin(); err != nil {
		return err
	}
	l.terms.Keeper.expiries.CompareClocks(max(min(l.terms.Timing.Expiry/10, time.Second), minCompare), l.First)
	if l.watchdog != nil {
		l.watchdog.start()
	}
	return nil
}

// minCompare is the shortest interval at which Begin makes the Keeper's schedule compare the wall clock with
// the monotonic clock. A lease with an expiry of less than 100 ms needs no shorter interval, because its
// alarm fires soon in any case.
const minCompare = 10 * time.Millisecond

// begin checks the time and makes l held without unlocking l.mu in between. If another goroutine finds the
// time up before that, l does not begin. If one finds it up later, observers are told of the loss.
func (l *Lease) begin() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.notHeldLocked(clock.Now()); err != nil {
		return err
	}
	l.expiry.What = l
	if l.terms.Watchdog {
		l.watchdog = newWatchdog(l)
	}
	at := l.validity.Start.After(l.validity.Length)
	var nodes nodeWrites // of all nodes
	for i := range l.writes.nodes {
		nodes |= nodeWrites(l.writes.nodes[i].Load())
	}
	// A node that has not answered the acquire of the lease that was handed over may still refuse it.
	if nodes&lacking != 0 || l.writes != &l.ownWrites && nodes.awaits() {
		at = l.nextFillLocked(at)
	}
	if l.terms.Owner != "" {
		at = l.hearByLocked(at)
	}
	if !l.terms.Keeper.expiries.Set(&l.expiry, at) { // from here on Close may end l
		return l.terms.Keeper.Errors.Closed
	}
	l.moveLocked(Held, nil)
	return nil
}

// Fire implements alarm.Firer. It runs at the end of the validity that was known when the alarm was set (an
// extension does not move the alarm), when it is time to fill l up, after a step of the wall clock, and on Close.
func (l *Lease) Fire(closing bool) {
	if closing {
		l.close()
		return
	}
	left := l.Remaining(clock.Now())
	if left == 0 { // Remaining has just made l Past and told the holder, or l was over before
		l.fillOutlived()
		return
	}
	k := l.terms.Keeper
	if why := k.severed.Load(); why != nil {
		_ = l.Lose(*why)
		return
	}
	l.fillUp()
	if l.terms.Owner != "" {
		l.hear(clock.Now())
	}
	switch {
	case !l.setAlarm(time.Now().Add(left)): // Close came while this was firing
		l.close()
	case l.watchdog != nil: // a step of the wall clock may have left it little time
		l.watchdog.hasten(time.Now().Add(left / 2))
	}
}

// setAlarm sets the alarm of l for the time at, or for the next fill if that comes first. It reports false if Close has
// begun.
func (l *Lease) setAlarm(at time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state == Held && l.fillsLocked() {
		at = l.nextFillLocked(at)
	}
	if l.state == Held && l.terms.Owner != "" {
		at = l.hearByLocked(at)
	}
	return l.terms.Keeper.expiries.Set(&l.expiry, at)
}

// close ends and releases l because of Close, unless it has ended before. A lease whose time is up is left alone, even
// if its alarm has not fired yet: another lease may hold the lock with the same value by now, and with a lock delay the
// keys are meant to stay.
func (l *Lease) close() {
	k := l.terms.Keeper
	if l.Remaining(clock.Now()) == 0 {
		return
	}
	if !l.End(k.Errors.Lost(k.Errors.Closed, nil)) {
		return
	}
	k.Waiters.ReleaseAndAdmit(l)
}
