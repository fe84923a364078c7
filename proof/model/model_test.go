package model

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
)

// most is how many states an exploration may find.
const most = 6_000_000

// two lets two explorations run at once and no more, because each takes a processor and memory.
var two = make(chan struct{}, 2)

// explore explores c, as how says.
func explore(t *testing.T, c Case, how Search) Result {
	t.Helper()
	t.Parallel()
	two <- struct{}{}
	defer func() { <-two }()
	return c.Explore(how)
}

// isWhole reports whether this test run visits all states of c, if c has so many. A person who waits is shown small ones.
func isWhole(c Case, states int) bool {
	return c.Size <= Size(testlength.InGate(int(Small), int(Small), int(Medium), int(Large))) &&
		states <= testlength.InGate(20_000, 60_000, 400_000, most)
}

// TestModels checks that nothing is wrong in any state that a sound model can reach.
func TestModels(t *testing.T) {
	t.Parallel()
	for _, c := range Sound() {
		t.Run(c.Model+"/"+c.Name, func(t *testing.T) {
			if !isWhole(c, listedStates(t, c)) {
				t.Skip("a longer test run visits so many states: see package testlength")
			}
			r := explore(t, c, Search{Most: most})
			t.Log(r)
			assert.True(t, r.Complete, "every state is visited")
			assert.Empty(t, r.Violation)
			assertListed(t, "bounds.txt", fmt.Sprintf("%s%s states%s\n", c.line(), thousands(r.States), c.Size.when()))
		})
	}
}

// TestMutations checks that each rule is needed: without it something goes wrong. With -v the output shows how. Every
// mutation is tried at every length: but in nightly the test goes the recorded way to the violation, and searches only
// if there is none at its end.
func TestMutations(t *testing.T) {
	t.Parallel()
	for _, c := range Mutations() {
		t.Run(c.Model+"/"+c.Name, func(t *testing.T) {
			how := Search{Most: most}
			goes := testlength.Of(1, 1, 0) == 1 || !isWhole(c, 0)
			if goes {
				how.Way = wayOf(t, c)
			}
			r := explore(t, c, how)
			t.Logf("The rule (%s): %s.\nWithout it: %v", c.Section, c.Rule, r)
			assert.NotEmpty(t, r.Violation, "either the rule is not needed, or the model is too weak")
			assertListed(t, "ways.txt", c.way()+strings.Trim(fmt.Sprint(r.Way), "[]")+"\n")
			if !goes {
				assertListed(t, "mutations.txt", fmt.Sprintf("%s%s states, %d steps\n", c.line(), thousands(r.States), r.Length()))
			}
		})
	}
}

// TestListsOfCases checks that each of the files has one line for each of its cases, and no others.
func TestListsOfCases(t *testing.T) {
	t.Parallel()
	for file, cases := range map[string][]Case{"bounds.txt": Sound(), "mutations.txt": Mutations(), "ways.txt": Mutations()} {
		text, lines := read(t, file), 0
		models := make(map[string]bool)
		for _, c := range cases {
			line := c.line()
			if file == "ways.txt" {
				line = c.way()
			}
			assert.Equal(t, 1, strings.Count(text, line), "%s: lines that begin with%s", file, line)
			models[c.Model] = true
		}
		for model := range models {
			lines += strings.Count(text, "\n"+model+"/")
		}
		assert.Equal(t, len(cases), lines, "%s: lines of cases", file)
	}
}

func assertListed(t *testing.T, file, line string) {
	t.Helper()
	assert.True(t, strings.Contains(read(t, file), line), "%s must have this line:%s", file, line)
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	return string(text)
}

// line returns how the line of c begins in bounds.txt or mutations.txt.
func (c Case) line() string {
	if c.Section == "" {
		return fmt.Sprintf("\n%s/%s: ", c.Model, c.Name)
	}
	return fmt.Sprintf("\n%s/%s (%s): ", c.Model, c.Name, c.Section)
}

// way returns how the line of c begins in ways.txt.
func (c Case) way() string { return fmt.Sprintf("\n%s/%s: ", c.Model, c.Name) }

// rest returns what stands in a file behind the beginning of a line.
func rest(t *testing.T, file, line string) string {
	t.Helper()
	_, behind, _ := strings.Cut(read(t, file), line)
	behind, _, _ = strings.Cut(behind, "\n")
	return behind
}

// wayOf returns the recorded way to the violation of c.
func wayOf(t *testing.T, c Case) (way []int) {
	t.Helper()
	for text := range strings.FieldsSeq(rest(t, "ways.txt", c.way())) {
		choice, err := strconv.Atoi(text)
		require.NoError(t, err)
		way = append(way, choice)
	}
	return way
}

// listedStates returns how many states c has, as bounds.txt says, 0 if it says nothing.
func listedStates(t *testing.T, c Case) int {
	t.Helper()
	text, _, _ := strings.Cut(rest(t, "bounds.txt", c.line()), " states")
	states, _ := strconv.Atoi(strings.ReplaceAll(text, ",", ""))
	return states
}

// when returns the words of bounds.txt for when a case is explored.
func (s Size) when() string { return [...]string{"", ", gate", ", nightly"}[s] }

func thousands(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", thousands(n/1000), n%1000)
}
