package main

import (
	"context"
	"runtime"
	"time"
)

const healthy = "healthy"

var faultsScene = scene{
	name: "faults", apart: true,
	about: "The load of distinct keys. The fault sets in when the load begins, so its first " +
		"moments count. A go-redis read from a frozen node times out after 5 s, so a client that waits for " +
		"the node completes few pairs. Where the column pairs is small, the percentiles are of that few pairs.",
	variant: "nodes",
	columns: []column{
		{title: "pairs/s", key: "rate", format: digits},
		{title: "x healthy", key: "rate", format: digits, base: toVariant(healthy)},
		{title: "Lock p50 µs", key: "lock_p50", format: whole},
		{title: "Lock p99 µs", key: "lock_p99", format: whole},
		{title: "p99 x healthy", key: "lock_p99", format: digits, base: toVariant(healthy)},
		{title: "Lock max µs", key: "lock_max", format: whole},
		{title: "Unlock p99 µs", key: "unlock_p99", format: whole},
		{title: "pairs", key: "pairs", format: whole},
		{title: "failed", key: "failed", format: whole},
	},
	cells: faultCells,
}

// A fault is a failure of nodes.
type fault struct {
	name        string
	frozen      bool // it freezes nodes, which delays redsync v4 by up to 10 s
	set, repair func(s *servers)
}

var faults = []fault{
	{name: healthy, set: func(*servers) {}, repair: func(*servers) {}},
	{name: "one frozen", frozen: true, set: func(s *servers) { s.freeze(1) }, repair: func(s *servers) { s.thaw(1) }},
	{name: "one dead", set: func(s *servers) { s.list[0].Kill() }, repair: func(s *servers) { s.list[0].Restart() }},
	{name: "two frozen", frozen: true, set: func(s *servers) { s.freeze(2) }, repair: func(s *servers) { s.thaw(2) }},
}

// faultCells gives each cell at most two rounds. redsync v4 with its defaults gets only one round
// under a fault, because its pairs take 10 s while a node is frozen. A quick run does not measure
// redsync v4 with frozen nodes.
func faultCells(p plan) []cell {
	widths := []int{1, 16, 128}
	if p.quick {
		widths = widths[:1]
	}
	var cells []cell
	for _, fl := range faults {
		for _, c := range grid("faults", fl.name, widths, named(ours, defaults, failFast), fl.measure) {
			if p.quick && fl.frozen && c.Library != ours {
				continue
			}
			c.rounds = 2
			if c.Library == defaults && fl.name != healthy {
				c.rounds = 1
			}
			cells = append(cells, c)
		}
	}
	return cells
}

func (fl fault) measure(ctx context.Context, l *lab, c cell) (figures, error) {
	lib, err := l.open(ctx, c, l.addrs)
	if err != nil {
		return nil, err
	}
	fl.set(l.servers)
	o := playPairs(ctx, lib, c.Goroutines, l.plan.cell)
	fl.repair(l.servers)
	// Close may return an error because of the fault.
	_ = lib.Close()
	if fl.name == healthy && c.contender.strict && o.firstErr != nil {
		return nil, o.firstErr
	}
	return o.figures(), nil
}

var frozenScene = scene{
	name: "goroutines",
	about: "16 goroutines lock and unlock distinct keys, and after 300 ms one node is frozen. " +
		"The table counts the goroutines of the whole process: before the freeze, the most during it, " +
		"and at the end of the load. The load ends early if the process reaches 50,000 goroutines.",
	columns: []column{
		{title: "seconds frozen", key: "seconds", format: tenth},
		{title: "before", key: "before", format: whole},
		{title: "most", key: "most", format: whole},
		{title: "at the end", key: "after", format: whole},
		{title: "pairs", key: "pairs", format: whole},
	},
	cells: func(p plan) []cell {
		list := named(ours, defaults, failFast)
		if p.quick {
			list = named(ours, failFast)
		}
		cells := grid("goroutines", "", []int{16}, list, measureFrozen)
		for i := range cells {
			cells[i].rounds = 1
		}
		return cells
	},
}

const tooManyGoroutines = 50_000

func measureFrozen(ctx context.Context, l *lab, c cell) (figures, error) {
	lib, err := l.open(ctx, c, l.addrs)
	if err != nil {
		return nil, err
	}
	loadCtx, stop := context.WithCancel(ctx)
	defer stop()
	const settle = 300 * time.Millisecond
	load := make(chan observed)
	go func() { load <- playPairs(loadCtx, lib, c.Goroutines, settle+l.plan.frozen) }()
	time.Sleep(settle)
	before := runtime.NumGoroutine()
	l.servers.freeze(1)
	start := time.Now()
	most, after := watchGoroutines(ctx, l.plan.frozen-100*time.Millisecond) // the load still runs
	seconds := time.Since(start).Seconds()
	if after >= tooManyGoroutines {
		stop()
	}
	l.servers.thaw(1)
	o := <-load
	awaitGoroutines(ctx, before)
	_ = lib.Close() // may fail because of the fault
	f := figures{"pairs": float64(len(o.locks))}
	f["before"], f["most"], f["after"], f["seconds"] = float64(before), float64(most), float64(after), seconds
	return f, nil
}

// watchGoroutines counts the goroutines until d has passed or their number reaches tooManyGoroutines.
// It returns the highest and the last count.
func watchGoroutines(ctx context.Context, d time.Duration) (most, last int) {
	for end := time.Now().Add(d); time.Now().Before(end) && ctx.Err() == nil && last < tooManyGoroutines; {
		time.Sleep(20 * time.Millisecond)
		last = runtime.NumGoroutine()
		most = max(most, last)
	}
	return most, last
}

// awaitGoroutines waits until no more than limit goroutines are left, so that they do not disturb
// the next cell. It waits 15 s at most.
func awaitGoroutines(ctx context.Context, limit int) {
	for end := time.Now().Add(15 * time.Second); time.Now().Before(end) && ctx.Err() == nil; {
		if runtime.NumGoroutine() <= limit {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}
