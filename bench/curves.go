package main

import (
	"context"
	"errors"
	"io"
	"runtime"
	"slices"
	"strconv"
	"time"
)

// curves show what becomes of the load of distinct keys, and of held locks, as one thing grows. It is the first column of
// their tables. Charts show the first columns of figures.
var curves = []scene{
	loadCurve("goroutines", "", points{1, 4, 16, 64, 256, 1024, 4096}, "Goroutines share one connection set.",
		func(n int) (int, measuring) { return n, measureDistinct }),
	loadCurve("nodes", "nodes", points{1, 3, 5, 7, 9}, "128 goroutines share one connection set.",
		func(n int) (int, measuring) { return 128, measureOnNodes(n) }),
	loadCurve("processes", "processes", points{1, 2, 4, 8, 16, 32, 64}, "Each process has 16 goroutines and one connection set.",
		func(n int) (int, measuring) { return 16, measureClients(n) }),
	loadCurve("network", "delay ms", points{0, 1, 2, 5, 10, 20, 50}, "128 goroutines share one connection set. Proxies delay "+
		"each direction, and their CPU is not counted.",
		func(n int) (int, measuring) { return 128, measureDelayed(n) }),
	heldCurve,
}

// curve is how the names of these scenes begin.
const curve = "curve-"

// points are the values of what grows.
type points []int

// of returns the points that a plan measures: all, or one.
func (list points) of(p plan) points {
	if p.quick {
		return list[(len(list)+1)/2:][:1]
	}
	return list
}

// loadCurve returns a curve of the load of distinct keys. Without a variant the goroutines grow. at returns the number of
// goroutines of a point, and what measures it.
func loadCurve(name, variant string, list points, about string, at func(n int) (int, measuring)) scene {
	sc := scene{
		name: curve + name, variant: variant, chart: "Lock and Unlock by " + name, panels: 2, apart: true,
		about: "The load of distinct keys. " + about + " The expiry is 40s. CPU is per pair; kernel is how much of the client's " +
			"goes into system calls, and CPU % is that of all processors. " +
			"Commands/read is how many commands, those of scripts too, a node executes for each read from a connection.",
		columns: []column{
			{title: "pairs/s", key: "rate", format: whole},
			{title: "p99 ms", key: "pair_p99", format: millisFine},
			{title: "p50 ms", key: "pair_p50", format: millisFine},
			{title: "client CPU µs", key: "client_cpu", format: tenth},
			{title: "kernel %", key: "kernel", format: whole},
			{title: "server CPU µs", key: "server_cpu", format: tenth},
			{title: "CPU %", key: "busy", format: whole},
			{title: "commands/read", key: "batch", format: cents},
			{title: "keys left", key: "left", format: whole},
			{title: "failed", key: "failed", format: whole},
		},
	}
	sc.cells = func(p plan) (cells []cell) {
		for _, n := range list.of(p) {
			width, measure := at(n)
			point := ""
			if variant != "" {
				point = strconv.Itoa(n)
			}
			cells = append(cells, grid(sc.name, point, []int{width}, named(ours, floor), patiently(measure))...)
		}
		return cells
	}
	return sc
}

// patiently gives nodes and releases in the background more time than other scenes do: a Lock that fails, or a key that is
// left, fails the run, and the machine may be busy.
func patiently(measure measuring) measuring {
	return func(ctx context.Context, l *lab, c cell) (figures, error) {
		patient := *l
		patient.plan.expiry, patient.plan.grace = 40*time.Second, 4*time.Second
		return measure(ctx, &patient, c)
	}
}

// measureOnNodes measures on n nodes, and starts those that are missing.
func measureOnNodes(n int) measuring {
	return func(ctx context.Context, l *lab, c cell) (f figures, err error) {
		more, err := startServers(max(0, n-nodes))
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, more.stop()) }()
		addrs := slices.Concat(l.addrs, more.addresses())[:n]
		some := &lab{plan: l.plan, addrs: addrs, look: dial(addrs)}
		defer func() { err = errors.Join(err, some.close()) }()
		return measureDistinct(ctx, some, c)
	}
}

// measureDelayed measures with a delay in each direction between client and nodes.
func measureDelayed(ms int) measuring {
	return func(ctx context.Context, l *lab, c cell) (f figures, err error) {
		delays := slices.Repeat([]time.Duration{time.Duration(ms) * time.Millisecond}, nodes)
		r, err := startRemote(ctx, l.addrs, delays)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, r.close()) }()
		far := &lab{plan: l.plan, addrs: r.addrs, look: l.look}
		far.plan.cell = max(far.plan.cell, 2*remoteTrips*trip(delays))
		return measureDistinct(ctx, far, c)
	}
}

// A clientOrder tells a child process to play the load of distinct keys.
type clientOrder struct {
	Library             string
	Addrs               []string
	Process, Goroutines int

	Expiry, WarmUp, Cell time.Duration // of the plan
}

// A clientAnswer is what a child process observed, and what it used.
type clientAnswer struct {
	Locks, Unlocks []time.Duration
	Elapsed        time.Duration
	CPU, Kernel    time.Duration // see ownCPU
	Failed         int
}

