package main

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// planned is how many seeds the tests of plans try.
const planned = 300

func contractPlan(seed uint64) []fault {
	s, _ := findScene("contract")
	return s.plan(seed, time.Minute)
}

func TestNightlyPlaysEachScene(t *testing.T) {
	played := regexp.MustCompile(`(?m)^scenes=\((.*)\)$`).FindStringSubmatch(read(t, "../../.ci/nightly"))
	require.NotNil(t, played)
	var all []string
	for _, s := range scenes {
		if s.name != "contract" { // which is played each time
			all = append(all, s.name)
		}
	}
	assert.Equal(t, all, strings.Fields(played[1]))
}

func TestPlanOfTheContractKeepsItsBounds(t *testing.T) {
	seen := map[kind]int{}
	for seed := range uint64(planned) {
		last, until, plan := lull, map[string]time.Duration{}, contractPlan(seed)
		for _, f := range plan {
			seen[f.Kind]++
			out := map[int]bool{}
			for _, g := range plan {
				if g.out > 0 && g.At <= f.At && f.At < g.At+g.out {
					out[g.Nodes[0]] = true
				}
			}
			require.LessOrEqual(t, len(out), 2, f)  // a quorum must be left
			if who := f.where()[0]; f.exclusive() { // for a partition this is the process
				require.GreaterOrEqual(t, f.At, until[who], f) // one fault at a time
				until[who] = f.At + f.For
			}
			if f.Kind == hostOff {
				require.Zero(t, f.At, f)                            // a host must be off from the start
				require.GreaterOrEqual(t, f.For, 29*time.Second, f) // a host must stay off for half of the run
				require.LessOrEqual(t, f.For, time.Minute-lull, f)  // each fault must be healed before the end
				continue
			}
			require.GreaterOrEqual(t, f.At, last, f)                // faults must be in the order of their start
			require.LessOrEqual(t, f.At+f.For, time.Minute-lull, f) // each fault must be healed before the end
			require.LessOrEqual(t, f.For, 8*time.Second, f)
			last = f.At
			switch f.Kind {
			case clockRate:
				require.InDelta(t, 1, f.Rate, 0.0099, f) // the rate must stay within the drift factor
			case clockBack:
				require.Negative(t, f.By, f)
			case restartKept, restartEmpty, restartFlushed:
				require.GreaterOrEqual(t, f.out, f.For+13*time.Second, f) // the guard excludes the node for longer
			case partition, stopped:
				require.Positive(t, f.Process, f)
			case clockForward, flushAll, restartMost:
				require.Fail(t, "the contract does not cover this fault", "%v", f)
			}
		}
	}
	for _, r := range recipes(time.Second) {
		assert.Positive(t, seen[r.kind], r.kind)
	}
	assert.InDelta(t, planned/hostsOff, seen[hostOff], planned/10)
}
