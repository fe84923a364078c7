package lease

import (
	"container/heap"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/seed14bd9ef4/redsync/internal/alarm"
	"github.com/seed14bd9ef4/redsync/internal/clock"
)

// Watchdogs that wait go on in the order in which their validities end.
func TestPacerLetsTheEarliestEndGoOnFirst(t *testing.T) {
	var waiting earliest
	var pushed, popped []time.Duration
	for range 1000 {
		ends := rand.N(time.Minute)
		pushed = append(pushed, ends)
		heap.Push(&waiting, paced{nil, ends, 0})
		if rand.N(3) == 0 {
			popped = append(popped, heap.Pop(&waiting).(paced).ends)
			for _, p := range waiting {
				assert.LessOrEqual(t, popped[len(popped)-1], p.ends)
			}
		}
	}
	for len(waiting) > 0 {
		popped = append(popped, heap.Pop(&waiting).(paced).ends)
	}
	slices.Sort(pushed)
	slices.Sort(popped)
	assert.Equal(t, pushed, popped)
}

// A goer notes when it goes on.
type goer struct {
	start time.Time
	went  *[]time.Duration
}

func (g goer) goOn() { *g.went = append(*g.went, time.Since(g.start).Truncate(time.Millisecond)) }

// While a node is behind, a watchdog waits until half of its validity has passed. As soon as no node is behind, all go on.
func TestPacerMakesWatchdogsWaitForANodeThatIsBehind(t *testing.T) {
	const validity = 100 * time.Millisecond
	for name, c := range map[string]struct {
		left   time.Duration // of the validity, when the watchdog asks
		behind time.Duration // for how long the node is behind
		want   time.Duration // how long the watchdog waits
	}{
		"no node is behind":            {80 * time.Millisecond, 0, 0},
		"no node is behind any more":   {80 * time.Millisecond, 10 * time.Millisecond, 10 * time.Millisecond},
		"half of the validity passes":  {80 * time.Millisecond, time.Second, 30 * time.Millisecond},
		"half of the validity is left": {50 * time.Millisecond, time.Second, time.Millisecond},
		"less than half is left":       {50*time.Millisecond - 1, time.Second, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var schedule alarm.Schedule
				var p pacer
				start := time.Now()
				p.init(&schedule, func() bool { return time.Since(start) < c.behind })
				var went []time.Duration
				g := goer{start, &went}
				if p.admits(g, clock.Now(), c.left, validity) {
					g.goOn()
				}
				time.Sleep(2 * time.Second)
				synctest.Wait()
				assert.Equal(t, []time.Duration{c.want}, went)
				schedule.Close()
			})
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
		assert.False(t, p.admits(goer{start, &went}, clock.Now(), 80*time.Millisecond, 100*time.Millisecond))
		behind.Store(false)
		assert.False(t, p.admits(goer{start, &went}, clock.Now(), 70*time.Millisecond, 100*time.Millisecond))
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Equal(t, []time.Duration{time.Millisecond, time.Millisecond}, went)
		assert.True(t, p.admits(goer{start, &went}, clock.Now(), 80*time.Millisecond, 100*time.Millisecond))
		schedule.Close()
	})
}
