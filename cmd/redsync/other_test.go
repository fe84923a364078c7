package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// On a system that is not Unix the program builds, and says what it cannot do. The test builds it here without the files for
// Unix, so it can run it.
func TestWithoutUnix(t *testing.T) {
	if testing.Short() {
		t.Skip("it compiles and links the program")
	}
	files := must(filepath.Glob("*.go"))
	dir, here := t.TempDir(), must(os.Getwd())
	replace := map[string]string{}
	for _, name := range files {
		text := textOf(name)
		switch {
		case strings.HasPrefix(text, "//go:build unix\n"):
			replace[filepath.Join(here, name)] = "" // there is no such file
		case strings.HasPrefix(text, "//go:build !unix\n"):
			_, rest, _ := strings.Cut(text, "\n")
			replace[filepath.Join(here, name)] = filepath.Join(dir, name)
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(rest), 0o600))
		}
	}
	require.Greater(t, len(replace), 3)
	overlay, program := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "redsync.exe")
	text := must(json.Marshal(map[string]any{"Replace": replace}))
	require.NoError(t, os.WriteFile(overlay, text, 0o600))
	out, err := exec.Command("go", "build", "-overlay", overlay, "-o", program, ".").CombinedOutput()
	require.NoError(t, err, string(out))

	for _, command := range []string{"run", "lead"} {
		cmd := exec.Command(program, command, "job", "--nodes", "a:1", "--", "true")
		said, err := cmd.CombinedOutput()
		require.Error(t, err)
		require.Equal(t, exitUsage, cmd.ProcessState.ExitCode())
		require.Regexp(t, "^redsync: "+command+" is not available on [a-z]+: it needs the process groups and signals of Unix\n$", string(said))
	}
	out = must(exec.Command(program, "run", "--help").Output())
	require.Equal(t, usageOf("run"), string(out))
}
