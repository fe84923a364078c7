//go:build linux

// Command slow runs the tests on a machine that is made slow, because no test may fail for that. Run it from the top of
// the repository:
//
//	.ci/slow [flags] [ROUNDS] [PACKAGE...]      # 20 rounds of ./..., or as you say
//	.ci/slow [flags] -changed [ROUNDS] [BASE]   # of the packages that have changed since the branch left BASE, origin/HEAD
//
// It compiles the tests of each package first. Then it runs them, one package after the other, on one core, which two busy
// loops share. At random times it stops the test program and all processes that came of it, such as servers, for 0.2 to
// 1.5 s. It stops nothing else. A process that a test has stopped itself stays so.
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
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/cli"
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
	core, err := lastCore()
	if err != nil {
		return err
	}
	stop, err := keepBusy(core, p.loops)
	if err != nil {
		return err
	}
	defer stop()
	return play(ctx, p, suites, core, out)
}

// play plays the rounds. Its error says how many failures there were.
func play(ctx context.Context, p plan, suites []suite, core string, out io.Writer) error {
	_, _ = fmt.Fprintf(out, "%d rounds of %d packages, seed %d, core %s\n", p.rounds, len(suites), p.seed, core)
	began, failures, played := time.Now(), 0, 0
	for round := p.from; round < p.from+p.rounds; round++ {
		for _, s := range suites {
			if time.Since(began) >= p.end {
				_, _ = fmt.Fprintf(out, "%v have passed: this ends in round %d, before %s\n", p.end, round, s.path)
				return outcome(failures, played)
			}
			o, err := s.test(ctx, p, round, core)
			if err != nil {
				return err
			}
			played++
			if !o.failed {
				_, _ = fmt.Fprintf(out, "ok   round %d %s: %s, stopped %d times\n", round, s.path, seconds(o.took), o.stops)
				continue
			}
			failures++
			for _, test := range o.tests {
				_, _ = fmt.Fprintf(out, "FAIL round %d %s %s: seed %d, stopped %d times\n", round, s.path, test, p.seed, o.stops)
			}
			_, _ = fmt.Fprintf(out, "%s\nto repeat it: .ci/slow -seed %d -from %d -length %s 1 %s\n", o.output, p.seed, round, p.length, s.path)
		}
	}
	return outcome(failures, played)
}

// outcome returns an error if there were failures.
func outcome(failures, played int) error {
	if failures > 0 {
		return fmt.Errorf("tests failed in %d of %d runs", failures, played)
	}
	return nil
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
