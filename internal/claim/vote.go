package claim

import "math/bits"

// A Choice says how a vote counts.
type Choice uint8

// The values of Choice.
const (
	Pending Choice = iota // no answer yet
	Granted
	Refused
	Failed // an error, or no answer within the deadline
)

// A Vote is what a round knows of a node's answer.
type Vote struct {
	Answer Answer // zero if the node said nothing
	Err    error  // why the vote is no grant; nil if Answer says why
	Choice Choice
}

// Failure returns a failed vote.
func Failure(err error) Vote { return Vote{Choice: Failed, Err: err} }

// Fails returns v as a failure.
func (v Vote) Fails(err error) Vote {
	v.Choice, v.Err = Failed, err
	return v
}

// Taken reports whether something else is in the way of the claim.
func (v Vote) Taken() bool { return v.Err == nil && v.Answer.Found == Other }

// InTheWay reports whether another value or a key of another type is in the way.
func (v Vote) InTheWay() bool { return v.Taken() || v.Answer.Found == Foreign }

// Denies returns v as a refusal if a key of another type has taken the claim's place for good.
func (v Vote) Denies() Vote {
	if v.Answer.Found == Foreign {
		v.Choice = Refused
	}
	return v
}

// MaxNodes limits the nodes. Most sets have at most UsualNodes, nearly all at most manyNodes.
const (
	MaxNodes   = 64
	UsualNodes = 5
	manyNodes  = 9
)

// WithRoom returns zero values for n nodes, usually in one allocation.
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

// Nodes is a set of nodes, as bits.
type Nodes uint64

// FirstNodes returns the first n nodes.
func FirstNodes(n int) Nodes { return Nodes(1)<<n - 1 } // right for n = 64 as well

// With returns n with node i added.
func (n Nodes) With(i int) Nodes { return n | 1<<i }

// Without returns n with node i removed.
func (n Nodes) Without(i int) Nodes { return n &^ (1 << i) }

// Has reports whether node i is in n.
func (n Nodes) Has(i int) bool { return n>>i&1 != 0 }

// Len returns the number of nodes.
func (n Nodes) Len() int { return bits.OnesCount64(uint64(n)) }

// A Count says which nodes have voted how.
type Count struct{ Granted, Refused, Failed Nodes }

// Voted returns the nodes with a vote.
func (c Count) Voted() Nodes { return c.Granted | c.Refused | c.Failed }

// Answered returns the nodes that have granted or refused.
func (c Count) Answered() Nodes { return c.Granted | c.Refused }

// With returns c with the vote of node i.
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

// A Rule says which nodes together can decide, and what votes prove. Each of its one or two sets of nodes must decide.
// A server is in a set only once. The root's quorum.go implements it.
type Rule interface {
	All() Nodes                // the nodes with a vote
	Quorum(n Nodes) bool       // these nodes can decide
	Blocks(n Nodes) bool       // without these there is no quorum
	Standing(c Count) Standing // what the votes prove
	Counts(a Answer) Choice    // how an answer counts
	Sets(i int) Sets           // the sets of node i
}

// Sets is some of the sets of a Rule, as bits.
type Sets uint8

// A Standing is what votes prove. A field stays true, whatever votes follow.
type Standing struct {
	Won       bool // a quorum has granted
	Blocked   bool // no quorum can grant any more
	Rejected  bool // Blocked by refusals alone
	Explained bool // the reason is clear: a quorum has answered, or failures leave none
}

// Decided reports whether the round is won or blocked. No later vote turns one into the other.
func (s Standing) Decided() bool { return s.Won || s.Blocked }

// A Tally adds up the votes of a round. Most claims need none, but count by the Rule.
type Tally interface {
	Add(i int, v Vote)
	Standing() Standing
}

// A Tallier is a claim with a Tally of its own.
type Tallier interface{ Tally(r Rule) Tally }

// A LateTally is a Tally for grants that may differ, such as permits: only equal ones add up to a quorum.
type LateTally interface {
	// Won returns, once, the claim that the round has won, which replaces that of the lease.
	Won() Winner

	// Astray returns the nodes whose grants differ from those of the winning or biggest group. There somebody else has the
	// claim.
	Astray() Nodes

	// MayWinAtOnce reports whether a new round may be won although nothing has been released after this one.
	MayWinAtOnce() bool
}

// A Winner is the claim that a LateTally has chosen, without the surplus: nodes that have only the rest must not count
// in an Extend or a Check.
type Winner interface {
	Claim

	// IsSurplus reports whether a node may have granted a surplus. a is its answer to the Acquire, zero for none.
	IsSurplus(a Answer) bool

	// Surplus returns a claim whose Release gives back the surplus alone.
	Surplus() Claim
}
