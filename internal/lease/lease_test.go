package lease

import (
	"errors"
	"maps"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/testkit/clocktest"
	"github.com/seed14bd9ef4/redsync/internal/testkit/scripted"
)

// This file shows the states of a lease.

// A walk is one lease on its way through its states.
type walk struct {
	*Lease
	wall *clocktest.Wall
	told *diary // nil where nobody observes it

	lost, done <-chan struct{} // as they were given out at the beginning

	telling sync.Mutex // guards ended
	ended   []error    // what w was told as a Listener, since Begin
}

// Ended implements Listener.
func (w *walk) Ended(loss error) {
	w.telling.Lock()
	defer w.telling.Unlock()
	w.ended = append(w.ended, loss)
}

// at returns the state.
func (w *walk) at() State {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state
}

// later returns an instant at which every validity is over. No clock has to get there.
func later() clock.Instant {
	now := clock.Now()
	return clock.Instant{Mono: now.Mono + time.Hour, Wall: now.Wall.Add(time.Hour)}
}

// An event is what can happen to a lease. It returns the error that the lease gives, if any.
type event func(t *testing.T, w *walk) error

// errNotFirst stands for the false of an End whose lease had ended before.
var errNotFirst = errors.New("it had ended before")

var events = map[string]event{
	"Begin": func(_ *testing.T, w *walk) error {
		err := w.Begin()
		if err == nil {
			w.Listen(w)
		}
		return err
	},
	"time": func(t *testing.T, w *walk) error {
		before := w.at()
		time.Sleep(w.terms.Timing.Validity)
		synctest.Wait()
		if before == Held {
			assert.Equal(t, Past, w.at(), "without a look")
		}
		return w.NotHeld(clock.Now())
	},
	"a clock set forward": func(_ *testing.T, w *walk) error {
		w.wall.Step(time.Hour)
		return w.NotHeld(clock.Now())
	},
	"End(nil)":   func(_ *testing.T, w *walk) error { return unlessFirst(w.End(nil)) },
	"End(cause)": func(_ *testing.T, w *walk) error { return unlessFirst(w.End(errCause)) },
	"EndHeld": func(t *testing.T, w *walk) error {
		err := w.EndHeld(clock.Now())
		if err == nil {
			assert.False(t, w.End(nil), "its caller must call End, too")
		}
		return err
	},
	"EndLate in time": func(t *testing.T, w *walk) error {
		left, err := w.EndLate(w.First)
		assert.Equal(t, err == nil, left == w.terms.Timing.Validity)
		return err
	},
	"EndLate": func(t *testing.T, w *walk) error {
		left, err := w.EndLate(later())
		assert.Zero(t, left)
		return err
	},
}

func unlessFirst(first bool) error {
	if first {
		return nil
	}
	return errNotFirst
}

// A stand is what a lease says of itself.
type stand struct {
	state   State
	notHeld error // why it may not be relied upon
	loss    error // the cause that Err gives with the loss; nil where there is none: Err is notHeld then
	lost    bool  // Lost is closed
}

var (
	attempted    = stand{state: Acquiring}
	held         = stand{state: Held}
	past         = stand{state: Past, notHeld: errExpired, loss: errExpired, lost: true}
	unlocked     = stand{state: Over, notHeld: errNotHeld}
	unlockedLate = stand{state: Over, notHeld: errNotHeld, lost: true}
	detachedLate = stand{state: Over, notHeld: errExpired, loss: errExpired, lost: true}
	ended        = stand{state: Over, notHeld: errCause, loss: errCause, lost: true}
	endedLate    = stand{state: Over, notHeld: errCause, loss: errExpired, lost: true} // the first loss is told
	dropped      = stand{state: Dropped, notHeld: errNotHeld}
	droppedLate  = stand{state: Dropped, notHeld: errExpired, loss: errExpired, lost: true}
	droppedFor   = stand{state: Dropped, notHeld: errCause, loss: errCause, lost: true}
)

// A step is what an event makes of a lease, and what it returns.
type step struct {
	to      stand
	returns error
}

// stay returns the steps of a lease that has ended: most events change nothing.
func stay(at stand) map[string]step {
	return map[string]step{
		"Begin": {at, at.notHeld}, "time": {at, at.notHeld}, "a clock set forward": {at, at.notHeld},
		"End(nil)": {at, errNotFirst}, "End(cause)": {at, errNotFirst}, "EndHeld": {at, at.notHeld},
		"EndLate in time": {at, nil}, "EndLate": {at, at.notHeld},
	}
}

