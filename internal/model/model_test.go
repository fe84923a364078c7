package model

import (
	"os"
	"testing"
)

// states is how many states an exploration may take.
const states = 8_000_000

// full reports whether the large bounds are explored too.
func full() bool { return os.Getenv("REDSYNC_MODEL") == "full" }

// explore explores c, unless that takes longer than there is time.
func explore(t *testing.T, c Case) Result {
	t.Helper()
	if c.Size == Large && !full() {
		t.Skip("only with REDSYNC_MODEL=full")
	}
	if c.Size == Medium && testing.Short() {
		t.Skip("not with -short")
	}
	t.Parallel()
	return c.Explore(states)
}

// TestModels: nothing is wrong in any state that a model can reach.
func TestModels(t *testing.T) {
	t.Parallel()
	for _, c := range Sound() {
		t.Run(c.Model+"/"+c.Name, func(t *testing.T) {
			r := explore(t, c)
			t.Log(r)
			if r.Violation != "" || !r.Complete {
				t.Error("want a complete exploration without a violation")
			}
		})
	}
}

// TestMutations: each rule is needed. Without it something goes wrong.
func TestMutations(t *testing.T) {
	t.Parallel()
	for _, c := range Mutations() {
		t.Run(c.Model+"/"+c.Name, func(t *testing.T) {
			r := explore(t, c)
			t.Logf("Not kept: %s (section %s).\n%v", c.Rule, c.Section, r)
			if r.Violation == "" {
				t.Error("want a violation: either the rule is not needed, or the model is too weak")
			}
		})
	}
}
