package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/observe"
)

// patience is how long a run continues without an answer from a quorum of nodes.
const patience = 10 * time.Second

// closeTimeout bounds how long a worker waits in close.
const closeTimeout = 5 * time.Second

// A worker contends for one lock.
type worker struct {
	id       int
	name     string // of the lock
	nodes    int
	expiry   time.Duration
	rs       *redsync.Redsync
	register *register
	contact  *contact
	journal  *journal

	acquired, lost int
	extended       atomic.Int64
	waiting        atomic.Bool // the worker waits, and has reported why
	giveUp         context.CancelCauseFunc
}

// say reports an event of w.
func (w *worker) say(format string, args ...any) {
	w.journal.line(fmt.Sprintf("worker %d", w.id), fmt.Sprintf(format, args...))
}

// run locks, works and unlocks, over and over, until ctx is done. An error ends
// the whole run.
func (w *worker) run(ctx context.Context, giveUp context.CancelCauseFunc) error {
	defer w.close()
	w.giveUp = giveUp
	for ctx.Err() == nil {
		w.waiting.Store(false)
		// Do waits for the lock as long as ctx lasts, extends it until work returns, and
		// ends work's context if the lock is lost.
		err := w.rs.Do(ctx, w.name, w.work)
		if err := w.judge(ctx, err); err != nil {
			return err
		}
	}
	return nil
}

// work is the work that needs the lock. It takes one and a half expiries. It stops when ctx is
// done, because the lock is lost or the run ends.
func (w *worker) work(ctx context.Context) error {
	mutex := redsync.FromContext(ctx)
	w.acquired++
	w.say("locked, remaining %v", mutex.Remaining().Round(time.Millisecond))
	w.register.enter(w.id, mutex)
	defer w.register.leave(w.id)
	for range steps {
		if err := w.register.check(); err != nil {
			return err
		}
		sleep(ctx, w.expiry*3/2/steps)
		if ctx.Err() != nil {
			w.say("stops working: %v", context.Cause(ctx))
			return nil
		}
	}
	if _, err := mutex.ValidContext(ctx); err != nil { // asks the nodes, unlike Remaining
		w.say("not valid: %v", err)
		return nil
	}
	w.say("valid, remaining %v", mutex.Remaining().Round(time.Millisecond))
	return nil
}

// steps is how many steps the work has.
const steps = 10

// judge reports how a Do ended. It returns an error if the run cannot continue.
func (w *worker) judge(ctx context.Context, err error) error {
	switch {
	case err == nil:
		w.contact.answered()
		w.say("unlocked")
	case errors.Is(err, errTwoHolders):
		return err
	case errors.Is(err, redsync.ErrLockLost), errors.Is(err, redsync.ErrLockAlreadyExpired):
		w.lost++
		w.say("LOST the lock: %v", err)
	case ctx.Err() != nil && errors.Is(err, ctx.Err()): // the end of the run is no failure
	case !errors.Is(err, redsync.ErrNoQuorum):
		return err // not the nodes' fault: another attempt would fail, too
	default:
		w.say("could not unlock: %v", err)
	}
	return nil
}

// errOutOfReach ends a run whose nodes do not answer any more.
var errOutOfReach = fmt.Errorf("no quorum of nodes reached for %v", patience)

// ObserveAttempt implements observe.AttemptObserver. Once for each Lock it reports why the worker
// has to wait. It ends the run if no quorum of nodes has answered for longer than patience.
func (w *worker) ObserveAttempt(_ context.Context, a observe.Attempt) {
	if 2*(a.Granted+a.Refused) > w.nodes {
		w.contact.answered()
	}
	var taken *redsync.ErrTaken
	switch {
	case a.Err == nil:
	case w.contact.silence() > patience:
		w.giveUp(fmt.Errorf("%w: %w", errOutOfReach, a.Err))
	case w.waiting.Swap(true):
	case errors.As(a.Err, &taken):
		w.say("waits: another worker has the lock")
	default:
		w.say("waits: %v", a.Err)
	}
}

// ObserveExtended reports the extensions that Do makes.
func (w *worker) ObserveExtended(_ context.Context, e observe.Extended) {
	if e.Err != nil {
		w.say("could not extend, remaining %v: %v", e.Left.Round(time.Millisecond), e.Err)
		return
	}
	w.extended.Add(1)
	w.contact.answered()
	w.say("extended, with %v to spare", e.Left.Round(time.Millisecond))
}

// close waits until the nodes have settled the worker's releases, at most for closeTimeout.
func (w *worker) close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if err := w.rs.Close(ctx); err != nil {
		w.say("closed: %v", err)
	}
}

// sleep waits for d or until ctx is done.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// A register knows which workers hold the lock, and checks that no two do at once. It can know that
// only because all workers are in one process.
type register struct {
	mu      sync.Mutex
	holders map[int]*redsync.Mutex // by worker
}

func newRegister() *register {
	return &register{holders: make(map[int]*redsync.Mutex)}
}

// enter records that a worker has acquired the lock.
func (r *register) enter(id int, mutex *redsync.Mutex) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.holders[id] = mutex
}

// leave records that a worker is about to unlock, or has lost the lock.
func (r *register) leave(id int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.holders, id)
}

var errTwoHolders = errors.New("TWO HOLDERS AT ONCE")

// check returns an error if two workers rely on the lock at this moment. A worker whose validity
// has ended does not count, even if it has not noticed yet.
func (r *register) check() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var holders []int
	for id, mutex := range r.holders {
		if mutex.Remaining() > 0 {
			holders = append(holders, id)
		}
	}
	if len(holders) > 1 {
		return fmt.Errorf("%w: workers %v", errTwoHolders, holders)
	}
	return nil
}

// A contact knows when a quorum last answered one of the workers.
type contact struct {
	mu    sync.Mutex
	heard time.Time
}

func newContact() *contact { return &contact{heard: time.Now()} }

// answered records that a quorum has answered.
func (c *contact) answered() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heard = time.Now()
}

// silence returns how long no quorum has answered.
func (c *contact) silence() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Since(c.heard)
}
