package queue

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/testkit/claimtest"
)

// This file shows when a waiter has something to do, and what.

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// in returns the time d after noon.
func in(d time.Duration) time.Time { return noon.Add(d) }

const (
	ms    = time.Millisecond
	sec   = time.Second
	never = -time.Hour // stands for no time at all
)

// A change is of a waiter as it is at noon.
type change func(v *view, a *agenda)

func handedIt(v *view, _ *agenda)   { v.handedOff = true }
func behind(v *view, _ *agenda)     { v.first = false }
func paces(v *view, _ *agenda)      { v.first, v.paces = false, true }
func shows(v *view, _ *agenda)      { v.shows = true }
func collides(v *view, _ *agenda)   { v.collides = true }
func rests(v *view, _ *agenda)      { v.rests = true }
func hopeless(v *view, _ *agenda)   { v.hopeless = true }
func deaf(v *view, _ *agenda)       { v.listens = false }
func ready(_ *view, a *agenda)      { a.ready = true }
func behindOne(_ *view, a *agenda)  { a.followsRelease = true }
func polls(_ *view, a *agenda)      { a.polls = true }
func shownOften(_ *view, a *agenda) { a.shown = maxShown }

// all are the reasons to try.
func all(v *view, a *agenda) {
	v.free = 31
	a.ready, a.graceEnd, a.runsOut, a.refresh = true, noon, noon, noon
}

func quiet(d time.Duration) change { return func(v *view, _ *agenda) { v.quiet = in(d) } }
func held(d time.Duration) change  { return func(v *view, _ *agenda) { v.held = d } }
func delay(d time.Duration) change { return func(v *view, _ *agenda) { v.tick = in(d) } }
func hears(d time.Duration) change {
	return func(v *view, _ *agenda) { v.from = in(d) }
}
func free(nodes claim.Nodes) change  { return func(v *view, _ *agenda) { v.free = nodes } }
func grace(d time.Duration) change   { return func(_ *view, a *agenda) { a.graceEnd = in(d) } }
func pause(d time.Duration) change   { return func(_ *view, a *agenda) { a.pauseEnd = in(d) } }
func expires(d time.Duration) change { return func(_ *view, a *agenda) { a.runsOut = in(d) } }
func isShown(d time.Duration) change { return func(_ *view, a *agenda) { a.refresh = in(d) } }

func TestNextSaysWhatThereIsToDoAndWhen(t *testing.T) {
	// next checks what there is to do, and when, after some changes of one waiter, as it is at noon. It is the first in
	// its line, has no reason to try, and its retry delay is over 100 ms later. There are five nodes.
	next := func(want event, at time.Duration, changes ...change) {
		t.Helper()
		v := view{now: noon, first: true, tick: in(100 * ms), rule: claimtest.Majority(5), listens: true}
		var a agenda
		for _, change := range changes {
			change(&v, &a)
		}
		what, due := v.next(a)
		wanted := in(at)
		if at == never {
			wanted = time.Time{}
		}
		assert.Equal(t, want, what, "%+v of %+v", a, v)
		assert.Equal(t, wanted, due, "%+v of %+v", a, v)
	}
	next(nothing, 100*ms)

	next(handed, 100*ms, handedIt, behind)
	next(handed, 0, handedIt, delay(0))
	next(handed, 100*ms, handedIt, held(time.Hour))
	next(handed, 100*ms, handedIt, shows)

	next(notFirst, never, behind, delay(0))
	next(notFirst, never, behind, all, polls)
	next(showTicket, 0, behind, shows) // it has not been shown
	next(showTicket, 0, behind, shows, isShown(0))
	next(notFirst, 40*ms, behind, shows, isShown(40*ms))
	next(nothing, 40*ms, paces, shows, isShown(40*ms))
	next(showTicket, 0, held(time.Hour), shows, isShown(0))
	next(nothing, 40*ms, held(time.Hour), shows, isShown(40*ms))
	next(nothing, 40*ms, collides, shows, isShown(40*ms))

	next(elapsed, 0, delay(0))
	next(elapsed, -ms, delay(-ms))
	next(nothing, 1, delay(1))
	next(elapsed, 0, delay(0), held(time.Hour))
	next(elapsed, 0, delay(0), polls)
	next(elapsed, 0, delay(0), ready, deaf)
	next(elapsed, 0, delay(0), paces)
	next(elapsed, 0, delay(0), collides)
	next(elapsed, 0, delay(0), pause(20*ms))
	next(nothing, 100*ms, paces, ready, polls)

	next(prompted, 100*ms, polls, held(time.Hour), deaf)
	next(prompted, 100*ms, polls, ready, pause(20*ms))

	next(nothing, 100*ms, held(time.Hour))
	next(nothing, 30*ms, held(30*ms), all)
	next(nothing, 100*ms, collides, all, polls)

	next(tryNow, 0, ready, behindOne)
	next(nothing, 100*ms, behindOne)

	next(tryNow, 0, free(0b10101), grace(3*ms))
	next(nothing, 3*ms, free(0b10001), grace(3*ms))
	next(tryNow, 0, free(0b10001), grace(0))
	next(nothing, 100*ms, free(0b10001), grace(0), hopeless)
	next(nothing, 100*ms, free(0b00111)) // nobody woke it
	next(nothing, 5*ms, free(0b10001), grace(3*ms), quiet(5*ms))
	next(nothing, 100*ms, quiet(5*ms))
	next(nothing, 100*ms, free(1), grace(sec))

	next(nothing, 20*ms, ready, pause(20*ms))
	next(nothing, 100*ms, all, pause(sec))
	next(tryNow, 0, ready, pause(0))

	next(nothing, 20*ms, expires(20*ms))
	next(tryNow, 0, expires(0))
	next(tryNow, 0, expires(-ms))
	next(nothing, 100*ms, expires(sec))
	next(nothing, 40*ms, isShown(40*ms))
	next(tryNow, 0, isShown(0))
	next(showTicket, 0, isShown(0), rests)
	next(tryNow, 0, isShown(0), rests, shownOften)
	next(tryNow, 0, isShown(0), rests, expires(0))
	next(tryNow, 0, isShown(0), rests, ready)
	next(nothing, 20*ms, expires(20*ms), isShown(40*ms), grace(30*ms))
	next(nothing, 10*ms, expires(20*ms), isShown(40*ms), grace(10*ms))
	next(tryNow, 0, expires(20*ms), isShown(0), grace(10*ms))

	next(unsubscribed, 0, ready, deaf)
	next(unsubscribed, 0, expires(0), deaf)
	next(nothing, 100*ms, deaf)
	next(nothing, 5*ms, ready, hears(5*ms))
	next(nothing, 100*ms, ready, hears(sec))
	next(nothing, 5*ms, free(0b111), grace(ms), hears(5*ms))
}

