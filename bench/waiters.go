package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// waiterCount is how many goroutines wait, in contendProcesses processes.
const waiterCount = 1000

// waitersSettle is how long the parent process lets the goroutines wait before it starts to measure.
const waitersSettle = 500 * time.Millisecond

var waitersScene = scene{
	name: "waiters",
	about: fmt.Sprintf("%d goroutines in %d processes wait for one key, which is held all the time. Commands are per "+
		"second, on the node that has the most, by INFO commandstats, which also counts the commands that scripts call. The "+
		"column sent/s leaves out the commands that scripts call. Connections are those of all waiting processes to one node, the one that has the most. "+
		"Goroutines and memory are per waiter: the growth of a process after its goroutines began to wait, divided by "+
		"their number, in the process that grew most. Memory is measured after a garbage collection. The goroutine that "+
		"calls Lock is counted. Gave up counts the Locks that "+
		"failed; the goroutine then calls Lock again. Keys left are on all nodes at the end, when nobody holds the lock or "+
		"waits for it.", waiterCount, contendProcesses),
	columns: []column{
		{title: "commands/s", key: "commands", format: whole},
		{title: "sent/s", key: "sent", format: whole},
		{title: "set/s", key: "set", format: whole},
		{title: "evalsha/s", key: "evalsha", format: whole},
		{title: "x " + defaults, key: "commands", format: digits, base: toLibrary(defaults)},
		{title: "connections", key: "connections", format: whole},
		{title: "goroutines each", key: "goroutines", format: cents},
		{title: "heap bytes each", key: "heap", format: whole},
		{title: "stack bytes each", key: "stack", format: whole},
		{title: "gave up", key: "gave_up", format: whole},
		{title: "keys left", key: "left", format: whole},
	},
	cells: func(p plan) []cell {
		list := named(ours, oursFair, defaults)
		if p.quick {
			list = named(ours, defaults)
		}
		cells := grid("waiters", "", []int{waiterCount}, list, measureWaiters)
		for i := range cells {
			cells[i].rounds = 1
		}
		return cells
	},
}

// A waitersOrder tells a child process which lock to wait for, and with how many goroutines.
type waitersOrder struct {
	Library    string
	Addrs      []string
	Key        string
	Goroutines int
	Expiry     time.Duration
}

// A waitersEnd is the last answer of a waiting process.
type waitersEnd struct{ Acquired, GaveUp int64 }

func measureWaiters(ctx context.Context, l *lab, c cell) (f figures, err error) {
	holder, err := c.contender.start(ctx, l.addrs, heldTTL)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, holder.Close()) }()
	key := freshKey()
	lock, err := holder.Lock(ctx, key)
	if err != nil {
		return nil, err
	}
	before, err := l.connections(ctx)
	if err != nil {
		return nil, err
	}
	f, err = l.wait(ctx, before, waitersOrder{
		Library: c.Library, Addrs: l.addrs, Key: key, Goroutines: c.Goroutines / contendProcesses,
		Expiry: l.plan.expiry,
	})
	if err != nil {
		return nil, err
	}
	if err := unlock(ctx, lock); err != nil {
		return nil, err
	}
	left, err := l.leftBehind(ctx)
	f["left"] = float64(left)
	return f, err
}

// wait starts the waiting processes, measures them, and ends them.
func (l *lab) wait(ctx context.Context, connected []float64, order waitersOrder) (f figures, err error) {
	var children []*child
	defer func() {
		for _, c := range children {
			err = errors.Join(err, c.end())
		}
	}()
	for range contendProcesses {
		c, err := startChild(ctx, "waiters", order)
		if err != nil {
			return nil, err
		}
		children = append(children, c)
	}
	// Wait until all processes are ready, then let them start their goroutines.
	if _, err := answers[string](children, false); err != nil {
		return nil, err
	}
	if _, err := answers[string](children, true); err != nil {
		return nil, err
	}
	time.Sleep(waitersSettle)
	f, err = l.commandsFor(ctx, l.plan.contend, named(order.Library)[0].inScripts)
	if err != nil {
		return nil, err
	}
	now, err := l.connections(ctx)
	if err != nil {
		return nil, err
	}
	for i := range now {
		f["connections"] = max(f["connections"], now[i]-connected[i])
	}
	weights, err := answers[figures](children, true)
	if err != nil {
		return nil, err
	}
	for _, w := range weights {
		for key, v := range w {
			if old, ok := f[key]; !ok || v > old {
				f[key] = v
			}
		}
	}
	ends, err := answers[waitersEnd](children, true)
	for _, e := range ends {
		f["gave_up"] += float64(e.GaveUp)
		if e.Acquired > 0 {
			err = errors.Join(err, errors.New("a waiter has acquired the lock that is held"))
		}
	}
	return f, err
}

