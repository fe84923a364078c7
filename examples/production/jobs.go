package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"time"

	"github.com/seed14bd9ef4/redsync"
)

var step = flag.Duration("step", time.Second, "of the work")

// report may take any time: Do extends its lock, and ends ctx if the lock is lost.
func report(ctx context.Context) error {
	for part := range 5 {
		if err := work(ctx); err != nil {
			return err
		}
		slog.Info("report", "part", part, "left", redsync.FromContext(ctx).Remaining())
	}
	return nil
}

// load extends its lock after each step, so a load that hangs loses it.
func load(ctx context.Context, rs *redsync.Redsync) (err error) {
	mutex := rs.NewMutex("load")
	if err := mutex.LockContext(ctx); err != nil {
		return err
	}
	defer func() {
		_, failed := mutex.UnlockContext(context.WithoutCancel(ctx)) // also at shutdown
		err = errors.Join(err, failed)
	}()
	ctx = mutex.Context(ctx) // from here on it also ends when the lock ends
	for part := range 5 {
		if left := mutex.Remaining(); left < 2**step {
			return fmt.Errorf("the lock ends in %v, too soon for part %d", left, part)
		}
		if err := work(ctx); err != nil {
			return err
		}
		slog.Info("load", "part", part)
		if _, err := mutex.ExtendContext(ctx); err != nil && !errors.Is(err, redsync.ErrExtendFailed) {
			return err // the lock is over; after ErrExtendFailed it lasts until the old Until
		}
	}
	_, err = mutex.ValidContext(ctx) // before a step that nobody can undo
	return err
}

func work(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(*step):
		return nil
	}
}
