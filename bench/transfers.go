package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// The load of the scene transfers.
const (
	accounts       = 100
	transferWidth  = 64 // goroutines, in contendProcesses processes
	transferWork   = time.Millisecond
	transferExpiry = 30 * time.Second // longer than all tries of redsync v4 for one lock
	mostAmount     = 10
)

// inOrder marks in the report that a transfer takes two locks on single names, the lesser name first.
const inOrder = ", in order"

var transfersScene = scene{
	name: "transfers",
	about: fmt.Sprintf("%d goroutines in %d processes move money between %d accounts. Each transfer locks two random accounts, "+
		"works for %v and unlocks them. On two names means one lock on both. In order means two locks on single names, one "+
		"after the other, the lesser name first; if the second fails, the first is unlocked. Wait is the time until both accounts are locked; if Lock "+
		"fails, the goroutine calls it again, and the wait goes on. max includes the waits that the end of the measurement "+
		"cut off; p50 and p99 leave them out. Fewest and most are transfers per goroutine, and the mean is over all goroutines. Commands are per transfer, on "+
		"the node that has the most, by INFO commandstats, which also counts the commands that scripts call. The run fails if two "+
		"transfers worked on an account at the same time, or if the sum of all balances has changed.",
		transferWidth, contendProcesses, accounts, transferWork),
	columns: []column{
		{title: "transfers/s", key: "rate", format: whole},
		{title: "x in order", key: "rate", format: digits, base: toLibrary(ours + inOrder)},
		{title: "x " + defaults, key: "rate", format: digits, base: toLibrary(defaults + inOrder)},
		{title: "wait p50 ms", key: "wait_p50", format: millis},
		{title: "p99 ms", key: "wait_p99", format: millis},
		{title: "p99 x " + defaults, key: "wait_p99", format: digits, base: toLibrary(defaults + inOrder)},
		{title: "max ms", key: "wait_max", format: millis},
		{title: "fewest", key: "fewest", format: whole},
		{title: "most", key: "most", format: whole},
		{title: "fewest / mean", key: "fewest_share", format: cents},
		{title: "commands", key: "commands", format: tenth},
		{title: "evalsha", key: "evalsha", format: cents},
		{title: "failed", key: "failed", format: whole},
	},
	cells: func(plan) []cell {
		widths := []int{transferWidth}
		cells := grid("transfers", "", widths, named(oursTwo, oursTwoFair), measureTransfers)
		singles := grid("transfers", "", widths, named(ours, oursFair, defaults), measureTransfers)
		for i := range singles {
			singles[i].Library += inOrder
		}
		return append(cells, singles...)
	},
}

// A transferOrder tells a child process how to transfer.
type transferOrder struct {
	bookOrder

	Prefix     string // with which the names of the accounts begin
	Accounts   int
	Goroutines int
	First      int64 // the holder of the first goroutine's transfers
	Work, Time time.Duration
}

// A bookOrder is the common part of all orders to child processes that work on a ledger.
type bookOrder struct {
	Library string
	Addrs   []string
	Expiry  time.Duration
	Ledger  string // its path
}

// onLedger runs do in a child process, with the library and the ledger of an order.
func onLedger(ctx context.Context, order bookOrder, in io.Reader, out io.Writer, do func(library, *ledger) (*waits, error)) (err error) {
	book, err := openLedger(order.Ledger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, book.close()) }()
	lib, err := startNamed(ctx, order.Library, order.Addrs, order.Expiry)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lib.Close()) }()
	return whenAllAreReady(in, out, func() bookAnswer { return answerOf(do(lib, book)) })
}

// A bookAnswer is the answer of a child process that works on a ledger.
type bookAnswer struct {
	Waits waits
	Error string // why the process has ended early; "" means that it has not
}

// answerOf returns the answer of a child process whose goroutines have counted w, and have ended with err.
func answerOf(w *waits, err error) bookAnswer {
	if err != nil {
		return bookAnswer{*w, err.Error()}
	}
	return bookAnswer{Waits: *w}
}

// waitsOf returns the waits of each process, and the errors of all.
func waitsOf(answered []bookAnswer) (each []waits, err error) {
	for _, a := range answered {
		if a.Error != "" {
			err = errors.Join(err, errors.New(a.Error))
		}
		each = append(each, a.Waits)
	}
	return each, err
}

func measureTransfers(ctx context.Context, l *lab, c cell) (f figures, err error) {
	book, err := createLedger(l.servers.dir, accounts)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, book.close()) }()
	order := transferOrder{
		bookOrder: bookOrder{Library: c.contender.name, Addrs: l.addrs, Expiry: transferExpiry, Ledger: book.path()},
		Prefix:    freshKey(), Accounts: accounts, Goroutines: c.Goroutines / contendProcesses,
		Work: transferWork, Time: l.plan.transfer,
	}
	before, err := l.calls(ctx)
	if err != nil {
		return nil, err
	}
	answered, err := inProcesses[bookAnswer](ctx, contendProcesses, "transfers", func(process int) any {
		o := order
		o.First = int64(1 + process*o.Goroutines)
		return o
	}, nil)
	if err != nil {
		return nil, err
	}
	each, err := waitsOf(answered)
	if err := errors.Join(err, book.audit(accounts)); err != nil {
		return nil, err
	}
	after, err := l.calls(ctx)
	if err != nil {
		return nil, err
	}
	w := joinWaits(each)
	f = w.figures(l.plan.transfer)
	f["pairs"] = float64(len(w.Times)) // addCommands divides by it
	for i := range after {
		f.addCommands(before[i], after[i], nil)
	}
	delete(f, "pairs")
	return f, nil
}

