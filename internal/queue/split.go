package queue

import (
	"time"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/jitter"
	"github.com/seed14bd9ef4/redsync/internal/lease"
)

// This file is about attempts that have ended early, because their votes were split and the missing nodes late.

// splitFor is how long the attempts of a waiter are split in the same way before one of them waits for late nodes after
// all. Rivals come and go in that time. A key that a crashed client has left stays, and then only the late nodes can
// give the lock.
const splitFor = time.Second

// splits are the attempts of a waiter that were split, one after the other. Only the goroutine of the waiter uses it.
type splits struct {
	n     int           // how many there were
	took  time.Duration // how long the first of them took
	on    claim.Nodes   // where something else was in the way of the last one
	since time.Time     // since when it was in the way on the same nodes
}

// after returns the splits after an attempt that has just ended, nil if it was not split. s is what it was before; it may
// be nil.
func (s *splits) after(o lease.Outcome, began time.Time) *splits {
	if !o.Result.Split {
		return nil
	}
	now := time.Now()
	if s == nil {
		s = &splits{took: now.Sub(began)}
	}
	if s.n++; s.on != o.Result.Taken {
		s.on, s.since = o.Result.Taken, now
	}
	return s
}

// pause returns how long the waiter pauses before it tries again for no other reason. Rivals that pause for random times
// do not split the votes again for ever.
func (s *splits) pause() time.Duration {
	return jitter.N(max(2*s.took, minJitter) << min(s.n-1, maxRepeats))
}

// arePatient reports whether the next attempt waits for late nodes even if its votes are split.
func (s *splits) arePatient() bool { return s != nil && time.Since(s.since) >= splitFor }
