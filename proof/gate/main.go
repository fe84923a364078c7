// The program gate runs tests for .ci/run, and says where the time went.
//
//	gate test FLAGS PACKAGES  # go test with these arguments: its output, and notes on each package and each test
//	gate exec BINARY ARGS...  # what go test calls for each test binary: it notes the processor seconds
//	go ARGS...                # what such tests find as the go command, whose processor seconds do not count
//	gate breaks TAG           # fails if CHANGELOG.md does not name each change that apidiff prints, since TAG
//	gate summary              # seconds of each step, the slowest tests, and packages that need too much processor time
//
// The notes are in the directory that REDSYNC_GATE_NOTES names. .ci/seconds.txt has the recorded processor seconds of
// each package. With REDSYNC_GATE_RECORD=1 the summary rewrites it.
package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

func main() {
	kept, args := notes{os.Getenv("REDSYNC_GATE_NOTES")}, os.Args[1:]
	err := errors.New("usage: REDSYNC_GATE_NOTES=DIR gate test FLAGS PACKAGES | exec BINARY ARGUMENTS | breaks TAG | summary")
	switch {
	case kept.dir == "" || len(args) == 0:
	case filepath.Base(os.Args[0]) == "go":
		err = compiled(kept, args)
	case args[0] == "test":
		err = test(kept, args[1:], os.Stdout)
	case args[0] == "exec" && len(args) > 1:
		err = measured(kept, args[1:])
	case args[0] == "breaks" && len(args) == 2:
		err = breaks(os.Stdin, "CHANGELOG.md", args[1], os.Stdout)
	case args[0] == "summary":
		err = summary(kept, ".ci/seconds.txt", os.Getenv("REDSYNC_GATE_RECORD") != "", os.Stdout)
	}
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		os.Exit(max(exit.ExitCode(), 1))
	case err != nil:
		fmt.Fprintln(os.Stderr, "gate:", err)
		os.Exit(1)
	}
}

// test runs go test in the present directory. If few tests fail, it runs them again.
func test(kept notes, args []string, out io.Writer) error {
	failed, err := goTest(kept, args, out)
	if err == nil || !mayBeLate(failed) {
		return err
	}
	for _, f := range failed {
		_, _ = fmt.Fprintf(out, "=== again, alone, %d times: %s %s\n", repetitions, f.pkg, f.test)
		if _, err := goTest(kept, append(flags(args), "-count="+strconv.Itoa(repetitions), "-run", "^"+f.test+"$", f.pkg), out); err != nil {
			return err
		}
		kept.add("late", 0, f.pkg+" "+f.test)
	}
	return nil
}

// goTest runs go test once, and returns the tests that have failed.
func goTest(kept notes, args []string, out io.Writer) ([]failure, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	kind := ""
	if strings.Contains(os.Getenv("GOFLAGS")+" "+strings.Join(args, " "), "-race") {
		kind = " with the race detector"
	}
	cmd := exec.Command("go", append([]string{"test", "-json", "-exec", self + " exec"}, args...)...) //nolint:gosec,noctx // it is what this program is for
	cmd.Env = append(os.Environ(), "REDSYNC_GATE_KIND="+kind)
	cmd.Stderr = os.Stderr
	events, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	failed, told := tell(events, out, func(seconds float64, name string) { kept.add("tests", seconds, name) })
	return failed, errors.Join(cmd.Wait(), told)
}

// realGo is the variable that names the go command for compiled.
const realGo = "REDSYNC_GATE_GO"

// measured runs a test binary, which go test has put in the directory of its package, and notes its processor seconds and
// those of the processes that it starts. The go command, which compiles for a minute on a new machine and hardly at all on
// others, is compiled.
func measured(kept notes, args []string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	name, err := filepath.Rel(os.Getenv("REDSYNC_GATE_ROOT"), dir)
	if err != nil {
		return err
	}
	name += os.Getenv("REDSYNC_GATE_KIND")
	shim := filepath.Join(kept.dir, "shim")
	if err := os.MkdirAll(shim, 0o700); err != nil {
		return err
	}
	if err := os.Symlink(self, filepath.Join(shim, "go")); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	command := os.Getenv(realGo) // set in a test of this program
	if command == "" {
		if command, err = exec.LookPath("go"); err != nil {
			return err
		}
	}
	seconds, err := run(args, "REDSYNC_GATE_PACKAGE="+name, realGo+"="+command,
		"PATH="+shim+string(filepath.ListSeparator)+os.Getenv("PATH"))
	kept.add("packages", seconds, name)
	return err
}

// compiled runs the go command for a test, and takes its processor seconds off those of the package.
func compiled(kept notes, args []string) error {
	seconds, err := run(append([]string{os.Getenv(realGo)}, args...))
	kept.add("packages", -seconds, os.Getenv("REDSYNC_GATE_PACKAGE"))
	return err
}

// run runs a program, and returns the processor seconds that it and the processes that it has waited for took.
func run(args []string, env ...string) (seconds float64, err error) {
	cmd := exec.Command(args[0], args[1:]...) //nolint:gosec,noctx // it is what this program is for
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	err = cmd.Run()
	if state := cmd.ProcessState; state != nil {
		seconds = (state.UserTime() + state.SystemTime()).Seconds()
	}
	return seconds, err
}
