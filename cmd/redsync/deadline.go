package main

import "time"

// A deadline is a moment by two clocks: it is reached when one of them says so. The monotonic clock stands still while the
// machine sleeps, and the wall clock can be set. The zero deadline is never reached.
type deadline struct{ at, wall time.Time }

// deadlineIn returns the deadline that is d after now.
func deadlineIn(now time.Time, d time.Duration) deadline {
	return deadline{now.Add(d), now.Round(0).Add(d)}
}

// left returns how much time is left at now, 0 or less if none is.
func (d deadline) left(now time.Time) time.Duration {
	return min(d.at.Sub(now), d.wall.Sub(now.Round(0)))
}

// patience is the longest time without a look at the wall clock.
const patience = 250 * time.Millisecond

// wait returns how long to wait at now until it is time to look at the deadline again.
func (d deadline) wait(now time.Time) time.Duration {
	if d.at.IsZero() {
		return patience
	}
	return min(max(d.left(now), time.Millisecond), patience)
}
