package main

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/testlength"
)

// page is the page for those who move from redsync v4.
const page = "../../docs/from-redsync-v4.md"

// block returns the only code block of the page in that language.
func block(t *testing.T, language string) string {
	text := read(t, page)
	require.Equal(t, 1, strings.Count(text, "```"+language+"\n"))
	_, rest, _ := strings.Cut(text, "```"+language+"\n")
	body, _, found := strings.Cut(rest, "```\n")
	require.True(t, found)
	return body
}

func read(t *testing.T, file string) string {
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	return string(text)
}

// move runs the script of the page in a directory with these files, and returns what becomes of them.
func move(t *testing.T, files map[string]string) map[string]string {
	if runtime.GOOS == "windows" {
		t.Skip("the script is for a POSIX shell")
	}
	dir, moved := t.TempDir(), map[string]string{}
	for name, text := range files {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	goroot, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output() // gofmt is beside go
	require.NoError(t, err)
	script := exec.CommandContext(t.Context(), "sh", "-e", "-c", block(t, "sh")) //nolint:gosec // it is the page's
	script.Dir = dir
	script.Env = append(os.Environ(), "PATH="+filepath.Join(strings.TrimSpace(string(goroot)), "bin")+
		string(os.PathListSeparator)+os.Getenv("PATH"))
	out, err := script.CombinedOutput()
	require.NoError(t, err, string(out))
	for name, text := range files {
		moved[name] = read(t, filepath.Join(dir, name))
		if moved[name] != text {
			assert.Equal(t, text, read(t, filepath.Join(dir, name+".v4")))
		}
	}
	return moved
}

// The script makes of the program for redsync v4 this program, which the other tests run.
func TestScriptMovesTheWholeProgram(t *testing.T) {
	before, after := map[string]string{}, map[string]string{}
	for _, file := range files {
		before[file], after[file] = read(t, "testdata/"+file+".txt"), read(t, file)
	}
	assert.Equal(t, after, move(t, before))
}

// small is a program for redsync v4 in two files, which import its packages in other ways.
var small = map[string]string{
	"main.go": `package main

import "github.com/go-redsync/redsync/v4"

func main() {
	if err := redsync.New(pools("localhost:7001")...).NewMutex("orders:17").Lock(); err != nil {
		panic(err)
	}
}
`,
	"pools.go": `package main

import (
	"github.com/redis/go-redis/v9"

	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
)

func pools(addresses ...string) (pools []redsyncredis.Pool) {
	for _, address := range addresses {
		pool := goredis.NewPool(redis.NewClient(&redis.Options{Addr: address}))
		pools = append(pools, pool)
	}
	return pools
}
`,
	"other.go": `package main

import "context"

var _ = context.Canceled // a file without redsync is left alone,   even if it is not formatted
`,
	"notes.md": "import \"github.com/go-redsync/redsync/v4\"\n",
	"vendor/github.com/go-redsync/redsync/v4/redis/redis.go": `package redis // import "github.com/go-redsync/redsync/v4/redis"
`,
}

func TestScriptMovesAProgramThatCompiles(t *testing.T) {
	testlength.FromGate(t) // it builds a program
	moved := move(t, small)
	for name, text := range small {
		require.Equal(t, name == "main.go" || name == "pools.go", moved[name] != text, name)
	}
	assert.NotContains(t, moved["main.go"]+moved["pools.go"], "go-redsync")
	dir := t.TempDir()
	args := []string{"build", "-o", os.DevNull}
	for _, name := range []string{"main.go", "pools.go", "other.go"} {
		args = append(args, filepath.Join(dir, name))
		require.NoError(t, os.WriteFile(args[len(args)-1], []byte(moved[name]), 0o600))
	}
	build := exec.CommandContext(t.Context(), "go", args...) //nolint:gosec // against the module of this test
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
}

// The lines that the page removes are those of the program that change, and so are the lines that it adds.
func TestPageShowsTheLinesThatChange(t *testing.T) {
	before, after := map[string]bool{}, map[string]bool{}
	for _, file := range files {
		maps.Copy(before, lines(read(t, "testdata/"+file+".txt")))
		maps.Copy(after, lines(read(t, file)))
	}
	var want, shown []string
	for line := range before {
		if !after[line] {
			want = append(want, "-"+line)
		}
	}
	for line := range after {
		if !before[line] {
			want = append(want, "+"+line)
		}
	}
	for line := range strings.SplitSeq(strings.TrimSpace(block(t, "diff")), "\n") {
		if line != "" {
			shown = append(shown, line)
		}
	}
	assert.ElementsMatch(t, want, shown)
}

func lines(text string) map[string]bool {
	set := map[string]bool{}
	for line := range strings.SplitSeq(text, "\n") {
		set[line] = true
	}
	return set
}
