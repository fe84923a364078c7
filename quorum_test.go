package redsync

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/lease"
	"github.com/seed14bd9ef4/redsync/internal/quorum"
)

// This file shows the rules of a quorum: what votes prove, and what they are as errors.

// choices are what a vote can be once it has come.
var choices = []claim.Choice{claim.Granted, claim.Refused, claim.Failed}

// TestTallyDecidesOnceAndForGood walks through all votes in all orders of the nodes. The tally decides as soon as the answer
// cannot change.
func TestTallyDecidesOnceAndForGood(t *testing.T) {
	for n := 1; n <= 6; n++ {
		walked := map[claim.Count]bool{}
		walk(t, formOf(n), claim.Count{}, walked)
		for c := range walked {
			granted, refused, failed, enough := c.Granted.Len(), c.Refused.Len(), c.Failed.Len(), n/2+1
			assert.Equal(t, claim.Standing{
				Won: granted >= enough, Blocked: n-refused-failed < enough, Rejected: n-refused < enough,
				Explained: granted+refused >= enough || n-failed < enough,
			}, formOf(n).Standing(c), "%+v", c)
		}
	}
	for _, j := range []form{
		{majority{0b001}, majority{0b110}},
		{majority{0b011}, majority{0b110}},
		{majority{0b001}, majority{0b111}},
		{majority{0b0111}, majority{0b1110}},
		{majority{0b00111}, majority{0b11100}},
		{majority{0b000111}, majority{0b111000}},
	} {
		walk(t, j, claim.Count{}, map[claim.Count]bool{})
	}
}

// For any two sets of up to three of six nodes, a joint quorum shares a node with each quorum of before, of after, and
// of the joint sets. That is true even if two nodes are one server.
func TestJointQuorumsShareANode(t *testing.T) {
	var sets []claim.Nodes
	for n := claim.Nodes(1); n < 1<<6; n++ {
		if n.Len() <= 3 {
			sets = append(sets, n)
		}
	}
	for _, was := range sets {
		for _, is := range sets {
			j := form{majority{was}, majority{is}}
			assert.Equal(t, was|is, j.All())
			for n := range claim.Nodes(1 << 6) {
				if !j.Quorum(n) {
					continue
				}
				others := j.All() &^ n
				if j.before.quorum(others) || j.after.quorum(others) || j.Quorum(others) || !j.Blocks(n) {
					t.Fatalf("sets %b and %b: the quorums %b and %b share no node", was, is, n, others)
				}
			}
		}
	}
	j := form{majority{0b00111}, majority{0b11100}}
	assert.Equal(t, []claim.Sets{1, 1, 3, 2, 2, 0}, []claim.Sets{j.Sets(0), j.Sets(1), j.Sets(2), j.Sets(3), j.Sets(4), j.Sets(5)})
	assert.Equal(t, "before: 2 of 3 nodes answered, 2 needed; after: 1 of 3 nodes answered, 2 needed", j.enough(0b00101, true))
}

// So libraries without joint sets may add a single node, or remove one, in one deployment: see docs/replacing-nodes.md.
func TestQuorumsOfASetAndOneNodeMoreShareANode(t *testing.T) {
	for set := claim.Nodes(1); set < 1<<6; set++ {
		for x := range 7 {
			if set.Has(x) {
				continue
			}
			more := set.With(x)
			for n := range claim.Nodes(1 << 7) {
				if (majority{set}).quorum(n) && (majority{more}).quorum(more&^n) {
					t.Fatalf("sets %b and %b: the quorums %b and %b share no node", set, more, n, more&^n)
				}
			}
		}
	}
}

