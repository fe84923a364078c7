package lease

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/clock/clocktest"
	"github.com/seed14bd9ef4/redsync/internal/puppet"
	"github.com/seed14bd9ef4/redsync/internal/quorum"
)

// This file shows what begins and ends with a lease: its alarms, and what others are told of it.

func TestLeaseComparesClocksNotTooOften(t *testing.T) {
	for expiry, every := range map[time.Duration]time.Duration{
		20 * time.Millisecond:  10 * time.Millisecond,
		200 * time.Millisecond: 20 * time.Millisecond,
		8 * time.Second:        800 * time.Millisecond,
		time.Hour:              time.Second,
	} {
		synctest.Test(t, func(t *testing.T) {
			wall := clocktest.StepWall(t)
			terms := newTerms(timingOf(expiry), on(puppet.Yes))
			l, start := begun(t, terms), time.Now()
			lost := l.Lost(clock.Now())
			time.Sleep(time.Millisecond)
			wall.Step(expiry)
			<-lost
			assert.Equal(t, every, time.Since(start), "the step is seen when the clocks are compared")
			require.NoError(t, closes(t.Context(), terms.Keeper))
		})
	}
}

// After a step of the wall clock the watchdog extends at once if its next round would come in the second half of what is
// left. A round takes time, and must be confirmed before the validity ends.
func TestWatchdogExtendsAtOnceAfterAStepThatLeavesItLittleTime(t *testing.T) {
	for step, extends := range map[time.Duration]bool{3 * time.Second: false, 4 * time.Second: true, 5 * time.Second: true} {
		synctest.Test(t, func(t *testing.T) {
			wall := clocktest.StepWall(t)
			p := on(puppet.Yes)
			terms := newTerms(timingOf(8*time.Second), p)
			terms.Watchdog = true
			begun(t, terms)
			time.Sleep(time.Millisecond)
			wall.Step(step)
			time.Sleep(800 * time.Millisecond) // the step is seen; the next round is due at 2.667 s
			assert.Equal(t, extends, p.Count("evalsha") == 1, "a step of %v", step)
			require.NoError(t, closes(t.Context(), terms.Keeper))
		})
	}
}

func TestCloseReleasesALeaseWhoseAlarmIsFiring(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := on(puppet.Yes)
		terms := newTerms(timingOf(8*time.Second), p)
		l := begun(t, terms)
		terms.Keeper.expiries.Drop(&l.expiry) // the schedule has taken the alarm off
		require.NoError(t, closes(t.Context(), terms.Keeper))
		l.Fire(false) // and fires it after Close
		synctest.Wait()
		assert.Equal(t, 1, p.Count("evalsha"))
	})
}

// A listener is a Listener that calls a function.
type listener struct{ f func(loss error) }

func (l *listener) Ended(loss error) { l.f(loss) }

// A lease whose release a node has not settled stays in memory. It does not keep its Listeners, which have contexts.
func TestEndedLeaseKeepsNoListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		terms := newTerms(timingOf(8*time.Second), on(puppet.Yes))
		l := begun(t, terms)
		l.Listen(&listener{func(error) {}})
		l.End(nil)
		assert.Equal(t, watched{}, *l.watched)
	})
}

// A Listener may be forgotten while End still has it, as the context of a Mutex is when the hold ends. The race detector
// sees it if the two meet.
func TestListenerIsForgottenWhileTheEndIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := begun(t, newTerms(timingOf(8*time.Second), on(puppet.Yes)))
		told := 0
		to := &listener{func(error) {
			told++
			time.Sleep(2 * time.Second) // meanwhile it is forgotten
		}}
		l.Listen(to)
		go func() {
			time.Sleep(time.Second)
			l.Forget(to)
		}()
		l.End(nil)
		assert.Equal(t, 1, told)
	})
}

// A lease neither tells nor keeps a Listener that it has forgotten.
func TestLeaseForgetsAListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		terms := newTerms(timingOf(8*time.Second), on(puppet.Yes))
		l, told := begun(t, terms), 0
		stays, goes := &listener{func(error) { told++ }}, &listener{func(error) { t.Error("it was to be forgotten") }}
		l.Listen(stays)
		l.Listen(goes)
		l.Forget(goes)
		l.Forget(goes)
		assert.Len(t, l.watched.listeners, 1)
		l.Forget(stays)
		assert.Nil(t, l.watched.room[0])
		l.Listen(stays)
		l.End(nil)
		assert.Equal(t, 1, told)
		l.Listen(stays)
		assert.Equal(t, 2, told, "it has ended already")
		assert.Empty(t, l.watched.listeners)
		l.Forget(stays)
		l.End(errCause)
		assert.Equal(t, 2, told)
	})
}

func TestLeaseThatIsHiddenShowsNothing(t *testing.T) {
	for name, end := range map[string]func(l *Lease){
		"unlocked": func(l *Lease) { l.End(nil) },
		"detached": func(l *Lease) { assert.NoError(t, l.EndHeld(clock.Now())) },
		"hidden":   func(l *Lease) { assert.True(t, l.Hide()) },
	} {
		t.Run(name, func(t *testing.T) {
			l := New(nowhere(0), "v", clock.Now())
			end(l)
			assert.Empty(t, l.Show())
			assert.Empty(t, l.ShowHeld(clock.Now()))
			assert.True(t, l.Hide(), "nobody has seen it")
		})
	}
	l := New(nowhere(0), "v", clock.Now())
	l.End(asLost(errExpired, nil))
	assert.Equal(t, "v", l.Show(), "kept after a loss")
	assert.False(t, l.Hide())
}

// The line of waiters asks a lease how long it lasts, even before the lease has begun.
func TestBeginAndTheLooksOfOthersDoNotRace(t *testing.T) {
	for range 100 {
		terms := nowhere(0)
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

// The first call that finds a lease lost tells the observers: see tellLostLocked. It must not tell them of a
// lease that was never held.
func TestLeaseThatNeverBeganTellsNoLoss(t *testing.T) {
	terms, told := nowhere(0), &diary{}
	terms.Events = told
	l := New(terms, "v", at(0, 0))
	require.Error(t, l.NotHeld(at(terms.Timing.Expiry, 0)))
	assert.Empty(t, told.losses())
}

// Without observers an event costs nothing.
func TestEventsAllocateNothingWithoutObservers(t *testing.T) {
	l := New(nowhere(1), "v", clock.Now())
	r := &watchRound{behindFill: behindFill{Extension: Extension{lease: l}}}
	allocated := testing.AllocsPerRun(100, func() {
		r.tell(quorum.Result{}, true)
		l.terms.deny(0, errBroken, true)
		if l.terms.tracer() != nil {
			t.Fatal("a tracer for nobody")
		}
	})
	assert.Zero(t, allocated)
}
