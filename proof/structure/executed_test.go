package structure

import (
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// program locks and unlocks. It writes what each step executes to a directory of its own.
const program = module + "/proof/structure/testdata/lock"

// calls are the directories of program, by call. A Lock that waits comes with the Unlock that it waits for.
var calls = map[string]string{"Lock": "lock", "Unlock": "unlock", "Lock that waits": "wait"}

// features are the files of modes and options that neither program nor most users ask for. A file of a new mode comes
// here, wherever it is.
var features = []string{
	"do.go", "fill.go", "joint.go", "lead.go", "multi.go", "nesting.go", "permits.go",
	"sequencer.go", "shared.go", "sharing.go", "surplus.go", "tokens.go",
}

func TestWhatAPlainLockExecutes(t *testing.T) {
	needsGo(t)
	dir := execute(t)
	functions, files, ofFeatures := map[string]int{}, map[string]int{}, map[string]int{}
	for call, name := range calls {
		byFile := executed(string(run(t, "go", "tool", "covdata", "func", "-i="+filepath.Join(dir, name))))
		files[call] = len(byFile)
		for _, file := range slices.Sorted(maps.Keys(byFile)) {
			functions[call] += len(byFile[file])
			t.Logf("%s: %s: %s", call, file, strings.Join(byFile[file], " "))
			if slices.Contains(features, path.Base(file)) {
				ofFeatures[call]++
			}
		}
	}
	assert.Empty(t, compare("functions executed", bounds["functions executed"], functions))
	assert.Empty(t, compare("files executed", bounds["files executed"], files))
	assert.Empty(t, compare("files of features not in use", bounds["files of features not in use"], ofFeatures))
}

// execute builds program so that the library's functions count their executions, runs it, and returns the directory
// to which it has written.
func execute(t *testing.T) string {
	t.Helper()
	var counted []string
	for line := range strings.Lines(string(run(t, "go", "list", "-deps", "."))) {
		if p := strings.TrimSpace(line); p == module || strings.HasPrefix(p, module+"/") {
			counted = append(counted, p)
		}
	}
	require.Contains(t, counted, module+"/internal/lease")
	dir := t.TempDir()
	binary := filepath.Join(dir, "lock.exe")
	// The program itself must be in -coverpkg. Otherwise it cannot write the counters.
	run(t, "go", "build", "-buildvcs=false", "-cover", "-covermode=atomic",
		"-coverpkg="+strings.Join(append(counted, program), ","), "-o", binary, program)
	t.Setenv("GOCOVERDIR", dir) // for what the program writes at its end
	run(t, binary, dir)
	return dir
}

// counter matches what the tool says about a function: FILE:LINE: NAME SHARE%.
var counter = regexp.MustCompile(`(?m)^(\S+\.go):\d+:\s+(\S+)\s+(\d+\.\d)%$`)

// executed returns the functions of the library that have been executed, by file.
func executed(report string) map[string][]string {
	byFile := map[string][]string{}
	for _, m := range counter.FindAllStringSubmatch(report, -1) {
		file, function, share := short(m[1]), m[2], m[3]
		if share != "0.0" && path.Dir(m[1]) != program {
			byFile[file] = append(byFile[file], function)
		}
	}
	return byFile
}
