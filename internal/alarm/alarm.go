// Package alarm keeps one timer for all that leases, watchdogs and releases do at a set time.
package alarm

import (
	"container/heap"
	"math"
	"sync"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/clock"
)

// A Schedule fires alarms at their times, with one timer, and a goroutine only while it fires them.
type Schedule struct {
	firing sync.Mutex // held while due alarms fire
	mu     sync.Mutex // guards what follows
	alarms alarmHeap
	timer  *time.Timer
	armed  time.Time // when timer fires; zero if it must be reset
	closed bool
	set    int // how many alarms have been set, for tests

	// InARow is how many alarms fire before a pause, 0 for no limit. notBefore is when the pause ends.
	InARow    int
	notBefore time.Time

	// compare is how often the two clocks are compared, 0 for never. lead is the clock.Instant.Lead to compare with.
	compare time.Duration
	lead    time.Duration

	// Look, if any, is called with each comparison. If it returns true, all alarms fire.
	Look func() bool
}

const burstPause = time.Millisecond

// An Alarm calls its Firer at a set time.
type Alarm struct {
	What  Firer
	at    time.Duration // since origin
	index int           // in the heap, from 1; 0 when not scheduled
}

// origin is what times count from: a time.Time would make an alarm half as large again. It is no argument of time.Since
// or time.Until: in a synctest bubble it alone has a monotonic reading.
var origin = time.Now()

func sinceOrigin() time.Duration {
	now := time.Now()
	return now.Sub(origin)
}

const atOnce = math.MinInt64

// A Firer is what an alarm calls. Fire must not block. It may call methods of its schedule, but not Close. closing says
// that Close calls it.
type Firer interface{ Fire(closing bool) }

// Set schedules a for at, in place of any former time. It reports false if the schedule is closed.
func (s *Schedule) Set(a *Alarm, at time.Time) bool {
	return s.SetUnlessFull(a, at, math.MaxInt)
}

// SetUnlessFull is Set, but also reports false if limit alarms are set already.
func (s *Schedule) SetUnlessFull(a *Alarm, at time.Time, limit int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.alarms) >= limit {
		return false
	}
	s.set++
	a.at = at.Sub(origin)
	if a.index == 0 {
		heap.Push(&s.alarms, a)
	} else {
		heap.Fix(&s.alarms, a.index-1)
	}
	s.armLocked()
	return true
}

// Hasten makes a due at once if its time is after at.
func (s *Schedule) Hasten(a *Alarm, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a.index != 0 && a.at > at.Sub(origin) {
		a.at = sinceOrigin()
		heap.Fix(&s.alarms, a.index-1)
		s.armLocked()
	}
}

// Hurry makes the alarms due at once that which selects.
func (s *Schedule) Hurry(which func(Firer) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.alarms {
		if which(a.What) {
			a.at = atOnce
		}
	}
	heap.Init(&s.alarms)
	s.armLocked()
}

// CompareClocks makes the schedule compare the clocks, at the interval every. If the wall clock has gained 1 ms since
// start, it was set forward or the machine was suspended: then all alarms fire. The shortest interval counts, until the
// schedule is empty, so set an alarm first.
func (s *Schedule) CompareClocks(every time.Duration, start clock.Instant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.alarms) == 0 {
		return // the alarm has fired, or was dropped
	}
	lead, first := start.Lead(), s.compare == 0
	if first || lead < s.lead {
		s.lead = lead
	}
	if first || every < s.compare {
		s.compare = every
		if time.Now().Add(every).Before(s.armed) {
			s.armed = time.Time{} // the timer would fire too late
		}
		s.armLocked()
	}
}

// steppedLocked reports whether the wall clock has gained 1 ms since lead was set.
func (s *Schedule) steppedLocked() bool {
	if s.compare == 0 {
		return false
	}
	lead := clock.Now().Lead()
	forward := lead-s.lead >= time.Millisecond
	if forward || lead < s.lead {
		s.lead = lead // compare from here on, even after the wall clock was set back
	}
	return forward
}

