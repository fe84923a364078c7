package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/observe"
)

// The numbers of permits in the scenes of permits.
const (
	fewPermits  = 4
	manyPermits = 16
)

var permitsScene = scene{
	name: "permits",
	about: fmt.Sprintf("The load of distinct keys, with one of %d permits of a name and with plain locks. Nobody else wants "+
		"permits of the name, so all are free: the difference is the extra cost of a permit.", fewPermits),
	columns: againstPlain("plain"),
	cells: func(p plan) []cell {
		widths := []int{1, 16, 128}
		if p.quick {
			widths = widths[2:]
		}
		return grid("permits", "", widths, named(ours, oursPermits), measureDistinct)
	},
}

// The load of the scene permits-queue.
const (
	permitProcesses = 8
	permitHold      = 5 * time.Millisecond
)

// idealPermits is how many permits clients acquire per second if each permit is always held.
const idealPermits = float64(fewPermits) * float64(time.Second) / float64(permitHold)

var permitsQueueScene = scene{
	name: "permits-queue",
	about: fmt.Sprintf("Goroutines in %d processes want one of %d permits of a name. Each holds a permit for %v, gives it back and "+
		"begins again at once. The ideal is the rate at which all permits are always held, %.0f a second. On %d names, in turn, means "+
		"a semaphore made of locks on %[2]d names: a process tries them in turn from a random one on, and again after the library's "+
		"retry delay. On %[5]d names, one at random, means that a goroutine waits for a random one of %[2]d locks. Wait is the time until a "+
		"permit is held; if Lock fails, the goroutine calls it again, and the wait goes on. max includes the waits that the end of the "+
		"measurement cut off; p50 and p99 leave them out. The mean is over all goroutines. Rounds are attempts, which each ask all nodes "+
		"once. At once is the highest number of permits that were seen held at the same time. The run fails if it is more than %[2]d.",
		permitProcesses, fewPermits, permitHold, idealPermits, fewPermits),
	columns: []column{
		{title: "permits/s", key: "rate", format: whole},
		{title: "x ideal", key: "ideal_share", format: cents},
		{title: "x " + defaults, key: "rate", format: digits, base: toLibrary(inTurn)},
		{title: "wait p50 ms", key: "wait_p50", format: millis},
		{title: "p99 ms", key: "wait_p99", format: millis},
		{title: "max ms", key: "wait_max", format: millis},
		{title: "fewest / mean", key: "fewest_share", format: cents},
		{title: "rounds", key: "rounds", format: cents},
		{title: "split", key: "split", format: cents},
		{title: "refused", key: "refused", format: cents},
		{title: "at once", key: "at_once", format: whole},
		{title: "failed", key: "failed", format: whole},
	},
	cells: func(p plan) []cell {
		widths := []int{2 * permitProcesses, 8 * permitProcesses}
		if p.quick {
			widths = widths[1:]
		}
		list := named(oursPermits, oursPermitsFair, oursAtRandom, inTurn)
		return grid("permits-queue", "", widths, list, measurePermitsQueue)
	},
}

// A permitsOrder tells a child process how to use permits.
type permitsOrder struct {
	bookOrder

	Key        string
	Goroutines int
	First      int // the account of the first goroutine; each goroutine has its own account
	Accounts   int // how many accounts the goroutines of all processes have
	Permits    int
	Hold, Time time.Duration
}

func measurePermitsQueue(ctx context.Context, l *lab, c cell) (f figures, err error) {
	book, err := createLedger(l.servers.dir, c.Goroutines)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, book.close()) }()
	order := permitsOrder{
		bookOrder: bookOrder{Library: c.contender.name, Addrs: l.addrs, Expiry: l.plan.expiry, Ledger: book.path()},
		Key:       freshKey(), Goroutines: c.Goroutines / permitProcesses, Accounts: c.Goroutines,
		Permits: fewPermits, Hold: permitHold, Time: l.plan.contend,
	}
	answered, err := inProcesses[bookAnswer](ctx, permitProcesses, "permits", func(process int) any {
		o := order
		o.First = process * o.Goroutines
		return o
	}, nil)
	if err != nil {
		return nil, err
	}
	each, err := waitsOf(answered)
	if err != nil {
		return nil, err
	}
	w := joinWaits(each)
	f = w.figures(l.plan.contend)
	f["ideal_share"] = f["rate"] / idealPermits
	f["at_once"] = float64(w.AtOnce)
	f.addRounds(w)
	return f, nil
}

