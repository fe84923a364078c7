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

var scripts struct {
	sync.Mutex // guards all
	all        []*Script
}

// NewScript returns a script for a package-level variable. Every new connection of a stream loads all such scripts, so
// the first use of one costs no extra round trip. write, which may take time, is called once, when the program first
// connects or uses the script.
func NewScript(write func() string) *Script {
	s := &Script{write: write}
	scripts.Lock()
	defer scripts.Unlock()
	scripts.all = append(scripts.all, s)
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

func knownScripts() []*Script {
	scripts.Lock()
	all := slices.Clone(scripts.all)
	scripts.Unlock()
	for _, s := range all {
		s.once.Do(s.begin)
	}
	return all
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

// Append appends the command's beginning to cmd: EVALSHA, the SHA1 and the number of keys.
func (s *Script) Append(cmd []any, keys int) []any {
	s.once.Do(s.begin)
	return append(cmd, "evalsha", s.arg, keys)
}

// InFull returns cmd, which Append began, with the source in place of the SHA1.
func (s *Script) InFull(cmd []any) []any {
	s.once.Do(s.begin)
	return append([]any{"eval", s.source}, cmd[2:]...)
}
