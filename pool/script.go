package pool

import (
	"crypto/sha1" //nolint:gosec // EVALSHA names scripts by their SHA1
	"encoding/hex"
	"sync"
)

// A Script is a Lua script. Nodes keep it under its SHA1.
type Script struct {
	source string
	sha    string
	arg    any // sha, boxed once
}

// shaLength is the length of a SHA1 in hexadecimal digits.
const shaLength = 2 * sha1.Size

// scripts holds every script of NewScript, by SHA1.
var scripts sync.Map

// NewScript returns the script with the given source. It is meant for package-level variables.
// Every new connection of a stream loads all scripts of the program, so the first use of a script
// costs no extra round trip.
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

// Args returns the command that runs the script by its SHA1. keys says how many of args, from the
// first on, are keys. The script must access no other keys.
func (s *Script) Args(keys int, args ...any) []any {
	return append(s.Append(make([]any, 0, 3+len(args)), keys), args...)
}

// Append appends the beginning of the command to cmd, up to the number of keys.
func (s *Script) Append(cmd []any, keys int) []any {
	return append(cmd, "evalsha", s.arg, keys)
}

// InFull returns cmd, which Args made, with the source in place of the SHA1, for a node that answered
// NOSCRIPT.
func (s *Script) InFull(cmd []any) []any {
	return append([]any{"eval", s.source}, cmd[2:]...)
}
