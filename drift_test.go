package redsync

import (
	"math"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/lease"
	"github.com/seed14bd9ef4/redsync/internal/quorum"
	"github.com/seed14bd9ef4/redsync/pool"
)

// This file tests the rules of time: the durations that follow from an expiry.

var wallOrigin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// at is the instant at which both clocks have advanced by these times.
func at(mono, wall time.Duration) clock.Instant {
	return clock.Instant{Mono: mono, Wall: wallOrigin.Add(wall)}
}

func TestValidityGoesByTheClockThatAdvancedMore(t *testing.T) {
	v := lease.Validity{Start: at(0, 0), Length: 10 * time.Second}
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
			assert.Equal(t, c.left, v.Remaining(c.now))
			assert.Equal(t, c.left > 0, v.Holds(c.now))
		})
	}
}

func TestValidityNeverExceedsExpiryMinusDrift(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		expiry := time.Duration(rapid.Int64Range(-10, int64(maxTTL)+10).Draw(t, "expiry"))
		factor := rapid.Float64Range(0, math.Nextafter(1, 0)).Draw(t, "drift factor")
		got, err := bases{expiry: expiry, driftFactor: factor, timeoutFactor: 0.05}.derive()
		if err != nil {
			return
		}
		// The product is exact to one part in 2^52.
		exact := float64(got.TTL) * (1 - factor)
		if float64(got.Validity) > exact*(1+1e-15)+float64(time.Microsecond)-float64(clockDrift) {
			t.Fatalf("validity %d is not right for ttl %d and drift factor %v", got.Validity, got.TTL, factor)
		}
		if got.Validity <= 0 || got.Validity > got.TTL-clockDrift || got.TTL > expiry {
			t.Fatalf("ttl %v and validity %v do not fit expiry %v", got.TTL, got.Validity, expiry)
		}
		if got.TTL%time.Millisecond != 0 {
			t.Fatalf("ttl %v is not whole milliseconds", got.TTL)
		}
		if got.NodeTimeout <= 0 && got.Validity > 1 || got.NodeTimeout > got.Validity/2 {
			t.Fatalf("node timeout %v does not fit validity %v", got.NodeTimeout, got.Validity)
		}
	})
}

func TestValidityIsNeverExtendedByAnyClock(t *testing.T) {
	clock := rapid.Int64Range(math.MinInt64/4, math.MaxInt64/4)
	rapid.Check(t, func(t *rapid.T) {
		v := lease.Validity{
			Start:  at(0, time.Duration(clock.Draw(t, "wall at start"))),
			Length: time.Duration(rapid.Int64Range(0, math.MaxInt64/4).Draw(t, "span")),
		}
		mono := time.Duration(rapid.Int64Range(0, math.MaxInt64/4).Draw(t, "monotonic time since"))
		wall := time.Duration(clock.Draw(t, "wall then"))
		left := v.Remaining(at(mono, wall))
		if left < 0 || left > max(v.Length-mono, 0) {
			t.Fatalf("%v is left of a validity of %v after %v", left, v.Length, mono)
		}
		later := mono + time.Duration(rapid.Int64Range(0, math.MaxInt64/4).Draw(t, "and later"))
		if again := v.Remaining(at(later, wall)); again > left {
			t.Fatalf("%v was left, and later %v", left, again)
		}
	})
}

func TestTimingDefaults(t *testing.T) {
	got, err := bases{expiry: 8 * time.Second, driftFactor: 0.01, timeoutFactor: 0.05}.derive()
	require.NoError(t, err)
	assert.Equal(t, 8*time.Second, got.TTL)
	assert.Equal(t, 8*time.Second-80*time.Millisecond-2*time.Millisecond, got.Validity)
	assert.Equal(t, 400*time.Millisecond, got.NodeTimeout)
	assert.Equal(t, driftFactor(0.01), got.Drift)
}

