package main

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// A scene is one kind of load, measured for each contender at each width.
type scene struct {
	name, about string
	widths      []int // goroutines
	// play puts load on lib for a time and returns what it observed.
	play func(ctx context.Context, lib library, width int, d time.Duration) (observed, error)
}

var scenes = []scene{{
	name:   "uncontended",
	about:  "Lock and Unlock in turn, a fresh key each time, by goroutines that share one Redsync.",
	widths: []int{1, 16, 128},
	play:   playUncontended,
}}

// observed is what a scene saw.
type observed struct {
	elapsed   time.Duration
	latencies []time.Duration // of every pair, in no order
}

// keys numbers all keys of the process, so that none is used twice.
var keys atomic.Uint64

func freshKey() string {
	b := make([]byte, 0, 24)
	b = append(b, "bench:"...)
	return string(strconv.AppendUint(b, keys.Add(1), 10))
}

func playUncontended(ctx context.Context, lib library, width int, d time.Duration) (observed, error) {
	workers := make([]worker, width)
	for i := range workers {
		workers[i].latencies = make([]time.Duration, 0, 1<<10)
	}
	var wg sync.WaitGroup
	start := time.Now()
	for i := range workers {
		wg.Go(func() { workers[i].pairs(ctx, lib, start.Add(d)) })
	}
	wg.Wait()
	o := observed{elapsed: time.Since(start)}
	var errs []error
	for _, w := range workers {
		o.latencies = append(o.latencies, w.latencies...)
		errs = append(errs, w.err)
	}
	return o, errors.Join(errs...)
}

// A worker is one goroutine of a scene.
type worker struct {
	latencies []time.Duration
	err       error
}

// pairs locks and unlocks until end; the first error stops it.
func (w *worker) pairs(ctx context.Context, lib library, end time.Time) {
	for start := time.Now(); start.Before(end) && ctx.Err() == nil; {
		if w.err = pair(ctx, lib); w.err != nil {
			return
		}
		now := time.Now()
		w.latencies = append(w.latencies, now.Sub(start))
		start = now
	}
}

func pair(ctx context.Context, lib library) error {
	lock, err := lib.Lock(ctx, freshKey())
	if err != nil {
		return err
	}
	ok, err := lock.UnlockContext(ctx)
	if err != nil {
		return err
	}
	if !ok {
		return errors.New("false and no error from Unlock")
	}
	return nil
}
