// Package claim defines what a primitive, such as a mutex, writes on a node, and how it reads the node's answer.
package claim

import (
	"time"

	"github.com/seed14bd9ef4/redsync/internal/script"
)

// A Claim is what one lease writes on the nodes. A method that returns a Call sends nothing.
type Claim interface {
	Name() string  // for errors and events
	Value() string // the secret that proves the claim, fresh for each attempt

	// With returns the claim with another value, perhaps in room, which must be zero.
	With(value string, room *Room) Claim

	// Acquire takes the claim for ttl if it is free, enters the ticket of at in the queue, and proposes the token of f. A
	// claim that is there already is Mine, or Other after a plain SET, which does not tell whose it is.
	Acquire(ttl time.Duration, at script.Place, f script.Fence) Call

	// AcquireAgain is Acquire for a node that may have executed an earlier one, or may yet. A refusal that the claim
	// itself may have caused is no answer. fresh says that nobody else ever uses the value; otherwise a claim that was
	// there is not Mine, or the Detail has WasThere.
	AcquireAgain(ttl time.Duration, at script.Place, f script.Fence, fresh bool) Call

	// Extend makes the claim last for at least ttl from now. With heal it takes a missing claim again, and answers
	// Created.
	Extend(ttl time.Duration, heal bool) Call

	// Fill takes for ttl a claim that the lease has on other nodes, whatever the queue, and answers Created. It never
	// shortens one that is there: that is Mine, or Other as with Acquire.
	Fill(ttl time.Duration) Call

	Check() Call // asks whether the claim is there

	// Inspect asks which keys the lock has on the node, and which holder each is of. Unless alone, it also asks for the
	// queue and for the fencing register. The answer is a grant, with a *script.Report in Detail.Own.
	Inspect(alone bool) Call

	// Release gives the claim back, raises the fencing register to the token of f, and lets the tickets of t enter and
	// leave the queues. If the claim is then free, the node wakes waiters, but not those of p: see script.Release.
	Release(p script.Process, t script.Turnover, f script.Fence) Call

	// Lines returns the lines in which waiters for this claim stand. A line has a queue on each node, and the name of a
	// lock, by which this process also keeps fencing tokens.
	Lines() []string

	// Shares reports whether others may hold the same line, as readers do. Then an exclusive Do inside must not join,
	// tickets are those of readers, and the value has no line feed.
	Shares() bool

	HoldsAlone() bool // a lease with the claim excludes all others for its lines

	// PassesTo reports whether a lease may be handed to a waiter for the other claim, unknown to the nodes.
	PassesTo(other Claim) bool
}

// A Shortener is a claim that can stay on the nodes after its lease has ended.
type Shortener interface {
	// Shorten is Release, but lets the claim last for the rest, at least 1 ms, and never longer than it would.
	Shorten(rest time.Duration, p script.Process, t script.Turnover, f script.Fence) Call
}

// Room is memory for a claim, which saves the allocation.
type Room struct{ exclusive Exclusive }

// A Call is a command with the function that reads its replies.
type Call struct {
	Command script.Command

	// Read returns an error for a reply that the command never gives: it says nothing about the claim.
	Read func(reply any) (Answer, error)
}

// Found says what a command found on the node.
type Found uint8

// The values of Found.
const (
	Unknown     Found = iota // the answer does not say
	Mine                     // the claim: it was there before the command, or Acquire has taken it
	Other                    // something else, which is in the way of the claim
	Missing                  // nothing
	Created                  // nothing, and Extend has taken the claim again
	PartMissing              // not all of a claim with several lines
	PartCreated              // not all of it, and Extend has taken the rest again
	Foreign                  // a key of another type in place of the claim or its register: no lock of any client
)

// An Answer is what a node says. It is small: every vote carries one.
type Answer struct {
	Detail *Detail // nil for most answers
	Found  Found
	First  bool // for FirstIn
	Others bool // for OthersIn
}

// FirstIn returns the lines in which a waiter of the caller's process may go on.
func (a Answer) FirstIn() Lines {
	switch {
	case a.Detail != nil && a.Detail.First != 0:
		return a.Detail.First
	case a.First: // the claim has only one line
		return onlyLine
	}
	return 0
}

// OthersIn returns those in which a waiter of another process is known.
func (a Answer) OthersIn() Lines {
	switch {
	case a.Detail != nil && a.Detail.Others != 0:
		return a.Detail.Others
	case a.Others:
		return onlyLine
	}
	return 0
}

// Lines is a set of the lines of one claim, as bits.
type Lines = script.Names

// MaxLines limits the lines of a claim.
const MaxLines = script.MaxNames

const (
	onlyLine Lines = 1
	allLines       = ^Lines(0)
)

// A Detail is what only some nodes say: to an Acquire with a ticket or a token, and to commands of several lines.
type Detail struct {
	Wait     time.Duration // how long a refusal may last, or Never
	At       time.Duration // when the answer came, by the monotonic clock; only with a ticket
	Register uint64        // with a fence: the token in the register
	Stored   bool          // with a fence: the node has stored the proposal
	WasThere bool          // with a fence, or of a reader: the claim was there before the command
	Blind    bool          // of a reader: granted without a look at the queue, which the user may not read
	Free     Lines         // of a refused Acquire: the lines in which nothing was in the way
	First    Lines         // with several lines: for FirstIn
	Others   Lines         // with several lines: for OthersIn
	Own      any           // what only the claim and its Tally understand
}

// FreeIn returns the lines in which nothing was in the way, as far as the node says.
func (v Vote) FreeIn() Lines {
	if v.Choice == Granted {
		return allLines
	}
	return v.Answer.Details().Free
}

// Never is the Wait of a refusal without a known end.
const Never time.Duration = -1

var noDetail = Detail{Wait: Never}

// Details returns the Detail, without one a Wait of Never.
func (a Answer) Details() Detail {
	if a.Detail == nil {
		return noDetail
	}
	return *a.Detail
}
