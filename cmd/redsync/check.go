package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/pflag"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/address"
	"github.com/seed14bd9ef4/redsync/internal/foreign"
	"github.com/seed14bd9ef4/redsync/internal/script"
)

const (
	// exitWarnings is the exit status of check if it warns.
	exitWarnings = 1

	// answerLimit is how long a node has for its first answer, and for each of the others.
	answerLimit = 2 * time.Second

	// clientLimit is how far the clocks of clients may differ for fencing tokens: see docs/fencing.md.
	clientLimit = 10 * time.Second
)

// clockLimit is the drift of a lock with the default TTL: a clock that steps by more can end such a lock early.
const clockLimit = defaultTTL/100 + 2*time.Millisecond

// A checker is what check was asked to do.
type checker struct {
	nodes nodes
	lock  string // "" for none
	limit time.Duration
	out   io.Writer

	unwritten error // of the first line that could not be written
}

// checkNodes is the command check.
func checkNodes(args []string, stdout, stderr io.Writer) (int, error) {
	c := &checker{limit: answerLimit, out: stdout}
	if err := c.parse(args); err != nil {
		return 0, err
	}
	c.nodes.sayUnverified(func(text string) { line(stderr, text) })
	status := c.run()
	if c.unwritten != nil {
		return 0, &failure{exitInternal, c.unwritten}
	}
	return status, nil
}

// parse reads the arguments.
func (c *checker) parse(args []string) error {
	f := c.flags()
	if err := parse("check", f, args); err != nil {
		return err
	}
	name := c.lock
	if name != "" {
		c.lock = c.nodes.prefix + name
	}
	switch side := script.Reserved(c.lock); {
	case f.NArg() > 0:
		return wrong("check takes no arguments, but got %q: a name stands behind --lock. See redsync check --help", address.Redacted(f.Arg(0)))
	case f.Changed("lock") && name == "":
		return wrong("--lock: NAME is empty")
	case side != "":
		return wrong("--lock: NAME %q ends with %q: that is a key beside another lock", c.lock, side)
	}
	if err := c.nodes.read(); err != nil {
		return err
	}
	return c.distinct()
}

// flags returns the flags of check, which write into c.
func (c *checker) flags() *pflag.FlagSet {
	f := pflag.NewFlagSet("check", pflag.ContinueOnError)
	c.nodes.define(f)
	f.StringVar(&c.lock, "lock", "", "")
	return f
}

// distinct returns an error if the addresses cannot be nodes: all calls of the library would fail.
func (c *checker) distinct() error {
	done, cancel := context.WithCancel(context.Background())
	cancel() // so that Ping sends nothing
	rs := c.nodes.open()
	defer rs.Close(done) //nolint:errcheck // it holds nothing
	if err := rs.Ping(done); errors.Is(err, redsync.ErrDuplicateNode) {
		return wrong("%s", strings.TrimPrefix(err.Error(), "redsync: Ping: "))
	}
	return nil
}

// run asks all nodes, shows what they are, and returns the exit status.
func (c *checker) run() int {
	sets := c.ask()
	status, warnings := 0, 0
	for i, reports := range sets {
		if !c.nodes.anonymous {
			c.compare(reports)
		}
		title := []string{"", ""}
		if len(sets) == 2 {
			title = []string{" of --before", " of --after"}
		}
		for n, r := range reports {
			warnings += len(r.warnings)
			c.show(fmt.Sprintf("node #%d%s (%s)", n, title[i], r.address), r)
		}
		warnings += c.showWarnings("", ownClock(reports))
		if !c.sum(title[i], reports) {
			status = exitNoQuorum
		}
	}
	if status == 0 && warnings > 0 {
		status = exitWarnings
	}
	if warnings == 0 {
		c.line("no warnings")
	} else {
		c.line("%s", counted(warnings, "warning"))
	}
	return status
}

// ask returns a report of each node of each set.
func (c *checker) ask() [][]*findings {
	var asked sync.WaitGroup
	sets := make([][]*findings, len(c.nodes.sets))
	for i, set := range c.nodes.sets {
		sets[i] = make([]*findings, len(set))
		for n, opt := range set {
			r := &findings{address: opt.Addr, guard: c.nodes.guard, lock: c.lock, limit: c.limit}
			sets[i][n] = r
			asked.Go(func() { r.ask(opt) })
		}
	}
	asked.Wait()
	return sets
}

