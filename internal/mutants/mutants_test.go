package main

import (
	"bytes"
	"context"
	"encoding/json"
	"go/token"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/yuin/gopher-lua/parse"

	"github.com/seed14bd9ef4/redsync/internal/cli"
	"github.com/seed14bd9ef4/redsync/internal/testlength"
)

// goMutants returns the mutants of a Go file with these declarations.
func goMutants(t *testing.T, text string) []*mutant {
	t.Helper()
	s := &source{name: "x.go", path: "x.go", text: "package x\n\n" + text}
	require.NoError(t, readGo(token.NewFileSet(), s))
	return s.mutants
}

// luaMutants returns the mutants of a script.
func luaMutants(text string) []*mutant {
	s := &source{name: "x.lua", path: "x.lua", text: text}
	readLua(s)
	return s.mutants
}

// changes returns the identities without the file and the function.
func changes(mutants []*mutant) (texts []string) {
	for _, m := range mutants {
		_, text, _ := strings.Cut(m.id(), ": ")
		texts = append(texts, text)
	}
	return texts
}

func TestGoMutants(t *testing.T) {
	for code, want := range map[string][]string{
		"if a < b { f() }": {
			"if a < b { f() } => if !(a < b) { f() }",
			"if a < b { f() } => if false && (a < b) { f() }",
			"if a < b { f() } => if true || (a < b) { f() }",
			"if a < b { f() } => if a <= b { f() }",
			"if a < b { f() } => if a < b { }",
		},
		"x := a && !b": {"x := a && !b => x := a", "x := a && !b => x := !b", "x := a && !b => x := a && b"},
		"x := a - 1":   {"x := a - 1 => x := a + 1", "x := a - 1 => x := a - 2", "x := a - 1 => x := a - 0"},
		"a += min(b, c)": {
			"a += min(b, c) => nothing",
			"a += min(b, c) => a -= min(b, c)",
			"a += min(b, c) => a += max(b, c)",
		},
		"for a != b { c <- true }": {
			"for a != b { c <- true } => for !(a != b) { c <- true }",
			"for a != b { c <- true } => for false && (a != b) { c <- true }",
			"for a != b { c <- true } => for a != b { }",
			"for a != b { c <- true } => for a != b { c <- false }",
		},
		"if ok {\nreturn\n}":         {"if ok { => if !(ok) {", "if ok { => if false && (ok) {", "if ok { => if true || (ok) {", "return => nothing"},
		"select {\ncase <-a:\n}":     {"func f() { => func f() { return;", "case <-a: => nothing"},
		"switch {\ncase !a:\n}":      {"func f() { => func f() { return;", "case !a: => nothing", "case !a: => case a:", "case !a: => case false && (!a):", "case !a: => case true || (!a):"},
		"defer f()":                  {"defer f() => nothing"},
		"x := make([]int, 0, 8)":     {"x := make([]int, 0, 8) => x := make([]int, 1, 8)"},
		"x := make([]int, 0, 3+n)":   {"x := make([]int, 0, 3+n) => x := make([]int, 1, 3+n)", "x := make([]int, 0, 3+n) => x := make([]int, 0, 3-n)"},
		`x := errors.New(f(a == 3))`: nil,
		`panic(fmt.Errorf("%d", 3))`: {`panic(fmt.Errorf("%d", 3)) => nothing`},
		"x := func() bool { return a == b }": {
			"x := func() bool { return a == b } => x := func() bool { return false; return a == b }",
			"x := func() bool { return a == b } => x := func() bool { return a != b }",
		},
		"f()\nf()": {"func f() { => func f() { return;", "f() => nothing", "f() => nothing #2"},
		"x := a + b // a comment has no part in this": {"x := a + b => x := a - b"},
	} {
		t.Run(code, func(t *testing.T) {
			assert.Equal(t, want, changes(goMutants(t, "func f() {\n"+code+"\n}")))
		})
	}
}

// changesOf returns those of a kind.
func changesOf(kind string, mutants []*mutant) []string {
	return changes(slices.DeleteFunc(slices.Clone(mutants), func(m *mutant) bool { return m.Kind != kind }))
}

