package redsync

import (
	"fmt"
	"math"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/lease"
)

// This file has the rules of time: how the TTL of the keys and the validity of their holder follow from
// an expiry. It is pure: it reads no clock and does no I/O. internal/lease obeys these rules.

// clockDrift is the fixed part of the drift: the granularity of Redis expiry
// (1 ms) and 1 ms for small TTLs, as in the Redlock algorithm.
const clockDrift = 2 * time.Millisecond

// minNodeTimeout is the shortest node deadline that follows from an expiry. If half of the validity is
// shorter, the node deadline is that half.
const minNodeTimeout = 50 * time.Millisecond

// maxNodeTimeout is the longest node deadline that follows from an expiry by the default factor. Nodes that answer
// later than that are not worth a wait, however long the expiry is.
const maxNodeTimeout = 2 * time.Second

// maxTTL is the longest expiry, with its lock delay. Readers and permits note the end of a TTL in 13 digits of milliseconds,
// which last until the year 2286. After that their keys would outlive the lock.
const (
	maxTTL   = 100 * 365 * 24 * time.Hour
	maxYears = "100 years"
)

// maxReach is the longest that a node may take for one step while its connection is being opened, and maxFar the longest
// node deadline of a node that is known to be far. Both are for nodes that are farther away than the node deadline allows,
// up to half a second for an answer.
const (
	maxReach = time.Second
	maxFar   = 750 * time.Millisecond
)

// timing returns the timing of locks with these options. If nodeTimeout is 0, the node deadline is timeoutFactor times the
// expiry, at least minNodeTimeout, but never more than half of the validity, nor than maxNodeTimeout unless ownFactor is set. The
// error names a setting that is out of its range. Options have seen to it that maxHold and minHold are not negative.
func (o *options) timing() (lease.Timing, error) {
	switch {
	case !(o.driftFactor >= 0 && o.driftFactor < 1): // true for NaN, too
		return lease.Timing{}, outOfRange("WithDriftFactor", o.driftFactor, "0 <= factor < 1")
	case !(o.timeoutFactor > 0 && o.timeoutFactor <= 1):
		return lease.Timing{}, outOfRange("WithTimeoutFactor", o.timeoutFactor, "0 < factor <= 1")
	}
	t := lease.Timing{
		Expiry: o.expiry.Truncate(time.Millisecond), MaxHold: o.maxHold, Drift: driftFactor(o.driftFactor),
	}
	t.Validity = t.Expiry - scale(t.Expiry, o.driftFactor)
	if t.Validity <= clockDrift || t.Expiry > maxTTL { // the former is true for an expiry of 0 or less as well
		return lease.Timing{}, outOfRange("WithExpiry", o.expiry, fmt.Sprintf(
			"at least %v, so that it is longer than its drift, and at most %s", o.leastExpiry(), maxYears))
	}
	t.Validity -= clockDrift
	t.TTL = t.Expiry + roundUp(o.lockDelay)
	if o.lockDelay < 0 || t.TTL < t.Expiry || t.TTL > maxTTL { // if the TTL is below the expiry, the sum has overflowed
		return lease.Timing{}, outOfRange("WithLockDelay", o.lockDelay, "0 or more, with the expiry at most "+maxYears)
	}
	if o.minHold != 0 {
		t.MinHold = roundUp(o.minHold + t.Drift.Of(o.minHold))
		if t.MinHold < o.minHold { // an overflow
			return lease.Timing{}, outOfRange("WithMinHold", o.minHold, "more than 0, with its drift at most 292 years")
		}
	}
	t.NodeTimeout = min(max(scale(t.Expiry, o.timeoutFactor), minNodeTimeout), t.Validity/2)
	if !o.ownFactor {
		t.NodeTimeout = min(t.NodeTimeout, maxNodeTimeout)
	}
	if o.nodeTimeout != 0 {
		if o.nodeTimeout < 0 || o.nodeTimeout > t.Validity/2 {
			return lease.Timing{}, outOfRange("WithNodeTimeout", o.nodeTimeout, fmt.Sprintf(
				"0 < timeout <= %v, half of the validity", t.Validity/2))
		}
		t.NodeTimeout = o.nodeTimeout
	}
	t.Reach, t.Far = t.NodeTimeout, t.NodeTimeout
	if !o.ownFactor && o.nodeTimeout == 0 {
		t.Reach = max(t.NodeTimeout, min(t.Expiry/4, maxReach))
		t.Far = max(t.NodeTimeout, min(t.Validity/2, maxFar))
	}
	return t, nil
}

// leastExpiry returns the shortest expiry that is longer than its drift, at most a year.
func (o *options) leastExpiry() time.Duration {
	const year = 365 * 24 * time.Hour
	drift := min(float64(clockDrift)/(1-o.driftFactor), float64(year)) // of that expiry
	return time.Duration(drift).Truncate(time.Millisecond) + time.Millisecond
}

// A driftFactor says how far two clocks may drift apart during a time d: by this fraction of d, plus
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

// roundUp returns d rounded up to whole milliseconds.
func roundUp(d time.Duration) time.Duration {
	return (d + time.Millisecond - 1).Truncate(time.Millisecond)
}

// scale returns d * factor for 0 <= factor <= 1. It rounds up, so that a drift is never too small, and does
// not overflow.
func scale(d time.Duration, factor float64) time.Duration {
	scaled := math.Ceil(float64(d) * factor)
	if scaled >= float64(d) {
		return d
	}
	return time.Duration(scaled)
}
