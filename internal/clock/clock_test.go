package clock

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// Since subtracts wall clocks as time.Time.Sub does, however far one of them was set.
func TestSinceSubtractsTheWallClocks(t *testing.T) {
	start := Now()
	for _, step := range []time.Duration{
		0, 1, -1, time.Second - 1, 1 - time.Second, time.Hour,
		1<<31*time.Second - 1, 1 << 31 * time.Second, 1<<31*time.Second + 1, math.MaxInt64,
	} {
		for _, from := range []time.Time{start.Wall, start.Wall.Round(0), time.Unix(1, 999_999_999)} {
			at := Instant{Mono: math.MinInt64, Wall: from.Add(step)}
			assert.Equal(t, step, at.Since(Instant{Wall: from}), "%v after %v", step, from)
		}
	}
	later := Instant{Mono: math.MinInt64, Wall: time.Unix(0, 0).AddDate(300, 0, 0)}
	assert.Equal(t, time.Duration(math.MaxInt64), later.Since(Instant{Wall: time.Unix(0, 0)}))
}
