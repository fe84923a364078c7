package claim

import "math/bits"

// A Choice is what a vote comes to.
type Choice uint8

// What a vote can be.
const (
	Pending Choice = iota // no answer yet
	Granted               // yes
	Refused               // the node answered no
	Failed                // an error, or no answer within the deadline
)

// A Vote is one node's part in a round.
type Vote struct {
	Answer Answer // what the node said; zero where it said nothing
	Err    error  // why it is no grant, where that is not in the answer
	Choice Choice
}

// Failure returns the vote of a node that has failed for err.
func Failure(err error) Vote { return Vote{Choice: Failed, Err: err} }

// Fails returns v as one that does not count, for err. What the node has answered stays in it.
func (v Vote) Fails(err error) Vote {
	v.Choice, v.Err = Failed, err
	return v
}

// Taken reports whether the node has answered that something else is in the way.
func (v Vote) Taken() bool { return v.Err == nil && v.Answer.Found == Other }

// MaxNodes is how many nodes there may be. UsualNodes is how many most sets have. A type that keeps state for
// each node has built-in room for UsualNodes, which saves an allocation.
const (
	MaxNodes   = 64
	UsualNodes = 5
)

// ByNode returns a zero element for each of n nodes: of spare, which is zero, if it has as many.
func ByNode[T any](spare []T, n int) []T {
	if n <= len(spare) {
		return spare[:n]
	}
	return make([]T, n)
}

// Nodes is a set of nodes: bit i stands for node i.
type Nodes uint64

// FirstNodes returns the set of the first n nodes.
func FirstNodes(n int) Nodes { return Nodes(1)<<n - 1 } // right for 64 as well

// With returns n and node i.
func (n Nodes) With(i int) Nodes { return n | 1<<i }

// Without returns n without node i.
func (n Nodes) Without(i int) Nodes { return n &^ (1 << i) }

// Has reports whether node i is in n.
func (n Nodes) Has(i int) bool { return n>>i&1 != 0 }

// Len returns how many nodes n has.
func (n Nodes) Len() int { return bits.OnesCount64(uint64(n)) }

// A Count is which nodes have voted, and how.
type Count struct{ Granted, Refused, Failed Nodes }

// Voted returns the nodes that have voted.
func (c Count) Voted() Nodes { return c.Granted | c.Refused | c.Failed }

// Answered returns the nodes that have answered.
func (c Count) Answered() Nodes { return c.Granted | c.Refused }

// With returns c and the vote of node i.
func (c Count) With(i int, v Choice) Count {
	switch v {
	case Granted:
		c.Granted = c.Granted.With(i)
	case Refused:
		c.Refused = c.Refused.With(i)
	case Failed:
		c.Failed = c.Failed.With(i)
	case Pending:
	}
	return c
}

// A Rule says which nodes together can decide, and what votes prove. The root of the library hands
// it down (quorum.go there): everything below only obeys.
type Rule interface {
	All() Nodes                // the nodes that have a vote
	Quorum(n Nodes) bool       // these nodes together can decide
	Blocks(n Nodes) bool       // without these nodes there is no quorum
	Standing(c Count) Standing // what the votes prove by now
	Counts(a Answer) Choice    // what an answer is as a vote
}

// A Standing is what votes prove. What is true stays true, whatever votes follow.
type Standing struct {
	Won       bool // a quorum has granted
	Blocked   bool // no quorum can grant any more
	Rejected  bool // the nodes that refused prove that no quorum can say yes, whatever the others say
	Explained bool // it is clear why the round is blocked
}

// Decided reports whether the answer cannot change.
func (s Standing) Decided() bool { return s.Won || s.Blocked }

// A Tally adds up the votes of a round. Most claims need none: their votes are counted, and the Rule says
// what the count proves. A claim whose votes differ in more than yes and no, such as which permit a node
// grants, has a tally of its own. The tests of the seam have one (seam_test.go of the root).
type Tally interface {
	Add(i int, v Vote)
	Standing() Standing
}

// A Tallier is a claim that adds up votes in its own way.
type Tallier interface{ Tally(r Rule) Tally }

// A LateTally is a tally that learns from the votes which claim the round has won. Won returns that claim,
// and the lease has it from then on.
type LateTally interface{ Won() Claim }
