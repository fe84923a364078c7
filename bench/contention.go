package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"
)

var contentionScene = scene{
	name: "contention",
	about: "Goroutines lock one key, hold it, unlock it and begin again. Wait is the time from the " +
		"call of Lock until the lock is held; if Lock fails, the goroutine calls it again, and the wait goes on. max " +
		"includes the waits that the end of the measurement cut off; p50 and p99 leave them out. Fewest and most are " +
		"acquisitions per goroutine, and the mean is over all goroutines.",
	variant: "processes, hold",
	columns: []column{
		{title: "acquired/s", key: "rate", format: whole},
		{title: "x " + defaults, key: "rate", format: digits, base: toLibrary(defaults)},
		{title: "wait p50 ms", key: "wait_p50", format: millis},
		{title: "p99 ms", key: "wait_p99", format: millis},
		{title: "p99 x " + defaults, key: "wait_p99", format: digits, base: toLibrary(defaults)},
		{title: "max ms", key: "wait_max", format: millis},
		{title: "fewest", key: "fewest", format: whole},
		{title: "most", key: "most", format: whole},
		{title: "fewest / mean", key: "fewest_share", format: cents},
		{title: "failed", key: "failed", format: whole},
	},
	cells: contentionCells,
}

func millis(us float64) string { return tenth(us / 1000) }

// contendProcesses is the number of processes in cells with several processes.
const contendProcesses = 4

func contentionCells(p plan) []cell {
	list := named(ours, oursApart, oursFair, defaults, oneKey)
	holds, widths := []time.Duration{0, time.Millisecond}, []int{8, 32}
	if p.quick {
		holds, widths = holds[1:], widths[:1]
	}
	var cells []cell
	for _, hold := range holds {
		one := fmt.Sprintf("one, %v", hold)
		cells = append(cells, grid("contention", one, widths, list, measureContention(hold))...)
		many := fmt.Sprintf("four, %v", hold)
		cells = append(cells, grid("contention", many, []int{16}, list, measureProcesses(hold))...)
	}
	for i := range cells {
		cells[i].rounds = 1
	}
	return cells
}

// waits are the observations of contending goroutines.
type waits struct {
	Counts []int           // acquisitions, by goroutine
	Times  []time.Duration // waits that ended with an acquisition
	CutOff []time.Duration // waits that the end of the cell cut off
	Failed int             // failed Locks

	Attempts int // attempts of all Locks, in the scenes that count them
	Split    int // attempts that failed although a node granted a permit
	AtOnce   int // the most permits that were seen held at the same time, in the scene permits-queue
}

func measureContention(hold time.Duration) measuring {
	return func(ctx context.Context, l *lab, c cell) (f figures, err error) {
		lib, err := c.contender.start(ctx, l.addrs, l.plan.expiry)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, lib.Close()) }()
		if err := onePair(ctx, lib); err != nil {
			return nil, err
		}
		return contend(ctx, lib, freshKey(), c.Goroutines, hold, l.plan.contend).figures(l.plan.contend), nil
	}
}

func onePair(ctx context.Context, lib library) error {
	lock, err := lib.Lock(ctx, freshKey())
	if err != nil {
		return err
	}
	return unlock(ctx, lock)
}

// contend runs width goroutines that contend for key until d has passed.
func contend(ctx context.Context, lib library, key string, width int, hold, d time.Duration) *waits {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer time.AfterFunc(d, cancel).Stop()
	each := make([]waits, width)
	var wg sync.WaitGroup
	for i := range each {
		wg.Go(func() { each[i].run(ctx, lib, key, hold) })
	}
	wg.Wait()
	return joinWaits(each)
}

// run locks and unlocks key again and again until ctx is done.
func (w *waits) run(ctx context.Context, lib library, key string, hold time.Duration) {
	count := 0
	for start := time.Now(); ctx.Err() == nil; {
		lock, err := lib.Lock(ctx, key)
		switch {
		case ctx.Err() != nil:
			w.CutOff = append(w.CutOff, time.Since(start))
		case err != nil:
			w.Failed++
			continue // start stays: the next Lock belongs to the same wait
		default:
			w.Times = append(w.Times, time.Since(start))
			count++
		}
		if err == nil {
			if hold > 0 {
				time.Sleep(hold)
			}
			// A lock acquired just before ctx ended is released too. The result is not needed.
			_, _ = lock.UnlockContext(context.WithoutCancel(ctx))
		}
		start = time.Now()
	}
	w.Counts = []int{count}
}

func joinWaits(each []waits) *waits {
	all := &waits{}
	for _, w := range each {
		all.Counts = append(all.Counts, w.Counts...)
		all.Times = append(all.Times, w.Times...)
		all.CutOff = append(all.CutOff, w.CutOff...)
		all.Failed += w.Failed
		all.Attempts += w.Attempts
		all.Split += w.Split
		all.AtOnce = max(all.AtOnce, w.AtOnce)
	}
	return all
}

func (w *waits) figures(d time.Duration) figures {
	f := figures{
		"rate":   float64(len(w.Times)) / d.Seconds(),
		"failed": float64(w.Failed),
		"fewest": float64(slices.Min(w.Counts)),
		"most":   float64(slices.Max(w.Counts)),
	}
	if n := len(w.Times); n > 0 {
		f["fewest_share"] = f["fewest"] * float64(len(w.Counts)) / float64(n)
	}
	f.addWaits("wait", w)
	return f
}

// addWaits sets name_p50, name_p99 and name_max of waits. It sorts their times.
func (f figures) addWaits(name string, w *waits) {
	if len(w.Times) > 0 {
		f.addTimes(name, w.Times)
	}
	for _, t := range w.CutOff {
		f[name+"_max"] = max(f[name+"_max"], micros(t))
	}
}

// A contendOrder tells a child process how to contend for a key.
type contendOrder struct {
	Library    string
	Addrs      []string
	Key        string
	Goroutines int
	Expiry     time.Duration
	Hold, Time time.Duration
}

// measureProcesses is measureContention with the goroutines spread over contendProcesses processes.
func measureProcesses(hold time.Duration) measuring {
	return func(ctx context.Context, l *lab, c cell) (figures, error) {
		order := contendOrder{
			Library: c.Library, Addrs: l.addrs, Key: freshKey(),
			Goroutines: c.Goroutines / contendProcesses,
			Expiry:     l.plan.expiry, Hold: hold, Time: l.plan.contend,
		}
		each, err := contendInProcesses(ctx, contendProcesses, order, nil)
		if err != nil {
			return nil, err
		}
		return joinWaits(each).figures(l.plan.contend), nil
	}
}

// contendInProcesses carries out order in each of some processes at the same time. For ready see inProcesses.
func contendInProcesses(ctx context.Context, processes int, order contendOrder, ready func() error) ([]waits, error) {
	return inProcesses[waits](ctx, processes, "contend", func(int) any { return order }, ready)
}

// contendChild runs in the child process.
func contendChild(ctx context.Context, order contendOrder, in io.Reader, out io.Writer) (err error) {
	lib, err := startNamed(ctx, order.Library, order.Addrs, order.Expiry)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lib.Close()) }()
	return whenAllAreReady(in, out, func() *waits {
		return contend(ctx, lib, order.Key, order.Goroutines, order.Hold, order.Time)
	})
}

// startNamed starts the contender called name, in a child process.
func startNamed(ctx context.Context, name string, addrs []string, expiry time.Duration) (library, error) {
	list := named(name)
	if len(list) == 0 {
		return nil, fmt.Errorf("no library %q", name)
	}
	return list[0].start(ctx, addrs, expiry)
}
