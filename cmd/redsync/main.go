// Command redsync runs another command while it holds a lock on independent Redis nodes. The texts of --help are in the
// directory usage.
package main

import (
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"

	"github.com/spf13/pflag"
)

// The exit statuses of redsync itself. Those from 64 to 78 are of sysexits.h, 126 and 127 those of shells.
const (
	exitUsage      = 64
	exitNoQuorum   = 69
	exitInternal   = 70
	exitTaken      = 75
	exitLost       = 79
	exitNotRun     = 126
	exitNotFound   = 127
	exitSignalBase = 128 // plus the number of a signal
)

//go:embed usage/redsync.txt
var usageText string

//go:embed usage/nodes.txt
var usageNodes string

func main() { os.Exit(redsyncMain()) }

// redsyncMain returns the exit status.
func redsyncMain() int {
	if isHolder() {
		return holderMain()
	}
	return dispatch(os.Args[1:], os.Stdout, os.Stderr)
}

// dispatch runs the command that args name.
func dispatch(args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		return say(stderr, wrong("give a command: run or lead. See redsync --help"))
	}
	switch name := args[0]; name {
	case "run", "lead":
		j, err := parseJob(name, args[1:])
		switch {
		case errors.Is(err, pflag.ErrHelp):
			fmt.Fprint(stdout, usageOf(name))
			return 0
		case err != nil:
			return say(stderr, err)
		}
		return front(j, args, stderr)
	case "help", "-h", "--help":
		fmt.Fprint(stdout, usageText)
		return 0
	case "version", "--version":
		fmt.Fprintln(stdout, "redsync", version())
		return 0
	default:
		return say(stderr, wrong("%q is no command: run or lead. See redsync --help", name))
	}
}

// version returns the version of the module that the program was built from.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}

// A failure is an error with an exit status.
type failure struct {
	status int
	err    error
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// wrong returns the failure of a call with wrong arguments.
func wrong(format string, args ...any) error {
	return &failure{exitUsage, fmt.Errorf(format, args...)}
}

// say writes the line of err, and returns its exit status.
func say(stderr io.Writer, err error) int {
	line(stderr, err.Error())
	var f *failure
	if errors.As(err, &f) {
		return f.status
	}
	return exitInternal
}

// line writes a line for people.
func line(stderr io.Writer, text string) {
	text = strings.TrimPrefix(text, "redsync: ")
	fmt.Fprintf(stderr, "redsync: %s\n", strings.ReplaceAll(text, "\n", " "))
}
