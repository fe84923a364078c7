package main

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestParsePlanRefusesWhatIsOutOfRange(t *testing.T) {
	for _, args := range [][]string{
		{"-rounds", "0"}, {"-rounds", "100"}, {"-time", "1ms"}, {"-time", "2m"}, {"more"}, {"-no-such-flag"},
	} {
		_, err := parsePlan(args, io.Discard)
		require.Error(t, err, args)
	}
}

func TestMedianIsOfTheRounds(t *testing.T) {
	r := result{samples: []sample{{rate: 3}, {rate: 1}, {rate: 2}}}
	require.InDelta(t, 2.0, median(r, func(s sample) float64 { return s.rate }), 0)
}

func TestSummarizeCountsEveryPair(t *testing.T) {
	o := observed{elapsed: 2 * time.Second}
	for i := range 100 {
		o.latencies = append(o.latencies, time.Duration(100-i)*time.Microsecond)
	}
	s := summarize(o, 1000)
	require.InDelta(t, 50.0, s.rate, 0)
	require.InDelta(t, 10.0, s.allocs, 0)
	require.Equal(t, 51*time.Microsecond, s.p50)
	require.Equal(t, 100*time.Microsecond, s.p99)
}

// fake is a library that does nothing, or fails.
type fake struct{ err error }

func (f fake) Lock(context.Context, string) (held, error)  { return f, f.err }
func (f fake) UnlockContext(context.Context) (bool, error) { return true, nil }
func (f fake) Close() error                                { return nil }

func TestPlayUncontendedReturnsTheErrorOfAWorker(t *testing.T) {
	_, err := playUncontended(t.Context(), fake{err: io.ErrUnexpectedEOF}, 3, time.Minute)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
}

func TestReportNamesWhatWasLeftBehind(t *testing.T) {
	p := plan{scenes: scenes, contenders: contenders, rounds: 1}
	results := cells(p)
	for i := range results {
		results[i].samples = []sample{{rate: float64(i + 1), left: int64(i)}}
	}
	var b strings.Builder
	require.NoError(t, writeReport(&b, machine{}, p, results))
	require.Contains(t, b.String(), "| redsync WithFailFast |")
	require.ErrorContains(t, leftovers(results), "uncontended, goroutines 16, ours: 3 keys left behind")
	require.NotContains(t, leftovers(results).Error(), "redsync")
}
