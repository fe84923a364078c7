package queue

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// This file shows the retry delays of a waiter, those that it sleeps through included.

// rising is a delay of 10 ms for each try that was made. It counts its calls.
func rising(calls *int) func(int) time.Duration {
	return func(tries int) time.Duration {
		*calls++
		return time.Duration(tries) * 10 * ms
	}
}

func TestPaceBeginsADelayThatIsLongEnough(t *testing.T) {
	for name, c := range map[string]struct {
		delay, least time.Duration
		begins       bool
		tick         time.Duration
	}{
		"a delay":           {50 * ms, 0, true, 50 * ms},
		"no delay":          {0, 0, true, 0},
		"at least so long":  {5 * ms, 10 * ms, true, 10 * ms},
		"longer than least": {50 * ms, 10 * ms, true, 50 * ms},
		"of no use":         {-1, 10 * ms, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				p := pace{delay: func(int) time.Duration { return c.delay }, try: 1}
				require.Equal(t, c.begins, p.begin(c.least))
				assert.Equal(t, c.delay, p.last)
				if c.begins {
					assert.Equal(t, c.tick, p.tick.Sub(start))
				}
			})
		})
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
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
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
		slept  time.Duration
		try    int // the last one that has passed
		tick   time.Duration
		delays int // how many drawn delays are left
	}{
		"at once":                     {5, 0, 1, 10 * ms, 3},
		"just before the first":       {5, 10*ms - 1, 1, 10 * ms, 3},
		"at the first":                {5, 10 * ms, 2, 30 * ms, 2},
		"between two":                 {5, 35 * ms, 3, 60 * ms, 1},
		"at the last":                 {5, 100 * ms, 4, 100 * ms, 0},
		"long after the last":         {5, time.Hour, 4, 100 * ms, 0},
		"no limit, before the first":  {0, 5 * ms, 1, 10 * ms, 0},
		"no limit, at the first":      {0, 10 * ms, 1, 20 * ms, 0},
		"no limit, long after":        {0, time.Hour, 1, time.Hour + 10*ms, 0},
		"with one try left, before":   {2, 5 * ms, 1, 10 * ms, 0},
		"with one try left, after it": {2, 15 * ms, 1, 10 * ms, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var calls int
				start := time.Now()
				p := pace{delay: rising(&calls), limit: c.limit, try: 1}
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
				require.True(t, p.begin(0))
				assert.Equal(t, time.Duration(p.try)*10*ms, p.last)
				assert.Equal(t, c.delays == 0, calls > before)
			})
		})
	}
}

// A negative delay ends the Lock when it would begin, and not before.
func TestPaceWakesBeforeADelayOfNoUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls int
		start := time.Now()
		p := pace{delay: useless(3)(&calls), limit: 9, try: 1}
		require.True(t, p.begin(0))
		at := p.sleep()
		assert.Equal(t, 30*ms, at.Sub(start))
		p.wake(at)
		assert.Equal(t, 2, p.try)
		assert.Equal(t, at, p.tick)
		p.try++
		assert.False(t, p.begin(0))
		assert.Negative(t, p.last)
	})
}

// A delay shorter than minTry counts as minTry, so that a waiter that is asleep uses up its tries no faster
// than a waiter that makes them.
func TestPacePassesOverATryInNoLessThanItTakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls int
		start := time.Now()
		p := pace{delay: constant(ms)(&calls), limit: 100, try: 1}
		require.True(t, p.begin(0))
		p.sleep()
		p.wake(start.Add(ms + 5*minTry))
		assert.Equal(t, 7, p.try)
		assert.Equal(t, ms+6*minTry, p.tick.Sub(start))
	})
}
