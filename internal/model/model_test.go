package model

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/seed14bd9ef4/redsync/internal/testlength"
)

// most is how many states an exploration may take.
const most = 6_000_000

// two bounds how many explorations go on at once: each takes a processor and memory.
var two = make(chan struct{}, 2)

// explore explores c, unless that takes longer than there is time.
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

// TestModels: nothing is wrong in any state that a model can reach.
func TestModels(t *testing.T) {
	t.Parallel()
	for _, c := range Sound() {
		t.Run(c.Model+"/"+c.Name, func(t *testing.T) {
			r := explore(t, c)
			t.Log(r)
			assert.True(t, r.Complete, "every state is visited")
			assert.Empty(t, r.Violation)
		})
	}
}

// TestMutations: each rule is needed. Without it something goes wrong, and -v shows how.
func TestMutations(t *testing.T) {
	t.Parallel()
	for _, c := range Mutations() {
		t.Run(c.Model+"/"+c.Name, func(t *testing.T) {
			r := explore(t, c)
			t.Logf("The rule (%s): %s.\nWithout it: %v", c.Section, c.Rule, r)
			assert.NotEmpty(t, r.Violation, "either the rule is not needed, or the model is too weak")
		})
	}
}
