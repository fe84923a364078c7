package main

import (
	"context"
	"errors"
	"time"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/examples/internal/rig"
)

// A worker wants the lock again and again, and works while it has it.
type worker struct {
	report
	name   string // of the lock
	expiry time.Duration
	rs     *redsync.Redsync
}

// run locks, works and unlocks, over and over, until ctx is done. An error ends the whole run.
func (w *worker) run(ctx context.Context) error {
	for ctx.Err() == nil {
		// Do waits for the lock as long as ctx lasts, extends it until work returns, and ends work's context if the
		// lock is lost.
		err := w.rs.Do(ctx, w.name, w.work)
		switch {
		case err == nil:
			w.hasUnlocked()
		case errors.Is(err, errTwoHolders):
			return err
		case errors.Is(err, redsync.ErrLockLost), errors.Is(err, redsync.ErrLockAlreadyExpired):
			w.hasLost(err)
		case ctx.Err() != nil && errors.Is(err, ctx.Err()): // the end of the run is no failure
		case errors.Is(err, redsync.ErrNoQuorum):
			w.say("could not unlock: %v", err)
		default:
			return err // not the nodes' fault: another attempt would fail, too
		}
	}
	return nil
}

// work is the work that needs the lock. It takes one and a half expiries. It stops when ctx is done, because the lock is
// lost or the run ends.
func (w *worker) work(ctx context.Context) error {
	defer w.enter(redsync.FromContext(ctx))()
	for range 10 {
		if err := w.referee.check(); err != nil {
			return err
		}
		rig.Sleep(ctx, w.expiry*3/2/10) // a step of the work
		if ctx.Err() != nil {
			w.say("stops working: %v", context.Cause(ctx))
			return nil
		}
	}
	_, err := redsync.FromContext(ctx).ValidContext(ctx) // asks the nodes, unlike Remaining
	w.hasFinished(err)
	return nil
}
