package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/observe"
)

// The unlocking process holds the lock for a random time in this range while the other process waits.
// So the release comes at a random moment between two attempts of a waiter that polls.
const (
	leastHeld = 20 * time.Millisecond
	mostHeld  = 120 * time.Millisecond
)

var wakeupScene = scene{
	name: "wakeup",
	about: fmt.Sprintf("One process holds a lock for %v to %v and then unlocks it; a single waiter, in another process, waits "+
		"for it. Times run until the waiter's Lock returns: since Unlock was called, and since Unlock returned, which may "+
		"be after the waiter's Lock. Both processes read the same clock. A trip is the p50 of Lock of this library on free "+
		"keys on all five nodes, measured in the waiter's process, which idles before each one for as long as a lock is "+
		"held. Futile counts the waiter's failed attempts per lock. The column after Unlock counts those of them that began "+
		"after Unlock was called. A Lock that has waited for %v is called again, and the whole wait counts.",
		leastHeld, mostHeld, longestWait),
	columns: []column{
		{title: "since call p50 µs", key: "call_p50", format: whole},
		{title: "p99 µs", key: "call_p99", format: whole},
		{title: "max µs", key: "call_max", format: whole},
		{title: "p50 trips", key: "call_p50_trips", format: cents},
		{title: "p99 trips", key: "call_p99_trips", format: cents},
		{title: "since return p50 µs", key: "return_p50", format: whole},
		{title: "p99 µs", key: "return_p99", format: whole},
		{title: "p50 trips", key: "return_p50_trips", format: cents},
		{title: "p99 trips", key: "return_p99_trips", format: cents},
		{title: "Unlock p50 µs", key: "unlock_p50", format: whole},
		{title: "trip µs", key: "trip", format: whole},
		{title: "futile", key: "futile", format: cents},
		{title: "after Unlock", key: "futile_after", format: cents},
		{title: "locks", key: "locks", format: whole},
	},
	cells: func(p plan) []cell {
		list := named(ours, oursFair, defaults, oneKey)
		if p.quick {
			list = named(ours, defaults)
		}
		cells := grid("wakeup", "", []int{1}, list, measureWakeup)
		for i := range cells {
			cells[i].rounds = 1
		}
		return cells
	},
}

// A wakeOrder is the order for the waiting process.
type wakeOrder struct {
	Library string
	Addrs   []string
	Key     string
	Expiry  time.Duration
	Trips   int // round trips to measure
}

// A wakeReady is the first answer of the waiting process.
type wakeReady struct {
	Trip   time.Duration
	Counts bool // the process counts its futile attempts
}

// A wakeAnswer is the answer of the waiting process for each lock. Times are in ns of the wall clock,
// which all processes of a machine share.
type wakeAnswer struct {
	Called, Locked int64
	Futile         []int64 // when futile attempts began
}

func measureWakeup(ctx context.Context, l *lab, c cell) (f figures, err error) {
	lib, err := c.contender.start(ctx, l.addrs, l.plan.expiry)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, lib.Close()) }()
	key := freshKey()
	order := wakeOrder{
		Library: c.Library, Addrs: l.addrs, Key: key,
		Expiry: l.plan.expiry, Trips: max(l.plan.wakeups/4, 1),
	}
	waiter, err := startChild(ctx, "wakeup", order)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, waiter.end()) }()
	var ready wakeReady
	if err := waiter.receive(&ready); err != nil {
		return nil, err
	}
	var w wakeups
	const warmUp = 3
	for i := range warmUp + l.plan.wakeups {
		if i == warmUp {
			w = wakeups{}
		}
		if err := w.once(ctx, lib, key, waiter); err != nil {
			return nil, err
		}
	}
	return w.figures(ready), nil
}

func holdTime() time.Duration { return leastHeld + rand.N(mostHeld-leastHeld) }

// wakeups are the observations of the unlocking process.
type wakeups struct {
	sinceCall, sinceReturn, unlocks []time.Duration
	futile, futileAfter             int
}

// once locks key, lets the waiter wait for it, and unlocks it.
func (w *wakeups) once(ctx context.Context, lib library, key string, waiter *child) error {
	lock, err := lockAtLast(ctx, lib, key)
	if err != nil {
		return err
	}
	if err := waiter.begin(); err != nil {
		return err
	}
	time.Sleep(holdTime())
	called := time.Now().UnixNano()
	if err := unlock(ctx, lock); err != nil {
		return err
	}
	returned := time.Now().UnixNano()
	var a wakeAnswer
	if err := waiter.receive(&a); err != nil {
		return err
	}
	w.add(called, returned, a)
	return nil
}

