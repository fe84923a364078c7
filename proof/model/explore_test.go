package model

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// plenty is more states than the systems of these tests have.
const plenty = 1000

// Each state of a trace follows from the state before it, although the explorer keeps only one of
// several symmetric states.
func TestExploreTraceWithSymmetryIsARun(t *testing.T) {
	t.Parallel()
	start := [3]int{1, 0, 0} // Same maps it to another state
	r := Explore(System[[3]int]{
		Start: start,
		Next: func(s [3]int, do func(Step, [3]int)) {
			for i := range s {
				next := s
				next[i]++
				do(Step{Text: "{n}", Node: i}, next)
			}
		},
		Same: func(s [3]int) [3]int { slices.Sort(s[:]); return s },
		Wrong: func(s [3]int) string {
			if s == [3]int{1, 2, 3} {
				return "found"
			}
			return ""
		},
		Show: func(s [3]int) string { return fmt.Sprint(s) },
	}, plenty)
	require.Equal(t, "found", r.Violation)
	require.Equal(t, 5, r.Length())
	s := start
	for _, l := range r.Trace[1:] {
		s[int(l.Step[0]-'1')]++
		assert.Equal(t, fmt.Sprint(s), l.State)
	}
	slices.Sort(s[:])
	assert.Equal(t, [3]int{1, 2, 3}, s)
}

// arrows is a system whose states are letters. Each step goes from its first letter to its second.
// A third letter, t or c, makes the step a Timer or a Choice.
func arrows(steps ...string) System[byte] {
	return System[byte]{
		Start: 'a',
		Next: func(s byte, do func(Step, byte)) {
			for _, step := range steps {
				kind := Work
				if len(step) > 2 {
					kind = map[byte]Kind{'t': Timer, 'c': Choice}[step[2]]
				}
				if step[0] == s {
					do(Step{Kind: kind}, step[1])
				}
			}
		},
		Show: func(s byte) string { return string(s) },
	}
}

// statesOfTrace returns the states that a trace goes through.
func (r Result) statesOfTrace() (text string) {
	for _, l := range r.Trace {
		text += l.State
	}
	return text
}

func TestExploreRestSpinsGoal(t *testing.T) {
	t.Parallel()
	rest := func(sys *System[byte]) {
		sys.Rest = func(s byte) string { return strings.Trim(string(s), "abdefg") }
	}
	spins := func(sys *System[byte]) { sys.Spins = true }
	goal := func(sys *System[byte]) { sys.Goal = func(s byte) bool { return s == 'g' } }
	for _, test := range []struct {
		name  string
		must  func(*System[byte])
		steps string
		want  string // the trace
	}{
		{"no step leaves it", rest, "ab bc", "abc"},
		{"only a timer leaves it", rest, "ab bc cdt", "abc"},
		{"only a choice leaves it", rest, "ab bc cdc", "abc"},
		{"work goes on", rest, "ab bc cdt cd", ""},
		{"a circle", spins, "ab bc cd db", "abcdb"},
		{"a circle of one state", spins, "ab bb", "abb"},
		{"a circle with a timer", spins, "ab bc cbt", ""},
		{"a circle with a choice", spins, "ab bcc cb", ""},
		{"two ways to one end", spins, "ab ac bd cd", ""},
		{"a circle entered by a choice", spins, "abc bc cb", "abcb"},
		{"the goal from everywhere", goal, "ab bg ac ca", ""},
		{"a trap", goal, "ab bg bc cd dc", "abc"},
		{"the goal by a timer", goal, "abt bgt", ""},
		{"after the goal", goal, "ag gb", "agb"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			sys := arrows(strings.Fields(test.steps)...)
			test.must(&sys)
			assert.Equal(t, test.want, Explore(sys, plenty).statesOfTrace())
		})
	}
}
