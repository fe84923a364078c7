package queue

import (
	"sync"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/jitter"
	"github.com/seed14bd9ef4/redsync/internal/lease"
)

// This file is about attempts whose votes were split. A waiter that then waits for late nodes is patient.

const (
	// maxRepeats is how often a call repeats its only attempt after a split. Of five processes at once on five nodes,
	// nobody wins in 70 % of the cases without a repetition, and in none of 4000 with three.
	maxRepeats = 3

	// minJitter is the least range of the random delay before the first repetition. With two zones 3 ms apart and a silent
	// fifth node, nobody got a free lock in 3.5 % of simulated cases with 4 ms, and in at most 0.3 % with 16 ms.
	minJitter = 16 * time.Millisecond

	// splitFor is how long the same keys must be in the way before a waiter is patient. Rivals come and go in that time;
	// keys of a crashed client stay, and only late nodes can then give the lock.
	splitFor = time.Second

	// quietAfter is how long the same keys are in the way before a waiter makes fewer attempts, which would pile up on the
	// way to late nodes.
	quietAfter = splitFor / 4

	// sameEnd is how much the end of a key may seem to move: answers take different times.
	sameEnd = 100 * time.Millisecond
)

// splits are what a waiter remembers of its attempts since one was split, for its goroutine only.
type splits struct {
	n    int           // how many attempts in a row were split; 0 if the last one was not
	took time.Duration // the first of these
	keys []foreign     // by node

	answered claim.Nodes // had answered the last of these

	// For that long from ended on, the waiter tries only if the name is free on a quorum without late nodes.
	ended time.Time
	quiet time.Duration
}

// A foreign is a key that was in the way on a node. The zero value stands for none.
type foreign struct {
	ends  time.Duration // when it runs out, by the monotonic clock; 0: not known
	since time.Time     // when it was first seen
}

func newSplits(nodes int) *splits { return &splits{keys: make([]foreign, nodes)} }

func (s *splits) note(o lease.Outcome, began time.Time) {
	now, split := time.Now(), o.Result.Split
	if split {
		s.answered = o.Result.Count.Answered()
	}
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
}

// seen returns what is in the way on a node that has refused with d: the same as before if it ends then, or if that is
// not known and all attempts are split.
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

func (s *splits) wasSplit() bool { return s.n > 0 }

// pause returns a random time, so that rivals do not split the votes for ever.
func (s *splits) pause() time.Duration {
	return jitter.N(max(2*s.took, minJitter) << min(s.n-1, maxRepeats))
}

func (s *splits) arePatient() bool { return s.wasSplit() && s.old(splitFor) != 0 }

// beQuiet makes the waiter quiet if keys that stay are in the way, but on no quorum. After splitFor something must be
// in the way on all nodes: another waiter may have the free ones, and wait for the late ones.
func (s *splits) beQuiet(o lease.Outcome, deadline time.Duration) {
	s.ended, s.quiet = time.Now(), 0
	if o.Result.Rule == nil || o.Result.Rule.Quorum(s.old(quietAfter)) {
		return
	}
	switch {
	case s.old(splitFor) == 0:
		if age := s.age(); age >= quietAfter {
			s.quiet = splitFor - age + jitter.N(max(2*s.took, minJitter))
		}
	case !o.Touched:
		s.quiet = deadline
	}
}

func (s *splits) untilQuiet() time.Time { return s.ended.Add(s.quiet) }

func (s *splits) old(age time.Duration) (nodes claim.Nodes) {
	for i, f := range s.keys {
		if f.age() >= age {
			nodes = nodes.With(i)
		}
	}
	return nodes
}

func (s *splits) age() (age time.Duration) {
	for _, f := range s.keys {
		age = max(age, f.age())
	}
	return age
}

func (f foreign) age() time.Duration {
	if f.since.IsZero() {
		return 0
	}
	return time.Since(f.since)
}

const maxLeftovers = 1000

// leftovers are keys for which a waiter has been patient, by the first name of its claim, until they run out: later
// calls skip splitFor.
type leftovers struct {
	mu     sync.Mutex // guards what follows
	byName map[string][]foreign
}

// note remembers the keys that s has seen for splitFor, if they left no quorum to the nodes that answered in time.
func (l *leftovers) note(name string, s *splits, rule claim.Rule) {
	if rule == nil || rule.Quorum(s.answered&^s.old(splitFor)) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byName == nil || len(l.byName) >= maxLeftovers {
		l.byName = make(map[string][]foreign) // to forget costs a call splitFor
	}
	l.byName[name] = still(s.keys)
}

// of returns splits that begin with the leftovers of a name. A waiter is patient only after an attempt that has seen
// them again.
func (l *leftovers) of(name string) *splits {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := &splits{keys: still(l.byName[name])}
	if s.old(splitFor) == 0 {
		delete(l.byName, name)
		return nil
	}
	return s
}

func still(keys []foreign) []foreign {
	all, now := make([]foreign, len(keys)), clock.Now().Mono
	for i, f := range keys {
		if f.ends != 0 && f.ends > now {
			all[i] = f
		}
	}
	return all
}
