package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/history"
	"github.com/seed14bd9ef4/redsync/internal/realredis"
	"github.com/seed14bd9ef4/redsync/internal/testlength"
)

// silentNode is the scene bad-node with one fault, which lasts until the end: a node is silent. The expiry is shorter,
// so that the run is short, and the node deadline is longer, so that waiting for the node shows.
func silentNode(t *testing.T) scene {
	t.Helper()
	s, err := findScene("bad-node")
	require.NoError(t, err)
	s.expiry, s.timeoutFactor = 3*time.Second, 0.4
	s.plan = func(_ uint64, length time.Duration) []fault {
		return []fault{{At: 300 * ms, Kind: freeze, For: length - 400*ms, Nodes: []int{2}}}
	}
	return s
}

// While a node is silent, free locks do not rest. If clients wait for the node deadline where votes are split, locks
// rest, and the judge must find that.
func TestRunFindsFreeLocksThatRest(t *testing.T) {
	testlength.NotShort(t)
	realredis.Start(t, 0) // skips the test where there is no redis-server
	found := map[string]int{history.Idled: 0}
	missing := playUntil(6*time.Second, found, func(length time.Duration) {
		for _, waitsOut := range []bool{false, true} {
			r, err := run(t.Context(), settings{
				Scene: silentNode(t), Seed: 5, Length: length, processes: processCount, waitsOut: waitsOut, say: t.Logf,
			})
			require.NoError(t, err)
			t.Logf("waits out: %v; %d waits, for %v, at most %v", waitsOut, len(r.Rests), r.judged(), r.longestRest(false))
			for rule, n := range rulesBroken(r) {
				require.True(t, waitsOut && rule == history.Idled, "%v", r.Violations)
				found[rule] += n
			}
		}
	})
	assert.Empty(t, missing)
}

func TestPlanOfABadNodeHasEachFaultAndLeavesAQuorum(t *testing.T) {
	seen := map[kind]int{}
	for seed := range uint64(planned) {
		over, bad := lull, []int(nil)
		for _, f := range planBadNode(seed, time.Minute) {
			seen[f.Kind]++
			if f.Kind == otherType {
				require.Len(t, f.Nodes, quorum, "%v", f)
			} else {
				require.Len(t, f.Nodes, 1, "%v", f)
			}
			if f.Kind == crash {
				require.NotContains(t, bad, f.Nodes[0], "%v", f)
				require.Less(t, f.At, over, "a client must crash while a node is bad: %v", f)
				continue
			}
			require.GreaterOrEqual(t, f.At, over, "%v", f)
			require.Greater(t, f.For, mostRest, "a lock must have time to rest: %v", f)
			over, bad = f.At+f.For, f.Nodes
			require.LessOrEqual(t, over, time.Minute-lull, "each fault must be healed before the end: %v", f)
		}
	}
	for _, k := range append([]kind{crash}, badNode...) {
		assert.Greater(t, seen[k], planned/2, "%s", k)
	}
}
