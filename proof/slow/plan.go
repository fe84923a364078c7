//go:build linux

package main

import (
	"flag"
	"slices"
	"strconv"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/testkit/cli"
)

// A plan is what the command line asks for.
type plan struct {
	seed    uint64
	from    int
	rounds  int
	names   []string // of packages; with changed the base, if any
	changed bool
	length  string
	run     string
	stops   bool
	loops   int
	cores   int
	end     time.Duration // no package begins later
	limit   time.Duration // for a package
}

// lengths are those of internal/testkit/testlength.
var lengths = []string{"short", "normal", "gate", "sample", "nightly"}

func parsePlan(args []string) (p plan, err error) {
	flags := flag.NewFlagSet("slow", flag.ContinueOnError)
	flags.Uint64Var(&p.seed, "seed", 1, "`number` that decides when processes are stopped")
	flags.IntVar(&p.from, "from", 1, "`number` of the first round: 1 or more")
	flags.BoolVar(&p.changed, "changed", false, "only packages that have changed since the branch left BASE")
	flags.StringVar(&p.length, "length", "short", "`name` of the tests' length: short, normal, gate, sample or nightly")
	flags.StringVar(&p.run, "run", "", "only tests that match this regular `expression`")
	flags.BoolVar(&p.stops, "stops", true, "stop processes; if false, they share their core with the loops, and that is all")
	flags.IntVar(&p.loops, "loops", 2, "how `many` busy loops share each core: 0 or more")
	flags.IntVar(&p.cores, "cores", 0, "on how `many` cores tests run, one package on each: 1 or more; 0: on all")
	flags.DurationVar(&p.end, "for", 2*time.Hour, "after this `time` no package begins any more: 1s or more")
	flags.DurationVar(&p.limit, "limit", 20*time.Minute, "how `long` the tests of a package may take: 1s or more")
	rest, err := cli.ParseFirst(flags, args)
	if err != nil {
		return p, err
	}
	p.rounds = 20
	if len(rest) > 0 {
		if n, err := strconv.Atoi(rest[0]); err == nil {
			p.rounds, rest = n, rest[1:]
		}
	}
	p.names = rest
	switch {
	case p.rounds < 1:
		return p, cli.Misusef("%d rounds are out of range: 1 or more", p.rounds)
	case p.from < 1:
		return p, cli.Misusef("-from %d is out of range: 1 or more", p.from)
	case p.loops < 0:
		return p, cli.Misusef("-loops %d is out of range: 0 or more", p.loops)
	case p.cores < 0:
		return p, cli.Misusef("-cores %d is out of range: 0 or more", p.cores)
	case !slices.Contains(lengths, p.length):
		return p, cli.Misusef("-length %s is none of %q", p.length, lengths)
	case p.end < time.Second:
		return p, cli.Misusef("-for %v is out of range: 1s or more", p.end)
	case p.limit < time.Second:
		return p, cli.Misusef("-limit %v is out of range: 1s or more", p.limit)
	case p.changed && len(p.names) > 1:
		return p, cli.Misusef("-changed takes one BASE, and not %q", p.names)
	}
	return p, nil
}
