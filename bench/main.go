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
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/testkit/cli"
)

// nodes is the number of independent nodes. A contender whose field single is set uses only the first one.
const nodes = 5

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := start(ctx, os.Args[1:])
	stop()
	os.Exit(cli.Status("bench", err, os.Stdout, os.Stderr))
}

func start(ctx context.Context, args []string) error {
	if len(args) > 0 && args[0] == childArg {
		return runChild(ctx, args[1:], os.Stdin, os.Stdout)
	}
	return run(ctx, args, os.Stdout, os.Stderr)
}

// run does what the command line asks for. It writes the report to out, and its progress to log.
func run(ctx context.Context, args []string, out, log io.Writer) (err error) {
	p, err := parsePlan(args)
	if err != nil {
		return err
	}
	if p.from != "" {
		report, err := readReport(p.from)
		if err != nil {
			return err
		}
		return publish(out, p, report)
	}
	s, err := startServers(nodes)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	l := newLab(p, s)
	defer func() { err = errors.Join(err, l.close()) }()
	m, err := describeMachine(ctx, l.look[0])
	if err != nil {
		return err
	}
	results, err := measureAll(ctx, l, log)
	if err == nil && p.bounded {
		err = l.measureAboveBounds(ctx, results, log)
	}
	if err != nil {
		return err
	}
	if p.json != "" {
		err = writeJSON(p.json, m, p, results)
	}
	err = errors.Join(err, publish(out, p, reportOf(m, p, results)), verdict(results))
	if p.bounded {
		err = errors.Join(err, boundedCost(results))
	}
	return err
}

// publish writes the report to out, and the figures of the report to the charts and the page that the plan names.
func publish(out io.Writer, p plan, report string) error {
	_, err := io.WriteString(out, report)
	if p.charts != "" {
		err = errors.Join(err, drawCharts(p.charts, report))
	}
	if p.page != "" {
		err = errors.Join(err, fillPage(p.page, readTables(report)))
	}
	return err
}

func fillPage(path string, report tables) error {
	page, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	text, err := report.fill(string(page))
	if err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o644)
}

// A plan says what to measure, for how long, and where to write the results in addition to the
// report.
type plan struct {
	args   []string // of the command line
	scenes []scene
	quick  bool
	rounds int

	expiry   time.Duration // of every lock, unless the scene sets another one
	warmUp   time.Duration // time before each measurement
	cell     time.Duration // time of each measurement
	contend  time.Duration // time of each measurement in which goroutines contend for one key
	transfer time.Duration // time of each measurement in the scene transfers
	badNode  time.Duration // time of each measurement in node-silent and node-slow: go-redis waits for a reply for 5 s
	frozen   time.Duration // how long a node is frozen while goroutines are counted
	grace    time.Duration // how long releases in the background may take
	held     int           // locks held at once
	million  bool          // hold a million locks, too
	wakeups  int           // how many times a lock passes from one process to another

	extended time.Duration // time of each half of a measurement in the scene extended

	json, charts string // the file and the folder to write to; "" means none
	page         string // the file whose tables get the figures; "" means none
	from         string // the file with results to report instead of measuring; "" means none

	beside  string // another checkout, for the scene own-cost; "" means none
	bounded bool   // fail if the own cost is above a bound
}

// parsePlan reads and checks the command line. Its errors are for cli.Status.
func parsePlan(args []string) (plan, error) {
	p := plan{
		args: args, expiry: 8 * time.Second, warmUp: 200 * time.Millisecond, contend: 3 * time.Second,
		transfer: 5 * time.Second, badNode: 6 * time.Second,
		frozen: 10 * time.Second, grace: time.Second, held: 20_000, wakeups: 300, extended: 12 * time.Second,
	}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.IntVar(&p.rounds, "rounds", 3, "rounds; each measures all cells in turn, the report has the medians (1 to 99)")
	flags.DurationVar(&p.cell, "time", time.Second, "time per cell and round (100ms to 1m)")
	flags.BoolVar(&p.quick, "quick", false, "one round, with shorter and fewer measurements, one point of a curve: a rough figure in less than a minute")
	flags.StringVar(&p.json, "json", "", "write all samples to this `file`")
	flags.StringVar(&p.charts, "charts", "", "draw charts as SVG into this `folder`")
	flags.StringVar(&p.page, "page", "", "put the figures of the report into the tables of this Markdown `file`")
	flags.StringVar(&p.from, "from", "", "measure nothing: report what -json has written to this `file`, or the report in it")
	flags.StringVar(&p.beside, "beside", "", "another checkout of this repository, a `folder`: the scene own-cost measures it beside this one")
	flags.BoolVar(&p.bounded, "bounded", false, "fail if own-cost is above its bounds; -beside must be commit "+recorded)
	flags.BoolVar(&p.million, "million", false, "curve-held: a million locks, too, which takes two minutes")
	which := flags.String("scenes", "all", "comma-separated names of scenes, or curves for those that have such a name: "+sceneNames())
	if err := cli.Parse(flags, args); err != nil {
		return plan{}, err
	}
	if p.quick {
		p.rounds, p.cell, p.warmUp, p.grace = 1, 250*time.Millisecond, 100*time.Millisecond, 200*time.Millisecond
		p.contend, p.frozen, p.extended = 700*time.Millisecond, 2*time.Second, 2*time.Second
		p.held, p.wakeups, p.transfer, p.badNode = 5_000, 20, time.Second, time.Second
	}
	switch {
	case p.rounds < 1 || p.rounds > 99:
		return plan{}, cli.Misusef("-rounds %d is out of range: 1 to 99", p.rounds)
	case p.bounded && p.beside == "":
		return plan{}, cli.Misusef("-bounded needs -beside")
	case p.cell < 100*time.Millisecond || p.cell > time.Minute:
		return plan{}, cli.Misusef("-time %v is out of range: 100ms to 1m", p.cell)
	}
	var err error
	if p.scenes, err = pickScenes(*which); err != nil {
		return plan{}, err
	}
	return p, p.checkFiles()
}

// checkFiles checks before the measurement that the results can be written.
func (p plan) checkFiles() (err error) {
	if p.json != "" {
		err = cli.File("json", p.json)
	}
	if err == nil && p.charts != "" {
		err = cli.Folder("charts", p.charts)
	}
	if err == nil && p.page != "" {
		err = cli.File("page", p.page)
	}
	if err == nil && p.beside != "" {
		err = cli.Folder("beside", p.beside)
	}
	return err
}

func sceneNames() string {
	names := make([]string, len(scenes))
	for i, sc := range scenes {
		names[i] = sc.name
	}
	return strings.Join(names, ", ")
}

// pickScenes returns the scenes of a comma-separated list, in the report's order.
func pickScenes(list string) ([]scene, error) {
	switch list {
	case "all":
		return slices.DeleteFunc(slices.Clone(scenes), func(sc scene) bool { return sc.apart }), nil
	case "curves":
		return curves, nil
	}
	wanted := make(map[string]bool)
	for name := range strings.SplitSeq(list, ",") {
		wanted[strings.TrimSpace(name)] = true
	}
	var picked []scene
	for _, sc := range scenes {
		if wanted[sc.name] {
			picked = append(picked, sc)
			delete(wanted, sc.name)
		}
	}
	for name := range wanted {
		return nil, cli.Misusef("-scenes %s: no scene %q; there are: %s", list, name, sceneNames())
	}
	return picked, nil
}
