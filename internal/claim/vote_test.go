package claim

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
)

// This file shows the arithmetic of sets of nodes, at 63 and at 64 nodes as well, and of votes.

func TestFirstNodesAreAllBelowN(t *testing.T) {
	for n := range MaxNodes + 1 {
		nodes := FirstNodes(n)
		assert.Equal(t, n, nodes.Len(), "n %d", n)
		for i := range MaxNodes {
			assert.Equal(t, i < n, nodes.Has(i), "n %d, node %d", n, i)
		}
	}
}

func TestCountKeepsHowEachNodeHasVoted(t *testing.T) {
	for _, n := range []int{1, 5, 63, 64} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			var c Count
			for i := range n {
				before := c
				assert.Equal(t, before, c.With(i, Pending), "no vote yet")
				c = c.With(i, []Choice{Granted, Refused, Failed}[i%3])
				assert.Equal(t, before.Voted().With(i), c.Voted())
				assert.Equal(t, i+1, c.Voted().Len())
				assert.Equal(t, i%3 == 0, c.Granted.Has(i), "node %d", i)
				assert.Equal(t, i%3 == 1, c.Refused.Has(i), "node %d", i)
				assert.Equal(t, i%3 == 2, c.Failed.Has(i), "node %d", i)
				assert.Equal(t, i%3 != 2, c.Answered().Has(i), "node %d", i)
			}
			assert.Equal(t, FirstNodes(n), c.Voted())
		})
	}
}

func TestVoteIsTakenOnlyByTheAnswerThatSomethingElseIsThere(t *testing.T) {
	err := errors.New("it broke")
	for _, found := range []Found{Unknown, Mine, Other, Missing, Created, PartMissing, PartCreated} {
		assert.Equal(t, found == Other, Vote{Choice: Refused, Answer: Answer{Found: found}}.Taken(), "found %d", found)
		assert.False(t, Vote{Choice: Refused, Answer: Answer{Found: found}, Err: err}.Taken(), "found %d, and an error", found)
	}
	assert.Equal(t, Vote{Choice: Failed, Err: err}, Failure(err))
	assert.False(t, Failure(err).Taken())
	assert.False(t, Vote{}.Taken(), "no vote yet")
}

// What a round needs is one allocation on nearly all sets of nodes.
func TestRoomIsOneAllocation(t *testing.T) {
	type round [4]int64
	var kept *round
	for n, most := range map[int]float64{1: 1, UsualNodes: 1, UsualNodes + 1: 1, manyNodes: 1, manyNodes + 1: 3, MaxNodes: 3} {
		assert.LessOrEqual(t, testing.AllocsPerRun(100, func() {
			r, a, b := WithRoom[round, *round, int64](n)
			if len(a) != n || len(b) != n {
				t.Error("it has no room for each node")
			}
			kept, a[n-1] = r, r
		}), most, "%d nodes", n)
	}
	assert.NotNil(t, kept)
}
