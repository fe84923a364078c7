package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A child process finds the contender of each cell. With invented figures, a column relates the rows to that of their base.
func TestTablesRelateCellsToTheirBase(t *testing.T) {
	for _, sc := range scenes {
		for _, c := range sc.cells(plan{}) {
			require.True(t, c.contender.open == nil || len(named(c.contender.name)) == 1, c.Library)
		}
	}
	for _, c := range []struct {
		scene
		column int
		want   []string
		left   string // the contender whose keys the verdict finds
	}{
		{namesScene, 8, []string{"1.00", "2.00", "3.00", "1.00", "1.25", "1.50"}, "names, goroutines 1, " + oursTwo},
		{permitsScene, 8, []string{"1.00", "2.00", "1.00", "1.33", "1.00", "1.20"}, "permits, goroutines 1, " + oursPermits},
		{readersScene, 8, []string{"1.00", "2.00", "1.00", "1.33", "1.00", "1.20"}, "readers, goroutines 1, " + oursShared},
		{readersOneScene, 4, []string{"0.33", "0.67", "1.00"}, ""},
	} {
		results := sampled(plan{}, c.scene)
		table := rows(c.scene, index(results))
		for i, want := range c.want {
			require.Equal(t, want, table[1+i][c.column], table[1+i])
		}
		if c.left != "" {
			require.ErrorContains(t, verdict(results), c.left+": 1 keys left behind")
		}
	}
}

// Each scene in which processes contend is measured with some of its libraries. The figure of that key must become positive.
func TestProcessesContend(t *testing.T) {
	for _, c := range []struct {
		scene
		library, key string
	}{
		{wakeupScene, ours, "call_p50_trips"},
		{wakeupScene, oneKey, "call_p50_trips"},
		{waitersScene, ours, "commands"},
		{permitsQueueScene, oursPermitsFair, "rate"},
		{permitsQueueScene, inTurn, "rate"},
		{permitsRoundsScene, oursPermits + anew, "rounds"},
		{readersWriterScene, oursShared, "rate"},
		{readersWriterScene, ours + aNameEach, "rate"},
		{readersOneScene, oursShared, "entries"},
		{transfersScene, oursTwo, "rate"},
		{transfersScene, defaults + inOrder, "rate"},
		{contentionScene, ours, "rate"},
		{oneNodeScene, ours + onOne, "rate"},
		{oneNodeScene, oneKey, "rate"},
	} {
		t.Run(c.name+", "+c.library, func(t *testing.T) {
			l, cell := shortLab(t, c.scene, c.library)
			l.plan.contend, l.plan.transfer = 300*time.Millisecond, 500*time.Millisecond
			f := measureLonger(t, l, cell, c.key)
			require.Zero(t, f["left"])
			require.LessOrEqual(t, f["at_once"], float64(fewPermits))
			if c.library != inTurn {
				require.Zero(t, f["failed"])
			}
		})
	}
}

func TestClientsShareALockBesideABadNode(t *testing.T) {
	l, c := shortLab(t, nodeSilentScene, ours)
	l.plan.badNode, c.Goroutines = 100*time.Millisecond, 4
	slow := slowNode
	slow.delay = 20 * time.Millisecond
	for _, bad := range []badNode{slow, refusingNode} {
		c.measure = measureBadNode(bad, bad.name == slow.name, patientExpiry)
		measureLonger(t, l, c, "rate")
	}
	// Without a quorum nobody gets the lock. So the fault sets in before the load begins, and ends after it.
	c.measure = measureBadNode(badNode{name: "three silent", set: func(s *servers) { s.freeze(3) }, repair: func(s *servers) { s.thaw(3) }}, false, patientExpiry)
	f, err := sampleOnce(t.Context(), l, c)
	require.NoError(t, err)
	require.Zero(t, f["rate"])
	require.InDelta(t, micros(l.plan.badNode), f["free_max"], 0)
}
