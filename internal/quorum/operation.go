package quorum

import (
	"context"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/wire"
)

// An Operation gives a round its meaning: what is sent, and what the nodes' replies say.
type Operation interface {
	// Brief returns what a round needs to know of the operation. A round calls it at its start.
	Brief() Brief

	// Judge returns how node i's reply counts, and notes what else the reply says. v is how the reply counts
	// by itself. Judge is called for every reply, even after the decision, on the goroutine of the node's
	// pool.
	Judge(i int, reply wire.Reply, v claim.Vote) claim.Vote
}

// A Brief is what a round knows of its operation.
type Brief struct {
	Call    claim.Call
	Within  time.Duration // how long the operation waits for one node; 0 if that is not said
	Tracer  Tracer        // told of votes, and of nodes that go down or come up; nil if nobody listens
	Op      Op            // what a Tracer is told that the command does
	Purpose Purpose       // of Call
	Explain bool          // an acquire: a blocked round waits until it is clear why (see isFinal), a split one ends early
	Patient bool          // a split round does not end early
	Tallies bool          // the operation is a claim.Tallier, which adds up the votes; otherwise they are counted plainly

	// An extension or a check: a blocked round goes on for a while if missing nodes could prove that the claim is lost.
	// Refusals prove it; if Heals is set, only those of nodes on which something else is in the way.
	Disproves, Heals bool
}

// A Purpose says what the answer to a command tells of the health of a node.
type Purpose uint8

// What a command can be for.
const (
	Looking  Purpose = iota // it says nothing of grants
	Granting                // its grant counts for the lock
	Queueing                // as Granting, but a node may deny access to the keys beside the lock's own
)

// An Op is what a command does. The zero Op has no name: no Tracer is told of its votes.
type Op uint8

// The operations whose votes a Tracer is told of.
const (
	Lock Op = iota + 1
	Extend
	Valid
	Unlock
)

// String returns the name of o.
func (o Op) String() string { return [...]string{"", "lock", "extend", "valid", "unlock"}[o] }

// Each of the following interfaces is for some operations only. A round finds them by a type assertion.

// A Recorder keeps what commands may have left on the nodes. Sending notes that a command is about to go to
// node i. Unsent takes that back, because the pool refused the command.
type Recorder interface {
	Sending(i int)
	Unsent(i int)
}

// A Fallback has another command for nodes on which the client cannot use the keys beside the lock's own: the client's
// user lacks the permission, or a cluster keeps them on another node. The reply is read by the Call of the Brief.
type Fallback interface {
	// CanDoWithout reports whether there is another command.
	CanDoWithout() bool

	// Lacks reports whether node i is known to be such a node. If so, the round sends the other command at once. Lacks
	// is called only if CanDoWithout reports true.
	Lacks(i int) bool

	// Without returns the other command, which names the lock's own keys only. It may be called with Round.mu held, and
	// only until the vote ends.
	Without() claim.Call
}

// A Repeater is an operation whose command may be sent twice to a node, of which either, both or none may be executed: a
// round sends it once more to a node whose connection was lost before the answer, see askAgainLocked.
type Repeater interface {
	// Repeat returns the command to send then, and how to read the answer. It reports false if nothing may be sent again. It
	// may be called with Round.mu held.
	Repeat() (c claim.Call, may bool)
}

// A Gate can stop an open round: once Open reports false, nothing more is sent.
type Gate interface{ Open() bool }

// A Waiter can keep a blocked round open, because the nodes that have not voted may say more. MayWait is called with
// Round.mu held.
type Waiter interface {
	MayWait(rule claim.Rule, missing claim.Nodes) bool
}

// A Timed is an operation that knows when it began, by the monotonic clock.
type Timed interface{ Began() time.Duration }

// A Guarded is an operation that knows how long after its start a node with a restart guard does not count for its lock.
type Guarded interface{ Quarantine(n *Node) time.Duration }

// A Winner acts at the moment when a quorum has granted, before anybody else is told. The round calls OnWon
// with Round.mu held.
type Winner interface{ OnWon() }

// A Tracer is told what rounds see. Its methods must not block.
type Tracer interface {
	// TracesVotes reports whether Voted does anything.
	TracesVotes() bool

	// Voted tells a node's first answer in a round. ctx is that of the call which the round is part of.
	// later says that observers must be told on another goroutine, because the caller must go on whatever
	// they do.
	Voted(ctx context.Context, v Voted, later bool)

	// NodeDown tells that a node has failed. omitted is how often it has gone down since its last NodeDown,
	// without another NodeDown.
	NodeDown(n *Node, omitted int, err error)

	// NodeStillDown tells that a node, after a NodeDown and before its NodeUp, has failed again: at once if for another
	// reason, otherwise at most once in healthPause.
	NodeStillDown(n *Node, err error)

	// NodeUp tells that a node is up again, after a NodeDown.
	NodeUp(n *Node, down time.Duration)

	// OneServer tells that the addresses of two nodes lead to one server, TwoServers that they lead to two again.
	OneServer(a, b *Node, runID string)
	TwoServers(a, b *Node)
}

// A Voted is one node's first answer in a round, or its failure to answer.
type Voted struct {
	Op    Op
	Node  *Node
	Vote  claim.Vote
	Late  bool // it came too late to count
	Start time.Time
	Took  time.Duration
}

// A Ping is the operation that asks whether nodes answer.
type Ping struct {
	// Whole makes the vote of a node that serves only some of the names a failure. The nodes are these; nil for any node.
	Whole []*Node
}

// Brief implements Operation.
func (Ping) Brief() Brief { return Brief{Call: claim.Ping()} }

// Repeat implements Repeater.
func (p Ping) Repeat() (claim.Call, bool) { return p.Brief().Call, true }

// Judge implements Operation.
func (p Ping) Judge(i int, _ wire.Reply, v claim.Vote) claim.Vote {
	if p.Whole == nil || v.Choice != claim.Granted {
		return v
	}
	if known, ok := p.Whole[i].Pool.(wire.Partial); ok {
		if why := known.Partial(); why != nil {
			return claim.Failure(why)
		}
	}
	return v
}
