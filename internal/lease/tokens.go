package lease

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/quorum"
	"github.com/seed14bd9ef4/redsync/internal/script"
)

// This file makes fencing tokens. Each node keeps a register for each name. An attempt proposes a token. A node that
// grants the lock raises its register to the token, if that is strictly greater. If a quorum has done so, the lease
// gets the token: any later attempt needs one of these nodes, and so a greater token. If registers are too high, the
// attempt makes another round with the same value, and a token greater than any that it has seen.
//
// A register that no client can have written is the node's error, and not followed. If a quorum has such values, a
// client's clock was wrong. Then the next proposal is just above the highest value that a quorum reaches: fewer nodes
// may lie.

const (
	// fenceTTL is how long an unused register is kept. It must exceed the skew of the clients' clocks.
	fenceTTL = 24 * time.Hour

	// maxCatchUps is how many more rounds an attempt makes to get a token.
	maxCatchUps = 2

	// fenceSkew is by how much clients' clocks may differ if a node has forgotten its registers
	// (pool.WithRestartGuard).
	fenceSkew = 10 * time.Second

	// endOfTokens is above all tokens. No register that high is followed.
	endOfTokens = 1 << 63
)

func fence(token uint64) script.Fence {
	return script.Fence{Token: token, TTL: fenceTTL.Milliseconds()}
}

// proposal returns the first proposal: the wall clock in microseconds, or the token after the highest known one, if
// greater. A known token far ahead does not count: a quorum shows it again, unless somebody has deleted the registers.
func (t *Tokens) proposal(names []string, start clock.Instant) uint64 {
	if known := t.highest(names); !isFar(known, start) {
		return max(micros(start), known+1)
	}
	return micros(start)
}

func micros(at clock.Instant) uint64 { return uint64(max(at.Wall.UnixMicro(), 1)) }

func notStored(d claim.Detail) error {
	if d.Stored {
		return nil
	}
	return fmt.Errorf("its fencing register is at %d, not below the proposal", d.Register)
}

// isFar reports whether no client can have written a register: it is more than fenceTTL ahead of the clock.
func isFar(register uint64, now clock.Instant) bool {
	return register >= endOfTokens || register > micros(now)+uint64(fenceTTL.Microseconds()) //nolint:gosec // it is positive
}

// A farRegister is the error of a node whose register is far.
type farRegister struct {
	lines []string // the value is in one of their registers
	value uint64
}

func (*farRegister) NotCounted() {}

func (e *farRegister) Error() string {
	keys, which := make([]string, len(e.lines)), "the fencing register"
	for i, line := range e.lines {
		keys[i] = script.FenceKey(line)
	}
	if len(keys) > 1 {
		which = "one of the fencing registers"
	}
	return fmt.Sprintf("%s %s is at %d, which no client can have written", which, strings.Join(keys, ", "), e.value)
}

// shownByQuorum returns the highest value that the registers of a quorum reach.
func shownByQuorum(res quorum.Result) (shown uint64) {
	for _, value := range res.Votes {
		r, nodes := value.Answer.Details().Register, claim.Nodes(0)
		for i, v := range res.Votes {
			if v.Answer.Found == claim.Mine && v.Answer.Details().Register >= r {
				nodes = nodes.With(i)
			}
		}
		if r > shown && res.Rule.Quorum(nodes) {
			shown = r
		}
	}
	return shown
}

// maxKnown bounds the memory. A forgotten token may cost a round.
const maxKnown = 4096

// Tokens are the highest fencing tokens that this process has seen, by the name of the lock.
type Tokens struct {
	mu      sync.Mutex // guards what follows
	byName  map[string]uint64
	ignored map[string]claim.Nodes // nodes whose register observers know to be ignored
}

func (t *Tokens) highest(names []string) (token uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, name := range names {
		token = max(token, t.byName[name])
	}
	return token
}

// Raise notes that a token has been seen, for all the names: an attempt for several needs one above all their
// registers.
func (t *Tokens) Raise(names []string, token uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, name := range names {
		if token <= t.byName[name] || token >= endOfTokens {
			continue
		}
		if t.byName == nil || len(t.byName) >= maxKnown {
			t.byName = make(map[string]uint64)
		}
		t.byName[name] = token
	}
}

func (t *Tokens) ignores(name string, i int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ignored[name].Has(i) {
		return false
	}
	if t.ignored == nil || len(t.ignored) >= maxKnown {
		t.ignored = make(map[string]claim.Nodes)
	}
	t.ignored[name] = t.ignored[name].With(i)
	return true
}
