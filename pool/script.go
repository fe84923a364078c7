package pool

import (
	"crypto/sha1" //nolint:gosec // EVALSHA names scripts by their SHA1
	"encoding/hex"
	"errors"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// A Script is a Lua script that nodes keep under its SHA1.
type Script struct {
	source string
	sha    string
	arg    any // sha, boxed once
}

// shaLength is that of a SHA1 in hexadecimal digits.
const shaLength = 2 * sha1.Size

// scripts are those of NewScript, by SHA1.
var scripts sync.Map

// NewScript returns the script with the given source. It is meant for package
// level variables: every new connection of a stream loads all scripts of the
// program, so that the first use of one costs no extra round trip.
func NewScript(source string) *Script {
	sum := sha1.Sum([]byte(source)) //nolint:gosec // see the import
	s := &Script{source: source, sha: hex.EncodeToString(sum[:])}
	s.arg = s.sha
	scripts.Store(s.sha, s)
	return s
}

func knownScripts() (known []*Script) {
	scripts.Range(func(_, s any) bool {
		known = append(known, s.(*Script))
		return true
	})
	return known
}

// Args returns the command that runs the script by its SHA1. The first keys of
// args are the keys that the script touches, all of them.
func (s *Script) Args(keys int, args ...any) []any {
	return append(s.Append(make([]any, 0, 3+len(args)), keys), args...)
}

// Append appends the beginning of the command to cmd, up to the number of keys.
func (s *Script) Append(cmd []any, keys int) []any {
	return append(cmd, "evalsha", s.arg, keys)
}

// InFull returns the command of Args with the source in place of the SHA1, for
// a node that answered NOSCRIPT.
func (s *Script) InFull(cmd []any) []any {
	return append([]any{"eval", s.source}, cmd[2:]...)
}

// IsNoScript reports whether err is a node's answer that it does not have the
// script of an EVALSHA. The script was not run.
func IsNoScript(err error) bool {
	if !answers(err, "NOSCRIPT") {
		return false
	}
	var answer redis.Error // answers passes over a leading ERR, which no NOSCRIPT has
	return errors.As(err, &answer) && strings.HasPrefix(answer.Error(), "NOSCRIPT")
}

// IsDenied reports whether err is a node's answer that its user may not do what was
// asked: then the command was not run; or that a script of its may not do what it
// does: then it ended there.
func IsDenied(err error) bool {
	return answers(err, "NOPERM") || answers(err, "The user executing the script can't") // ERR, before Redis 7.2
}

// IsCrossSlot reports whether err is the answer of a cluster's node that it does not have
// all keys of a command: they are not in one slot (CROSSSLOT), or the slot is moving and
// the keys may be on different nodes (TRYAGAIN). The command was not run. A command with a
// single key is never refused for these reasons.
func IsCrossSlot(err error) bool { return answers(err, "CROSSSLOT") || answers(err, "TRYAGAIN") }

// answers reports whether err is a node's answer to a request and begins like that. What
// the node said to the greeting says nothing of the request.
func answers(err error, prefix string) bool {
	if err == nil || !redis.HasErrorPrefix(err, prefix) {
		return false
	}
	var other *unanswered
	return !errors.As(err, &other)
}
