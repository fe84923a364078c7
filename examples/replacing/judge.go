package main

import (
	"fmt"
	"sync"
	"time"
)

// A hold is what a process knows of a lock that it holds.
type hold struct {
	process   int // its number
	kind      kind
	value     string
	token     uint64
	remaining func() time.Duration // how long the process may still rely on the lock
}

// A judge knows who holds each lock, and counts what must not happen. It can know the holders only because all
// processes are parts of one program.
type judge struct {
	clash func(name string, holder, second *hold) // called when a lock has two holders

	mu      sync.Mutex // guards all below
	holds   map[string]map[*hold]bool
	highest map[string]uint64 // the highest token so far, by name
	locks   map[kind]int      // acquired, by the kind of the process
	clashes int               // a lock was acquired while somebody else held it
	fallen  int               // tokens that were not greater than those before
}

func newJudge() *judge {
	return &judge{holds: make(map[string]map[*hold]bool), highest: make(map[string]uint64), locks: make(map[kind]int)}
}

// enter notes that h has acquired the lock. Call the returned function before the release of the lock. A hold
// whose time has run out clashes with no other. That happens if this program was paused.
func (j *judge) enter(name string, h *hold) (leave func()) {
	j.mu.Lock()
	var other *hold
	for o := range j.holds[name] {
		if o.remaining() > 0 && h.remaining() > 0 {
			other = o
		}
	}
	if j.holds[name] == nil {
		j.holds[name] = make(map[*hold]bool)
	}
	j.holds[name][h] = true
	j.locks[h.kind]++
	if other != nil {
		j.clashes++
	}
	if h.token <= j.highest[name] && h.remaining() > 0 {
		j.fallen++
	}
	j.highest[name] = max(j.highest[name], h.token)
	j.mu.Unlock()

	if other != nil {
		j.clash(name, other, h)
	}
	return func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		delete(j.holds[name], h)
	}
}

// A tally counts what happened in a period.
type tally struct {
	locks           map[kind]int
	clashes, fallen int
}

// since returns what has happened since the earlier tally before, and the tally up to now.
func (j *judge) since(before tally) (while, now tally) {
	j.mu.Lock()
	defer j.mu.Unlock()
	now = tally{locks: make(map[kind]int), clashes: j.clashes, fallen: j.fallen}
	while = tally{locks: make(map[kind]int), clashes: j.clashes - before.clashes, fallen: j.fallen - before.fallen}
	for _, k := range kinds {
		now.locks[k] = j.locks[k]
		while.locks[k] = j.locks[k] - before.locks[k]
	}
	return while, now
}

func (t tally) String() (text string) {
	for _, k := range kinds {
		if t.locks[k] > 0 {
			text += fmt.Sprintf("%d locks by %v, ", t.locks[k], k)
		}
	}
	return fmt.Sprintf("%stwo holders: %d", text, t.clashes)
}
