package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
)

var readersScene = scene{
	name: "readers",
	about: "The load of distinct keys, with readers and with plain locks. No two readers have a name in common, " +
		"so they share nothing: the difference is the extra cost of a reader's lock.",
	columns: againstPlain("plain"),
	cells: func(p plan) []cell {
		widths := []int{1, 16, 128}
		if p.quick {
			widths = widths[2:]
		}
		return grid("readers", "", widths, named(ours, oursShared), measureDistinct)
	},
}

// manyReaders is the number of processes in cells of readers-one with several processes.
const manyReaders = 8

// The variants of the scene readers-one.
const (
	inOne   = "one"
	inEight = "eight"
)

var readersOneScene = scene{
	name: "readers-one",
	about: "All goroutines lock and unlock one name in turn, without holding it for a time: readers, and plain locks, which " +
		"exclude each other. WithHandOver(false) means that each plain lock goes to the nodes, as it does when the waiters are in other " +
		"processes. Wait is the time of Lock, as in contention. Commands are per second, on the node that has the most, by INFO commandstats, " +
		"which also counts the commands that scripts call. Entries are the attempts to enter a node as a reader, per second: half of " +
		"the scripts that the node has run, because each attempt sends one script to enter and one to leave.",
	variant: "processes",
	columns: []column{
		{title: "locks/s", key: "rate", format: whole},
		{title: "x WithHandOver(false)", key: "rate", format: digits, base: toLibrary(oursApart)},
		{title: "wait p50 ms", key: "wait_p50", format: millisDigits},
		{title: "p99 ms", key: "wait_p99", format: millisDigits},
		{title: "max ms", key: "wait_max", format: millis},
		{title: "fewest / mean", key: "fewest_share", format: cents},
		{title: "commands/s", key: "commands", format: whole},
		{title: "evalsha/s", key: "evalsha", format: whole},
		{title: "entries/s", key: "entries", format: whole},
		{title: "failed", key: "failed", format: whole},
	},
	cells: func(p plan) []cell {
		one, eight := []int{1, 16, 128, 1024}, []int{128, 1024}
		if p.quick {
			one, eight = one[2:3], eight[:1]
		}
		list := named(oursShared, ours, oursApart)
		return slices.Concat(
			grid("readers-one", inOne, one, list, measureReadersOfOne),
			grid("readers-one", inEight, eight, list, measureReadersOfOne),
		)
	},
}

func millisDigits(us float64) string { return digits(us / 1000) }

// measureReadersOfOne measures a cell of readers-one in one process, which is this one, or in manyReaders processes.
func measureReadersOfOne(ctx context.Context, l *lab, c cell) (figures, error) {
	var before []map[string]int64
	var each []waits
	ready := func() (err error) {
		before, err = l.calls(ctx)
		return err
	}
	var err error
	if c.Variant == inEight {
		each, err = contendInProcesses(ctx, manyReaders, contendOrder{
			Library: c.Library, Addrs: l.addrs, Key: freshKey(), Goroutines: c.Goroutines / manyReaders,
			Expiry: l.plan.expiry, Time: l.plan.cell,
		}, ready)
	} else {
		each, err = contendHere(ctx, l, c, ready)
	}
	if err != nil {
		return nil, err
	}
	after, err := l.calls(ctx)
	if err != nil {
		return nil, err
	}
	f := joinWaits(each).figures(l.plan.cell)
	f["pairs"] = l.plan.cell.Seconds() // addCommands divides by it
	for i := range after {
		f.addCommands(before[i], after[i], c.contender.inScripts)
	}
	delete(f, "pairs")
	if c.Library == oursShared {
		f["entries"] = f["evalsha"] / 2
	}
	return f, nil
}

// contendHere is contendInProcesses for this process alone.
func contendHere(ctx context.Context, l *lab, c cell, ready func() error) (each []waits, err error) {
	lib, err := l.open(ctx, c, l.addrs)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, lib.Close()) }()
	if err := ready(); err != nil {
		return nil, err
	}
	return []waits{*contend(ctx, lib, freshKey(), c.Goroutines, 0, l.plan.cell)}, nil
}

// The load of the scene readers-writer.
const (
	visitWidth = 64 // readers, in contendProcesses processes
	visitHold  = 5 * time.Millisecond
	visitPause = 20 * time.Millisecond // between two visits of the writer
)

// aNameEach marks in the report that each reader locks a name of its own, and the writer all of these names.
const aNameEach = ", a name each"

var readersWriterScene = scene{
	name: "readers-writer",
	about: fmt.Sprintf("%d goroutines in %d processes read, and one goroutine in a process of its own writes. Each locks the name, "+
		"holds it for %v and unlocks it. The readers begin again at once, and the writer %v later. WithShared means that the "+
		"readers have this option. A name each means plain locks: each reader locks a name of its own, and the writer locks the %d names of all "+
		"readers at once. In the other rows all take plain locks on one name. Waits are the times until the name is locked; if Lock "+
		"fails, the goroutine calls it again, and the wait goes on. max includes the waits that the end of the measurement "+
		"cut off; p50 and p99 leave them out. The run fails if somebody else wrote while a reader read or a writer wrote.",
		visitWidth, contendProcesses, visitHold, visitPause, visitWidth),
	columns: []column{
		{title: "reads/s", key: "rate", format: whole},
		{title: "x plain", key: "rate", format: digits, base: toLibrary(ours)},
		{title: "writes/s", key: "writes", format: tenth},
		{title: "writer p50 ms", key: "writer_p50", format: millis},
		{title: "p99 ms", key: "writer_p99", format: millis},
		{title: "max ms", key: "writer_max", format: millis},
		{title: "reader p50 ms", key: "wait_p50", format: millis},
		{title: "p99 ms", key: "wait_p99", format: millis},
		{title: "max ms", key: "wait_max", format: millis},
		{title: "failed", key: "failed", format: whole},
	},
	cells: func(p plan) []cell {
		var cells []cell
		add := func(writer, readers string, mark string, ownNames bool) {
			more := grid("readers-writer", "", []int{visitWidth}, named(readers), measureVisits(writer, ownNames))
			more[0].Library += mark
			cells = append(cells, more...)
		}
		add(ours, oursShared, "", false)
		add(oursMany, ours, aNameEach, true)
		add(ours, ours, "", false)
		if !p.quick {
			add(defaults, defaults, "", false)
		}
		return cells
	},
}

