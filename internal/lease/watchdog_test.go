package lease

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/alarm"
	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/testkit/scripted"
	"github.com/seed14bd9ef4/redsync/internal/wire"
)

// This file shows the watchdog from inside; tests/watchdog_test.go shows what nodes are sent.

func TestWatchdogLateTimerShiftsNothing(t *testing.T) {
	l := New(newTermsOf(t, timingOf(9*sec), nil), "v", at(time.Hour, 0))
	w := &watchdog{lease: l}
	for held, want := range map[time.Duration]time.Duration{
		0:          3 * sec,
		sec:        2 * sec,
		3*sec - 1:  1,
		3 * sec:    3 * sec,
		3*sec + ms: 2999 * ms,
		5 * sec:    sec,
		3001 * sec: 2 * sec,
	} {
		assert.Equal(t, want, w.third(at(time.Hour+held, time.Minute)), "held for %v", held)
	}
}

// A deaf is a node that answers no extension: the test answers in its place.
type deaf struct {
	*scripted.Node
	mu    sync.Mutex
	asked []wire.Request
}

func newDeaf() *deaf {
	d := &deaf{}
	d.Node = on(func(req wire.Request) (*wire.Reply, error) {
		if !isExtend(req) {
			return scripted.Yes(req)
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		d.asked = append(d.asked, req)
		return nil, nil
	})
	return d
}

// grants lets the node grant an extension.
func (d *deaf) grants(req wire.Request) {
	reply, _ := scripted.Yes(req)
	tells(req, *reply)
}

// watched returns a lease with a watchdog on the node, which extends it after 3 s, and what observers are told.
func (d *deaf) watched(t *testing.T, others ...wire.Pool) (*Lease, *diary) {
	t.Helper()
	told := &diary{}
	terms := newTermsOf(t, timingOf(9*sec), append(others, d)...)
	terms.Watchdog, terms.Events = true, told
	return begun(t, terms), told
}

// unanswered returns the extensions that the node has not answered.
func (d *deaf) unanswered() []wire.Request {
	synctest.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.asked
}

func TestWatchdogSendsNothingInFullAfterUntil(t *testing.T) {
	for _, late := range []time.Duration{0, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			d := newDeaf()
			terms := newTerms(t, d)
			terms.Watchdog, terms.Heals = true, true
			l := begun(t, terms)
			time.Sleep(time.Until(l.Until()))
			l.mu.Lock()
			missed := l.rareEnd.missed
			l.mu.Unlock()
			require.NotNil(t, missed, "the error of the loss needs it")
			<-l.Lost(l.First)
			time.Sleep(late)
			unanswered := d.unanswered()
			assert.Equal(t, late == 0, l.watchdog.open != nil, "it gives the round up when it wakes next")
			require.Len(t, unanswered, 7)
			for _, req := range unanswered {
				tells(req, lacks)
				synctest.Wait()
			}
			assert.Nil(t, l.watchdog.open, "the last answer wakes it as well")
			assert.Len(t, d.unanswered(), 7)
			assert.Zero(t, d.Count("eval"), "it would set the key")
		})
	}
}

// busy is the Firer of an alarm that fires until busy is closed.
type busy chan struct{}

func (b busy) Fire(bool) { <-b }

func TestWatchdogStartsNoRoundBesideOneThatIsDecided(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDeaf()
		l, told := d.watched(t)
		time.Sleep(3 * sec)
		asked := d.unanswered()
		require.Len(t, asked, 1)
		other := make(busy) // another alarm, which is firing
		l.terms.Keeper.extensions.Set(&alarm.Alarm{What: other}, time.Now())
		synctest.Wait()
		d.grants(asked[0])
		l.watchdog.Fire(false) // its alarm was due before the verdict
		close(other)
		synctest.Wait()
		assert.Len(t, d.unanswered(), 1)
		require.Len(t, told.extensions(), 1)
		assert.True(t, told.extensions()[0].Won)
		unlock(l)
	})
}

// A Downgrade may come between the decision of a round and its verdict. The verdict is about that round alone, and not about
// the next one.
func TestVerdictOfARoundThatWasGivenUpDoesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDeaf()
		l, told := d.watched(t)
		w := l.watchdog
		time.Sleep(3 * sec)
		require.Len(t, d.unanswered(), 1)
		(*verdict)(w).Fire(false) // of an earlier round: it was about to fire
		require.NotNil(t, w.open, "this round is not decided")
		w.restart()
		(*verdict)(w).Fire(false)
		require.NoError(t, l.NotHeld(clock.Now()))
		assert.Empty(t, told.extensions())
		time.Sleep(3 * sec)
		assert.Len(t, d.unanswered(), 2, "the next round begins when a third of the expiry has passed")
		unlock(l)
	})
}

// A goer notes when it goes on.
type goer struct {
	start time.Time
	went  *[]time.Duration
}

func (g goer) goOn() { *g.went = append(*g.went, time.Since(g.start).Truncate(ms)) }

// While a node is behind, a watchdog waits until half of its validity has passed. As soon as no node is behind, all go on.
func TestThrottleMakesWatchdogsWaitForANodeThatIsBehind(t *testing.T) {
	const validity = 100 * ms
	for name, c := range map[string]struct {
		left   time.Duration // of the validity, when the watchdog asks
		behind time.Duration // for how long the node is behind
		want   time.Duration // how long the watchdog waits
	}{
		"no node is behind":            {80 * ms, 0, 0},
		"no node is behind any more":   {80 * ms, 10 * ms, 10 * ms},
		"half of the validity passes":  {80 * ms, sec, 30 * ms},
		"half of the validity is left": {50 * ms, sec, ms},
		"less than half is left":       {50*ms - 1, sec, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			t.Log(name)
			var schedule alarm.Schedule
			var p throttle
			start := time.Now()
			p.init(&schedule, func() bool { return time.Since(start) < c.behind })
			var went []time.Duration
			g := goer{start, &went}
			if p.admits(g, clock.Now(), c.left, validity) {
				g.goOn()
			}
			time.Sleep(2 * sec)
			synctest.Wait()
			assert.Equal(t, []time.Duration{c.want}, went)
			schedule.Close()
		})
	}
}

// A watchdog that could go on waits behind those that wait already.
func TestThrottleLetsNobodyOvertakeTheWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var schedule alarm.Schedule
		var p throttle
		start := time.Now()
		var behind atomic.Bool
		behind.Store(true)
		p.init(&schedule, behind.Load)
		var went []time.Duration
		assert.False(t, p.admits(goer{start, &went}, clock.Now(), 80*ms, 100*ms))
		behind.Store(false)
		assert.False(t, p.admits(goer{start, &went}, clock.Now(), 70*ms, 100*ms))
		time.Sleep(sec)
		synctest.Wait()
		assert.Equal(t, []time.Duration{ms, ms}, went)
		assert.True(t, p.admits(goer{start, &went}, clock.Now(), 80*ms, 100*ms))
		schedule.Close()
	})
}
