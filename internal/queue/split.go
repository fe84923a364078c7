package queue

import (
	"slices"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/jitter"
	"github.com/seed14bd9ef4/redsync/internal/lease"
)

// This file is about attempts that have ended early, because their votes were split and the missing nodes late.

const (
	// splitFor is how long the same keys are in the way before an attempt waits for late nodes even if its votes are
	// split. Rivals come and go in that time. The keys of a client that crashed stay, and then only the late nodes can
	// give the lock.
	splitFor = time.Second

	// sameEnd is how much the end of a key may seem to move, because answers need more or less time. The keys of rivals
	// that follow each other end later and later.
	sameEnd = 100 * time.Millisecond
)

// splits are what a waiter remembers of its attempts from the first one on that was split. Only the goroutine of the
// waiter uses it.
type splits struct {
	n    int           // how many attempts in a row were split: 0 if the last one was not
	took time.Duration // how long the first of these took
	keys []foreign     // by node
}

// A foreign is a key that was in the way on a node. The zero value stands for none.
type foreign struct {
	ends  time.Duration // when it runs out, by the monotonic clock; 0 if the node has not told
	since time.Time     // when it was first seen
}

// after returns the splits after an attempt that has just ended, nil if none was split so far. s is what it was before;
// it may be nil.
func (s *splits) after(o lease.Outcome, began time.Time) *splits {
	split := o.Result.Split
	switch {
	case s == nil && !split:
		return nil
	case s == nil:
		s = &splits{keys: make([]foreign, len(o.Result.Votes))}
	}
	now := time.Now()
	switch {
	case !split:
		s.n = 0
	case s.n == 0:
		s.n, s.took = 1, now.Sub(began)
	default:
		s.n++
	}
	for i, v := range o.Result.Votes {
		switch {
		case o.Result.Taken.Has(i):
			s.keys[i] = s.keys[i].seen(v.Answer.Details(), split, now)
		case v.Answer.Found != claim.Unknown:
			s.keys[i] = foreign{}
		}
	}
	return s
}

// seen returns what is in the way on a node that has refused with d. It is what was there before if both end at the same
// time. If that is not known, it may be the same as long as all attempts are split.
func (f foreign) seen(d claim.Detail, split bool, now time.Time) foreign {
	var ends time.Duration
	if d.Wait != claim.Never {
		ends = d.At + d.Wait
	}
	same := split
	if ends != 0 && f.ends != 0 {
		same = (ends - f.ends).Abs() <= sameEnd
	}
	if f.since.IsZero() || !same {
		return foreign{ends, now}
	}
	return f
}

// wasSplit reports whether the last attempt was split.
func (s *splits) wasSplit() bool { return s != nil && s.n > 0 }

// pause returns how long the waiter pauses after a split before it tries again for no other reason. Rivals that pause
// for random times do not split the votes again for ever.
func (s *splits) pause() time.Duration {
	return jitter.N(max(2*s.took, minJitter) << min(s.n-1, maxRepeats))
}

// arePatient reports whether the next attempt waits for late nodes even if its votes are split.
func (s *splits) arePatient() bool {
	return s.wasSplit() && slices.ContainsFunc(s.keys, func(f foreign) bool {
		return !f.since.IsZero() && time.Since(f.since) >= splitFor
	})
}
