// Package jitter makes random numbers, so that many callers do not do the same at once.
package jitter

import (
	"math/rand/v2"
	"time"
)

// N returns a random duration in [0, d).
func N(d time.Duration) time.Duration { return Source(d) }

// Int returns a random number in [0, n).
func Int(n int) int { return int(N(time.Duration(n))) }

// Source makes the durations of N. A test may replace it while nobody calls it.
var Source = rand.N[time.Duration]
