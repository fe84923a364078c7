package main

import (
	"fmt"
	"math"
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
		{"run job true", "there is no -- in front of COMMAND"},
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

		{"run -E -1 job -- true", "--conflict-exit-code -1 is out of range: 0 to 255"},
		{"run -E 256 job -- true", "--conflict-exit-code 256 is out of range: 0 to 255"},
		{"run -E x job -- true", `invalid argument "x"`},
		{"run --permits 0 job -- true", "--permits 0 is out of range: 1 to 256"},
		{"run --permits 257 job -- true", "--permits 257 is out of range: 1 to 256"},
		{"run --priority -1000 job -- true", "--priority -1000 is out of range: -999 to 999"},
		{"run --priority 1000 job -- true", "--priority 1000 is out of range: -999 to 999"},
		{"lead --priority 1000 job -- true", "--priority 1000 is out of range: -999 to 999"},
		{"run --ttl 0.099 job -- true", "--ttl 99ms is out of range: 100ms or more"},
		{"run --ttl 0 job -- true", "--ttl 0s is out of range"},
		{"run --ttl -1 job -- true", "--ttl -1s is out of range"},
		{"run --min-hold 0 job -- true", "--min-hold 0s is out of range: more than 0"},
		{"run --min-hold -1 job -- true", "--min-hold -1s is out of range: more than 0"},
		{"run -w -0.1 job -- true", "--wait -100ms is out of range: 0 or more"},
		{"run --kill-after 0 job -- true", "--kill-after 0s is out of range: more than 0"},
		{"run --kill-after -1 job -- true", "--kill-after -1s is out of range"},
		{"run --kill-after 10.1 job -- true", "--kill-after 10.1s is out of range: more than 0, at most a third of --ttl (10s)"},
		{"run --ttl 3 --kill-after 1.1 job -- true", "at most a third of --ttl (1s)"},
		{"lead --ttl 3 --kill-after 1.1 job -- true", "at most a third of --ttl (1s)"},
		{"run --guard 29 job -- true", "--guard 29s is out of range: at least --ttl (30s) and --min-hold with its drift (0s)"},
		{"run --guard 1h --min-hold 2h job -- true", "--guard 1h0m0s is out of range: at least --ttl (30s) and --min-hold with its drift (2h1m12.002s)"},
		{"run --guard 0 job -- true", "--guard 0s is out of range"},
		{"run --guard -1 job -- true", "--guard -1s is out of range"},
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
		{"run --after a:1 job -- true", "--before and --after need each other"},
		{"run --before a:1 --after b:1 --nodes c:1 job -- true", "--before and --after exclude --nodes and --nodes-file"},
		{"run --before a:1 --after b:1 --nodes-file f job -- true", "--before and --after exclude --nodes and --nodes-file"},
		{"lead --cert f job -- true", "--cert and --key need each other"},
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

func TestJobDefaults(t *testing.T) {
	unsetAround(t)
	j, err := parseJob("run", strings.Fields("job -- program -n --fair -- x"))
	require.NoError(t, err)
	require.Equal(t, []string{"job"}, j.names)
	require.Equal(t, []string{"program", "-n", "--fair", "--", "x"}, j.command)
	require.False(t, j.leads || j.once || j.fair || j.fence || j.shared || j.foreground)
	require.Equal(t, 30*time.Second, j.ttl)
	require.Equal(t, 10*time.Second, j.killAfter)
	require.Equal(t, 75, j.conflict)
	require.Negative(t, j.wait)
	require.Zero(t, j.priority)
	require.Zero(t, j.permits)
	require.Zero(t, j.minHold)

	j, err = parseJob("lead", strings.Fields("--ttl 3 job --fair -- program"))
	require.NoError(t, err)
	require.True(t, j.leads && j.fair)
	require.Equal(t, time.Second, j.killAfter)
}

// Each limit of a range is inside it.
func TestJobLimits(t *testing.T) {
	unsetAround(t)
	for _, args := range []string{
		"-E 0", "-E 255", "--permits 1", "--permits 256", "--priority -999", "--priority 999", "-w 0", "--ttl 0.1", "--ttl 100ms",
		"--kill-after 10", "--kill-after 1ns", "--ttl 3 --kill-after 1", "--min-hold 1ns", "--guard 30", "--guard 1h0m36.002s --min-hold 1h",
		"--owner x", "--owner " + strings.Repeat("o", 128), "-n -E 3", "-w 1 -E 3", "--fence --shared", "--fence --min-hold 1",
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

func TestEnvironment(t *testing.T) {
	for _, c := range []struct {
		name   string
		around []string // entries of the environment
		names  []string
		token  uint64
		want   []string
	}{
		{"one", nil, []string{"a"}, 0, []string{"REDSYNC_NAME=a"}},
		{"several", nil, []string{"b", "a"}, 0, []string{"REDSYNC_NAMES=a\nb"}},
		{"a token", nil, []string{"a"}, math.MaxUint64, []string{"REDSYNC_NAME=a", "REDSYNC_FENCE=18446744073709551615"}},
		{"the nodes go", []string{"REDSYNC_NODES=redis://u:p@h:1"}, []string{"a"}, 0, []string{"REDSYNC_NAME=a"}},
		{"inside one", []string{"REDSYNC_NAME=z", "REDSYNC_FENCE=7"}, []string{"a"}, 0, []string{"REDSYNC_NAME=a", "REDSYNC_NAMES=a\nz"}},
		{"inside several", []string{"REDSYNC_NAMES=x\ny"}, []string{"a", "b"}, 3, []string{"REDSYNC_NAMES=a\nb\nx\ny", "REDSYNC_FENCE=3"}},
		{"deeper", []string{"REDSYNC_NAME=y", "REDSYNC_NAMES=x\ny"}, []string{"a"}, 0, []string{"REDSYNC_NAME=a", "REDSYNC_NAMES=a\nx\ny"}},
		{"empty variables", []string{"REDSYNC_NAME=", "REDSYNC_NAMES="}, []string{"a"}, 0, []string{"REDSYNC_NAME=a"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			unsetAround(t)
			t.Setenv("REDSYNC_TEXT", "stays")
			for _, entry := range c.around {
				name, value, _ := strings.Cut(entry, "=")
				t.Setenv(name, value)
			}
			var got []string
			for _, entry := range (&job{names: c.names}).environment(c.token) {
				if strings.HasPrefix(entry, "REDSYNC_") && !strings.HasPrefix(entry, "REDSYNC_TEST_") { // those are for these tests
					got = append(got, entry)
				}
			}
			require.ElementsMatch(t, append(c.want, "REDSYNC_TEXT=stays"), got)
		})
	}
}

// A name that is held around this redsync is refused, at each depth.
func TestNested(t *testing.T) {
	for _, c := range []struct {
		around  map[string]string
		refused string
		free    string
	}{
		{map[string]string{nameVariable: "a"}, "a", "b"},
		{map[string]string{namesVariable: "a\nb"}, "b", "c"},
		{map[string]string{nameVariable: "c", namesVariable: "a\nb\nc"}, "a", "d"},
		{map[string]string{namesVariable: "a, b"}, "a, b", "a"},
	} {
		unsetAround(t)
		for name, value := range c.around {
			t.Setenv(name, value)
		}
		_, err := parseJob("run", []string{c.refused, "--", "true"})
		require.ErrorContains(t, err, fmt.Sprintf("%q is held by the redsync around this one", c.refused))
		_, err = parseJob("run", []string{"x", c.refused, "--", "true"})
		require.Error(t, err)
		_, err = parseJob("lead", []string{c.refused, "--", "true"})
		require.Error(t, err)
		_, err = parseJob("run", []string{c.free, "--", "true"})
		require.NoError(t, err)
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