// transfersChild runs in the child process.
func transfersChild(ctx context.Context, order transferOrder, in io.Reader, out io.Writer) error {
	return onLedger(ctx, order.bookOrder, in, out, func(lib library, book *ledger) (*waits, error) {
		return moveMoney(ctx, lib, book, order)
	})
}

// moveMoney runs the goroutines of an order until its time has passed, or until one of them notices that locks
// do not exclude each other.
func moveMoney(ctx context.Context, lib library, book *ledger, order transferOrder) (*waits, error) {
	return together(ctx, order.Goroutines, order.Time, func(ctx context.Context, i int) (waits, error) {
		t := teller{transferOrder: order, lib: lib, book: book, holder: order.First + int64(i)}
		err := t.run(ctx)
		return t.waits, err
	})
}

// together calls run in some goroutines. Their context ends when d has passed, or when one of them returns an error.
func together(
	ctx context.Context, goroutines int, d time.Duration, run func(ctx context.Context, i int) (waits, error),
) (*waits, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer time.AfterFunc(d, cancel).Stop()
	each, errs := make([]waits, goroutines), make([]error, goroutines)
	var wg sync.WaitGroup
	for i := range each {
		wg.Go(func() {
			if each[i], errs[i] = run(ctx, i); errs[i] != nil {
				cancel()
			}
		})
	}
	wg.Wait()
	return joinWaits(each), errors.Join(errs...)
}

// A teller is one goroutine that transfers.
type teller struct {
	transferOrder
	waits
	lib    library
	book   *ledger
	holder int64
}

// run transfers until ctx is done.
func (t *teller) run(ctx context.Context) error {
	count := 0
	defer func() { t.Counts = []int{count} }()
	for ctx.Err() == nil {
		next := t.pick()
		lock := t.await(ctx, next)
		if lock == nil {
			break
		}
		count++
		err := t.move(next)
		// Unlock even if ctx is done. Ignore the result: if a key stays, the next transfer of the account waits
		// until the key expires.
		_, _ = lock.UnlockContext(context.WithoutCancel(ctx))
		if err != nil {
			return err
		}
	}
	return nil
}

// pick returns a random transfer between two different accounts.
func (t *teller) pick() *transfer {
	from, to := rand.IntN(t.Accounts), rand.IntN(t.Accounts-1)
	if to >= from {
		to++
	}
	return &transfer{from: from, to: to, amount: 1 + rand.Int64N(mostAmount), holder: t.holder}
}

// await locks the accounts of next. It tries again until it succeeds. If ctx is done first, it returns nil.
func (t *teller) await(ctx context.Context, next *transfer) held {
	names := []string{t.name(next.from), t.name(next.to)}
	slices.Sort(names)
	return t.waits.await(ctx, func() (held, error) { return lockAll(ctx, t.lib, names) })
}

// await calls lock until it succeeds. If ctx is done first, await returns nil.
func (w *waits) await(ctx context.Context, lock func() (held, error)) held {
	start := time.Now()
	for {
		lock, err := lock()
		switch {
		case ctx.Err() != nil:
			w.CutOff = append(w.CutOff, time.Since(start))
			if err == nil {
				_, _ = lock.UnlockContext(context.WithoutCancel(ctx))
			}
			return nil
		case err == nil:
			w.Times = append(w.Times, time.Since(start))
			return lock
		}
		w.Failed++
	}
}

// name returns the name of the lock of an account. The names are in the order of the accounts.
func (t *teller) name(account int) string { return fmt.Sprintf("%s:%06d", t.Prefix, account) }

// move does a transfer whose accounts are locked.
func (t *teller) move(next *transfer) error {
	if err := next.begin(t.book); err != nil {
		return err
	}
	time.Sleep(t.Work)
	return next.end(t.book)
}

// lockAll locks names, which must be sorted. If lib has locks on several names, it takes one lock on all of them.
// Otherwise it locks one name after the other, and after an error it unlocks those that it had locked.
func lockAll(ctx context.Context, lib library, names []string) (held, error) {
	if l, ok := lib.(interface {
		LockAll(ctx context.Context, names []string) (held, error)
	}); ok {
		return l.LockAll(ctx, names)
	}
	var locks heldInOrder
	for _, name := range names {
		lock, err := lib.Lock(ctx, name)
		if err != nil {
			_, _ = locks.UnlockContext(context.WithoutCancel(ctx)) // the first error tells more
			return nil, err
		}
		locks = append(locks, lock)
	}
	return locks, nil
}

// heldInOrder are locks that were acquired one after the other.
type heldInOrder []held

// UnlockContext unlocks all locks, the last one first.
func (locks heldInOrder) UnlockContext(ctx context.Context) (bool, error) {
	all, errs := true, []error(nil)
	for _, lock := range slices.Backward(locks) {
		ok, err := lock.UnlockContext(ctx)
		all, errs = all && ok, append(errs, err)
	}
	return all, errors.Join(errs...)
}
