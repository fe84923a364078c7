package lease

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// This file shows how long keys last beside the validity of their holder.

// A node whose clock is slow keeps the keys of a minimal hold for longer than the others. The release is repeated until
// then.
func TestReleaseOfAMinimalHoldIsClearedByTheSlowestClock(t *testing.T) {
	timing := timingOf(time.Second)
	timing.MinHold = 10 * time.Second
	l := New(newTerms(timing, nil), "v", at(0, 0))
	assert.GreaterOrEqual(t, l.lasts(at(10*time.Second+102*time.Millisecond, 0)), time.Duration(0))
	assert.Negative(t, l.lasts(at(10*time.Second+103*time.Millisecond, 0)))
}

// The TTL that a node is sent is in whole milliseconds. It is longer than a validity that MaxHold has shortened by at least
// the drift, whatever fraction of a millisecond the limit has.
func TestKeysOutlastAShortenedValidityByTheDrift(t *testing.T) {
	timing := timingOf(8 * time.Second)
	drift := timing.Expiry - timing.Validity
	for _, fraction := range []time.Duration{0, 1, 300 * time.Microsecond, time.Millisecond - 1} {
		timing.MaxHold = 5*time.Second + fraction
		for _, held := range []time.Duration{0, 2*time.Second + 500*time.Microsecond, 5 * time.Second} {
			ttl, validity := timing.AtAge(held)
			sent := time.Duration(ttl.Milliseconds()) * time.Millisecond
			assert.Equal(t, timing.MaxHold-held, validity)
			assert.GreaterOrEqual(t, sent-validity, drift, "a limit of %v, held for %v", timing.MaxHold, held)
		}
	}
}
