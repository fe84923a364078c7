package main

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"time"
)

// heldTTL is longer than a cell takes, so that no lock expires.
const heldTTL = 10 * time.Minute

// heldLoad is the number of goroutines that acquire and release.
const heldLoad = 64

var heldScene = scene{
	name: "held",
	about: "Many locks are held at once. Nobody extends them, except rueidislock, which always extends. " +
		"Memory is per lock, after a garbage collection, and includes the lock's key. Locks/s is the rate at " +
		"which 64 goroutines acquire them.",
	columns: []column{
		{title: "locks", key: "locks", format: whole},
		{title: "heap bytes each", key: "heap", format: whole},
		{title: "stack bytes each", key: "stack", format: whole},
		{title: "goroutines each", key: "goroutines", format: cents},
		{title: "locks/s", key: "rate", format: whole},
	},
	cells: func(plan) []cell {
		cells := grid("held", "", []int{heldLoad}, named(ours, defaults, oneKey), measureHeld)
		for i := range cells {
			cells[i].rounds = 1
		}
		return cells
	},
}

func measureHeld(ctx context.Context, l *lab, c cell) (f figures, err error) {
	lib, err := c.contender.start(ctx, l.addrs, heldTTL)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, lib.Close()) }()
	playPairs(ctx, lib, heldLoad, l.plan.warmUp)
	locks := make([]held, l.plan.held)
	before := weigh()
	start := time.Now()
	if err := acquireAll(ctx, lib, locks); err != nil {
		return nil, err
	}
	elapsed := time.Since(start)
	after := weigh()
	n := float64(len(locks))
	f = figures{
		"locks":      n,
		"heap":       (after.heap - before.heap) / n,
		"stack":      (after.stack - before.stack) / n,
		"goroutines": (after.goroutines - before.goroutines) / n,
		"rate":       n / elapsed.Seconds(),
	}
	return f, releaseAll(ctx, locks)
}

func acquireAll(ctx context.Context, lib library, locks []held) error {
	return inParallel(len(locks), func(i int) (err error) {
		locks[i], err = lib.Lock(ctx, freshKey())
		return err
	})
}

func releaseAll(ctx context.Context, locks []held) error {
	return inParallel(len(locks), func(i int) error { return unlock(ctx, locks[i]) })
}

// inParallel calls do for 0 to n-1 in heldLoad goroutines. Each goroutine stops at its first error.
func inParallel(n int, do func(i int) error) error {
	errs := make([]error, heldLoad)
	var wg sync.WaitGroup
	for g := range heldLoad {
		wg.Go(func() {
			for i := g; i < n && errs[g] == nil; i += heldLoad {
				errs[g] = do(i)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

type weight struct{ heap, stack, goroutines float64 }

// weigh waits 200 ms for requests in flight, runs three garbage collections, and then measures. The first
// two collections empty every sync.Pool.
func weigh() weight {
	time.Sleep(200 * time.Millisecond)
	for range 3 {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return weight{float64(m.HeapAlloc), float64(m.StackInuse), float64(runtime.NumGoroutine())}
}