// looksLocked calls Look, without holding mu.
func (s *Schedule) looksLocked() bool {
	if s.compare == 0 || s.Look == nil {
		return false
	}
	s.mu.Unlock()
	defer s.mu.Lock()
	return s.Look()
}

// Drop takes a off the schedule, without waiting for a Fire that is under way.
func (s *Schedule) Drop(a *Alarm) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a.index != 0 {
		heap.Remove(&s.alarms, a.index-1)
	}
}

// armLocked makes the timer fire for the first alarm or the next comparison. A timer that fires too early is left
// alone: run finds nothing due then, and a reset is expensive.
func (s *Schedule) armLocked() {
	if len(s.alarms) == 0 {
		s.compare = 0
		return
	}
	first := origin.Add(s.alarms[0].at)
	if first.Before(s.notBefore) {
		first = s.notBefore
	}
	if !s.armed.IsZero() && !first.Before(s.armed) {
		return // early enough for the next comparison as well
	}
	if s.compare > 0 {
		if look := time.Now().Add(s.compare); look.Before(first) {
			first = look
		}
	}
	s.armed = first
	now := time.Now()
	if s.timer == nil {
		s.timer = time.AfterFunc(first.Sub(now), s.run)
		return
	}
	s.timer.Reset(first.Sub(now))
}

func (s *Schedule) run() {
	s.firing.Lock()
	defer s.firing.Unlock()
	s.mu.Lock()
	s.armed = time.Time{}
	if time.Now().Before(s.notBefore) { // the timer was armed before the pause began
		s.armLocked()
		s.mu.Unlock()
		return
	}
	if s.steppedLocked() || s.looksLocked() {
		for _, a := range s.alarms {
			a.at = atOnce
		}
	}
	for fired := 1; len(s.alarms) > 0 && s.alarms[0].at <= sinceOrigin(); fired++ {
		if s.InARow > 0 && fired > s.InARow {
			s.notBefore = time.Now().Add(burstPause)
			break
		}
		a := heap.Pop(&s.alarms).(*Alarm)
		s.mu.Unlock()
		a.What.Fire(false)
		s.mu.Lock()
	}
	s.armLocked()
	s.mu.Unlock()
}

// Close fires all alarms at once. After it none fires, or can be set.
func (s *Schedule) Close() {
	s.mu.Lock()
	s.closed = true
	all := s.alarms
	s.alarms = nil
	for _, a := range all {
		a.index = 0
	}
	if s.timer != nil {
		s.timer.Stop()
	}
	s.mu.Unlock()
	s.firing.Lock()
	s.firing.Unlock() //nolint:staticcheck // waits for run
	for _, a := range all {
		a.What.Fire(true)
	}
}

// Count is for tests: how many alarms have been set, and how many still are.
func (s *Schedule) Count() (set, now int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.set, len(s.alarms)
}

// First returns the Firers of at most n alarms, in no order.
func (s *Schedule) First(n int) []Firer {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := make([]Firer, 0, min(n, len(s.alarms)))
	for _, a := range s.alarms[:cap(first)] {
		first = append(first, a.What)
	}
	return first
}

// alarmHeap implements heap.Interface, the earliest alarm first.
type alarmHeap []*Alarm

func (h alarmHeap) Len() int           { return len(h) }
func (h alarmHeap) Less(i, j int) bool { return h[i].at < h[j].at }

func (h alarmHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i+1, j+1
}

// Push implements heap.Interface.
func (h *alarmHeap) Push(x any) {
	a := x.(*Alarm)
	*h = append(*h, a)
	a.index = len(*h)
}

// Pop implements heap.Interface.
func (h *alarmHeap) Pop() any {
	last := len(*h) - 1
	a := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	a.index = 0
	return a
}
