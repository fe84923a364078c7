//go:build linux

package main

import (
	"fmt"
	"hash/fnv"
	"iter"
	"math/rand/v2"
	"time"
)

// A pause is for how long a herd runs, and is stopped then.
type pause struct{ run, stop time.Duration }

const (
	longestRun                = 2 * time.Second
	shortestStop, longestStop = 200 * time.Millisecond, 1500 * time.Millisecond
)

// pauses returns the pauses of a suite in a round.
func pauses(seed uint64, round int, path string) iter.Seq[pause] {
	hash := fnv.New64a()
	_, _ = fmt.Fprint(hash, round, path)
	return func(yield func(pause) bool) {
		random := rand.New(rand.NewPCG(seed, hash.Sum64())) //nolint:gosec // not a secret
		upTo := func(d time.Duration) time.Duration { return time.Duration(random.Int64N(int64(d) + 1)) }
		for yield(pause{upTo(longestRun), shortestStop + upTo(longestStop-shortestStop)}) {
		}
	}
}
