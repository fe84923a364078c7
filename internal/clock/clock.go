// Package clock reads the two clocks by which a lease is judged: the monotonic clock, which stops while a machine is
// suspended, and the wall clock, which can be stepped.
package clock

import (
	"sync/atomic"
	"time"
)

// An Instant is one moment on both clocks.
type Instant struct {
	Mono time.Duration // since origin
	Wall time.Time
}

// Since returns the time from start to i by the clock on which more has passed. A wall clock stepped forward ends a
// lease early, which is safe; one stepped back has no effect.
func (i Instant) Since(start Instant) time.Duration {
	seconds := i.Wall.Unix() - start.Wall.Unix()
	wall := time.Duration(seconds)*time.Second + time.Duration(i.Wall.Nanosecond()-start.Wall.Nanosecond())
	if seconds < -1<<31 || seconds > 1<<31 { // wall may have overflowed; Sub cannot, but costs more
		wall = i.Wall.Round(0).Sub(start.Wall.Round(0)) // Round(0) strips the monotonic reading, which Sub would prefer
	}
	return max(i.Mono-start.Mono, wall)
}

// LeastSince returns the time from start to i by the clock on which less has passed, at least 0: for what must not end
// early.
func (i Instant) LeastSince(start Instant) time.Duration {
	return max(0, min(i.Mono-start.Mono, i.Wall.Round(0).Sub(start.Wall.Round(0))))
}

// After returns the time d after i, for a timer. Timers go by the monotonic reading of i.Wall. In a synctest bubble
// there is none, and a timer would follow a step of the wall clock.
func (i Instant) After(d time.Duration) time.Time {
	if stepped.Load() == nil {
		return i.Wall.Add(d)
	}
	// Without Round the time would have the monotonic reading of origin, and be compared by that.
	return origin.Add(i.Mono + d + time.Duration(lag.Load())).Round(0)
}

// Lead returns how far the wall clock is ahead of the monotonic clock, plus a constant.
func (i Instant) Lead() time.Duration {
	return i.Wall.Round(0).Sub(time.Unix(0, 0)) - i.Mono
}

var origin = time.Now()

// Of returns both clocks at t, from time.Now.
func Of(t time.Time) Instant {
	i := Instant{Mono: t.Sub(origin), Wall: t}
	if change := stepped.Load(); change != nil {
		i = (*change)(i)
	}
	return i
}

// Now reads both clocks.
func Now() Instant {
	t := time.Now()
	i := Instant{Mono: t.Sub(origin), Wall: t}
	if change := stepped.Load(); change != nil {
		mono := i.Mono
		i = (*change)(i)
		lag.Store(int64(mono - i.Mono))
	}
	return i
}

// stepped changes what Now returns, in tests; lag is how far it has put the monotonic clock back.
var (
	stepped atomic.Pointer[func(Instant) Instant]
	lag     atomic.Int64
)

// Step makes Now return what change makes of it, until restore is called. It is for one test at a time: otherwise it
// panics.
func Step(change func(Instant) Instant) (restore func()) {
	if !stepped.CompareAndSwap(nil, &change) {
		panic("clock: the clocks are stepped already")
	}
	return func() { stepped.Store(nil) }
}
