package redsync

import (
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A stuck observer does not come back before it is let go.
type stuck struct {
	release chan struct{}

	mu           sync.Mutex
	told, missed int
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
}

// playStuck runs f with an observer that is stuck in its first notice; lose tells
// another. Then it lets the observer go on.
func playStuck(t *testing.T, f func(s *stuck, c *core, lose func(*observers))) *stuck {
	t.Helper()
	s := &stuck{}
	synctest.Test(t, func(*testing.T) {
		s.release = make(chan struct{})
		c := newCore(nil)
		lose := func(to *observers) { tellLater(c, to, LostObserver.ObserveLost, Lost{}) }
		lose((*observers)(nil).with(s))
		synctest.Wait()
		f(s, c, lose)
		close(s.release)
		synctest.Wait()
		assert.False(t, c.notices.running)
	})
	return s
}

func TestNoticesAreMissedTogetherByLocksWithTheSameObservers(t *testing.T) {
	s := playStuck(t, func(s *stuck, c *core, lose func(*observers)) {
		rs := (&Redsync{core: c, set: &settings{}}).With(WithObserver(s))
		for range maxNotices + 1000 { // as Do, which gives each Mutex settings of its own
			lose(rs.NewMutex("lock", WithWatchdog()).set.observers)
		}
		assert.Len(t, c.notices.waiting, maxNotices)
		assert.Len(t, c.notices.missed, 1)
	})
	assert.Equal(t, 1+maxNotices, s.told)
	assert.Equal(t, 1000, s.missed)
}

func TestNoticesAreBoundedForLocksWithObserversOfTheirOwn(t *testing.T) {
	s := playStuck(t, func(s *stuck, c *core, lose func(*observers)) {
		for range 3 * maxNotices {
			lose((*observers)(nil).with(s))
		}
		assert.Len(t, c.notices.waiting, maxNotices)
		assert.Len(t, c.notices.missed, maxNotices)
	})
	assert.Equal(t, 1+maxNotices, s.told)
	assert.Equal(t, maxNotices, s.missed)
}

// Without observers an event costs nothing.
func TestEventsAllocateNothingWithoutObservers(t *testing.T) {
	h := testHold(t, 0, now())
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
