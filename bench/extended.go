package main

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/observe"
)

// extendedLoad is the number of goroutines that lock and unlock while watchdogs extend other locks.
const extendedLoad = 16

var extendedScene = scene{
	name: "extended",
	about: "Many locks are held at once for several expiries, and extended all the while; in the second half " +
		"16 goroutines lock and unlock other keys at the same time. Memory is per lock, after a garbage collection, and " +
		"includes the lock's key. CPU is that of the first half, in percent of one core. Least left is the shortest " +
		"time, over both halves, that a lock still had when it was extended.",
	columns: []column{
		{title: "locks", key: "locks", format: whole},
		{title: "heap bytes each", key: "heap", format: whole},
		{title: "stack bytes each", key: "stack", format: whole},
		{title: "goroutines each", key: "goroutines", format: cents},
		{title: "client CPU %", key: "client", format: tenth},
		{title: "server CPU %", key: "server", format: tenth},
		{title: "extended/s", key: "extended", format: whole},
		{title: "least left ms", key: "left", format: whole},
		{title: "pairs/s beside", key: "rate", format: whole},
		{title: "lost", key: "lost", format: whole},
	},
	cells: func(p plan) []cell {
		list := named(oursWatched, oneKey)
		if p.quick {
			list = list[:1]
		}
		cells := grid("extended", "", []int{extendedLoad}, list, measureExtended)
		for i := range cells {
			cells[i].rounds = 1
		}
		return cells
	},
}

// An extensions counts the extensions and losses of watched locks. least is the shortest validity, in
// ns, that a lock still had when it was extended; 0 means that none has been extended yet.
type extensions struct {
	done, lost, least atomic.Int64
}

func (e *extensions) hooks() *observe.Hooks {
	return &observe.Hooks{
		Extended: e.extended,
		Lost:     func(context.Context, observe.Lost) { e.lost.Add(1) },
	}
}

func (e *extensions) extended(_ context.Context, x observe.Extended) {
	if x.Err != nil {
		return
	}
	e.done.Add(1)
	for {
		least := e.least.Load()
		if least != 0 && least <= int64(x.Left) || e.least.CompareAndSwap(least, int64(x.Left)) {
			return
		}
	}
}

// watchedLibrary is this library WithWatchdog.
type watchedLibrary struct {
	*oursLibrary
	extensions extensions
}

func openWatched(addrs []string, ttl time.Duration) (library, error) {
	w := &watchedLibrary{oursLibrary: dialOurs(addrs, ttl)}
	w.rs = w.rs.With(redsync.WithWatchdog(), redsync.WithHooks(w.extensions.hooks()))
	return w, nil
}

func measureExtended(ctx context.Context, l *lab, c cell) (f figures, err error) {
	lib, err := c.contender.start(ctx, l.addrs, l.plan.expiry)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, lib.Close()) }()
	playPairs(ctx, lib, extendedLoad, l.plan.warmUp)
	locks := make([]held, l.plan.held)
	before := weigh()
	if err := acquireAll(ctx, lib, locks); err != nil {
		return nil, err
	}
	f = figures{"locks": float64(len(locks))}
	if err := l.idleShare(ctx, f, l.plan.extended); err != nil {
		return nil, err
	}
	after := weigh()
	n := float64(len(locks))
	f["heap"], f["stack"] = (after.heap-before.heap)/n, (after.stack-before.stack)/n
	f["goroutines"] = (after.goroutines - before.goroutines) / n
	start := time.Now()
	beside := playPairs(ctx, lib, c.Goroutines, l.plan.extended)
	f["rate"] = float64(len(beside.locks)) / time.Since(start).Seconds()
	if w, ok := lib.(*watchedLibrary); ok {
		e := &w.extensions
		f["left"] = float64(time.Duration(e.least.Load()).Milliseconds())
		f["extended"] = float64(e.done.Load()) / (2 * l.plan.extended.Seconds())
		f["lost"] = float64(e.lost.Load())
	}
	return f, errors.Join(releaseAll(ctx, locks), beside.firstErr)
}

// idleShare waits for d, and sets in f the CPU used meanwhile, in percent of one core.
func (l *lab) idleShare(ctx context.Context, f figures, d time.Duration) error {
	start := time.Now()
	before, err := l.usage(ctx)
	if err != nil {
		return err
	}
	select {
	case <-time.After(d):
	case <-ctx.Done():
		return ctx.Err()
	}
	after, err := l.usage(ctx)
	elapsed := time.Since(start)
	f["client"] = 100 * float64(after.client-before.client) / float64(elapsed)
	f["server"] = 100 * float64(after.server-before.server) / float64(elapsed)
	return err
}
