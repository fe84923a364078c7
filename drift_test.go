package redsync

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/seed14bd9ef4/redsync/internal/clock"
)

var wallOrigin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// at is the instant at which both clocks have advanced by these times.
func at(mono, wall time.Duration) clock.Instant {
	return clock.Instant{Mono: mono, Wall: wallOrigin.Add(wall)}
}

func TestValidityGoesByTheClockThatAdvancedMore(t *testing.T) {
	v := validity{start: at(0, 0), span: 10 * time.Second}
	for name, c := range map[string]struct {
		now  clock.Instant
		left time.Duration
	}{
		"both clocks agree":            {at(4*time.Second, 4*time.Second), 6 * time.Second},
		"wall clock stepped back":      {at(4*time.Second, -time.Hour), 6 * time.Second},
		"wall clock stepped forward":   {at(4*time.Second, 9*time.Second), time.Second},
		"stepped past the end":         {at(4*time.Second, time.Hour), 0},
		"machine suspended":            {at(time.Second, 30*time.Second), 0},
		"the last nanosecond":          {at(10*time.Second-1, 0), 1},
		"the end":                      {at(10*time.Second, 0), 0},
		"long after":                   {at(1000*time.Hour, 0), 0},
		"both clocks in the past":      {at(-time.Second, -time.Second), 11 * time.Second},
		"farther than durations reach": {clock.Instant{Mono: time.Second, Wall: wallOrigin.AddDate(500, 0, 0)}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, c.left, v.remaining(c.now))
			assert.Equal(t, c.left > 0, v.held(c.now))
		})
	}
}

func TestValidityNeverExceedsExpiryMinusDrift(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		expiry := time.Duration(rapid.Int64Range(-10, math.MaxInt64).Draw(t, "expiry"))
		factor := rapid.Float64Range(0, math.Nextafter(1, 0)).Draw(t, "drift factor")
		got, err := bases{expiry: expiry, driftFactor: factor, timeoutFactor: 0.05}.derive()
		if err != nil {
			return
		}
		// The product is exact to a part in 2^52.
		exact := float64(got.ttl) * (1 - factor)
		if float64(got.span) > exact*(1+1e-15)+float64(time.Microsecond)-float64(clockDrift) {
			t.Fatalf("span %d of ttl %d, factor %v", got.span, got.ttl, factor)
		}
		if got.span <= 0 || got.span > got.ttl-clockDrift || got.ttl > expiry {
			t.Fatalf("ttl %v, span %v of expiry %v", got.ttl, got.span, expiry)
		}
		if got.ttl%time.Millisecond != 0 {
			t.Fatalf("ttl %v is not whole milliseconds", got.ttl)
		}
		if got.nodeTimeout <= 0 && got.span > 1 || got.nodeTimeout > got.span/2 {
			t.Fatalf("node timeout %v of span %v", got.nodeTimeout, got.span)
		}
	})
}

func TestValidityIsNeverExtendedByAnyClock(t *testing.T) {
	clock := rapid.Int64Range(math.MinInt64/4, math.MaxInt64/4)
	rapid.Check(t, func(t *rapid.T) {
		v := validity{
			start: at(0, time.Duration(clock.Draw(t, "wall at start"))),
			span:  time.Duration(rapid.Int64Range(0, math.MaxInt64/4).Draw(t, "span")),
		}
		mono := time.Duration(rapid.Int64Range(0, math.MaxInt64/4).Draw(t, "monotonic time since"))
		wall := time.Duration(clock.Draw(t, "wall then"))
		left := v.remaining(at(mono, wall))
		if left < 0 || left > max(v.span-mono, 0) {
			t.Fatalf("%v left of %v after %v", left, v.span, mono)
		}
		later := mono + time.Duration(rapid.Int64Range(0, math.MaxInt64/4).Draw(t, "and later"))
		if again := v.remaining(at(later, wall)); again > left {
			t.Fatalf("%v left, later %v", left, again)
		}
	})
}

