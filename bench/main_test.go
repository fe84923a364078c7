package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/cli"
	"github.com/seed14bd9ef4/redsync/internal/realredis"
)

// TestMain lets the test binary be its own child process.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == childArg {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestParsePlanRefusesWhatIsOutOfRange(t *testing.T) {
	dir := t.TempDir()
	none := filepath.Join(dir, "none")
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"-rounds", "0"}, "-rounds 0 is out of range: 1 to 99"},
		{[]string{"-rounds", "100"}, "-rounds 100 is out of range: 1 to 99"},
		{[]string{"-rounds", "few"}, `"few" for flag -rounds`},
		{[]string{"-time", "1ms"}, "-time 1ms is out of range: 100ms to 1m"},
		{[]string{"-time", "2m"}, "-time 2m0s is out of range: 100ms to 1m"},
		{[]string{"more"}, `unexpected argument "more"`},
		{[]string{"-no-such-flag"}, "-no-such-flag"},
		{[]string{"-scenes", "distinct,none"}, `-scenes distinct,none: no scene "none"; there are: distinct`},
		{[]string{"-scenes", ""}, `no scene ""`},
		{[]string{"-charts", none}, "-charts " + none},
		{[]string{"-json", filepath.Join(none, "all.json")}, "-json " + none},
		{[]string{"-json", dir}, "-json " + dir},
		{[]string{"-beside", none}, "-beside " + none},
		{[]string{"-bounded"}, "-bounded needs -beside"},
	} {
		err := run(t.Context(), test.args, io.Discard, io.Discard)
		require.ErrorContains(t, err, test.want)
		var errs bytes.Buffer
		require.Equal(t, cli.Misuse, cli.Status("bench", err, io.Discard, &errs), test.args)
		require.Equal(t, 1, strings.Count(errs.String(), "\n"), "one line: %s", errs.String())
	}
}

func TestHelpIsNoError(t *testing.T) {
	var out, errs bytes.Buffer
	require.Equal(t, cli.OK, cli.Status("bench", run(t.Context(), []string{"-h"}, io.Discard, &errs), &out, &errs))
	require.Contains(t, out.String(), "-rounds")
	require.Empty(t, errs.String())
}

func TestRunWithoutServersSaysHowToInstallThem(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	var errs bytes.Buffer
	err := run(t.Context(), nil, io.Discard, io.Discard)
	require.Equal(t, cli.Failed, cli.Status("bench", err, io.Discard, &errs))
	require.Equal(t, "bench: "+realredis.ErrMissing.Error()+"\n", errs.String())
}

func TestParsePlanPicksScenesInTheirOrder(t *testing.T) {
	p, err := parsePlan([]string{"-scenes", "held, distinct"})
	require.NoError(t, err)
	require.Len(t, p.scenes, 2)
	require.Equal(t, "distinct", p.scenes[0].name)
	require.Equal(t, "held", p.scenes[1].name)
}

func TestPlayPairsReturnsTheErrorOfAWorker(t *testing.T) {
	o := playPairs(t.Context(), fake{err: io.ErrUnexpectedEOF}, 3, 500*time.Millisecond)
	require.ErrorIs(t, o.firstErr, io.ErrUnexpectedEOF)
	require.Len(t, o.locks, o.failed)
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
	require.ErrorContains(t, err, "distinct, goroutines 16, redsync (this library): 7 keys left behind")
	require.NotContains(t, err.Error(), defaults)
}

func TestReportHasATableForEveryScene(t *testing.T) {
	p := plan{scenes: scenes, rounds: 1}
	var b strings.Builder
	require.NoError(t, writeReport(&b, machine{}, p, sampled(p, scenes...)))
	for _, sc := range scenes {
		require.Contains(t, b.String(), "### "+sc.name)
	}
	require.Contains(t, b.String(), "| one frozen ")
}

