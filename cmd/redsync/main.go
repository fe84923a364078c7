// Command redsync runs another command while it holds a lock on independent Redis nodes. The texts of --help are in the
// directory usage. Flags, exit statuses and JSON are experimental (docs/versions.md).
package main

import (
	"embed"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"

	"github.com/spf13/pflag"

	"github.com/seed14bd9ef4/redsync/internal/foreign"
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

// usages are the texts of --help.
//
//go:embed usage/*.txt
var usages embed.FS

// help writes the text about a command or another topic, and returns the exit status.
func help(topic string, stdout, stderr io.Writer) int {
	text, err := usages.ReadFile("usage/" + topic + ".txt")
	if err != nil {
		return say(stderr, wrong("%q is no command or topic. See redsync --help", topic))
	}
	_, _ = stdout.Write(text)
	return 0
}

func main() { os.Exit(redsyncMain()) }

// holderName is argument 0 of the holder. It has no name of a program that people kill by name.
const holderName = "lock-holder"

// isHolder reports whether this process is the holder of another one. See link.go.
func isHolder() bool { return len(os.Args) > 2 && os.Args[0] == holderName }

// softMemory is when the collector begins to do its utmost: a reply may be of 16 MiB, and then leaves as much behind.
const softMemory = 96 << 20

// redsyncMain returns the exit status.
func redsyncMain() int {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(softMemory)
	}
	if isHolder() {
		return holderMain()
	}
	return dispatch(os.Args[1:], os.Stdout, os.Stderr)
}

// A commandFunc reads its arguments and does what they say. It returns the exit status.
type commandFunc func(args []string, stdout, stderr io.Writer) (int, error)

var commands = map[string]commandFunc{
	"run":    func(args []string, _, stderr io.Writer) (int, error) { return runOrLead("run", args, stderr) },
	"lead":   func(args []string, _, stderr io.Writer) (int, error) { return runOrLead("lead", args, stderr) },
	"status": status,
	"unlock": unlock,
	"check":  checkNodes,
}

// dispatch runs the command that args name.
func dispatch(args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		return say(stderr, wrong("give a command. See redsync --help"))
	}
	name := args[0]
	switch name {
	case "help", "-h", "--help":
		return help(append(args, "redsync")[1], stdout, stderr)
	case "version", "--version":
		fmt.Fprintln(stdout, "redsync", version())
		return 0
	}
	command := commands[name]
	if command == nil {
		return say(stderr, wrong("%q is no command. See redsync --help", name))
	}
	status, err := command(args[1:], stdout, stderr)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		return help(name, stdout, stderr)
	case err != nil:
		return say(stderr, err)
	}
	return status
}

// runOrLead is the command run or lead.
func runOrLead(name string, args []string, stderr io.Writer) (int, error) {
	j, err := parseJob(name, args)
	if err != nil {
		return 0, err
	}
	return front(j, name, args, stderr), nil
}

// parse reads the flags of a command.
func parse(command string, flags *pflag.FlagSet, args []string) error {
	flags.Usage = func() {}
	flags.SortFlags = false
	err := flags.Parse(args)
	if err != nil && !errors.Is(err, pflag.ErrHelp) {
		return wrong("%w. See redsync %s --help", err, command)
	}
	return err
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

// line writes a line for people. Parts of it come from the nodes.
func line(stderr io.Writer, text string) {
	text = strings.ReplaceAll(strings.TrimPrefix(text, "redsync: "), ": redsync: ", ": ")
	fmt.Fprintf(stderr, "redsync: %s\n", foreign.Lines(strings.ReplaceAll(text, "\n", " ")))
}
