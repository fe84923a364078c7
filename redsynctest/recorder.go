package redsynctest

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/seed14bd9ef4/redsync/observe"
)

// A Recorder keeps every event. Pass its Hooks to redsync.WithHooks, and read the
// events with Events or AwaitEvents. The zero value is ready. Many goroutines and many locks may use it.
type Recorder struct {
	once  sync.Once // makes hooks
	hooks observe.Hooks

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

// Hooks returns the functions that keep the events, always by the same pointer.
func (r *Recorder) Hooks() *observe.Hooks {
	r.once.Do(func() {
		r.hooks = observe.Hooks{
			Attempt:            record[observe.Attempt](r),
			Vote:               record[observe.Vote](r),
			Waiting:            record[observe.Waiting](r),
			Acquired:           record[observe.Acquired](r),
			NotAcquired:        record[observe.NotAcquired](r),
			Extended:           record[observe.Extended](r),
			Released:           record[observe.Released](r),
			Detached:           record[observe.Detached](r),
			Lost:               record[observe.Lost](r),
			ReleaseUnconfirmed: record[observe.ReleaseUnconfirmed](r),
			WakeUpDenied:       record[observe.WakeUpDenied](r),
			NodeDown:           record[observe.NodeDown](r),
			NodeUp:             record[observe.NodeUp](r),
			OneServer:          record[observe.OneServer](r),
			TwoServers:         record[observe.TwoServers](r),
			RegisterIgnored:    record[observe.RegisterIgnored](r),
			EventsDropped:      record[observe.EventsDropped](r),
		}
	})
	return &r.hooks
}

// record returns the function that keeps the events of one kind.
func record[E Event](r *Recorder) func(context.Context, E) {
	return func(_ context.Context, e E) { r.record(e) }
}
