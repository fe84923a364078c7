package redsync

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/clock"
)

// This file is the arithmetic of validity. It reads no clock and does no I/O;
// every function takes its times as arguments.

// clockDrift is the fixed part of the drift: the granularity of Redis expiry
// (1 ms) and 1 ms for small TTLs, as in the Redlock algorithm.
const clockDrift = 2 * time.Millisecond

// A validity is how long a hold may be relied upon: for span from start. The
// start is taken before the first byte of the round that won is sent.
type validity struct {
	start clock.Instant
	span  time.Duration
}

// remaining returns how much of v is left at now, 0 when it is over.
func (v validity) remaining(now clock.Instant) time.Duration {
	return max(v.span-now.Since(v.start), 0)
}

// held reports whether v still stands at now.
func (v validity) held(now clock.Instant) bool {
	return v.remaining(now) > 0
}

// until returns the end of v, for display and for comparison by one clock.
func (v validity) until() time.Time {
	return v.start.Wall.Add(v.span)
}

// bases are the settings that durations are derived from.
type bases struct {
	expiry        time.Duration // WithExpiry
	driftFactor   float64       // WithDriftFactor
	timeoutFactor float64       // WithTimeoutFactor
	nodeTimeout   time.Duration // WithNodeTimeout; 0: by timeoutFactor
	lockDelay     time.Duration // WithLockDelay
	maxHold       time.Duration // WithMaxHold; 0: no limit
}

// timing is the durations that follow from a Mutex's settings.
type timing struct {
	expiry      time.Duration // in whole milliseconds
	ttl         time.Duration // of the keys: expiry + lock delay
	span        time.Duration // of the holder's validity: expiry - drift
	nodeTimeout time.Duration // how long a round waits for one node
	maxHold     time.Duration // no validity goes beyond it; 0: no limit
}

// derive computes the timing of b. A nodeTimeout of 0 stands for timeoutFactor of
// the expiry, at least minNodeTimeout; in any case it is at most half of the
// span. Settings out of range are errors that name them.
func (b bases) derive() (timing, error) {
	switch {
	case !(b.driftFactor >= 0 && b.driftFactor < 1): // also false for NaN
		return timing{}, outOfRange("WithDriftFactor", b.driftFactor, "0 <= factor < 1")
	case !(b.timeoutFactor > 0 && b.timeoutFactor <= 1):
		return timing{}, outOfRange("WithTimeoutFactor", b.timeoutFactor, "0 < factor <= 1")
	}
	if b.maxHold < 0 {
		return timing{}, outOfRange("WithMaxHold", b.maxHold, "more than 0")
	}
	t := timing{expiry: b.expiry.Truncate(time.Millisecond), maxHold: b.maxHold}
	t.span = t.expiry - scale(t.expiry, b.driftFactor)
	if t.span <= clockDrift { // also of an expiry of 0 or less, which leaves no span
		return timing{}, outOfRange("WithExpiry", b.expiry, fmt.Sprintf(
			"expiry - drift > 0, where drift is expiry * %v + %v", b.driftFactor, clockDrift))
	}
	t.span -= clockDrift
	t.ttl = t.expiry + roundUp(b.lockDelay)
	if b.lockDelay < 0 || t.ttl < t.expiry { // it overflows
		return timing{}, outOfRange("WithLockDelay", b.lockDelay, "0 or more, with the expiry at most 292 years")
	}
	t.nodeTimeout = min(max(scale(t.expiry, b.timeoutFactor), minNodeTimeout), t.span/2)
	if b.nodeTimeout != 0 {
		if b.nodeTimeout < 0 || b.nodeTimeout > t.span/2 {
			return timing{}, outOfRange("WithNodeTimeout", b.nodeTimeout, fmt.Sprintf(
				"0 < timeout <= %v, half of the validity", t.span/2))
		}
		t.nodeTimeout = b.nodeTimeout
	}
	return t, nil
}

// atAge returns the TTL of the keys and the validity of an attempt or extension
// that starts when the lock has been held for a time: what maxHold leaves.
func (t timing) atAge(held time.Duration) (ttl, span time.Duration) {
	if t.maxHold == 0 || t.span <= t.maxHold-held {
		return t.ttl, t.span
	}
	span = max(t.maxHold-held, 0)
	return t.ttl - (t.span - span).Truncate(time.Millisecond), span
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

// errOutOfRange marks every complaint about an option.
var errOutOfRange = errors.New("out of range")

func outOfRange(option string, value any, valid string) error {
	return fmt.Errorf("redsync: %s(%v) is %w: %s", option, value, errOutOfRange, valid)
}
