package history

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// This file judges haste: waiters must not try again and again without a pause, because each failed attempt keeps others from
// the nodes for a moment, and its release wakes them.

const (
	// Hasty is the rule that a waiter does not try too often.
	Hasty = "haste"

	mostAtOnce  = 100 // attempts of one waiter in one instant: then virtual time may stand still
	mostSoon    = 40  // attempts of one waiter within soon
	mostBesides = 20  // attempts in a second of all waiters of a process for a name that somebody holds
	soon        = 100 * time.Millisecond
)

// Tries are the attempts of waiters. Its methods may be called by many goroutines at once.
type Tries struct {
	mu   sync.Mutex
	all  []try
	last map[string]int // by waiter: the attempts in the present instant
	at   time.Duration  // that instant
}

// A try is an attempt of a call that waits.
type try struct {
	at                    time.Duration
	process, waiter, name string
	again                 bool // it is not the first of its call
}

// Note notes an attempt of a waiter, a call of Lock for names of which one is given. It reports whether the waiter has made so
// many attempts in this instant that virtual time may never go on. Then the caller should let time pass.
func (t *Tries) Note(at time.Duration, process, waiter, name string) (stands bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.last == nil || at != t.at {
		t.last, t.at = map[string]int{}, at
	}
	t.last[waiter]++
	t.all = append(t.all, try{at: at, process: process, waiter: waiter, name: name})
	return t.last[waiter] > mostAtOnce
}

// Len returns how many attempts have been noted.
func (t *Tries) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.all)
}

// Judge returns where waiters have been hasty, at most once for each waiter or process. The first attempt of a call counts only
// for its own waiter: many calls may come at once. events are the history of the same clients.
func (t *Tries) Judge(events []Event) (found []Violation) {
	t.mu.Lock()
	all := slices.Clone(t.all)
	t.mu.Unlock()
	slices.SortStableFunc(all, func(a, b try) int { return int(a.at - b.at) })
	seen, told := map[string][]time.Duration{}, map[string]bool{}
	tell := func(at time.Duration, who, name, text string, args ...any) {
		if !told[who] {
			told[who] = true
			found = append(found, Violation{Hasty, name, at, who + fmt.Sprintf(text, args...)})
		}
	}
	holds := heldAlone(events)
	for i := range all {
		a := &all[i]
		of := append(seen[a.waiter], a.at)
		seen[a.waiter], a.again = of, len(of) > 1
		if n := len(of) - mostSoon - 1; n >= 0 && a.at-of[n] < soon {
			tell(a.at, a.waiter, a.name, " has made %d attempts in %v", mostSoon+1, a.at-of[n])
		}
	}
	for _, h := range holds {
		recent := map[string][]time.Duration{}
		for _, a := range all {
			if !a.again || a.at < h.from || a.at >= h.to || !slices.Contains(h.names, a.name) || h.process == a.process {
				continue
			}
			of := append(recent[a.process], a.at)
			recent[a.process] = of
			if n := len(of) - mostBesides - 1; n >= 0 && a.at-of[n] < time.Second {
				tell(a.at, "process "+a.process, a.name, " has made %d attempts in %v, while %s held", mostBesides+1, a.at-of[n], h.by)
			}
		}
	}
	return found
}

// A lone is a time in which a client has held names alone.
type lone struct {
	by, process string
	names       []string
	from, to    time.Duration
}

// heldAlone returns the times in which clients have held names alone. A time ends when its client begins to give the names
// up, or when its validity ends.
func heldAlone(events []Event) (all []lone) {
	open := map[string]int{} // by client and term: an index of all
	for _, e := range events {
		of := fmt.Sprint(e.Client, "#", e.Term)
		i, held := open[of]
		switch {
		case e.Kind == Held && !e.Reads && e.Permits == 0:
			open[of] = len(all)
			process, _, _ := strings.Cut(e.Client, " ")
			all = append(all, lone{of, process, append([]string{e.Name}, e.More...), e.At, e.Until})
		case !held:
		case e.Kind == Extended:
			all[i].to = max(all[i].to, e.Until)
		case e.Kind == Held:
		default:
			all[i].to = min(all[i].to, e.At)
			delete(open, of)
		}
	}
	return all
}