func TestTimingDefaults(t *testing.T) {
	got, err := bases{expiry: 8 * time.Second, driftFactor: 0.01, timeoutFactor: 0.05}.derive()
	require.NoError(t, err)
	assert.Equal(t, 8*time.Second, got.ttl)
	assert.Equal(t, 8*time.Second-80*time.Millisecond-2*time.Millisecond, got.span)
	assert.Equal(t, 400*time.Millisecond, got.nodeTimeout)
}

func TestTimingAtTheEdges(t *testing.T) {
	for name, c := range map[string]struct {
		expiry, node  time.Duration
		drift, factor float64
		complaint     string
	}{
		"negative expiry":       {-time.Second, 0, 0.01, 0.05, "WithExpiry(-1s)"},
		"no expiry":             {0, 0, 0.01, 0.05, "WithExpiry(0s)"},
		"below a millisecond":   {999 * time.Microsecond, 0, 0, 0.05, "WithExpiry(999µs)"},
		"all drift":             {2 * time.Millisecond, 0, 0, 0.05, "WithExpiry(2ms)"},
		"more than all drift":   {time.Second, 0, 0.999, 0.05, "WithExpiry(1s)"},
		"negative drift":        {time.Second, 0, -0.1, 0.05, "WithDriftFactor(-0.1)"},
		"drift of 1":            {time.Second, 0, 1, 0.05, "WithDriftFactor(1)"},
		"drift is no number":    {time.Second, 0, math.NaN(), 0.05, "WithDriftFactor(NaN)"},
		"no timeout":            {time.Second, 0, 0.01, 0, "WithTimeoutFactor(0)"},
		"timeout over 1":        {time.Second, 0, 0.01, 1.1, "WithTimeoutFactor(1.1)"},
		"timeout is no number":  {time.Second, 0, 0.01, math.NaN(), "WithTimeoutFactor(NaN)"},
		"node timeout too long": {time.Second, 900 * time.Millisecond, 0.01, 0.05, "WithNodeTimeout(900ms)"},
		"node timeout negative": {time.Second, -1, 0.01, 0.05, "WithNodeTimeout(-1ns)"},
		"node timeout over half of the validity": {
			time.Second, 499*time.Millisecond + 1, 0, 0.05, "WithNodeTimeout(499.000001ms)",
		},

		"3 ms":                   {3 * time.Millisecond, 0, 0.01, 0.05, ""},
		"an hour":                {time.Hour, 0, 0.01, 0.05, ""},
		"the longest":            {math.MaxInt64, 0, 0.01, 0.05, ""},
		"the longest, no drift":  {math.MaxInt64, 0, 0, 1, ""},
		"drift just under 1":     {time.Hour, 0, 0.999999, 0.05, ""},
		"node timeout of half":   {time.Second, 499 * time.Millisecond, 0, 0.05, ""},
		"the longest, all drift": {math.MaxInt64, 0, math.Nextafter(1, 0), 0.05, "WithExpiry"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := bases{expiry: c.expiry, driftFactor: c.drift, timeoutFactor: c.factor, nodeTimeout: c.node}.derive()
			if c.complaint == "" {
				require.NoError(t, err)
				assert.Positive(t, got.span)
				assert.Less(t, got.span, got.ttl)
				return
			}
			require.ErrorIs(t, err, errOutOfRange)
			assert.ErrorContains(t, err, c.complaint)
		})
	}
}

func FuzzValidityNeverExceedsExpiry(f *testing.F) {
	f.Add(int64(8*time.Second), 0.01, int64(time.Second), int64(time.Second))
	f.Add(int64(math.MaxInt64), 0.999, int64(0), int64(math.MinInt64))
	f.Fuzz(func(t *testing.T, expiry int64, factor float64, mono, wall int64) {
		got, err := bases{expiry: time.Duration(expiry), driftFactor: factor, timeoutFactor: 0.05}.derive()
		if err != nil || mono < 0 {
			return
		}
		v := validity{start: at(0, 0), span: got.span}
		if left := v.remaining(at(time.Duration(mono), time.Duration(wall))); left > time.Duration(expiry) {
			t.Fatalf("%v left of %v", left, time.Duration(expiry))
		}
	})
}
