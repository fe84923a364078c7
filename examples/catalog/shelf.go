package main

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/seed14bd9ef4/redsync/examples/internal/rig"
)

// step is how long it takes to read or to write a price.
const step = time.Millisecond

// A shelf has the prices. It stands for files or for a database without transactions. All its prices are of the same
// version, unless a reload is half done.
type shelf struct {
	prices [10]atomic.Int64

	// inside counts the readers at this moment, and most is its maximum. early counts the reads beside the
	// downgraded writer, and halves the reads that saw half of a reload.
	reads, inside, most, reloads, early, halves atomic.Int64
	checking                                    atomic.Bool // the writer checks what it has written
}

// look reads all prices.
func (s *shelf) look(ctx context.Context) {
	now := s.inside.Add(1)
	defer s.inside.Add(-1)
	for most := s.most.Load(); now > most && !s.most.CompareAndSwap(most, now); {
		most = s.most.Load()
	}
	if s.checking.Load() {
		s.early.Add(1)
	}
	s.compare(ctx)
	s.reads.Add(1)
}

// compare notes whether all prices are of the same version.
func (s *shelf) compare(ctx context.Context) {
	version := s.prices[0].Load()
	for i := range s.prices {
		if s.prices[i].Load() != version {
			s.halves.Add(1)
			break
		}
		rig.Sleep(ctx, step)
	}
}

// write replaces all prices, one by one.
func (s *shelf) write(ctx context.Context) {
	version := s.reloads.Load() + 1
	for i := range s.prices {
		s.prices[i].Store(version)
		rig.Sleep(ctx, step)
	}
}

// check is what the writer does with the new prices.
func (s *shelf) check(ctx context.Context) {
	s.checking.Store(true)
	defer s.checking.Store(false)
	s.compare(ctx)
	s.reloads.Add(1)
}
