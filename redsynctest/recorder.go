package redsynctest

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/seed14bd9ef4/redsync/observe"
)

// A Recorder is an observer that keeps every event. Pass its address to redsync.WithObserver, and read the
// events with Events or AwaitEvents. The zero value is ready. Many goroutines and many locks may use it.
type Recorder struct {
	mu      sync.Mutex
	events  []any
	changed chan struct{} // closed by the next event; nil if nobody waits
}

// An Event is one of the events of package observe.
type Event interface {
	observe.Attempt | observe.Vote | observe.Waiting | observe.Acquired | observe.NotAcquired | observe.Extended |
		observe.Released | observe.Detached | observe.Lost | observe.ReleaseUnconfirmed |
		observe.WakeUpDenied | observe.NodeDown | observe.NodeUp | observe.OneServer | observe.TwoServers |
		observe.RegisterIgnored | observe.EventsDropped
}

// Events returns the events of one kind that r has recorded, in the order in which they came:
// Events[observe.Lost](r). Events that are part of no call, such as observe.Lost, arrive a little later than what
// they report: use AwaitEvents for them.
func Events[E Event](r *Recorder) []E {
	events, _ := eventsAndNext[E](r)
	return events
}

// AwaitEvents waits until r has at least n events of a kind, and returns all of this kind. After 10 s without
// them it fails the test, as tb.Fatalf does.
func AwaitEvents[E Event](tb testing.TB, r *Recorder, n int) []E {
	tb.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		events, next := eventsAndNext[E](r)
		if len(events) >= n {
			return events
		}
		select {
		case <-next:
		case <-timer.C:
			tb.Fatalf("redsynctest: AwaitEvents: %d events of %T after %v, want %d", len(events), *new(E), patience, n)
			return events
		}
	}
}

// eventsAndNext returns the events of a kind, and a channel that the next event of any kind closes.
func eventsAndNext[E Event](r *Recorder) (events []E, next <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		if e, ok := e.(E); ok {
			events = append(events, e)
		}
	}
	if r.changed == nil {
		r.changed = make(chan struct{})
	}
	return events, r.changed
}

// All returns all events, in the order in which they came. They are values of the types of package observe.
func (r *Recorder) All() []any {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events)
}

// Reset forgets all events.
func (r *Recorder) Reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = nil
}

func (r *Recorder) record(e any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
	if r.changed != nil {
		close(r.changed)
		r.changed = nil
	}
}

// ObserveAttempt implements observe.AttemptObserver.
func (r *Recorder) ObserveAttempt(_ context.Context, e observe.Attempt) { r.record(e) }

// ObserveVote implements observe.VoteObserver.
func (r *Recorder) ObserveVote(_ context.Context, e observe.Vote) { r.record(e) }

// ObserveWaiting implements observe.WaitingObserver.
func (r *Recorder) ObserveWaiting(_ context.Context, e observe.Waiting) { r.record(e) }

// ObserveAcquired implements observe.AcquiredObserver.
func (r *Recorder) ObserveAcquired(_ context.Context, e observe.Acquired) { r.record(e) }

// ObserveNotAcquired implements observe.NotAcquiredObserver.
func (r *Recorder) ObserveNotAcquired(_ context.Context, e observe.NotAcquired) { r.record(e) }

// ObserveExtended implements observe.ExtendedObserver.
func (r *Recorder) ObserveExtended(_ context.Context, e observe.Extended) { r.record(e) }

// ObserveReleased implements observe.ReleasedObserver.
func (r *Recorder) ObserveReleased(_ context.Context, e observe.Released) { r.record(e) }

// ObserveDetached implements observe.DetachedObserver.
func (r *Recorder) ObserveDetached(_ context.Context, e observe.Detached) { r.record(e) }

// ObserveLost implements observe.LostObserver.
func (r *Recorder) ObserveLost(_ context.Context, e observe.Lost) { r.record(e) }

// ObserveReleaseUnconfirmed implements observe.ReleaseUnconfirmedObserver.
func (r *Recorder) ObserveReleaseUnconfirmed(_ context.Context, e observe.ReleaseUnconfirmed) {
	r.record(e)
}

// ObserveWakeUpDenied implements observe.WakeUpDeniedObserver.
func (r *Recorder) ObserveWakeUpDenied(_ context.Context, e observe.WakeUpDenied) { r.record(e) }

// ObserveNodeDown implements observe.NodeDownObserver.
func (r *Recorder) ObserveNodeDown(_ context.Context, e observe.NodeDown) { r.record(e) }

// ObserveNodeUp implements observe.NodeUpObserver.
func (r *Recorder) ObserveNodeUp(_ context.Context, e observe.NodeUp) { r.record(e) }

// ObserveOneServer implements observe.OneServerObserver.
func (r *Recorder) ObserveOneServer(_ context.Context, e observe.OneServer) { r.record(e) }

// ObserveTwoServers implements observe.TwoServersObserver.
func (r *Recorder) ObserveTwoServers(_ context.Context, e observe.TwoServers) { r.record(e) }

// ObserveRegisterIgnored implements observe.RegisterIgnoredObserver.
func (r *Recorder) ObserveRegisterIgnored(_ context.Context, e observe.RegisterIgnored) { r.record(e) }

// ObserveEventsDropped implements observe.EventsDroppedObserver.
func (r *Recorder) ObserveEventsDropped(_ context.Context, e observe.EventsDropped) { r.record(e) }
