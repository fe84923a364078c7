// Command mutants measures how many small changes of the library its tests do not notice. It
// draws a sample of the possible changes, makes each of them in turn, and runs the tests that
// execute the changed code. Run it from the top of the repository:
//
//	go run ./proof/mutants -seed 1 -count 300
//
// A change makes a condition never or always true, negates it, or drops a part of it; it swaps an operator, a boundary
// (< and <=), or two arguments of a call; it changes a constant by one; it drops a statement or a case; or it returns zero
// values at the beginning of a function or of an if. What unlocks a mutex is neither dropped nor passed over, because such
// a mutant hangs in any test.
//
// The mutants of the sample are built into one test program for each package, except for a few that
// must be built alone (see isAlone). Each mutant is a changed copy of its function; the original
// function calls the copy if an environment variable has the mutant's number. Scripts are replaced in
// the same way. The compiler gets the changed files through an overlay, so the tree is not touched.
//
// A mutant is tried in two stages. The first runs the tests in short mode, without redis-server, the
// quick ones first. If the mutant survives, the second runs the tests in full, with redis-server if there
// is one. A test that fails runs once more without the mutant: if it fails then too, its failure does not
// count.
//
// equivalent.txt lists the mutants that no test can tell from the original, each with the reason. They
// are never drawn. The exit status is 0 if no mutant survived, 1 if one did or the program failed, and
// 2 for bad flags.
//
// Two existing tools do not serve this purpose. Both compile and link a test program for each
// mutant, which takes 20 s of CPU time for the root package. Neither draws a sample, makes a condition
// always or never true, or mutates scripts. Besides,
//
//   - gremlins 0.6.0 cannot drop statements and has no list of exceptions. It gives a mutant a multiple
//     of the time that the tests take, and counts compiling toward that time. With a factor of
//     three, all 24 mutants of package fencing "timed out". With a factor of 100 they took 295 s with
//     two workers, on a machine with other work, although the tests themselves take one second.
//   - go-mutesting overwrites the files of the tree, one mutant after the other. It counts a test
//     that hangs as one that fails. It names an exception by the hash of the whole file, so any
//     change of the file voids it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/testkit/cli"
)

// simulations is the package whose tests run the whole library.
const simulations = "proof/simulation"

// areas lists the packages of this repository that are mutated.
var areas = []area{
	{dir: ".", tests: []string{".", "tests", simulations}},
	{dir: "pool", tests: []string{"pool", ".", "tests", simulations}},
	{dir: "internal/wire", tests: []string{"internal/wire", ".", "tests", simulations}},
	{dir: "internal/alarm", tests: []string{"internal/alarm", ".", "tests", simulations}},
	{dir: "internal/claim", tests: []string{"internal/claim", "internal/quorum", ".", "tests", simulations}},
	{dir: "internal/lease", tests: []string{"internal/lease", "internal/queue", ".", "tests", simulations}},
	{dir: "internal/notice", tests: []string{"internal/notice", ".", "tests", simulations}},
	{dir: "internal/queue", tests: []string{"internal/queue", ".", "tests", simulations}},
	{dir: "internal/quorum", tests: []string{"internal/quorum", "internal/lease", ".", "tests", simulations}},
	{dir: "internal/script", tests: []string{"internal/script", ".", "tests", simulations}},
	{dir: "fencing", tests: []string{"fencing", "examples/fencing"}}, // its SQL is tested in the module of the examples
}

const equivalents = "proof/mutants/equivalent.txt"

func main() {
	cli.Main(func(ctx context.Context) int {
		return cli.Status("mutants", start(ctx, os.Args[1:], os.Stdout, os.Stderr), os.Stdout, os.Stderr)
	})
}

// A plan is what the command line asks for.
type plan struct {
	seed    uint64
	count   int
	workers int
	only    *regexp.Regexp // nil: a sample of all mutants
	list    bool
	json    bool
	fast    bool

	patience time.Duration
	cache    string // the folder that keeps the measurements of what each test executes
}

