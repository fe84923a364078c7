package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
	"github.com/seed14bd9ef4/redsync/proof/history"
)

// badly returns the scene bad-node with a plan of its own. The expiry is shorter, so that the run is short, and the
// node deadline is longer, so that a busy machine can answer in time.
func badly(t *testing.T, plan ...fault) scene {
	s := sceneOf(t, "bad-node")
	s.expiry, s.timeoutFactor = shortExpiry, 0.4
	s.plan = func(uint64, time.Duration) []fault { return plan }
	return s
}

// onOneNode returns faults of one node, one after another. A node that refuses to write does so for long enough to be
// told down twice, which happens once per second at most.
func onOneNode(kinds ...kind) (plan []fault) {
	at := 300 * ms
	for i, k := range kinds {
		lasts := 600 * ms
		if slices.Contains(refusals, k) {
			lasts = 1300 * ms
		}
		plan = append(plan, fault{At: at, For: lasts, Kind: k, Nodes: []int{2}, Seed: uint64(i)})
		at += lasts + 100*ms
	}
	return plan
}

// A minorityPlay is a run of seven seconds.
type minorityPlay struct {
	scene     string // "" for badly
	plan      []fault
	anonymous bool
	impatient bool
	finds     map[string]int // the rules that must be broken
}

// playMinority plays all at once for length, because they mostly wait. It adds what was found to finds, and returns the results.
func playMinority(t *testing.T, length time.Duration, plays []minorityPlay) []*result {
	var all []settings
	for _, p := range plays {
		s := badly(t, p.plan...)
		if p.scene != "" {
			s = sceneOf(t, p.scene)
		}
		all = append(all, settings{Scene: s, anonymous: p.anonymous, impatient: p.impatient})
	}
	results := playAtOnce(t, length, len(all), all...)
	for i, r := range results {
		p := plays[i]
		for _, v := range r.Violations {
			_, expected := p.finds[v.Rule]
			require.True(t, expected || r.Scene.allowed(v), "%s: %v", r.Scene.name, v)
		}
		for rule, n := range rulesBroken(r) {
			if _, expected := p.finds[rule]; expected {
				p.finds[rule] += n
			}
		}
	}
	return results
}

// A node forgets, lies, moves or refuses, or a majority restarts while clients close. Nothing breaks, and the clients
// are told what is wrong with the node.
func TestRunWithABadMinorityFindsNothing(t *testing.T) {
	plan := onOneNode(wrongAddress, farRegisters, readOnly, noReplicas, misconf, otherType)
	plan[5].Nodes = []int{2, 3, 4}
	told := map[string]int{"READONLY": 0, "NOREPLICAS": 0, "MISCONF": 0}
	for _, k := range []history.Kind{toldUp, toldOneServer, toldTwoServers, toldIgnored} {
		told[string(k)] = 0
	}
	missing := playUntil(7*time.Second, told, func(length time.Duration) {
		results := playMinority(t, length, []minorityPlay{
			{plan: plan}, {scene: "forgetful"}, {scene: "wrong-addresses"}, {scene: "closing"},
		})
		for _, e := range results[0].Events {
			word, _, _ := strings.Cut(e.What, " ") // an error of Redis begins with a word of its own
			for _, k := range []string{string(e.Kind), word} {
				if _, ok := told[k]; ok && e.Kind != history.Fault {
					told[k]++
				}
			}
		}
		t.Logf("told: %v", told)
		for _, r := range results {
			assert.NotEmpty(t, r.Terms, r.Scene.name)
		}
	})
	assert.Empty(t, missing)
}

// The judge finds what the rules prevent. Redsync v4 leaves a lock on a bare quorum. Clients that do not know which
// server a node is count one server as several. Clients that do not let Close wait leave keys. Registers that no client
// can have written are followed on a majority. Nobody gets a lock while a majority refuses to write. A node that refuses
// now and then is told down more than once.
func TestRunFindsWhatABadMinorityWouldBreak(t *testing.T) {
	testlength.NotShort(t)
	most := []int{0, 1, 2}
	plan := []fault{
		{At: 300 * ms, For: 5200 * ms, Kind: flapping, Nodes: []int{4}, Seed: 682}, // most often out of memory
		{At: 5700 * ms, For: time.Second, Kind: farRegisters, Nodes: most},
	}
	for _, i := range most { // a majority refuses to write
		plan = append(plan, fault{At: 300 * ms, For: 5200 * ms, Kind: noReplicas, Nodes: []int{i}, untold: true})
	}
	holders := func() map[string]int { return map[string]int{history.Exclusion: 0} }
	plays := map[string]minorityPlay{
		"redsync v4":           {scene: "forgetful-v4", finds: holders()},
		"servers unknown":      {scene: "wrong-addresses", anonymous: true, finds: holders()},
		"close without a wait": {scene: "closing", impatient: true, finds: map[string]int{history.Promise: 0}},
		"a bad majority": {plan: plan, finds: map[string]int{
			history.Idled: 0, farToken: 0,
			// These may break: the registers of a majority are deleted in the end.
			history.TokenUnique: 1, history.TokenOrder: 1, history.TermOrder: 1,
		}},
	}
	found := map[string]int{toldOften: 0}
	for name, p := range plays {
		for rule, n := range p.finds {
			found[name+": "+rule] = n
		}
	}
	missing := playUntil(7*time.Second, found, func(length time.Duration) {
		var all []minorityPlay
		for _, p := range plays {
			all = append(all, p)
		}
		for _, r := range playMinority(t, length, all) {
			found[toldOften] += len(toldAgain(r.Events, flapping))
		}
		for name, p := range plays {
			for rule, n := range p.finds {
				found[name+": "+rule] = n
			}
		}
		t.Logf("%v", found)
	})
	assert.Empty(t, missing)
}
