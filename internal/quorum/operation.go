package quorum

import (
	"context"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/pool"
)

// An Operation gives a round its meaning: what is sent, and what the nodes' replies say.
type Operation interface {
	// Brief returns what a round of the operation needs to know. It is called as each round
	// starts.
	Brief() Brief

	// Judge returns what node i's reply counts as, which is v by itself, and notes what else the reply
	// says. It is called for every reply, also for those that come after the decision, from the
	// goroutine of the node's pool.
	Judge(i int, reply pool.Reply, v claim.Vote) claim.Vote
}

// A Brief is what a round knows of its operation.
type Brief struct {
	Call    claim.Call
	Tally   claim.Tally   // adds up the votes; nil where they are counted plainly
	Within  time.Duration // how long the operation waits for one node; 0 if that is not said
	Tracer  Tracer        // told of votes, and of nodes that go down or come up; nil where nobody listens
	Op      Op            // as a Tracer is told
	Purpose Purpose       // of Call, in regard to the health of a node
	Explain bool          // a round that is blocked waits until it is clear why: see isFinal
}

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

// What only some operations do is an interface of its own, which a round finds by an assertion.

// A Recorder keeps what commands may have left on the nodes. Sending notes that a command
// is about to go to node i; Unsent takes that back, because the pool refused it.
type Recorder interface {
	Sending(i int)
	Unsent(i int)
}

// A Gate closes while the round is open: once it does not stand, nothing more is sent.
type Gate interface{ Stands() bool }

// A Winner acts at the moment when a quorum has granted, before anybody else is told. The
// round is locked.
type Winner interface{ OnWon() }

// A Tracer is told what rounds see. Its methods must not block.
type Tracer interface {
	// TracesVotes reports whether Voted does anything.
	TracesVotes() bool

	// Voted tells a node's first answer in a round. ctx is that of the call which the round is part of. later
	// says that the caller must go on whatever an observer does.
	Voted(ctx context.Context, v Voted, later bool)

	// NodeDown tells that a node has failed, and how often it has done so since that was last told.
	NodeDown(n *Node, omitted int, err error)

	// NodeUp tells that a node is up again, after a NodeDown.
	NodeUp(n *Node, down time.Duration)
}

// A Voted is one node's first answer in a round, or its failure to answer.
type Voted struct {
	Op    Op
	Node  *Node
	Vote  claim.Vote
	Late  bool // it does not count any more
	Start time.Time
	Took  time.Duration
}

// A Ping is the round that asks whether nodes answer.
type Ping struct{}

// Brief implements Operation.
func (Ping) Brief() Brief { return Brief{Call: claim.Ping()} }

// Judge implements Operation.
func (Ping) Judge(_ int, _ pool.Reply, v claim.Vote) claim.Vote { return v }
