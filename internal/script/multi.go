package script

import (
	"fmt"

	"github.com/seed14bd9ef4/redsync/internal/wire"
)

// This file makes the commands of a lease of several names. A node decides about all at once.

// Names is a set of the names of one claim, as bits.
type Names uint64

// MaxNames limits Names.
const MaxNames = 64

// A Multi is what commands of a lease of several names are about: these and the holder's value.
type Multi struct {
	names *multiNames
	value any
}

// multiNames are the names of a Multi and their keys, as arguments, which saves allocations.
type multiNames struct {
	names         []string
	locks, queues []any
}

// NewMulti returns the Multi of names, sorted and distinct, 2 to MaxNames for a command, with an empty value.
func NewMulti(names []string) Multi {
	k := len(names)
	keys := make([]any, 2*k)
	n := &multiNames{names: names, locks: keys[:k:k], queues: keys[k:]}
	for i, name := range names {
		n.locks[i], n.queues[i] = name, QueueKey(name)
	}
	return Multi{n, none}
}

// With returns m with another value.
func (m Multi) With(value string) Multi { return Multi{m.names, value} }

// Names returns the names, which must not change.
func (m Multi) Names() []string { return m.names.names }

// Value returns the value.
func (m Multi) Value() string { return m.value.(string) }

// A Part says whose tickets enter and leave the queue of one name.
type Part struct {
	Enters Ticket
	Leave  []Ticket
}

// EnterMulti is Enter for all keys of m, or none: see enter.lua. ParseEnteredMulti reads the reply.
func EnterMulti(m Multi, ttl int64, place Place, fence Fence) Command {
	r := newMultiRequest(enterScript, m, 10)
	strict := 0
	if !place.Ticket.IsZero() {
		r.keys(m.names.queues...)
	}
	if place.Strict {
		strict = 1
	}
	r.registers(m, fence)
	r.args(m.value, ttl, place.Ticket.argument(), place.Alive, strict)
	r.token(fence)
	return r.command()
}

// ParseEnteredMulti reads a reply to EnterMulti.
func ParseEnteredMulti(reply any) (Entered, error) {
	if reply == Granted {
		return Entered{}, nil
	}
	if parts, ok := reply.([]any); ok && len(parts) == 4 {
		e, err := ParseEntered(parts[:3])
		e.By, ok = namesOf(parts[3])
		if err == nil && ok && (e.Wait == Granted) == (e.By == 0) {
			return e, nil
		}
	}
	return Entered{}, fmt.Errorf("redsync: odd answer to an acquire: %s", Describe(reply))
}

// nameOf returns the name that an element of a reply stands for: scripts count from 1.
func nameOf(element any) (name int, ok bool) {
	i, ok := element.(int64)
	return int(i - 1), ok && i >= 1 && i <= MaxNames
}

// ExtendMulti extends all keys of m if all have the value, else none.
func ExtendMulti(m Multi, ttl int64) Command {
	return ofMulti(extendScript, m, m.value, ttl)
}

// HealMulti is ExtendMulti, but sets missing keys again, if none has another value.
func HealMulti(m Multi, ttl int64) Command {
	return ofMulti(healScript, m, m.value, ttl)
}

// ValidMulti checks whether all keys of m have the value.
func ValidMulti(m Multi) Command {
	return ofMulti(validScript, m, m.value)
}

// ReleaseMulti is Release for the keys of m that have the value. ParseReleasedMulti reads the reply.
func ReleaseMulti(m Multi, process Process, turnover Turnover, fence Fence) Command {
	r := newMultiRequest(releaseScript, m, 8)
	r.keys(turnover.queues(m.names.queues...)...)
	r.registers(m, fence)
	r.args(m.value)
	if process.IsZero() && fence.Token == 0 && !turnover.Quietly && !turnover.changes() {
		return r.command()
	}
	return r.ends(process, turnover, fence)
}

// A Released is what a node answers to ReleaseMulti.
type Released struct {
	Found  int64 // Mine if all keys had the value, Other if some had another, else Missing
	First  Names // a waiter of the caller's process may go on
	Others Names // a waiter of another process has been told, or is the next after First
}

// ParseReleasedMulti reads a reply to ReleaseMulti.
func ParseReleasedMulti(reply any) (Released, error) {
	parts, ok := reply.([]any)
	if !ok {
		parts = []any{reply, []any{}, []any{}}
	}
	if len(parts) == 3 {
		found, isFound := parts[0].(int64)
		first, areFirst := namesOf(parts[1])
		others, areOthers := namesOf(parts[2])
		if isFound && found >= Missing && found <= Other && areFirst && areOthers {
			return Released{found, first, others}, nil
		}
	}
	return Released{}, fmt.Errorf("redsync: odd answer to a release: %s", Describe(reply))
}

func namesOf(element any) (names Names, ok bool) {
	elements, ok := element.([]any)
	for _, e := range elements {
		name, isName := nameOf(e)
		if !isName {
			return 0, false
		}
		names |= 1 << name
	}
	return names, ok
}

// newMultiRequest begins a command with the locks of m, and room for its other keys and that many arguments.
func newMultiRequest(s *wire.Script, m Multi, args int) request {
	r := newRequest(s, keyCount+1+3*len(m.names.names)+args)
	r.keys(m.names.locks...)
	return r
}

func ofMulti(s *wire.Script, m Multi, args ...any) Command {
	r := newRequest(s, keyCount+1+len(m.names.names)+len(args))
	r.keys(m.names.locks...)
	r.args(args...)
	return r.command()
}

func (r *request) registers(m Multi, f Fence) {
	if f.Token != 0 {
		for _, name := range m.names.names {
			r.keys(FenceKey(name))
		}
	}
}

// tokenOrNone adds the arguments of a fence, or placeholders.
func (r *request) tokenOrNone(f Fence) {
	if f.Token == 0 {
		r.args(none, 0)
		return
	}
	r.token(f)
}

// ends adds how a release ends: the process, the token and the tickets.
func (r *request) ends(process Process, t Turnover, f Fence) Command {
	if t.Quietly {
		r.args(noQueue)
	} else {
		r.args(process.argument())
	}
	changes := t.changes()
	if f.Token != 0 || changes {
		r.tokenOrNone(f)
	}
	if !changes {
		return r.command()
	}
	return r.turnover(t)
}

func (r *request) turnover(t Turnover) Command {
	if t.changes() {
		r.args(aliveTTL.argument(t.Alive))
		r.tickets(t.Leave)
		if !t.Enters.IsZero() { // the only queue
			r.args(t.Enters.argument(), 0)
		}
		for _, part := range t.Parts {
			r.args(part.Enters.argument())
			r.tickets(part.Leave)
		}
	}
	return r.command()
}

func (r *request) tickets(tickets []Ticket) {
	r.args(len(tickets))
	for _, t := range tickets {
		r.args(t.argument())
	}
}

// Has reports whether name i is in n.
func (n Names) Has(i int) bool { return n>>i&1 != 0 }
