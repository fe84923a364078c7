package redsync

import (
	"fmt"
	"sync"
	"time"
)

// A valueLog remembers the values of a user's generator for as long as keys or
// releases with them may be about, so that a generator that repeats itself is
// found out. Values of our own generator are not logged.
type valueLog struct {
	mu    sync.Mutex
	used  map[string]time.Time // until when
	sweep int                  // size at which the map is swept
}

const minSweep = 1024

// claim books value until a time, or returns an error if it is booked.
func (l *valueLog) claim(value string, until time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := time.Now()
	if before, ok := l.used[value]; ok && at.Before(before) {
		return fmt.Errorf("redsync: WithGenValueFunc returned %q again: every attempt needs a fresh value", value)
	}
	if len(l.used) >= max(l.sweep, minSweep) {
		for v, until := range l.used {
			if !at.Before(until) {
				delete(l.used, v)
			}
		}
		l.sweep = 2 * len(l.used)
	}
	l.put(value, until)
	return nil
}

// keep books value for longer.
func (l *valueLog) keep(value string, until time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.put(value, until)
}

func (l *valueLog) put(value string, until time.Time) {
	if l.used == nil {
		l.used = make(map[string]time.Time)
	}
	l.used[value] = until
}
