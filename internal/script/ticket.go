package script

import (
	"crypto/rand"
	"fmt"
	"math/big"
)

// This file makes the texts that identify processes and waiters, as arguments, which saves allocations.

// A Process tells the nodes which waiters are of one process: 16 digits. Zero is no process.
type Process struct{ text any }

// NewProcess returns a Process that nobody else has.
func NewProcess() Process {
	n, _ := rand.Int(rand.Reader, big.NewInt(1e16)) // never fails
	return ProcessOf(fmt.Sprintf("%016d", n))
}

// ProcessOf returns the Process with a text.
func ProcessOf(text string) Process {
	if text == "" {
		return Process{}
	}
	return Process{text}
}

// IsZero reports whether p is the zero Process.
func (p Process) IsZero() bool { return p.text == nil }

// String returns the text of p.
func (p Process) String() string { return p.argument().(string) }

// Channel returns the channel on which the process hears that a lock is free: scripts know it.
func (p Process) Channel() string { return "redsync:" + p.String() }

func (p Process) argument() any { return textOrNone(p.text) }

// A Ticket is a waiter's place in the queues. Zero is none. A reader's ends in a kind.
type Ticket struct{ text any }

const (
	ticketLength = 49  // without the kind
	shared       = "r" // a reader's kind; in a queue, that of an exclusive ticket is a space
)

const (
	maxTicketTime = 1e16 - 1 // in microseconds: the year 2286

	// MaxPriority is the highest priority. The lowest is -MaxPriority.
	MaxPriority = 999
)

// NewTicket returns a ticket: a text of fixed width, by which nodes sort waiters, by higher priority, then by earlier
// time. queue.lua finds the process in it.
func NewTicket(priority int, micros int64, p Process, number uint32) Ticket {
	return TicketOf(fmt.Sprintf("%04d:%016d:%s:%010d",
		MaxPriority-priority, min(max(micros, 0), maxTicketTime), p.argument(), number))
}

// TicketOf returns the Ticket with a text.
func TicketOf(text string) Ticket {
	if text == "" {
		return Ticket{}
	}
	return Ticket{text}
}

// Shared returns the reader's ticket in the place of t.
func (t Ticket) Shared() Ticket {
	if t.IsZero() || t.IsShared() {
		return t
	}
	return Ticket{t.String() + shared}
}

// IsShared reports whether t is a reader's ticket.
func (t Ticket) IsShared() bool { return len(t.String()) == ticketLength+len(shared) }

// IsZero reports whether t is the zero Ticket.
func (t Ticket) IsZero() bool { return t.text == nil }

// String returns the text of t.
func (t Ticket) String() string { return t.argument().(string) }

func (t Ticket) argument() any { return textOrNone(t.text) }

var none any = ""

func textOrNone(text any) any {
	if text == nil {
		return none
	}
	return text
}
