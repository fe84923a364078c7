package main

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// observed holds the measurements of one call of playPairs. A pair is one Lock of a fresh key and, if it
// succeeds, one Unlock.
type observed struct {
	elapsed time.Duration
	// locks and unlocks are the times of the operations: locks[i] and unlocks[i]
	// belong together.
	locks, unlocks []time.Duration
	failed         int
	firstErr       error
}

// keys counts the keys that this process has used, so that freshKey never returns the same key twice.
var keys atomic.Uint64

func freshKey() string {
	b := make([]byte, 0, 24)
	b = append(b, "bench:"...)
	return string(strconv.AppendUint(b, keys.Add(1), 10))
}

// overtime is how long operations may continue after the end of a load. The slowest known
// operations, those of redsync v4 with a frozen node, take 10 s.
const overtime = 15 * time.Second

// playPairs locks and unlocks fresh keys in width goroutines for the time d.
func playPairs(ctx context.Context, lib library, width int, d time.Duration) observed {
	ctx, cancel := context.WithCancel(ctx) // without a deadline: see sampleOnce
	defer cancel()
	defer time.AfterFunc(d+overtime, cancel).Stop()
	workers := make([]worker, width)
	var wg sync.WaitGroup
	start := time.Now()
	for i := range workers {
		wg.Go(func() { workers[i].pairs(ctx, lib, start.Add(d)) })
	}
	wg.Wait()
	o := observed{elapsed: time.Since(start)}
	for _, w := range workers {
		o.locks = append(o.locks, w.locks...)
		o.unlocks = append(o.unlocks, w.unlocks...)
		o.failed += w.failed
		o.firstErr = errors.Join(o.firstErr, w.firstErr)
	}
	return o
}

// A worker is one goroutine of a load.
type worker struct {
	locks, unlocks []time.Duration
	failed         int
	firstErr       error
}

// pairs locks and unlocks until end. It counts a failed pair too, with the time that the pair took.
func (w *worker) pairs(ctx context.Context, lib library, end time.Time) {
	for start := time.Now(); start.Before(end) && ctx.Err() == nil; {
		lock, err := lib.Lock(ctx, freshKey())
		locked := time.Now()
		if err == nil {
			err = unlock(ctx, lock)
		}
		now := time.Now()
		w.locks = append(w.locks, locked.Sub(start))
		w.unlocks = append(w.unlocks, now.Sub(locked))
		if err != nil {
			w.fail(err)
		}
		start = now
	}
}

func (w *worker) fail(err error) {
	w.failed++
	if w.firstErr == nil {
		w.firstErr = err
	}
}

func unlock(ctx context.Context, lock held) error {
	ok, err := lock.UnlockContext(ctx)
	if err == nil && !ok {
		err = errors.New("false and no error from Unlock")
	}
	return err
}

// figures summarizes the observations.
func (o observed) figures() figures {
	n := len(o.locks)
	f := figures{"pairs": float64(n), "failed": float64(o.failed)}
	if n == 0 {
		return f
	}
	f["rate"] = float64(n) / o.elapsed.Seconds()
	pairs := make([]time.Duration, n)
	for i := range pairs {
		pairs[i] = o.locks[i] + o.unlocks[i]
	}
	f.addTimes("pair", pairs)
	f.addTimes("lock", o.locks)
	f.addTimes("unlock", o.unlocks)
	return f
}