// A visitOrder tells a child process how to visit the account of a ledger.
type visitOrder struct {
	bookOrder

	Keys   []string // the name that each goroutine locks
	Writer int64    // the holder that the process notes in the ledger; 0 means that it reads

	Hold, Pause, Time time.Duration
}

// measureVisits measures a cell of readers-writer. The contender of the cell makes the locks of the readers, and the
// contender with the name writer makes the locks of the writer. ownNames says that each reader locks a name of its own.
func measureVisits(writer string, ownNames bool) measuring {
	return func(ctx context.Context, l *lab, c cell) (f figures, err error) {
		book, err := createLedger(l.servers.dir, 1)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, book.close()) }()
		key := freshKey()
		keys := slices.Repeat([]string{key}, visitWidth)
		if ownNames {
			keys = severalNames(key, visitWidth)
		}
		orders := make([]visitOrder, contendProcesses+1)
		for i := range orders {
			orders[i] = visitOrder{
				bookOrder: bookOrder{Library: c.contender.name, Addrs: l.addrs, Expiry: l.plan.expiry, Ledger: book.path()},
				Hold:      visitHold, Time: l.plan.contend,
			}
		}
		for i := range keys {
			o := &orders[i%contendProcesses]
			o.Keys = append(o.Keys, keys[i])
		}
		last := &orders[contendProcesses]
		last.Library, last.Keys, last.Writer, last.Pause = writer, []string{key}, 1, visitPause
		answered, err := inProcesses[bookAnswer](ctx, len(orders), "visits", func(i int) any { return orders[i] }, nil)
		if err != nil {
			return nil, err
		}
		each, err := waitsOf(answered)
		if err != nil {
			return nil, err
		}
		writes := each[contendProcesses]
		if err := book.counts(len(writes.Times)); err != nil {
			return nil, err
		}
		return visitFigures(joinWaits(each[:contendProcesses]), &writes, l.plan.contend), nil
	}
}

// visitFigures returns the figures of the waits of readers and of a writer in the time d.
func visitFigures(readers, writer *waits, d time.Duration) figures {
	f := readers.figures(d)
	f["writes"] = float64(len(writer.Times)) / d.Seconds()
	f["failed"] += float64(writer.Failed)
	f.addWaits("writer", writer)
	return f
}

// visitsChild runs in the child process.
func visitsChild(ctx context.Context, order visitOrder, in io.Reader, out io.Writer) error {
	return onLedger(ctx, order.bookOrder, in, out, func(lib library, book *ledger) (*waits, error) {
		return visitAll(ctx, lib, book, order)
	})
}

// visitAll runs the goroutines of an order until its time has passed, or until one of them notices that somebody
// wrote during its visit.
func visitAll(ctx context.Context, lib library, book *ledger, order visitOrder) (*waits, error) {
	return together(ctx, len(order.Keys), order.Time, func(ctx context.Context, i int) (waits, error) {
		v := visitor{visitOrder: order, lib: lib, book: book, key: order.Keys[i]}
		err := v.run(ctx)
		return v.waits, err
	})
}

// A visitor is one goroutine that reads or writes.
type visitor struct {
	visitOrder
	waits
	lib  library
	book *ledger
	key  string
}

// run visits the account again and again until ctx is done.
func (v *visitor) run(ctx context.Context) error {
	count := 0
	defer func() { v.Counts = []int{count} }()
	for ctx.Err() == nil {
		lock := v.await(ctx, func() (held, error) { return v.lib.Lock(ctx, v.key) })
		if lock == nil {
			break
		}
		count++
		err := v.visit()
		// Unlock even if ctx is done. Ignore the result: if a key stays, a later Lock waits until it expires.
		_, _ = lock.UnlockContext(context.WithoutCancel(ctx))
		if err != nil {
			return err
		}
		time.Sleep(v.Pause)
	}
	return nil
}

// visit reads or writes the account, which is locked. It returns an error if somebody else writes meanwhile.
func (v *visitor) visit() error {
	before, err := v.book.read(0)
	if err != nil {
		return err
	}
	if before.Holder != 0 {
		return fmt.Errorf("%w: %d writes", errTwoHolders, before.Holder)
	}
	meanwhile := account{Balance: before.Balance, Holder: v.Writer}
	if v.Writer != 0 {
		if err := v.book.write(0, meanwhile); err != nil {
			return err
		}
	}
	time.Sleep(v.Hold)
	switch after, err := v.book.read(0); {
	case err != nil:
		return err
	case after != meanwhile:
		return fmt.Errorf("%w: the account is %+v, and was %+v", errTwoHolders, after, meanwhile)
	case v.Writer == 0:
		return nil
	}
	return v.book.write(0, account{Balance: before.Balance + 1})
}