// compare finds addresses of one server among those of a set.
func (c *checker) compare(reports []*findings) {
	first := map[string]int{}
	for n, r := range reports {
		if r.runID == "" {
			continue
		}
		same, found := first[r.runID]
		if !found {
			first[r.runID] = n
			continue
		}
		r.votes = r.votes && !reports[same].votes
		r.warn("its run id is that of node #%d (%s): the two are one server, which counts once. If they are two, use --no-identity", same, reports[same].address)
	}
}

// ownClock returns a warning if all nodes that told the time say that the clock of this machine is wrong.
func ownClock(reports []*findings) []string {
	behind, ahead, known := 0, 0, 0
	for _, r := range reports {
		if r.clock == nil {
			continue
		}
		known++
		switch {
		case r.clock.surely() >= clientLimit:
			ahead++
		case r.clock.surely() <= -clientLimit:
			behind++
		}
	}
	if known < 2 || ahead != known && behind != known {
		return nil
	}
	how := "behind"
	if behind == known {
		how = "ahead of"
	}
	return []string{fmt.Sprintf("the clock of this machine is %v or more %s those of all nodes. Fencing tokens are taken from it: "+
		"after a restart of a node their order holds only while the clocks of clients differ by no more than that", clientLimit, how)}
}

// show writes what was found on a node.
func (c *checker) show(title string, r *findings) {
	switch {
	case r.err == nil:
		c.line("%s: answers", title)
	case len(r.facts) > 0:
		c.line("%s: has ceased to answer", title)
	default:
		c.line("%s: no answer", title)
	}
	for _, f := range r.facts {
		c.line("  %-12s %s", f.name, f.value)
	}
	c.showWarnings("  ", r.warnings)
}

// showWarnings writes warnings, each of which may have further lines, and returns their number.
func (c *checker) showWarnings(indent string, warnings []string) int {
	for _, w := range warnings {
		c.line("%swarning: %s", indent, strings.ReplaceAll(w, "\n", "\n"+indent+"  "))
	}
	return len(warnings)
}

// sum says how many nodes may fail. It reports whether enough of them can grant a lock.
func (c *checker) sum(title string, reports []*findings) bool {
	answers, votes, quorum := 0, 0, len(reports)/2+1
	for _, r := range reports {
		if r.err == nil {
			answers++
		}
		if r.votes {
			votes++
		}
	}
	what := fmt.Sprintf("%d of %d nodes%s answer, %d can grant locks", answers, len(reports), title, votes)
	switch {
	case votes < quorum:
		c.line("%s: too few, the quorum is %d", what, quorum)
	case votes == quorum:
		c.line("%s: none may fail", what)
	case votes == len(reports):
		c.line("%s: %d may fail", what, votes-quorum)
	default:
		c.line("%s: %d more may fail", what, votes-quorum)
	}
	return votes >= quorum
}

// line writes a line, or several, that cannot harm a terminal: parts of it come from the nodes.
func (c *checker) line(format string, args ...any) {
	if _, err := fmt.Fprintln(c.out, foreign.Lines(fmt.Sprintf(format, args...))); err != nil && c.unwritten == nil {
		c.unwritten = err
	}
}

// A fact is a line about a node.
type fact struct{ name, value string }

// Findings are what check finds on a node.
type findings struct {
	address string
	guard   time.Duration
	lock    string
	limit   time.Duration // for each answer
	until   time.Time     // for all answers; zero for no limit

	err      error // why it does not answer
	facts    []fact
	warnings []string
	info     info   // the answer to INFO; nil if it is refused
	runID    string // "" if not known
	votes    bool   // it can grant locks now
	replica  bool
	clock    *clockDiff // nil if not known
}

func (r *findings) fact(name, format string, args ...any) {
	r.facts = append(r.facts, fact{name, strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", " ")})
}

func (r *findings) warn(format string, args ...any) {
	r.warnings = append(r.warnings, fmt.Sprintf(format, args...))
}

// fails notes why the node is no use.
func (r *findings) fails(err error) {
	r.err, r.votes = err, false
	r.warn("%s", strings.ReplaceAll(err.Error(), "\n", " "))
}

// errSilent is why a node does not answer if nothing else is known.
func errSilent(limit time.Duration) error { return fmt.Errorf("it has not answered within %v", limit) }

// oneConn returns a client that repeats nothing, and whose calls end with their context.
func oneConn(opt *redis.Options) *redis.Client {
	own := *opt
	own.ContextTimeoutEnabled = true
	own.ReadTimeout, own.WriteTimeout = -1, -1
	own.MaxRetries, own.DialerRetries = -1, 1
	own.Protocol, own.DisableIdentity = 2, true
	return redis.NewClient(&own)
}