func parsePlan(args []string) (p plan, err error) {
	flags := flag.NewFlagSet("mutants", flag.ContinueOnError)
	flags.Uint64Var(&p.seed, "seed", 1, "`number` of the sample")
	flags.IntVar(&p.count, "count", 300, "`size` of the sample: 1 or more; a small one comes to 40 % or more from scripts, wire and fencing, which have minimum shares")
	flags.IntVar(&p.workers, "workers", runtime.GOMAXPROCS(0), "how `many` mutants are tried at a time: 1 or more")
	only := flags.String("only", "", "all mutants whose name matches this regular `expression`, in place of a sample")
	flags.BoolVar(&p.list, "list", false, "print the names of the sample, and do no more")
	flags.BoolVar(&p.json, "json", false, "print an object of JSON for each mutant")
	flags.BoolVar(&p.fast, "fast", false, "only the first stage, without redis-server")
	if err = cli.Parse(flags, args); err != nil {
		return p, err
	}
	if *only != "" {
		if p.only, err = regexp.Compile(*only); err != nil {
			return p, cli.Misusef("-only: %w", err)
		}
	}
	if p.count < 1 {
		return p, cli.Misusef("-count %d is out of range: 1 or more", p.count)
	}
	if p.workers < 1 {
		return p, cli.Misusef("-workers %d is out of range: 1 or more", p.workers)
	}
	return p, nil
}

func start(ctx context.Context, args []string, out, log io.Writer) error {
	p, err := parsePlan(args)
	if err != nil {
		return err
	}
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	listed := filepath.Join(root, filepath.FromSlash(equivalents))
	if _, err = os.Stat(listed); err != nil {
		return fmt.Errorf("run it from the top of the repository: %w", err)
	}
	if p.cache, err = os.UserCacheDir(); err != nil {
		p.cache = os.TempDir()
	}
	p.cache, p.patience = filepath.Join(p.cache, "redsync-mutants"), patience
	return measure(ctx, p, root, areas, listed, out, log)
}

// measure measures the areas of the module at root. It writes its report to out, and its progress
// to log.
func measure(ctx context.Context, p plan, root string, areas []area, equivalents string, out, log io.Writer) error {
	t, err := readTree(ctx, root, areas)
	if err != nil {
		return err
	}
	listed, err := readEquivalents(equivalents)
	if err != nil {
		return err
	}
	candidates := t.mutants()
	for _, id := range listed {
		if !slices.ContainsFunc(candidates, func(m *mutant) bool { return m.id() == id }) {
			_, _ = fmt.Fprintf(log, "warning: %s lists what does not exist any more: %s\n", filepath.Base(equivalents), id)
		}
	}
	sample, err := sampleOf(ctx, p, t, candidates, listed)
	if err != nil {
		return err
	}
	drawnBy := fmt.Sprint("seed ", p.seed)
	if p.only != nil {
		drawnBy = fmt.Sprint("all that match ", p.only)
	}
	_, _ = fmt.Fprintf(log, "%d of %d mutants, %s\n", len(sample), len(candidates), drawnBy)
	if p.list {
		for _, m := range sample {
			_, _ = fmt.Fprintln(out, m.id())
		}
		return nil
	}
	for i, m := range sample {
		m.number = i + 1
	}
	return try(ctx, p, t, sample, out, log)
}

// sampleOf returns the candidates to try. It leaves out those that are listed as equivalent.
func sampleOf(ctx context.Context, p plan, t *tree, candidates []*mutant, listed []string) ([]*mutant, error) {
	candidates = slices.DeleteFunc(slices.Clone(candidates), func(m *mutant) bool {
		return slices.Contains(listed, m.id()) || p.only != nil && !p.only.MatchString(m.id())
	})
	if p.only != nil {
		p.count = len(candidates)
	}
	// Type checking takes a while and cannot be canceled, so ctx is checked before each candidate.
	sample := draw(candidates, p.seed, p.count, func(m *mutant) bool { return ctx.Err() == nil && t.compiles(m) })
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if p.only != nil && len(sample) == 0 {
		return nil, cli.Misusef("-only %s matches no mutant that compiles and is not in %s", p.only, equivalents)
	}
	return sample, nil
}

