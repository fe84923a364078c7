//go:build unix

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/testkit/realredis"
)

// This file runs the command lines of docs/command.md and docs/owners.md.

// pageNodes are the nodes of the page and of the examples.
const pageNodes = "redis-1:6379,redis-2:6379,redis-3:6379,redis-4:6379,redis-5:6379"

// blocks returns the blocks of code in a page.
func blocks(page string) (all []string) {
	for _, match := range regexp.MustCompile("(?ms)^```\\w*\n(.*?)^```$").FindAllStringSubmatch(page, -1) {
		all = append(all, match[1])
	}
	return all
}

// alike returns an output without what differs from run to run.
func alike(text string) string {
	for _, r := range []struct{ pattern, by string }{
		{`\S+@\S+ \d+`, "OWNER"},
		{`for \d+ s `, "for N s "},
		{`holder [0-9a-f]{8}: `, "holder ID: "},
		{`for (another )?[\dhm.]+s\b`, "for ${1}N s"},
		{`\b\d{16}\b`, "TOKEN"},
		{`nodes( #\d)+`, "nodes N"},
		{`within (two round trips|a second)`, "soon"},
		{`(?m)^  (latency|server|run id|uptime|clock) .*$`, "  $1"},
	} {
		text = regexp.MustCompile(r.pattern).ReplaceAllString(text, r.by)
	}
	return text
}

// A pageShell is a shell that runs one command line after the other, as one in which somebody types them.
type pageShell struct {
	*testing.T
	in      io.Writer
	out     *bufio.Scanner
	servers []*realredis.Server
}

// pageEnd is what the shell writes when a command line has ended.
const pageEnd = "== the end =="

// newPageShell starts a shell on nodes of its own.
func newPageShell(t *testing.T) *pageShell {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	shell := exec.CommandContext(ctx, "sh")
	inSession(shell)
	shell.Dir = t.TempDir()
	in := must(shell.StdinPipe())
	from, to, err := os.Pipe()
	require.NoError(t, err)
	shell.Stdout, shell.Stderr = to, to
	require.NoError(t, shell.Start())
	require.NoError(t, to.Close())
	t.Cleanup(func() {
		in.Close()
		shell.Wait()
		cancel()
		from.Close()
	})
	return &pageShell{t, in, bufio.NewScanner(from), realredis.Start(t, 5, "--appendonly", "yes", "--appendfsync", "always")}
}

// held waits until the lock is on all nodes.
func (s *pageShell) held() {
	require.Eventually(s, func() bool { return keys(s.T, s.servers, "report") == len(s.servers) }, time.Minute, 20*time.Millisecond)
}

// keys returns how many nodes have a key.
func keys(t *testing.T, servers []*realredis.Server, key string) (n int) {
	for _, server := range servers {
		if has, err := server.Do("EXISTS", key); assert.NoError(t, err) && has == int64(1) {
			n++
		}
	}
	return n
}

// run runs a command line, and returns what it writes.
func (s *pageShell) run(line string) string {
	_, err := fmt.Fprintf(s.in, "%s\n{ status=$?; echo '%s'; (exit $status); }\n",
		strings.Replace(line, pageNodes, listOf(s.servers), 1), pageEnd)
	require.NoError(s, err)
	switch {
	case strings.HasSuffix(line, " &"):
		s.held()
	case strings.HasSuffix(line, " sleep 60"): // in the foreground: it loses its lock
		s.held()
		status, stdout, stderr := call(append(byForce, "--nodes", listOf(s.servers), "report")...)
		require.Zero(s, status, stdout+stderr)
	}
	var text strings.Builder
	for s.out.Scan() && s.out.Text() != pageEnd {
		text.WriteString(s.out.Text() + "\n")
	}
	require.Equal(s, pageEnd, s.out.Text())
	said := text.String()
	for i, address := range strings.Split(pageNodes, ",") {
		said = strings.ReplaceAll(said, s.servers[i].Addr(), address)
	}
	return said
}

// late finds what slow finds, or that redsync says nothing of the owner, because the nodes were not asked in time who it is.
var late = regexp.MustCompile(slow.String() + `|locked nodes: \[[\d ]*\][^,]`)

// The pages show what their command lines write.
func TestPageShowsWhatTheCommandsWrite(t *testing.T) {
	for name, lines := range map[string]int{"command": 8, "owners": 3} {
		t.Run(name, func(t *testing.T) { testPage(t, "../../docs/"+name+".md", lines) })
	}
}

// testPage runs the command lines of a page, which are so many at least.
func testPage(t *testing.T, path string, lines int) {
	t.Parallel()
	var page, shown string
	for _, block := range blocks(textOf(path)) {
		if strings.HasPrefix(block, "$ ") && !strings.HasPrefix(block, "$ go ") { // examples have tests of their own
			page += block
		}
	}
	require.GreaterOrEqual(t, strings.Count(page, "\n$ "), lines)
	for range 5 {
		shell := newPageShell(t)
		shown = ""
		for line := range strings.Lines(page) {
			if command, found := strings.CutPrefix(line, "$ "); found {
				shown += line + shell.run(strings.TrimSuffix(command, "\n"))
			}
		}
		if !late.MatchString(shown) {
			break
		}
	}
	assert.Equal(t, alike(page), alike(shown))
}

// Each line of an example that the page shows is in the file, and in this order.
func TestPageShowsTheExamples(t *testing.T) {
	t.Parallel()
	page, lines := textOf("../../docs/command.md"), 0
	for name, first := range map[string]string{"report.cron": "PATH=", "scheduler.service": "[Service]"} {
		example := regexp.MustCompile(`(?m)^#.*\n`).ReplaceAllString(textOf("examples/"+name), "")
		for _, block := range blocks(page) {
			if strings.HasPrefix(block, first) {
				assert.Contains(t, example, block, name)
				lines += strings.Count(block, "\n")
			}
		}
	}
	assert.Greater(t, lines, 10)
}