// TestReportFromAFileIsThatOfTheRun measures nothing: it publishes invented figures to a file, and reports that file.
func TestReportFromAFileIsThatOfTheRun(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "all.json")
	p, err := parsePlan([]string{"-scenes", "faults,distinct", "-rounds", "2", "-json", file, "-charts=" + dir})
	require.NoError(t, err)
	m := machine{Platform: "some/where", Libraries: []string{"a v1"}}
	var before, after strings.Builder
	require.NoError(t, publish(&before, p, m, sampled(p, p.scenes...)))
	chart, err := os.ReadFile(filepath.Join(dir, "ratio.svg"))
	require.NoError(t, err)
	again := t.TempDir()
	require.NoError(t, run(t.Context(), []string{"-from", file, "-charts", again}, &after, io.Discard))
	require.Equal(t, before.String(), after.String())
	same, err := os.ReadFile(filepath.Join(again, "ratio.svg"))
	require.NoError(t, err)
	require.Equal(t, string(chart), string(same))
	for name, text := range map[string]string{"none": "", "odd": "{", "flags": `{"args": ["-rounds", "0"]}`} {
		path := filepath.Join(dir, name)
		if text != "" {
			require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		}
		err := run(t.Context(), []string{"-from", path}, io.Discard, io.Discard)
		require.ErrorContains(t, err, "-from "+path)
		require.Equal(t, cli.Misuse, cli.Status("bench", err, io.Discard, io.Discard))
	}
}

// The ratio is the median of the ratios of the rounds, which are 2, 4 and 1. It is not the ratio of the medians, 30
// and 10.
func TestRatioIsTheMedianOfThoseOfTheRounds(t *testing.T) {
	of := func(values ...float64) *result {
		r := &result{}
		for _, v := range values {
			r.samples = append(r.samples, figures{"rate": v})
		}
		return r
	}
	v, ok := ratio(of(10, 40, 30), of(5, 10, 30), "rate")
	require.True(t, ok)
	require.InDelta(t, 2, v, 1e-9)
	_, ok = ratio(of(10), of(0), "rate")
	require.False(t, ok)
	_, ok = ratio(of(), of(1), "rate")
	require.False(t, ok)
}

func TestColumnsOfRatiosUseTheirBase(t *testing.T) {
	results := sampled(plan{}, distinctScene)
	col := column{key: "rate", base: toLibrary(defaults)}
	v, ok := col.value(results[0], index(results))
	require.True(t, ok)
	require.InDelta(t, 0.5, v, 1e-9, "the rate is 100 in the first result and 200 in the second, which is the base")
	_, ok = column{key: "rate", base: toLibrary("none")}.value(results[0], index(results))
	require.False(t, ok)
}

func TestPublishWritesJSONAndCharts(t *testing.T) {
	dir := t.TempDir()
	p := plan{scenes: scenes, rounds: 1, json: filepath.Join(dir, "all.json"), charts: dir}
	require.NoError(t, publish(io.Discard, p, machine{}, sampled(p, scenes...)))
	text, err := os.ReadFile(p.json)
	require.NoError(t, err)
	require.Contains(t, string(text), `"variant": "one frozen"`)
}

func TestNetworkChartShowsTheSlowerOfLockAndUnlock(t *testing.T) {
	dir := t.TempDir()
	results := sampled(plan{}, networkScene, staggeredScene)
	for _, r := range results {
		r.samples[0]["lock_trips"], r.samples[0]["unlock_trips"] = 1.01, 1.02
		if r.cell.Scene == staggeredScene.name {
			r.samples[0]["lock_trips"] = 6.78
		}
	}
	require.NoError(t, drawCharts(dir, results))
	text, err := os.ReadFile(filepath.Join(dir, "network.svg"))
	require.NoError(t, err)
	libraries := len(remoteContenders())
	require.Equal(t, 2*libraries, strings.Count(string(text), ">1.02<"))
	require.Equal(t, libraries, strings.Count(string(text), ">6.78<"))
	require.NotContains(t, string(text), ">1.01<")
	require.Contains(t, string(text), ">one round trip<")
}

