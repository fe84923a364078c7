package wire

import (
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// This file decides whether a connection may carry commands of newer servers in place of scripts.
//
// INFO says which ones the server should have. But the user may lack a permission, or the service a command of the
// version that it reports. So one request tries each command. The first refusal takes all back until the next
// connection, and leaves one entry in an ACL LOG.

// A Native is a command in place of a script, or several of them, as bits.
type Native uint8

// The commands, and since when servers have them.
const (
	DelEx   Native = 1 << iota // DELEX key IFEQ value: Redis 8.4
	DelIfEq                    // DELIFEQ key value: Valkey 9.0
	MSetEx                     // MSETEX: Redis 8.4, Valkey 9.1

	Look  // EXISTS of another key behind a DELEX or DELIFEQ
	Tried // the command is followed by Args
)

// nativesIn returns the commands of the server that has answered INFO with text.
func nativesIn(text string) Native {
	version := field(text, "redis_version")
	if valkey := field(text, "valkey_version"); valkey != "" {
		return since(valkey, 9, 0, DelIfEq|Look) | since(valkey, 9, 1, MSetEx)
	}
	return since(version, 8, 4, DelEx|Look|MSetEx)
}

// since returns n if version is major.minor or later.
func since(version string, major, minor int, n Native) Native {
	first, rest, _ := strings.Cut(version, ".")
	second, _, _ := strings.Cut(rest, ".")
	a, err := strconv.Atoi(first)
	b, wrong := strconv.Atoi(second)
	if err != nil || wrong != nil || a < major || a == major && b < minor {
		return 0
	}
	return n
}

// natives are the commands that the connection of a stream may carry.
type natives struct {
	state atomic.Uint32 // has, proved and trying, 8 bits each; written under the queue's mu
	cut   time.Time     // when a connection last ended in place of an answer; guarded by that
}

func (n *natives) get() (has, proved, trying Native) {
	state := n.state.Load()
	return Native(state), Native(state >> 8), Native(state >> 16) //nolint:gosec // 8 bits each
}

func (n *natives) setLocked(has, proved, trying Native) {
	n.state.Store(uint32(has) | uint32(proved)<<8 | uint32(trying)<<16)
}

// usable returns the commands that a request may use now.
func (n *natives) usable() (may, proved Native) {
	has, proved, trying := n.get()
	if trying != 0 {
		return proved, proved
	}
	return has, proved
}

// beginNatives comes before each connection serves.
func (q *queue) beginNatives(has Native) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if n := &q.natives; has != 0 && !n.cut.IsZero() && time.Since(n.cut) < cutAgain {
		has = 0
	}
	q.natives.setLocked(has, 0, 0)
}

func (q *queue) tryNativeLocked(what Native) {
	if has, proved, trying := q.natives.get(); has&what&^proved != 0 && trying == 0 {
		q.natives.setLocked(has, proved, what&has&^proved)
	}
}

// hearNative notes how the node has answered a command, nil for well.
func (q *queue) hearNative(what Native, refused error) {
	if _, proved, trying := q.natives.get(); refused == nil && proved&what != 0 && trying&what == 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	has, proved, trying := q.natives.get()
	switch {
	case has&what == 0: // another connection, or taken back
		return
	case refused == nil:
		proved |= what
	case proved&what == 0 && !isPassing(refused), IsUnknown(refused), IsDenied(refused):
		has, proved = 0, 0
	}
	q.natives.setLocked(has, proved, trying&^what)
}

func (q *queue) cutAtNativeLocked(what Native) {
	if _, proved, _ := q.natives.get(); what&^proved != 0 {
		q.natives.cut = time.Now()
	}
}

// name is for errors.
func (n Native) name() string {
	switch n {
	case DelEx:
		return "delex"
	case DelIfEq:
		return "delifeq"
	case MSetEx:
		return "msetex"
	}
	return "exists"
}

// isPassing reports whether a refusal says nothing of the command. Redis has no prefix for DELEX on a list.
func isPassing(refused error) bool {
	return beginsWith(refused, "LOADING ", "BUSY ", "READONLY ", "MASTERDOWN ", "CLUSTERDOWN ", "MOVED ", "ASK ", "OOM ", "MISCONF ",
		"NOREPLICAS ", "NOAUTH ", "WRONGTYPE ", "Key should be of string type")
}

func (p *streamPool) Natives() (may, proved Native) {
	if p.NoNatives {
		return 0, 0
	}
	if s := p.last.Load(); s != nil {
		return s.natives.usable()
	}
	return 0, 0
}
