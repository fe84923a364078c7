package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/script"
)

// Each line of testdata/refused.txt has the arguments of a call that does nothing, and what redsync says of them.
func TestWrongArguments(t *testing.T) {
	unsetAround(t)
	for _, row := range cellsOf(textOf("testdata/refused.txt")) {
		status, stdout, stderr := call(wordsOf(row[0])...)
		assert.Equal(t, exitUsage, status, row[0])
		assert.Empty(t, stdout)
		assert.Equal(t, "redsync: "+row[1]+"\n", stderr, row[0])
	}
}

// unsetAround makes the test one without a redsync around it.
func unsetAround(t *testing.T) {
	for _, name := range []string{nameVariable, namesVariable, fenceVariable, nodesVariable} {
		t.Setenv(name, "") // restores it afterwards
		require.NoError(t, os.Unsetenv(name))
	}
}

// Flags end at NAME, and --kill-after is a third of --ttl.
func TestJobDefaults(t *testing.T) {
	unsetAround(t)
	j := must(parseJob("run", strings.Fields("job -- program -n --fair -- x")))
	require.Equal(t, []string{"job"}, j.names)
	require.Equal(t, []string{"program", "-n", "--fair", "--", "x"}, j.command)
	require.False(t, j.leads || j.once || j.fair || j.fence || j.shared || j.foreground)
	require.Negative(t, j.wait)
	j = must(parseJob("lead", strings.Fields("--ttl 3 job --fair -- program")))
	require.True(t, j.leads && j.fair)
	require.Equal(t, time.Second, j.killAfter)
}

// Each limit of a range is inside it.
func TestJobLimits(t *testing.T) {
	unsetAround(t)
	for args := range strings.SplitSeq("-w 0|--kill-after 10|--kill-after 1ns|--ttl 3 --kill-after 1|--min-hold 1ns|--guard 30|--guard 1h0m36.002s --min-hold 1h|-n -E 3|-w 1 -E 3|--fence --shared|--fence --min-hold 1", "|") {
		_, err := parseJob("run", append(strings.Fields(args), "job", "--", "true"))
		require.NoError(t, err, args)
	}
}

func TestSeconds(t *testing.T) {
	for _, row := range cellsOf(`
		10 | 10s
		0.5 | 500ms
		0 | 0s
		500ms | 500ms
		1m30s | 1m30s
		-1 | -1s
		-1s | -1s
		1e3 | 16m40s
		.25 | 250ms
		999999999 | 277777h46m39s
		0.1 | 100ms
		0.3 | 300ms
		1.1 | 1.1s`) {
		var s seconds
		require.NoError(t, s.Set(row[0]))
		require.Equal(t, row[1], time.Duration(s).String())
		require.Equal(t, row[1], s.String())
	}
	for _, row := range cellsOf(`
		x | no duration
		| no duration
		10 s | no duration
		1d | no duration
		1,5 | no duration
		10s\x20 | no duration
		1e9 | out of range: less than 1e9 seconds
		1e300 | out of range
		-1e9 | out of range
		inf | out of range
		NaN | out of range
		1e999 | out of range
		-1e999 | out of range`) {
		s := seconds(time.Minute)
		require.ErrorContains(t, s.Set(strings.ReplaceAll(row[0], `\x20`, " ")), row[1], row[0])
		require.Equal(t, seconds(time.Minute), s)
	}
}

func TestOwnerOf(t *testing.T) {
	for _, c := range []struct{ user, host, want string }{
		{"alice", "db1", "alice@db1 7"},
		{"alice", strings.Repeat("h", 300), "alice@" + strings.Repeat("h", 120) + " 7"},
		{"ali ce\n", "dé", "ali?ce?@d? 7"},
		{strings.Repeat("u", 200), "h", strings.Repeat("u", 126) + " 7"},
	} {
		got := ownerOf(c.user, c.host, 7)
		require.Equal(t, c.want, got)
		require.NoError(t, script.CheckLabel(got))
	}
	require.True(t, strings.HasSuffix(defaultOwner(), fmt.Sprintf(" %d", os.Getpid())))
}
