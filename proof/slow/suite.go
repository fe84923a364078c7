//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A suite is the tests of one package.
type suite struct{ path, dir, program string }

// listSuites returns the packages that have tests.
func listSuites(ctx context.Context, names []string) (suites []suite, err error) {
	if len(names) == 0 {
		names = []string{"./...", "./proof/..."}
	}
	const format = `{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}	{{.Dir}}{{end}}`
	lines, err := run(ctx, "go", append([]string{"list", "-f", format}, names...)...)
	for _, line := range lines {
		path, dir, _ := strings.Cut(line, "\t")
		suites = append(suites, suite{path: path, dir: dir})
	}
	return suites, err
}

func (s suite) compile(ctx context.Context) error {
	_, err := run(ctx, "go", "test", "-c", "-vet=off", "-o", s.program, s.path)
	return err
}

// run runs a command, and returns the lines of its output that are not empty.
func run(ctx context.Context, name string, args ...string) (lines []string, err error) {
	cmd := exec.CommandContext(ctx, name, args...) //nolint:gosec // our own commands
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	text, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%v: %w: %s", cmd.Args, err, stderr.Bytes())
	}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return lines, nil
}

// A played is what a run of a suite has come to.
type played struct {
	failed bool
	tests  []string // those that failed
	output string
	took   time.Duration
	stops  int
}

// grace is how much longer than its limit a test program may run before it is killed.
const grace = time.Minute

// test runs the tests of s while it stops them now and then.
func (s suite) test(ctx context.Context, p plan, round int, core string) (o played, err error) {
	args := []string{"-c", core, s.program, "-test.timeout", p.limit.String(), "-test.run", p.run}
	length := p.length
	switch length {
	case "short":
		args, length = append(args, "-test.short"), ""
	case "normal":
		length = ""
	}
	limited, cancel := context.WithTimeout(ctx, p.limit+grace)
	defer cancel()
	cmd := exec.CommandContext(limited, "taskset", args...)                  //nolint:gosec // a program that was just compiled
	mark := fmt.Sprintf("%s=%d.%s.%d", variable, os.Getpid(), s.path, round) // the tests of other packages run beside it
	cmd.Dir, cmd.Env = s.dir, append(os.Environ(), mark, "REDSYNC_TEST_LENGTH="+length)
	cmd.WaitDelay = time.Second // a process that a test has left may keep the output open
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	cmd.SysProcAttr = endWithParent()
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return o, err
	}
	h := &herd{root: cmd.Process.Pid, mark: mark}
	ended := make(chan struct{})
	var stopper sync.WaitGroup
	if p.stops {
		stopper.Go(func() { o.stops = h.disturb(pauses(p.seed, round, s.path), ended) })
	}
	err = cmd.Wait()
	close(ended)
	stopper.Wait()
	h.root = 0 // another process may have this number now
	h.kill()
	if ctx.Err() != nil {
		return o, ctx.Err()
	}
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay) {
		return o, err
	}
	o.took, o.output = time.Since(began), output.String()
	o.failed = !cmd.ProcessState.Success()
	o.tests = failedTests(o.output)
	if o.failed && !cmd.ProcessState.Exited() {
		o.output += cmd.ProcessState.String() + "\n"
	}
	return o, nil
}

var failedTest = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)

// failedTests returns the tests that the output says have failed.
func failedTests(output string) (names []string) {
	for _, found := range failedTest.FindAllStringSubmatch(output, -1) {
		names = append(names, found[1])
	}
	if names == nil {
		return []string{"(no test by name)"}
	}
	return names
}

// endWithParent makes a process end if this program is killed.
func endWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// keepBusy starts busy loops on each core. stop ends them.
func keepBusy(cores []string, loops int) (stop func(), err error) {
	var started []*exec.Cmd
	stop = func() {
		for _, loop := range started {
			_ = loop.Process.Kill()
			_ = loop.Wait()
		}
	}
	for i := range loops * len(cores) {
		loop := exec.Command("taskset", "-c", cores[i%len(cores)], "sh", "-c", "while :; do :; done") //nolint:gosec // a number
		loop.SysProcAttr = endWithParent()
		if err := loop.Start(); err != nil {
			stop()
			return nil, err
		}
		started = append(started, loop)
	}
	return stop, nil
}

// ownCores returns the numbers of the cores that this program may use.
func ownCores() ([]string, error) {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return nil, err
	}
	_, list, _ := strings.Cut(string(text), "\nCpus_allowed_list:")
	list, _, _ = strings.Cut(list, "\n")
	return coresOf(strings.TrimSpace(list))
}

// coresOf returns the numbers in a list such as "0-2,7".
func coresOf(list string) (cores []string, err error) {
	for part := range strings.SplitSeq(list, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		from, err := strconv.Atoi(first)
		to, err2 := strconv.Atoi(last)
		if err = errors.Join(err, err2); err != nil {
			return nil, err
		}
		for core := from; core <= to; core++ {
			cores = append(cores, strconv.Itoa(core))
		}
	}
	return cores, nil
}
