package main

import (
	"slices"
	"strings"
)

const (
	mostLate    = 2 // tests of one step
	repetitions = 3
)

// A failure is a test that has failed, with what it and its subtests have written. test is empty for what fails outside
// of any test, such as a package that does not compile, or goroutines that are left.
type failure struct{ pkg, test, output string }

// mayBeLate reports whether tests may have failed only because of an order of events that is rare: with real servers, a process
// that gets no processor for a second misses the deadline of a node. What no order of events may cause is never run again.
func mayBeLate(failed []failure) bool {
	return len(failed) > 0 && len(failed) <= mostLate && !slices.ContainsFunc(failed, func(f failure) bool {
		return f.test == "" || slices.ContainsFunc([]string{"DATA RACE", "panic: ", "fatal error: ", "unexpected goroutines", "holders"},
			func(never string) bool { return strings.Contains(f.output, never) })
	})
}

// flags returns the arguments that precede the packages: a value such as that of -timeout is no package, because it has
// no slash.
func flags(args []string) []string {
	first := slices.IndexFunc(args, func(a string) bool { return !strings.HasPrefix(a, "-") && strings.Contains(a, "/") })
	if first < 0 {
		first = len(args)
	}
	return slices.Clone(args[:first])
}
