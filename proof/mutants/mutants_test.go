package main

import (
	"bytes"
	"encoding/json"
	"go/token"
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

	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
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

func TestDrawIsRepeatableAndOfAllStrata(t *testing.T) {
	var candidates []*mutant
	for file, n := range map[string]int{"x.go": 3000, "internal/wire/x.go": 200, "fencing/x.go": 20, "internal/script/x.lua": 100} {
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
	assert.Equal(t, map[string]int{"x.go": 202, "internal/wire/x.go": 40, "fencing/x.go": 18, "internal/script/x.lua": 40}, counts)
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

// A shownVerdict holds the fields of a verdict that the tests check.
type shownVerdict struct {
	ID, Result, Killer string
	Unseen             bool
}

// TestMeasureFindsTheGapsOfTests measures a module whose tests are known to have gaps.
func TestMeasureFindsTheGapsOfTests(t *testing.T) {
	testlength.FromGate(t)
	t.Parallel()
	dir := t.TempDir()
	root, equivalents := filepath.Join(dir, "toy"), filepath.Join(dir, "equivalent.txt")
	require.NoError(t, os.CopyFS(root, os.DirFS("testdata/toy")))
	require.NoError(t, os.WriteFile(equivalents, []byte(`
toy.go Clamp: if n > 10 { => if n >= 10 {
  Both return 10 for 10.
gone.go f: a => b
  Its code has been removed.
`), 0o600))
	p := plan{
		seed: 1, workers: 2, only: regexp.MustCompile(`Full|Clamp|Unused|Add|lua|size|caught: (\*|runtime)`), json: true, patience: time.Minute,
		cache: filepath.Join(dir, "cache"),
	}
	var out, text bytes.Buffer
	err := measure(t.Context(), p, root, []area{{dir: ".", tests: []string{"."}}}, equivalents, &out, &text)
	log, results := text.String(), map[string]shownVerdict{}
	for decoder := json.NewDecoder(&out); decoder.More(); {
		var v shownVerdict
		require.NoError(t, decoder.Decode(&v))
		results[v.ID] = v
	}
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
