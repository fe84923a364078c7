package redsync

import (
	"fmt"
	"math"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/lease"
)

// clockDrift is the fixed part of the drift, as in Redlock: 1 ms for the granularity of Redis expiry, 1 ms for small
// TTLs.
const clockDrift = 2 * time.Millisecond

// minNodeTimeout is the shortest node deadline that follows from an expiry, unless half of the validity is shorter.
const minNodeTimeout = 50 * time.Millisecond

// maxNodeTimeout is the longest that follows by the default factor.
const maxNodeTimeout = 2 * time.Second

// maxTTL is the longest expiry, with its lock delay. Readers and permits note its end in 13 digits of milliseconds,
// which last until 2286.
const (
	maxTTL   = 100 * 365 * 24 * time.Hour
	maxYears = "100 years"
)

// For nodes that need up to half a second for an answer: maxReach bounds each step of opening a connection, maxFar the
// node deadline of a node known to be far.
const (
	maxReach = time.Second
	maxFar   = 750 * time.Millisecond
)

// timing returns the timing of locks with these options, or an error that names one out of its range.
func (o *options) timing() (lease.Timing, error) {
	switch {
	case !(o.driftFactor >= 0 && o.driftFactor < 1): // also for NaN
		return lease.Timing{}, outOfRange("WithDriftFactor", o.driftFactor, "0 <= factor < 1")
	case !(o.timeoutFactor > 0 && o.timeoutFactor <= 1):
		return lease.Timing{}, outOfRange("WithTimeoutFactor", o.timeoutFactor, "0 < factor <= 1")
	}
	t := lease.Timing{
		Expiry: o.expiry.Truncate(time.Millisecond), MaxHold: o.maxHold, Drift: driftFactor(o.driftFactor),
	}
	t.Validity = t.Expiry - scale(t.Expiry, o.driftFactor)
	if t.Validity <= clockDrift || t.Expiry > maxTTL { // also for an expiry of 0 or less
		return lease.Timing{}, outOfRange("WithExpiry", o.expiry, fmt.Sprintf(
			"at least %v, so that it is longer than its drift, and at most %s", o.leastExpiry(), maxYears))
	}
	t.Validity -= clockDrift
	t.TTL = t.Expiry + roundUp(o.lockDelay)
	if o.lockDelay < 0 || t.TTL < t.Expiry || t.TTL > maxTTL { // below: the sum has overflowed
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

func (o *options) leastExpiry() time.Duration {
	const year = 365 * 24 * time.Hour
	drift := min(float64(clockDrift)/(1-o.driftFactor), float64(year))
	return time.Duration(drift).Truncate(time.Millisecond) + time.Millisecond
}

// A driftFactor is how far two clocks may drift apart, as a fraction, besides clockDrift.
type driftFactor float64

func (f driftFactor) Of(d time.Duration) time.Duration {
	drift := scale(d, float64(f))
	if drift > math.MaxInt64-clockDrift {
		return math.MaxInt64
	}
	return drift + clockDrift
}

func roundUp(d time.Duration) time.Duration {
	return (d + time.Millisecond - 1).Truncate(time.Millisecond)
}

// scale returns d * factor for 0 <= factor <= 1, rounded up: a drift is never too small.
func scale(d time.Duration, factor float64) time.Duration {
	scaled := math.Ceil(float64(d) * factor)
	if scaled >= float64(d) {
		return d
	}
	return time.Duration(scaled)
}