// A verdict is the outcome of a mutant.
type verdict struct {
	*mutant
	ID      string  `json:"id"`
	Result  string  `json:"result"` // one of the constants below
	Stage   string  `json:"stage"`  // the last stage that tried it
	Unseen  bool    `json:"unseen"` // no test of the first stage executes it
	Killer  string  `json:"killer"` // the test that failed, or ran out of time
	Seconds float64 `json:"seconds"`
}

const (
	killed   = "killed"
	timedOut = "killed by time"
	survived = "SURVIVED"
)

// A trial tries mutants.
type trial struct {
	plan
	*tree
	*runner
	dir      string
	programs map[string]string // the built test programs, by the folder of their package
	fast     *reach
	slow     *reach // nil before the second stage

	mu      sync.Mutex // guards the fields below
	log     io.Writer
	leftOut map[testName]bool // tests that fail with no mutant chosen
}

// A testName names a test of the tree.
type testName struct{ dir, name string }

func (tr *trial) logf(format string, args ...any) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	_, _ = fmt.Fprintf(tr.log, format+"\n", args...)
}

func try(ctx context.Context, p plan, t *tree, sample []*mutant, out, log io.Writer) error {
	dir, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	r, err := newRunner(t.root, dir)
	if err != nil {
		return err
	}
	if !p.fast && redisServer(ctx) == "" {
		_, _ = fmt.Fprintln(log, "warning: there is no redis-server, so the second stage skips the tests that need one")
	}
	tr := &trial{plan: p, tree: t, runner: r, log: log, dir: dir, programs: map[string]string{}, leftOut: map[testName]bool{}}
	if tr.fast, err = measureReach(ctx, t, r, fast, p.workers, dir, p.cache, log); err != nil {
		return err
	}
	if err := tr.build(ctx, sample); err != nil {
		return err
	}
	if err := tr.calibrate(ctx, fast, tr.fast); err != nil {
		return err
	}
	verdicts := make([]verdict, len(sample))
	for i, m := range sample {
		verdicts[i] = verdict{mutant: m, ID: m.id()}
	}
	failure := tr.stages(ctx, verdicts)
	known := slices.DeleteFunc(verdicts, func(v verdict) bool { return v.Result == "" })
	if failure != nil {
		failure = fmt.Errorf("ended early, with %d of %d mutants tried: %w", len(known), len(sample), failure)
		if len(known) == 0 {
			return failure
		}
	}
	err = report(p, known, out)
	if failure != nil {
		return failure
	}
	return err
}

// stages tries all mutants, and fills in their verdicts. After an error some mutants have no
// verdict, or only that of the first stage.
func (tr *trial) stages(ctx context.Context, verdicts []verdict) (err error) {
	began, done := time.Now(), 0
	stage := func(m mode, which []int) error {
		return parallel(ctx, tr.workers, len(which), func(i int) error {
			judged := time.Now()
			v := &verdicts[which[i]]
			if err := tr.judge(ctx, m, v); err != nil {
				return err
			}
			v.Seconds += time.Since(judged).Seconds()
			tr.mu.Lock()
			defer tr.mu.Unlock()
			done++
			_, _ = fmt.Fprintf(tr.log, "%d/%d %s %s (%s, %.1f s): %s\n", done, len(verdicts), m.name, v.Result, v.Killer, v.Seconds, v.ID)
			return nil
		})
	}
	all := make([]int, len(verdicts))
	for i := range all {
		all[i] = i
	}
	if err := stage(fast, all); err != nil {
		return err
	}
	tr.logf("the first stage took %s", time.Since(began).Round(time.Second))
	left := slices.DeleteFunc(all, func(i int) bool { return verdicts[i].Result != survived })
	if tr.plan.fast || len(left) == 0 {
		return nil
	}
	if tr.slow, err = measureReach(ctx, tr.tree, tr.runner, slow, tr.workers, tr.dir, tr.cache, tr.log); err != nil {
		return err
	}
	if err := tr.calibrate(ctx, slow, tr.slow); err != nil {
		return err
	}
	done = len(verdicts) - len(left)
	if err := stage(slow, left); err != nil {
		return err
	}
	tr.logf("both stages took %s", time.Since(began).Round(time.Second))
	return nil
}

