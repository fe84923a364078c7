package redsync

import (
	"fmt"
	"math"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/lease"
)

// This file has the rules of time: from an expiry to the TTL of keys and to the validity of their
// holder. It is pure: it reads no clock and does no I/O. internal/lease obeys these rules.

// clockDrift is the fixed part of the drift: the granularity of Redis expiry
// (1 ms) and 1 ms for small TTLs, as in the Redlock algorithm.
const clockDrift = 2 * time.Millisecond

// minNodeTimeout is the least node deadline that is derived from an expiry, if half of the validity is
// longer.
const minNodeTimeout = 50 * time.Millisecond

// bases are the settings that durations are derived from.
type bases struct {
	expiry        time.Duration // WithExpiry
	driftFactor   float64       // WithDriftFactor
	timeoutFactor float64       // WithTimeoutFactor
	nodeTimeout   time.Duration // WithNodeTimeout; 0: by timeoutFactor
	lockDelay     time.Duration // WithLockDelay
	maxHold       time.Duration // WithMaxHold; 0: no limit
}

// derive computes the timing of b. A nodeTimeout of 0 stands for timeoutFactor of
// the expiry, at least minNodeTimeout. In any case it is at most half of the validity. The error names a
// setting that is out of its range.
func (b bases) derive() (lease.Timing, error) {
	switch {
	case !(b.driftFactor >= 0 && b.driftFactor < 1): // also false for NaN
		return lease.Timing{}, outOfRange("WithDriftFactor", b.driftFactor, "0 <= factor < 1")
	case !(b.timeoutFactor > 0 && b.timeoutFactor <= 1):
		return lease.Timing{}, outOfRange("WithTimeoutFactor", b.timeoutFactor, "0 < factor <= 1")
	}
	if b.maxHold < 0 {
		return lease.Timing{}, outOfRange("WithMaxHold", b.maxHold, "more than 0")
	}
	t := lease.Timing{
		Expiry: b.expiry.Truncate(time.Millisecond), MaxHold: b.maxHold, Drift: driftFactor(b.driftFactor),
	}
	t.Validity = t.Expiry - scale(t.Expiry, b.driftFactor)
	if t.Validity <= clockDrift { // also of an expiry of 0 or less, which leaves no validity
		return lease.Timing{}, outOfRange("WithExpiry", b.expiry, fmt.Sprintf(
			"expiry - drift > 0, where drift is expiry * %v + %v", b.driftFactor, clockDrift))
	}
	t.Validity -= clockDrift
	t.TTL = t.Expiry + roundUp(b.lockDelay)
	if b.lockDelay < 0 || t.TTL < t.Expiry { // it overflows
		return lease.Timing{}, outOfRange("WithLockDelay", b.lockDelay, "0 or more, with the expiry at most 292 years")
	}
	t.NodeTimeout = min(max(scale(t.Expiry, b.timeoutFactor), minNodeTimeout), t.Validity/2)
	if b.nodeTimeout != 0 {
		if b.nodeTimeout < 0 || b.nodeTimeout > t.Validity/2 {
			return lease.Timing{}, outOfRange("WithNodeTimeout", b.nodeTimeout, fmt.Sprintf(
				"0 < timeout <= %v, half of the validity", t.Validity/2))
		}
		t.NodeTimeout = b.nodeTimeout
	}
	return t, nil
}

// A driftFactor is the rule for how far two clocks may drift apart in a time: by this fraction of it, and by
// clockDrift. It implements quorum.Drift.
type driftFactor float64

// Of returns by how much clocks may differ after d.
func (f driftFactor) Of(d time.Duration) time.Duration {
	drift := scale(d, float64(f))
	if drift > math.MaxInt64-clockDrift {
		return math.MaxInt64
	}
	return drift + clockDrift
}

// roundUp returns d in whole milliseconds.
func roundUp(d time.Duration) time.Duration {
	return (d + time.Millisecond - 1).Truncate(time.Millisecond)
}

// scale returns d * factor for 0 <= factor <= 1, rounded up, so that a drift is
// never too small; it does not overflow.
func scale(d time.Duration, factor float64) time.Duration {
	scaled := math.Ceil(float64(d) * factor)
	if scaled >= float64(d) {
		return d
	}
	return time.Duration(scaled)
}