// addRounds sets how many attempts were made per permit, and how many of them failed.
func (f figures) addRounds(w *waits) {
	n := float64(len(w.Times))
	if n == 0 || w.Attempts == 0 {
		return // the clients got no permits, or the library does not report its attempts
	}
	f["rounds"], f["split"] = float64(w.Attempts)/n, float64(w.Split)/n
	// A permit that is handed over costs no attempt, so the difference may be negative.
	f["refused"] = max(f["rounds"]-f["split"]-1, 0)
}

// permitsChild runs in the child process.
func permitsChild(ctx context.Context, order permitsOrder, in io.Reader, out io.Writer) error {
	return onLedger(ctx, order.bookOrder, in, out, func(lib library, book *ledger) (*waits, error) {
		return usePermits(ctx, lib, book, order, sleepExactly)
	})
}

// usePermits runs the goroutines of an order until its time has passed, or until one of them notices that too many
// permits are held.
func usePermits(ctx context.Context, lib library, book *ledger, order permitsOrder, sleep func(time.Duration)) (*waits, error) {
	var count attempts
	if l, ok := lib.(interface{ observe(hooks *observe.Hooks) }); ok {
		l.observe(count.hooks())
	}
	w, err := together(ctx, order.Goroutines, order.Time, func(ctx context.Context, i int) (waits, error) {
		u := permitUser{permitsOrder: order, sleep: sleep, book: book, account: order.First + i, lock: keptLock(lib, order.Key)}
		err := u.run(ctx)
		return u.waits, err
	})
	count.addTo(w)
	return w, err
}

// keptLock returns a function that locks name with lib. If lib has permits, every call of the function uses the same
// Mutex, which remembers its last permit.
func keptLock(lib library, name string) func(context.Context) (held, error) {
	if l, ok := lib.(interface {
		keep(name string) func(context.Context) (held, error)
	}); ok {
		return l.keep(name)
	}
	return func(ctx context.Context) (held, error) { return lib.Lock(ctx, name) }
}

// A permitUser is one goroutine that wants permits.
type permitUser struct {
	permitsOrder
	waits
	book    *ledger
	account int                 // the account in which the goroutine notes that it holds a permit
	sleep   func(time.Duration) // sleepExactly; tests in virtual time use time.Sleep
	lock    func(context.Context) (held, error)
}

// run uses permits until ctx is done.
func (u *permitUser) run(ctx context.Context) error {
	count := 0
	defer func() { u.Counts = []int{count} }()
	for ctx.Err() == nil {
		permit := u.await(ctx, func() (held, error) { return u.lock(ctx) })
		if permit == nil {
			break
		}
		count++
		err := u.use(int64(count))
		// Unlock even if ctx is done. Ignore the result: if a key stays, a later Lock waits until it expires.
		_, _ = permit.UnlockContext(context.WithoutCancel(ctx))
		if err != nil {
			return err
		}
	}
	return nil
}

// errTooMany says that more permits were held at the same time than there are.
var errTooMany = errors.New("too many permits are held")

// use holds a permit, and notes that in the ledger. It returns an error if too many permits are held at the
// same time. It checks this after it has written its note. So if several goroutines hold permits at the same time, the
// last one to write its note sees the notes of all.
func (u *permitUser) use(visit int64) error {
	start := time.Now()
	if err := u.book.write(u.account, account{Balance: visit, Holder: 1}); err != nil {
		return err
	}
	looks := u.look()
	u.sleep(max(u.Hold-time.Since(start), 0))
	return errors.Join(looks, u.look(), u.book.write(u.account, account{Balance: visit}))
}

func (u *permitUser) look() error {
	n, err := u.book.heldAtOnce(u.Accounts)
	if err != nil {
		return err
	}
	u.AtOnce = max(u.AtOnce, n)
	if n > u.Permits {
		return fmt.Errorf("%w: %d of %d", errTooMany, n, u.Permits)
	}
	return nil
}

