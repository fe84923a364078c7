package redsync

import (
	"time"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/script"
	"github.com/seed14bd9ef4/redsync/pool"
)

// This file is what rounds are made for: each operation is a command, how its
// replies are read, and what it leaves behind. A release is in settle.go, because it
// is repeated, node by node.

// noEffects is embedded by an operation for what it does not do: set a value, explain
// why it is blocked, have its votes told, take effect when it is won, come to an end
// while its round is open.
type noEffects struct{}

func (noEffects) sending(int)         {}
func (noEffects) unsent(int)          {}
func (noEffects) explains() bool      { return false }
func (noEffects) witnessed() *witness { return nil }
func (noEffects) onWon()              {}
func (noEffects) stands() bool        { return true }

func (noEffects) watched() (*observers, purpose) { return nil, looking }

// An acquire is the round that sets a hold's value.
type acquire struct {
	noEffects // on winning: the one who waits looks whether the nodes answered in time
	hold      *hold
}

func (a acquire) call() claim.Call { return a.from(script.Place{}) }

// from returns the call for one who stands at a place.
func (a acquire) from(place script.Place) claim.Call {
	ttl, _ := a.hold.timing.atAge(0)
	return a.hold.claim.Acquire(ttl, place, a.hold.tokens.fence())
}

func (a acquire) nodeDeadline() time.Duration { return a.hold.nodeDeadline() }

func (a acquire) sending(i int) { a.hold.sending(i) }
func (a acquire) unsent(i int)  { a.hold.unsent(i) }

// A lock that is taken must be told from nodes that are down.
func (acquire) explains() bool { return true }

func (a acquire) witnessed() *witness { return a.hold.witness("lock") }

func (a acquire) watched() (*observers, purpose) { return a.hold.set.observers, granting }

func (a acquire) judge(i int, reply pool.Reply, v vote) vote {
	if pool.IsNoScript(reply.Err) {
		a.hold.unsent(i) // nothing was executed
	} else {
		a.hold.answered(i, reply.Fate)
	}
	switch {
	case v.choice != granted:
		return v
	case v.answer.WasThere && a.hold.footprint(i).sent() < 2:
		// The value can only be one's own where it has been sent before.
		return vote{choice: refused, answer: claim.Answer{Found: claim.Other}}
	}
	if err := a.hold.tokens.took(v.answer); err != nil {
		return vote{choice: refused, answer: v.answer, err: err}
	}
	return a.hold.unlessRestarted(i, reply.Server, a.hold.first, v)
}

// An extension is the round that prolongs a hold.
type extension struct {
	noEffects
	hold  *hold
	heals bool // sets missing keys again (WithSetNXOnExtend)
	start clock.Instant
	ttl   time.Duration // of the keys
	span  time.Duration // of the validity, from start
}

func (e extension) call() claim.Call { return e.hold.claim.Extend(e.ttl, e.heals) }

// Only an extension that heals can set the value.

func (e extension) sending(i int) {
	if e.heals {
		e.hold.sending(i)
	} else {
		e.hold.prolongs()
	}
}

func (e extension) unsent(i int) {
	if e.heals {
		e.hold.unsent(i)
	} else {
		e.hold.prolonged()
	}
}

func (e extension) nodeDeadline() time.Duration { return e.hold.nodeDeadline() }

func (e extension) witnessed() *witness { return e.hold.witness("extend") }

func (e extension) watched() (*observers, purpose) { return e.hold.set.observers, granting }

// The hold goes on from the moment of the decision, however late the one who
// waits for it runs.
func (e extension) onWon() { e.hold.prolong(e, clock.Now()) }

// Nothing sets the value again once the hold has ended.
func (e extension) stands() bool { return e.hold.whyNotHeld(clock.Now()) == nil }

func (e extension) judge(i int, reply pool.Reply, v vote) vote {
	if e.heals {
		e.hold.answered(i, reply.Fate)
	} else {
		e.hold.prolonged()
		e.hold.renewing()
	}
	if v.choice != granted { // a key that this very round has set again proves nothing
		return v
	}
	return e.hold.unlessRestarted(i, reply.Server, e.start, v)
}

// A check is the round that looks whether the nodes hold a hold's value.
type check struct {
	noEffects
	hold *hold
}

func (c check) call() claim.Call { return c.hold.claim.Check() }

func (c check) nodeDeadline() time.Duration { return c.hold.nodeDeadline() }

func (c check) witnessed() *witness { return c.hold.witness("valid") }

func (c check) watched() (*observers, purpose) { return c.hold.set.observers, looking }

func (check) judge(_ int, _ pool.Reply, v vote) vote { return v }

// unlessRestarted returns v, a grant of node i in a round that started at start,
// unless the node's server may have forgotten what it granted to others.
func (h *hold) unlessRestarted(i int, s *pool.Server, start clock.Instant, v vote) vote {
	if err := h.core.nodes[i].distrust(s, start.Wall, h.set.driftFactor, h.tokens.margin()); err != nil {
		return failure(err)
	}
	return v
}

// A ping is the round that asks whether nodes answer.
type ping struct {
	noEffects
}

func (ping) nodeDeadline() time.Duration { return 0 } // it has no hold

func (ping) call() claim.Call { return claim.Ping() }

func (ping) judge(_ int, _ pool.Reply, v vote) vote { return v }
