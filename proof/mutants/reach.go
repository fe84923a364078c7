package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A reach says what each test of the tree executes, and how long it takes, in one mode. It is
// measured once for each state of the tree.
type reach struct {
	Blocks []block
	Tests  []testReach
}

// A block is a block of a coverage profile: its file, named by import path, and where it begins and ends
// in that file.
type block struct {
	File                                 string
	StartLine, StartCol, EndLine, EndCol int
}

// A testReach is what one test executes.
type testReach struct {
	Dir, Name string
	Took      time.Duration
	Passed    bool // false if it was skipped, or failed without a mutant
	Blocks    []int
}

// measureReach returns the reach of all tests. It reads the reach from the cache folder if it is
// there. If tests fail, it logs a warning for each, uses none of them for mutants, and writes no cache.
func measureReach(ctx context.Context, t *tree, r *runner, m mode, workers int, dir, cache string, log io.Writer) (*reach, error) {
	sum, err := r.state(ctx, m)
	if err != nil {
		return nil, err
	}
	cached := filepath.Join(cache, sum+"-"+m.name+".json")
	if text, readErr := os.ReadFile(cached); readErr == nil {
		known := new(reach)
		if json.Unmarshal(text, known) == nil {
			return known, nil
		}
	}
	began := time.Now()
	known, failed, err := runReach(ctx, t, r, m, workers, dir)
	if err != nil {
		return nil, err
	}
	_, _ = fmt.Fprintf(log, "what each of %d tests executes (%s): measured in %s\n", len(known.Tests), m.name, time.Since(began).Round(time.Second))
	for _, name := range failed {
		_, _ = fmt.Fprintf(log, "warning: %s fails on the tree as it is (%s), and tries no mutant\n", name, m.name)
	}
	if len(failed) > 0 {
		return known, nil
	}
	text, err := json.Marshal(known)
	if err != nil {
		return nil, err
	}
	return known, errors.Join(os.MkdirAll(cache, 0o700), writeWhole(cached, text))
}

// writeWhole writes a file so that no reader ever sees a part of it.
func writeWhole(path string, text []byte) error {
	file, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		_ = os.Remove(file.Name())
	}
	return err
}

// state returns a hash of what decides which code the tests execute in a mode: the tree's code, the testdata, the version of
// Go, and the redis-server that they find. Pages decide whether a test passes, but not what it executes.
func (r *runner) state(ctx context.Context, m mode) (string, error) {
	hash := sha256.New()
	_, _ = fmt.Fprintln(hash, runtime.Version())
	if m.servers {
		_, _ = fmt.Fprintln(hash, redisServer(ctx))
	}
	err := filepath.WalkDir(r.root, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() && (d.Name() == ".git" || path == filepath.Join(r.root, "internal", "mutants")) {
			if d != nil && d.IsDir() && err == nil {
				return filepath.SkipDir
			}
			return err
		}
		name := strings.TrimPrefix(path, r.root)
		isRead := slices.Contains([]string{".go", ".lua", ".mod", ".sum"}, filepath.Ext(name)) || strings.Contains(filepath.ToSlash(name), "/testdata/")
		if d.Type().IsRegular() && isRead {
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			_, _ = fmt.Fprintf(hash, "%s %d\n%s", name, len(text), text)
		}
		return nil
	})
	return fmt.Sprintf("%.16x", hash.Sum(nil)), err
}

// redisServer returns the path and the version of redis-server, "" if there is none.
func redisServer(ctx context.Context) string {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return ""
	}
	version, err := exec.CommandContext(ctx, path, "--version").CombinedOutput()
	return fmt.Sprintf("%s: %s (%v)", path, version, err)
}

func runReach(ctx context.Context, t *tree, r *runner, m mode, workers int, dir string) (known *reach, failed []string, err error) {
	var paths []string
	for _, l := range t.libraries {
		paths = append(paths, l.path)
	}
	known = new(reach)
	programs := map[string]string{}
	for _, tests := range t.testDirs() {
		program, err := t.build(ctx, tests, dir, "-cover", "-coverpkg="+strings.Join(paths, ","))
		if err != nil {
			return nil, nil, err
		}
		names, err := r.list(ctx, program, tests)
		if err != nil {
			return nil, nil, err
		}
		programs[tests] = program
		for _, name := range names {
			known.Tests = append(known.Tests, testReach{Dir: tests, Name: name})
		}
	}
	numbers := map[block]int{}
	var mu sync.Mutex
	err = parallel(ctx, workers, len(known.Tests), func(i int) error {
		test := &known.Tests[i]
		profile := filepath.Join(dir, fmt.Sprintf("profile-%d", i))
		o, err := r.tests(ctx, programs[test.Dir], test.Dir, m, 0, 5*time.Minute, []string{test.Name}, "-test.coverprofile="+profile)
		if err != nil {
			return err
		}
		result := regexp.MustCompile(`(?m)^--- (PASS|SKIP|FAIL): ` + test.Name + ` \(([\d.]+)s\)$`).FindStringSubmatch(o.output)
		if result == nil || o.failed {
			mu.Lock()
			defer mu.Unlock()
			failed = append(failed, test.Name+" of "+test.Dir)
			return nil
		}
		seconds, err := strconv.ParseFloat(result[2], 64)
		if err != nil {
			return err
		}
		test.Took, test.Passed = time.Duration(seconds*float64(time.Second)), result[1] == "PASS"
		blocks, err := readProfile(profile)
		if err != nil {
			return err
		}
		_ = os.Remove(profile)
		mu.Lock()
		defer mu.Unlock()
		for b, executed := range blocks {
			if _, ok := numbers[b]; !ok {
				numbers[b] = len(known.Blocks)
				known.Blocks = append(known.Blocks, b)
			}
			if executed {
				test.Blocks = append(test.Blocks, numbers[b])
			}
		}
		return nil
	})
	return known, failed, err
}

