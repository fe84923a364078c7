package redsync

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/script"
)

// This file is fencing tokens. Each node keeps a register for each name. An attempt
// proposes a token, and a node that grants the lock raises its register to it if that
// is strictly greater. A quorum that did so makes the token the hold's: any later
// attempt meets one of them, and must propose more. Where registers stand in the way
// the attempt is repeated, with the same value, with a token beyond what it has seen.

const (
	// fenceTTL is how long a register is kept after its last use. It must exceed
	// the skew of the clients' clocks.
	fenceTTL = 24 * time.Hour

	// maxCatchUps is how often an attempt is repeated for its token.
	maxCatchUps = 2

	// fenceSkew is by how much clients' clocks may differ where a node that has
	// forgotten its registers shall not matter (pool.WithRestartGuard).
	fenceSkew = 10 * time.Second
)

// tokens are what an attempt proposes. A nil *tokens is no fencing.
type tokens struct {
	known  *knownTokens
	name   string
	timing timing

	mu       sync.Mutex
	proposal uint64
	seen     uint64 // the highest register that a node has shown
	granted  bool   // a node has granted the lock, whatever its register
	won      bool   // the proposal is the hold's
}

// newTokens returns the first proposal of an attempt: microseconds of the clock, or
// more than any token of the name that is known.
func (m *Mutex) newTokens(t timing, start clock.Instant) *tokens {
	micros := uint64(max(start.Wall.UnixMicro(), 1))
	known := &m.core.known
	return &tokens{known: known, name: m.name, timing: t, proposal: max(micros, beyond(known.of(m.name)))}
}

// beyond returns the next token, the same at the very last.
func beyond(token uint64) uint64 {
	if token == math.MaxUint64 {
		return token
	}
	return token + 1
}

