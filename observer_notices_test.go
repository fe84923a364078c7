package redsync

import (
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/notice"
)

// A stuck observer does not come back before it is let go.
type stuck struct {
	release chan struct{}

	mu           sync.Mutex
	told, missed int
	times        int // that it was told of missed events
}

func (s *stuck) ObserveLost(Lost) {
	<-s.release
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told++
}

func (s *stuck) ObserveMissed(m Missed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.missed += m.Events
	s.times++
}

// TestObserversMissTogetherWhatTooMuchWaitsFor drops events of locks with the same observers.
func TestObserversMissTogetherWhatTooMuchWaitsFor(t *testing.T) {
	s := &stuck{}
	synctest.Test(t, func(*testing.T) {
		s.release = make(chan struct{})
		c := newCore(nil)
		tellLater(c, (*observers)(nil).with(s), LostObserver.ObserveLost, Lost{})
		synctest.Wait()
		rs := (&Redsync{core: c, set: &settings{}}).With(WithObserver(s))
		for range notice.Max + 1000 { // as Do, which gives each Mutex settings of its own
			tellLater(c, rs.NewMutex("lock", WithWatchdog()).set.observers, LostObserver.ObserveLost, Lost{})
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
	h := testHold(t, 0, clock.Now())
	h.core = newCore(nil)
	m := &Mutex{core: h.core, name: "lock", set: h.set}
	allocated := testing.AllocsPerRun(100, func() {
		m.acquired(h, h.first, "")
		tell(h.set.observers, ReleasedObserver.ObserveReleased, Released{Name: m.name, Err: ErrLockLost})
		tell(h.set.observers, ExtendedObserver.ObserveExtended, h.extendedEvent(h.first, 0, nil))
		tellLater(h.core, h.set.observers, UnsettledObserver.ObserveUnsettled, Unsettled{Name: m.name, Pending: 1000})
		(&watchdog{hold: h}).tell(extending{}, nil)
		if h.witness("lock") != nil {
			t.Fatal("a witness for nobody")
		}
	})
	assert.Zero(t, allocated)
}

// The event that a lock is lost is told whoever asks for it: see tellLost.
func TestHoldThatNeverBeganTellsNoLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stuck{release: make(chan struct{})}
		close(s.release)
		h := testHold(t, 0, at(0, 0))
		h.set.observers = h.set.observers.with(s)
		require.Error(t, h.whyNotHeld(at(h.timing.expiry, 0)))
		synctest.Wait()
		assert.Zero(t, s.told)
	})
}
