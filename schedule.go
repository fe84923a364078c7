package redsync

import (
	"container/heap"
	"math"
	"sync"
	"time"
)

// A schedule runs events at their times. However many wait, there is one timer,
// and no goroutine until it fires.
type schedule struct {
	firing sync.Mutex // held while due events fire
	mu     sync.Mutex
	events eventHeap
	timer  *time.Timer
	armed  time.Time // when timer fires; zero when it is not running
	closed bool

	// burst is how many events fire in a row before a pause, 0 for no limit;
	// notBefore is when the pause ends.
	burst     int
	notBefore time.Time

	// compare is how often the wall clock is compared with the monotonic one while
	// events wait, 0 for never. lead is by how much the former was ahead when the
	// events were last right.
	compare time.Duration
	lead    time.Duration
}

const burstPause = time.Millisecond

// An event is something to do at a time.
type event struct {
	what  firer
	at    time.Time
	index int // in the heap, from 1; 0 when not scheduled
}

// A firer is what an event is for. fire must not block; it may call the schedule.
// last says that the schedule is closed and the time has not come.
type firer interface{ fire(last bool) }

// set schedules e at a time, instead of any earlier setting. It reports false
// when the schedule is closed.
func (s *schedule) set(e *event, at time.Time) bool {
	return s.setWithin(e, at, math.MaxInt)
}

// setWithin does what set does, unless limit events are scheduled or the
// schedule is closed; it reports whether it did.
func (s *schedule) setWithin(e *event, at time.Time, limit int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.events) >= limit {
		return false
	}
	e.at = at
	if e.index == 0 {
		heap.Push(&s.events, e)
	} else {
		heap.Fix(&s.events, e.index-1)
	}
	s.arm()
	return true
}

// compareClocks fires all events, due or not, within that time after the wall
// clock was set forward, or the machine was suspended, since start. The shortest
// time asked for counts, until the schedule is empty: the event that it is for must
// be set before.
func (s *schedule) compareClocks(every time.Duration, start instant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.events) == 0 {
		return // fired or dropped
	}
	if s.compare == 0 {
		s.compare, s.lead = every, start.lead()
	}
	s.compare, s.lead = min(s.compare, every), min(s.lead, start.lead())
	s.arm()
}

// stepped reports whether the wall clock has gained on the monotonic one. s.mu is
// held.
func (s *schedule) stepped() bool {
	if s.compare == 0 {
		return false
	}
	lead := now().lead()
	forward := lead-s.lead >= time.Millisecond
	if forward || lead < s.lead {
		s.lead = lead // one set back counts from there: what begins now began then
	}
	return forward
}

// drop takes e off the schedule. It may be firing at this moment.
func (s *schedule) drop(e *event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.index != 0 {
		heap.Remove(&s.events, e.index-1)
	}
}

// arm makes the timer fire for the first event; s.mu is held. A timer that
// would fire earlier is left alone: when it finds nothing due it is armed again,
// or not at all. That is rare, and a timer is dear to move.
func (s *schedule) arm() {
	if len(s.events) == 0 {
		s.compare = 0
		return
	}
	first := s.events[0].at
	if s.compare > 0 {
		if look := time.Now().Add(s.compare); look.Before(first) {
			first = look
		}
	}
	if first.Before(s.notBefore) {
		first = s.notBefore
	}
	if !s.armed.IsZero() && !first.Before(s.armed) {
		return
	}
	s.armed = first
	if s.timer == nil {
		s.timer = time.AfterFunc(time.Until(first), s.run)
		return
	}
	s.timer.Reset(time.Until(first))
}

// run fires what is due.
func (s *schedule) run() {
	s.firing.Lock()
	defer s.firing.Unlock()
	s.mu.Lock()
	s.armed = time.Time{}
	if s.stepped() {
		for _, e := range s.events {
			e.at = time.Time{}
		}
	}
	for fired := 1; len(s.events) > 0 && !s.events[0].at.After(time.Now()); fired++ {
		if s.burst > 0 && fired > s.burst {
			s.notBefore = time.Now().Add(burstPause)
			break
		}
		e := heap.Pop(&s.events).(*event)
		s.mu.Unlock()
		e.what.fire(false)
		s.mu.Lock()
	}
	s.arm()
	s.mu.Unlock()
}

// close empties the schedule for good and fires what was on it. Events that were
// firing have ended when it returns.
func (s *schedule) close() {
	s.mu.Lock()
	s.closed = true
	all := s.events
	s.events = nil
	for _, e := range all {
		e.index = 0
	}
	if s.timer != nil {
		s.timer.Stop()
	}
	s.mu.Unlock()
	s.firing.Lock()
	s.firing.Unlock() //nolint:staticcheck // waits for run
	for _, e := range all {
		e.what.fire(true)
	}
}

// eventHeap implements heap.Interface, the earliest event first.
type eventHeap []*event

func (h eventHeap) Len() int           { return len(h) }
func (h eventHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }

func (h eventHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i+1, j+1
}

// Push implements heap.Interface.
func (h *eventHeap) Push(x any) {
	e := x.(*event)
	*h = append(*h, e)
	e.index = len(*h)
}

// Pop implements heap.Interface.
func (h *eventHeap) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	e.index = 0
	return e
}
