package claim

import "math/bits"

// A Choice says how a vote counts.
type Choice uint8

// How a vote can count.
const (
	Pending Choice = iota // no answer yet
	Granted               // yes
	Refused               // the node answered no
	Failed                // an error, or no answer within the deadline
)

// A Vote is what a round knows of one node's answer.
type Vote struct {
	Answer Answer // what the node said; zero where it said nothing
	Err    error  // why the vote is no grant; nil if Answer says why
	Choice Choice
}

// Failure returns the vote of a node that has failed with err.
func Failure(err error) Vote { return Vote{Choice: Failed, Err: err} }

// Fails returns v as a failure with err. The node's answer stays in it.
func (v Vote) Fails(err error) Vote {
	v.Choice, v.Err = Failed, err
	return v
}

// Taken reports whether the node has answered that something else is in the way.
func (v Vote) Taken() bool { return v.Err == nil && v.Answer.Found == Other }

// InTheWay reports whether the node has answered that another value or a key of another type is in the way.
func (v Vote) InTheWay() bool { return v.Taken() || v.Answer.Found == Foreign }

// Denies returns v as a refusal, if the node has a key of another type in the place of a claim that it had before: it has
// lost the claim for good.
func (v Vote) Denies() Vote {
	if v.Answer.Found == Foreign {
		v.Choice = Refused
	}
	return v
}

// MaxNodes is how many nodes there may be. Most sets have at most UsualNodes, and nearly all at most manyNodes.
const (
	MaxNodes   = 64
	UsualNodes = 5
	manyNodes  = 9
)

// WithRoom returns a new T, and an A and a B for each of n nodes. All is zero. In nearly all sets it is one allocation.
func WithRoom[T, A, B any](n int) (*T, []A, []B) {
	switch {
	case n <= UsualNodes:
		r := new(struct {
			b  [UsualNodes]B // first: a struct must not end in an array without size
			of T
			a  [UsualNodes]A
		})
		return &r.of, r.a[:n], r.b[:n]
	case n <= manyNodes:
		r := new(struct {
			b  [manyNodes]B
			of T
			a  [manyNodes]A
		})
		return &r.of, r.a[:n], r.b[:n]
	}
	return new(T), make([]A, n), make([]B, n)
}

// Nodes is a set of nodes: bit i stands for node i.
type Nodes uint64

// FirstNodes returns the set of the first n nodes.
func FirstNodes(n int) Nodes { return Nodes(1)<<n - 1 } // right for n = 64 as well

// With returns n with node i added.
func (n Nodes) With(i int) Nodes { return n | 1<<i }

// Without returns n without node i.
func (n Nodes) Without(i int) Nodes { return n &^ (1 << i) }

// Has reports whether node i is in n.
func (n Nodes) Has(i int) bool { return n>>i&1 != 0 }

// Len returns how many nodes n has.
func (n Nodes) Len() int { return bits.OnesCount64(uint64(n)) }

// A Count says which nodes have voted, and how.
type Count struct{ Granted, Refused, Failed Nodes }

// Voted returns the nodes that have voted.
func (c Count) Voted() Nodes { return c.Granted | c.Refused | c.Failed }

// Answered returns the nodes that have granted or refused.
func (c Count) Answered() Nodes { return c.Granted | c.Refused }

// With returns c with the vote of node i added.
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

// A Rule says which nodes together can decide, and what votes prove. The root of the library defines it
// (quorum.go there) and hands it down. The packages below only apply it.
//
// A Rule has one set of nodes, or several, each of which must decide. A server may be a node of more than one set, and
// may have an address of its own in each. In one set no two nodes may be one server.
type Rule interface {
	All() Nodes                // the nodes that have a vote
	Quorum(n Nodes) bool       // these nodes together can decide
	Blocks(n Nodes) bool       // without these nodes there is no quorum
	Standing(c Count) Standing // what the votes prove by now
	Counts(a Answer) Choice    // how an answer counts as a vote
	Sets(i int) Sets           // the sets that node i is in
	AsOne(a, b int) Rule       // the rule if node b is node a: a counts in the sets of both, and b is not asked
}

// Sets is some of the sets of a Rule, a bit for each.
type Sets uint8

// A Standing is what votes prove. A field that is true stays true, whatever votes follow.
type Standing struct {
	Won       bool // a quorum has granted
	Blocked   bool // no quorum can grant any more
	Rejected  bool // the refusals alone leave no quorum that can grant; Blocked counts failures, too
	Explained bool // the reason is clear: a quorum has answered, or so many nodes have failed that no quorum can
}

// Decided reports whether the round is won or blocked. No later vote can turn one into the other.
func (s Standing) Decided() bool { return s.Won || s.Blocked }

// A Tally adds up the votes of a round. Most claims need none: their votes are counted, and the Rule says
// what the count proves. A claim has a Tally of its own if its votes say more than yes or no, such as which
// permit a node grants: see permits.go.
type Tally interface {
	Add(i int, v Vote)
	Standing() Standing
}

// A Tallier is a claim that adds up votes in its own way.
type Tallier interface{ Tally(r Rule) Tally }

// A LateTally is a tally for which only the votes tell what the round can win. Nodes may grant different
// things, such as different permits, and only nodes that have granted the same add up to a quorum.
type LateTally interface {
	// Won returns the claim that the round has won. It replaces the claim with which the lease was acquired. Won is
	// called once.
	Won() Winner

	// Astray returns the nodes whose grants do not count, because they have granted something else than the
	// chosen group of nodes: the group that has won, or the biggest one if none has. The round counts them
	// among the nodes on which somebody else has the claim.
	Astray() Nodes

	// MayWinAtOnce reports, after a round that was not won, whether a new round may be won although nothing
	// has been released since.
	MayWinAtOnce() bool
}

// A Winner is the claim that a LateTally has chosen. Its commands are about what the round has won, and about nothing
// else: a node that has something else of the lease must not count towards the quorum of an Extend or a Check. Nodes may
// have granted the lease a surplus: something that the claim does not need.
type Winner interface {
	Claim

	// IsSurplus reports whether a node may have granted a surplus, by its answer to the Acquire. If its reply
	// was lost, the answer is zero.
	IsSurplus(a Answer) bool

	// Surplus returns a claim whose Release gives back the surplus, and keeps what belongs to the Winner.
	Surplus() Claim
}
