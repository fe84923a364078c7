// Command chaos runs clients of the library against real servers, causes faults, and checks that the
// library kept its promises.
//
//	go run ./proof/chaos -for 60s -seed 1     # needs redis-server; README.md says more
//
// It starts five redis-servers, each behind proxies of its own, and three processes of clients
// that lock, hold, extend, unlock, give up and vanish in many ways. Meanwhile a plan, computed
// from the seed, stops and kills servers, cuts and slows connections, disturbs clocks, and more.
// At the end package proof/history reports the broken promises.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/seed14bd9ef4/redsync/internal/testkit/cli"
)

// With the environment variable envFakeTime set to requireFakeTime, the program fails if
// libfaketime is missing. Set to noFakeTime, it leaves libfaketime alone: a server that does not bear it ends at once.
const (
	envFakeTime     = "REDSYNC_TEST_FAKETIME"
	requireFakeTime = "require"
	noFakeTime      = "none"
)

func main() {
	logging.Disable() // go-redis logs every failed dial
	if text := os.Getenv(envJob); text != "" {
		if err := serve(text, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "chaos: clients:", err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command(ctx, os.Args[1:], os.Stdout)
	stop()
	os.Exit(cli.Status("chaos", err, os.Stdout, os.Stderr))
}

// A commandLine holds the flags.
type commandLine struct {
	settings
	page, data      string // files for the report as HTML and as JSON; "" means none
	verbose         bool
	requireFakeTime bool
}

// command does one run as args say, and writes its summary to out. It returns an error if the run failed.
func command(ctx context.Context, args []string, out io.Writer) error {
	line, err := parse(args)
	if err != nil {
		return err
	}
	line.say = func(string, ...any) {}
	if line.verbose {
		line.say = func(format string, args ...any) { _, _ = fmt.Fprintf(out, format+"\n", args...) }
	}
	line.FakeTime, err = findFakeTime()
	if err != nil && (line.requireFakeTime || line.Scene.faketime) {
		return err
	}
	r, err := run(ctx, line.settings)
	if err != nil {
		return err
	}
	r.summary(out)
	return errors.Join(line.write(r), r.verdict())
}

// parse reads and checks the command line. Its errors are for cli.Status.
func parse(args []string) (*commandLine, error) {
	line := &commandLine{settings: settings{processes: processCount}}
	flags := flag.NewFlagSet("chaos", flag.ContinueOnError)
	flags.DurationVar(&line.Length, "for", time.Minute, fmt.Sprintf("how long the clients lock and unlock: %v or more", 2*lull))
	flags.Uint64Var(&line.Seed, "seed", 0, "seed of the plan of faults: 1 or more; with 0 the program chooses one")
	name := flags.String("scene", "contract", "one of "+sceneNames())
	flags.StringVar(&line.page, "report", "", "HTML `file` for the report")
	flags.StringVar(&line.data, "json", "", "`file` for the report as JSON")
	programs := flags.String("servers", "", "`programs` for the nodes in turn, separated by \":\"; otherwise the redis-server on PATH")
	flags.BoolVar(&line.verbose, "v", false, "tell each fault as it begins")
	flags.BoolVar(&line.Keep, "keep", false, "keep the files of the run: logs, and the history")
	flags.BoolVar(&line.requireFakeTime, "require-faketime", os.Getenv(envFakeTime) == requireFakeTime,
		"fail if libfaketime is missing, instead of leaving faults out; "+envFakeTime+"="+requireFakeTime+" does the same")
	if err := cli.Parse(flags, args); err != nil {
		return nil, err
	}
	if line.Length < 2*lull {
		return nil, cli.Misusef("-for %v is out of range: %v or more", line.Length, 2*lull)
	}
	line.Programs = filepath.SplitList(*programs)
	if line.Seed == 0 {
		line.Seed = uint64(time.Now().UnixNano()) % 1_000_000
	}
	var err error
	if line.Scene, err = findScene(*name); err != nil {
		return nil, err
	}
	return line, line.checkFiles()
}

// checkFiles checks, before the run, that the reports can be written.
func (line *commandLine) checkFiles() (err error) {
	if line.page != "" {
		err = cli.File("report", line.page)
	}
	if err == nil && line.data != "" {
		err = cli.File("json", line.data)
	}
	return err
}

func sceneNames() string {
	var names []string
	for _, s := range scenes {
		names = append(names, fmt.Sprintf("%s (%s)", s.name, s.about))
	}
	return strings.Join(names, ", ")
}

// write writes the requested files.
func (line *commandLine) write(r *result) error {
	var errs []error
	if line.page != "" {
		errs = append(errs, writeFile(line.page, r.writePage))
	}
	if line.data != "" {
		errs = append(errs, writeFile(line.data, func(w io.Writer) error {
			e := json.NewEncoder(w)
			e.SetIndent("", " ")
			return e.Encode(r.account())
		}))
	}
	return errors.Join(errs...)
}

func writeFile(name string, write func(io.Writer) error) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}
