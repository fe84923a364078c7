// Package jitter makes the random part of delays, so that many callers do not act at once. Tests replace
// Source to repeat a run.
package jitter

import (
	"math/rand/v2"
	"time"
)

// N returns a random duration of at least 0 and less than d.
func N(d time.Duration) time.Duration { return Source(d) }

// Source is where N gets its durations. Many goroutines may call it at once. It may be replaced only while
// nobody calls it.
var Source = rand.N[time.Duration]
