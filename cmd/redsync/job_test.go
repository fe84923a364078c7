package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/script"
)

func TestWrongArguments(t *testing.T) {
	unsetAround(t)
	for _, c := range []struct{ args, want string }{
		{"", "give a command"},
		{"walk", `"walk" is no command`},
		{"run", "there is no -- in front of COMMAND"},
		{"run job", "there is no -- in front of COMMAND"},
		{"run -- true", "there is no NAME in front of --"},
		{"run -n -- true", "there is no NAME in front of --"},
		{"run job --", "there is no COMMAND behind --"},
		{"lead job --", "there is no COMMAND behind --"},
		{"run --no-such-flag job -- true", "unknown flag: --no-such-flag"},
		{"run -x job -- true", "unknown shorthand flag: 'x'"},
		{"run job --wait -- true", `invalid argument "--"`},

		{"run -n -w 1 job -- true", "--nonblock and --wait exclude each other"},
		{"run --shared --permits 2 job -- true", "--shared and --permits exclude each other"},
		{"run --shared --min-hold 1 job -- true", "--shared and --min-hold exclude each other"},
		{"run --permits 2 --fence job -- true", "--permits and --fence exclude each other"},

		{"run -E x job -- true", `invalid argument "x"`},
		{"run --ttl -1 job -- true", "--ttl -1s is out of range"},
		{"run --min-hold 0 job -- true", "--min-hold 0s is out of range: more than 0"},
		{"run -w -0.1 job -- true", "--wait -100ms is out of range: 0 or more"},
		{"run --kill-after 0 job -- true", "--kill-after 0s is out of range: more than 0"},
		{"run --kill-after 10.1 job -- true", "--kill-after 10.1s is out of range: more than 0, at most a third of --ttl (10s)"},
		{"run --ttl 3 --kill-after 1.1 job -- true", "at most a third of --ttl (1s)"},
		{"run --guard 29 job -- true", "--guard 29s is out of range: at least --ttl (30s) and --min-hold with its drift (0s)"},
		{"run --guard 1h --min-hold 2h job -- true", "--guard 1h0m0s is out of range: at least --ttl (30s) and --min-hold with its drift (2h1m12.002s)"},
		{"run --guard 0 job -- true", "--guard 0s is out of range"},
		{"lead --guard 1 job -- true", "--guard 1s is out of range"},
		{"run -w soon job -- true", `invalid argument "soon" for "-w, --wait" flag: no duration such as 10, 1.5 or 1m30s`},

		{"run a a -- true", `NAME "a" is given twice`},
		{"run a b a -- true", `NAME "a" is given twice`},
		{"run --shared a b -- true", "2 NAMEs: --shared takes one"},
		{"run --permits 2 a b c -- true", "3 NAMEs: --permits takes one"},
		{"lead a b -- true", "2 NAMEs: lead takes one"},

		{"lead -n job -- true", "unknown shorthand flag: 'n'"},
		{"lead --wait 1 job -- true", "unknown flag: --wait"},
		{"lead --shared job -- true", "unknown flag: --shared"},
		{"lead --permits 2 job -- true", "unknown flag: --permits"},
		{"lead --fence job -- true", "unknown flag: --fence"},
		{"lead --min-hold 1 job -- true", "unknown flag: --min-hold"},

		{"run --nodes a:1 --nodes-file f job -- true", "--nodes and --nodes-file exclude each other"},
		{"run --before a:1 job -- true", "--before and --after need each other"},
		{"run --before a:1 --after b:1 --nodes c:1 job -- true", "--before and --after exclude --nodes and --nodes-file"},
		{"run --key f job -- true", "--cert and --key need each other"},
	} {
		t.Run(c.args, func(t *testing.T) {
			status, stdout, stderr := call(strings.Fields(c.args)...)
			require.Equal(t, exitUsage, status)
			require.Empty(t, stdout)
			require.True(t, strings.HasPrefix(stderr, "redsync: "), stderr)
			require.Equal(t, 1, strings.Count(stderr, "\n"), stderr)
			require.Contains(t, stderr, c.want)
		})
	}
}

