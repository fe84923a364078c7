package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestMedianIsOfTheRoundsThatHaveTheFigure(t *testing.T) {
	r := &result{samples: []figures{{"rate": 3}, {"rate": 1}, {}, {"rate": 2}}}
	v, ok := r.median("rate")
	require.True(t, ok)
	require.InDelta(t, 2, v, 0)
	require.InDelta(t, 3, r.most("rate"), 0)
	r.samples = append(r.samples, figures{"rate": 4})
	v, _ = r.median("rate")
	require.InDelta(t, 2.5, v, 0)
	_, ok = r.median("none")
	require.False(t, ok)
}

func TestObservedFiguresCountEveryPair(t *testing.T) {
	o := observed{elapsed: 2 * time.Second}
	for i := range 100 {
		o.locks = append(o.locks, time.Duration(100-i)*time.Microsecond)
		o.unlocks = append(o.unlocks, time.Microsecond)
	}
	f := o.figures()
	f.since(usage{mallocs: 10, client: time.Second}, usage{mallocs: 1010, client: 2 * time.Second})
	want := figures{
		"pairs": 100, "rate": 50, "failed": 0,
		"pair_p50": 51, "pair_p99": 100, "pair_max": 101, "lock_p50": 50, "lock_p99": 99, "lock_max": 100,
		"unlock_p50": 1, "unlock_p99": 1, "unlock_max": 1,
		"allocs": 10, "client_cpu": 10_000, "server_cpu": 0,
	}
	require.Equal(t, want, f)
}

func TestAddCommandsTakesTheBusiestNodeAndLeavesOutScripts(t *testing.T) {
	f := figures{"pairs": 10}
	f.addCommands(map[string]int64{"set": 5}, map[string]int64{"set": 15, "evalsha": 10, "get": 10, "info": 1}, []string{"get"})
	f.addCommands(nil, map[string]int64{"set": 20}, nil)
	require.InDelta(t, 2, f["sent"], 0)
	require.InDelta(t, 2, f["set"], 0)
	require.InDelta(t, 1, f["get"], 0)
	require.Zero(t, f["others"])
}

func TestWaitsCountWhatTheEndCutOff(t *testing.T) {
	w := joinWaits([]waits{
		{Counts: []int{2}, Times: []time.Duration{1000, 3000}},
		{Counts: []int{0}, CutOff: []time.Duration{9000}, Failed: 1},
	})
	f := w.figures(2 * time.Second)
	require.Equal(t, figures{
		"rate": 1, "failed": 1, "fewest": 0, "most": 2, "fewest_share": 0, "wait_p50": 1, "wait_p99": 3, "wait_max": 9,
	}, f)
}

func TestWakeupsLeaveOutAWaiterThatCameTooLate(t *testing.T) {
	var w wakeups
	w.add(1000, 3000, wakeAnswer{Called: 100, Locked: 2000, Futile: []int64{100, 900, 1500}})
	w.add(5000, 6000, wakeAnswer{Called: 5001, Locked: 9000})
	f := w.figures(wakeReady{Trip: 500, Counts: true})
	require.InDelta(t, 1, f["locks"], 0)
	require.InDelta(t, 1, f["call_p50"], 1e-9)
	require.InDelta(t, -1, f["return_p99"], 1e-9) // the waiter had the lock before Unlock returned
	require.InDelta(t, 2, f["call_p99_trips"], 1e-9)
	require.InDelta(t, 3, f["futile"], 0)
	require.InDelta(t, 1, f["futile_after"], 0)
	require.NotContains(t, w.figures(wakeReady{Trip: 500}), "futile") // the waiting process did not count futile attempts
}
