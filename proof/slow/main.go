//go:build linux

// Command slow runs the tests on a machine that is made slow, because no test may fail for that. Run it from the top of
// the repository:
//
//	.ci/slow [flags] [ROUNDS] [PACKAGE...]      # 20 rounds of ./..., or as you say
//	.ci/slow [flags] -changed [ROUNDS] [BASE]   # of the packages that have changed since the branch left BASE, origin/HEAD
//
// It compiles the tests of each package first. Then it runs them. The tests of a package run on one core, which two busy
// loops share; on the other cores those of other packages do. At random times it stops a test program and all processes
// that came of it, such as servers, for 0.2 to 1.5 s. It stops nothing else. A process that a test has stopped itself stays
// so. The signal that continues a process takes back a stop that a terminal has asked for. So ./cmd/redsync, whose tests are
// about such signals, is run with -stops=false.
//
// It prints each failure with the package, the test, the round and the output. The seed, the round and the package decide
// when processes are stopped, so ".ci/slow -seed 7 -from 3 1 ./pool" repeats the stops of round 3, although not all that
// the machine did. The exit status is 0 if no test failed, 1 if one did or the program failed, and 2 for bad flags.
//
// With -changed, ./tests is added if a package that the library imports has changed. Where git does not know BASE, nothing
// runs.
package main

import (
	"context"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/testkit/cli"
)

func main() {
	cli.Main(func(ctx context.Context) int {
		return cli.Status("slow", start(ctx, os.Args[1:], os.Stdout), os.Stdout, os.Stderr)
	})
}

// start finds and compiles the packages, and plays the rounds.
func start(ctx context.Context, args []string, out io.Writer) error {
	p, err := parsePlan(args)
	if err != nil {
		return err
	}
	names := p.names
	if p.changed {
		if names, err = changed(ctx, p.names); err != nil {
			return err
		}
		if len(names) == 0 {
			_, _ = fmt.Fprintln(out, "no package has changed, or the base is unknown: nothing to run")
			return nil
		}
	}
	suites, err := listSuites(ctx, names)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "slow-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	for i := range suites {
		suites[i].program = filepath.Join(dir, strconv.Itoa(i)+".test")
		if err := suites[i].compile(ctx); err != nil {
			return err
		}
	}
	cores, err := ownCores()
	if err != nil {
		return err
	}
	if p.cores > 0 {
		cores = cores[:min(p.cores, len(cores))]
	}
	stop, err := keepBusy(cores, p.loops)
	if err != nil {
		return err
	}
	defer stop()
	return play(ctx, p, suites, cores, out)
}

// A table is what is reported while rounds are played.
type table struct {
	plan
	mu               sync.Mutex // guards what follows
	out              io.Writer
	played, failures int
	err              error // of the program
}

// play plays the rounds. On each core one package is tested at a time. The error says how many failures there were.
func play(ctx context.Context, p plan, suites []suite, cores []string, out io.Writer) error {
	t := &table{plan: p, out: out}
	t.printf("%d rounds of %d packages, seed %d, cores %v", p.rounds, len(suites), p.seed, cores)
	next, stop := iter.Pull2(rounds(p, suites))
	defer stop()
	began := time.Now()
	take := func() (round int, s suite, ok bool) {
		t.mu.Lock()
		defer t.mu.Unlock()
		if round, s, ok = next(); ok && time.Since(began) >= p.end {
			stop()
			_, _ = fmt.Fprintf(out, "%v have passed: no package begins any more; the next is %s in round %d\n", p.end, s.path, round)
			ok = false
		}
		return round, s, ok && t.err == nil
	}
	var workers sync.WaitGroup
	for _, core := range cores {
		workers.Go(func() {
			for {
				round, s, ok := take()
				if !ok {
					return
				}
				result, err := s.test(ctx, p, round, core)
				t.add(round, s, result, err)
			}
		})
	}
	workers.Wait()
	if t.err == nil && t.failures > 0 {
		return fmt.Errorf("tests failed in %d of %d runs", t.failures, t.played)
	}
	return t.err
}

// rounds returns the packages of each round.
func rounds(p plan, suites []suite) iter.Seq2[int, suite] {
	return func(yield func(int, suite) bool) {
		for round := p.from; round < p.from+p.rounds; round++ {
			for _, s := range suites {
				if !yield(round, s) {
					return
				}
			}
		}
	}
}

// add reports the result of a package in a round.
func (t *table) add(round int, s suite, r played, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil {
		t.err = err
		return
	}
	t.played++
	if !r.failed {
		t.printf("ok   round %d %s: %.1f s, stopped %d times", round, s.path, r.took.Seconds(), r.stops)
		return
	}
	t.failures++
	for _, test := range r.tests {
		t.printf("FAIL round %d %s %s: seed %d, %.1f s, stopped %d times", round, s.path, test, t.seed, r.took.Seconds(), r.stops)
	}
	t.printf("%s\nto repeat it: .ci/slow -seed %d -from %d -length %s 1 %s", r.output, t.seed, round, t.length, s.path)
}

func (t *table) printf(format string, args ...any) { _, _ = fmt.Fprintf(t.out, format+"\n", args...) }
