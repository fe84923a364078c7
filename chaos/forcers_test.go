package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/history"
	"github.com/seed14bd9ef4/redsync/internal/testlength"
)

// Clients release the locks of others by force, at least 200 in a minute, a third of them while the holder is stopped. Nothing
// breaks but what a force breaks.
func TestRunWithForcesFindsNothing(t *testing.T) {
	testlength.NotShort(t)
	seen := map[string]int{released: 0, string(stopped): 0, "told": 0, "watchdog": 0, "healing": 0, "do": 0, "several-long": 0, "reader-long": 0, "permit-long": 0}
	missing := playUntil(9*time.Second, seen, func(length time.Duration) {
		r := playProving(t, "forced", length)
		require.Empty(t, r.Violations)
		for what := range seen {
			seen[what] += tallyOf(r.clientCounts(), what) + r.forced()[what]
		}
	})
	assert.Empty(t, missing)
}

// A client that deletes the keys of a holder without comparing their values deletes the lock of the next one, too. The judge
// finds that.
func TestRunFindsForcesThatCompareNothing(t *testing.T) {
	testlength.NotShort(t)
	found := map[string]int{history.NobodyForce: 0}
	missing := playUntil(4*time.Second, found, func(length time.Duration) {
		r := playWith(t, "forced", length, settings{blunt: 4})
		for rule, n := range rulesBroken(r) {
			found[rule] += n
		}
	})
	assert.Empty(t, missing)
}

// The result of a ForceUnlock is counted, and whether its holder was stopped.
func TestForcingsAreCounted(t *testing.T) {
	s, err := findScene("forced")
	require.NoError(t, err)
	r := &result{settings: settings{Scene: s, Length: time.Minute}}
	stop := fault{Kind: stopped, Process: 2, For: ms}
	force := func(term int, at time.Duration, value, outcome string) {
		e := history.Event{At: at, Kind: history.Forcing, Client: "1/forcer/1", Term: term, Value: value}
		r.Events = append(r.Events, e)
		e.Kind, e.Err = history.Forced, outcome
		r.Events = append(r.Events, e)
	}
	for i, value := range []string{"u", "v"} {
		r.Events = append(r.Events, history.Event{Kind: history.Held, Client: []string{"1/do/1", "2/do/1"}[i], Value: value})
	}
	force(1, 1, "v", "")
	r.Events = append(r.Events, history.Event{At: 2, Kind: history.Fault, Where: "process 2", What: stop.String()})
	force(2, 3, "v", "")
	force(3, 3, "u", wasTaken)
	force(4, 3, "v", "an error")
	r.Events = append(r.Events, history.Event{At: 4, Kind: history.Fault, Where: "process 2", What: stop.String(), Ends: true})
	force(5, 5, "v", wasNotHeld)
	assert.Equal(t, map[string]int{released: 2, string(stopped): 1, wasTaken: 1, "other": 1, wasNotHeld: 1}, r.forced())
	require.ErrorContains(t, r.unforced(), "only 2 locks were released by force: 200 are needed")
	r.Length = time.Second / 2
	require.NoError(t, r.unforced())
	r.Length = 2 * time.Second
	require.ErrorContains(t, r.unforced(), "only 2 locks")
}
