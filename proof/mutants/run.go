package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// A mode is how tests run.
type mode struct {
	name    string
	short   bool
	servers bool // tests may use redis-server
}

var (
	fast = mode{name: "fast", short: true}
	slow = mode{name: "slow", servers: true}
)

// A runner runs the tests of compiled test programs.
type runner struct {
	root string
	path string // a PATH without redis-server
}

// newRunner returns the runner of the tree at root. The runner keeps its files in dir.
func newRunner(root, dir string) (*runner, error) {
	r := &runner{root: root, path: filepath.Join(dir, "path")}
	program, err := exec.LookPath("go")
	if err != nil {
		return nil, err
	}
	return r, errors.Join(os.Mkdir(r.path, 0o700), os.Symlink(program, filepath.Join(r.path, "go")))
}

// An outcome is the result of a run of tests.
type outcome struct {
	failed  bool
	timeout bool
	test    string // the first test that failed; if the output names none, the last one that began
	output  string
}

var (
	failedTest = regexp.MustCompile(`(?m)^--- FAIL: (\S+)`)
	passedTest = regexp.MustCompile(`(?m)^--- PASS: (\S+)`)
	begunTest  = regexp.MustCompile(`(?m)^=== RUN   ([^/\s]+)$`)
)

// passed returns the tests that have passed.
func (o outcome) passed() (names []string) {
	for _, found := range passedTest.FindAllStringSubmatch(o.output, -1) {
		names = append(names, found[1])
	}
	return names
}

// grace is how long a test program may overrun its own -test.timeout before the runner kills it. It is
// long, because this process may be suspended for a while when the test program is not.
const grace = 10 * time.Minute

// tests runs the named tests of the package in dir, with the mutant that has the given number; 0 means
// no mutant. The program enforces limit itself, as its -test.timeout. The program does not get the
// caller's variables REDSYNC_..., because they could change which tests run, or how.
func (r *runner) tests(ctx context.Context, program, dir string, m mode, number int, limit time.Duration, tests []string, flags ...string) (outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, limit+grace)
	defer cancel()
	args := []string{"-test.run", "^(" + strings.Join(tests, "|") + ")$", "-test.v", "-test.failfast", "-test.timeout", limit.String()}
	if m.short {
		args = append(args, "-test.short")
	}
	temporary, err := os.MkdirTemp(filepath.Dir(r.path), "tmp-*")
	if err != nil {
		return outcome{}, err
	}
	defer func() { _ = os.RemoveAll(temporary) }()
	// Servers that a test starts may run as another user.
	if err := errors.Join(os.Chmod(filepath.Dir(r.path), 0o755), os.Chmod(temporary, 0o755)); err != nil { //nolint:gosec // nothing in them is secret
		return outcome{}, err
	}
	cmd := exec.CommandContext(ctx, program, append(args, flags...)...)
	cmd.Dir = filepath.Join(r.root, dir)
	cmd.Env = slices.DeleteFunc(cmd.Environ(), func(setting string) bool { return strings.HasPrefix(setting, "REDSYNC_") })
	cmd.Env = append(cmd.Env, fmt.Sprintf("%s=%d", variable, number), "GOWORK=off", "TMPDIR="+temporary)
	if !m.servers {
		cmd.Env = append(cmd.Env, "PATH="+r.path)
	}
	cmd.WaitDelay = time.Second // a process that a test has started may outlive the program and keep its output open
	output := &clipped{}
	cmd.Stdout, cmd.Stderr = output, output
	err = cmd.Run()
	if errors.Is(ctx.Err(), context.Canceled) {
		return outcome{}, ctx.Err()
	}
	if cmd.ProcessState == nil {
		return outcome{}, err
	}
	// The exit status decides whether tests failed. err may also say that ctx was done, or that a process
	// was left over.
	text := output.String()
	o := outcome{failed: !cmd.ProcessState.Success(), output: text}
	o.timeout = o.failed && (ctx.Err() != nil || strings.Contains(text, "panic: test timed out after"))
	if found := failedTest.FindStringSubmatch(text); found != nil {
		o.test = found[1]
	} else if begun := begunTest.FindAllStringSubmatch(text, -1); begun != nil {
		o.test = begun[len(begun)-1][1]
	}
	return o, nil
}

// A clipped keeps the first and the last part of what is written to it, and drops the middle,
// because a mutant may write forever.
type clipped struct{ head, tail bytes.Buffer }

const clippedPart = 1 << 20

func (c *clipped) Write(p []byte) (int, error) {
	n := len(p)
	if room := clippedPart - c.head.Len(); room > 0 {
		room = min(room, n)
		c.head.Write(p[:room])
		p = p[room:]
	}
	c.tail.Write(p)
	if extra := c.tail.Len() - 2*clippedPart; extra > 0 {
		c.tail = *bytes.NewBuffer(bytes.Clone(c.tail.Bytes()[c.tail.Len()-clippedPart:]))
	}
	return n, nil
}

func (c *clipped) String() string { return c.head.String() + c.tail.String() }

// A tried is a test to run with a mutant, and how long the test takes without one.
type tried struct {
	name string
	took time.Duration
}

func namesOf(tests []tried) (names []string) {
	for _, t := range tests {
		names = append(names, t.name)
	}
	return names
}

// waves lists the waves in which tests run, each by the longest time that one of its tests may take. The
// tests of a wave run in one process. Quick waves run first: a mutant that they kill needs no slow test.
var waves = []time.Duration{50 * time.Millisecond, 500 * time.Millisecond, 5 * time.Second, math.MaxInt64}

// inWaves splits tests into waves by how long they take.
func inWaves(tests []tried) (split [][]tried) {
	tests = slices.Clone(tests)
	for _, longest := range waves {
		var wave []tried
		tests = slices.DeleteFunc(tests, func(t tried) bool {
			if t.took <= longest {
				wave = append(wave, t)
			}
			return t.took <= longest
		})
		if len(wave) > 0 {
			split = append(split, wave)
		}
	}
	return split
}

// patience is the margin in the time limit of a wave: see limitOf.
const patience = 20 * time.Second

// limitOf returns how long the tests of a wave may take together: five times what they took when they
// were measured, plus patience, because other processes may slow them down.
func limitOf(wave []tried, patience time.Duration) time.Duration {
	sum := time.Duration(0)
	for _, t := range wave {
		sum += t.took
	}
	return 5*sum + patience
}
