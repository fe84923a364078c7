package redsync

import (
	"fmt"
	"time"

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

func (a acquire) command() script.Command { return a.from(script.Place{}) }

// from returns the command for one who stands at a place. It is a plain one where that
// is nowhere.
func (a acquire) from(place script.Place) script.Command {
	ttl, _ := a.hold.timing.atAge(0)
	if place.Ticket == nil && a.hold.tokens == nil {
		return script.Acquire(a.hold.lock, ttl.Milliseconds())
	}
	return script.Enter(a.hold.lock, ttl.Milliseconds(), place, a.hold.tokens.fence())
}

func (a acquire) nodeDeadline() time.Duration { return a.hold.nodeDeadline() }

func (a acquire) sending(i int) { a.hold.sending(i) }
func (a acquire) unsent(i int)  { a.hold.unsent(i) }

// A lock that is taken must be told from nodes that are down.
func (acquire) explains() bool { return true }

func (a acquire) witnessed() *witness { return a.hold.witness("lock") }

func (a acquire) watched() (*observers, purpose) { return a.hold.set.observers, granting }

func (a acquire) judge(i int, reply pool.Reply) (vote, error) {
	n := a.hold.core.nodes[i]
	if pool.IsNoScript(reply.Err) {
		a.hold.unsent(i) // nothing was executed
	} else {
		a.hold.answered(i, reply.Fate)
	}
	if reply.Err != nil {
		return failed, n.failed(reply.Err)
	}
	switch {
	case reply.Value == nil:
		// Whose value the node holds is not said: even one's own counts as
		// another's, or a value used twice would admit two holders.
		return refused, n.taken()
	case reply.Value == setDone && a.hold.tokens == nil: // SET raises no register
		return a.hold.grantUnlessRestarted(i, reply.Server, a.hold.first)
	}
	entered, err := script.ParseEntered(reply.Value)
	switch {
	case err != nil:
		return failed, n.failed(err)
	case entered.Wait != script.Granted || entered.WasThere && a.hold.footprint(i).sent() < 2:
		// The value can only be one's own where it has been sent before.
		return refused, n.taken()
	}
	if err := a.hold.tokens.took(n, entered); err != nil {
		return refused, err
	}
	return a.hold.grantUnlessRestarted(i, reply.Server, a.hold.first)
}

// setDone is the answer to a SET that has set the key. Any other text is of something
// else.
var setDone any = "OK"

// An extension is the round that prolongs a hold.
type extension struct {
	noEffects
	hold  *hold
	heals bool // sets missing keys again (WithSetNXOnExtend)
	start clock.Instant
	ttl   time.Duration // of the keys
	span  time.Duration // of the validity, from start
}

func (e extension) command() script.Command {
	ttl := e.ttl.Milliseconds()
	if e.heals {
		return script.Heal(e.hold.lock, ttl)
	}
	return script.Extend(e.hold.lock, ttl)
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

func (e extension) nodeDeadline() time.Duration { return e.hold.nodeDeadline() }

func (e extension) witnessed() *witness { return e.hold.witness("extend") }

func (e extension) watched() (*observers, purpose) { return e.hold.set.observers, granting }

// The hold goes on from the moment of the decision, however late the one who
// waits for it runs.
func (e extension) onWon() { e.hold.prolong(e, clock.Now()) }

// Nothing sets the value again once the hold has ended.
func (e extension) stands() bool { return e.hold.whyNotHeld(clock.Now()) == nil }

func (e extension) judge(i int, reply pool.Reply) (vote, error) {
	if e.heals {
		e.hold.answered(i, reply.Fate)
	} else {
		e.hold.prolonged()
		e.hold.renewing()
	}
	if v, err := e.hold.core.nodes[i].found(reply); v != granted {
		return v, err
	}
	return e.hold.grantUnlessRestarted(i, reply.Server, e.start)
}

// A check is the round that looks whether the nodes hold a hold's value.
type check struct {
	noEffects
	hold *hold
}

func (c check) command() script.Command { return script.Valid(c.hold.lock) }

func (c check) nodeDeadline() time.Duration { return c.hold.nodeDeadline() }

func (c check) witnessed() *witness { return c.hold.witness("valid") }

func (c check) watched() (*observers, purpose) { return c.hold.set.observers, looking }

func (c check) judge(i int, reply pool.Reply) (vote, error) {
	return c.hold.core.nodes[i].found(reply)
}

// grantUnlessRestarted counts a grant of node i in a round that started at start,
// unless the node's server may have forgotten what it granted to others.
func (h *hold) grantUnlessRestarted(i int, s *pool.Server, start clock.Instant) (vote, error) {
	n := h.core.nodes[i]
	if err := n.distrust(s, start.Wall, h.set.driftFactor, h.tokens.margin()); err != nil {
		return failed, n.failed(err)
	}
	return granted, nil
}

// found reads the reply of a script that looks for a hold's value. What no script of ours
// answers says nothing of the value: that it is missing would prove a loss.
func (n *node) found(reply pool.Reply) (vote, error) {
	if reply.Err != nil {
		return failed, n.failed(reply.Err)
	}
	what, ok := reply.Value.(int64)
	switch what &^= script.Woke | script.First | script.Others; {
	case ok && what == script.Mine:
		return granted, nil
	case ok && what == script.Other:
		return refused, n.taken()
	case ok && what == script.Missing, ok && what == script.Created: // by this very round, which proves nothing
		return refused, n.missing()
	}
	return failed, n.failed(fmt.Errorf("redsync: odd answer of a script: %s", script.Describe(reply.Value)))
}

// A ping is the round that asks whether nodes answer.
type ping struct {
	noEffects
	core *core
}

func (ping) nodeDeadline() time.Duration { return 0 } // it has no hold

func (ping) command() script.Command { return script.Ping() }

func (p ping) judge(i int, reply pool.Reply) (vote, error) {
	if reply.Err != nil {
		return failed, p.core.nodes[i].failed(reply.Err)
	}
	return granted, nil
}
