package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/testkit/cli"
)

// TestMain lets the test binary be its own child process.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == childArg {
		main()
		return
	}
	os.Exit(m.Run())
}

func read(t *testing.T, path string) string {
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}

func TestParsePlanRefusesWhatIsOutOfRange(t *testing.T) {
	dir := t.TempDir()
	none := filepath.Join(dir, "none")
	for args, want := range map[string]string{
		"-rounds 0":             "-rounds 0 is out of range: 1 to 99",
		"-rounds 100":           "-rounds 100 is out of range: 1 to 99",
		"-rounds few":           `"few" for flag -rounds`,
		"-time 1ms":             "-time 1ms is out of range: 100ms to 1m",
		"-time 2m":              "-time 2m0s is out of range: 100ms to 1m",
		"more":                  `unexpected argument "more"`,
		"-no-such-flag":         "-no-such-flag",
		"-scenes distinct,none": `-scenes distinct,none: no scene "none"; there are: distinct`,
		"-scenes=":              `no scene ""`,
		"-charts " + none:       "-charts " + none,
		"-page " + dir:          "-page " + dir,
		"-json " + none + "/a":  "-json " + none,
		"-json " + dir:          "-json " + dir,
		"-beside " + none:       "-beside " + none,
		"-bounded":              "-bounded needs -beside",
	} {
		err := run(t.Context(), strings.Fields(args), io.Discard, io.Discard)
		require.ErrorContains(t, err, want)
		var errs bytes.Buffer
		require.Equal(t, cli.Misuse, cli.Status("bench", err, io.Discard, &errs), args)
		require.Equal(t, 1, strings.Count(errs.String(), "\n"), errs.String())
	}
}

// fake is a library whose locks exclude nobody. Its Lock takes 1 ms, so that even a long load uses
// little CPU, and then returns err.
type fake struct{ err error }

func (f fake) Lock(context.Context, string) (held, error) {
	time.Sleep(time.Millisecond)
	return f, f.err
}

func (f fake) UnlockContext(context.Context) (bool, error) { return true, nil }
func (f fake) Close() error                                { return nil }

// sampled returns a result with invented figures for every cell of the scenes. Most figures of cell n are n*100.
func sampled(p plan, scs ...scene) []*result {
	var results []*result
	for _, sc := range scs {
		for _, c := range sc.cells(p) {
			n := float64(len(results) + 1)
			f := figures{"left": n - 1, "failed": 0}
			for _, col := range sc.columns {
				if _, ok := f[col.key]; !ok {
					f[col.key] = n * 100
				}
			}
			results = append(results, &result{cell: c, samples: []figures{f}})
		}
	}
	return results
}

func TestVerdictNamesWhatAStrictContenderLeftBehind(t *testing.T) {
	err := verdict(sampled(plan{}, distinctScene))
	require.ErrorContains(t, err, "distinct, goroutines 16, redsync (this library): 8 keys left behind")
	require.NotContains(t, err.Error(), defaults)
	require.ErrorContains(t, verdict(sampled(plan{}, curves...)), "curve-nodes, 1, goroutines 128, redsync (this library): 14 keys left behind")
}

// measuredFiles have the results that pages and charts show. No scene is in two of them.
var measuredFiles = []string{"results.txt", "distinct.txt", "one-node.txt", "curves.txt", "clusters.txt", "native.txt"}

const beyondFive = "../docs/beyond-five.md"

func measuredText(t *testing.T) (text string) {
	for _, path := range measuredFiles {
		text += read(t, path)
	}
	return text
}

// TestResultsArePrintedByThisReport compares the results with the code: the scenes, what it says of them, and the titles of
// the columns.
func TestResultsArePrintedByThisReport(t *testing.T) {
	text := measuredText(t)
	report := readTables(text)
	for _, sc := range scenes {
		if sc.name != ownCostScene.name { // needs no place there: it compares two checkouts
			require.Contains(t, text, "\n### "+sc.name+"\n\n"+sc.about+"\n\n")
			require.Equal(t, rows(sc, index(nil))[0], report[sc.name][0], sc.name)
		}
	}
}

