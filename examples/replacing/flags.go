package main

import (
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/testkit/cli"
)

// config holds the flags.
type config struct {
	before, after list
	processes     int
	expiry        time.Duration
	wrong         bool
	work          time.Duration // the longest time for which a lock is held; no flag sets it
}

const (
	maxNode      = 20
	maxProcesses = 20
	minExpiry    = 2 * time.Second // a queue outlives its waiters for up to that long, and the wait must cover that
	maxExpiry    = time.Minute
)

// A list is a list of nodes, by their numbers.
type list []int

// parseFlags reads and checks the command line. Its errors are for cli.Status.
func parseFlags(args []string) (cfg config, err error) {
	cfg.work = 10 * time.Millisecond
	var before, after string
	flags := flag.NewFlagSet("replacing", flag.ContinueOnError)
	flags.StringVar(&before, "before", "1,2,3,4,5", fmt.Sprintf("numbers of the `nodes` before the change: 1 to %d", maxNode))
	flags.StringVar(&after, "after", "1,2,3,4,6", fmt.Sprintf("numbers of the `nodes` after the change: 1 to %d", maxNode))
	flags.IntVar(&cfg.processes, "processes", 3, fmt.Sprintf("number of processes: 1 to %d", maxProcesses))
	flags.DurationVar(&cfg.expiry, "expiry", 2*time.Second, fmt.Sprintf("expiry of the locks: %v to %v", minExpiry, maxExpiry))
	flags.BoolVar(&cfg.wrong, "wrong", false, "change the nodes in one deployment, to see two holders of one lock")
	if err := cli.Parse(flags, args); err != nil {
		return config{}, err
	}
	if cfg.before, err = parseList("-before", before); err != nil {
		return config{}, err
	}
	if cfg.after, err = parseList("-after", after); err != nil {
		return config{}, err
	}
	return cfg, cfg.check()
}

func (cfg *config) check() error {
	switch {
	case cfg.processes < 1 || cfg.processes > maxProcesses:
		return cli.Misusef("-processes %d is out of range: 1 to %d", cfg.processes, maxProcesses)
	case cfg.expiry < minExpiry || cfg.expiry > maxExpiry:
		return cli.Misusef("-expiry %v is out of range: %v to %v", cfg.expiry, minExpiry, maxExpiry)
	case cfg.wrong && alwaysMeet(cfg.before, cfg.after):
		return cli.Misusef("-wrong shows nothing with -before %v and -after %v: every quorum of one shares a node with every quorum of the other",
			cfg.before, cfg.after)
	}
	return nil
}

// numbers returns the nodes of both lists.
func (cfg *config) numbers() list {
	both := slices.Concat(cfg.before, cfg.after.without(cfg.before))
	slices.Sort(both)
	return both
}

// parseList reads the value of a flag: numbers of nodes, separated by commas.
func parseList(name, text string) (nodes list, err error) {
	for field := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(field))
		switch {
		case err != nil || n < 1 || n > maxNode:
			return nil, cli.Misusef("%s: %q is not the number of a node: 1 to %d", name, field, maxNode)
		case slices.Contains(nodes, n):
			return nil, cli.Misusef("%s: node %d is there twice", name, n)
		}
		nodes = append(nodes, n)
	}
	slices.Sort(nodes)
	return nodes, nil
}

// String returns the numbers, as the flags take them.
func (l list) String() string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint([]int(l)), " ", ","), "[]")
}

// without returns the nodes of l that are not in other.
func (l list) without(other list) (rest list) {
	for _, n := range l {
		if !slices.Contains(other, n) {
			rest = append(rest, n)
		}
	}
	return rest
}

// alwaysMeet reports whether every quorum of a shares a node with every quorum of b. If not, a process with a
// and a process with b can hold one lock at the same time.
func alwaysMeet(a, b list) bool {
	onlyA, onlyB := len(a.without(b)), len(b.without(a))
	shared := len(a) - onlyA
	// A quorum needs the fewest shared nodes if it has all the nodes that the other list lacks.
	return max(quorum(a)-onlyA, 0)+max(quorum(b)-onlyB, 0) > shared
}

func quorum(l list) int { return len(l)/2 + 1 }