// fence returns the proposal for an acquire.
func (t *tokens) fence() script.Fence {
	if t == nil {
		return script.Fence{}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return script.Fence{Token: t.proposal, TTL: fenceTTL.Milliseconds()}
}

// final returns the hold's token for its release, none of an attempt that was not won:
// its proposals are nobody's.
func (t *tokens) final() script.Fence {
	return script.Fence{Token: t.token(), TTL: fenceTTL.Milliseconds()}
}

// token returns the hold's token, 0 if there is none.
func (t *tokens) token() uint64 {
	if t == nil {
		return 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.won {
		return 0
	}
	return t.proposal
}

// took notes what a node that has granted the lock did with the proposal. Its error
// says why that is not a grant of the token.
func (t *tokens) took(a claim.Answer) error {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.seen, t.granted = max(t.seen, a.Register), true
	t.known.raise(t.name, a.Register)
	if a.Stored {
		return nil
	}
	return fmt.Errorf("its fencing register is at %d, not below the proposal", a.Register)
}

// maxKnown bounds what is known. A token that is forgotten costs a round trip.
const maxKnown = 4096

// knownTokens are the highest tokens seen, by the name of the lock.
type knownTokens struct {
	mu     sync.Mutex
	byName map[string]uint64
}

func (k *knownTokens) of(name string) uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.byName[name]
}

func (k *knownTokens) raise(name string, token uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if token <= k.byName[name] {
		return
	}
	if k.byName == nil || len(k.byName) >= maxKnown {
		k.byName = make(map[string]uint64)
	}
	k.byName[name] = token
}

// behind reports whether res failed for the proposal alone: a quorum of nodes may hold
// the lock. Then it raises the proposal for the next round.
func (t *tokens) behind(res result) bool {
	if t == nil || res.tally.won() || res.tally.blocks(len(res.taken)+res.tally.failed) {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.seen < t.proposal || t.seen == math.MaxUint64 {
		return false
	}
	t.proposal = beyond(t.seen)
	return true
}

// tookLock reports whether a node has granted the lock.
func (t *tokens) tookLock() bool {
	if t == nil {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.granted
}

// win makes the proposal the hold's token.
func (t *tokens) win() {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.won = true
	t.known.raise(t.name, t.proposal)
}

// margin is how much longer a restarted node must be distrusted for the order of
// tokens: proposals may be as much older, by other clocks and by the time that an
// attempt takes.
func (t *tokens) margin() time.Duration {
	if t == nil {
		return 0
	}
	return fenceSkew + (1+maxCatchUps)*t.timing.nodeTimeout
}

// Fence returns the fencing token of the current hold: a number for the resource that
// the lock protects. The resource refuses a write that comes with a lower number than
// one it has seen (package fencing does that); so a holder that was paused beyond its
// expiry, and does not know, cannot overwrite what its follower wrote. It is 0 without
// [WithFencing], and when m is not held: after the end of a hold it stays until the
// next Lock or Unlock, like Value.
//
// If a Lock returned token a before another Lock of the name began, that one's token
// is greater than a; and no two Locks of a name return the same. Both hold also where
// exclusion was violated, and with any skew of the clients' clocks. WithFencing says
// what bounds it.
func (m *Mutex) Fence() uint64 {
	if h := m.current(); h != nil {
		return h.tokens.token()
	}
	return 0
}

// A Sequencer proves a hold to others: a holder hands it to a server along with a
// request, and the server asks the nodes whether it is still the current one, or keeps
// the highest token that it has seen. The idea and the word are Chubby's (Burrows,
// OSDI 2006).
//
// It holds the lock's value: whoever has it can extend and release the lock.
type Sequencer struct {
	Name  string
	Token uint64 // 0 without WithFencing
	Value string
}

// Sequencer returns the Sequencer of the current hold, or the zero value if m is not held.
// From then on the value belongs to this hold alone, as after Value: Unlock does not hand
// the lock over, so the Sequencer is no longer current after Unlock.
func (m *Mutex) Sequencer() Sequencer {
	h := m.current()
	if h == nil {
		return Sequencer{}
	}
	if h.showHeld(clock.Now()) == "" {
		return Sequencer{}
	}
	return h.sequencer()
}

// sequencer returns the Sequencer of h, whose value is for its receiver to know.
func (h *hold) sequencer() Sequencer {
	return Sequencer{Name: h.claim.Name(), Token: h.tokens.token(), Value: h.value()}
}

// sequencerForm begins the text of a Sequencer.
const sequencerForm = "redsync1"

// String returns s as a text of letters, digits, -, _ and dots.
func (s Sequencer) String() string {
	encode := base64.RawURLEncoding.EncodeToString
	return strings.Join([]string{
		sequencerForm, encode([]byte(s.Name)), strconv.FormatUint(s.Token, 10), encode([]byte(s.Value)),
	}, ".")
}

// ParseSequencer reads what Sequencer.String returns.
func ParseSequencer(text string) (Sequencer, error) {
	parts := strings.Split(text, ".")
	if len(parts) != 4 || parts[0] != sequencerForm {
		return Sequencer{}, fmt.Errorf("redsync: no sequencer: it must be %s.name.token.value", sequencerForm)
	}
	name, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return Sequencer{}, fmt.Errorf("redsync: no sequencer: its name: %w", err)
	}
	token, err := strconv.ParseUint(parts[2], 10, 64)
	if err != nil {
		return Sequencer{}, fmt.Errorf("redsync: no sequencer: its token: %w", err)
	}
	value, err := base64.RawURLEncoding.DecodeString(parts[3])
	if err != nil {
		return Sequencer{}, fmt.Errorf("redsync: no sequencer: its value: %w", err)
	}
	s := Sequencer{Name: string(name), Token: token, Value: string(value)}
	if s.String() != text {
		return Sequencer{}, errors.New("redsync: no sequencer: it is not as String writes it")
	}
	return s, nil
}

// Current asks the nodes whether s is of the current hold of its lock. It returns nil if
// a quorum holds its value; an error that matches ErrLockAlreadyExpired if they prove
// that the hold is over; any other error if too few nodes tell.
//
// The hold may end right after the answer. A server that must not bear that compares
// tokens.
func (r *Redsync) Current(ctx context.Context, s Sequencer) error {
	if s.Name == "" || s.Value == "" {
		return fmt.Errorf("redsync: a sequencer without a hold: %w", ErrNotHeld)
	}
	_, err := r.NewMutex(s.Name, WithValue(s.Value)).ValidContext(ctx)
	return err
}