func TestReturnsEarly(t *testing.T) {
	for code, want := range map[string][]string{
		"func f() (int, string, bool, error) { return g() }": {
			`func f() (int, string, bool, error) { return g() } => func f() (int, string, bool, error) { return 0, "", false, nil; return g() }`,
		},
		"func f() (a, b *T, c T, d []T, e [2]T) {\ng(1)\nreturn\n}": {
			"func f() (a, b *T, c T, d []T, e [2]T) { => func f() (a, b *T, c T, d []T, e [2]T) { return nil, nil, *new(T), nil, *new([2]T);",
		},
		"func f() error {\nif a {\nreturn err\n}\nreturn nil\n}": {"func f() error { => func f() error { return nil;", "if a { => if a { return nil;"},
		"func f() error { return nil }":                          nil,
		"func f() error {\nif a {\nreturn nil\n}\nreturn g()\n}": {"func f() error { => func f() error { return nil;"},
		"func f() (T, p.T, bool) {\nif a {\nreturn T{}, nil, false\n}\nreturn g()\n}": {
			"func f() (T, p.T, bool) { => func f() (T, p.T, bool) { return *new(T), *new(p.T), false;",
		},
		"func f() T {\nif a {\nreturn T{1}\n}\nreturn g()\n}": {
			"func f() T { => func f() T { return *new(T);", "if a { => if a { return *new(T);",
		},
		"func f() {}":                                          nil,
		"func f() { g(1) }":                                    nil, // a dropped statement, and so on
		"func f() { if a { g(1) } }":                           nil,
		"func f() {\nif a {\ng(1)\n}\ng(2)\n}":                 {"func f() { => func f() { return;", "if a { => if a { return;"},
		"func f() {\ng(2)\nif a {\ng(1)\n}\n}":                 {"func f() { => func f() { return;"},
		"func f() {\ndefer func() {\ng(1)\ng(2)\n}()\ng(3)\n}": {"func f() { => func f() { return;"},
		"func f() { go g(func() { g(1); g(2) }) }":             {"func f() { go g(func() { g(1); g(2) }) } => func f() { go g(func() { return; g(1); g(2) }) }"},
		"var x = g(func() bool {\nif a {\ng(1)\n}\nreturn true\n})": {
			"var x = g(func() bool { => var x = g(func() bool { return false;", "if a { => if a { return false;",
		},
	} {
		t.Run(code, func(t *testing.T) { assert.Equal(t, want, changesOf("return early", goMutants(t, code))) })
	}
}

// TestNoMutantKeepsAMutexLocked: it would hang in any test.
func TestNoMutantKeepsAMutexLocked(t *testing.T) {
	for code, want := range map[string][]string{
		"mu.Lock()\ndefer mu.Unlock()\nif a {\ng(1)\n}\ng(2)": {"func f() { => func f() { return;", "if a { => if a { return;"},
		"mu.RLock()\nif a {\ng(1)\n}\nmu.RUnlock()":           {"func f() { => func f() { return;"},
		"if a {\nmu.Unlock()\nreturn\n}\nmu.Unlock()":         nil,
		"mu.Unlock()\ndefer mu.Lock()\ng(1)":                  nil,
		"if a {\nmu.Lock()\ng(1)\nmu.Unlock()\n}\ng(2)":       {"func f() { => func f() { return;", "if a { => if a { return;"},
	} {
		t.Run(code, func(t *testing.T) {
			mutants := goMutants(t, "func f() {\n"+code+"\n}")
			assert.Equal(t, want, changesOf("return early", mutants))
			for _, text := range changesOf("drop", mutants) {
				assert.NotContains(t, text, "nlock")
			}
		})
	}
}

func TestSwapsArguments(t *testing.T) {
	for code, want := range map[string][]string{
		"g(a, b, c)":                      {"g(a, b, c) => g(b, a, c)", "g(a, b, c) => g(a, c, b)"},
		"g(a, a)":                         nil,
		"x = append(a, b...)":             {"x = append(a, b...) => x = append(b, a...)"},
		"x = make([]T, a, b)":             nil,
		"x = min(a, b)":                   nil,
		`x = fmt.Sprint(a, b)`:            nil,
		"x = errors.Join(a, b)":           nil,
		"x = slices.Equal(a, b)":          nil,
		"x.g(func() int { return 1 }, b)": {"x.g(func() int { return 1 }, b) => x.g(b, func() int { return 1 })"},
	} {
		t.Run(code, func(t *testing.T) {
			assert.Equal(t, want, changesOf("swap arguments", goMutants(t, "func f() {\n"+code+"\n}")))
		})
	}
}

