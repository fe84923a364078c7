// Package claim defines what a primitive, such as a mutex, writes on a node, and how it reads the node's
// answer. Everything else (rounds, validity, extension, release, waiting, tokens) is the same for every
// primitive and does not look inside a claim.
package claim

import (
	"time"

	"github.com/seed14bd9ef4/redsync/internal/script"
)

// A Claim is what one lease writes on the nodes. The rest of the library works through this interface
// alone. A method that returns a Call sends nothing: its comment says what the command does on a node.
type Claim interface {
	Name() string  // names the claim in errors and events
	Value() string // the secret that proves the claim: each attempt uses a fresh one

	// With returns the same claim with another value. It may store the copy in room, which must be zero.
	With(value string, room *Room) Claim

	// Acquire takes the claim for ttl if it is free. If at has a ticket, the ticket enters the queue; a claim without a
	// queue ignores tickets, and its waiters try at least twice in script.AliveFor. If f has a token, Acquire proposes it.
	// A second Acquire that finds the claim answers Mine, or Other: a plain SET does not tell whose value is there.
	Acquire(ttl time.Duration, at script.Place, f script.Fence) Call

	// AcquireAgain does what Acquire does on a node that was sent an Acquire of this claim before, and may have executed it, or
	// may do so later. A node that refuses, and cannot tell whether the claim itself is in the way, gives no answer. fresh says
	// that nobody else ever uses the value; otherwise a claim that was there is not Mine, or the Detail has WasThere.
	AcquireAgain(ttl time.Duration, at script.Place, f script.Fence, fresh bool) Call

	// Extend makes the claim last for at least ttl from now, and never shortens it. With heal it takes a
	// missing claim again; the answer is Created then.
	Extend(ttl time.Duration, heal bool) Call

	// Fill takes the claim for ttl if nothing is in its way. It is for a claim that a lease has on other nodes already.
	// It looks at no queue. It never shortens the TTL of a claim that is there. The answer is Created if it has taken the
	// claim. If the claim was there, it is Mine, or Other as with Acquire.
	Fill(ttl time.Duration) Call

	// Check asks whether the claim is there.
	Check() Call

	// Inspect asks what the node has of the lock, whoever holds it. The answer has a *script.Report in its Detail.Own, and
	// counts as a grant. alone leaves out the keys beside the lock's own.
	Inspect(alone bool) Call

	// Release gives the claim back, raises the fencing register to the token of f, and lets the tickets of t
	// enter and leave the queues. If the claim is free then, the node wakes the first waiter in each queue,
	// unless that waiter belongs to process p. If that waiter is a reader, the node wakes all readers that
	// may go on with it. Quietly in t says that the release touches no queue.
	Release(p script.Process, t script.Turnover, f script.Fence) Call

	// Lines returns the names of the lines in which a waiter for this claim can stand: most claims have one.
	// They are also the lines whose waiters may go on when the claim becomes free. A line has a queue on each
	// node. A node that tells a process that a lock is free sends the name of the line, which is the key of
	// the lock. The fencing tokens that this process has seen are kept by these names, too.
	Lines() []string

	// Shares reports whether others may hold the same line in the same way, as readers do. Then an exclusive Do inside
	// must not join the hold, the tickets are those of readers, and the value may not contain a line feed. Whether leases
	// of this process share one hold is the Policy's to say: lease.Policy.Joins.
	Shares() bool

	// HoldsAlone reports whether a lease with the claim excludes all other leases for its lines.
	HoldsAlone() bool

	// PassesTo reports whether a lease with this claim may be handed over, without telling the nodes, to a
	// waiter for the other claim.
	PassesTo(other Claim) bool
}

// A Shortener is a claim that can stay on the nodes for a while after its lease has ended.
type Shortener interface {
	// Shorten does what Release does, but instead of giving the claim back it lets the claim last for the rest, and
	// no longer. It never makes the claim last longer. The rest is at least 1 ms.
	Shorten(rest time.Duration, p script.Process, t script.Turnover, f script.Fence) Call
}

