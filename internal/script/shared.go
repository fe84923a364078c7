package script

import (
	"cmp"
	_ "embed" // the sources
	"fmt"
	"strings"
)

// This file makes the commands of a reader's lease. The readers of a lock share its key: see readers.lua. A node may
// not have executed a Downgrade yet, so all except EnterShared also accept the value as a writer's.

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

// readersPrefix begins a key that readers hold, and no lock's value. The text of another mode must begin so, too, and
// not end with a line feed.
const readersPrefix = "readers\n"

// MayBeValue reports whether a value does not begin like the text of readers, and, for a reader, has no newline.
func MayBeValue(value string, reader bool) bool {
	return !strings.HasPrefix(value, readersPrefix) && !(reader && strings.Contains(value, "\n"))
}

// EnterShared adds a reader for ttl milliseconds, unless a writer holds key or one in the queue keeps it back: see
// enter_shared.lua. If the user may not read the queue, a reader without a ticket is let in. If the user may not even
// name it as a key, the command fails: a Blind place leaves it out.
func EnterShared(l Lock, ttl int64, place Place, fence Fence) Command {
	r := newRequest(enterSharedScript, 12)
	r.keys(l.keys...)
	if !place.Blind {
		r.queues(l.of)
	}
	if fence.Token != 0 {
		r.registers(l.of)
	}
	alive := aliveTTL.argument(cmp.Or(place.Alive, AliveFor)) // of writers that keep back a reader without a ticket, too
	r.args(l.value, lockTTL.argument(ttl), place.Ticket.Shared().argument(), alive)
	r.token(fence)
	return r.command()
}

// Special replies to EnterShared.
const (
	grantedBefore int64 = -2 // the reader was there before
	grantedBlind  int64 = -3 // the user may not read the queue
)

// ParseEnteredShared reads a reply to EnterShared.
func ParseEnteredShared(reply any) (Entered, error) {
	const blind = 4 // a bit of the third part of the reply
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

// ExtendShared raises the deadline of the reader to ttl milliseconds from now: see extend_shared.lua. With heal it adds a
// missing reader, unless a writer with another value holds key.
func ExtendShared(l Lock, ttl int64, heal bool) Command {
	return l.command(extendSharedScript, lockTTL.argument(ttl), bit(heal))
}

// A Downgrade makes a writer a reader.
type Downgrade struct {
	Process Process  // of the caller; zero if it has no waiters
	Leave   []Ticket // the tickets of the writer, which leave the queue
	Blind   bool     // the command does not name the queue, because the user may not
}

// Extend is ExtendShared. It makes a writer with value a reader, for no less time, takes its tickets out of the queue
// and tells readers that wait.
func (d Downgrade) Extend(l Lock, ttl int64, heal bool) Command {
	r := newRequest(extendSharedScript, 10)
	r.keys(l.keys...)
	if !d.Blind {
		r.queues(l.of)
	}
	r.args(l.value, ttl, bit(heal), d.Process.argument())
	for _, t := range d.Leave {
		r.args(t.argument())
	}
	return r.command()
}

// ValidShared checks whether there is a reader with value.
func ValidShared(l Lock) Command { return l.command(validSharedScript) }

// ReleaseShared is Release for the reader with value: only the last one deletes key. Missing can also mean other
// readers.
func ReleaseShared(l Lock, process Process, turnover Turnover, fence Fence) Command {
	return releaseOf(releaseSharedScript, l, process, turnover, fence)
}