// add notes one lock, unless the waiter called Lock only after Unlock was called.
func (w *wakeups) add(called, returned int64, a wakeAnswer) {
	if a.Called >= called {
		return
	}
	w.sinceCall = append(w.sinceCall, time.Duration(a.Locked-called))
	w.sinceReturn = append(w.sinceReturn, time.Duration(a.Locked-returned))
	w.unlocks = append(w.unlocks, time.Duration(returned-called))
	w.futile += len(a.Futile)
	for _, began := range a.Futile {
		if began > called {
			w.futileAfter++
		}
	}
}

func (w *wakeups) figures(ready wakeReady) figures {
	n := len(w.sinceCall)
	f := figures{"locks": float64(n), "trip": micros(ready.Trip)}
	if n == 0 {
		return f
	}
	f.addTimes("call", w.sinceCall)
	f.addTimes("return", w.sinceReturn)
	f.addTimes("unlock", w.unlocks)
	for _, key := range []string{"call_p50", "call_p99", "return_p50", "return_p99"} {
		f[key+"_trips"] = f[key] / f["trip"]
	}
	if ready.Counts {
		f["futile"], f["futile_after"] = float64(w.futile)/float64(n), float64(w.futileAfter)/float64(n)
	}
	return f
}

// longestWait is the time after which lockAtLast cancels a Lock and calls it again. On a busy machine
// rueidislock does not wake some waiters. Without longestWait such a waiter would wait until the end of
// the cell, although the lock is free.
const longestWait = 10 * time.Second

// lockAtLast calls Lock until it succeeds.
func lockAtLast(ctx context.Context, lib library, key string) (held, error) {
	for {
		// each is not canceled after a success: that would end a lock of rueidislock.
		each, cancel := context.WithCancel(ctx)
		bound := time.AfterFunc(longestWait, cancel)
		lock, err := lib.Lock(each, key)
		switch inTime := bound.Stop(); {
		case err == nil && inTime:
			return lock, nil
		case err == nil:
			err = unlock(ctx, lock)
		}
		cancel()
		if ctx.Err() != nil {
			return nil, errors.Join(err, ctx.Err())
		}
	}
}

// wakeupChild runs in the waiting process. For each line of input it locks and unlocks once.
func wakeupChild(ctx context.Context, order wakeOrder, in io.Reader, out io.Writer) (err error) {
	lib, err := startNamed(ctx, order.Library, order.Addrs, order.Expiry)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lib.Close()) }()
	var seen futile
	o, counts := lib.(*oursLibrary)
	if counts {
		o.rs = o.rs.With(redsync.WithHooks(&observe.Hooks{Attempt: seen.attempted}))
	}
	trip, err := measureTrip(ctx, order)
	if err != nil {
		return err
	}
	enc, lines := json.NewEncoder(out), bufio.NewScanner(in)
	if err := enc.Encode(wakeReady{Trip: trip, Counts: counts}); err != nil {
		return err
	}
	for lines.Scan() {
		called := time.Now().UnixNano()
		lock, err := lockAtLast(ctx, lib, order.Key)
		if err != nil {
			return err
		}
		locked := time.Now().UnixNano()
		if err := unlock(ctx, lock); err != nil {
			return err
		}
		if err := enc.Encode(wakeAnswer{Called: called, Locked: locked, Futile: seen.take()}); err != nil {
			return err
		}
	}
	return lines.Err()
}

// measureTrip returns the p50 of Lock of this library on free keys: about one round trip to a quorum.
func measureTrip(ctx context.Context, order wakeOrder) (trip time.Duration, err error) {
	lib, err := startNamed(ctx, ours, order.Addrs, order.Expiry)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, lib.Close()) }()
	times := make([]time.Duration, order.Trips)
	for i := range times {
		time.Sleep(holdTime())
		start := time.Now()
		lock, err := lib.Lock(ctx, fmt.Sprintf("bench:trip:%d", start.UnixNano()))
		if err != nil {
			return 0, err
		}
		times[i] = time.Since(start)
		if err := unlock(ctx, lock); err != nil {
			return 0, err
		}
	}
	slices.Sort(times)
	return percentile(times, 0.50), nil
}

// futile collects when failed attempts began.
type futile struct {
	mu    sync.Mutex
	began []int64
}

// attempted is observe.Hooks.Attempt.
func (f *futile) attempted(_ context.Context, a observe.Attempt) {
	if a.Err == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.began = append(f.began, time.Now().Add(-a.Took).UnixNano())
}

// take returns the times collected since the last call of take.
func (f *futile) take() []int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	began := f.began
	f.began = nil
	return began
}