// walk tries every vote of every node that has not voted. What follows from a count does not depend on the order in
// which its votes came, so walk starts from each count only once.
func walk(t *testing.T, m claim.Rule, before claim.Count, walked map[claim.Count]bool) {
	if walked[before] {
		return
	}
	walked[before] = true
	was := m.Standing(before)
	if before.Voted() == m.All() {
		assert.True(t, was.Decided(), before)
		assert.True(t, was.Won || was.Explained, before)
		return
	}
	for i := range m.All().Len() {
		if before.Voted().Has(i) {
			continue
		}
		for _, v := range choices {
			after := before.With(i, v)
			is := m.Standing(after)
			assert.False(t, is.Won && is.Blocked, after)
			assert.False(t, is.Rejected && !is.Blocked, after)
			for _, stays := range [][2]bool{
				{was.Won, is.Won}, {was.Blocked, is.Blocked}, {was.Rejected, is.Rejected}, {was.Explained, is.Explained},
			} {
				assert.True(t, !stays[0] || stays[1], "%+v, then %v of node %d", before, v, i)
			}
			walk(t, m, after, walked)
		}
	}
}

func TestQuorumsShareANode(t *testing.T) {
	for n := 1; n <= claim.MaxNodes; n++ {
		assert.Greater(t, 2*quorumOf(n), n)
		assert.LessOrEqual(t, quorumOf(n), n)

		m, enough := formOf(n), claim.FirstNodes(quorumOf(n))
		assert.True(t, m.Quorum(enough), n)
		assert.False(t, m.Quorum(claim.FirstNodes(quorumOf(n)-1)), n)
		assert.False(t, m.Quorum(m.All()&^enough), n) // n the other nodes are another quorum
		assert.True(t, m.Blocks(enough), n)
		assert.False(t, m.Blocks(m.All()&^enough), n) // n the other nodes are too few to block a quorum
		assert.False(t, m.Blocks(0), n)
	}
}

// Only a node that has the claim grants it. A key that an extension has set again was missing until then.
func TestOnlyANodeWithTheClaimGrants(t *testing.T) {
	assert.Equal(t, claim.Granted, formOf(5).Counts(claim.Answer{Found: claim.Mine}))
	for _, found := range []claim.Found{claim.Other, claim.Missing, claim.Created, claim.PartMissing, claim.PartCreated, claim.Unknown} {
		assert.Equal(t, claim.Refused, formOf(5).Counts(claim.Answer{Found: found}), found)
	}
}

var errOfNode = errors.New("it broke")

// refusedFor is the vote of a node that refuses because of what it has found.
func refusedFor(found claim.Found) claim.Vote {
	return claim.Vote{Choice: claim.Refused, Answer: claim.Answer{Found: found}}
}

// says is what the nodes of these tests say. Nothing stands for a vote that the round has not waited for.
var says = map[string]claim.Vote{
	"yes": {Choice: claim.Granted, Answer: claim.Answer{Found: claim.Mine}}, "taken": refusedFor(claim.Other),
	"missing": refusedFor(claim.Missing), "healed": refusedFor(claim.Created),
	"part": refusedFor(claim.PartMissing), "mended": refusedFor(claim.PartCreated),
	"odd":    {Choice: claim.Refused, Answer: claim.Answer{Found: claim.Mine}, Err: errOfNode}, // its register is too high
	"broken": claim.Failure(errOfNode), "twin": claim.Failure(quorum.ErrDuplicate), "nothing": {},
}

// resultOf returns the result of a round with these votes, one of each node.
func resultOf(votes string) quorum.Result {
	all := strings.Fields(votes)
	m := formOf(len(all))
	res := quorum.Result{Set: &quorum.Set{}, Rule: m}
	for i, word := range all {
		v := says[word]
		res.Votes = append(res.Votes, v)
		res.Set.Nodes = append(res.Set.Nodes, &quorum.Node{Index: i})
		if word != "nothing" {
			res.Count = res.Count.With(i, v.Choice)
		}
		if v.Choice != claim.Granted && v.Taken() {
			res.Taken = res.Taken.With(i)
		}
	}
	res.Standing = m.Standing(res.Count)
	return res
}

// nodesOf returns the nodes of the *ErrTaken in err, and of the *RedisErrors.
func nodesOf(err error) (taken, failed []int) {
	if e := (*ErrTaken)(nil); errors.As(err, &e) {
		taken = e.Nodes
	}
	var walk func(err error)
	walk = func(err error) {
		if e, ok := err.(*RedisError); ok { //nolint:errorlint // each is looked at by itself
			failed = append(failed, e.Node)
			return
		}
		if e, ok := err.(interface{ Unwrap() []error }); ok { //nolint:errorlint // each is looked at by itself
			for _, err := range e.Unwrap() {
				walk(err)
			}
		}
	}
	walk(err)
	return taken, failed
}

