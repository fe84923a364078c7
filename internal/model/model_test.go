package model

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/testlength"
)

// most is how many states an exploration may find.
const most = 6_000_000

// two lets two explorations run at once and no more, because each takes a processor and memory.
var two = make(chan struct{}, 2)

// explore explores c. It skips the test if c is too large for this test run.
func explore(t *testing.T, c Case) Result {
	t.Helper()
	if c.Size == Large && testlength.Of(0, 0, 1) == 0 {
		t.Skip("only with REDSYNC_TEST_LENGTH=nightly")
	}
	if c.Size == Medium && testlength.Of(0, 1, 1) == 0 {
		t.Skip("not with -short")
	}
	t.Parallel()
	two <- struct{}{}
	defer func() { <-two }()
	return c.Explore(most)
}

// TestModels checks that nothing is wrong in any state that a sound model can reach.
func TestModels(t *testing.T) {
	t.Parallel()
	for _, c := range Sound() {
		t.Run(c.Model+"/"+c.Name, func(t *testing.T) {
			r := explore(t, c)
			t.Log(r)
			assert.True(t, r.Complete, "every state is visited")
			assert.Empty(t, r.Violation)
			assertInReadme(t, fmt.Sprintf("%s %s | %s |\n", row(c), thousands(r.States), c.Size.when()))
		})
	}
}

// TestMutations checks that each rule is needed: without it something goes wrong. With -v the output shows how.
func TestMutations(t *testing.T) {
	t.Parallel()
	for _, c := range Mutations() {
		t.Run(c.Model+"/"+c.Name, func(t *testing.T) {
			r := explore(t, c)
			t.Logf("The rule (%s): %s.\nWithout it: %v", c.Section, c.Rule, r)
			assert.NotEmpty(t, r.Violation, "either the rule is not needed, or the model is too weak")
			assertInReadme(t, fmt.Sprintf("%s %s | %s | %d |\n", row(c), c.Section, thousands(r.States), r.Length()))
		})
	}
}

// TestReadme checks that the tables of the README have one row for each case, and no others.
func TestReadme(t *testing.T) {
	t.Parallel()
	text, cases := readme(t), append(Sound(), Mutations()...)
	models := make(map[string]int)
	for _, c := range cases {
		assert.Equal(t, 1, strings.Count(text, row(c)), "rows of %s/%s", c.Model, c.Name)
		models[c.Model]++
	}
	for model, count := range models {
		assert.Equal(t, count, strings.Count(text, "\n| "+model+" |"), "rows of %s", model)
	}
}

func assertInReadme(t *testing.T, row string) {
	t.Helper()
	assert.True(t, strings.Contains(readme(t), row), "README.md must have this row:%s", row)
}

func readme(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("README.md")
	require.NoError(t, err)
	return string(text)
}

// row returns how the row of c begins in a table of the README.
func row(c Case) string { return fmt.Sprintf("\n| %s | %s |", c.Model, c.Name) }

// when returns the words of the README for when a case is explored.
func (s Size) when() string { return [...]string{"", "not with -short", "nightly"}[s] }

func thousands(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", thousands(n/1000), n%1000)
}