// build builds all mutants of the sample together, except those that are built alone.
func (tr *trial) build(ctx context.Context, sample []*mutant) error {
	began := time.Now()
	dir := filepath.Join(tr.dir, "together")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	overlay, err := together(tr.tree, slices.DeleteFunc(slices.Clone(sample), (*mutant).isAlone), dir)
	if err != nil {
		return err
	}
	for _, tests := range tr.testDirs() {
		if tr.programs[tests], err = tr.tree.build(ctx, tests, dir, "-overlay", overlay); err != nil {
			return err
		}
	}
	_, _ = fmt.Fprintf(tr.log, "built in %s\n", time.Since(began).Round(time.Second))
	return nil
}

// calibrate runs the tests of a mode in the built programs with no mutant chosen, and leaves out those
// that fail there. A test that counts allocations may fail, because the copies can add an allocation.
func (tr *trial) calibrate(ctx context.Context, in mode, known *reach) error {
	dirs := tr.testDirs()
	return parallel(ctx, tr.workers, len(dirs), func(i int) error {
		dir := dirs[i]
		var wave []tried
		for _, test := range known.Tests {
			if test.Dir == dir && test.Passed && !tr.isLeftOut(dir, test.Name) {
				wave = append(wave, tried{test.Name, test.Took})
			}
		}
		for len(wave) > 0 {
			o, err := tr.tests(ctx, tr.programs[dir], dir, in, 0, limitOf(wave, time.Minute), namesOf(wave))
			if err != nil || !o.failed {
				return err
			}
			if !slices.Contains(namesOf(wave), o.test) {
				return fmt.Errorf("the tests of %s fail without a mutant:\n%s", dir, o.output)
			}
			tr.logf("warning: %s of %s fails without a mutant (%s), and is left out", o.test, dir, in.name)
			tr.mu.Lock()
			tr.leftOut[testName{dir, o.test}] = true
			tr.mu.Unlock()
			passed := o.passed()
			wave = slices.DeleteFunc(wave, func(t tried) bool { return t.name == o.test || slices.Contains(passed, t.name) })
		}
		return nil
	})
}

func (tr *trial) isLeftOut(dir, name string) bool {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.leftOut[testName{dir, name}]
}

// isAlone reports whether m is built by itself: it is in a Go file but in no function, or its function
// calls recover. A copy of such a function would recover nothing, because the original was deferred, not
// the copy.
func (m *mutant) isAlone() bool { return m.source.file != nil && (m.fn == nil || m.fn.recovers) }

// judge tries a mutant in one mode. After an error its verdict is unchanged.
func (tr *trial) judge(ctx context.Context, in mode, v *verdict) error {
	programs, number := tr.programs, v.number
	if v.isAlone() {
		dir, err := os.MkdirTemp(tr.dir, "alone-")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(dir) }()
		overlay, err := alone(v.mutant, dir)
		if err != nil {
			return err
		}
		programs, number = map[string]string{}, 0
		for _, tests := range v.source.pkg.tests {
			if programs[tests], err = tr.tree.build(ctx, tests, dir, "-overlay", overlay); err != nil {
				return err
			}
		}
	}
	executed := false
	for _, dir := range v.source.pkg.tests {
		tests := tr.testsFor(v.mutant, in, dir)
		executed = executed || len(tests) > 0
		for _, wave := range inWaves(tests) {
			o, err := tr.run(ctx, in, programs[dir], dir, number, wave)
			if err != nil {
				return err
			}
			if o.failed {
				v.Result, v.Stage, v.Killer = killed, in.name, o.test
				if o.timeout {
					v.Result = timedOut
				}
				return nil
			}
		}
	}
	v.Result, v.Stage = survived, in.name
	v.Unseen = v.Unseen || in == fast && !executed
	return nil
}

