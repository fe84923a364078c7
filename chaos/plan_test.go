package main

import (
	"os"
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

func TestPlanFollowsFromTheSeed(t *testing.T) {
	for _, s := range scenes {
		assert.Equal(t, s.plan(7, time.Minute), s.plan(7, time.Minute), s.name)
		if s.plan(7, time.Minute) != nil {
			assert.NotEqual(t, s.plan(7, time.Minute), s.plan(8, time.Minute), s.name)
		}
	}
}

func TestNightlyPlaysEachScene(t *testing.T) {
	nightly, err := os.ReadFile("../.ci/nightly")
	require.NoError(t, err)
	played := regexp.MustCompile(`(?m)^scenes=\((.*)\)$`).FindSubmatch(nightly)
	require.NotNil(t, played)
	var all []string
	for _, s := range scenes {
		if s.name != "contract" { // which is played each time
			all = append(all, s.name)
		}
	}
	assert.Equal(t, all, strings.Fields(string(played[1])))
}

func TestPlanOfTheContractLeavesAQuorum(t *testing.T) {
	for seed := range uint64(planned) {
		plan := contractPlan(seed)
		for _, f := range plan {
			out := map[int]bool{}
			for _, g := range plan {
				if g.out > 0 && g.At <= f.At && f.At < g.At+g.out {
					out[g.Nodes[0]] = true
				}
			}
			require.LessOrEqual(t, len(out), 2, "seed %d, at %v", seed, f.At)
		}
	}
}

func TestPlanOfTheContractKeepsItsBounds(t *testing.T) {
	seen := map[kind]int{}
	for seed := range uint64(planned) {
		last := lull
		for _, f := range contractPlan(seed) {
			seen[f.Kind]++
			if f.Kind == hostOff {
				require.Zero(t, f.At, "a host must be off from the start: %v", f)
				require.GreaterOrEqual(t, f.For, 29*time.Second, "a host must stay off for half of the run: %v", f)
				require.LessOrEqual(t, f.For, time.Minute-lull, "each fault must be healed before the end: %v", f)
				continue
			}
			require.GreaterOrEqual(t, f.At, last, "faults must be in the order of their start: %v", f)
			require.LessOrEqual(t, f.At+f.For, time.Minute-lull, "each fault must be healed before the end: %v", f)
			require.LessOrEqual(t, f.For, 8*time.Second, "%v", f)
			last = f.At
			switch f.Kind {
			case clockRate:
				require.InDelta(t, 1, f.Rate, 0.0099, "the rate must stay within the drift factor: %v", f)
			case clockBack:
				require.Negative(t, f.By, "%v", f)
			case restartKept, restartEmpty, restartFlushed:
				require.GreaterOrEqual(t, f.out, f.For+13*time.Second, "the guard excludes the node for longer: %v", f)
			case partition, stopped:
				require.Positive(t, f.Process, "%v", f)
			case clockForward, flushAll, restartMost:
				require.Fail(t, "the contract does not cover this fault", "%v", f)
			}
		}
	}
	for _, r := range recipes(time.Second) {
		assert.Positive(t, seen[r.kind], "%s", r.kind)
	}
	assert.InDelta(t, planned/hostsOff, seen[hostOff], planned/10)
}

func TestPlanOfTheContractHasOneFaultOfANodeAtATime(t *testing.T) {
	for seed := range uint64(planned) {
		until := map[string]time.Duration{}
		for _, f := range contractPlan(seed) {
			if !f.exclusive() {
				continue
			}
			who := f.where()[0] // for a partition this is the process
			require.GreaterOrEqual(t, f.At, until[who], "seed %d, %v", seed, f)
			until[who] = f.At + f.For
		}
	}
}

func TestOffFromTheStart(t *testing.T) {
	assert.Equal(t, -1, offFromTheStart(nil))
	assert.Equal(t, -1, offFromTheStart([]fault{{Kind: freeze, Nodes: []int{2}}}))
	assert.Equal(t, 3, offFromTheStart([]fault{{Kind: hostOff, Nodes: []int{3}}}))
}

func TestPlansOfExcludedScenesHitEnoughNodes(t *testing.T) {
	for _, s := range scenes {
		if !s.excluded || s.deployments != nil || s.clients != nil {
			continue
		}
		plan := s.plan(1, 10*time.Second)
		require.GreaterOrEqual(t, len(plan), 3, s.name)
		for _, f := range plan {
			assert.GreaterOrEqual(t, len(f.Nodes), quorum, s.name)
		}
	}
}

func TestBriefPlanAffectsOneNodeAtATime(t *testing.T) {
	seen := map[int]bool{}
	over := time.Duration(0)
	for _, f := range planBrief(1, time.Minute, 10) {
		require.Len(t, f.Nodes, 1, "%v", f)
		require.GreaterOrEqual(t, f.At, over+settling, "%v", f)
		require.LessOrEqual(t, f.At+f.For, time.Minute, "%v", f)
		over = f.At + f.For
		seen[f.Nodes[0]] = true
	}
	assert.Len(t, seen, 10)
}

func TestPlanWithoutFakeTime(t *testing.T) {
	plan := contractPlan(1)
	rest, left := withoutFakeTime(plan)
	assert.Positive(t, left)
	assert.Len(t, plan, len(rest)+left)
	for _, f := range rest {
		assert.False(t, f.fakesTime(), "%v", f)
	}
}

func TestFaultSaysWhatItIs(t *testing.T) {
	assert.Equal(t, "clock rate +0.50 % for 2s: node 3", fault{Kind: clockRate, Rate: 1.005, For: 2 * time.Second, Nodes: []int{3}}.String())
	assert.Equal(t, "partition for 1s: process 2, node 0, node 4", fault{Kind: partition, For: time.Second, Process: 2, Nodes: []int{0, 4}}.String())
}
