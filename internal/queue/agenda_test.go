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

func TestNextSaysWhatThereIsToDoAndWhen(t *testing.T) {
	// Each case changes the same waiter, as it is at noon. It is the first in its line, has no reason to try, and its
	// retry delay is over 100 ms later. There are five nodes.
	for name, c := range map[string]struct {
		change func(v *view, a *agenda)
		want   event
		at     time.Duration
	}{
		"no reason": {func(*view, *agenda) {}, nothing, 100 * ms},

		"handed the lock":                {func(v *view, _ *agenda) { v.handedOff = true }, handed, 100 * ms},
		"handed, not the first":          {func(v *view, _ *agenda) { v.handedOff, v.first = true, false }, handed, 100 * ms},
		"handed, when the delay is over": {func(v *view, _ *agenda) { v.handedOff, v.tick = true, noon }, handed, 0},
		"handed, and held":               {func(v *view, _ *agenda) { v.handedOff, v.held = true, time.Hour }, handed, 100 * ms},

		"behind":                         {func(v *view, _ *agenda) { v.first = false }, notFirst, never},
		"behind, when the delay is over": {func(v *view, _ *agenda) { v.first, v.tick = false, noon }, notFirst, never},
		"behind, with every reason": {func(v *view, a *agenda) {
			v.first = false
			*a = agenda{ready: true, polls: true, graceEnd: noon, runsOut: noon, refresh: noon}
		}, notFirst, never},

		"behind, its ticket has not been shown": {func(v *view, _ *agenda) { v.first, v.shows = false, true }, showTicket, 0},
		"behind, its ticket is to be shown now": {func(v *view, a *agenda) { v.first, v.shows, a.refresh = false, true, noon }, showTicket, 0},
		"behind, its ticket is shown later":     {func(v *view, a *agenda) { v.first, v.shows, a.refresh = false, true, in(40*ms) }, notFirst, 40 * ms},
		"paces, and its ticket is shown later":  {func(v *view, a *agenda) { v.first, v.paces, v.shows, a.refresh = false, true, true, in(40*ms) }, nothing, 40 * ms},
		"held, and its ticket is shown now":     {func(v *view, a *agenda) { v.held, v.shows, a.refresh = time.Hour, true, noon }, showTicket, 0},
		"held, and its ticket is shown later":   {func(v *view, a *agenda) { v.held, v.shows, a.refresh = time.Hour, true, in(40*ms) }, nothing, 40 * ms},
		"collides, its ticket is shown later":   {func(v *view, a *agenda) { v.collides, v.shows, a.refresh = true, true, in(40*ms) }, nothing, 40 * ms},
		"handed, and its ticket is shown now":   {func(v *view, _ *agenda) { v.handedOff, v.shows = true, true }, handed, 100 * ms},

		"the delay is over":                   {func(v *view, _ *agenda) { v.tick = noon }, elapsed, 0},
		"the delay was over before":           {func(v *view, _ *agenda) { v.tick = in(-ms) }, elapsed, -ms},
		"the delay is not quite over":         {func(v *view, _ *agenda) { v.tick = in(1) }, nothing, 1},
		"the delay is over, and held":         {func(v *view, _ *agenda) { v.tick, v.held = noon, time.Hour }, elapsed, 0},
		"the delay is over, and polls":        {func(v *view, a *agenda) { v.tick, a.polls = noon, true }, elapsed, 0},
		"the delay is over, and unsubscribed": {func(v *view, a *agenda) { v.tick, a.ready, v.subscriptions = noon, true, hearsNobody }, elapsed, 0},
		"paces, its delay is over":            {func(v *view, _ *agenda) { v.first, v.paces, v.tick = false, true, noon }, elapsed, 0},
		"paces, its delay is not over":        {func(v *view, _ *agenda) { v.first, v.paces = false, true }, nothing, 100 * ms},
		"paces, with a reason to try":         {func(v *view, a *agenda) { v.first, v.paces, a.ready = false, true, true }, nothing, 100 * ms},
		"paces, and is told to poll":          {func(v *view, a *agenda) { v.first, v.paces, a.polls = false, true, true }, nothing, 100 * ms},

		"prompted":                   {func(_ *view, a *agenda) { a.polls = true }, prompted, 100 * ms},
		"prompted, and held":         {func(v *view, a *agenda) { a.polls, v.held = true, time.Hour }, prompted, 100 * ms},
		"prompted, and unsubscribed": {func(v *view, a *agenda) { a.polls, v.subscriptions = true, hearsNobody }, prompted, 100 * ms},
		"prompted, and ready":        {func(_ *view, a *agenda) { a.polls, a.ready = true, true }, prompted, 100 * ms},

		"held for a while":               {func(v *view, _ *agenda) { v.held = 30 * ms }, nothing, 30 * ms},
		"held for longer than the delay": {func(v *view, _ *agenda) { v.held = time.Hour }, nothing, 100 * ms},
		"held, with every reason": {func(v *view, a *agenda) {
			v.held = 30 * ms
			v.free = 31
			*a = agenda{ready: true, graceEnd: noon, runsOut: noon, refresh: noon}
		}, nothing, 30 * ms},
		"collides for a while": {func(v *view, a *agenda) {
			v.collides, v.free = true, 31
			*a = agenda{ready: true, polls: true, graceEnd: noon, runsOut: noon, refresh: noon}
		}, nothing, 100 * ms},
		"collides when the delay is over": {func(v *view, _ *agenda) { v.collides, v.tick = true, noon }, elapsed, 0},

		"ready":                                 {func(_ *view, a *agenda) { a.ready = true }, tryNow, 0},
		"ready right behind a release":          {func(_ *view, a *agenda) { a.ready, a.followsRelease = true, true }, tryNow, 0},
		"right behind a release, but not ready": {func(_ *view, a *agenda) { a.followsRelease = true }, nothing, 100 * ms},

		"woken by three":                  {func(v *view, a *agenda) { v.free, a.graceEnd = 0b10101, in(3*ms) }, tryNow, 0},
		"woken by two":                    {func(v *view, a *agenda) { v.free, a.graceEnd = 0b10001, in(3*ms) }, nothing, 3 * ms},
		"woken by two, in a graceEnd":     {func(v *view, a *agenda) { v.free, a.graceEnd = 0b10001, noon }, tryNow, 0},
		"three freed, and nobody woke it": {func(v *view, _ *agenda) { v.free = 0b00111 }, nothing, 100 * ms},
		"in a graceEnd after the delay":   {func(v *view, a *agenda) { v.free, a.graceEnd = 1, in(time.Second) }, nothing, 100 * ms},

		"woken by two, in a graceEnd, but hopeless": {func(v *view, a *agenda) { v.free, v.hopeless, a.graceEnd = 0b10001, true, noon }, nothing, 100 * ms},
		"ready, in a pause":                         {func(_ *view, a *agenda) { a.ready, a.pauseEnd = true, in(20*ms) }, nothing, 20 * ms},
		"with every reason, in a pause": {func(v *view, a *agenda) {
			v.free = 31
			*a = agenda{ready: true, graceEnd: noon, runsOut: noon, refresh: noon, pauseEnd: in(time.Second)}
		}, nothing, 100 * ms},
		"ready, after a pause":          {func(_ *view, a *agenda) { a.ready, a.pauseEnd = true, noon }, tryNow, 0},
		"the delay is over, in a pause": {func(v *view, a *agenda) { v.tick, a.pauseEnd = noon, in(20*ms) }, elapsed, 0},
		"prompted, in a pause":          {func(_ *view, a *agenda) { a.polls, a.pauseEnd = true, in(20*ms) }, prompted, 100 * ms},

		"it runs out":                           {func(_ *view, a *agenda) { a.runsOut = in(20 * ms) }, nothing, 20 * ms},
		"it has run out just now":               {func(_ *view, a *agenda) { a.runsOut = noon }, tryNow, 0},
		"it ran out before":                     {func(_ *view, a *agenda) { a.runsOut = in(-ms) }, tryNow, 0},
		"it runs out after the delay":           {func(_ *view, a *agenda) { a.runsOut = in(time.Second) }, nothing, 100 * ms},
		"the ticket is to be shown":             {func(_ *view, a *agenda) { a.refresh = in(40 * ms) }, nothing, 40 * ms},
		"the ticket is shown now":               {func(_ *view, a *agenda) { a.refresh = noon }, tryNow, 0},
		"the ticket is shown now, and it rests": {func(v *view, a *agenda) { v.rests, a.refresh = true, noon }, showTicket, 0},
		"shown often, and it rests": {func(v *view, a *agenda) {
			v.rests, a.refresh, a.shown = true, noon, maxShown
		}, tryNow, 0},
		"it has run out, and it rests": {func(v *view, a *agenda) { v.rests, a.refresh, a.runsOut = true, noon, noon }, tryNow, 0},
		"ready, and it rests":          {func(v *view, a *agenda) { v.rests, a.refresh, a.ready = true, noon, true }, tryNow, 0},
		"the earliest of three": {func(_ *view, a *agenda) {
			a.runsOut, a.refresh, a.graceEnd = in(20*ms), in(40*ms), in(30*ms)
		}, nothing, 20 * ms},
		"the earliest of three is the graceEnd": {func(_ *view, a *agenda) {
			a.runsOut, a.refresh, a.graceEnd = in(20*ms), in(40*ms), in(10*ms)
		}, nothing, 10 * ms},
		"the earliest of three is over": {func(_ *view, a *agenda) {
			a.runsOut, a.refresh, a.graceEnd = in(20*ms), noon, in(10*ms)
		}, tryNow, 0},

		"ready, and unsubscribed":          {func(v *view, a *agenda) { a.ready, v.subscriptions = true, hearsNobody }, unsubscribed, 0},
		"it runs out, and unsubscribed":    {func(v *view, a *agenda) { a.runsOut, v.subscriptions = noon, hearsNobody }, unsubscribed, 0},
		"no reason, and unsubscribed":      {func(v *view, _ *agenda) { v.subscriptions = hearsNobody }, nothing, 100 * ms},
		"ready, and hears soon":            {func(v *view, a *agenda) { a.ready, v.subscriptions = true, hearsFrom(in(5*ms)) }, nothing, 5 * ms},
		"ready, and hears after the delay": {func(v *view, a *agenda) { a.ready, v.subscriptions = true, hearsFrom(in(time.Second)) }, nothing, 100 * ms},
		"woken by three, and hears soon": {func(v *view, a *agenda) {
			v.free, a.graceEnd, v.subscriptions = 0b111, in(ms), hearsFrom(in(5*ms))
		}, nothing, 5 * ms},
	} {
		t.Run(name, func(t *testing.T) {
			v := view{now: noon, first: true, tick: in(100 * ms), rule: claimtest.Majority(5)}
			v.subscriptions = hearsNow
			var a agenda
			c.change(&v, &a)
			what, at := v.next(a)
			assert.Equal(t, c.want, what)
			if c.at == never {
				assert.Zero(t, at)
				return
			}
			assert.Equal(t, in(c.at), at)
		})
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

func TestNextIsNeverIdleForAPastTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v, a := drawView(t)
		switch what, at := v.at(noon).next(a); what {
		case nothing:
			if !at.After(v.now) || at.After(v.tick) {
				t.Fatalf("nothing until %v, the delay is over at %v", at.Sub(noon), v.tick.Sub(noon))
			}
			if v.held > 0 && v.first && at.After(noon.Add(v.held)) {
				t.Fatalf("nothing until %v, held until %v", at.Sub(noon), v.held)
			}
		case tryNow, unsubscribed:
			if !v.first || v.held > 0 || v.handedOff || !at.Equal(noon) || !v.now.Before(v.tick) {
				t.Fatalf("event %v of %+v", what, v)
			}
		case handed:
			if !v.handedOff {
				t.Fatalf("it was given nothing")
			}
		case notFirst:
			if v.first || v.paces {
				t.Fatalf("nobody stands before it: %+v", v)
			}
		case showTicket:
			if !v.shows || v.handedOff || a.refresh.After(noon) {
				t.Fatalf("it need not show its ticket: %+v", v)
			}
		case elapsed:
			if v.now.Before(v.tick) || v.handedOff {
				t.Fatalf("its delay is not over: %+v", v)
			}
		case prompted:
			if !a.polls || !v.first {
				t.Fatalf("nobody prompts it: %+v", v)
			}
		case ended:
			t.Fatalf("that is not for next to say")
		}
	})
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

func TestEarlierOfTwoTimesOfWhichZeroIsNever(t *testing.T) {
	never := time.Time{}
	assert.Equal(t, never, earlier(never, never))
	assert.Equal(t, noon, earlier(noon, never))
	assert.Equal(t, noon, earlier(never, noon))
	assert.Equal(t, noon, earlier(noon, in(1)))
	assert.Equal(t, noon, earlier(in(1), noon))
}
