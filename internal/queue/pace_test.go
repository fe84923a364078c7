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
