package redsync

import (
	"cmp"
	"fmt"
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
)

// This file tests the rules of time: the durations that follow from an expiry.

var wallOrigin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// at is the instant at which both clocks have advanced by these times.
func at(mono, wall time.Duration) clock.Instant {
	return clock.Instant{Mono: mono, Wall: wallOrigin.Add(wall)}
}

func TestValidityGoesByTheClockThatAdvancedMore(t *testing.T) {
	v := lease.Validity{Start: at(0, 0), Length: 10 * time.Second}
	for _, c := range cellsOf(`
		both clocks agree          | 4s           | 4s         | 6s
		wall clock stepped back    | 4s           | -1h        | 6s
		wall clock stepped forward | 4s           | 9s         | 1s
		stepped past the end       | 4s           | 1h         | 0s
		machine suspended          | 1s           | 30s        | 0s
		the last nanosecond        | 9.999999999s | 0s         | 1ns
		the end                    | 10s          | 0s         | 0s
		long after                 | 1000h        | 0s         | 0s
		both clocks in the past    | -1s          | -1s        | 11s`) {
		now := at(spanOf(c[1]), spanOf(c[2]))
		assert.Equal(t, spanOf(c[3]), v.Remaining(now), c[0])
		assert.Equal(t, c[3] != "0s", v.Holds(now), c[0])
	}
	far := clock.Instant{Mono: time.Second, Wall: wallOrigin.AddDate(500, 0, 0)} // farther than durations reach
	assert.Zero(t, v.Remaining(far))
	assert.False(t, v.Holds(far))
}

// cellsOf returns the cells of a table: a line is a row, and | stands between cells.
func cellsOf(text string) (rows [][]string) {
	for line := range strings.Lines(strings.TrimSpace(text)) {
		row := strings.Split(line, "|")
		for i := range row {
			row[i] = strings.TrimSpace(row[i])
		}
		rows = append(rows, row)
	}
	return rows
}

// spanOf returns the duration in a cell. Longest is maxTTL.
func spanOf(cell string) time.Duration {
	rest, isLongest := strings.CutPrefix(cell, "longest")
	d, err := time.ParseDuration(cmp.Or(rest, "0"))
	if err != nil {
		panic(err)
	}
	if isLongest {
		d += maxTTL
	}
	return d
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
		require.True(t, left >= 0 && left <= max(v.Length-mono, 0), left)
		later := mono + time.Duration(rapid.Int64Range(0, math.MaxInt64/4).Draw(t, "and later"))
		require.LessOrEqual(t, v.Remaining(at(later, wall)), left)
	})
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
		assert.Equal(t, c.want, c.factor.Of(c.d), c)
	}
}

