package rig

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"
)

// A Timeline prints what happens, and when.
type Timeline struct {
	mu    sync.Mutex
	out   io.Writer
	start time.Time
}

// NewTimeline returns a Timeline that begins now.
func NewTimeline(out io.Writer) *Timeline { return &Timeline{out: out, start: time.Now()} }

// Say prints a line.
func (t *Timeline) Say(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, _ = fmt.Fprintf(t.out, "%6.2f s  %s\n", time.Since(t.start).Seconds(), fmt.Sprintf(format, args...))
}

// Await waits until something has happened. It asks with lock locked.
func Await(ctx context.Context, lock sync.Locker, what string, happened func() bool) error {
	for {
		lock.Lock()
		is := happened()
		lock.Unlock()
		switch {
		case is:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("waited in vain until %s: %w", what, context.Cause(ctx))
		}
		time.Sleep(time.Millisecond)
	}
}

// Sleep waits for d, or until ctx is done.
func Sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
