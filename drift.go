package redsync

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// This file is the arithmetic of validity. It reads no clock and does no I/O;
// every function takes its times as arguments.

// clockDrift is the fixed part of the drift: the granularity of Redis expiry
// (1 ms) and 1 ms for small TTLs, as in the Redlock algorithm.
const clockDrift = 2 * time.Millisecond

// An instant is one moment on both clocks. A monotonic clock stops while a
// machine is suspended, the wall clock does not; a wall clock can be stepped,
// the monotonic clock cannot.
type instant struct {
	mono time.Duration // since an arbitrary origin
	wall time.Time
}

// since returns the time elapsed from start to i by the clock on which more
// has passed. A wall clock stepped forward ends a hold early, which is safe;
// one stepped back is outvoted.
func (i instant) since(start instant) time.Duration {
	// Round(0) strips the monotonic reading, which Sub would prefer.
	return max(i.mono-start.mono, i.wall.Round(0).Sub(start.wall.Round(0)))
}

// A validity is how long a hold may be relied upon: for span from start. The
// start is taken before the first byte of the round that won is sent.
type validity struct {
	start instant
	span  time.Duration
}

// remaining returns how much of v is left at now, 0 when it is over.
func (v validity) remaining(now instant) time.Duration {
	return max(v.span-now.since(v.start), 0)
}

// held reports whether v still stands at now.
func (v validity) held(now instant) bool {
	return v.remaining(now) > 0
}

// until returns the end of v, for display and for comparison by one clock.
func (v validity) until() time.Time {
	return v.start.wall.Add(v.span)
}

// timing is the durations that follow from a Mutex's settings.
type timing struct {
	ttl         time.Duration // of the keys; whole milliseconds
	span        time.Duration // of the holder's validity: ttl - drift
	nodeTimeout time.Duration // how long a round waits for one node
}

// deriveTiming computes the timing of an expiry. A nodeTimeout of 0 stands for
// timeoutFactor of the expiry, at least minNodeTimeout; in any case it is at
// most half of the span. Arguments out of range are errors that name them.
func deriveTiming(expiry time.Duration, driftFactor, timeoutFactor float64, nodeTimeout time.Duration) (timing, error) {
	switch {
	case !(driftFactor >= 0 && driftFactor < 1): // also false for NaN
		return timing{}, outOfRange("WithDriftFactor", driftFactor, "0 <= factor < 1")
	case !(timeoutFactor > 0 && timeoutFactor <= 1):
		return timing{}, outOfRange("WithTimeoutFactor", timeoutFactor, "0 < factor <= 1")
	}
	t := timing{ttl: expiry.Truncate(time.Millisecond)}
	t.span = t.ttl - scale(t.ttl, driftFactor)
	if t.ttl <= 0 || t.span <= clockDrift {
		return timing{}, outOfRange("WithExpiry", expiry, fmt.Sprintf(
			"expiry - drift > 0, where drift is expiry * %v + %v", driftFactor, clockDrift))
	}
	t.span -= clockDrift
	t.nodeTimeout = min(max(scale(t.ttl, timeoutFactor), minNodeTimeout), t.span/2)
	if nodeTimeout != 0 {
		if nodeTimeout < 0 || nodeTimeout > t.span/2 {
			return timing{}, outOfRange("WithNodeTimeout", nodeTimeout, fmt.Sprintf(
				"0 < timeout <= %v, half of the validity", t.span/2))
		}
		t.nodeTimeout = nodeTimeout
	}
	return t, nil
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
