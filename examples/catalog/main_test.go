package main

import (
	"bytes"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/examples/internal/rig"
	"github.com/seed14bd9ef4/redsync/examples/internal/rig/rigtest"
	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
	"github.com/seed14bd9ef4/redsync/redsynctest"
)

func TestMain(m *testing.M) { rigtest.Main(m, program) }

// play runs the program on n nodes for two seconds of virtual time, and returns the counts that it prints.
func play(t *testing.T, n int, unlocked bool) (reads, most, reloads, early, halves int, err error) {
	synctest.Test(t, func(t *testing.T) {
		nodes := redsynctest.Start(t, n)
		var out bytes.Buffer
		err = run(t.Context(), 2*time.Second, unlocked, rig.Inside(nodes), &out)
		_, scanErr := fmt.Sscanf(out.String(), "%d reads, up to %d at once; %d reloads, %d reads beside the downgraded writer; "+
			"reads that saw half of a reload: %d\n", &reads, &most, &reloads, &early, &halves)
		require.NoError(t, scanErr, out.String())
		nodes.RequireNothingLeft()
	})
	return reads, most, reloads, early, halves, err
}

func TestReadersSeeWholeReloads(t *testing.T) {
	testlength.NotWhileAPersonWaits(t)
	for _, n := range []int{1, 5} {
		reads, most, reloads, early, halves, err := play(t, n, false)
		require.NoError(t, err)
		assert.Zero(t, halves)
		assert.Equal(t, readers, most)
		assert.Greater(t, reads, 50)
		assert.Greater(t, reloads, 5) // readers must not starve the writer
		assert.Positive(t, early)     // readers must enter once the writer has downgraded
	}
}

// The control: without the lock readers see half of a reload.
func TestWithoutTheLockReadersSeeHalves(t *testing.T) {
	_, _, _, _, halves, err := play(t, 5, true)
	require.ErrorIs(t, err, errHalf)
	assert.Positive(t, halves)
}
