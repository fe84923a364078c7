package lease

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/testkit/clocktest"
	"github.com/seed14bd9ef4/redsync/internal/testkit/scripted"
)

// This file shows what begins and ends with a lease: its alarms, and what others are told of it.

func TestLeaseComparesClocksNotTooOften(t *testing.T) {
	for expiry, every := range map[time.Duration]time.Duration{
		20 * ms:   10 * ms,
		200 * ms:  20 * ms,
		8 * sec:   800 * ms,
		time.Hour: sec,
	} {
		synctest.Test(t, func(t *testing.T) {
			wall := clocktest.StepWall(t)
			terms := newTermsOf(t, timingOf(expiry), on(scripted.Yes))
			l, start := begun(t, terms), time.Now()
			lost := l.Lost(clock.Now())
			time.Sleep(ms)
			wall.Step(expiry)
			<-lost
			assert.Equal(t, every, time.Since(start), "the step is seen when the clocks are compared")
		})
	}
}

func TestCloseReleasesALeaseWhoseAlarmIsFiring(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := on(scripted.Yes)
		terms := newTerms(t, p)
		l := begun(t, terms)
		terms.Keeper.expiries.Drop(&l.expiry) // the schedule has taken the alarm off
		closes(t, l)
		l.Fire(false) // and fires it after Close
		synctest.Wait()
		assert.Equal(t, 1, p.Count("evalsha"))
	})
}

// A listener is a Listener that calls a function.
type listener struct{ f func(loss error) }

func (l *listener) Ended(loss error) { l.f(loss) }

// A Listener may be forgotten while End still has it, as the context of a Mutex is when the hold ends. The race detector
// sees it if the two meet.
func TestListenerIsForgottenWhileTheEndIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := begun(t, newTerms(t, on(scripted.Yes)))
		told := 0
		to := &listener{func(error) {
			told++
			time.Sleep(2 * sec) // meanwhile it is forgotten
		}}
		l.Listen(to)
		go func() {
			time.Sleep(sec)
			l.Forget(to)
		}()
		l.End(nil)
		assert.Equal(t, 1, told)
	})
}

// The line of waiters asks a lease how long it lasts, even before the lease has begun.
func TestBeginAndTheLooksOfOthersDoNotRace(t *testing.T) {
	for range 100 {
		terms := nowhere(t, 0)
		terms.Timing.Validity = 50 * time.Microsecond
		l := New(terms, "v", clock.Now())
		var wg sync.WaitGroup
		wg.Go(func() {
			for l.Remaining(clock.Now()) > 0 {
				continue
			}
		})
		_ = l.Begin()
		wg.Wait()
		l.End(nil)
		terms.Keeper.expiries.Close()
	}
}

func TestLeaseThatIsOverShowsNothing(t *testing.T) {
	l := New(nowhere(t, 0), "v", clock.Now())
	l.End(nil)
	assert.Empty(t, l.Show())
	assert.Empty(t, l.ShowHeld(clock.Now()))
	assert.True(t, l.Hide(), "nobody has seen it")
}
