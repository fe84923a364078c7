package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A package that needs three times as much fails on a slow machine and on a fast one. What all packages need more, and
// what takes less than two seconds, does not count.
func TestJudge(t *testing.T) {
	before := map[string]float64{"a": 10, "b": 20, "c": 30, "small": 0.2}
	for _, pace := range []float64{0.5, 1, 4} {
		now := map[string]float64{}
		for name, seconds := range before {
			now[name] = pace * seconds
		}
		wrong, measured := judge(now, before)
		assert.Empty(t, wrong)
		assert.InDelta(t, pace, measured, 0.01)
		now["small"] *= 5
		now["b"] *= 3
		now["new"] = 3 * max(pace, 1)
		wrong, _ = judge(now, before)
		require.Len(t, wrong, 2)
		assert.Contains(t, wrong[0], "the tests of b need")
		assert.Contains(t, wrong[1], "the tests of new need")
	}
}

// TestMain lets the test binary be the go command of TestMeasured, too.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "go" {
		main()
		return
	}
	os.Exit(m.Run())
}

// What a test has compiled is taken off what its package needs: a new machine compiles for a minute.
func TestMeasured(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("it needs a shell")
	}
	dir := t.TempDir()
	wd, err := os.Getwd()
	require.NoError(t, err)
	t.Setenv("REDSYNC_GATE_NOTES", dir)
	t.Setenv("REDSYNC_GATE_ROOT", filepath.Dir(wd))
	t.Setenv("REDSYNC_GATE_KIND", " in a test")
	require.NoError(t, measured(notes{dir}, []string{"sh", "-c", `test "$(go env GOVERSION)" = "` + runtime.Version() + `"`}))
	var exit *exec.ExitError
	require.ErrorAs(t, measured(notes{dir}, []string{"sh", "-c", "go no-such-command 2>/dev/null"}), &exit)
	text, err := os.ReadFile(filepath.Join(dir, "packages"))
	require.NoError(t, err)
	assert.Regexp(t, `^(-0\.\d gate in a test\n0\.\d gate in a test\n){2}$`, string(text))
}

func TestSummary(t *testing.T) {
	dir := t.TempDir()
	kept, recorded := notes{dir}, filepath.Join(dir, "seconds.txt")
	kept.add("steps", 61, "tests")
	kept.add("steps", 7, "lint")
	for i := range 12 {
		kept.add("tests", float64(i), strings.Repeat("x", i+1))
	}
	kept.add("packages", 4, "tests")
	kept.add("packages", 5, "tests")
	var out bytes.Buffer
	require.NoError(t, summary(kept, recorded, true, &out))
	text, err := os.ReadFile(recorded)
	require.NoError(t, err)
	assert.True(t, strings.HasSuffix(string(text), "\n\n9.0 tests\n"), "%s", text)
	out.Reset()
	require.NoError(t, summary(kept, recorded, false, &out))
	lines := strings.Split(out.String(), "\n")
	assert.Equal(t, []string{"   61 s  tests", "    7 s  lint", "the slowest tests:", " 11.0 s  " + strings.Repeat("x", 12)}, lines[:4])
	assert.Equal(t, "processor seconds of all tests: 9, 1.00 times the recorded ones in the median", lines[3+slowest])
	kept.add("packages", 30, "new")
	require.ErrorContains(t, summary(kept, recorded, false, &out), "the tests of new need 30.0 s of processor time")
}

// Of tests that pass, only their times are told.
func TestTell(t *testing.T) {
	var out bytes.Buffer
	times := map[string]float64{}
	failed, err := tell(strings.NewReader(`{"Action":"build-output","Output":"no such type\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"fine\n"}
{"Action":"pass","Package":"p","Test":"TestA/sub","Elapsed":9}
{"Action":"pass","Package":"p","Test":"TestA","Elapsed":1.5}
{"Action":"output","Package":"p","Test":"TestB","Output":"wrong\n"}
{"Action":"fail","Package":"p","Test":"TestB","Elapsed":0.5}
{"Action":"output","Package":"p","Output":"PASS\n"}
{"Action":"output","Package":"p","Output":"FAIL\tp\n"}
{"Action":"fail","Package":"p","Elapsed":2}
`), &out, func(seconds float64, name string) { times[name] = seconds })
	require.NoError(t, err)
	assert.Equal(t, []failure{{"p", "TestB", "wrong\n"}}, failed)
	assert.Equal(t, "no such type\nwrong\nFAIL\tp\n", out.String())
	assert.Equal(t, map[string]float64{"p TestA": 1.5, "p TestB": 0.5}, times)
}

// Only one or two tests that have failed, for a reason that a slow machine may cause, are run again.
func TestMayBeLate(t *testing.T) {
	late := failure{"p", "TestA", "context deadline exceeded"}
	assert.True(t, mayBeLate([]failure{late, late}))
	assert.False(t, mayBeLate([]failure{late, late, late}))
	assert.False(t, mayBeLate(nil))
	for _, never := range []failure{{"p", "", "found unexpected goroutines"}, {"p", "TestA", "WARNING: DATA RACE"}, {"p", "TestA", "two holders"}} {
		assert.False(t, mayBeLate([]failure{late, never}), never)
	}
	assert.Equal(t, []string{"-short", "-timeout", "40m"}, flags([]string{"-short", "-timeout", "40m", "./proof/chaos/...", "./bench"}))
}

// A change that breaks programs must be named above the section of the last tag, as code, and whole.
func TestBreaks(t *testing.T) {
	for change, name := range map[string]string{
		"- WithFoo: removed": "WithFoo",
		"- (*Mutex).Lock: changed from func() to func() error":             "Mutex.Lock",
		"- Status.Holder: old is comparable, new is not":                   "Status.Holder",
		"- ./pool.New: changed from func(int) to func(string)":             "pool.New",
		"- ./pool/pooltest.Run: removed":                                   "pooltest.Run",
		"- ./fencing.(*Guard[K]).Do: removed":                              "fencing.Guard.Do",
		"- ./pool.Pool, method Send: added":                                "pool.Pool",
		"- package github.com/seed14bd9ef4/redsync/pool/pooltest: removed": "pool/pooltest",
	} {
		for log, named := range map[string]bool{
			"- `" + name + "(d)` is gone: use Bar.\n\n## 0.1.0\n":       true,
			"- " + name + " is gone.\n\n## 0.1.0 - 2026-11-29\n":        false,
			"- `" + name + "Other` is gone.\n\n## [0.1.0]\n":            false,
			"## 0.2.0\n\n## 0.1.0\n\n- `" + name + "` is a new word.\n": false,
			"- `" + name + "`\n\n## 0.1.01\n":                           false,
		} {
			file := filepath.Join(t.TempDir(), "CHANGELOG.md")
			require.NoError(t, os.WriteFile(file, []byte("# Changelog\n\n"+log), 0o600))
			err := breaks(strings.NewReader("- ./examples/leader.Run: removed\n- ./examples/internal/x.F: removed\n"+change+"\n"), file, "v0.1.0", io.Discard)
			assert.Equal(t, named, err == nil, "%s in %q: %v", change, log, err)
		}
	}
	file := filepath.Join(t.TempDir(), "CHANGELOG.md")
	require.NoError(t, os.WriteFile(file, []byte("## 0.1.0\n"), 0o600))
	require.NoError(t, breaks(strings.NewReader(""), file, "v0.1.0", io.Discard))
}
