package journal

import (
	"log/slog"
	"maps"
	"slices"
	"time"
)

// This file bounds the lines of what happens again and again, and adds up what Close has left.

const (
	// Every is the least time between two lines that say the same.
	Every = 10 * time.Second

	// maxLoggers bounds how many loggers say the same. A program that makes a logger for each request would otherwise
	// get a line for each request.
	maxLoggers = 16
)

// A Subject is what a line says, and of which node.
type Subject struct {
	Message string
	Node    int
}

// A saying is what is known of a Subject.
type saying struct {
	since time.Time      // when a line was last due
	told  []*slog.Logger // those that have written a line since then
	more  int            // what has happened since then without a line
}

// Rarely notes that a subject has happened n more times. It reports whether log must write a line: if the last line is longer
// ago than per, or if only other loggers have written that line. total is what the line stands for: n, and what has happened
// without any line.
func (j *Journal) Rarely(log *slog.Logger, s Subject, n int, per time.Duration) (total int, say bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	now, known := time.Now(), j.subjects[s]
	if known == nil {
		known = &saying{}
		put(&j.subjects, s, known)
	}
	switch {
	case now.Sub(known.since) >= per:
		total = n + known.more
		*known = saying{since: now, told: []*slog.Logger{log}}
		return total, true
	case len(known.told) < maxLoggers && !slices.Contains(known.told, log):
		known.told = append(known.told, log)
		return n, true
	}
	known.more += n
	return 0, false
}

// A Left is what a node has not confirmed at the end of Close.
type Left struct {
	Node     int
	Address  string
	Releases int
	Within   time.Duration // until the keys have run out
	Err      error
}

// A leftBy is a node, and a logger of locks whose keys are left there.
type leftBy struct {
	log  *slog.Logger
	node int
}

// AddLeft adds what some locks with the logger log have left on a node. Close says it.
func (j *Journal) AddLeft(log *slog.Logger, l Left) {
	j.mu.Lock()
	defer j.mu.Unlock()
	by, loggers := leftBy{log, l.Node}, 0
	for other := range j.left {
		if other.node == l.Node {
			loggers++
		}
	}
	before, known := j.left[by]
	if !known && loggers >= maxLoggers {
		return
	}
	l.Releases += before.Releases
	l.Within = max(l.Within, before.Within)
	put(&j.left, by, l)
}

// sayLeft writes a line for each node and logger.
func (j *Journal) sayLeft() {
	j.mu.Lock()
	left := j.left
	j.left = nil
	j.mu.Unlock()
	for _, by := range slices.SortedFunc(maps.Keys(left), func(a, b leftBy) int { return a.node - b.node }) {
		l := left[by]
		by.log.Warn("redsync: releases unconfirmed", "node", l.Node, "address", l.Address, "releases", l.Releases,
			"keys_expire_within", Rounded(l.Within), "error", l.Err)
	}
}

// Rounded makes a duration easy to read.
func Rounded(d time.Duration) time.Duration {
	if d < time.Second {
		return d.Round(time.Millisecond)
	}
	return d.Round(100 * time.Millisecond)
}

// put sets an element of a map that may not have been made.
func put[K comparable, V any](m *map[K]V, k K, v V) {
	if *m == nil {
		*m = make(map[K]V)
	}
	(*m)[k] = v
}