// but returns steps, some of them replaced by others.
func but(steps, others map[string]step) map[string]step {
	maps.Copy(steps, others)
	return steps
}

// walks say by which path a lease comes to a stand, and what each event then makes of it.
var walks = map[string]struct {
	path []string
	from stand
	then map[string]step
}{
	"Attempt": {nil, attempted, map[string]step{
		"Begin": {held, nil}, "time": {droppedLate, errExpired}, "a clock set forward": {droppedLate, errExpired},
		"End(nil)": {dropped, nil}, "End(cause)": {droppedFor, nil}, "EndHeld": {dropped, nil},
		"EndLate in time": {attempted, nil}, "EndLate": {droppedLate, errExpired},
	}},
	"Held": {[]string{"Begin"}, held, map[string]step{
		"Begin": {held, nil}, "time": {past, errExpired}, "a clock set forward": {past, errExpired},
		"End(nil)": {unlocked, nil}, "End(cause)": {ended, nil}, "EndHeld": {unlocked, nil},
		"EndLate in time": {held, nil}, "EndLate": {past, errExpired},
	}},
	"Past": {[]string{"Begin", "time"}, past, but(stay(past), map[string]step{
		"End(nil)": {unlockedLate, nil}, "End(cause)": {endedLate, nil},
	})},
	"Past by a clock": {[]string{"Begin", "a clock set forward"}, past, but(stay(past), map[string]step{
		"End(nil)": {unlockedLate, nil}, "End(cause)": {endedLate, nil},
	})},
	"Over": {[]string{"Begin", "EndHeld"}, unlocked, but(stay(unlocked), map[string]step{
		"EndLate": {detachedLate, errExpired},
	})},
	"Over after it was past": {[]string{"Begin", "time", "End(nil)"}, unlockedLate, but(stay(unlockedLate), map[string]step{
		"EndLate in time": {detachedLate, errExpired}, // too late: the validity is over
		"EndLate":         {detachedLate, errExpired},
	})},
	"Over for a cause": {[]string{"Begin", "End(cause)"}, ended, stay(ended)},
	"Over for a cause after it was past": {[]string{"Begin", "time", "End(cause)"}, endedLate, but(stay(endedLate), map[string]step{
		"EndLate in time": {endedLate, errCause}, // too late: the validity is over
	})},
	"Over after a late Detach": {[]string{"Begin", "EndHeld", "EndLate"}, detachedLate, but(stay(detachedLate), map[string]step{
		"EndLate in time": {detachedLate, errExpired}, // too late: the validity is over
	})},
	"Dropped":             {[]string{"End(nil)"}, dropped, stay(dropped)},
	"Dropped for a cause": {[]string{"End(cause)"}, droppedFor, stay(droppedFor)},
	"Dropped by time":     {[]string{"time"}, droppedLate, stay(droppedLate)},
}

// do lets an event happen, and checks that the event makes only a transition that transitions has.
func (w *walk) do(t *testing.T, name string) error {
	t.Helper()
	before := w.at()
	err := events[name](t, w)
	if after := w.at(); after != before {
		assert.Contains(t, transitions[before], after, "%s led from %v to %v", name, before, after)
	}
	return err
}

// transitions are where each state leads.
var transitions = map[State][]State{
	Acquiring: {Held, Dropped},
	Held:      {Past, Over},
	Past:      {Over},
}

// is fails the test unless w stands as wanted, before and after the wall clock is set back.
func (w *walk) is(t *testing.T, want stand) {
	t.Helper()
	for range 2 {
		assert.Equal(t, want.state, w.at())
		assert.Equal(t, !want.lost, isOpen(w.lost), "Lost, before anybody looks")
		assert.Equal(t, want.state == Acquiring || want.state == Held, isOpen(w.done), "Done, before anybody looks")
		assert.Equal(t, want.state == Held || want.state == Past || want.state == Over, w.Begun())
		now := clock.Now()
		if want.notHeld == nil {
			require.NoError(t, w.NotHeld(now))
			require.NoError(t, w.Err(now))
			assert.Positive(t, w.Remaining(now))
		} else {
			require.ErrorIs(t, w.NotHeld(now), want.notHeld)
			assert.Zero(t, w.Remaining(now))
		}
		if want.loss == nil {
			assert.Equal(t, want.notHeld, w.Err(now))
		} else {
			require.ErrorIs(t, w.Err(now), errLost)
			require.ErrorIs(t, w.Err(now), want.loss)
			assert.Same(t, w.Err(now), w.Err(now))
		}
		assert.Equal(t, want.lost && w.Begun(), w.Loss() != nil, "also after Unlock")
		assert.Equal(t, want.state == Over || want.state == Dropped, w.Until().IsZero())
		if !w.Until().IsZero() {
			assert.Equal(t, w.First.Wall.Add(w.terms.Timing.Validity), w.Until())
		}
		assert.Equal(t, w.lost, w.Lost(now), "the same channel")
		assert.Equal(t, w.done, w.Done(), "the same channel")
		if want.lost && w.Begun() && want.loss0() == errExpired { //nolint:errorlint // which of two it is
			assert.False(t, w.WasValid(now))
		}
		switch {
		case w.told == nil:
		case want.lost && w.Begun():
			require.Len(t, w.told.losses(), 1, "told once")
			require.ErrorIs(t, w.told.losses()[0], errLost)
			require.ErrorIs(t, w.told.losses()[0], want.loss0())
		default:
			assert.Empty(t, w.told.losses())
		}
		w.tellsEnd(t, want)
		w.wall.Step(-2 * time.Hour) // which must not revive the lease
	}
}

