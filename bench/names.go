package main

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/pool"
)

var namesScene = scene{
	name: "names",
	about: "The load of distinct keys, with locks on one name, on two and on eight: NewMutex and NewMultiMutex. " +
		"All names of a lock are fresh. allocs includes the names, which the load makes: one for each name, and one for the list.",
	columns: againstPlain("one name"),
	cells: func(p plan) []cell {
		widths := namesWidths
		if p.quick {
			widths = []int{128}
		}
		return grid("names", "", widths, named(ours, oursTwo, oursEight), measureDistinct)
	},
}

var namesWidths = []int{1, 16, 128}

// namesDelay is the delay per direction in the scene names-network.
const namesDelay = 20 * time.Millisecond

var namesNetworkScene = scene{
	name: "names-network",
	about: "The load of the scene names, with a delay of " + namesDelay.String() + " in each direction between client and " +
		"nodes. The table counts Lock and Unlock in round trips (twice the delay).",
	columns: []column{
		{title: "Lock p50 ms", key: "lock_p50", format: millisFine},
		{title: "Lock p99 ms", key: "lock_p99", format: millisFine},
		{title: "Unlock p50 ms", key: "unlock_p50", format: millisFine},
		{title: "Unlock p99 ms", key: "unlock_p99", format: millisFine},
		{title: "Lock p50, trips", key: "lock_trips", format: cents},
		{title: "Unlock p50, trips", key: "unlock_trips", format: cents},
		{title: "pairs", key: "pairs", format: whole},
		{title: "failed", key: "failed", format: whole},
	},
	cells: func(p plan) []cell {
		widths := []int{1, 16}
		if p.quick {
			widths = widths[:1]
		}
		cells := grid("names-network", "", widths, named(ours, oursTwo, oursEight),
			measureRemote(slices.Repeat([]time.Duration{namesDelay}, nodes)))
		for i := range cells {
			cells[i].rounds = 1
		}
		return cells
	},
}

// severalNames returns n different names, and name is the first. If each call gets a fresh key as its name, no two
// calls return a name in common.
func severalNames(name string, n int) []string {
	names := make([]string, n)
	names[0] = name
	for i := 1; i < n; i++ {
		names[i] = name + ":" + strconv.Itoa(i)
	}
	return names
}

// multiLibrary is this library with locks on several names.
type multiLibrary struct {
	*oursLibrary
	names int
}

// openOursOn opens this library with options, for locks on n names.
func openOursOn(n int, options ...redsync.Option) func(addrs []string, ttl time.Duration) (library, error) {
	return func(addrs []string, ttl time.Duration) (library, error) {
		lib := dialOurs(addrs, ttl)
		lib.rs = lib.rs.With(options...)
		return &multiLibrary{lib, n}, nil
	}
}

func (l *multiLibrary) Lock(ctx context.Context, name string) (held, error) {
	return l.LockAll(ctx, severalNames(name, l.names))
}

// LockAll acquires a lock on names.
func (l *multiLibrary) LockAll(ctx context.Context, names []string) (held, error) {
	m := l.rs.NewMultiMutex(names)
	return m, m.LockContext(ctx)
}

// likeOursOn is likeOurs for locks on n names.
func likeOursOn(n int, option ...redsync.Option) func(int, time.Duration) (any, error) {
	return func(nodes int, ttl time.Duration) (any, error) {
		rs := redsync.New(make([]pool.Pool, nodes)...).With(redsync.WithExpiry(ttl))
		return rs.NewMultiMutex(severalNames("like", n), option...), nil
	}
}
