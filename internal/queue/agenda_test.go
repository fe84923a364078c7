package queue

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/claim/claimtest"
)

// This file shows when a waiter has something to do, and what.

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// in returns the time d after noon.
func in(d time.Duration) time.Time { return noon.Add(d) }

// A hearing is a function that implements subscriptions.
type hearing func() (time.Time, bool)

func (h hearing) hears() (time.Time, bool) { return h() }

var (
	hearsNow    hearing = func() (time.Time, bool) { return time.Time{}, true }
	hearsNobody hearing = func() (time.Time, bool) { return time.Time{}, false }
)

func hearsFrom(from time.Time) hearing {
	return func() (time.Time, bool) { return from, true }
}

const (
	ms    = time.Millisecond
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
func deaf(v *view, _ *agenda)       { v.subscriptions = hearsNobody }
func ready(_ *view, a *agenda)      { a.ready = true }
func behindOne(_ *view, a *agenda)  { a.followsRelease = true }
func polls(_ *view, a *agenda)      { a.polls = true }
func shownOften(_ *view, a *agenda) { a.shown = maxShown }

// all are the reasons to try.
func all(v *view, a *agenda) {
	v.free = 31
	a.ready, a.graceEnd, a.runsOut, a.refresh = true, noon, noon, noon
}

func held(d time.Duration) change  { return func(v *view, _ *agenda) { v.held = d } }
func delay(d time.Duration) change { return func(v *view, _ *agenda) { v.tick = in(d) } }
func hears(d time.Duration) change {
	return func(v *view, _ *agenda) { v.subscriptions = hearsFrom(in(d)) }
}
func free(nodes claim.Nodes) change  { return func(v *view, _ *agenda) { v.free = nodes } }
func grace(d time.Duration) change   { return func(_ *view, a *agenda) { a.graceEnd = in(d) } }
func pause(d time.Duration) change   { return func(_ *view, a *agenda) { a.pauseEnd = in(d) } }
func expires(d time.Duration) change { return func(_ *view, a *agenda) { a.runsOut = in(d) } }
func isShown(d time.Duration) change { return func(_ *view, a *agenda) { a.refresh = in(d) } }

func TestNextSaysWhatThereIsToDoAndWhen(t *testing.T) {
	// Each case changes the same waiter, as it is at noon. It is the first in its line, has no reason to try, and its
	// retry delay is over 100 ms later. There are five nodes.
	for _, c := range []struct {
		changes []change
		want    event
		at      time.Duration
	}{
		{nil, nothing, 100 * ms},

		{[]change{handedIt, behind}, handed, 100 * ms},
		{[]change{handedIt, delay(0)}, handed, 0},
		{[]change{handedIt, held(time.Hour)}, handed, 100 * ms},
		{[]change{handedIt, shows}, handed, 100 * ms},

		{[]change{behind, delay(0)}, notFirst, never},
		{[]change{behind, all, polls}, notFirst, never},
		{[]change{behind, shows}, showTicket, 0}, // it has not been shown
		{[]change{behind, shows, isShown(0)}, showTicket, 0},
		{[]change{behind, shows, isShown(40 * ms)}, notFirst, 40 * ms},
		{[]change{paces, shows, isShown(40 * ms)}, nothing, 40 * ms},
		{[]change{held(time.Hour), shows, isShown(0)}, showTicket, 0},
		{[]change{held(time.Hour), shows, isShown(40 * ms)}, nothing, 40 * ms},
		{[]change{collides, shows, isShown(40 * ms)}, nothing, 40 * ms},

		{[]change{delay(0)}, elapsed, 0},
		{[]change{delay(-ms)}, elapsed, -ms},
		{[]change{delay(1)}, nothing, 1},
		{[]change{delay(0), held(time.Hour)}, elapsed, 0},
		{[]change{delay(0), polls}, elapsed, 0},
		{[]change{delay(0), ready, deaf}, elapsed, 0},
		{[]change{delay(0), paces}, elapsed, 0},
		{[]change{delay(0), collides}, elapsed, 0},
		{[]change{delay(0), pause(20 * ms)}, elapsed, 0},
		{[]change{paces, ready, polls}, nothing, 100 * ms},

		{[]change{polls, held(time.Hour), deaf}, prompted, 100 * ms},
		{[]change{polls, ready, pause(20 * ms)}, prompted, 100 * ms},

		{[]change{held(time.Hour)}, nothing, 100 * ms},
		{[]change{held(30 * ms), all}, nothing, 30 * ms},
		{[]change{collides, all, polls}, nothing, 100 * ms},

		{[]change{ready, behindOne}, tryNow, 0},
		{[]change{behindOne}, nothing, 100 * ms},

		{[]change{free(0b10101), grace(3 * ms)}, tryNow, 0},
		{[]change{free(0b10001), grace(3 * ms)}, nothing, 3 * ms},
		{[]change{free(0b10001), grace(0)}, tryNow, 0},
		{[]change{free(0b10001), grace(0), hopeless}, nothing, 100 * ms},
		{[]change{free(0b00111)}, nothing, 100 * ms}, // nobody woke it
		{[]change{free(1), grace(time.Second)}, nothing, 100 * ms},

		{[]change{ready, pause(20 * ms)}, nothing, 20 * ms},
		{[]change{all, pause(time.Second)}, nothing, 100 * ms},
		{[]change{ready, pause(0)}, tryNow, 0},

		{[]change{expires(20 * ms)}, nothing, 20 * ms},
		{[]change{expires(0)}, tryNow, 0},
		{[]change{expires(-ms)}, tryNow, 0},
		{[]change{expires(time.Second)}, nothing, 100 * ms},
		{[]change{isShown(40 * ms)}, nothing, 40 * ms},
		{[]change{isShown(0)}, tryNow, 0},
		{[]change{isShown(0), rests}, showTicket, 0},
		{[]change{isShown(0), rests, shownOften}, tryNow, 0},
		{[]change{isShown(0), rests, expires(0)}, tryNow, 0},
		{[]change{isShown(0), rests, ready}, tryNow, 0},
		{[]change{expires(20 * ms), isShown(40 * ms), grace(30 * ms)}, nothing, 20 * ms},
		{[]change{expires(20 * ms), isShown(40 * ms), grace(10 * ms)}, nothing, 10 * ms},
		{[]change{expires(20 * ms), isShown(0), grace(10 * ms)}, tryNow, 0},

		{[]change{ready, deaf}, unsubscribed, 0},
		{[]change{expires(0), deaf}, unsubscribed, 0},
		{[]change{deaf}, nothing, 100 * ms},
		{[]change{ready, hears(5 * ms)}, nothing, 5 * ms},
		{[]change{ready, hears(time.Second)}, nothing, 100 * ms},
		{[]change{free(0b111), grace(ms), hears(5 * ms)}, nothing, 5 * ms},
	} {
		v := view{now: noon, first: true, tick: in(100 * ms), rule: claimtest.Majority(5), subscriptions: hearsNow}
		var a agenda
		for _, change := range c.changes {
			change(&v, &a)
		}
		what, at := v.next(a)
		want := in(c.at)
		if c.at == never {
			want = time.Time{}
		}
		assert.Equal(t, c.want, what, "%+v of %+v", a, v)
		assert.Equal(t, want, at, "%+v of %+v", a, v)
	}
}

// drawView draws a case, with times around noon.
func drawView(t *rapid.T) (v view, a agenda) {
	when := func(name string) time.Time { // 0 is never
		d := rapid.Int64Range(-5, 20).Draw(t, name)
		if d == 0 {
			return time.Time{}
		}
		return in(time.Duration(d))
	}
	yes := func(name string) bool { return rapid.Bool().Draw(t, name) }
	nodes := func(name string) claim.Nodes { return claim.Nodes(rapid.Uint64Range(0, 31).Draw(t, name)) }
	v = view{
		now: noon, handedOff: rapid.IntRange(0, 9).Draw(t, "given") == 0, first: rapid.IntRange(0, 3).Draw(t, "first") != 0,
		paces: yes("paces"), tick: in(time.Duration(rapid.Int64Range(-2, 20).Draw(t, "tick"))), rule: claimtest.Majority(5),
	}
	if yes("held") {
		v.held = time.Duration(rapid.Int64Range(1, 20).Draw(t, "for how long"))
	}
	v.shows = (!v.first || v.held > 0) && yes("shows")
	v.free = nodes("free")
	a = agenda{
		ready: yes("ready"), followsRelease: yes("follows a release"), polls: rapid.IntRange(0, 4).Draw(t, "polls") == 0,
		graceEnd: when("graceEnd"), runsOut: when("runs out"), refresh: when("refresh"),
	}
	listens, ready := rapid.IntRange(0, 4).Draw(t, "listens") != 0, in(time.Duration(rapid.Int64Range(-3, 20).Draw(t, "hears from")))
	v.subscriptions = hearing(func() (time.Time, bool) { return ready, listens })
	return v, a
}

// at returns v as it is at another time, if nothing has happened until then.
func (v view) at(now time.Time) view {
	held, ear := v.held-now.Sub(v.now), v.subscriptions
	v.held, v.now = max(held, 0), now
	v.shows = v.shows && (!v.first || v.held > 0)        // see call.view: a waiter that may try shows its ticket by that
	v.subscriptions = hearing(func() (time.Time, bool) { // as subscriber.hears does
		from, listens := ear.hears()
		if !listens || !from.After(now) {
			return time.Time{}, listens
		}
		return from, true
	})
	return v
}

// acts returns what a waiter does next, and when, if nothing happens.
func acts(t *rapid.T, v view, a agenda) (event, time.Time) {
	now := v.now
	for range 20 {
		what, at := v.at(now).next(a)
		switch {
		case what != nothing:
			return what, now
		case !at.After(now):
			t.Fatalf("nothing to do at %v, until %v", now, at)
		}
		now = at
	}
	t.Fatalf("there is nothing to do for ever")
	return nothing, now
}

// A waiter that has more reason to try, or hears earlier, or has the lock earlier, must not act later.
func TestNextIsNoLaterWithMoreReason(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v, a := drawView(t)
		if what, _ := v.at(noon).next(a); what == notFirst {
			return // there is nothing to do at any time
		}
		if v.shows && a.refresh.IsZero() {
			return // a ticket that was never shown is shown at once, whatever else it knows
		}
		_, before := acts(t, v, a)
		more, sooner := a, v
		advance := func(name string, at time.Time) time.Time {
			by := rapid.Int64Range(0, 9).Draw(t, name)
			if at.IsZero() && by > 0 {
				return in(20)
			}
			return at.Add(-time.Duration(by))
		}
		switch rapid.SampledFrom([]string{"ready", "polls", "free", "graceEnd", "runs out", "refresh", "held", "heard", "given"}).Draw(t, "what") {
		case "ready":
			more.ready = true
		case "polls":
			more.polls = true
		case "free":
			sooner.free = sooner.free.With(rapid.IntRange(0, 4).Draw(t, "node"))
		case "graceEnd":
			more.graceEnd = advance("by", more.graceEnd)
		case "runs out":
			more.runsOut = advance("by", more.runsOut)
		case "refresh":
			more.refresh = advance("by", more.refresh)
		case "held":
			sooner.held /= 2
			if from, _ := v.subscriptions.hears(); v.shows && from.After(before) {
				before = from // once it may try, it first waits to hear; its ticket outlasts that: see maxWaitToHear
			}
		case "heard":
			sooner.subscriptions = hearsNow
		case "given":
			sooner.handedOff = true
		}
		if _, after := acts(t, sooner, more); after.After(before) {
			t.Fatalf("%+v of %+v acts at %v; %+v of %+v at %v", a, v, before.Sub(noon), more, sooner, after.Sub(noon))
		}
	})
}