func TestGoMutantsOutsideOfFunctions(t *testing.T) {
	assert.Equal(t, []string{"const quorum = 3 => const quorum = 4"}, changes(goMutants(t, "const quorum = 3")))
	assert.Empty(t, goMutants(t, "const delay = 10 * time.Millisecond"), "a tuning value is not mutated")
	assert.Empty(t, goMutants(t, "func (e *E) Error() string { return f(e.n + 1) }"), "a text for people is not mutated")
}

func TestGoMutantsAreNamedAfterTheirFunction(t *testing.T) {
	for code, want := range map[string]string{
		"func f() { g() }":             "x.go f",
		"func (t T) f() { g() }":       "x.go (T).f",
		"func (t *T) f() { g() }":      "x.go (*T).f",
		"func (t *T[A]) f() { g() }":   "x.go (*T).f",
		"func (t T[A, B]) f() { g() }": "x.go (T).f",
		"var x = 1 + f":                "x.go",
	} {
		name, _, _ := strings.Cut(goMutants(t, code)[0].id(), ":")
		assert.Equal(t, want, name)
	}
}

func TestLuaMutants(t *testing.T) {
	for code, want := range map[string][]string{
		"if a == 'x' then return 0 end": {
			"if a == 'x' then return 0 end => if not (a == 'x') then return 0 end",
			"if a == 'x' then return 0 end => if false and (a == 'x') then return 0 end",
			"if a == 'x' then return 0 end => if true or (a == 'x') then return 0 end",
			"if a == 'x' then return 0 end => if a ~= 'x' then return 0 end",
			"if a == 'x' then return 0 end => if a == 'x' then return 1 end",
		},
		"while #a > b do c = d end": {
			"while #a > b do c = d end => while not (#a > b) do c = d end",
			"while #a > b do c = d end => while false and (#a > b) do c = d end",
			"while #a > b do c = d end => while #a >= b do c = d end",
			"while #a > b do c = d end => while #a > b do end",
		},
		"redis.call('SET', a,\n  math.max(b, -c)) -- if 1 < 2 then": {
			"redis.call('SET', a, math.max(b, -c)) => nothing",
			"math.max(b, -c)) => math.min(b, -c))",
		},
		"local a = b or c * 2": {
			"local a = b or c * 2 => local a = b and c * 2",
			"local a = b or c * 2 => local a = b or c / 2",
			"local a = b or c * 2 => local a = b or c * 3",
		},
	} {
		t.Run(code, func(t *testing.T) { assert.Equal(t, want, changes(luaMutants(code))) })
	}
	inside := luaMutants("local function f(a)\n  if a then b = c end\n  d()\nend\ne()")
	assert.Equal(t, "x.lua f: d() => nothing", inside[len(inside)-2].id())
	assert.Equal(t, "x.lua: e() => nothing", inside[len(inside)-1].id())
}

// TestLuaMutantsOfAllScriptsParse checks that every mutant of a script parses. Any test would kill a mutant
// with a syntax error, so such a mutant would measure nothing.
func TestLuaMutantsOfAllScriptsParse(t *testing.T) {
	testlength.FromGate(t)
	scripts, err := filepath.Glob("../../*/*.lua")
	require.NoError(t, err)
	more, err := filepath.Glob("../../internal/script/*.lua")
	require.NoError(t, err)
	count := 0
	for _, script := range append(scripts, more...) {
		text, err := os.ReadFile(script)
		require.NoError(t, err)
		for _, m := range luaMutants(string(text)) {
			_, err := parse.Parse(strings.NewReader(m.apply(m.source.text)), script)
			require.NoError(t, err, m.id())
			count++
		}
	}
	assert.Greater(t, count, 200)
}

func TestIdentityOutlastsTheMovingOfCode(t *testing.T) {
	ids := func(mutants []*mutant) (ids []string) {
		for _, m := range mutants {
			ids = append(ids, m.id())
		}
		return ids
	}
	f, g := "func f() {\n\tif a {\n\t\tg()\n\t}\n\tg()\n}\n", "func g() { h(1) }\n"
	before := ids(goMutants(t, f+g))
	after := ids(goMutants(t, "// A comment.\n"+g+"\nfunc h(int) {}\n\n// Another.\n"+strings.ReplaceAll(f, "\t", "\t\t")))
	slices.Sort(before)
	slices.Sort(after)
	assert.Equal(t, before, after)
	assert.Len(t, slices.Compact(after), len(before), "each is the only one of its name")
}

