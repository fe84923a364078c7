package redsync_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// firstLock returns the program of the README.
func firstLock(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("README.md")
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(text), "```go\npackage main\n")
	require.True(t, found)
	body, _, found := strings.Cut(rest, "```\n")
	require.True(t, found)
	return "package main\n" + body
}

// The README's first lock compiles as it stands. It says nothing but what its work says and
// exits with 0, and says why and exits with 1 where there are no nodes.
func TestReadmeFirstLock(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	program := firstLock(t)
	var servers []*miniredis.Miniredis
	for _, address := range []string{"localhost:7001", "localhost:7002", "localhost:7003"} {
		server := miniredis.RunT(t)
		servers = append(servers, server)
		require.Equal(t, 1, strings.Count(program, address))
		program = strings.Replace(program, address, server.Addr(), 1)
	}
	dir := t.TempDir()
	source, binary := filepath.Join(dir, "main.go"), filepath.Join(dir, "first")
	require.NoError(t, os.WriteFile(source, []byte(program), 0o600))
	out, err := exec.CommandContext(ctx, "go", "build", "-o", binary, source).CombinedOutput()
	require.NoError(t, err, string(out))

	var stdout, stderr bytes.Buffer
	run := func() error {
		stdout.Reset()
		stderr.Reset()
		cmd := exec.CommandContext(ctx, binary)
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		return cmd.Run()
	}
	require.NoError(t, run(), stderr.String())
	assert.Empty(t, stdout.String())
	assert.Regexp(t, `^[^\n]* working\n$`, stderr.String())

	for _, s := range servers {
		s.Close()
	}
	var exit *exec.ExitError
	require.True(t, errors.As(run(), &exit))
	assert.Equal(t, 1, exit.ExitCode(), stderr.String())
	assert.Contains(t, stderr.String(), "0 of 3 nodes answered")
}
