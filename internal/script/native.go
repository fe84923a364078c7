package script

import "github.com/seed14bd9ef4/redsync/internal/wire"

// This file makes commands of newer servers that do what a script does in the usual case. After any other answer the
// script says what it is.
//
// An extension stays a script. SET with IFEQ can shorten a TTL: a late one, after code that was shown the value has
// extended the lock for longer, could admit a second holder. PEXPIRE with GT does not look at the value.

// A native is what a script can be replaced by.
type native uint8

const (
	noNative native = iota
	deletes         // DELEX or DELIFEQ, and EXISTS of the queue
	setsAll         // MSETEX
)

// native returns what can stand for c. Its arguments tell.
func (c Command) native() native {
	switch c.script {
	case releaseScript: // of one name, with its queue, perhaps with the process, and nothing more
		if n := len(c.Args) - keyCount; (n == 4 || n == 5) && c.Args[keyCount] == 2 {
			return deletes
		}
	case enterScript: // of several names, without a ticket and a fence
		if k, _ := c.Args[keyCount].(int); k > 1 && len(c.Args) == keyCount+k+6 && c.Args[keyCount+k+3] == none {
			return setsAll
		}
	}
	return noNative
}

// Native returns the native command that stands for c on a node with these abilities, 0 for none. A DELEX is first
// tried with the script behind it, later with EXISTS: a user who lacks both permissions would make two entries in an
// ACL LOG.
func (c Command) Native(may, proved wire.Native) wire.Native {
	switch c.native() {
	case deletes:
		n := may & (wire.DelEx | wire.DelIfEq)
		switch {
		case n == 0:
			return 0
		case n&proved == 0:
			return n | wire.Tried
		case may&wire.Look == 0: // another request tries it
			return 0
		}
		return n | wire.Look
	case setsAll:
		return may & wire.MSetEx
	}
	return 0
}

func (c Command) appendNative(b []byte, n wire.Native) []byte {
	key, value := c.Args[keyCount+1], c.Args[keyCount+3]
	switch n &^ (wire.Look | wire.Tried) {
	case wire.DelEx:
		b, _ = wire.AppendCommand(b, []any{"delex", key, "ifeq", value})
	case wire.DelIfEq:
		b, _ = wire.AppendCommand(b, []any{"delifeq", key, value})
	case wire.MSetEx:
		k, _ := c.Args[keyCount].(int)
		keys := c.Args[keyCount+1:][:k]
		var room [2*MaxNames + 5]any
		cmd := append(room[:0], "msetex", k)
		for _, key := range keys {
			cmd = append(cmd, key, c.Args[keyCount+1+k])
		}
		cmd = append(cmd, "nx", "px", c.Args[keyCount+2+k])
		b, _ = wire.AppendCommand(b, cmd)
	}
	if n&wire.Tried != 0 {
		b, _ = wire.AppendCommand(b, c.Args)
	}
	if n&wire.Look != 0 {
		b, _ = wire.AppendCommand(b, []any{"exists", c.Args[keyCount+2]})
	}
	return b
}

// One is what DELEX, DELIFEQ and MSETEX answer if they have done it.
var One any = int64(1)

// Zero is what EXISTS answers if there is no key.
var Zero any = int64(0)

// DoneBy returns what the script of c would have answered, if reply is the usual one to its native form.
func (c Command) DoneBy(reply wire.Reply) (value any, done bool) {
	if c.native() == setsAll {
		return Granted, reply.Err == nil && reply.Value == One
	}
	return Mine, reply.Err == nil && reply.First == One && reply.Value == Zero
}
