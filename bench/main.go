// Command bench measures this library against others on five redis-server
// processes that it starts on loopback and stops again. Run it from the top of
// the repository:
//
//	go run ./bench
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// nodes is the number of independent nodes of every contender.
const nodes = 5

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run measures the plan of the command line. The report goes to out, progress
// to log.
func run(ctx context.Context, args []string, out, log io.Writer) (err error) {
	p, err := parsePlan(args, log)
	if err != nil {
		return err
	}
	servers, err := startServers(nodes)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, servers.stop()) }()
	addrs := servers.addresses()
	m, err := describeMachine(ctx, addrs[0])
	if err != nil {
		return err
	}
	results, err := measure(ctx, p, addrs, log)
	if err != nil {
		return err
	}
	if err := writeReport(out, m, p, results); err != nil {
		return err
	}
	return leftovers(results)
}

// A plan is what to measure, and for how long.
type plan struct {
	scenes     []scene
	contenders []contender
	rounds     int
	warmUp     time.Duration // of each cell, not counted
	cell       time.Duration // of each cell
}

func parsePlan(args []string, log io.Writer) (plan, error) {
	p := plan{scenes: scenes, contenders: contenders, warmUp: 200 * time.Millisecond}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(log)
	flags.IntVar(&p.rounds, "rounds", 3, "rounds; each measures all cells in turn, the report has the medians (1 to 99)")
	flags.DurationVar(&p.cell, "time", 2*time.Second, "time per cell and round (100ms to 1m)")
	quick := flags.Bool("quick", false, "3 rounds of 500ms: a rough figure in less than a minute")
	if err := flags.Parse(args); err != nil {
		return plan{}, err
	}
	if *quick {
		p.rounds, p.cell = 3, 500*time.Millisecond
	}
	switch {
	case flags.NArg() > 0:
		return plan{}, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case p.rounds < 1 || p.rounds > 99:
		return plan{}, fmt.Errorf("-rounds %d is out of range: 1 to 99", p.rounds)
	case p.cell < 100*time.Millisecond || p.cell > time.Minute:
		return plan{}, fmt.Errorf("-time %v is out of range: 100ms to 1m", p.cell)
	}
	return p, nil
}