func TestDriftIsThatOfClocksAndOfTheGranularity(t *testing.T) {
	for _, c := range []struct {
		factor  driftFactor
		d, want time.Duration
	}{
		{0.01, 8 * time.Second, 82 * time.Millisecond},
		{0.01, 0, 2 * time.Millisecond},
		{0, time.Hour, 2 * time.Millisecond},
		{0.5, 1, 2*time.Millisecond + 1},                       // rounded up
		{1, math.MaxInt64, math.MaxInt64},                      // it would overflow
		{1, math.MaxInt64 - 2*time.Millisecond, math.MaxInt64}, // it just does not overflow
		{1, math.MaxInt64 - 2*time.Millisecond + 1, math.MaxInt64},
	} {
		assert.Equal(t, c.want, c.factor.Of(c.d), "%v of %v", c.factor, c.d)
	}
}

func TestTimingOutOfItsRangeIsNamed(t *testing.T) {
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
		"the longest":            {maxTTL, 0, 0.01, 0.05, ""},
		"the longest, no drift":  {maxTTL, 0, 0, 1, ""},
		"too long":               {maxTTL + time.Millisecond, 0, 0.01, 0.05, "and at most 100 years"},
		"drift just under 1":     {time.Hour, 0, 0.999999, 0.05, ""},
		"node timeout of half":   {time.Second, 499 * time.Millisecond, 0, 0.05, ""},
		"the longest, all drift": {maxTTL, 0, math.Nextafter(1, 0), 0.05, "WithExpiry"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := bases{expiry: c.expiry, driftFactor: c.drift, timeoutFactor: c.factor, nodeTimeout: c.node}.derive()
			if c.complaint == "" {
				require.NoError(t, err)
				assert.Positive(t, got.Validity)
				assert.Less(t, got.Validity, got.TTL)
				return
			}
			require.ErrorIs(t, err, errOutOfRange)
			assert.ErrorContains(t, err, c.complaint)
		})
	}
}

// A number without a unit is a number of nanoseconds. An error about less than 10 µs asks whether seconds were
// meant, or milliseconds if there are a thousand or more.
func TestTooShortTimesAskForTheUnit(t *testing.T) {
	for d, want := range map[time.Duration]string{
		8:                       "; did you mean 8*time.Second?",
		999:                     "; did you mean 999*time.Second?",
		1000:                    "; did you mean 1000*time.Millisecond?",
		10*time.Microsecond - 1: "; did you mean 9999*time.Millisecond?",
		10 * time.Microsecond:   "at least 3ms",
		0:                       "at least 3ms",
		-8:                      "at least 3ms",
	} {
		text := outOfRange("WithExpiry", d, "at least 3ms").Error()
		assert.True(t, strings.HasSuffix(text, want), text)
	}
	assert.NotContains(t, outOfRange("WithTries", 8, "0 or more").Error(), "did you mean")
}

// The node deadline that follows from the expiry has an upper limit, unless the user sets the factor.
func TestTimingNodeTimeout(t *testing.T) {
	for _, c := range []struct {
		b    bases
		want time.Duration
	}{
		{bases{expiry: 8 * time.Second}, 400 * time.Millisecond},
		{bases{expiry: 40 * time.Second}, 2 * time.Second},
		{bases{expiry: time.Hour}, 2 * time.Second},
		{bases{expiry: time.Hour, ownFactor: true}, 3 * time.Minute},
		{bases{expiry: time.Hour, nodeTimeout: time.Minute}, time.Minute},
		{bases{expiry: time.Second}, 50 * time.Millisecond},
		{bases{expiry: 50 * time.Millisecond}, 24 * time.Millisecond},
	} {
		c.b.timeoutFactor = defaultTimeoutFactor
		got, err := c.b.derive()
		require.NoError(t, err)
		assert.Equal(t, c.want, got.NodeTimeout, "%+v", c.b)
	}
}

