package lease

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// This file shows how long keys last beside the validity of their holder.

// The TTL that a node is sent is in whole milliseconds. It is longer than a validity that MaxHold has shortened by at least
// the drift, whatever fraction of a millisecond the limit has.
func TestKeysOutlastAShortenedValidityByTheDrift(t *testing.T) {
	timing := timingOf(8 * sec)
	drift := timing.Expiry - timing.Validity
	for _, fraction := range []time.Duration{0, 1, 300 * time.Microsecond, ms - 1} {
		timing.MaxHold = 5*sec + fraction
		for _, held := range []time.Duration{0, 2*sec + 500*time.Microsecond, 5 * sec} {
			ttl, validity := timing.AtAge(held)
			sent := time.Duration(ttl.Milliseconds()) * ms
			assert.Equal(t, timing.MaxHold-held, validity)
			assert.GreaterOrEqual(t, sent-validity, drift, "a limit of %v, held for %v", timing.MaxHold, held)
		}
	}
}
