package redsync

import (
	"sync/atomic"
	"time"
)

// This file is the two clocks: a moment on both, and how it is read.

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

// lead returns by how much the wall clock is ahead of the monotonic clock, from an
// arbitrary origin.
func (i instant) lead() time.Duration {
	return i.wall.Round(0).Sub(time.Unix(0, 0)) - i.mono
}

// origin is what instants count monotonic time from.
var origin = time.Now()

// now reads both clocks. Tests step them.
func now() instant {
	if stepped := steppedClocks.Load(); stepped != nil {
		return (*stepped)()
	}
	return readClocks()
}

// steppedClocks are read in place of the clocks; nil outside of tests.
var steppedClocks atomic.Pointer[func() instant]

func readClocks() instant {
	t := time.Now()
	return instant{mono: t.Sub(origin), wall: t}
}
