package main

import (
	"context"
	"errors"
	"slices"
)

var distinctScene = scene{
	name: "distinct", apart: true,
	about: "Lock and Unlock in turn, a fresh key each time, by goroutines that share one " +
		"connection set. Times are of one pair.",
	columns: []column{
		{title: "pairs/s", key: "rate", format: whole},
		{title: "p50 µs", key: "pair_p50", format: whole},
		{title: "p99 µs", key: "pair_p99", format: whole},
		{title: "allocs", key: "allocs", format: whole},
		{title: "client CPU µs", key: "client_cpu", format: tenth},
		{title: "server CPU µs", key: "server_cpu", format: tenth},
		{title: "x " + defaults, key: "rate", format: cents, base: toLibrary(defaults)},
		{title: "x " + floor, key: "rate", format: cents, base: toLibrary(floor)},
		{title: "keys left", key: "left", format: whole},
		{title: "failed", key: "failed", format: whole},
	},
	cells: func(p plan) []cell {
		widths := []int{1, 16, 128, 1024}
		if p.quick {
			widths = []int{1, 128}
		}
		return grid("distinct", "", widths, slices.Concat(contenders, named(oursOne)), measureDistinct)
	},
}

func measureDistinct(ctx context.Context, l *lab, c cell) (f figures, err error) {
	lib, err := l.open(ctx, c, l.addrs)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, lib.Close()) }()
	before, err := l.usage(ctx)
	if err != nil {
		return nil, err
	}
	o := playPairs(ctx, lib, c.Goroutines, l.plan.cell)
	after, err := l.usage(ctx)
	if err != nil {
		return nil, err
	}
	f = o.figures()
	f.since(before, after)
	left, err := l.leftBehind(ctx)
	f["left"] = float64(left)
	return f, err
}

// againstPlain returns the columns of a scene that compares other locks with plain ones under the load of distinct
// keys. name is what the titles call the plain lock.
func againstPlain(name string) []column {
	return []column{
		{title: "pairs/s", key: "rate", format: whole},
		{title: "p50 µs", key: "pair_p50", format: whole},
		{title: "p99 µs", key: "pair_p99", format: whole},
		{title: "allocs", key: "allocs", format: whole},
		{title: "client CPU µs", key: "client_cpu", format: tenth},
		{title: "server CPU µs", key: "server_cpu", format: tenth},
		{title: "x " + name, key: "rate", format: cents, base: toLibrary(ours)},
		{title: "server CPU x " + name, key: "server_cpu", format: cents, base: toLibrary(ours)},
		{title: "keys left", key: "left", format: whole},
		{title: "failed", key: "failed", format: whole},
	}
}
