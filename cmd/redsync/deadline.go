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
const patience = 100 * time.Millisecond

// soon returns a channel that gets a value when it is time to look at the deadline again.
func (d deadline) soon() <-chan time.Time {
	if d.at.IsZero() {
		return nil
	}
	return time.After(min(max(d.left(time.Now()), time.Millisecond), patience))
}
