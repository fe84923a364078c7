package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/seed14bd9ef4/redsync"
)

// A weighted is a semaphore for a fleet of processes. It has the methods of Weighted in golang.org/x/sync/semaphore,
// which is for one process: replace semaphore.NewWeighted(size) by newWeighted(rs, name, size).
//
// What is the same: Acquire waits in the order of the calls, so a large request is not overtaken by small ones, and
// Release panics if nothing is held. What differs:
//
//   - All processes that use the same name and nodes share the size.
//   - What a dead process holds is freed when its expiry has passed. In x/sync the semaphore dies with it.
//   - A held part is lost if the process cannot reach a quorum of nodes until its expiry has passed. Do then ends the
//     context of its function. Use Do if the work can stop halfway.
//   - Each Acquire and Release asks the nodes: a round trip in place of 100 ns. Acquire can fail before ctx is done.
//   - Release gives back what one Acquire has taken. x/sync lets a caller acquire 3 and release 1 and 2.
//   - Acquire of more than the size fails at once. In x/sync it waits until ctx is done.
//   - The size is at most 256.
type weighted struct {
	rs      *redsync.Redsync
	name    string
	options []redsync.Option

	mu   sync.Mutex
	held []part
}

// A part is what one Acquire has taken.
type part struct {
	n     int64
	mutex *redsync.Mutex
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

// Acquire waits until it has acquired n, or until ctx is done. If it returns an error, it has acquired nothing.
func (s *weighted) Acquire(ctx context.Context, n int64) error {
	mutex := s.mutex(n)
	if err := mutex.LockContext(ctx); err != nil {
		return err
	}
	s.add(n, mutex)
	return nil
}

// TryAcquire acquires n if it can do so at once, and reports whether it has. It also reports false if an
// error occurs.
func (s *weighted) TryAcquire(n int64) bool {
	mutex := s.mutex(n)
	if mutex.TryLock() != nil {
		return false
	}
	s.add(n, mutex)
	return true
}

// Release gives back what an Acquire or a TryAcquire of n has taken. It panics if s holds nothing that was acquired
// with this n.
// Release ignores errors of the nodes, because a part that they have not freed is free once its expiry has passed.
func (s *weighted) Release(n int64) {
	mutex := s.take(n)
	if mutex == nil {
		panic(fmt.Sprintf("limiter: Release(%d): nothing acquired with Acquire(%[1]d) is held", n))
	}
	_, _ = mutex.Unlock()
}

// Do acquires n, calls fn, and releases n. The context of fn ends if n is lost.
func (s *weighted) Do(ctx context.Context, n int64, fn func(context.Context) error) error {
	return s.mutex(n).Do(ctx, fn)
}

// mutex returns a new Mutex for n. If n is out of range, every operation of the Mutex fails.
func (s *weighted) mutex(n int64) *redsync.Mutex {
	weight := int(min(max(n, math.MinInt32), math.MaxInt32)) // an int may have 32 bits
	return s.rs.NewMutex(s.name, append(slices.Clip(s.options), redsync.WithWeight(weight))...)
}

func (s *weighted) add(n int64, mutex *redsync.Mutex) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = append(s.held, part{n, mutex})
}

// take removes the oldest part whose size is n, and returns its Mutex. It returns nil if there is no such part.
func (s *weighted) take(n int64) *redsync.Mutex {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := slices.IndexFunc(s.held, func(p part) bool { return p.n == n })
	if at < 0 {
		return nil
	}
	mutex := s.held[at].mutex
	s.held = slices.Delete(s.held, at, at+1)
	return mutex
}
