package claim_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/script"
	"github.com/seed14bd9ef4/redsync/internal/testkit/claimtest"
)

// told returns the vote of a node that has these values at keys.
func told(holds ...script.Held) claim.Vote {
	return claim.Vote{Choice: claim.Granted, Answer: claim.Answer{Found: claim.Mine, Detail: &claim.Detail{
		Own: &script.Report{Holds: holds, Tickets: [][]string{{"t"}}},
	}}}
}

func held(at int, value string, ttl time.Duration) script.Held {
	return script.Held{At: at, Value: value, TTL: ttl}
}

// What is certain stays so, whatever the other nodes say, and a value holds a key if a quorum has it there.
func TestASightingIsCertainOfWhatStays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(t, "nodes")
		rule := claimtest.Majority(n)
		s := claim.NewSighting(rule)
		silent := rapid.IntRange(0, n).Draw(t, "silent")
		has := make([]claim.Nodes, 3) // by value
		var free, holds bool
		for i := range n {
			if i < silent {
				s.Add(i, claim.Failure(assert.AnError))
			} else {
				value := rapid.IntRange(-1, 2).Draw(t, "value")
				var v claim.Vote
				if value < 0 {
					v = told()
				} else {
					v = told(held(0, string(rune('a'+value)), time.Second))
					has[value] = has[value].With(i)
				}
				s.Add(i, v)
			}
			quorum, possible := false, rule.Quorum(claim.FirstNodes(silent)|rule.All()&^claim.FirstNodes(i+1))
			for _, nodes := range has {
				quorum = quorum || rule.Quorum(nodes)
				possible = possible || rule.Quorum(nodes|claim.FirstNodes(silent)|rule.All()&^claim.FirstNodes(i+1))
			}
			if got := len(s.Holdings()) > 0; got != quorum {
				t.Fatalf("held: %v, want %v", got, quorum)
			}
			if got := s.IsFree(0); got == possible {
				t.Fatalf("free: %v, but a quorum is possible: %v", got, possible)
			}
			if free && !s.IsFree(0) || holds && len(s.Holdings()) == 0 {
				t.Fatal("what was certain is so no more")
			}
			free, holds = s.IsFree(0), len(s.Holdings()) > 0
			standing := s.Standing()
			if i == n-1 && !standing.Decided() || standing.Won && standing.Blocked {
				t.Fatalf("all have voted: %+v", standing)
			}
			if standing.Won && !free && !holds {
				t.Fatal("certain of nothing")
			}
		}
	})
}

func TestASightingOfSeveralKeys(t *testing.T) {
	s := claim.NewSighting(claimtest.Majority(3))
	s.Add(0, told(held(0, "a", 3), held(2, "b", 9), held(1, "a", script.Endless)))
	s.Add(1, told(held(0, "a", 5), held(2, "b", 8), held(0, "a", 9)))
	assert.Equal(t, []claim.Holding{{Value: "b", Keys: []int{2}, TTL: 8}, {Value: "a", Keys: []int{0}, TTL: 3}}, s.Holdings())
	assert.False(t, s.Standing().Decided(), "node 2 may have a at key 1")
	assert.False(t, s.IsFree(1))
	s.Add(2, told(held(0, "a", 4), held(1, "a", 7), held(1, "c", 7)))
	assert.Equal(t, []claim.Holding{{Value: "b", Keys: []int{2}, TTL: 8}, {Value: "a", Keys: []int{0, 1}, TTL: 4}}, s.Holdings())
	assert.True(t, s.Standing().Won)
	assert.True(t, s.IsFree(3))
	assert.Equal(t, []string{"t"}, s.Waiting(0))
	assert.Empty(t, s.Waiting(1))
}

// A node that says nothing usable has told nothing.
func TestASightingIgnoresWhatIsNoReport(t *testing.T) {
	s := claim.NewSighting(claimtest.Majority(1))
	s.Add(0, claim.Vote{Choice: claim.Granted})
	assert.Equal(t, claim.Standing{Blocked: true, Explained: true}, s.Standing())
	assert.False(t, s.IsFree(0))
}
