package script

import (
	"cmp"
	_ "embed" // the sources
	"fmt"
	"strings"
)

// This file makes the commands of a reader's lease. The readers of a lock share its key: readers.lua says what
// it holds then. A writer locks the same key by the commands of script.go. While readers have the key, these
// commands find another value there.
//
// A writer's lease can become a reader's, by Downgrade. A node may get a later command before it has executed
// the downgrade. So all commands of this file except EnterShared also accept a key that holds the value as a
// writer's.

//go:embed enter_shared.lua
var enterShared string

//go:embed extend_shared.lua
var extendShared string

//go:embed valid_shared.lua
var validShared string

//go:embed release_shared.lua
var releaseShared string

var (
	enterSharedScript   = newScript(enterShared)
	extendSharedScript  = newScript(extendShared)
	validSharedScript   = newScript(validShared)
	releaseSharedScript = newScript(releaseShared)
)

// readersPrefix is what a key begins with while readers hold it. No value of a lock begins so. A mode that keeps a text of
// its own in the lock's key begins it in this way too, and ends it without a line feed, which the text of readers ends in.
const readersPrefix = "readers\n"

// MayBeValue reports whether a lease may have a value. No value may begin like the text that readers share,
// and a reader's value may not contain a newline.
func MayBeValue(value string, reader bool) bool {
	return !strings.HasPrefix(value, readersPrefix) && !(reader && strings.Contains(value, "\n"))
}

// EnterShared puts the ticket of place, as a reader's, in the queue of key's waiters. It adds a reader with
// value for ttl milliseconds, unless a writer holds key or a waiting writer keeps the reader back. Without a
// ticket, every live writer in the queue keeps it back; with a ticket, only those of other processes that
// stand before it. If EnterShared grants, it then raises the register as Enter does.
//
// ParseEnteredShared reads the reply. If the user may not read the queue, a reader without a ticket is
// granted without a look at it, and the reply is Blind. If the user may not even name the queue among the
// keys of a script, the command fails. A Blind place does not name it.
func EnterShared(l Lock, ttl int64, place Place, fence Fence) Command {
	r := newRequest(enterSharedScript, 12)
	r.keys(l.key)
	if !place.Blind {
		r.keys(l.queue())
	}
	r.register(l, fence)
	alive := aliveTTL.argument(cmp.Or(place.Alive, AliveFor)) // of the writers that keep a reader without a ticket back, too
	r.args(l.value, lockTTL.argument(ttl), place.Ticket.Shared().argument(), alive)
	r.token(fence)
	return r.command()
}

// What EnterShared returns for grants that are not plain.
const (
	grantedBefore int64 = -2 // the reader was there before
	grantedBlind  int64 = -3 // the user may not read the queue
)

// ParseEnteredShared reads a reply to EnterShared.
func ParseEnteredShared(reply any) (Entered, error) {
	const blind = 4 // a bit of the third part of the reply: see enter_shared.lua
	switch reply := reply.(type) {
	case int64:
		switch {
		case reply == grantedBefore:
			return Entered{WasThere: true}, nil
		case reply == grantedBlind:
			return Entered{Blind: true}, nil
		case reply >= -1:
			return Entered{Wait: reply}, nil
		}
	case []any:
		e, err := ParseEntered(reply)
		if err != nil {
			return Entered{}, err
		}
		done := reply[2].(int64) //nolint:forcetypeassert // ParseEntered has read it
		e.Blind = done&blind != 0
		return e, nil
	}
	return Entered{}, fmt.Errorf("redsync: odd answer to an acquire: %s", Describe(reply))
}

// ExtendShared raises the deadline of the reader with value to ttl milliseconds from now. It never lowers it.
// The node replies Mine; Missing if there is no such reader; or Other if a writer with another value holds
// key.
func ExtendShared(l Lock, ttl int64) Command {
	return of(extendSharedScript, l.key, l.value, lockTTL.argument(ttl), 0)
}

// HealShared does what ExtendShared does, and adds the reader if it is missing: then the node replies
// Created. If a writer with another value holds key, it changes nothing.
func HealShared(l Lock, ttl int64) Command {
	return of(extendSharedScript, l.key, l.value, lockTTL.argument(ttl), 1)
}

// A Downgrade makes a writer a reader.
type Downgrade struct {
	Process Process  // of the caller, which learns from the reply whether its waiters may go on; zero if it has no waiters
	Leave   []Ticket // the tickets of the writer, which leave the queue
	Blind   bool     // the user may not touch the queue, so the command does not name it
}

// Extend does what ExtendShared does, or HealShared with heal. If key holds value as a writer's, it makes the
// writer a reader: for ttl milliseconds, or for what is left of the key's TTL if that is longer. Then it takes
// the tickets of d.Leave out of the queue, and tells the readers that have waited for that. The reply Mine has
// the same additions as for Release.
func (d Downgrade) Extend(l Lock, ttl int64, heal bool) Command {
	r := newRequest(extendSharedScript, 10)
	r.keys(l.key)
	if !d.Blind {
		r.keys(l.queue())
	}
	heals := 0
	if heal {
		heals = 1
	}
	r.args(l.value, ttl, heals, d.Process.argument())
	for _, t := range d.Leave {
		r.args(t.argument())
	}
	return r.command()
}

// ValidShared checks whether there is a reader with value. The node replies as to ExtendShared.
func ValidShared(l Lock) Command {
	return of(validSharedScript, l.key, l.value)
}

// ReleaseShared takes the reader with value out, and deletes key if no other reader is left. It raises the
// register, changes the queue and tells waiters as Release does. The node replies as to Release; Missing can
// also mean that only other readers hold key.
func ReleaseShared(l Lock, process Process, turnover Turnover, fence Fence) Command {
	return releaseOf(releaseSharedScript, l, l.queue(), process, turnover, fence)
}
