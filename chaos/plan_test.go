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
	played := regexp.MustCompile(`(?m)^scenes=\((.*)\)$`).FindStringSubmatch(read(t, "../.ci/nightly"))
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

func TestPlansOfScenes(t *testing.T) {
	for _, s := range scenes {
		plan := s.plan(7, time.Minute)
		assert.Equal(t, plan, s.plan(7, time.Minute), s.name)
		if plan != nil {
			assert.NotEqual(t, plan, s.plan(8, time.Minute), s.name)
		}
		if !s.excluded || s.deployments != nil || s.clients != nil {
			continue
		}
		require.GreaterOrEqual(t, len(plan), 3, s.name)
		for _, f := range plan {
			assert.GreaterOrEqual(t, len(f.Nodes), quorum, s.name)
		}
	}
	rest, left := withoutFakeTime(contractPlan(1))
	assert.Positive(t, left)
	for _, f := range rest {
		assert.False(t, f.fakesTime(), f)
	}
	over := time.Duration(0)
	for _, f := range planBrief(1, time.Minute, 10) {
		require.Len(t, f.Nodes, 1, f)
		require.GreaterOrEqual(t, f.At, over+settling, f)
		over = f.At + f.For
	}
	assert.LessOrEqual(t, over, time.Minute)
}

func TestPlanOfABadNodeHasEachFaultAndLeavesAQuorum(t *testing.T) {
	seen := map[kind]int{}
	for seed := range uint64(planned) {
		over, bad := lull, []int(nil)
		for _, f := range planBadNode(seed, time.Minute) {
			seen[f.Kind]++
			if f.Kind == otherType {
				require.Len(t, f.Nodes, quorum, f)
			} else {
				require.Len(t, f.Nodes, 1, f)
			}
			if f.Kind == crash {
				require.NotContains(t, bad, f.Nodes[0], f)
				require.Less(t, f.At, over, f) // a client must crash while a node is bad
				continue
			}
			require.GreaterOrEqual(t, f.At, over, f)
			require.Greater(t, f.For, mostRest, f) // a lock must have time to rest
			over, bad = f.At+f.For, f.Nodes
			require.LessOrEqual(t, over, time.Minute-lull, f) // each fault must be healed before the end
		}
	}
	for _, k := range append([]kind{crash}, badNode...) {
		assert.Greater(t, seen[k], planned/2, k)
	}
}