// TestChartsAndPagesShowTheResults draws the charts from the results, and fills the tables of the pages from them: both must be
// as they are in the repository.
func TestChartsAndPagesShowTheResults(t *testing.T) {
	dir := t.TempDir()
	page, beyond := filepath.Join(dir, "README.md"), filepath.Join(dir, "beyond-five.md")
	require.NoError(t, os.WriteFile(page, []byte(read(t, "README.md")), 0o600))
	require.NoError(t, os.WriteFile(beyond, []byte(read(t, beyondFive)), 0o600))
	for _, from := range measuredFiles {
		require.NoError(t, run(t.Context(), []string{"-from", from, "-charts", dir, "-page", page}, io.Discard, io.Discard))
	}
	require.NoError(t, run(t.Context(), []string{"-from", "clusters.txt", "-page", beyond}, io.Discard, io.Discard))
	require.Equal(t, read(t, beyond), read(t, beyondFive), "run: go run ./bench -from bench/clusters.txt -page docs/beyond-five.md")
	const again = "run, also from the other results: go run ./bench -from bench/results.txt -charts bench -page bench/README.md"
	require.Equal(t, read(t, page), read(t, "README.md"), again)
	files, err := filepath.Glob("*.svg")
	require.NoError(t, err)
	drawn, err := filepath.Glob(filepath.Join(dir, "*.svg"))
	require.NoError(t, err)
	require.Len(t, files, len(drawn), again)
	for _, path := range files {
		require.Equal(t, read(t, filepath.Join(dir, path)), read(t, path), again)
	}
	for _, src := range regexp.MustCompile(`srcset="(.*?)"><img src="(.*?)"`).FindAllStringSubmatch(read(t, page), -1) {
		require.Equal(t, darkPath(src[2]), src[1])
	}
}