// tellsEnd fails the test unless w was told of its end once there is one, each time the same, and tells a latecomer at
// once.
func (w *walk) tellsEnd(t *testing.T, want stand) {
	t.Helper()
	synctest.Wait()
	if !w.Begun() {
		return
	}
	var late []error
	latecomer := &listener{func(loss error) { late = append(late, loss) }}
	w.Listen(latecomer)
	w.Forget(latecomer)
	w.telling.Lock()
	defer w.telling.Unlock()
	if want.state == Held {
		assert.Empty(t, w.ended)
		assert.Empty(t, late)
		return
	}
	require.NotEmpty(t, w.ended)
	for _, loss := range w.ended {
		assert.Equal(t, w.ended[0], loss)
	}
	if loss := w.ended[0]; loss != nil {
		require.ErrorIs(t, loss, errLost)
		require.ErrorIs(t, loss, want.loss0())
	} else {
		assert.Contains(t, []stand{unlocked, detachedLate}, want) // EndLate comes after the end was told
	}
	require.Len(t, late, 1)
	assert.Equal(t, want.lost, late[0] != nil)
}

// loss0 is the cause that observers are told with a loss.
func (s stand) loss0() error {
	if s.loss == nil { // unlocked after it was past
		return errExpired
	}
	return s.loss
}

// No transition goes back, whatever the clocks do, and all methods tell the same of each.
func TestLeaseStates(t *testing.T) {
	for from, c := range walks {
		require.Len(t, c.then, len(events), from)
		t.Run(from, func(t *testing.T) {
			walking(t, c.path, func(t *testing.T, w *walk) { w.is(t, c.from) })
		})
		for name, s := range c.then {
			t.Run(from+", "+name, func(t *testing.T) {
				walking(t, c.path, func(t *testing.T, w *walk) {
					require.Equal(t, c.from.state, w.at())
					err := w.do(t, name)
					if s.returns == nil {
						require.NoError(t, err)
					} else {
						require.ErrorIs(t, err, s.returns)
					}
					w.is(t, s.to)
				})
			})
		}
	}
}

// walking plays f with a lease that has gone a path and that somebody observes, and with one that nobody does.
func walking(t *testing.T, path []string, f func(t *testing.T, w *walk)) {
	t.Helper()
	for _, told := range []*diary{{}, nil} {
		synctest.Test(t, func(t *testing.T) {
			w := &walk{wall: clocktest.StepWall(t), told: told}
			terms := nowhere(t, 0)
			if told != nil {
				terms.Events = told
			}
			w.Lease = New(terms, "v", clock.Now())
			w.lost, w.done = w.Lost(w.First), w.Done()
			for _, name := range path {
				_ = w.do(t, name)
			}
			f(t, w)
			w.End(nil) // otherwise Close would wait for a release by nodes that do not exist
		})
	}
}

// The first Extend of a lease may come at the same moment as its end. When End has returned, nothing more is sent.
func TestEndAndTheFirstExtendAtOnce(t *testing.T) {
	p := on(scripted.Yes)
	terms := newTermsOf(t, timingOf(time.Hour), p, p, p)
	for range 1000 {
		l := begun(t, terms)
		extended := make(chan struct{})
		go func() {
			defer close(extended)
			_, _ = l.Extend(t.Context())
		}()
		runtime.Gosched() // to let some extensions begin before the end
		l.End(nil)
		sent := len(p.Sent())
		<-extended
		require.Equal(t, sent, len(p.Sent())) // not require.Len, which would print them all
	}
}

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