func FuzzValidityNeverExceedsExpiry(f *testing.F) {
	f.Add(int64(8*time.Second), 0.01, int64(time.Second), int64(time.Second))
	f.Add(int64(maxTTL), 0.999, int64(0), int64(math.MinInt64))
	f.Fuzz(func(t *testing.T, expiry int64, factor float64, mono, wall int64) {
		got, err := bases{expiry: time.Duration(expiry), driftFactor: factor, timeoutFactor: 0.05}.derive()
		if err != nil || mono < 0 {
			return
		}
		v := lease.Validity{Start: at(0, 0), Length: got.Validity}
		if left := v.Remaining(at(time.Duration(mono), time.Duration(wall))); left > time.Duration(expiry) {
			t.Fatalf("%v is left of an expiry of %v", left, time.Duration(expiry))
		}
	})
}

// exact returns d * factor with all its digits.
func exact(d time.Duration, factor float64) *big.Float {
	x := new(big.Float).SetPrec(200).SetInt64(int64(d))
	return x.Mul(x, new(big.Float).SetFloat64(factor))
}

// Any settings give either an error that names an option, or times that keep their promises. The test computes the
// promised times once more, without overflow and rounding.
func FuzzTiming(f *testing.F) {
	const day = int64(24 * time.Hour)
	f.Add(int64(8*time.Second), 0.01, 0.05, int64(0), int64(0), int64(0), int64(0))
	f.Add(int64(3*time.Millisecond), 0.01, 1.0, int64(0), int64(1), int64(1), int64(5))
	f.Add(int64(maxTTL), 0.0, 1.0, int64(0), int64(0), int64(0), int64(math.MaxInt64))
	f.Add(int64(maxTTL), math.Nextafter(1, 0), 1.0, int64(0), int64(0), int64(0), int64(0))
	f.Add(int64(time.Second), 0.5, 0.5, int64(time.Millisecond), int64(math.MaxInt64), day, int64(-1))
	f.Add(int64(math.MaxInt64-1), 0.3, 0.9, int64(math.MaxInt64/4), int64(math.MinInt64), int64(1), int64(math.MinInt64))
	f.Add(int64(math.MinInt64), math.NaN(), math.Inf(1), int64(-1), int64(-1), int64(-1), int64(0))
	f.Add(day, 0.9999999999, 1e-300, int64(0), day, 3*day, 2*day)
	f.Fuzz(func(t *testing.T, expiry int64, drift, factor float64, node, delay, maxHold, held int64) {
		maxHold = max(maxHold, 0)
		b := bases{
			expiry: time.Duration(expiry), driftFactor: drift, timeoutFactor: factor, ownFactor: true,
			nodeTimeout: time.Duration(node), lockDelay: time.Duration(delay), maxHold: time.Duration(maxHold),
		}
		got, err := b.derive()
		if err != nil {
			require.ErrorIs(t, err, errOutOfRange)
			require.Regexp(t, `^redsync: With[A-Z]`, err.Error())
			require.Zero(t, got)
			return
		}
		require.True(t, drift >= 0 && drift < 1 && factor > 0 && factor <= 1 && delay >= 0 && node >= 0)
		require.LessOrEqual(t, got.TTL, maxTTL)
		require.Equal(t, b.expiry/time.Millisecond, got.Expiry/time.Millisecond)
		require.Zero(t, got.Expiry%time.Millisecond)

		require.Positive(t, got.Validity)
		// expiry * (1 - drift) - 2 ms; a float has 53 bits.
		most := new(big.Float).SetInt64(int64(got.Expiry - clockDrift))
		most.Sub(most, exact(got.Expiry, drift))
		slack := exact(got.Expiry, 0x1p-52)
		span := new(big.Float).SetInt64(int64(got.Validity))
		require.LessOrEqual(t, span.Cmp(most.Add(most, slack)), 0, "validity %v is too long for expiry %v and drift factor %v", got.Validity, got.Expiry, drift)

		ttl := new(big.Int).Add(big.NewInt(delay), big.NewInt(999_999))
		ttl.Add(ttl.Div(ttl, big.NewInt(1e6)).Mul(ttl, big.NewInt(1e6)), big.NewInt(int64(got.Expiry)))
		require.True(t, ttl.IsInt64() && ttl.Int64() == int64(got.TTL), "the TTL is %v, want %v", int64(got.TTL), ttl)
		require.GreaterOrEqual(t, got.NodeTimeout, time.Duration(0))
		require.LessOrEqual(t, got.NodeTimeout, got.Validity/2)

		// However long the lock has been held, the keys outlast the validity by the drift.
		if held >= 0 {
			ttl, span := got.AtAge(time.Duration(held))
			require.GreaterOrEqual(t, span, time.Duration(0))
			require.LessOrEqual(t, span, got.Validity)
			require.GreaterOrEqual(t, ttl-span, got.TTL-got.Validity)
			require.LessOrEqual(t, ttl, got.TTL)
			if maxHold > 0 {
				require.LessOrEqual(t, span, max(time.Duration(maxHold-held), 0))
			}
		}
		checkQuarantine(t, got, drift, time.Duration(held))
	})
}