// Rows have the votes, and the nodes on which the lock is taken. Without them the error consists of one for each node. With no the
// nodes are no quorum.
func TestNotGrantedIsTakenOnlyWhereThatIsProved(t *testing.T) {
	for _, c := range cellsOf(`
		taken taken yes         | 0 1 |    | "lock": lock already taken, locked nodes: [0 1]
		taken broken taken      | 0 2 |    | "lock": lock already taken, locked nodes: [0 2]: node #1: it broke
		taken missing yes       |     |    | node #0: lock already taken; node #1: no such key
		taken broken broken     |     | no | 2 of 3 nodes failed, 2 needed: node #1: it broke; node #2: it broke
		missing missing missing |     |    | node #0: no such key; node #1: no such key; node #2: no such key
		taken taken yes yes     | 0 1 |    | "lock": lock already taken, locked nodes: [0 1]
		taken odd yes yes       |     |    | node #0: lock already taken; node #1: it broke
		missing broken yes      |     | no | 2 of 3 nodes answered, which decides nothing: node #0: no such key; node #1: it broke
		part mended healed      |     |    | node #0: not all keys of the lock were there; node #1: not all keys of the lock were there; node #2: no such key
		broken                  |     | no | the only node failed: node #0: it broke
		nothing                 |     | no | the only node has not answered
		missing nothing broken  |     | no | 1 of 3 nodes answered, 2 needed: node #0: no such key; node #2: it broke`) {
		res := resultOf(c[0])
		err := unconfirmed("lock", res)
		require.EqualError(t, err, "redsync: "+c[3])
		assert.Equal(t, c[2] == "no", errors.Is(err, ErrNoQuorum), c[3])
		nodes, _ := nodesOf(err)
		assert.Equal(t, "["+c[1]+"]", fmt.Sprint(nodes))
		assert.Equal(t, c[1] != "", res.IsTaken())
	}
	require.NoError(t, unconfirmed("lock", quorum.Result{})) // without a round there is no error
}

// If a quorum refuses an acquire, the error says that the lock is taken, and also names the nodes that failed. If too
// many nodes have failed, the error gives that as the reason. Rows have the votes, and the nodes of both kinds.
func TestNotAcquiredTellsTakenFromNodesThatAreDown(t *testing.T) {
	for _, c := range cellsOf(`
		taken taken yes       | 0 1 |     | taken [0 1]
		taken taken nothing   | 0 1 |     | taken [0 1]
		taken yes broken      | 0   | 2   | taken [0]: node #2: it broke
		broken broken nothing |     | 0 1 | 2 of 3 nodes failed, 2 needed: node #0: it broke; node #1: it broke
		taken broken broken   |     | 1 2 | 2 of 3 nodes failed, 2 needed: node #1: it broke; node #2: it broke
		odd odd yes           | 0 1 | 0 1 | taken [0 1]: node #0: it broke; node #1: it broke
		taken odd yes         | 0 1 | 1   | taken [0 1]: node #1: it broke
		taken twin yes        | 0   | 1   | taken [0]: node #1: it is the same server as another node`) {
		text := strings.Replace(c[3], "taken", `failed to acquire lock: "lock": lock already taken, locked nodes:`, 1)
		err := notAcquired("lock", []string{"lock"}, lease.Outcome{Kind: lease.NotWon, Result: resultOf(c[0])})
		taken, failed := nodesOf(err)
		assert.Equal(t, "["+c[1]+"] ["+c[2]+"]", fmt.Sprint(taken, failed), text)
		assert.EqualError(t, err, "redsync: "+text)
		assert.Equal(t, c[1] != "", errors.Is(err, ErrFailed), text)
		assert.Equal(t, c[1] == "", errors.Is(err, ErrNoQuorum), text)
	}
}