// measureClients measures n processes. All begin at the same time.
func measureClients(n int) measuring {
	return func(ctx context.Context, l *lab, c cell) (figures, error) {
		p := l.plan
		var before usage
		each, err := inProcesses[clientAnswer](ctx, n, "client", func(process int) any {
			return clientOrder{c.contender.name, l.addrs, process, c.Goroutines, p.expiry, p.warmUp, p.cell}
		}, func() (err error) {
			before, err = l.usage(ctx)
			return err
		})
		if err != nil {
			return nil, err
		}
		after, err := l.usage(ctx)
		if err != nil {
			return nil, err
		}
		after.client, after.kernel = before.client, before.kernel
		var o observed
		for _, a := range each {
			o.locks, o.unlocks = append(o.locks, a.Locks...), append(o.unlocks, a.Unlocks...)
			o.elapsed, o.failed = max(o.elapsed, a.Elapsed), o.failed+a.Failed
			after.client, after.kernel = after.client+a.CPU, after.kernel+a.Kernel
		}
		f := o.figures()
		f.since(before, after)
		left, err := l.leftBehind(ctx)
		f["left"] = float64(left)
		return f, err
	}
}

func clientChild(ctx context.Context, order clientOrder, in io.Reader, out io.Writer) (err error) {
	lib, err := startNamed(ctx, order.Library, order.Addrs, order.Expiry)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lib.Close()) }()
	keys.Store(uint64(order.Process) << 32) //nolint:gosec // no other process locks these names
	playPairs(ctx, lib, order.Goroutines, order.WarmUp)
	return whenAllAreReady(in, out, func() clientAnswer {
		cpu, kernel := ownCPU()
		o := playPairs(ctx, lib, order.Goroutines, order.Cell)
		cpuAfter, kernelAfter := ownCPU()
		return clientAnswer{o.locks, o.unlocks, o.elapsed, cpuAfter - cpu, kernelAfter - kernel, o.failed}
	})
}

// manyLocks have a longer expiry: two CPUs cannot extend so many locks every 8 s.
const manyLocks = 1_000_000

var heldCurve = scene{
	name: curve + "held", variant: "locks", chart: "Held locks", panels: 4, apart: true,
	about: "64 goroutines lock distinct keys. Watchdogs extend all locks until Close releases them. Memory is per lock, after " +
		"a garbage collection, and includes the lock's key. CPU is per extension. Least left is the shortest time that a " +
		"lock still had when it was extended. The expiry is 24s, that of a million locks 5m.",
	columns: []column{
		{title: "lock all ms", key: "all", format: millis},
		{title: "heap bytes each", key: "heap", format: whole},
		{title: "extended/s", key: "rate", format: digits},
		{title: "Close ms", key: "close", format: millis},
		{title: "client CPU µs", key: "client_cpu", format: tenth},
		{title: "server CPU µs", key: "server_cpu", format: tenth},
		{title: "CPU %", key: "busy", format: whole},
		{title: "commands/read", key: "batch", format: cents},
		{title: "least left ms", key: "least", format: whole},
		{title: "lost", key: "lost", format: whole},
		{title: "keys left", key: "left", format: whole},
	},
	cells: func(p plan) (cells []cell) {
		list := points{1, 10, 100, 1000, 10_000, 100_000}.of(p)
		if p.million {
			list = append(list, manyLocks)
		}
		for _, n := range list {
			cells = append(cells, grid(curve+"held", strconv.Itoa(n), []int{heldLoad}, named(oursWatched), patiently(measureWatched(n)))...)
			if n == manyLocks {
				cells[len(cells)-1].rounds = 1
			}
		}
		return cells
	},
}

// measureWatched measures n locks that watchdogs extend.
func measureWatched(n int) measuring {
	return func(ctx context.Context, l *lab, c cell) (figures, error) {
		expiry := 2 * l.plan.extended
		if n == manyLocks {
			expiry = 5 * time.Minute
		}
		lib, err := c.contender.start(ctx, l.addrs, expiry)
		if err != nil {
			return nil, err
		}
		playPairs(ctx, lib, heldLoad, l.plan.warmUp)
		f, err := l.watch(ctx, lib.(*watchedLibrary), make([]held, n), expiry/3)
		start := time.Now()
		if err = errors.Join(err, lib.Close()); err != nil {
			return nil, err
		}
		f["close"] = micros(time.Since(start))
		left, err := l.leftBehind(ctx)
		f["left"] = float64(left)
		return f, err
	}
}

// watch acquires locks, and measures how they are extended for d, in which each should be extended once.
func (l *lab) watch(ctx context.Context, lib *watchedLibrary, locks []held, d time.Duration) (figures, error) {
	empty := weigh()
	start := time.Now()
	if err := acquireAll(ctx, lib, locks); err != nil {
		return nil, err
	}
	f := figures{"all": micros(time.Since(start))}
	if full := weigh(); len(locks) >= 100 { // fewer weigh less than what else the heap has
		f["heap"] = (full.heap - empty.heap) / float64(len(locks))
	}
	extended := lib.extensions.done.Load()
	start = time.Now()
	before, err := l.usage(ctx)
	if err != nil {
		return nil, err
	}
	select {
	case <-time.After(d):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	after, err := l.usage(ctx)
	f["pairs"] = float64(lib.extensions.done.Load() - extended)
	f["rate"] = f["pairs"] / time.Since(start).Seconds()
	f.since(before, after)
	f["least"] = float64(time.Duration(lib.extensions.least.Load()).Milliseconds())
	f["lost"] = float64(lib.extensions.lost.Load())
	runtime.KeepAlive(locks)
	return f, err
}
