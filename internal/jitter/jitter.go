// Package jitter is the randomness of delays, which spreads what would otherwise come
// all at once. Tests replace it, to repeat what has happened.
package jitter

import (
	"math/rand/v2"
	"time"
)

// N returns a duration of at least 0 and less than d, at random.
func N(d time.Duration) time.Duration { return Source(d) }

// Source is where N has it from. It may be called by many goroutines at once, and is
// replaced only while nobody calls it.
var Source = rand.N[time.Duration]
