//go:build linux

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/testkit/cli"
)

// begin starts a shell script with the mark, and returns the numbers that it writes first.
func begin(t *testing.T, mark, script string, numbers ...any) int {
	t.Helper()
	cmd := exec.Command("sh", "-c", script) //nolint:gosec // of this test
	cmd.Env = append(os.Environ(), variable+"="+mark)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	_, err = fmt.Fscan(out, numbers...)
	require.NoError(t, err)
	return cmd.Process.Pid
}

// A herd is a process with a child, one whose parent has ended, and one that was stopped before. Another process runs on.
func TestAHerdIsStoppedAndContinued(t *testing.T) {
	mark := t.Name()
	var child, orphan, still, none int
	root := begin(t, mark, `sleep 600 & echo $!; sh -c 'sleep 600 >/dev/null & echo $!'; sleep 600 & kill -STOP $!; echo $!; wait`, &child, &orphan, &still)
	other := begin(t, "other", `echo 0; exec sleep 600`, &none)
	h := &herd{root: root, mark: variable + "=" + mark}
	t.Cleanup(h.kill)
	state := func(pid int) bool { s, _ := look(pid); return isStill(s) }
	awaitStill(still)
	for range 2 {
		stopped := h.stop()
		assert.ElementsMatch(t, []int{root, child, orphan}, stopped)
		assert.Equal(t, root, stopped[0])
		for _, pid := range []int{root, child, orphan, still} {
			assert.True(t, state(pid), pid)
		}
		assert.False(t, state(other))
		resume(stopped)
		for _, pid := range stopped {
			require.Eventually(t, func() bool { return !state(pid) }, time.Minute, time.Millisecond)
		}
		assert.True(t, state(still), "who stopped it, continues it")
	}
	h.kill()
	for _, pid := range []int{child, orphan, still} {
		require.Eventually(t, func() bool { return syscall.Kill(pid, 0) != nil || state(pid) }, time.Minute, time.Millisecond)
	}
	assert.False(t, state(other))
}

// fake makes a suite whose test program is a shell script.
func fake(t *testing.T, path, script string) suite {
	t.Helper()
	dir := t.TempDir()
	program := filepath.Join(dir, "program")
	require.NoError(t, os.WriteFile(program, []byte("#!/bin/sh\n"+script), 0o700)) //nolint:gosec // it must be run
	return suite{path, dir, program}
}

func TestAFailingTestIsReported(t *testing.T) {
	p, err := parsePlan([]string{"-seed", "7", "-from", "3", "-length", "gate", "2"})
	require.NoError(t, err)
	cores, err := ownCores()
	require.NoError(t, err)
	good := fake(t, "good", `[ $REDSYNC_TEST_LENGTH = gate ]`)
	bad := fake(t, "bad", `case $SLOW_RUN in *.4) echo "--- FAIL: TestA (0.1s)"; echo "    --- FAIL: TestA/part (0.1s)"; exit 1;; esac`)
	var out bytes.Buffer
	require.NoError(t, play(t.Context(), p, []suite{good}, cores, &out))
	err = play(t.Context(), p, []suite{good, bad}, cores, &out)
	require.EqualError(t, err, "tests failed in 1 of 4 runs")
	assert.Equal(t, cli.Failed, cli.Status("slow", err, &out, &out))
	assert.Equal(t, 2, strings.Count(out.String(), "FAIL round"))
	assert.Contains(t, out.String(), "FAIL round 4 bad TestA/part: seed 7, ")
	assert.Contains(t, out.String(), ".ci/slow -seed 7 -from 4 -length gate 1 bad\n")
	assert.NotContains(t, out.String(), "FAIL round 3")
	crashed := fake(t, "crashed", "kill -KILL $$")
	require.Error(t, play(t.Context(), p, []suite{crashed}, cores, &out))
	assert.Contains(t, out.String(), "FAIL round 3 crashed (no test by name)")
	assert.Contains(t, out.String(), "signal: killed")
	p.end = 0
	out.Reset()
	require.NoError(t, play(t.Context(), p, []suite{bad}, cores, &out))
	assert.Contains(t, out.String(), "the next is bad in round 3")
}

func TestPackagesThatHaveChanged(t *testing.T) {
	packages := []string{module, module + "/pool", module + "/tests", module + "/internal/script", module + "/proof/slow"}
	library := []string{"fmt", module, module + "/pool", module + "/internal/script"}
	for want, files := range map[string]string{
		"":                          "README.md docs/faq.md .ci/run cmd/redsync/main.go pool/README.md gone/gone.go",
		"./.":                       "votes_test.go",
		"./. ./tests":               "mutex.go mutex_test.go",
		"./internal/script ./tests": "internal/script/lock.lua",
		"./pool":                    "pool/look_test.go pool/testdata/fuzz/FuzzReply/1",
		"./proof/slow":              "proof/slow/main.go",
		"./tests":                   "go.mod",
	} {
		assert.Equal(t, strings.Fields(want), append([]string{}, packagesOf(strings.Fields(files), packages, library)...), files)
	}
}
