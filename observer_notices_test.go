package redsync

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/lease"
	"github.com/seed14bd9ef4/redsync/internal/notice"
	"github.com/seed14bd9ef4/redsync/observe"
)

// This file shows that slow observers miss events, and that events cost nothing without observers.

// A stuck observer blocks until release is closed.
type stuck struct {
	release chan struct{}

	mu           sync.Mutex
	told, missed int
	times        int // how often it was told of missed events
}

func (s *stuck) ObserveLost(context.Context, observe.Lost) {
	<-s.release
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told++
}

func (s *stuck) ObserveEventsDropped(_ context.Context, d observe.EventsDropped) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.missed += d.Events
	s.times++
}

// TestObserversMissTogetherWhatTooMuchWaitsFor drops events of locks with the same observers.
func TestObserversMissTogetherWhatTooMuchWaitsFor(t *testing.T) {
	s := &stuck{}
	synctest.Test(t, func(*testing.T) {
		s.release = make(chan struct{})
		c := newCore(nil, formOf(0), ErrNoPools)
		other := &events{to: (*observers)(nil).with(s), notices: c.notices}
		tellOfNoCall(other, observe.LostObserver.ObserveLost, observe.Lost{})
		synctest.Wait()
		rs := (&Redsync{core: c, set: New().set}).With(WithObserver(s))
		for range notice.Max + 1000 { // like Do, which gives each Mutex settings of its own
			m := rs.NewMutex("lock", WithWatchdog())
			tellOfNoCall(m.terms.Events.(*events), observe.LostObserver.ObserveLost, observe.Lost{})
		}
		close(s.release)
		synctest.Wait()
	})
	assert.Equal(t, 1+notice.Max, s.told)
	assert.Equal(t, 1000, s.missed)
	assert.Equal(t, 1, s.times)
}

// Without observers an event costs nothing.
func TestEventsAllocateNothingWithoutObservers(t *testing.T) {
	rs := New()
	m := rs.NewMutex("lock")
	h := lease.New(&m.terms.Terms, "v", clock.Now())
	require.Nil(t, m.terms.Events)   // without observers, leases make no events
	require.Nil(t, m.terms.Attempts) // without observers, attempts make no events
	ctx := t.Context()
	allocated := testing.AllocsPerRun(100, func() {
		m.tellExtended(ctx, h, h.First, 1, ErrLockLost)
	})
	assert.Zero(t, allocated)
}