// attempts counts attempts to acquire.
type attempts struct {
	all   atomic.Int64
	split atomic.Int64 // attempts that failed although a node granted a permit
}

func (c *attempts) hooks() *observe.Hooks { return &observe.Hooks{Attempt: c.attempted} }

func (c *attempts) attempted(_ context.Context, a observe.Attempt) {
	c.all.Add(1)
	if a.Err != nil && a.Granted > 0 {
		c.split.Add(1)
	}
}

// addTo sets the counts of attempts in w.
func (c *attempts) addTo(w *waits) { w.Attempts, w.Split = int(c.all.Load()), int(c.split.Load()) }

func (l *oursLibrary) observe(hooks *observe.Hooks) { l.rs = l.rs.With(redsync.WithHooks(hooks)) }

// keep is for keptLock.
func (l *oursLibrary) keep(name string) func(context.Context) (held, error) {
	m := l.rs.NewMutex(name)
	return func(ctx context.Context) (held, error) { return m, m.LockContext(ctx) }
}

// anew marks in the report that each Lock has a Mutex of its own.
const anew = ", a Mutex each time"

var permitsRoundsScene = scene{
	name: "permits-rounds",
	about: fmt.Sprintf("Clients want a permit of one name. Each has a Redsync and connections of its own, like a process. It holds a "+
		"permit for a random time of up to %v, gives it back, and comes back after a random time of up to %v. Rounds are "+
		"attempts per permit, each of which asks all nodes once. Of these, split are those that failed although a node granted a permit: "+
		"others took permits at the same time. Refused are the other failed ones: no permit was free, or a waiter came first. A "+
		"client keeps its Mutex, which prefers the permit that it had last; a Mutex each time begins at a random one.",
		2*roundsHold, 2*roundsHold),
	variant: "permits",
	columns: []column{
		{title: "clients / permits", key: "demand", format: cents},
		{title: "permits/s", key: "rate", format: whole},
		{title: "rounds", key: "rounds", format: cents},
		{title: "split", key: "split", format: cents},
		{title: "refused", key: "refused", format: cents},
		{title: "wait p50 ms", key: "wait_p50", format: millis},
		{title: "p99 ms", key: "wait_p99", format: millis},
		{title: "failed", key: "failed", format: whole},
	},
	cells: func(p plan) []cell {
		few, many := []int{2, 4, 6, 8}, []int{8, 16, 24, 32}
		if p.quick {
			few, many = few[2:3], many[2:3]
		}
		return slices.Concat(
			permitsRoundsCells(fewPermits, few, named(oursPermits, oursPermitsFair)),
			permitsRoundsCells(manyPermits, many, named(oursManyPermits)),
		)
	},
}

// permitsRoundsCells returns cells for a semaphore with some permits. For each number of clients there is one cell per
// contender, in which each client keeps its Mutex. The first contender has one more cell, in which each Lock uses a new
// Mutex.
func permitsRoundsCells(permits int, clients []int, list []contender) (cells []cell) {
	for _, n := range clients {
		more := grid("permits-rounds", strconv.Itoa(permits), []int{n}, append(list, list[0]), measurePermitsRounds(permits, true))
		last := &more[len(more)-1]
		last.Library += anew
		last.measure = measurePermitsRounds(permits, false)
		cells = append(cells, more...)
	}
	return cells
}

// roundsHold is the mean time for which a client holds a permit. It is also the mean time from its Unlock to its next
// Lock.
const roundsHold = 5 * time.Millisecond

// measurePermitsRounds measures a cell of permits-rounds.
func measurePermitsRounds(permits int, keeps bool) measuring {
	return func(ctx context.Context, l *lab, c cell) (f figures, err error) {
		var count attempts
		libs := make([]library, c.Goroutines)
		for i := range libs {
			libs[i], err = c.contender.start(ctx, l.addrs, l.plan.expiry)
			if err != nil {
				return nil, err
			}
			defer func() { err = errors.Join(err, libs[i].Close()) }()
			libs[i].(interface{ observe(hooks *observe.Hooks) }).observe(count.hooks())
		}
		key := freshKey()
		w, err := together(ctx, len(libs), l.plan.contend, func(ctx context.Context, i int) (w waits, err error) {
			lock := func(ctx context.Context) (held, error) { return libs[i].Lock(ctx, key) }
			if keeps {
				lock = keptLock(libs[i], key)
			}
			w.comeAndGo(ctx, lock)
			return w, nil
		})
		if err != nil {
			return nil, err
		}
		f = w.figures(l.plan.contend)
		f["demand"] = float64(c.Goroutines) / float64(permits)
		count.addTo(w)
		f.addRounds(w)
		return f, nil
	}
}

