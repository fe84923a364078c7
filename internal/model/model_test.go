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

// explore explores c. It skips the test if c is too large for this test run. normal is 1 if a medium model is not too
// large for the normal length.
func explore(t *testing.T, c Case, normal int) Result {
	t.Helper()
	if c.Size == Large && testlength.Of(0, 0, 1) == 0 {
		t.Skip("only with REDSYNC_TEST_LENGTH=nightly")
	}
	if c.Size == Medium && testlength.InGate(0, normal, 1, 1) == 0 {
		t.Skip("only in the gate, or a mutation without -short")
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
			r := explore(t, c, 0)
			t.Log(r)
			assert.True(t, r.Complete, "every state is visited")
			assert.Empty(t, r.Violation)
			assertListed(t, "bounds.txt", fmt.Sprintf("%s%s states%s\n", c.line(), thousands(r.States), c.Size.when()))
		})
	}
}

// TestMutations checks that each rule is needed: without it something goes wrong. With -v the output shows how.
func TestMutations(t *testing.T) {
	t.Parallel()
	for _, c := range Mutations() {
		t.Run(c.Model+"/"+c.Name, func(t *testing.T) {
			r := explore(t, c, 1)
			t.Logf("The rule (%s): %s.\nWithout it: %v", c.Section, c.Rule, r)
			assert.NotEmpty(t, r.Violation, "either the rule is not needed, or the model is too weak")
			assertListed(t, "mutations.txt", fmt.Sprintf("%s%s states, %d steps\n", c.line(), thousands(r.States), r.Length()))
		})
	}
}

// TestListsOfCases checks that bounds.txt and mutations.txt have one line for each case, and no others.
func TestListsOfCases(t *testing.T) {
	t.Parallel()
	for file, cases := range map[string][]Case{"bounds.txt": Sound(), "mutations.txt": Mutations()} {
		text, lines := read(t, file), 0
		models := make(map[string]bool)
		for _, c := range cases {
			assert.Equal(t, 1, strings.Count(text, c.line()), "%s: lines that begin with%s", file, c.line())
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

// when returns the words of bounds.txt for when a case is explored.
func (s Size) when() string { return [...]string{"", ", gate", ", nightly"}[s] }

func thousands(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", thousands(n/1000), n%1000)
}
