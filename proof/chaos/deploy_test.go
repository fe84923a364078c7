package main

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed14bd9ef4/redsync/internal/testkit/realredis"
	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
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
	// Address 5 leads to node 0, and so on: the nodes stay, so one ordinary deployment is enough.
	{"change the addresses only", 5, []deployment{{before: span(0, 5)}, {before: span(5, 5)}}},
}

// dying makes a node die before the second deployment.
func dying(node int, all []deployment) []deployment {
	all[1].dead = []int{node}
	return all
}

// playAtOnce plays scenes for a short time, two at once, because they mostly wait. Each scene has fewer processes
// than usual, and its clients pause for longer, so that the machine can play two scenes at once. In an excluded scene
// the clients do not pause for longer, because they must meet often.
func playAtOnce(t *testing.T, length time.Duration, most int, plays ...settings) []*result {
	testlength.NotWhileAPersonWaits(t)
	realredis.Start(t, 0) // skips the test where there is no redis-server
	t.Cleanup(func() { goleak.VerifyNone(t) })
	results, errs := make([]*result, len(plays)), make([]error, len(plays))
	var runs sync.WaitGroup
	places := make(chan struct{}, most)
	for i, s := range plays {
		s.Seed, s.Length, s.processes = 5, length, 2
		s.say = func(format string, args ...any) { t.Logf(s.Scene.name+": "+format, args...) }
		places <- struct{}{}
		runs.Go(func() {
			defer func() { <-places }()
			results[i], errs[i] = run(t.Context(), s)
		})
	}
	runs.Wait()
	require.NoError(t, errors.Join(errs...))
	return results
}

// Each step of the runbook keeps every promise while clients lock. The same step without a joint set breaks
// exclusion.
func TestRunbook(t *testing.T) {
	plays := []settings{{Scene: sceneOf(t, "nodes-unjoined")}}
	for _, step := range runbook {
		plays = append(plays, settings{idle: 4, Scene: scene{
			name: step.name, guard: true, expiry: deployExpiry, timeoutFactor: deployFactor, plan: noFaults,
			nodes: step.nodes, deployments: step.deployments,
		}})
	}
	length := time.Duration(testlength.Of(4, 8, 30)) * time.Second
	cut := 0
	for _, first := range playAtOnce(t, length, 2, plays...) {
		t.Run(first.Scene.name, func(t *testing.T) {
			r, err := proving(first, func() *result { return playAtOnce(t, length, 1, first.settings)[0] })
			require.NoError(t, err)
			if !r.Scene.excluded {
				assert.Empty(t, r.Violations)
			}
			t.Logf("%v", rulesBroken(r))
			for _, s := range r.served() {
				t.Logf("%+v", s)
				cut += s.Cut
			}
		})
	}
	assert.Positive(t, cut)
}