// TestSentencesShowTheResults compares the figures in sentences with the results, and with the commits that were measured.
func TestSentencesShowTheResults(t *testing.T) {
	report := readTables(measuredText(t))
	figure := func(scene, variant string, goroutines int, library, column string) float64 {
		v, ok := report.figure(id{scene, variant, goroutines, library}, column)
		require.True(t, ok, "%s, %s, %d, %s: %s", scene, variant, goroutines, library, column)
		return v
	}
	rate := func(library string) float64 { return figure("distinct", "", 128, library, "pairs/s") }
	frozen := func(library string) float64 { return figure("faults", "one frozen", 1, library, "Lock p99 µs") }
	fenced := func(goroutines int) float64 { return figure("fencing", "", goroutines, oursFenced, "x without") }
	names := func(library string) float64 { return figure("names", "", 128, library, "server CPU x one name") }
	told := func(library string) float64 { return figure("cutoff", "", 1, library, "told before ms") }
	woken := func(library string) float64 { return figure("wakeup", "", 1, library, "since call p50 µs") / 1000 }
	oneNode := func(goroutines int) float64 {
		return figure("one-node", "default", goroutines, ours+onOne, "x bsm/redislock")
	}
	oneNodeRate := func(goroutines int, library string) float64 {
		return figure("one-node", "default", goroutines, library+onOne, "pairs/s")
	}
	point := func(name string, at int, column string) float64 { // of this library on a curve
		switch name {
		case "goroutines":
			return figure(curve+name, "", at, ours, column)
		case "processes":
			return figure(curve+name, strconv.Itoa(at), 16, ours, column)
		case "held":
			return figure(curve+name, strconv.Itoa(at), heldLoad, oursWatched, column)
		}
		return figure(curve+name, strconv.Itoa(at), 128, ours, column)
	}
	commit := func(path string) string {
		commit, _, _ := strings.Cut(strings.TrimPrefix(read(t, path), reportBegins), ":")
		return commit
	}
	require.Greater(t, rate(onRueidis), max(rate(defaults), rate(failFast)))
	require.Less(t, oneNode(1), 1.0)
	require.Greater(t, oneNode(16), 1.0)
	cluster := func(masters, goroutines int, column string) float64 {
		return figure("clusters", fmt.Sprint("Cluster of ", masters), goroutines, ours, column)
	}
	require.InDelta(t, 1.5, cluster(3, 1024, "x one server"), 0.3)
	require.InDelta(t, 1, cluster(3, 1024, "allocs")/(figure("clusters", oneServer, 1024, ours, "allocs")+6), 0.1)
	require.InDelta(t, 1./3, cluster(3, 1024, "busiest x one master"), 0.1)
	require.InDelta(t, 1./2, cluster(3, 128, "busiest x one master"), 0.1)
	require.InDelta(t, 2, figure("readers", "", 128, oursShared, "server CPU x plain"), 0.5)
	for sentence, page := range map[string]string{
		fmt.Sprintf("- 128 goroutines: %.0f locks per second; v4 %.0f (rueidis, `WithFailFast`).", rate(ours), rate(onRueidis)): "../README.md",
		fmt.Sprintf("Lock's p99 %.0f µs; v4 %.0f µs (`WithFailFast`; by default %.0f s).",
			frozen(ours), frozen(failFast), frozen(defaults)/1e6): "../README.md",
		"[commit " + commit("distinct.txt") + "]":                                                     "../README.md",
		fmt.Sprintf("Five nodes lock and unlock %.2g to %.2g times as often", fenced(128), fenced(1)): "../docs/fencing.md",
		fmt.Sprintf("A lock on two names costs the servers %.1f times as much as on one, and on eight names %.1f times",
			names(oursTwo), names(oursEight)): "../docs/several-names.md",
		fmt.Sprintf("is told %.0f ms before another process acquires the lock, not %.0f ms after",
			told(oursWatched), -told(oneKey)): "../docs/from-rueidislock.md",
		fmt.Sprintf("another process after %.1f ms (five nodes), with rueidislock after %.1f ms", woken(ours), woken(oneKey)): "../docs/from-rueidislock.md",
		fmt.Sprintf("need %.2f times the CPU of scripts, and do %.2f times the pairs",
			figure("native", "", 128, ours, "server CPU x scripts"), figure("native", "", 128, ours, "x scripts")): "../docs/nodes.md",
		"a shared one costs the nodes about twice as much":                                                                                         "../docs/readers.md",
		"a single caller locks less often per second, but from 16 goroutines on more often":                                                        "../docs/from-redislock.md",
		fmt.Sprintf("a name gives out [about %.0f permits]", 100*math.Round(figure("permits-rounds", "16", 32, oursManyPermits, "permits/s")/100)): "../docs/permits.md",

		"distinct and faults at commit " + commit("distinct.txt") + ", one-node at commit " + commit("one-node.txt") +
			", the rest at " + commit("results.txt"): "README.md",
		"at commit " + commit("curves.txt") + ": [curves.txt]": "README.md",
		fmt.Sprintf("| Lock and Unlock per second, 1 and 128 callers | %.0f, %.0f | %.0f, %.0f | %.0f, %.0f |", oneNodeRate(1, ours), oneNodeRate(128, ours),
			oneNodeRate(1, oursClients), oneNodeRate(128, oursClients), oneNodeRate(1, oursFunc), oneNodeRate(128, oursFunc)): "../docs/from-redsync-v4.md",
		fmt.Sprintf("With GOMAXPROCS=1 it waits %.0f µs.", figure("one-node", "1", 1, ours+onOne, "p50 µs")): "README.md",
		fmt.Sprintf("%.0f commands for each read with one goroutine and %.0f with 64; the kernel takes %.0f %%, then %.0f %% of the client's CPU",
			point("goroutines", 1, "commands/read"), point("goroutines", 64, "commands/read"),
			point("goroutines", 1, "kernel %"), point("goroutines", 64, "kernel %")): "README.md",
		fmt.Sprintf("one uses %.0f µs for a pair, nine use %.0f µs.", point("nodes", 1, "server CPU µs"), point("nodes", 9, "server CPU µs")): "README.md",
		fmt.Sprintf("%.0f commands for each read become %.0f with 64 processes, and the client's CPU for a pair grows from %.0f µs to %.0f µs.",
			point("processes", 1, "commands/read"), point("processes", 64, "commands/read"),
			point("processes", 1, "client CPU µs"), point("processes", 64, "client CPU µs")): "README.md",
		fmt.Sprintf("and do %.0f.", point("network", 50, "pairs/s")):                                                                "README.md",
		fmt.Sprintf("it reads %.0f commands at once, not %.0f", cluster(3, 128, "commands/read"), cluster(1, 128, "commands/read")): beyondFive,
		"commit " + commit("clusters.txt"): beyondFive,
		fmt.Sprintf("100,000 locks were locked in %.1f s, and are due as fast, which is more than the nodes can do: a throttle lets watchdogs wait. "+
			"The latest still had %.1f of 24 s.", point("held", 100_000, "lock all ms")/1000, point("held", 100_000, "least left ms")/1000): "README.md",
	} {
		assert.True(t, strings.Contains(strings.Join(strings.Fields(read(t, page)), " "), sentence), "%s does not say: %s", page, sentence)
	}
}
