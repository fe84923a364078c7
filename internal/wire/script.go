package wire

import (
	"crypto/sha1" //nolint:gosec // EVALSHA names scripts by their SHA1
	"encoding/hex"
	"slices"
	"sync"
)

// A Script is a Lua script. Nodes keep it under its SHA1.
type Script struct {
	write func() string // nil once it is called

	once   sync.Once // guards what follows
	source string
	sha    string
	arg    any // sha, boxed once
}

const shaLength = 2 * sha1.Size

var scripts sync.Map

var late struct {
	mu      sync.Mutex // guards what follows
	scripts []*Script
}

// NewScript returns a script for a package-level variable. Every new connection of a stream loads all such scripts, so
// a first use costs no extra round trip.
func NewScript(source string) *Script {
	s := &Script{write: func() string { return source }}
	s.once.Do(s.begin)
	scripts.Store(s.sha, s)
	return s
}

// NewScriptOf does what NewScript does, for a source that takes time to make: write is called once, when the program
// first connects or uses the script.
func NewScriptOf(write func() string) *Script {
	s := &Script{write: write}
	late.mu.Lock()
	defer late.mu.Unlock()
	late.scripts = append(late.scripts, s)
	return s
}

// NewScriptOnDemand is for a rare script: no connection loads it, so its first use takes another round trip.
func NewScriptOnDemand(write func() string) *Script { return &Script{write: write} }

func (s *Script) begin() {
	s.source, s.write = s.write(), nil
	sum := sha1.Sum([]byte(s.source)) //nolint:gosec // see the import
	s.sha = hex.EncodeToString(sum[:])
	s.arg = s.sha
}

func knownScripts() (known []*Script) {
	late.mu.Lock()
	known = slices.Clone(late.scripts)
	late.mu.Unlock()
	for _, s := range known {
		s.once.Do(s.begin)
	}
	scripts.Range(func(_, s any) bool {
		known = append(known, s.(*Script))
		return true
	})
	return known
}

func scriptOf(args []any) *Script {
	if len(args) > 1 && args[0] == "evalsha" {
		for _, s := range knownScripts() {
			if args[1] == s.sha {
				return s
			}
		}
	}
	return nil
}

// Args returns the command that runs the script by its SHA1. The first keys of args are keys, and the script must
// access no others.
func (s *Script) Args(keys int, args ...any) []any {
	return append(s.Append(make([]any, 0, 3+len(args)), keys), args...)
}

// Append appends the command's beginning to cmd: EVALSHA, the SHA1 and the number of keys.
func (s *Script) Append(cmd []any, keys int) []any {
	s.once.Do(s.begin)
	return append(cmd, "evalsha", s.arg, keys)
}

// InFull returns cmd, which Args made, with the source in place of the SHA1.
func (s *Script) InFull(cmd []any) []any {
	s.once.Do(s.begin)
	return append([]any{"eval", s.source}, cmd[2:]...)
}
