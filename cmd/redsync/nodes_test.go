package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSplitList(t *testing.T) {
	for list, want := range map[string][]string{
		"a:1":                 {"a:1"},
		"a:1,b:2":             {"a:1", "b:2"},
		" a:1 ,\tb:2\n,, c:3": {"a:1", "b:2", "c:3"},
		"":                    nil,
		" , ":                 nil,
	} {
		require.Equal(t, want, splitList(list), "%q", list)
	}
}

func TestReadList(t *testing.T) {
	path := filepath.Join(t.TempDir(), "nodes")
	for text, want := range map[string][]string{
		"":                              nil,
		"# none\n\n":                    nil,
		"a:1\nb:2":                      {"a:1", "b:2"},
		"a:1\r\n\r\n  b:2  \r\n":        {"a:1", "b:2"},
		"\t# a comment\n#x\na:1 # text": {"a:1 # text"}, // a comment begins a line
		"redis://u:p#1,2@h:1\n":         {"redis://u:p#1,2@h:1"},
		"\ufeffa:1\n":                   {"a:1"}, // as Windows writes it
	} {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		got, err := readList(path)
		require.NoError(t, err)
		require.Equal(t, want, got, "%q", text)
	}

	_, err := readList(filepath.Join(t.TempDir(), "none"))
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = readList(t.TempDir())
	require.Error(t, err)
	require.NoError(t, os.WriteFile(path, []byte(strings.Repeat("x", 1<<20)), 0o600))
	_, err = readList(path)
	require.ErrorContains(t, err, "too long")
}

// nodesOf returns the nodes of a run with these flags.
func nodesOf(t *testing.T, args ...string) (*nodes, error) {
	t.Helper()
	j, err := parseJob("run", append(args, "job", "--", "true"))
	require.NoError(t, err)
	return &j.nodes, j.nodes.read()
}

// No error shows a password, and each says where the bad address comes from.
func TestBadNodes(t *testing.T) {
	unsetAround(t)
	dir := t.TempDir()
	file := func(text string) string {
		f, err := os.CreateTemp(dir, "nodes")
		require.NoError(t, err)
		_, err = f.WriteString(text)
		require.NoError(t, err)
		require.NoError(t, f.Close())
		return f.Name()
	}
	comments := file("# none\n")
	secret := file("a:1\n\n# b\nredis://u:SECRET%zz@h:1\n")
	key := file("no certificate, SECRET\n")
	for _, c := range []struct {
		nodes string // of the environment
		args  []string
		want  string
	}{
		{"a:1,u:SECRET@h:1", nil, "$REDSYNC_NODES: address #2: "},
		{"a:1", []string{"--nodes", ""}, "--nodes has no address"},
		{"", []string{"--nodes", "redis://u:SECRET@h:1/x"}, "--nodes: address #1: "},
		{"", []string{"--nodes", "redis://u:SECRET@h:1?no=1"}, "--nodes: address #1: "},
		{"", []string{"--before", "a:1", "--after", ","}, "--after has no address"},
		{"", []string{"--nodes-file", comments}, "--nodes-file " + comments + " has no address"},
		{"", []string{"--nodes-file", secret}, "--nodes-file " + secret + ": address #2: "},
		{"rediss://h:1", []string{"--cacert", dir + "/none"}, "--cacert: open "},
		{"rediss://h:1", []string{"--cert", key, "--key", key}, "--cert and --key: "},
	} {
		t.Run(c.want, func(t *testing.T) {
			t.Setenv(nodesVariable, c.nodes)
			_, err := nodesOf(t, c.args...)
			require.ErrorContains(t, err, c.want)
			require.NotContains(t, err.Error(), "SECRET")
			require.Equal(t, exitUsage, resultStatus(err))
		})
	}
}

func resultStatus(err error) int { return say(discard{}, err) }

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

// --prefix stands before each NAME, as the locks of a program with WithPrefix have it.
func TestPrefixIsPutBeforeNames(t *testing.T) {
	unsetAround(t)
	j, err := parseJob("run", []string{"--prefix", "app:", "a", "b", "--", "true"})
	require.NoError(t, err)
	require.Equal(t, []string{"app:a", "app:b"}, j.names)
	t.Setenv(nameVariable, "app:a")
	for want, args := range map[string][]string{
		`--prefix "{app:" is out of range: no braces`: {"--prefix", "{app:", "a"},
		`NAME "app:a" is held by the redsync around`:  {"--prefix", "app:", "a"},
		`NAME #1 is empty`:                            {"--prefix", "app:", ""},
		`NAME "app:c" is given twice`:                 {"--prefix", "app:", "c", "c"},
	} {
		_, err := parseJob("run", append(args, "--", "true"))
		require.ErrorContains(t, err, want)
	}
}