// A fencing lock adds two durations to the time for which a restarted node is distrusted. The first is the greatest
// allowed difference between the clocks of clients. The second is the node deadlines of all rounds of an attempt: one
// round, and two more for its token.
const (
	skewOfClients   = 10 * time.Second
	roundsOfAttempt = 3
)

// checkQuarantine checks that a restarted node is distrusted until every lock that it may have forgotten has expired.
func checkQuarantine(t *testing.T, timing lease.Timing, drift float64, guard time.Duration) {
	t.Helper()
	if guard <= 0 {
		return
	}
	n := quorum.NewSet([]pool.Pool{guardedPool{guard: guard}}, quorum.NewKnown(1), formOf(1)).Nodes[0]
	for _, fencing := range []bool{false, true} {
		want := new(big.Float).SetInt64(int64(clockDrift + time.Second)) // an uptime is in whole seconds
		want.Add(want, new(big.Float).SetInt64(int64(guard)))
		want.Add(want, exact(guard, drift))
		var margin time.Duration
		if fencing {
			margin = skewOfClients + roundsOfAttempt*timing.NodeTimeout
			want.Add(want, new(big.Float).SetInt64(int64(skewOfClients)))
			want.Add(want, exact(timing.NodeTimeout, roundsOfAttempt))
		}
		want.Sub(want, exact(guard, 0x1p-52)) // a float has 53 bits
		got := quarantineOf(t, n, timing.Drift, margin)
		if want.Cmp(new(big.Float).SetInt64(math.MaxInt64)) >= 0 {
			require.Equal(t, time.Duration(math.MaxInt64), got)
			continue
		}
		require.GreaterOrEqual(t, new(big.Float).SetInt64(int64(got)).Cmp(want), 0, "the quarantine is %v, want at least %v", got, want)
	}
}

// A guardedPool is a pool with a restart guard, to which nothing is sent.
type guardedPool struct {
	pool.Pool
	guard time.Duration
}

func (p guardedPool) RestartGuard() time.Duration { return p.guard }
func (guardedPool) String() string                { return "guarded" }

// quarantineOf returns for how long n does not count after its start. It reads that from the error for a node that has
// just started, and checks that n counts after that time, and not before.
func quarantineOf(t *testing.T, n *quorum.Node, drift quorum.Drift, margin time.Duration) time.Duration {
	t.Helper()
	err := n.Distrust(&pool.Server{At: wallOrigin}, wallOrigin, drift, margin)
	require.Error(t, err)
	_, text, _ := strings.Cut(err.Error(), "the restart guard (")
	text, _, _ = strings.Cut(text, ")")
	guard, more, _ := strings.Cut(text, " + ")
	quarantine, err := time.ParseDuration(guard)
	require.NoError(t, err)
	rest, err := time.ParseDuration(more)
	require.NoError(t, err)
	quarantine += rest
	require.Error(t, n.Distrust(&pool.Server{At: wallOrigin, Uptime: quarantine - 1}, wallOrigin, drift, margin))
	require.NoError(t, n.Distrust(&pool.Server{At: wallOrigin, Uptime: quarantine}, wallOrigin, drift, margin))
	return quarantine
}