// Room is memory for a claim, which saves the allocation.
type Room struct{ exclusive Exclusive }

// A Call is a command together with the function that reads its replies, because the same reply means
// different things after different commands.
type Call struct {
	Command script.Command

	// Read returns what a reply says. It returns an error for a reply that the command never gives. Such a
	// reply says nothing about the claim.
	Read func(reply any) (Answer, error)
}

// Found says what a command found on the node.
type Found uint8

// What a command can find.
const (
	Unknown     Found = iota // the answer does not say
	Mine                     // the claim: it was there before the command, or Acquire has taken it
	Other                    // something else, which is in the way of the claim
	Missing                  // nothing is there
	Created                  // nothing was there, and Extend has taken the claim again
	PartMissing              // a part of a claim with several lines, or all of it, is not there
	PartCreated              // such a part was not there, and Extend has taken it again
	Foreign                  // a key of another type, where the claim or its register belongs: no lock of any client
)

// An Answer is what a node says. It is small, because every vote carries one.
type Answer struct {
	Detail *Detail // what only some answers say; nil for the others
	Found  Found
	First  bool // of Release and a Downgraded's Extend: a waiter of the caller's process may go on: see FirstIn
	Others bool // in the same answers: a waiter of another process is known: see OthersIn
}

// FirstIn returns the lines in which a waiter of the caller's process may go on. In the node's queue for such
// a line, that waiter is the first, or one of the readers at the front.
func (a Answer) FirstIn() Lines {
	switch {
	case a.Detail != nil && a.Detail.First != 0:
		return a.Detail.First
	case a.First: // the claim has only one line
		return onlyLine
	}
	return 0
}

// OthersIn returns the lines in which the node knows of a waiter of another process.
func (a Answer) OthersIn() Lines {
	switch {
	case a.Detail != nil && a.Detail.Others != 0:
		return a.Detail.Others
	case a.Others: // the claim has only one line
		return onlyLine
	}
	return 0
}

// Lines is a set of the lines of one claim: bit i stands for the line i of Claim.Lines.
type Lines = script.Names

// MaxLines is how many lines a claim can have.
const MaxLines = script.MaxNames

const (
	onlyLine Lines = 1
	allLines       = ^Lines(0)
)

// A Detail is what only some nodes say: to an Acquire that enters the queue or proposes a token, and to
// commands of a claim with several lines.
type Detail struct {
	Wait     time.Duration // how long a refusal may last; Never if it has no end or the end is not known
	At       time.Duration // when the answer came, by the monotonic clock; set only if the acquire enters the queue
	Register uint64        // with a fence: the token in the register
	Stored   bool          // with a fence: the node has stored the proposal in the register
	WasThere bool          // with a fence, or of a reader: the claim was there before the command
	Blind    bool          // of a reader's Acquire: granted without a look at the queue, which the user may not read
	Free     Lines         // of a refused Acquire: the lines in which nothing was in the way
	First    Lines         // of a Release of several lines: see Answer.FirstIn
	Others   Lines         // of a Release of several lines: see Answer.OthersIn
	Own      any           // data that only the claim and its Tally understand; nil for most claims
}

// FreeIn returns the lines in which nothing was in the way of an Acquire on the node, as far as the node says.
// For a grant these are all lines.
func (v Vote) FreeIn() Lines {
	if v.Choice == Granted {
		return allLines
	}
	return v.Answer.Details().Free
}

// Never is the Wait of a refusal that has no end, or whose end is not known.
const Never time.Duration = -1

// noDetail is the Detail of an answer without one.
var noDetail = Detail{Wait: Never}

// Details returns the Detail of the answer, or noDetail if the answer has none.
func (a Answer) Details() Detail {
	if a.Detail == nil {
		return noDetail
	}
	return *a.Detail
}