func TestDrawIsRepeatableAndOfAllStrata(t *testing.T) {
	var candidates []*mutant
	for file, n := range map[string]int{"x.go": 3000, "pool/x.go": 200, "fencing/x.go": 20, "internal/script/x.lua": 100} {
		for i := range n {
			candidates = append(candidates, &mutant{File: file, Nth: i + 1})
		}
	}
	slices.SortFunc(candidates, func(a, b *mutant) int { return strings.Compare(a.id(), b.id()) })
	compiles := func(m *mutant) bool { return m.Nth%7 != 0 }
	sample := draw(candidates, 1, 300, compiles)
	assert.Equal(t, sample, draw(candidates, 1, 300, compiles))
	assert.NotEqual(t, sample, draw(candidates, 2, 300, compiles))
	counts := map[string]int{}
	for _, m := range sample {
		assert.True(t, compiles(m))
		counts[m.File]++
	}
	assert.Equal(t, map[string]int{"x.go": 202, "pool/x.go": 40, "fencing/x.go": 18, "internal/script/x.lua": 40}, counts)
	assert.Len(t, draw(candidates[:100], 1, 1000, func(*mutant) bool { return true }), 100)
}

func TestEquivalentsHaveReasons(t *testing.T) {
	file := filepath.Join(t.TempDir(), "equivalent.txt")
	for text, want := range map[string]string{
		"# Comment.\n\nx.go f: a => b\n  It is.\n  So.\nx.go f: a => c\n\tToo.\n": "",
		"x.go f: a => b\nx.go f: a => c\n  Reason.\n":                             "equivalent.txt:2: the mutant above has no reason",
		"x.go f: a => b\n": "the last mutant has no reason",
	} {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		ids, err := readEquivalents(file)
		if want != "" {
			require.ErrorContains(t, err, want)
			continue
		}
		require.NoError(t, err)
		assert.Equal(t, []string{"x.go f: a => b", "x.go f: a => c"}, ids)
	}
	_, err := readEquivalents("equivalent.txt")
	require.NoError(t, err)
}

func TestFlagsOutOfTheirRange(t *testing.T) {
	for _, args := range [][]string{{"-count", "0"}, {"-workers", "0"}, {"-only", "("}, {"-no-such-flag"}, {"-seed", "-1"}} {
		err := start(t.Context(), args, io.Discard, io.Discard)
		assert.Equal(t, cli.Misuse, cli.Status("mutants", err, io.Discard, io.Discard), args)
	}
}

// A shownVerdict holds the fields of a verdict that the tests check.
type shownVerdict struct {
	ID, Result, Killer string
	Unseen             bool
}

// A toy is a copy of testdata/toy, and how it is measured.
type toy struct {
	plan
	root, equivalents string
	log               bytes.Buffer
}

// newToy returns a toy with these tests in addition to its own. Only mutants whose names match the regular
// expression only are tried.
func newToy(t *testing.T, only, tests string) *toy {
	t.Helper()
	testlength.FromGate(t)
	dir := t.TempDir()
	y := &toy{root: filepath.Join(dir, "toy"), equivalents: filepath.Join(dir, "equivalent.txt")}
	y.plan = plan{seed: 1, workers: 2, only: regexp.MustCompile(only), json: true, patience: time.Minute, cache: filepath.Join(dir, "cache")}
	require.NoError(t, os.CopyFS(y.root, os.DirFS("testdata/toy")))
	require.NoError(t, os.WriteFile(filepath.Join(y.root, "more_test.go"), []byte("package toy\n\n"+tests), 0o600))
	require.NoError(t, os.WriteFile(y.equivalents, nil, 0o600))
	return y
}

// measure returns the results by name.
func (y *toy) measure(t *testing.T) (results map[string]shownVerdict, err error) {
	t.Helper()
	var out bytes.Buffer
	err = y.measureTo(t.Context(), &out, &y.log)
	results = map[string]shownVerdict{}
	for decoder := json.NewDecoder(&out); decoder.More(); {
		var v shownVerdict
		require.NoError(t, decoder.Decode(&v))
		results[v.ID] = v
	}
	return results, err
}

