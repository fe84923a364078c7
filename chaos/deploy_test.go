package main

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed14bd9ef4/redsync/internal/history"
	"github.com/seed14bd9ef4/redsync/internal/realredis"
	"github.com/seed14bd9ef4/redsync/internal/testlength"
)

// runbook has the steps that change the nodes of a fleet.
var runbook = []struct {
	name        string
	nodes       int // how many servers run
	deployments []deployment
}{
	{"replace a dead node", 6, dying(0, moved([]int{0, 1, 2, 3, 4}, []int{5, 1, 2, 3, 4}))},
	{"grow from 3 to 5", 5, moved(span(0, 3), span(0, 5))},
	{"shrink from 5 to 3", 5, moved(span(0, 5), span(0, 3))},
	{"move all to other machines", 10, moved(span(0, 5), span(5, 5))},
	{"change the addresses only", 5, moved(span(0, 5), span(5, 5))}, // address 5 leads to node 0, and so on
}

// dying makes a node die before the second deployment.
func dying(node int, all []deployment) []deployment {
	all[1].dead = []int{node}
	return all
}

// Each step of the runbook breaks no promise while clients lock.
func TestRunbook(t *testing.T) {
	realredis.Start(t, 0) // skips the test where there is no redis-server
	t.Cleanup(func() { goleak.VerifyNone(t) })
	for _, step := range runbook {
		t.Run(step.name, func(t *testing.T) {
			t.Parallel()
			length := time.Duration(testlength.Of(2, 4, 30)) * time.Second
			r, err := run(t.Context(), settings{
				Scene: scene{
					name: step.name, guard: true, expiry: deployExpiry, plan: noFaults,
					nodes: step.nodes, deployments: step.deployments,
				},
				Seed: 5, Length: length, say: t.Logf,
			})
			require.NoError(t, err)
			assert.Empty(t, r.Violations)
			require.NoError(t, r.unserved())
			for _, s := range r.served() {
				t.Logf("%+v", s)
			}
		})
	}
}

func TestSwapEachEndsWithOtherNodes(t *testing.T) {
	all := swapEach()
	require.Len(t, all, 2*nodeCount+1)
	assert.Equal(t, span(0, nodeCount), all[0].before)
	assert.Equal(t, span(nodeCount, nodeCount), all[len(all)-1].before)
	for i, d := range all {
		if i%2 == 0 {
			assert.Nil(t, d.after, "%v", d)
			continue
		}
		assert.Equal(t, all[i-1].before, d.before)
		assert.Equal(t, all[i+1].before, d.after)
		assert.Len(t, d.addresses(), nodeCount+1, "one node is swapped at a time")
	}
}

func TestRunFindsHoldersThatAnUnjoinedSwapLetsIn(t *testing.T) {
	r := play(t, "nodes-unjoined", 3*time.Second, 0)
	broken := rulesBroken(r)
	assert.Positive(t, broken[history.Exclusion])
	require.NoError(t, r.verdict())
}

// swapped returns the result of a run with two deployments: processes 1 and 2 had node 0, process 3 had node 1.
func swapped(locks ...history.Term) *result {
	r := &result{settings: settings{Scene: scene{nodes: 2, deployments: []deployment{{before: span(0, 1)}, {before: span(1, 1)}}}}}
	r.Processes = []*process{{number: 1, killed: 50 * ms}, {number: 2}, {number: 3, version: 1}}
	r.Terms = locks
	r.Events = []history.Event{keyEvent(0, 0, "quick", 1), keyEvent(0, 1, "quick", 1)}
	return r
}

func TestServed(t *testing.T) {
	enough := func(client string, from, to time.Duration) []history.Term {
		return slices.Repeat([]history.Term{{Client: client, From: from, To: to}}, leastServed)
	}
	first := slices.Concat(enough("1/plain/1", 20*ms, 60*ms), enough("2/plain/1", 30*ms, 60*ms))
	both := slices.Concat(first, enough("3/plain/1", 30*ms, 70*ms))
	r := swapped(both...)
	assert.Equal(t, []served{
		{Nodes: "nodes 0", Locks: 2 * leastServed, From: 20 * ms, To: 30 * ms, Cut: leastServed},
		{Nodes: "nodes 1", Locks: leastServed, From: 30 * ms, To: 30 * ms},
	}, r.served())
	require.NoError(t, r.unserved())

	require.ErrorContains(t, swapped(both[:len(both)-1]...).unserved(), "nodes 1: only 9 locks were acquired")
	late := swapped(append(first, enough("3/plain/1", 31*ms, 70*ms)...)...)
	require.ErrorContains(t, late.unserved(), "nodes 1: no process ran beside those of nodes 0")
	r.Events = r.Events[:1]
	require.ErrorContains(t, r.unserved(), "node 1: no lock's key was seen there")
	r.Processes[0].killed = 0
	require.ErrorContains(t, r.unserved(), "no process was killed while it held a lock")
}
