package main

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

// These tests compare the texts of --help with what the program does.

// usageOf returns what "redsync help TOPIC" writes.
func usageOf(topic string) string { return string(must(usages.ReadFile("usage/" + topic + ".txt"))) }

// Each text fits a screen, and those of commands say where the flags of the nodes are.
func TestUsageFitsAScreen(t *testing.T) {
	for _, file := range must(usages.ReadDir("usage")) {
		name, _, _ := strings.Cut(file.Name(), ".")
		text := usageOf(name)
		require.NotContains(t, text, "\t")
		require.LessOrEqual(t, strings.Count(text, "\n"), 40, name)
		for line := range strings.Lines(text) {
			require.LessOrEqual(t, utf8.RuneCountInString(line), 100+len("\n"), line)
			require.Equal(t, strings.TrimRight(line, " \n")+"\n", line)
		}
		if commands[name] != nil {
			require.Contains(t, text, `"redsync help nodes"`, name)
		}
	}
}

// flagsOf returns the flags of each command.
func flagsOf() map[string]*pflag.FlagSet {
	return map[string]*pflag.FlagSet{
		"run": (&job{}).flags("run"), "lead": (&job{leads: true}).flags("lead"),
		"status": (&view{}).flags(), "unlock": (&breaker{}).flags(), "check": (&checker{}).flags(),
	}
}

// A shownFlag is a flag as the text of --help shows it.
type shownFlag struct {
	short, value string
	says         string // in one line
}

var (
	flagEntry = regexp.MustCompile(`^  (-\w, )?--[a-z]`)
	flagName  = regexp.MustCompile(`(?:-(\w), )?--([a-z-]+)(?: ([A-Z]+))?`)
)

// shownFlags returns the flags in a text of --help.
func shownFlags(t *testing.T, text string) map[string]shownFlag {
	flags := map[string]shownFlag{}
	var names []string
	for line := range strings.SplitSeq(text, "\n") {
		head, says := "", strings.TrimSpace(line)
		if flagEntry.MatchString(line) {
			head, says, _ = strings.Cut(strings.TrimSpace(line), "  ")
			names = nil
		} else if !strings.HasPrefix(line, "                     ") {
			names = nil // the end of an entry
		}
		for _, m := range flagName.FindAllStringSubmatch(head, -1) {
			require.NotContains(t, flags, m[2])
			names = append(names, m[2])
			flags[m[2]] = shownFlag{short: m[1], value: m[3]}
		}
		for _, name := range names {
			f := flags[name]
			f.says = strings.TrimSpace(f.says + " " + strings.TrimSpace(says))
			flags[name] = f
		}
	}
	return flags
}

// The texts name exactly the flags that there are, with their short forms, and with a value if they take one.
func TestUsageNamesTheFlags(t *testing.T) {
	require.ElementsMatch(t, slices.Collect(maps.Keys(commands)), slices.Collect(maps.Keys(flagsOf())))
	for command, flags := range flagsOf() {
		shown := shownFlags(t, usageOf(command)+usageOf("nodes"))
		flags.VisitAll(func(f *pflag.Flag) {
			s, ok := shown[f.Name]
			require.True(t, ok, "%s --help does not name --%s", command, f.Name)
			require.Equal(t, f.Shorthand, s.short, f.Name)
			require.Equal(t, f.NoOptDefVal == "", s.value != "", f.Name)
			require.Equal(t, f.Value.Type() == "DUR", s.value == "DUR", f.Name)
			require.NotEmpty(t, s.says, f.Name)
		})
		for name := range shown {
			require.NotNil(t, flags.Lookup(name), "%s --help names --%s, which does not exist", command, name)
		}
	}
}

var (
	shownDefault = regexp.MustCompile(`Default: (-?\d\w*)`)
	shownRange   = regexp.MustCompile(`(-?\d+) to (-?\d+)`)
	shownLeast   = regexp.MustCompile(`, (\d\w*) or more`)
)

// The defaults and the ranges that the texts say are those of the program: each limit is inside, and what is beyond it is not.
func TestUsageDefaultsAndRanges(t *testing.T) {
	unsetAround(t)
	checked := map[string]int{}
	for _, command := range []string{"run", "lead"} {
		parse := func(args ...string) error {
			_, err := parseJob(command, append(args, "job", "--", "true"))
			return err
		}
		flags := flagsOf()[command]
		for name, shown := range shownFlags(t, usageOf(command)) {
			if m := shownDefault.FindStringSubmatch(shown.says); m != nil {
				require.Equal(t, m[1], flags.Lookup(name).DefValue, name)
				checked["default"]++
			}
			if m := shownRange.FindStringSubmatch(shown.says); m != nil {
				inside, outside := limits(t, shown.value, m[1], m[2])
				for _, v := range inside {
					require.NoError(t, parse("--"+name, v))
				}
				for _, v := range outside {
					require.ErrorContains(t, parse("--"+name, v), "--"+name+" ", v)
				}
				checked["range"]++
			}
			if m := shownLeast.FindStringSubmatch(shown.says); m != nil {
				least := must(time.ParseDuration(strings.TrimSuffix(m[1], "ms") + "ms"))
				require.NoError(t, parse("--"+name, least.String()))
				require.ErrorContains(t, parse("--"+name, (least-1).String()), "--"+name+" ", name)
				checked["least"]++
			}
			if name == "kill-after" {
				require.Contains(t, shown.says, "more than 0, at most a third of --ttl. Default: a third of --ttl")
				checked["kill-after"]++
			}
		}
	}
	require.Equal(t, map[string]int{"default": 5, "range": 6, "least": 3, "kill-after": 2}, checked) // the texts say this many
}

// limits returns values at the limits of a range, and values beyond them. Of a text it is the length in bytes.
func limits(t *testing.T, value, low, high string) (inside, outside []string) {
	from := must(strconv.Atoi(low))
	to := must(strconv.Atoi(high))
	if value == "TEXT" {
		return []string{strings.Repeat("x", from), strings.Repeat("x", to)}, []string{strings.Repeat("x", from-1), strings.Repeat("x", to+1)}
	}
	return []string{low, high}, []string{strconv.Itoa(from - 1), strconv.Itoa(to + 1)}
}

// The help of run and lead lists the same exit statuses as the page, and the variables that COMMAND gets.
func TestUsageExitStatusesAndEnvironment(t *testing.T) {
	_, table, _ := strings.Cut(textOf("../../docs/command.md"), "\n## Exit status\n")
	table, _, _ = strings.Cut(table, "\n## ")
	for command, want := range map[string][]int{
		"run":  {exitUsage, exitNoQuorum, exitInternal, exitTaken, exitLost, exitNotRun, exitNotFound},
		"lead": {exitUsage, exitNoQuorum, exitInternal, exitLost, exitNotRun, exitNotFound},
	} {
		_, text, found := strings.Cut(usageOf(command), "\nExit status: ")
		require.True(t, found)
		column := strings.Join(regexp.MustCompile(`(?m)^  (\d+, )?\d+  `).FindAllString(text, -1), "")
		got := regexp.MustCompile(`\d+`).FindAllString(column, -1)
		for _, status := range got {
			require.Regexp(t, `(?m)^\| (\d+, )?`+status+`\b`, table)
		}
		require.Equal(t, fmt.Sprint(want), fmt.Sprint(got))
		require.ElementsMatch(t, []string{nameVariable, namesVariable, fenceVariable, nodesVariable},
			regexp.MustCompile(`REDSYNC_\w+`).FindAllString(usageOf(command), -1))
	}
}
