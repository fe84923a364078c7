// Package jitter makes random numbers, so that many callers do not all act at once, or on the same thing. Tests replace
// Source to repeat a run.
package jitter

import (
	"math/rand/v2"
	"time"
)

// N returns a random duration of at least 0 and less than d.
func N(d time.Duration) time.Duration { return Source(d) }

// Int returns a random number of at least 0 and less than n.
func Int(n int) int { return int(N(time.Duration(n))) }

// Source is where N gets its durations. Many goroutines may call it at once. It may be replaced only while
// nobody calls it.
var Source = rand.N[time.Duration]
