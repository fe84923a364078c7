// Package script holds the Lua scripts that nodes run, one per operation. Each
// touches only the keys it is given and says what it found, never one flag for
// several cases.
package script

import (
	_ "embed" // the sources

	"github.com/seed14bd9ef4/redsync/pool"
)

// What a script found at the key.
const (
	Missing int64 = 0 // no key
	Mine    int64 = 1 // the caller's value
	Other   int64 = 2 // another value
	Created int64 = 3 // no key; it has been set again

	Woke int64 = 4 // added to the above by Release: a waiter has been told
)

// Granted is what Enter returns for a grant; anything else is a refusal, see there.
const Granted int64 = 0

//go:embed release.lua
var release string

//go:embed enter.lua
var enter string

//go:embed extend.lua
var extend string

//go:embed heal.lua
var heal string

//go:embed valid.lua
var valid string

var (
	releaseScript = pool.NewScript(release)
	enterScript   = pool.NewScript(enter)
	extendScript  = pool.NewScript(extend)
	healScript    = pool.NewScript(heal)
	validScript   = pool.NewScript(valid)
)

// A Lock is what all commands of a hold are about: a key and the holder's value,
// as arguments of commands.
type Lock struct{ key, value any }

// NewLock returns the Lock of key and value.
func NewLock(key, value string) Lock { return Lock{key, value} }

// Name returns the key.
func (l Lock) Name() string { return l.key.(string) }

// Acquire sets key to value for ttl milliseconds where it is free. It is a
// plain command: the wire format that redsync, node-redlock and others share.
func Acquire(l Lock, ttl int64) Command {
	return Command{Args: []any{"set", l.key, l.value, "nx", "px", ttl}}
}

// Ping asks whether the node answers.
func Ping() Command {
	return Command{Args: []any{"ping"}}
}

// Valid looks whether key holds value. It is a script and not a GET, which a
// Cluster client may be set to send to a replica.
func Valid(l Lock) Command {
	return of(validScript, l.key, l.value)
}

// Release deletes key where it holds value. The tickets leave the queue of its
// waiters, and if the key is free then the first of another process than the given
// one is told.
func Release(l Lock, process any, tickets []any) Command {
	queue, deadlines := SideKeys(l.Name())
	return ofKeys(3, releaseScript, append([]any{l.key, queue, deadlines, l.value, process}, tickets...)...)
}

// ReleaseQuietly deletes key where it holds value, and touches no other key.
func ReleaseQuietly(l Lock) Command {
	return of(releaseScript, l.key, l.value)
}

// Enter puts ticket in the queue of key's waiters, where it counts as alive for
// alive milliseconds, and sets key to value for ttl milliseconds where it is free;
// if strict is set only for the process that is first in the queue.
//
// It returns Granted, or in how many milliseconds a refusal may end by itself, -1
// for never.
func Enter(l Lock, ttl int64, ticket any, alive int64, strict bool) Command {
	queue, deadlines := SideKeys(l.Name())
	first := 0
	if strict {
		first = 1
	}
	return ofKeys(3, enterScript, l.key, queue, deadlines, l.value, ttl, ticket, alive, first)
}

// Extend makes key expire in ttl milliseconds, or when it would anyway if that
// is later, where it holds value.
func Extend(l Lock, ttl int64) Command {
	return of(extendScript, l.key, l.value, ttl)
}

// Heal does what Extend does, and sets key again where it is missing.
func Heal(l Lock, ttl int64) Command {
	return of(healScript, l.key, l.value, ttl)
}

// A Command is what all nodes of a round are sent.
type Command struct {
	Args   []any
	script *pool.Script
}

// of returns the command that runs s on the key that args begin with.
func of(s *pool.Script, args ...any) Command { return ofKeys(1, s, args...) }

// ofKeys returns the command that runs s on the keys that args begin with.
func ofKeys(keys int, s *pool.Script, args ...any) Command {
	return Command{Args: s.Args(keys, args...), script: s}
}

// InFull returns the command for a node that answered NOSCRIPT.
func (c Command) InFull() []any {
	if c.script == nil {
		return c.Args
	}
	return c.script.InFull(c.Args)
}