func TestWrongNamesAndOwners(t *testing.T) {
	unsetAround(t)
	for name, args := range map[string][]string{
		"NAME #1 is empty":                                      {"", "--", "true"},
		"NAME #2 is empty":                                      {"a", "", "--", "true"},
		`NAME "a\nb" is out of range`:                           {"a\nb", "--", "true"},
		`NAME "a\xff" is out of range`:                          {"a\xff", "--", "true"},
		"--owner \"\" is out of range: 1 to 128 bytes of UTF-8": {"--owner", "", "a", "--", "true"},
		"it has 129 bytes":                                      {"--owner", strings.Repeat("o", 129), "a", "--", "true"},
		"it has 130 bytes":                                      {"--owner", strings.Repeat("é", 65), "a", "--", "true"},
		"it has the character U+000A":                           {"--owner", "a\nb", "a", "--", "true"},
		"it has the character U+200B":                           {"--owner", "a\u200bb", "a", "--", "true"},
		"it has the character U+202E":                           {"--owner", "a\u202eb", "a", "--", "true"},
		"it has a space at an end":                              {"--owner", "a ", "a", "--", "true"},
		"it is not UTF-8":                                       {"--owner", "a\xff", "a", "--", "true"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, command := range []string{"run", "lead"} {
				if command == "lead" && strings.Contains(name, "#2") {
					continue
				}
				status, _, stderr := call(append([]string{command}, args...)...)
				require.Equal(t, exitUsage, status)
				require.Contains(t, stderr, name)
			}
		})
	}
}

// unsetAround makes the test one without a redsync around it.
func unsetAround(t *testing.T) {
	t.Helper()
	for _, name := range []string{nameVariable, namesVariable, fenceVariable, nodesVariable} {
		t.Setenv(name, "") // restores it afterwards
		require.NoError(t, os.Unsetenv(name))
	}
}

// Flags end at NAME, and --kill-after is a third of --ttl.
func TestJobDefaults(t *testing.T) {
	unsetAround(t)
	j, err := parseJob("run", strings.Fields("job -- program -n --fair -- x"))
	require.NoError(t, err)
	require.Equal(t, []string{"job"}, j.names)
	require.Equal(t, []string{"program", "-n", "--fair", "--", "x"}, j.command)
	require.False(t, j.leads || j.once || j.fair || j.fence || j.shared || j.foreground)
	require.Negative(t, j.wait)
	j, err = parseJob("lead", strings.Fields("--ttl 3 job --fair -- program"))
	require.NoError(t, err)
	require.True(t, j.leads && j.fair)
	require.Equal(t, time.Second, j.killAfter)
}

// Each limit of a range is inside it.
func TestJobLimits(t *testing.T) {
	unsetAround(t)
	for _, args := range []string{
		"-w 0",
		"--kill-after 10", "--kill-after 1ns", "--ttl 3 --kill-after 1", "--min-hold 1ns", "--guard 30", "--guard 1h0m36.002s --min-hold 1h",
		"-n -E 3", "-w 1 -E 3", "--fence --shared", "--fence --min-hold 1",
	} {
		_, err := parseJob("run", append(strings.Fields(args), "job", "--", "true"))
		require.NoError(t, err, args)
	}
}

func TestSeconds(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"10": 10 * time.Second, "0.5": 500 * time.Millisecond, "0": 0, "500ms": 500 * time.Millisecond, "1m30s": 90 * time.Second,
		"-1": -time.Second, "-1s": -time.Second, "1e3": 1000 * time.Second, ".25": 250 * time.Millisecond, "999999999": 999999999 * time.Second,
		"0.1": 100 * time.Millisecond, "0.3": 300 * time.Millisecond, "1.1": 1100 * time.Millisecond,
	} {
		var s seconds
		require.NoError(t, s.Set(text), text)
		require.Equal(t, want, time.Duration(s), text)
		require.Equal(t, want.String(), s.String())
	}
	for text, want := range map[string]string{
		"": "no duration", "x": "no duration", "10 s": "no duration", "1d": "no duration", "1,5": "no duration", "10s ": "no duration",
		"1e9": "out of range: less than 1e9 seconds", "1e300": "out of range", "-1e9": "out of range", "inf": "out of range", "NaN": "out of range",
		"1e999": "out of range", "-1e999": "out of range",
	} {
		s := seconds(time.Minute)
		require.ErrorContains(t, s.Set(text), want, text)
		require.Equal(t, time.Minute, time.Duration(s))
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