// run runs a wave of tests with a mutant. A test that fails runs once more without the mutant. If it
// fails then too, its failure says nothing about the mutant, and run repeats the wave without that test.
func (tr *trial) run(ctx context.Context, in mode, program, dir string, number int, wave []tried) (outcome, error) {
	for len(wave) > 0 {
		limit := limitOf(wave, tr.patience)
		o, err := tr.tests(ctx, program, dir, in, number, limit, namesOf(wave))
		if err != nil || !o.failed {
			return o, err
		}
		suspects := []string{o.test}
		if !slices.Contains(namesOf(wave), o.test) {
			suspects = namesOf(wave)
		}
		without, err := tr.tests(ctx, tr.programs[dir], dir, in, 0, limit, suspects)
		if err != nil || !without.failed {
			return o, err
		}
		tr.logf("warning: %s of %s fails with a mutant, and then without it (%s): it does not count", strings.Join(suspects, ", "), dir, in.name)
		wave = slices.DeleteFunc(slices.Clone(wave), func(t tried) bool { return slices.Contains(suspects, t.name) })
	}
	return outcome{}, nil
}

// testsFor returns the tests that m is tried by in a mode, without those that calibrate left out. In slow
// mode it also omits tests that the fast mode has run in full. Those are the tests whose slow run takes
// less than 100 ms, or less than twice as long as their fast run.
func (tr *trial) testsFor(m *mutant, in mode, dir string) []tried {
	leftOut := func(t tried) bool { return tr.isLeftOut(dir, t.name) }
	before := slices.DeleteFunc(tr.fast.testsOf(m, dir, false), leftOut)
	if in == fast {
		return before
	}
	return slices.DeleteFunc(tr.slow.testsOf(m, dir, true), func(t tried) bool {
		i := slices.IndexFunc(before, func(b tried) bool { return b.name == t.name })
		return leftOut(t) || i >= 0 && float64(t.took) < math.Max(2*float64(before[i].took), float64(100*time.Millisecond))
	})
}

// report prints the verdicts. Its error says how many mutants have survived.
func report(p plan, verdicts []verdict, out io.Writer) error {
	results, kinds := map[string]int{}, map[string][2]int{}
	for _, v := range verdicts {
		results[v.Result]++
		for _, kind := range []string{v.Kind, strata[stratumOf(v.mutant)].name} {
			n := kinds[kind]
			n[0]++
			if v.Result == survived {
				n[1]++
			}
			kinds[kind] = n
		}
	}
	encoder := json.NewEncoder(out)
	for _, v := range verdicts {
		if p.json {
			if err := encoder.Encode(v); err != nil {
				return err
			}
		} else if v.Result != killed || v.Unseen {
			note := ""
			if v.Unseen {
				note = " (executed by no test of the first stage)"
			}
			if v.Result == survived && v.Stage == fast.name && !p.fast {
				note += " (not tried by the second stage)"
			}
			_, _ = fmt.Fprintf(out, "%s%s: %s\n", v.Result, note, v.ID)
		}
	}
	if !p.json {
		var lines []string
		for kind, n := range kinds {
			lines = append(lines, fmt.Sprintf("%-14s %4d, %d survived", kind, n[0], n[1]))
		}
		slices.Sort(lines)
		_, _ = fmt.Fprintf(out, "%s\n%d mutants: %d killed by a test, %d by time, %d survived\n",
			strings.Join(lines, "\n"), len(verdicts), results[killed], results[timedOut], results[survived])
	}
	if n := results[survived]; n > 0 {
		return errors.New(fmt.Sprint(n, " of ", len(verdicts), " mutants survived"))
	}
	return nil
}
