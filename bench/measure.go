package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// A cell is one line of the report: a contender in a scene at one width.
type cell struct {
	scene     scene
	width     int
	contender contender
}

func (c cell) String() string {
	return fmt.Sprintf("%s, goroutines %d, %s", c.scene.name, c.width, c.contender.name)
}

// A sample is one measurement of a cell.
type sample struct {
	rate     float64 // pairs per second
	p50, p99 time.Duration
	allocs   float64 // per pair, of the whole process
	left     int64   // keys left behind, on all nodes together
}

// A result is all samples of a cell, one per round.
type result struct {
	cell
	samples []sample
}

// measure takes a sample of every cell in each round. Contenders take turns
// within a round, so that a change of the machine's pace meets all of them.
func measure(ctx context.Context, p plan, addrs []string, log io.Writer) ([]result, error) {
	results := cells(p)
	look := dial(addrs)
	defer func() { _ = look.Close() }()
	for round := range p.rounds {
		for i := range results {
			r := &results[i]
			s, err := takeSample(ctx, p, r.cell, addrs, look)
			if err != nil {
				return nil, fmt.Errorf("%v: %w", r.cell, err)
			}
			r.samples = append(r.samples, s)
			if _, err := fmt.Fprintf(log, "round %d of %d: %v: %.0f pairs/s\n", round+1, p.rounds, r.cell, s.rate); err != nil {
				return nil, err
			}
		}
	}
	return results, nil
}

func cells(p plan) []result {
	var results []result
	for _, sc := range p.scenes {
		for _, width := range sc.widths {
			for _, c := range p.contenders {
				results = append(results, result{cell: cell{scene: sc, width: width, contender: c}})
			}
		}
	}
	return results
}

// takeSample measures one cell on empty nodes.
func takeSample(ctx context.Context, p plan, c cell, addrs []string, look clients) (s sample, err error) {
	if err := flush(ctx, look); err != nil {
		return sample{}, err
	}
	lib, err := c.contender.open(addrs, expiry)
	if err != nil {
		return sample{}, err
	}
	defer func() { err = errors.Join(err, lib.Close()) }()
	if _, err := c.scene.play(ctx, lib, c.width, p.warmUp); err != nil {
		return sample{}, err
	}
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	o, err := c.scene.play(ctx, lib, c.width, p.cell)
	if err != nil {
		return sample{}, err
	}
	if err := ctx.Err(); err != nil {
		return sample{}, err
	}
	runtime.ReadMemStats(&after)
	s = summarize(o, after.Mallocs-before.Mallocs)
	s.left, err = leftBehind(ctx, look)
	return s, err
}

func summarize(o observed, mallocs uint64) sample {
	n := len(o.latencies)
	if n == 0 {
		return sample{}
	}
	slices.Sort(o.latencies)
	return sample{
		rate:   float64(n) / o.elapsed.Seconds(),
		p50:    o.latencies[n/2],
		p99:    o.latencies[n*99/100],
		allocs: float64(mallocs) / float64(n),
	}
}

// grace is how long a contender's releases in the background may take. It is
// much less than the expiry, after which keys are gone in any case.
const grace = time.Second

// leftBehind counts the keys on all nodes once they are none, or after grace.
func leftBehind(ctx context.Context, look clients) (int64, error) {
	for end := time.Now().Add(grace); ; {
		count, err := countKeys(ctx, look)
		if err != nil || count == 0 || time.Now().After(end) {
			return count, err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func countKeys(ctx context.Context, look clients) (int64, error) {
	var count int64
	for _, c := range look {
		n, err := c.DBSize(ctx).Result()
		if err != nil {
			return 0, err
		}
		count += n
	}
	return count, nil
}

func flush(ctx context.Context, look []*redis.Client) error {
	for _, c := range look {
		if err := c.FlushAll(ctx).Err(); err != nil {
			return err
		}
	}
	return nil
}

// leftovers returns an error for every strict contender that left keys behind.
func leftovers(results []result) error {
	var errs []error
	for _, r := range results {
		if left := r.left(); r.contender.strict && left > 0 {
			errs = append(errs, fmt.Errorf("%v: %d keys left behind", r.cell, left))
		}
	}
	return errors.Join(errs...)
}

// left returns the most keys that any round left behind.
func (r result) left() int64 {
	var most int64
	for _, s := range r.samples {
		most = max(most, s.left)
	}
	return most
}

// median returns the median over the rounds of what of picks.
func median[T cmp.Ordered](r result, of func(sample) T) T {
	values := make([]T, len(r.samples))
	for i, s := range r.samples {
		values[i] = of(s)
	}
	slices.Sort(values)
	return values[(len(values)-1)/2]
}