// testDirs returns the folders of the packages whose tests run.
func (t *tree) testDirs() (dirs []string) {
	for _, l := range t.libraries {
		for _, dir := range l.tests {
			if !slices.Contains(dirs, dir) {
				dirs = append(dirs, dir)
			}
		}
	}
	return dirs
}

// list returns the names of the tests, examples and fuzz targets of a program.
func (r *runner) list(ctx context.Context, program, dir string) (names []string, err error) {
	o, err := r.tests(ctx, program, dir, fast, 0, time.Minute, nil, "-test.list", "^(Test|Example|Fuzz)")
	if err == nil && o.failed {
		err = fmt.Errorf("the tests of %s cannot be listed: %s", dir, o.output)
	}
	for line := range strings.SplitSeq(o.output, "\n") {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "Test") || strings.HasPrefix(line, "Example") || strings.HasPrefix(line, "Fuzz") {
			names = append(names, line)
		}
	}
	return names, err
}

var profileLine = regexp.MustCompile(`(?m)^(.+):(\d+)\.(\d+),(\d+)\.(\d+) \d+ (\d+)$`)

// readProfile returns the blocks of a profile, and whether they were executed.
func readProfile(file string) (map[block]bool, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	blocks := map[block]bool{}
	for _, line := range profileLine.FindAllStringSubmatch(string(text), -1) {
		n := [4]int{}
		for i := range n {
			if n[i], err = strconv.Atoi(line[2+i]); err != nil {
				return nil, err
			}
		}
		b := block{line[1], n[0], n[1], n[2], n[3]}
		blocks[b] = blocks[b] || line[6] != "0"
	}
	return blocks, nil
}

func (b block) contains(line, column int) bool {
	return (b.StartLine < line || b.StartLine == line && b.StartCol <= column) &&
		(line < b.EndLine || line == b.EndLine && column <= b.EndCol)
}

// testsOf returns the tests in dir that execute m. It returns the tests that execute any part of
// m's function if wholeFunction is set, or if the profile has no block at m: the expression after case,
// for example, is in no block. It returns all tests in dir for scripts and for code outside of functions,
// which coverage profiles leave out.
func (known *reach) testsOf(m *mutant, dir string, wholeFunction bool) (tests []tried) {
	hit := make([]bool, len(known.Blocks))
	if m.fn != nil {
		file := m.source.pkg.path + "/" + filepath.Base(m.source.path)
		at := m.source.tokens.Position(m.source.tokens.Pos(m.start))
		from, to := m.source.tokens.Position(m.fn.decl.Pos()), m.source.tokens.Position(m.fn.decl.End())
		isAt := func(b block) bool { return b.File == file && b.contains(at.Line, at.Column) }
		wholeFunction = wholeFunction || !slices.ContainsFunc(known.Blocks, isAt)
		for i, b := range known.Blocks {
			hit[i] = isAt(b) || wholeFunction && b.File == file && b.StartLine >= from.Line && b.EndLine <= to.Line
		}
	}
	for _, test := range known.Tests {
		if test.Dir == dir && test.Passed && (m.fn == nil || slices.ContainsFunc(test.Blocks, func(i int) bool { return hit[i] })) {
			tests = append(tests, tried{test.Name, test.Took})
		}
	}
	return tests
}

// parallel calls f for each number from 0 to n-1, in the given number of goroutines. It stops early if a
// call returns an error or ctx is done, and returns the first such error.
func parallel(ctx context.Context, workers, n int, f func(int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	next := make(chan int)
	for range workers {
		wg.Go(func() {
			for i := range next {
				if err := f(i); err != nil {
					cancel(err)
				}
			}
		})
	}
	for i := 0; i < n && ctx.Err() == nil; i++ {
		select {
		case next <- i:
		case <-ctx.Done():
		}
	}
	close(next)
	wg.Wait()
	return context.Cause(ctx)
}
