package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSplitList(t *testing.T) {
	for list, want := range map[string]string{
		"a:1": "a:1", "a:1,b:2": "a:1;b:2", " a:1 ,\tb:2\n,, c:3": "a:1;b:2;c:3", "": "", " , ": "",
	} {
		require.Equal(t, want, strings.Join(splitList(list), ";"), list)
	}
}

func TestReadList(t *testing.T) {
	path := filepath.Join(t.TempDir(), "nodes")
	for text, want := range map[string]string{
		"":                              "",
		"# none\n\n":                    "",
		"a:1\nb:2":                      "a:1;b:2",
		"a:1\r\n\r\n  b:2  \r\n":        "a:1;b:2",
		"\t# a comment\n#x\na:1 # text": "a:1 # text", // a comment begins a line
		"redis://u:p#1,2@h:1\n":         "redis://u:p#1,2@h:1",
		"\ufeffa:1\n":                   "a:1", // as Windows writes it
	} {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		got, err := readList(path)
		require.NoError(t, err)
		require.Equal(t, want, strings.Join(got, ";"), text)
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
	j := must(parseJob("run", append(args, "job", "--", "true")))
	return &j.nodes, j.nodes.read()
}

// No error shows a password, and each says where the bad address comes from. In each row there are the nodes of the
// environment, the arguments, and the error.
func TestBadNodes(t *testing.T) {
	unsetAround(t)
	for _, row := range cellsOf(`
		a:1,u:SECRET@h:1 |                                               | $REDSYNC_NODES: address #2:
		a:1              | --nodes ""                                    | --nodes has no address
		                 | --nodes redis://u:SECRET@h:1/x                | --nodes: address #1:
		                 | --nodes redis://u:SECRET@h:1?no=1             | --nodes: address #1:
		                 | --before a:1 --after ,                        | --after has no address
		                 | --nodes-file testdata/nodes/comments          | --nodes-file testdata/nodes/comments has no address
		                 | --nodes-file testdata/nodes/secret            | --nodes-file testdata/nodes/secret: address #2:
		rediss://h:1     | --cacert testdata/nodes/none                  | --cacert: open
		rediss://h:1     | --cert testdata/nodes/key --key testdata/nodes/key | --cert and --key:`) {
		t.Run(row[1], func(t *testing.T) {
			t.Setenv(nodesVariable, row[0])
			_, err := nodesOf(t, wordsOf(row[1])...)
			require.ErrorContains(t, err, row[2])
			require.NotContains(t, err.Error(), "SECRET")
			require.Equal(t, exitUsage, say(io.Discard, err))
		})
	}
}

// --prefix stands before each NAME, as the locks of a program with WithPrefix have it.
func TestPrefixIsPutBeforeNames(t *testing.T) {
	unsetAround(t)
	j := must(parseJob("run", []string{"--prefix", "app:", "a", "b", "--", "true"}))
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
