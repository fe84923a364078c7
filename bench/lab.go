package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// A lab holds what all measurements share.
type lab struct {
	plan    plan
	servers *servers
	addrs   []string
	look    clients // for INFO, FLUSHALL and counting keys

	costPrograms map[string]string // by checkout: see costProgram
	remove       []string          // folders, at the end
}

func newLab(p plan, s *servers) *lab {
	l := &lab{plan: p, servers: s, addrs: s.addresses(), costPrograms: map[string]string{}}
	l.look = dial(l.addrs)
	return l
}

func (l *lab) close() error {
	err := l.look.Close()
	for _, dir := range l.remove {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	return err
}

// A result is all samples of a cell, one per round.
type result struct {
	cell    cell
	samples []figures
}

// measureAll measures all cells of the plan.
func measureAll(ctx context.Context, l *lab, log io.Writer) ([]*result, error) {
	var results []*result
	for _, sc := range l.plan.scenes {
		for _, c := range sc.cells(l.plan) {
			results = append(results, &result{cell: c})
		}
	}
	return results, l.sample(ctx, results, log)
}

// sample takes a sample of every cell in each round, up to the cell's limit of rounds. Contenders
// take turns within a round, so that a change of the machine's speed affects all of them.
func (l *lab) sample(ctx context.Context, results []*result, log io.Writer) error {
	for round := range l.plan.rounds {
		for _, r := range results {
			if r.cell.rounds > 0 && round >= r.cell.rounds {
				continue
			}
			start := time.Now()
			f, err := sampleOnce(ctx, l, r.cell)
			if err != nil {
				return fmt.Errorf("%v: %w", r.cell.id, err)
			}
			r.samples = append(r.samples, f)
			if _, err := fmt.Fprintf(log, "round %d of %d: %v: %.1f s\n",
				round+1, l.plan.rounds, r.cell.id, time.Since(start).Seconds()); err != nil {
				return err
			}
		}
	}
	return nil
}

// longestCell bounds the time of a cell, in case it hangs.
const longestCell = 5 * time.Minute

// sampleOnce measures a cell on empty nodes. The context of the load has no deadline, because
// libraries behave differently with a deadline.
func sampleOnce(ctx context.Context, l *lab, c cell) (figures, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	bound := time.AfterFunc(longestCell, func() { cancel(errors.New("the cell took too long")) })
	defer bound.Stop()
	if err := flush(ctx, l.look); err != nil {
		return nil, err
	}
	runtime.GC()
	f, err := c.measure(ctx, l, c)
	if err == nil {
		err = context.Cause(ctx)
	}
	return f, err
}

// open starts c's contender and warms it up: for a while c.Goroutines goroutines lock and unlock fresh
// keys. The caller must close the library.
func (l *lab) open(ctx context.Context, c cell, addrs []string) (library, error) {
	lib, err := c.contender.start(ctx, addrs, l.plan.expiry)
	if err != nil {
		return nil, err
	}
	playPairs(ctx, lib, c.Goroutines, l.plan.warmUp)
	return lib, nil
}

// leftBehind waits until no keys are left on any node, or until a grace period is over, and
// returns the number of keys. The grace period is much shorter than the expiry, after which keys
// would be gone anyway.
func (l *lab) leftBehind(ctx context.Context) (int64, error) {
	for end := time.Now().Add(l.plan.grace); ; {
		count, err := countKeys(ctx, l.look)
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

// verdict returns an error if a strict contender left keys behind, or failed to lock or unlock, in the
// scenes distinct, one-node, clusters, names, readers and permits, and in curves.
func verdict(results []*result) error {
	var errs []error
	for _, r := range results {
		healthy := []string{distinctScene.name, namesScene.name, readersScene.name, permitsScene.name, oneNodeScene.name, clustersScene.name}
		if !slices.Contains(healthy, r.cell.Scene) && !strings.HasPrefix(r.cell.Scene, curve) || !r.cell.contender.strict {
			continue
		}
		if left := r.most("left"); left > 0 {
			errs = append(errs, fmt.Errorf("%v: %.0f keys left behind", r.cell.id, left))
		}
		if failed := r.most("failed"); failed > 0 {
			errs = append(errs, fmt.Errorf("%v: %.0f operations failed", r.cell.id, failed))
		}
	}
	return errors.Join(errs...)
}
