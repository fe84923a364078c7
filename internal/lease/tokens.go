package lease

import (
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/quorum"
	"github.com/seed14bd9ef4/redsync/internal/script"
)

// This file makes fencing tokens. Each node keeps a register for each name. An attempt proposes a token. A
// node that grants the lock raises its register to the token, if that is strictly greater. If a quorum has
// done so, the lease gets the token: any later attempt needs one of these nodes, and so must propose a
// greater token. If the registers are too high, the attempt makes another round with the same value, and
// with a token greater than any that it has seen.

const (
	// fenceTTL is how long a register is kept after its last use. It must exceed
	// the skew of the clients' clocks.
	fenceTTL = 24 * time.Hour

	// maxCatchUps is how many more rounds an attempt makes, at most, to get a token.
	maxCatchUps = 2

	// fenceSkew is by how much the clocks of clients may differ without harm, if a node has forgotten its
	// registers (pool.WithRestartGuard).
	fenceSkew = 10 * time.Second
)

// fence returns the Fence with a token; a token of 0 means none.
func fence(token uint64) script.Fence {
	return script.Fence{Token: token, TTL: fenceTTL.Milliseconds()}
}

// fence returns the Fence with which l is released. An adopted lease may have a token without Fencing. Then
// its release does not touch the registers, because the client's user may not be permitted to use them.
func (l *Lease) fence() script.Fence {
	if !l.terms.Fencing {
		return fence(0)
	}
	return fence(l.Token())
}

// proposal returns the first proposal of an attempt for these names: the wall clock in microseconds, or the
// token after the highest one that is known for the names, whichever is greater.
func (t *Tokens) proposal(names []string, start clock.Instant) uint64 {
	micros := uint64(max(start.Wall.UnixMicro(), 1))
	return max(micros, beyond(t.highest(names)))
}

// beyond returns the next token; the very last one has no next and is returned itself.
func beyond(token uint64) uint64 {
	if token == math.MaxUint64 {
		return token
	}
	return token + 1
}

// notStored returns why an answer that grants the lock does not grant the token, nil if it does.
func notStored(d claim.Detail) error {
	if d.Stored {
		return nil
	}
	return fmt.Errorf("its fencing register is at %d, not below the proposal", d.Register)
}

// beyondRegisters returns the next proposal of an attempt whose last round had the result res. It returns 0
// unless that round failed only because its proposal was too low: without the nodes that have another value or
// have failed, a quorum must still be possible. known is the highest token that this process has seen by now,
// including in late answers.
func beyondRegisters(res quorum.Result, proposal, known uint64) uint64 {
	if res.Won || res.Rule.Blocks(res.Taken|res.Count.Failed) {
		return 0
	}
	seen := known
	for _, v := range res.Votes {
		if v.Answer.Found == claim.Mine {
			seen = max(seen, v.Answer.Details().Register)
		}
	}
	if seen < proposal || seen == math.MaxUint64 {
		return 0
	}
	return beyond(seen)
}

// margin is how much longer a restarted node must be distrusted to keep tokens in order. A proposal may be
// older than the grant by that much: clients' clocks differ, and an attempt takes time.
func (t *Terms) margin() time.Duration {
	if !t.Fencing {
		return 0
	}
	return fenceSkew + (1+maxCatchUps)*t.Timing.NodeTimeout
}

// maxKnown bounds how many tokens are remembered. A forgotten token may cost an attempt one more round.
const maxKnown = 4096

// Tokens are the highest fencing tokens that this process has seen, by the name of the lock.
type Tokens struct {
	mu     sync.Mutex // guards byName
	byName map[string]uint64
}

// highest returns the highest token that is known for any of the names.
func (t *Tokens) highest(names []string) (token uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, name := range names {
		token = max(token, t.byName[name])
	}
	return token
}

// Raise notes that a token has been seen. It counts for each of the names, although the register of only one of
// them may be that high: an attempt for several names needs a token that is higher than all their registers.
func (t *Tokens) Raise(names []string, token uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, name := range names {
		if token <= t.byName[name] {
			continue
		}
		if t.byName == nil || len(t.byName) >= maxKnown {
			t.byName = make(map[string]uint64)
		}
		t.byName[name] = token
	}
}
