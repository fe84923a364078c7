package main

import (
	"context"
	"slices"

	"github.com/seed14bd9ef4/redsync"
)

// A weighted is a semaphore for a fleet of processes. It has the methods of Weighted in golang.org/x/sync/semaphore:
// replace semaphore.NewWeighted(size) by newWeighted(rs, name, size). The doc of this program says what differs.
type weighted struct {
	rs      *redsync.Redsync
	name    string
	options []redsync.Option
	held    parts
}

// newWeighted returns a semaphore of the given size. Every process that uses the name should give the same size. The
// options are for expiry and the like.
func newWeighted(rs *redsync.Redsync, name string, size int, options ...redsync.Option) *weighted {
	all := []redsync.Option{
		redsync.WithPermits(size),
		redsync.WithFair(),     // weights need it
		redsync.WithWatchdog(), // work may take longer than the expiry
		redsync.WithTries(0),   // Acquire waits for as long as its context allows
	}
	return &weighted{rs: rs, name: name, options: append(all, options...)}
}

// Do acquires n, calls fn, and releases n. The context of fn ends if n is lost.
func (s *weighted) Do(ctx context.Context, n int64, fn func(context.Context) error) error {
	return s.mutex(n).Do(ctx, fn)
}

// Acquire waits until it has acquired n, or until ctx is done. If it returns an error, it has acquired nothing.
func (s *weighted) Acquire(ctx context.Context, n int64) error {
	mutex := s.mutex(n)
	return s.held.add(n, mutex, mutex.LockContext(ctx))
}

// TryAcquire acquires n if it can do so at once, and reports whether it has. It also reports false if an error occurs.
func (s *weighted) TryAcquire(n int64) bool {
	mutex := s.mutex(n)
	return s.held.add(n, mutex, mutex.TryLock()) == nil
}

// Release gives back what an Acquire or a TryAcquire of n has taken. It panics if s holds nothing that was acquired with
// this n. It ignores errors of the nodes: a part that they have not freed is free once its expiry has passed.
func (s *weighted) Release(n int64) {
	_, _ = s.held.take(n).Unlock()
}

// mutex returns a new Mutex for n. If n is out of range, every operation of the Mutex fails.
func (s *weighted) mutex(n int64) *redsync.Mutex {
	return s.rs.NewMutex(s.name, append(slices.Clip(s.options), redsync.WithWeight(weight(n)))...)
}