// TestChartsAreThereForLightAndDarkPages checks the charts in this folder. Each dark chart must be what the function
// dark makes of the light chart, and README.md must show both.
func TestChartsAreThereForLightAndDarkPages(t *testing.T) {
	files, err := filepath.Glob("*.svg")
	require.NoError(t, err)
	var charts []string
	for _, path := range files {
		if strings.HasSuffix(path, "-dark.svg") {
			continue
		}
		charts = append(charts, path)
		light, err := os.ReadFile(path)
		require.NoError(t, err)
		onDarkPage, err := os.ReadFile(darkPath(path))
		require.NoError(t, err)
		require.Equal(t, string(dark(light)), string(onDarkPage), path)
		for _, unreadable := range []string{"#FFFFFF", "#000000", "#E0E0E0"} {
			require.NotContains(t, string(onDarkPage), unreadable, path)
		}
	}
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	var shown []string
	for _, src := range regexp.MustCompile(`srcset="(.*?)"><img src="(.*?)"`).FindAllStringSubmatch(string(readme), -1) {
		require.Equal(t, darkPath(src[2]), src[1])
		shown = append(shown, src[2])
	}
	require.ElementsMatch(t, charts, shown)
}

// TestValuesAboveBarsDoNotOverlap draws bars of similar heights whose values have as many characters as a value can
// have. It also checks that the names fit into the legend.
func TestValuesAboveBarsDoNotOverlap(t *testing.T) {
	results := sampled(plan{}, scenes...)
	for i, r := range results {
		for key := range r.samples[0] {
			r.samples[0][key] = 888_000 + float64(i)
			if strings.HasSuffix(key, "_trips") {
				r.samples[0][key] = 88.88
			}
		}
	}
	all := index(results)
	for _, draw := range []func(resultIndex) *chart{ratioChart, networkChart, faultsChart, contentionChart, transfersChart, permitsQueueChart} {
		c := draw(all)
		require.NoError(t, c.write(filepath.Join(t.TempDir(), "chart.svg")))
		require.Greater(t, len(c.labels), 5)
		for _, e := range c.names {
			require.LessOrEqual(t, c.plot.X.Tick.Label.Width(e.name), legendWidth-32, "the legend cuts off %s", e.name)
		}
		for i, one := range c.labels {
			for _, other := range c.labels[:i] {
				require.False(t, one.Min.X < other.Max.X && other.Min.X < one.Max.X &&
					one.Min.Y < other.Max.Y && other.Min.Y < one.Max.Y, "%v: %v and %v", c.plot.Title.Text, one, other)
			}
			require.LessOrEqual(t, one.Max.Y, chartHeight, c.plot.Title.Text)
		}
	}
}

func TestChartsWithoutResultsAreNotDrawn(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, drawCharts(dir, sampled(plan{}, commandsScene)))
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, files)
}

func TestAppendCommandIsRESP(t *testing.T) {
	require.Equal(t, "*2\r\n$3\r\nGET\r\n$0\r\n\r\n", string(appendCommand(nil, "GET", "")))
}

func TestRunChildRefusesWhatItDoesNotKnow(t *testing.T) {
	for _, args := range [][]string{
		nil,
		{"nap", "{}"},
		{"proxy", "["},
		{"contend", `{"Library":"none"}`},
		{"wakeup", `{"Library":"none"}`},
		{"waiters", `{"Library":"none"}`},
		{"transfers", `{"Library":"none"}`},
		{"visits", `{"Library":"none"}`},
		{"permits", `{"Library":"none"}`},
	} {
		require.Error(t, runChild(t.Context(), args, new(bytes.Buffer), io.Discard), args)
	}
}

// forgetful is a library whose first Lock waits until its context is done, as if nobody woke it.
type forgetful struct {
	fake
	calls *int
}

func (f forgetful) Lock(ctx context.Context, name string) (held, error) {
	if *f.calls++; *f.calls == 1 {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return f.fake.Lock(ctx, name)
}

func TestLockAtLastCallsAgainWhoIsNotWoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, calls := time.Now(), 0
		lock, err := lockAtLast(t.Context(), forgetful{calls: &calls}, freshKey())
		require.NoError(t, err)
		require.NotNil(t, lock)
		require.Equal(t, longestWait+time.Millisecond, time.Since(start))
	})
}

func TestLockAtLastEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := lockAtLast(ctx, fake{err: io.ErrUnexpectedEOF}, freshKey())
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
}