func (y *toy) measureTo(ctx context.Context, out, log io.Writer) error {
	return measure(ctx, y.plan, y.root, []area{{dir: ".", tests: []string{"."}}}, y.equivalents, out, log)
}

// atNight skips a test that builds programs for seconds, except at the nightly length: mutants are measured in the
// nightly run alone. TestMeasureFindsTheGapsOfTests runs in the gate, too.
func atNight(t *testing.T) {
	t.Helper()
	if testlength.Of(0, 0, 1) == 0 {
		t.Skip("at the nightly length")
	}
}

// TestMeasureFindsTheGapsOfTests measures a module whose tests are known to have gaps.
func TestMeasureFindsTheGapsOfTests(t *testing.T) {
	t.Parallel()
	y := newToy(t, `Full|Clamp|Unused|Add|lua|size|caught: (\*|runtime)`, "")
	require.NoError(t, os.WriteFile(y.equivalents, []byte(`
toy.go Clamp: if n > 10 { => if n >= 10 {
  Both return 10 for 10.
gone.go f: a => b
  Its code has been removed.
`), 0o600))
	results, err := y.measure(t)
	log := y.log.String()
	assert.Contains(t, log, "what does not exist any more: gone.go f: a => b\n")
	gaps := map[string]bool{} // the mutants that survived, and whether a test executes them
	for id, v := range results {
		assert.NotEqual(t, timedOut, v.Result, id)
		if v.Result == survived {
			gaps[id] = !v.Unseen
		}
	}
	assert.Equal(t, map[string]bool{
		"toy.go (*Pair).Add: p.a = append(p.a, more...) => p.a = append(more, p.a...)":  true,
		"toy.go Clamp: if n > 10 { => if n > 11 {":                                      true,
		"toy.go Unused: func Unused(n int) int { => func Unused(n int) int { return 0;": false,
		"toy.go Unused: return n + 2 => return n - 2":                                   false,
		"toy.go Unused: return n + 2 => return n + 3":                                   false,
		"toy.go caught: *status = 2 => *status = 3":                                     true,
		"toy.lua: return 2 => return 3":                                                 true,
	}, gaps, log)
	require.ErrorContains(t, err, "7 of 28 mutants survived")
	assert.Equal(t, "TestFull", results["toy.go: const size = 3 => const size = 4"].Killer, "by itself")
	assert.Equal(t, "TestStatus", results["toy.go caught: *status = 2 => nothing"].Killer, "by itself")
	assert.NotContains(t, results, "toy.go caught: runtime.Gosched() => nothing", "it leaves an import unused")
	assert.Equal(t, "TestPair", results["toy.go (*Pair).Add: count++ => count--"].Killer)
	assert.Equal(t, "TestClamp", results["toy.go Clamp: if n > 10 { => if n > 10 { return 0;"].Killer)
	assert.Equal(t, "TestLua", results["toy.lua: if x == 1 then return 0 end => if x ~= 1 then return 0 end"].Killer)
}

func TestMeasureEndsAMutantThatHangs(t *testing.T) {
	atNight(t)
	t.Parallel()
	y := newToy(t, `Spin: i\+\+ => nothing`, "")
	y.patience = time.Second
	results, err := y.measure(t)
	require.NoError(t, err, y.log.String())
	require.Len(t, results, 1)
	for _, v := range results {
		assert.Equal(t, timedOut, v.Result)
		assert.Equal(t, "TestSpin", v.Killer)
	}
}

// survivor matches a mutant of the toy that no test of testdata/toy notices.
const survivor = `Clamp: if n > 10 { => if n > 11 {`

