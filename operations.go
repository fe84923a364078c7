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

// An acquire is the round that sets a hold's value. On winning it does nothing: the one who
// waits looks whether the nodes answered in time.
type acquire struct{ hold *hold }

func (a acquire) brief() brief { return a.from(script.Place{}) }

// from returns the brief for one who stands at a place. A lock that is taken must be told from
// nodes that are down.
func (a acquire) from(place script.Place) brief {
	ttl, _ := a.hold.timing.atAge(0)
	b := a.hold.brief("lock", a.hold.claim.Acquire(ttl, place, a.hold.tokens.fence()))
	b.explain, b.purpose = true, granting
	return b
}

// brief returns the brief of an operation on h, which looks and grants nothing.
func (h *hold) brief(op string, call claim.Call) brief {
	return brief{call: call, within: h.timing.nodeTimeout, witness: h.witness(op), watching: h.set.observers}
}

func (a acquire) sending(i int) { a.hold.sending(i) }
func (a acquire) unsent(i int)  { a.hold.unsent(i) }

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
	hold  *hold
	heals bool // sets missing keys again (WithSetNXOnExtend)
	start clock.Instant
	ttl   time.Duration // of the keys
	span  time.Duration // of the validity, from start
}

func (e extension) brief() brief {
	b := e.hold.brief("extend", e.hold.claim.Extend(e.ttl, e.heals))
	b.purpose = granting
	return b
}

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
type check struct{ hold *hold }

func (c check) brief() brief { return c.hold.brief("valid", c.hold.claim.Check()) }

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
type ping struct{}

func (ping) brief() brief { return brief{call: claim.Ping()} }

func (ping) judge(_ int, _ pool.Reply, v vote) vote { return v }
