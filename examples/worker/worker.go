package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/seed14bd9ef4/redsync"
)

// patience is how long the workers bear that no quorum of nodes answers.
const patience = 10 * time.Second

// closeTimeout bounds the steps after the end of the run's context.
const closeTimeout = 5 * time.Second

// A worker contends for one lock.
type worker struct {
	id       int
	expiry   time.Duration
	client   *redsync.Redsync
	mutex    *redsync.Mutex
	register *register
	journal  *journal

	acquired, extended, lost int
}

// say reports an event of w.
func (w *worker) say(format string, args ...any) {
	w.journal.line(fmt.Sprintf("worker %d", w.id), fmt.Sprintf(format, args...))
}

// run locks, works and unlocks, over and over, until ctx is done. An error ends
// the whole run.
func (w *worker) run(ctx context.Context) error {
	defer w.close()
	for ctx.Err() == nil {
		locked, err := w.lock(ctx)
		if err != nil {
			return err
		}
		if !locked {
			continue
		}
		if err := w.hold(ctx); err != nil {
			return err
		}
		sleep(ctx, w.expiry/2) // let the others have it
	}
	return nil
}

// lock makes a few attempts to acquire the lock.
func (w *worker) lock(ctx context.Context) (bool, error) {
	err := w.mutex.LockContext(ctx)
	var taken *redsync.ErrTaken
	var node *redsync.RedisError
	switch {
	case err == nil:
		w.acquired++
		w.register.answered()
		w.say("locked, remaining %v", w.remaining())
		return true, nil
	case ctx.Err() != nil:
		return false, nil //nolint:nilerr // the end of the run is no failure
	case errors.As(err, &taken):
		w.register.answered()
		w.say("waits: another worker has the lock")
		return false, nil
	case !errors.As(err, &node):
		return false, err // not the nodes' fault: another attempt fails as well
	case w.register.silence() > patience:
		return false, fmt.Errorf("no quorum of nodes reached for %v: %w", patience, err)
	}
	w.say("waits: %v", err)
	return false, nil
}

// hold works for one and a half expiries, extending the lock every third of the
// expiry, and unlocks. The hold ends early when the lock is lost or ctx is done.
func (w *worker) hold(ctx context.Context) error {
	w.register.enter(w)
	defer w.register.leave(w)
	done := time.NewTimer(w.expiry * 3 / 2)
	defer done.Stop()
	extend := time.NewTicker(w.expiry / 3)
	defer extend.Stop()
	for {
		if err := w.register.check(); err != nil {
			w.unlock(ctx)
			return err
		}
		select {
		case <-extend.C:
			if !w.extend(ctx) {
				return nil
			}
		case <-done.C:
			w.validate(ctx)
			w.unlock(ctx)
			return nil
		case <-ctx.Done():
			w.say("stops working: %v", context.Cause(ctx))
			w.unlock(ctx)
			return nil
		}
	}
}

// extend reports whether the lock is still held. An extend that failed may be
// tried again: the lock stands until its old end.
func (w *worker) extend(ctx context.Context) bool {
	_, err := w.mutex.ExtendContext(ctx)
	switch {
	case err == nil:
		w.extended++
		w.register.answered()
		w.say("extended, remaining %v", w.remaining())
	case errors.Is(err, redsync.ErrLockAlreadyExpired):
		w.lost++
		w.say("LOST the lock: %v", err)
		return false
	default:
		w.say("could not extend, remaining %v: %v", w.remaining(), err)
	}
	return true
}

// validate asks the nodes whether the lock is held, which Remaining does not.
func (w *worker) validate(ctx context.Context) {
	if _, err := w.mutex.ValidContext(ctx); err != nil {
		w.say("not valid: %v", err)
		return
	}
	w.say("valid, remaining %v", w.remaining())
}

// unlock gives the lock back, also when ctx is done.
func (w *worker) unlock(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	if _, err := w.mutex.UnlockContext(ctx); err != nil {
		w.say("could not unlock: %v", err)
		return
	}
	w.say("unlocked")
}

// close waits until the nodes have settled what the worker left there.
func (w *worker) close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if err := w.client.Close(ctx); err != nil {
		w.say("closed: %v", err)
	}
}

func (w *worker) remaining() time.Duration {
	return w.mutex.Remaining().Round(time.Millisecond)
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

// A register knows which workers hold the lock. It is the proof that the lock
// locks, possible only because all workers are in one process.
type register struct {
	mu      sync.Mutex
	holders map[int]*redsync.Mutex // by worker
	heard   time.Time              // when a quorum last answered a worker
}

func newRegister() *register {
	return &register{holders: make(map[int]*redsync.Mutex), heard: time.Now()}
}

// enter books w, which has acquired the lock.
func (r *register) enter(w *worker) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.holders[w.id] = w.mutex
}

// leave ends the booking of w, which has unlocked or lost the lock.
func (r *register) leave(w *worker) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.holders, w.id)
}

// check returns an error when two workers rely on the lock at this moment. One
// whose time has run out no longer relies on it, even if it has not noticed yet.
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
		return fmt.Errorf("TWO HOLDERS AT ONCE: workers %v", holders)
	}
	return nil
}

// answered notes that a quorum has answered.
func (r *register) answered() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.heard = time.Now()
}

// silence returns how long no quorum has answered.
func (r *register) silence() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Since(r.heard)
}