// comeAndGo acquires a permit, holds it, releases it and pauses, again and again until ctx is done.
func (w *waits) comeAndGo(ctx context.Context, lock func(context.Context) (held, error)) {
	count := 0
	defer func() { w.Counts = []int{count} }()
	for ctx.Err() == nil {
		permit := w.await(ctx, func() (held, error) { return lock(ctx) })
		if permit == nil {
			break
		}
		count++
		time.Sleep(rand.N(2 * roundsHold))
		_, _ = permit.UnlockContext(context.WithoutCancel(ctx)) // a permit that stays locked lowers the measured rate
		time.Sleep(rand.N(2 * roundsHold))
	}
}

// keysOfPermits returns a function that returns the keys of n permits of a name.
func keysOfPermits(n int) func(name string) []string {
	return func(name string) (keys []string) {
		for i := range n {
			keys = append(keys, fmt.Sprintf("{%s}:slot:%d", name, i))
		}
		return keys
	}
}

// oneOfNames returns a function that returns the names of n locks that together are a semaphore.
func oneOfNames(n int) func(name string) []string {
	return func(name string) []string { return severalNames(name, n) }
}

// atRandomLibrary is this library with plain locks as a semaphore: a permit is a lock on one of several names.
type atRandomLibrary struct {
	*oursLibrary
	names int
}

func openAtRandom(names int, options ...redsync.Option) func(addrs []string, ttl time.Duration) (library, error) {
	return func(addrs []string, ttl time.Duration) (library, error) {
		lib := dialOurs(addrs, ttl)
		lib.rs = lib.rs.With(options...)
		return &atRandomLibrary{lib, names}, nil
	}
}

// Lock waits for a random one of the names.
func (l *atRandomLibrary) Lock(ctx context.Context, name string) (held, error) {
	return l.oursLibrary.Lock(ctx, severalNames(name, l.names)[rand.IntN(l.names)])
}

func (l *atRandomLibrary) keep(name string) func(context.Context) (held, error) {
	return func(ctx context.Context) (held, error) { return l.Lock(ctx, name) }
}

// inTurnLibrary is redsync v4 as a semaphore: a permit is a lock on one of several names.
type inTurnLibrary struct {
	*redsyncLibrary
	names int
}

func openInTurn(names int) func(addrs []string, ttl time.Duration) (library, error) {
	return func(addrs []string, ttl time.Duration) (library, error) {
		lib, err := openRedsync(addrs, ttl)
		if err != nil {
			return nil, err
		}
		return &inTurnLibrary{lib.(*redsyncLibrary), names}, nil //nolint:forcetypeassert // it is what openRedsync returns
	}
}

// The defaults of redsync v4 for Lock. It does not export them.
const (
	rivalTries      = 32
	rivalLeastDelay = 50 * time.Millisecond
	rivalMostDelay  = 250 * time.Millisecond
)

// Lock tries all names in turn from a random one on. If none is free, it waits and tries again. It waits as long, and
// tries as often, as Lock of redsync v4 does for one name.
func (l *inTurnLibrary) Lock(ctx context.Context, name string) (_ held, err error) {
	names := severalNames(name, l.names)
	for try := range rivalTries {
		if try > 0 {
			select {
			case <-time.After(rivalLeastDelay + rand.N(rivalMostDelay-rivalLeastDelay)):
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		first := rand.IntN(len(names))
		for i := range names {
			m := l.rs.NewMutex(names[(first+i)%len(names)], l.options...)
			if err = m.TryLockContext(ctx); err == nil {
				return m, nil
			}
		}
	}
	return nil, err
}
