package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

var networkScene = scene{
	name: "network",
	about: "The load of distinct keys, with a delay in each direction between client and nodes. " +
		"The table counts Lock and Unlock in round trips (twice the delay).",
	variant: "delay",
	columns: []column{
		{title: "pairs/s", key: "rate", format: whole},
		{title: "Lock p50 ms", key: "lock_p50", format: millisFine},
		{title: "Lock p99 ms", key: "lock_p99", format: millisFine},
		{title: "Unlock p50 ms", key: "unlock_p50", format: millisFine},
		{title: "Lock p50, trips", key: "lock_trips", format: cents},
		{title: "Unlock p50, trips", key: "unlock_trips", format: cents},
		{title: "x " + defaults, key: "rate", format: cents, base: toLibrary(defaults)},
		{title: "x " + floor, key: "rate", format: cents, base: toLibrary(floor)},
		{title: "failed", key: "failed", format: whole},
	},
	cells: func(p plan) []cell {
		delays := []time.Duration{time.Millisecond, 20 * time.Millisecond}
		if p.quick {
			delays = delays[:1]
		}
		var cells []cell
		for _, d := range delays {
			cells = append(cells, grid("network", d.String(), []int{1, 16, 128}, remoteContenders(),
				measureRemote(slices.Repeat([]time.Duration{d}, nodes)))...)
		}
		for i := range cells {
			cells[i].rounds = 1
		}
		return cells
	},
}

// staggered are delays that differ between the nodes.
var staggered = []time.Duration{
	time.Millisecond, 2 * time.Millisecond, 3 * time.Millisecond, 8 * time.Millisecond, 20 * time.Millisecond,
}

var staggeredScene = scene{
	name: "staggered",
	about: fmt.Sprintf("The nodes are %v away, per direction: a round trip to the third fastest takes "+
		"%v. Lock and Unlock should each cost that and no more.", staggered, trip(staggered)),
	columns: []column{
		{title: "Lock p50 ms", key: "lock_p50", format: millisFine},
		{title: "Lock p99 ms", key: "lock_p99", format: millisFine},
		{title: "Unlock p50 ms", key: "unlock_p50", format: millisFine},
		{title: "Unlock p99 ms", key: "unlock_p99", format: millisFine},
		{title: "Lock p50, trips", key: "lock_trips", format: cents},
		{title: "Unlock p50, trips", key: "unlock_trips", format: cents},
		{title: "pairs", key: "pairs", format: whole},
	},
	cells: func(plan) []cell {
		return grid("staggered", "", []int{1}, remoteContenders(), measureRemote(staggered))
	},
}

func remoteContenders() []contender { return named(ours, defaults, failFast, floor) }

func millisFine(us float64) string { return cents(us / 1000) }

// trip returns the time until the replies of a quorum of nodes are back.
func trip(delays []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(delays))
	return 2 * sorted[len(sorted)/2]
}

// remoteTrips is the least number of pairs that each goroutine has time for, if Lock and Unlock take one
// round trip each.
const remoteTrips = 15

func measureRemote(delays []time.Duration) measuring {
	return func(ctx context.Context, l *lab, c cell) (f figures, err error) {
		r, err := startRemote(ctx, l.addrs, delays)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, r.close()) }()
		lib, err := l.open(ctx, c, r.addrs)
		if err != nil {
			return nil, err
		}
		once := trip(delays)
		o := playPairs(ctx, lib, c.Goroutines, max(l.plan.cell, 2*remoteTrips*once))
		f = o.figures()
		f["lock_trips"] = f["lock_p50"] / micros(once)
		f["unlock_trips"] = f["unlock_p50"] / micros(once)
		return f, lib.Close()
	}
}