// Rows have the expiry, the node timeout, the factors of drift and timeouts, and the complaint.
func TestTimingOutOfItsRangeIsNamed(t *testing.T) {
	for _, c := range cellsOf(`
		negative expiry        | -1s         | 0s           | 0.01               | 0.05 | WithExpiry(-1s)
		no expiry              | 0s          | 0s           | 0.01               | 0.05 | WithExpiry(0s)
		below a millisecond    | 999us       | 0s           | 0                  | 0.05 | WithExpiry(999µs)
		all drift              | 2ms         | 0s           | 0                  | 0.05 | WithExpiry(2ms)
		more than all drift    | 1s          | 0s           | 0.999              | 0.05 | WithExpiry(1s)
		negative drift         | 1s          | 0s           | -0.1               | 0.05 | WithDriftFactor(-0.1)
		drift of 1             | 1s          | 0s           | 1                  | 0.05 | WithDriftFactor(1)
		drift is no number     | 1s          | 0s           | NaN                | 0.05 | WithDriftFactor(NaN)
		no timeout             | 1s          | 0s           | 0.01               | 0    | WithTimeoutFactor(0)
		timeout over 1         | 1s          | 0s           | 0.01               | 1.1  | WithTimeoutFactor(1.1)
		timeout is no number   | 1s          | 0s           | 0.01               | NaN  | WithTimeoutFactor(NaN)
		node timeout too long  | 1s          | 900ms        | 0.01               | 0.05 | WithNodeTimeout(900ms)
		node timeout negative  | 1s          | -1ns         | 0.01               | 0.05 | WithNodeTimeout(-1ns)
		node timeout over half | 1s          | 499.000001ms | 0                  | 0.05 | WithNodeTimeout(499.000001ms)
		3 ms                   | 3ms         | 0s           | 0.01               | 0.05 |
		an hour                | 1h          | 0s           | 0.01               | 0.05 |
		the longest            | longest     | 0s           | 0.01               | 0.05 |
		the longest, no drift  | longest     | 0s           | 0                  | 1    |
		too long               | longest+1ms | 0s           | 0.01               | 0.05 | and at most 100 years
		drift just under 1     | 1h          | 0s           | 0.999999           | 0.05 |
		node timeout of half   | 1s          | 499ms        | 0                  | 0.05 |
		the longest, all drift | longest     | 0s           | 0.9999999999999999 | 0.05 | WithExpiry`) {
		b := options{expiry: spanOf(c[1]), nodeTimeout: spanOf(c[2])}
		_, err := fmt.Sscan(c[3]+" "+c[4], &b.driftFactor, &b.timeoutFactor)
		require.NoError(t, err)
		got, err := b.timing()
		if c[5] == "" {
			require.NoError(t, err, c[0])
			assert.Positive(t, got.Validity, c[0])
			assert.Less(t, got.Validity, got.TTL, c[0])
			continue
		}
		require.ErrorIs(t, err, errOutOfRange, c[0])
		assert.ErrorContains(t, err, c[5], c[0])
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
		b    options
		want time.Duration
	}{
		{options{expiry: 8 * time.Second}, 400 * time.Millisecond},
		{options{expiry: 40 * time.Second}, 2 * time.Second},
		{options{expiry: time.Hour}, 2 * time.Second},
		{options{expiry: time.Hour, ownFactor: true}, 3 * time.Minute},
		{options{expiry: time.Hour, nodeTimeout: time.Minute}, time.Minute},
		{options{expiry: time.Second}, 50 * time.Millisecond},
		{options{expiry: 50 * time.Millisecond}, 24 * time.Millisecond},
	} {
		c.b.timeoutFactor = defaultTimeoutFactor
		got, err := c.b.timing()
		require.NoError(t, err)
		assert.Equal(t, c.want, got.NodeTimeout, c.b)
		assert.Equal(t, c.b.expiry, got.TTL)
		assert.Equal(t, c.b.expiry-2*time.Millisecond, got.Validity)
	}
}

// exact returns d * factor with all its digits.
func exact(d time.Duration, factor float64) *big.Float {
	x := new(big.Float).SetPrec(200).SetInt64(int64(d))
	return x.Mul(x, new(big.Float).SetFloat64(factor))
}

// Any settings give either an error that names an option, or times that keep their promises. The test computes the
// promised times once more, without overflow and rounding.
func FuzzTiming(f *testing.F) {
	const day = 24 * time.Hour
	add := func(expiry time.Duration, drift, factor float64, node, delay, maxHold, held time.Duration) {
		f.Add(int64(expiry), drift, factor, int64(node), int64(delay), int64(maxHold), int64(held))
	}
	add(8*time.Second, 0.01, 0.05, 0, 0, 0, 0)
	add(3*time.Millisecond, 0.01, 1.0, 0, 1, 1, 5)
	add(maxTTL, 0.0, 1.0, 0, 0, 0, math.MaxInt64)
	add(maxTTL, math.Nextafter(1, 0), 1.0, 0, 0, 0, 0)
	add(time.Second, 0.5, 0.5, time.Millisecond, math.MaxInt64, day, -1)
	add(math.MaxInt64-1, 0.3, 0.9, math.MaxInt64/4, math.MinInt64, 1, math.MinInt64)
	add(math.MinInt64, math.NaN(), math.Inf(1), -1, -1, -1, 0)
	add(day, 0.9999999999, 1e-300, 0, day, 3*day, 2*day)
	f.Fuzz(func(t *testing.T, expiry int64, drift, factor float64, node, delay, maxHold, held int64) {
		maxHold = max(maxHold, 0)
		b := options{
			expiry: time.Duration(expiry), driftFactor: drift, timeoutFactor: factor, ownFactor: true,
			nodeTimeout: time.Duration(node), lockDelay: time.Duration(delay), maxHold: time.Duration(maxHold),
		}
		got, err := b.timing()
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
		require.LessOrEqual(t, span.Cmp(most.Add(most, slack)), 0, got)

		ttl := new(big.Int).Add(big.NewInt(delay), big.NewInt(999_999))
		ttl.Add(ttl.Div(ttl, big.NewInt(1e6)).Mul(ttl, big.NewInt(1e6)), big.NewInt(int64(got.Expiry)))
		require.True(t, ttl.IsInt64() && ttl.Int64() == int64(got.TTL), got)
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
	})
}
