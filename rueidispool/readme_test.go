package rueidispool

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/testkit/realredis"
)

// The program of the README compiles as it stands, and with one address. It works with the lock on real servers, and fails with
// the wrong password.
func TestTheProgramOfTheReadme(t *testing.T) {
	t.Parallel()
	for name, nodes := range map[string]int{"one node": 1, "three nodes": 3} {
		t.Run(name, func(t *testing.T) { runTheProgram(t, nodes) })
	}
}

func runTheProgram(t *testing.T, nodes int) {
	servers := realredis.Start(t, nodes, "--requirepass", "hush")
	page, err := os.ReadFile("README.md")
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(page), "```go\npackage main\n")
	require.True(t, found)
	body, _, found := strings.Cut(rest, "```\n")
	require.True(t, found)
	const three = `"localhost:7001", "localhost:7002", "localhost:7003"`
	require.Equal(t, 1, strings.Count(body, three))
	addresses := make([]string, nodes)
	for i, s := range servers {
		addresses[i] = strconv.Quote(s.Addr())
	}
	program := "package main\n" + strings.Replace(body, three, strings.Join(addresses, ", "), 1)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	dir := t.TempDir()
	source, binary := filepath.Join(dir, "main.go"), filepath.Join(dir, "program")
	require.NoError(t, os.WriteFile(source, []byte(program), 0o600))
	out, err := exec.CommandContext(ctx, "go", "build", "-o", binary, source).CombinedOutput()
	require.NoError(t, err, string(out))

	run := func(password string) (string, error) {
		var stderr bytes.Buffer
		cmd := exec.CommandContext(ctx, binary)
		cmd.Env = append(os.Environ(), "REDIS_PASSWORD="+password)
		cmd.Stderr = &stderr
		err := cmd.Run()
		return stderr.String(), err
	}
	printed, err := run("wrong")
	require.Error(t, err)
	require.Contains(t, printed, "WRONGPASS")
	require.NotContains(t, printed, "working")
	printed, err = run("hush")
	for try := 1; err != nil && try < 5; try++ { // a slow machine may answer too late
		require.Contains(t, printed, "no answer within")
		printed, err = run("hush")
	}
	require.NoError(t, err, printed)
	require.Regexp(t, `(?m)^[^\n]* working$`, printed)
}