// TestMeasureDoesNotBelieveAFlakyTest adds a test that passes while it is measured and calibrated,
// and fails from its third run on. Its failures must not kill a mutant.
func TestMeasureDoesNotBelieveAFlakyTest(t *testing.T) {
	atNight(t)
	t.Parallel()
	y := newToy(t, `Clamp: if n > 10 {`, `import (
	"os"
	"testing"
)

func TestFlaky(t *testing.T) {
	runs, _ := os.ReadFile("runs")
	_ = os.WriteFile("runs", append(runs, '.'), 0o600)
	if Clamp(1) != 1 || len(runs) >= 2 {
		t.Fatal("flaky")
	}
}
`)
	y.fast, y.workers = true, 1
	results, err := y.measure(t)
	require.ErrorContains(t, err, " mutants survived", y.log.String())
	for id, v := range results {
		if strings.Contains(id, survivor) {
			assert.Equal(t, survived, v.Result)
		} else if v.Result == killed {
			assert.Equal(t, "TestClamp", v.Killer, id)
		}
	}
	assert.Contains(t, y.log.String(), "warning: TestFlaky of . fails with a mutant, and then without it (fast): it does not count\n")
	assert.Contains(t, y.log.String(), " mutants, all that match Clamp: if n > 10 {\n")
	assert.Contains(t, y.log.String(), "the first stage took ")
	assert.NotContains(t, y.log.String(), "both stages took ", "there was only one")
}

// TestStateIsOfAllThatDecidesWhatTestsExecute changes one thing after the other. The state must change
// whenever tests may execute something else, and only then.
func TestStateIsOfAllThatDecidesWhatTestsExecute(t *testing.T) {
	dir := t.TempDir()
	r := &runner{root: filepath.Join(dir, "root")}
	seen := map[string]bool{}
	write := func(name, text string) {
		name = filepath.Join(dir, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o700))
		require.NoError(t, os.WriteFile(name, []byte(text), 0o700)) //nolint:gosec // some are programs
	}
	isNew := func(m mode) bool {
		state, err := r.state(t.Context(), m)
		require.NoError(t, err)
		was := seen[state]
		seen[state] = true
		return !was
	}
	write("root/x.go", "package x")
	t.Setenv("PATH", filepath.Join(dir, "bin"))
	assert.True(t, isNew(fast))
	assert.True(t, isNew(slow))
	assert.False(t, isNew(slow))
	write("root/x.md", "no code")
	assert.False(t, isNew(slow))
	write("root/testdata/x.md", "a test reads it")
	assert.True(t, isNew(fast))
	assert.True(t, isNew(slow))
	write("bin/redis-server", "#!/bin/sh\necho 1\n")
	assert.False(t, isNew(fast))
	assert.True(t, isNew(slow))
	write("bin/redis-server", "#!/bin/sh\necho 2\n")
	assert.True(t, isNew(slow), "another version")
	write("other/redis-server", "#!/bin/sh\necho 2\n")
	t.Setenv("PATH", filepath.Join(dir, "other"))
	assert.True(t, isNew(slow), "at another place")
}

func TestMutantsThatAreBuiltAlone(t *testing.T) {
	for code, want := range map[string]bool{
		"var a = 2":                                 true,
		"func f() { g(2) }":                         false,
		"func f() { g(2); r := recover() }":         true,
		"func f() { defer func() { recover() }() }": false,
		"func f() { g(func() { g() }, recover()) }": true,
		"func f() { g(func() {}); g(a.recover()) }": false,
	} {
		for _, m := range goMutants(t, code) {
			assert.Equal(t, want, m.isAlone(), m.id())
		}
	}
	for _, m := range luaMutants("return 2") {
		assert.False(t, m.isAlone())
	}
}

func TestMeasureOnlyWhatMatchesNothing(t *testing.T) {
	y := newToy(t, "no such mutant", "")
	_, err := y.measure(t)
	require.ErrorContains(t, err, "-only no such mutant matches no mutant")
	assert.Equal(t, cli.Misuse, cli.Status("mutants", err, io.Discard, io.Discard))
	assert.Empty(t, y.log.String(), "nothing is measured")
}

func TestStartFromAWrongFolder(t *testing.T) {
	t.Chdir(t.TempDir())
	require.ErrorContains(t, start(t.Context(), nil, io.Discard, io.Discard), "run it from the top of the repository")
}

// TestMeasureOfATreeThatDoesNotCompile checks that the error shows what the compiler says, without the
// output of go list.
func TestMeasureOfATreeThatDoesNotCompile(t *testing.T) {
	y := newToy(t, survivor, "")
	require.NoError(t, os.WriteFile(filepath.Join(y.root, "more.go"), []byte("package toy\n\nvar wrong int = true\n"), 0o600))
	_, err := y.measure(t)
	require.ErrorContains(t, err, "more.go:3:17: ")
	assert.NotContains(t, err.Error(), "ImportPath\":")
}
