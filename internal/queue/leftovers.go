package queue

import (
	"sync"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/clock"
)

// This file remembers keys that stay in the way, such as those of a client that crashed. A waiter is patient once they
// have been there for splitFor. Later calls of this process need not wait for that again.

// maxLeftovers is how many names leftovers remember at most.
const maxLeftovers = 1000

// leftovers are the keys for which a waiter has been patient, if they left no quorum without late nodes. They are
// remembered until they run out, by the first name of the claim.
type leftovers struct {
	mu     sync.Mutex // guards what follows
	byName map[string][]foreign
}

// note remembers the keys that s has seen for splitFor, if they left no quorum to the nodes that answered in time. rule
// is nil if no node was asked.
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

// of returns splits that begin with the leftovers of a name, nil if there are none. A waiter is patient only after an
// attempt that has seen them again.
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

// still returns those of the keys, by node, that are known to end later than now.
func still(keys []foreign) []foreign {
	all, now := make([]foreign, len(keys)), clock.Now().Mono
	for i, f := range keys {
		if f.ends != 0 && f.ends > now {
			all[i] = f
		}
	}
	return all
}
