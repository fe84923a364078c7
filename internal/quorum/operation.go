package quorum

import (
	"context"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/wire"
)

// An Operation says what a round sends, and what the replies mean.
type Operation interface {
	// Brief returns what the round needs to know at its start.
	Brief() Brief

	// Judge returns how node i's reply counts. v is how it counts by itself. Judge is called for every reply, even
	// after the decision, on the goroutine of the node's pool.
	Judge(i int, reply wire.Reply, v claim.Vote) claim.Vote
}

// A Brief is what a round knows of its operation.
type Brief struct {
	Call    claim.Call
	Within  time.Duration // for one node; or 0
	Tracer  Tracer        // nil if nobody listens
	Op      Op
	Purpose Purpose
	Explain bool // an acquire: a blocked one waits to learn why (see isFinal), a split one ends early
	Patient bool // a split round does not end early
	Tallies bool // the operation is a claim.Tallier

	// A blocked extension or check goes on for a while if missing nodes could prove a loss, by refusals; with Heals, only
	// if something else is in the way.
	Disproves, Heals bool
}

// A Purpose says what an answer tells of a node's health.
type Purpose uint8

// What a command can be for.
const (
	Looking  Purpose = iota // it says nothing of grants
	Granting                // its grant counts for the lock
	Queueing                // as Granting, but the keys beside the lock's own may be denied
)

// An Op is what a command does. A Tracer does not hear of the votes of a command whose Op is zero.
type Op uint8

// A Tracer hears of these.
const (
	Lock Op = iota + 1
	Extend
	Valid
	Unlock
)

// String returns the name of o.
func (o Op) String() string { return [...]string{"", "lock", "extend", "valid", "unlock"}[o] }

// The following interfaces are for some operations only.

// A Recorder keeps what commands may have left on the nodes. Sending comes before a command is sent, Unsent if the pool
// refuses it.
type Recorder interface {
	Sending(i int)
	Unsent(i int)
}

// A Fallback has another command for nodes on which the client cannot use the keys beside the lock's own: see
// IsForbidden. Both replies are read alike.
type Fallback interface {
	// CanDoWithout reports whether there is one.
	CanDoWithout() bool

	// Lacks reports whether node i is known to need it. It is called only if CanDoWithout reports true.
	Lacks(i int) bool

	// Without returns it, only until the vote ends. Round.mu may be held.
	Without() claim.Call
}

// A Repeater has a command that a node may get, and execute, twice: see askAgainLocked.
type Repeater interface {
	// Repeat returns the command to send again, false for none. Round.mu may be held.
	Repeat() (c claim.Call, may bool)
}

// A Gate can stop an open round: nothing more is sent once Open reports false.
type Gate interface{ Open() bool }

// A Waiter can keep a blocked round open, because missing nodes may say more. Round.mu is held.
type Waiter interface {
	MayWait(rule claim.Rule, missing claim.Nodes) bool
}

// A Timed knows when it began, by the monotonic clock.
type Timed interface{ Began() time.Duration }

// A Guarded knows how long after its start a node with a restart guard does not count.
type Guarded interface{ Quarantine(n *Node) time.Duration }

// A Winner acts when a quorum has granted, before anybody else is told. Round.mu is held.
type Winner interface{ OnWon() }

// A Tracer is told what rounds see. Its methods must not block.
type Tracer interface {
	// TracesVotes reports whether Voted does anything.
	TracesVotes() bool

	// Voted tells a node's first answer in a round. ctx is that of the call. later says that observers are told on another
	// goroutine.
	Voted(ctx context.Context, v Voted, later bool)

	// NodeDown tells that a node has failed. omitted is how often it has gone down since its last NodeDown.
	NodeDown(n *Node, omitted int, err error)

	// NodeStillDown tells that it has failed again: at once for another reason, otherwise once in healthPause.
	NodeStillDown(n *Node, err error)

	// NodeUp tells that it is up again.
	NodeUp(n *Node, down time.Duration)

	// OneServer tells that two nodes are one server, TwoServers that they are two again.
	OneServer(a, b *Node, runID string)
	TwoServers(a, b *Node)
}

// A Voted is a node's first answer in a round, or its failure.
type Voted struct {
	Op    Op
	Node  *Node
	Vote  claim.Vote
	Late  bool // too late to count
	Start time.Time
	Took  time.Duration
}

// A Ping asks whether nodes answer.
type Ping struct {
	// Whole are the nodes, if one that serves only some of the names is to fail.
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
