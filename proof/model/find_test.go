package model

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// Find goes the way of an earlier result, whatever kind of violation is at its end. A way that leads nowhere, or to no
// violation, makes it search.
func TestFindGoesAWay(t *testing.T) {
	t.Parallel()
	isC := func(s byte) string {
		if s == 'c' {
			return "c"
		}
		return ""
	}
	steps := []string{"ax", "ab", "bx", "bc", "cd", "dc", "xg"}
	for name, ask := range map[string]func(*System[byte]){
		"wrong": func(s *System[byte]) { s.Wrong = isC },
		"rest":  func(s *System[byte]) { s.Rest = func(s byte) string { return isC(s - 'g' + 'c') } },
		"spins": func(s *System[byte]) { s.Spins = true },
		"goal":  func(s *System[byte]) { s.Goal = func(s byte) bool { return s == 'g' } },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sys := arrows(steps...)
			ask(&sys)
			searched := Explore(sys, plenty)
			assert.NotEmpty(t, searched.Violation)
			followed := Find(sys, Search{plenty, searched.Way})
			assert.Equal(t, searched.Violation, followed.Violation)
			assert.Equal(t, searched.Trace, followed.Trace)
			assert.Len(t, searched.Trace, followed.States)
			for _, wrong := range [][]int{{0}, {1}, {7}} {
				if name != "rest" || wrong[0] != 0 {
					assert.Equal(t, searched, Find(sys, Search{plenty, wrong}), "%v", wrong)
				}
			}
		})
	}
}
