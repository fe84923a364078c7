package structure

import (
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A program of a user contains no code that is only for tests.
func TestProgramsContainNothingForTests(t *testing.T) {
	needsGo(t)
	binary := filepath.Join(t.TempDir(), "worker.exe")
	run(t, "go", "build", "-buildvcs=false", "-o", binary, module+"/examples/worker")
	var functions []string
	for _, m := range regexp.MustCompile(`(?m)^ *[0-9a-f]+ [Tt] (\S+)$`).FindAllSubmatch(run(t, "go", "tool", "nm", binary), -1) {
		functions = append(functions, string(m[1]))
	}
	require.True(t, slices.Contains(functions, module+".(*Redsync).NewMutex"), "of %d functions", len(functions))
	for _, only := range []string{`internal/fortests\.`, `\.CountAlarms$`, `\.WaitOutSplits$`} {
		found := slices.DeleteFunc(slices.Clone(functions), func(f string) bool {
			return !regexp.MustCompile(regexp.QuoteMeta(module) + ".*" + only).MatchString(f)
		})
		assert.Empty(t, found, only)
	}
}
