package main

var fencingScene = scene{
	name: "fencing",
	about: "The load of distinct keys, without and with fencing tokens: what the scripts and the " +
		"registers cost. Each name leaves its register on the nodes, for 24 hours.",
	columns: []column{
		{title: "pairs/s", key: "rate", format: whole},
		{title: "p50 µs", key: "pair_p50", format: whole},
		{title: "p99 µs", key: "pair_p99", format: whole},
		{title: "client CPU µs", key: "client_cpu", format: tenth},
		{title: "server CPU µs", key: "server_cpu", format: tenth},
		{title: "x without", key: "rate", format: cents, base: toLibrary(ours)},
		{title: "server CPU x without", key: "server_cpu", format: cents, base: toLibrary(ours)},
		{title: "failed", key: "failed", format: whole},
	},
	cells: func(p plan) []cell {
		widths := []int{1, 16, 128}
		if p.quick {
			widths = []int{128}
		}
		return grid("fencing", "", widths, named(ours, oursFenced), measureDistinct)
	},
}
