package lease

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/seed14bd9ef4/redsync/internal/alarm"
	"github.com/seed14bd9ef4/redsync/internal/clock"
)

// A goer notes when it goes on.
type goer struct {
	start time.Time
	went  *[]time.Duration
}

func (g goer) goOn() { *g.went = append(*g.went, time.Since(g.start).Truncate(ms)) }

// While a node is behind, a watchdog waits until half of its validity has passed. As soon as no node is behind, all go on.
func TestPacerMakesWatchdogsWaitForANodeThatIsBehind(t *testing.T) {
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
			var p pacer
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
func TestPacerLetsNobodyOvertakeTheWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var schedule alarm.Schedule
		var p pacer
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
