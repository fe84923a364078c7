package structure

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
)

const (
	root   = "../.."
	module = "github.com/seed14bd9ef4/redsync"
)

// bounds are how large each figure may be, by what is counted. They are exact: a figure that is smaller has its bound
// lowered. What has no bound must be 0. CONTRIBUTING.md says what to do when a figure is larger ("When a guard fails").
var bounds = map[string]map[string]int{
	"size": {
		"fields of Mutex":      11, // with unlocks: what became of the last Unlock
		"Go files in the root": 31, // 24 without tests
		"words of README.md":   598,
	},
	"types in the largest circle": {
		"redsync":                 6,
		"redsync/internal/claim":  5,
		"redsync/internal/lease":  30, // a lease names what extends, fills and releases it, and each of these names its lease
		"redsync/internal/queue":  8,  // the subscriber wakes the lines of its group, and the group starts it
		"redsync/internal/quorum": 9,
		"redsync/internal/script": 3,
		"redsync/internal/wire":   3,
	},
	// A connection that may get pushes adds 2 (ownConn.Read, decoder.valueOrAttribute), an Unlock whose context may have
	// ended adds 1. Of a waiting Lock, 5 decide whether the waiter rests (Group.isWakableLocked), and 4 greet and listen with pushes.
	// An Unlock that is remembered for the next one adds 5 (lease/unlocks.go), 1 of them to Lock; the zero Mutex, and whether a
	// value may come back (lease/values.go), add 2 to Unlock.
	// One script releases one name and several: what its arguments end with has functions of its own.
	// Whether a node has commands of its own in place of a script adds 3 to Lock and 8 to Unlock.
	"functions executed":           {"Lock": 159, "Unlock": 182, "Lock that waits": 439},
	"files executed":               {"Lock": 37, "Unlock": 38, "Lock that waits": 70},
	"files of features not in use": {"Lock": 0, "Unlock": 1, "Lock that waits": 3},
}

func TestSizes(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, "*.go"))
	require.NoError(t, err)
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	require.NoError(t, err)
	assert.Empty(t, compare("size", bounds["size"], map[string]int{
		"fields of Mutex":      reflect.TypeFor[redsync.Mutex]().NumField(),
		"Go files in the root": len(files),
		"words of README.md":   len(strings.Fields(string(readme))),
	}))
}

// What go doc prints of the package fits two screens of 50 lines before its declarations begin.
func TestPackagePageFitsTwoScreens(t *testing.T) {
	needsGo(t)
	page, declarations, found := strings.Cut(string(run(t, "go", "doc", ".")), "\nvar ")
	require.True(t, found, "no declarations in %q", page)
	assert.Contains(t, declarations, "func Open(")
	assert.LessOrEqual(t, strings.Count(page, "\n"), 100)
}

// compare returns what is wrong with the figures of a kind, "" if nothing is.
func compare(kind string, bound, got map[string]int) string {
	names := slices.AppendSeq(slices.Collect(maps.Keys(bound)), maps.Keys(got))
	slices.Sort(names)
	var wrong []string
	for _, name := range slices.Compact(names) {
		switch is, bound := got[name], bound[name]; {
		case is > bound:
			const text = "%s: %s: %d is above the bound, %d (CONTRIBUTING.md: When a guard fails)"
			wrong = append(wrong, fmt.Sprintf(text, kind, name, is, bound))
		case is < bound:
			wrong = append(wrong, fmt.Sprintf("%s: %s: %d: lower the bound, %d", kind, name, is, bound))
		}
	}
	return strings.Join(wrong, "\n")
}

// needsGo skips a test that runs the go command, where there is none, and before the gate.
func needsGo(t *testing.T) {
	t.Helper()
	testlength.FromGate(t)
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("there is no go command")
	}
}

// run runs a program in the root of the module, and returns what it prints.
func run(t *testing.T, program string, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir, cmd.Env = root, append(os.Environ(), "GOWORK=")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "%s %q: %s", program, args, &stderr)
	return out
}

// short returns a path in the module without what all of them begin with.
func short(path string) string { return strings.TrimPrefix(path, filepath.Dir(module)+"/") }
