package simulation

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
)

// A seen is what the pages of RULES.md say about a rule that was switched off.
type seen struct {
	rule   string
	test   string   // the test that saw it, "" if no test of this package did
	class  string   // the subtest, if the test has one for each class
	seed   int      // -1 for a control, which searches
	others []string // tests that see it, too, or alone
}

// seedSeen matches what saw a rule: a scene without the words that all of them begin with, and a seed or a control.
var seedSeen = regexp.MustCompile(`^(TestSimulation|(?:Of|Without|While|Beside)\w+)(?:/(\w+))?(?: (\d+))?: `)

// rulesSeen reads the tables of RULES.md and the two pages beside it.
func rulesSeen(t *testing.T) (rules []seen) {
	t.Helper()
	pages, err := filepath.Glob("RULES*.md")
	require.NoError(t, err)
	require.Len(t, pages, 3)
	var text strings.Builder
	for _, page := range pages {
		b, err := os.ReadFile(page)
		require.NoError(t, err)
		text.Write(b)
	}
	for line := range strings.Lines(text.String()) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		if len(cells) != 3 || strings.HasPrefix(cells[0], " rule") {
			continue
		}
		s := seen{rule: strings.TrimSpace(cells[0]), seed: -1}
		saw := strings.TrimSpace(cells[2])
		for _, m := range regexp.MustCompile("`((?:Test|Fuzz)\\w+)`").FindAllStringSubmatch(saw, -1) {
			s.others = append(s.others, m[1])
		}
		if m := seedSeen.FindStringSubmatch(saw); m != nil {
			s.test, s.class = "TestSimulation"+strings.TrimPrefix(m[1], "TestSimulation"), m[2]
			if m[3] != "" {
				s.seed, err = strconv.Atoi(m[3])
				require.NoError(t, err)
			}
		}
		rules = append(rules, s)
	}
	return rules
}

// seedsOf returns the seeds of a scene that this test run plays. At the normal length these are the seeds with which
// RULES.md says that the scene has seen rules broken, seed 0 if it names none. With -short it is the first of them. The
// gate plays inGate seeds from 0 on, or more if RULES.md names a later one. Seven suffice: within these a rule that is
// switched off is seen broken, or no scene is likely to see it.
func seedsOf(t *testing.T, env string, inGate, nightly int) (seeds []int) {
	t.Helper()
	for _, s := range rulesSeen(t) {
		if s.seed >= 0 && s.test+strings.TrimSuffix("/"+s.class, "/") == t.Name() {
			seeds = append(seeds, s.seed)
		}
	}
	slices.Sort(seeds)
	if seeds = slices.Compact(seeds); len(seeds) == 0 {
		seeds = []int{0}
	}
	all := len(seeds)
	n := fromEnv(t, env, testlength.InGate(1, all, max(inGate, seeds[all-1]+1), nightly))
	if os.Getenv("REDSYNC_SIM_FROM")+os.Getenv(env) == "" && n <= all {
		return seeds[:n]
	}
	first := fromEnv(t, "REDSYNC_SIM_FROM", 0)
	seeds = nil
	for seed := first; seed < first+n; seed++ {
		seeds = append(seeds, seed)
	}
	return seeds
}

// Each rule of RULES.md is tried at the normal length: the scene that saw it plays that seed (seedsOf), or another test
// sees it. All these tests exist.
func TestEachRuleIsTried(t *testing.T) {
	own := functions(t, ".")
	others := functions(t, "../..", "../../*", "../../internal/*", "../*")
	rules := rulesSeen(t)
	require.Greater(t, len(rules), 200)
	for _, s := range rules {
		assert.True(t, s.test != "" || len(s.others) > 0, "%s: nothing has seen it", s.rule)
		for _, name := range s.others {
			assert.NotEmpty(t, others[name], "%s: there is no test %s", s.rule, name)
			assert.NotRegexp(t, "FromGate|NotWhileAPersonWaits", others[name], "%s: %s", s.rule, name)
		}
		if s.test == "" {
			continue
		}
		body := own[s.test]
		if !assert.NotEmpty(t, body, "%s: %s", s.rule, s.test) {
			continue
		}
		assert.True(t, s.seed < 0 || strings.Contains(body, "seedsOf(t, "), "%s: %s plays other seeds", s.rule, s.test)
		assert.NotContains(t, body, "FromGate", s.rule)
	}
}

// functions returns the texts of the tests in some folders, by name.
func functions(t *testing.T, folders ...string) map[string]string {
	t.Helper()
	bodies, test := map[string]string{}, regexp.MustCompile(`(?ms)^func ((?:Test|Fuzz)\w+)\(.*?^}`)
	for _, folder := range folders {
		files, err := filepath.Glob(folder + "/*_test.go")
		require.NoError(t, err)
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			for _, m := range test.FindAllStringSubmatch(string(text), -1) {
				bodies[m[1]] = m[0]
			}
		}
	}
	return bodies
}
