package redsync_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
)

// firstLock returns the program of the README.
func firstLock(t *testing.T) string {
	t.Helper()
	_, rest, found := strings.Cut(read(t, "../README.md"), "```go\npackage main\n")
	require.True(t, found)
	body, _, found := strings.Cut(rest, "```\n")
	require.True(t, found)
	return "package main\n" + body
}

// The README's first lock compiles as it stands, also with its line for one Redis. It prints only what its work prints, and exits
// with 0. If there are no nodes, it prints the reason, and exits with 1.
func TestReadmeFirstLock(t *testing.T) {
	testlength.FromGate(t) // it builds programs
	t.Parallel()
	ctx := limited(t, 5*minute)
	const three, one = `redsync.Open(ctx, []string{"localhost:7001", "localhost:7002", "localhost:7003"})`, `redsync.Open(ctx, []string{"localhost:6379"})`
	for n, reason := range map[int]string{3: "0 of 3 nodes answered", 1: "the only node failed"} {
		program := firstLock(t)
		if n == 1 {
			require.Contains(t, read(t, "../README.md"), "`"+one+"`")
			program = strings.Replace(program, three, one, 1)
		}
		var servers []*miniredis.Miniredis
		for _, address := range []string{"localhost:7001", "localhost:7002", "localhost:7003", "localhost:6379"} {
			if strings.Contains(program, address) {
				servers = append(servers, miniredis.RunT(t))
				program = strings.Replace(program, address, servers[len(servers)-1].Addr(), 1)
			}
		}
		require.Len(t, servers, n)
		dir := t.TempDir()
		source, binary := filepath.Join(dir, "main.go"), filepath.Join(dir, "first")
		noError(t, os.WriteFile(source, []byte(program), 0o600))
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
		err = run()
		const late = "redsync: some nodes do not answer"                                          // for 250 ms
		for try := 1; (err != nil || strings.Contains(stderr.String(), late)) && try < 5; try++ { // a slow machine may answer too late
			require.Contains(t, stderr.String(), "no answer within")
			err = run()
		}
		require.NoError(t, err, stderr.String())
		assert.Empty(t, stdout.String())
		assert.Regexp(t, `^[^\n]* working\n$`, stderr.String())

		for _, s := range servers {
			s.Close()
		}
		var exit *exec.ExitError
		require.True(t, errors.As(run(), &exit))
		assert.Equal(t, 1, exit.ExitCode(), stderr.String())
		assert.Contains(t, stderr.String(), "redsync: waiting for nodes")
		assert.Contains(t, stderr.String(), reason)
	}
}

// TestLinksOfThePagesLead looks at every relative link of every page: the file must exist, and so must the heading
// that the link names.
func TestLinksOfThePagesLead(t *testing.T) {
	link := regexp.MustCompile(`(?:\]\(|src="|srcset=")([^)"\s]+)[)"]`)
	pages := map[string]string{}
	noError(t, filepath.WalkDir("..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".md" {
			return err
		}
		text, err := os.ReadFile(path)
		pages[path] = string(text)
		return err
	}))
	links := 0
	for path, text := range pages {
		for _, match := range link.FindAllStringSubmatch(text, -1) {
			target, heading, _ := strings.Cut(match[1], "#")
			if strings.Contains(target, ":") {
				continue // another site
			}
			links++
			target = filepath.Join(filepath.Dir(path), target)
			if match[1][0] == '#' {
				target = path
			}
			_, err := os.Stat(target)
			require.NoError(t, err, "%s: %s", path, match[1])
			if heading != "" && filepath.Ext(target) == ".md" {
				require.Contains(t, headings(pages[target]), heading, "%s: %s", path, match[1])
			}
		}
	}
	require.Greater(t, links, 50)
}

// headings returns the names by which links reach the headings of a page, as code hosts form them.
func headings(page string) (names []string) {
	dropped := regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
	for line := range strings.Lines(page) {
		if title := strings.TrimLeft(line, "#"); title != line && strings.HasPrefix(title, " ") {
			name := dropped.ReplaceAllString(strings.ToLower(strings.TrimSpace(title)), "")
			names = append(names, strings.ReplaceAll(name, " ", "-"))
		}
	}
	return names
}