// This file shows the retry delays of a waiter, those that it sleeps through included.

// rising is a delay of 10 ms for each try that was made. It counts its calls.
func rising(calls *int) func(int) time.Duration {
	return func(tries int) time.Duration {
		*calls++
		return time.Duration(tries) * 10 * ms
	}
}

func TestPaceSleepsUntilItsTriesAreUsedUp(t *testing.T) {
	for name, c := range map[string]struct {
		limit int
		delay func(calls *int) func(int) time.Duration
		want  time.Duration // 0 is never
		calls int
	}{
		"no limit":        {0, rising, 0, 1},
		"one more":        {2, rising, 10 * ms, 1},
		"four more":       {5, rising, (10 + 20 + 30 + 40) * ms, 4},
		"very short ones": {5, constant(0), 3 * minTry, 4},
		"one of no use":   {5, useless(3), (10 + 20) * ms, 3},
		"very many":       {100_000, constant(ms), ms + maxAhead*minTry, 1 + maxAhead},
	} {
		synctest.Test(t, func(t *testing.T) {
			t.Log(name)
			var calls int
			start := time.Now()
			p := pace{delay: c.delay(&calls), limit: c.limit, try: 1}
			require.True(t, p.begin(0))
			for range 3 { // it is asked each time that something has happened
				at := p.sleep()
				if c.want == 0 {
					assert.Zero(t, at)
				} else {
					assert.Equal(t, c.want, at.Sub(start))
				}
				assert.True(t, p.asleep)
				assert.Equal(t, c.calls, calls, "each is drawn once")
			}
		})
	}
}

func constant(d time.Duration) func(calls *int) func(int) time.Duration {
	return func(calls *int) func(int) time.Duration {
		return func(int) time.Duration {
			*calls++
			return d
		}
	}
}

// useless is rising, but with a negative delay after one try.
func useless(try int) func(calls *int) func(int) time.Duration {
	return func(calls *int) func(int) time.Duration {
		usual := rising(calls)
		return func(tries int) time.Duration {
			d := usual(tries)
			if tries == try {
				return -1
			}
			return d
		}
	}
}

// The delays after tries 1 to 4 are over after 10, 30, 60 and 100 ms.
func TestPaceWakesAtTheNextTry(t *testing.T) {
	for name, c := range map[string]struct {
		limit  int
		delay  func(calls *int) func(int) time.Duration
		slept  time.Duration
		try    int // the last one that has passed
		tick   time.Duration
		delays int // how many drawn delays are left
	}{
		"at once":                     {5, rising, 0, 1, 10 * ms, 3},
		"just before the first":       {5, rising, 10*ms - 1, 1, 10 * ms, 3},
		"at the first":                {5, rising, 10 * ms, 2, 30 * ms, 2},
		"between two":                 {5, rising, 35 * ms, 3, 60 * ms, 1},
		"at the last":                 {5, rising, 100 * ms, 4, 100 * ms, 0},
		"long after the last":         {5, rising, time.Hour, 4, 100 * ms, 0},
		"no limit, before the first":  {0, rising, 5 * ms, 1, 10 * ms, 0},
		"no limit, at the first":      {0, rising, 10 * ms, 1, 20 * ms, 0},
		"no limit, long after":        {0, rising, time.Hour, 1, time.Hour + 10*ms, 0},
		"with one try left, before":   {2, rising, 5 * ms, 1, 10 * ms, 0},
		"negative, after two":         {9, useless(3), 30 * ms, 2, 30 * ms, 1},
		"in no less than it takes":    {9, constant(ms), ms + 5*minTry, 7, ms + 6*minTry, 1},
		"with one try left, after it": {2, rising, 15 * ms, 1, 10 * ms, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			t.Log(name)
			var calls int
			start := time.Now()
			p := pace{delay: c.delay(&calls), limit: c.limit, try: 1}
			require.True(t, p.begin(0))
			p.sleep()
			p.wake(start.Add(c.slept))
			assert.False(t, p.asleep)
			assert.Equal(t, c.try, p.try)
			assert.Equal(t, c.tick, p.tick.Sub(start))
			assert.Len(t, p.ahead, c.delays)

			// The delays that were drawn are those that follow.
			before := calls
			p.try++
			want := c.delay(new(int))(p.try)
			assert.Equal(t, want >= 0, p.begin(0), "a negative delay ends the Lock when it would begin")
			assert.Equal(t, want, p.last)
			assert.Equal(t, c.delays == 0, calls > before)
		})
	}
}
