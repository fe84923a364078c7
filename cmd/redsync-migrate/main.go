// Redsync-migrate moves a program from redsync v4 to this library: it rewrites what can be rewritten, and names each use
// that a person has to look at. docs/from-redsync-v4.md describes it. Its flags and texts are experimental (docs/versions.md).
//
//	go run github.com/seed14bd9ef4/redsync/cmd/redsync-migrate@latest ./...
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
)

const usage = `Usage: redsync-migrate [-diff | -fix] [-tags LIST]... [PACKAGE...]

It looks at the packages, ./... by default, and their tests. Without a flag it only reports.

  -diff       show what -fix would write
  -fix        write the files
  -tags LIST  build tags, separated by commas; also GOOS=windows and the like. Each -tags is looked
              at beside the build without tags: give all that your program has in one run
  -version    say the version

Exit status: 0 if nothing is left to a person, 1 if something is, 2 if it could not work.
`

func main() { os.Exit(run(context.Background(), ".", os.Args[1:], os.Stdout, os.Stderr)) }

// lists are the values of a flag that comes more than once.
type lists []string

func (l *lists) String() string { return strings.Join(*l, " ") }

func (l *lists) Set(text string) error {
	*l = append(*l, text)
	return nil
}

// run is the command, in directory dir.
func run(ctx context.Context, dir string, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("redsync-migrate", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() { _, _ = io.WriteString(stderr, usage) }
	diff, fix, says := flags.Bool("diff", false, ""), flags.Bool("fix", false, ""), flags.Bool("version", false, "")
	tags := lists{""}
	flags.Var(&tags, "tags", "")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return 2
	}
	if *says {
		_, _ = fmt.Fprintln(stdout, "redsync-migrate", version())
		return 0
	}
	if *diff && *fix {
		_, _ = io.WriteString(stderr, "redsync-migrate: -diff and -fix exclude each other\n")
		return 2
	}
	patterns := flags.Args()
	if len(patterns) == 0 {
		patterns = []string{"./..."}
	}
	dir, err := filepath.Abs(dir)
	if err == nil {
		p := &program{dir: dir, out: stdout}
		if err = p.load(ctx, tags, patterns); err == nil {
			p.find()
			err = p.finish(*diff, *fix)
			if err == nil {
				return min(1, p.left)
			}
		}
	}
	_, _ = fmt.Fprintln(stderr, "redsync-migrate:", err)
	return 2
}

// version returns the version of the module that the program was built from.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}