// answers returns the next answer of each child. If begin is set, it first lets all children continue,
// so that they work at the same time.
func answers[T any](children []*child, begin bool) ([]T, error) {
	if begin {
		for _, c := range children {
			if err := c.begin(); err != nil {
				return nil, err
			}
		}
	}
	list := make([]T, len(children))
	for i, c := range children {
		if err := c.receive(&list[i]); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// commandsFor waits for d, and returns how often per second the nodes executed each command meanwhile.
// Each figure is the highest of any node.
func (l *lab) commandsFor(ctx context.Context, d time.Duration, inScripts []string) (figures, error) {
	before, err := l.calls(ctx)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	time.Sleep(d)
	after, err := l.calls(ctx)
	if err != nil {
		return nil, err
	}
	f := figures{"pairs": time.Since(start).Seconds()} // addCommands divides by it
	for i := range after {
		f.addCommands(before[i], after[i], inScripts)
	}
	delete(f, "pairs")
	return f, nil
}

// connections returns how many clients each node has.
func (l *lab) connections(ctx context.Context) ([]float64, error) {
	list := make([]float64, len(l.look))
	for i, c := range l.look {
		text, err := c.Info(ctx, "clients").Result()
		if err != nil {
			return nil, fmt.Errorf("INFO clients: %w", err)
		}
		if list[i], err = strconv.ParseFloat(parseInfo(text)["connected_clients"], 64); err != nil {
			return nil, fmt.Errorf("INFO clients: %w", err)
		}
	}
	return list, nil
}

// waitersChild runs in the child process. Each line of input starts its next step: to wait, to
// report its memory, and to end.
func waitersChild(ctx context.Context, order waitersOrder, in io.Reader, out io.Writer) (err error) {
	lib, err := startNamed(ctx, order.Library, order.Addrs, order.Expiry)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lib.Close()) }()
	enc, lines := json.NewEncoder(out), bufio.NewReader(in)
	answer := func(what any) error {
		if err := enc.Encode(what); err != nil {
			return err
		}
		_, err := lines.ReadString('\n')
		return err // not nil if the parent is gone
	}
	if err := answer("ready"); err != nil {
		return err
	}
	before := weigh()
	end := waitFor(ctx, lib, order.Key, order.Goroutines)
	if err := answer("waiting"); err != nil {
		return err
	}
	after, n := weigh(), float64(order.Goroutines)
	if err := answer(figures{
		"heap":       (after.heap - before.heap) / n,
		"stack":      (after.stack - before.stack) / n,
		"goroutines": (after.goroutines - before.goroutines) / n,
	}); err != nil {
		return err
	}
	return enc.Encode(end())
}

// waitFor starts goroutines that call Lock for key, which is held, again and again. The caller must call
// end, which stops them and returns what they have counted.
func waitFor(ctx context.Context, lib library, key string, goroutines int) (end func() waitersEnd) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	var acquired, gaveUp atomic.Int64
	for range goroutines {
		wg.Go(func() {
			for ctx.Err() == nil {
				lock, err := lib.Lock(ctx, key)
				switch {
				case err == nil:
					acquired.Add(1)
					_ = unlock(context.WithoutCancel(ctx), lock)
				case ctx.Err() == nil:
					gaveUp.Add(1)
				}
			}
		})
	}
	return func() waitersEnd {
		cancel()
		wg.Wait()
		return waitersEnd{Acquired: acquired.Load(), GaveUp: gaveUp.Load()}
	}
}
