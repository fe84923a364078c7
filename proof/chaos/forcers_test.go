package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
	"github.com/seed14bd9ef4/redsync/proof/history"
)

// Clients release the locks of others by force, at least 200 in a minute, a third of them while the holder is stopped. Nothing
// breaks but what a force breaks.
func TestRunWithForcesFindsNothing(t *testing.T) {
	testlength.NotShort(t)
	seen := zeros("told watchdog healing do several-long reader-long permit-long")
	seen[released], seen[string(stopped)] = 0, 0
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
