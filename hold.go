package redsync

import (
	"sync"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/script"
	"github.com/seed14bd9ef4/redsync/pool"
)

// A hold is one term of holding a lock: from the attempt that acquired it to
// Unlock, loss or expiry. Everything that may come late (a reply, an extend, a
// release, a timer) names its hold, so that it cannot hurt a newer one.
type hold struct {
	core  *core
	name  string
	value string
	terms terms

	// rounds is held for reading by every round that may set or keep the value
	// on a node, and for writing by what ends the hold: a release is sent after
	// the last of them has been sent.
	rounds sync.RWMutex

	mu       sync.Mutex
	validity validity
	clear    instant       // since when the keys have been running out, by terms.ttl
	over     bool          // ended by Unlock, loss or Close
	cause    error         // why, nil after Unlock
	ended    chan struct{} // closed with over; made when somebody asks
	expiry   event         // at the end of validity, while core.holds has it
	nodes    []footprint
}

// A footprint is what a hold may have left on one node.
type footprint struct {
	// unanswered counts the commands that set the value and have no reply yet.
	unanswered uint8
	// unknown: one of them was lost. It may be executed at any time until the
	// keys have run out.
	unknown bool
	// reached: at least one was sent. The node may hold the value.
	reached bool
}

// newHold starts a term with an attempt at start.
func newHold(c *core, name, value string, t terms, start instant) *hold {
	return &hold{
		core:     c,
		name:     name,
		value:    value,
		terms:    t,
		validity: validity{start: start, span: t.span},
		clear:    start,
		nodes:    make([]footprint, len(c.nodes)),
	}
}

// adoptedHold is a term whose value was acquired elsewhere: any node may hold
// it, or be about to.
func adoptedHold(c *core, name, value string, t terms, start instant) *hold {
	h := newHold(c, name, value, t, start)
	for i := range h.nodes {
		h.nodes[i] = footprint{unknown: true, reached: true}
	}
	return h
}

// held reports whether h can be relied upon at now, and why not.
func (h *hold) held(now instant) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.heldLocked(now)
}

func (h *hold) heldLocked(now instant) error {
	switch {
	case h.over && h.cause == nil:
		return ErrNotHeld
	case h.over:
		return h.cause
	case !h.validity.held(now):
		return ErrLockAlreadyExpired
	}
	return nil
}

// end ends the term for cause, nil for Unlock, and reports whether it was not
// over before. When it returns, nothing that could set the value is on its way
// to a pool any more.
func (h *hold) end(cause error) bool {
	h.mu.Lock()
	first := !h.over
	if first {
		h.over, h.cause = true, cause
		if h.ended != nil {
			close(h.ended)
		}
	}
	h.mu.Unlock()
	h.core.holds.drop(&h.expiry)
	h.rounds.Lock()
	h.rounds.Unlock() //nolint:staticcheck // waits for the rounds that end abandoned
	return first
}

// done returns a channel that is closed when h is over.
func (h *hold) done() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended == nil {
		h.ended = make(chan struct{})
		if h.over {
			close(h.ended)
		}
	}
	return h.ended
}

// begin makes h known to its core, which releases it on Close and forgets it
// when it expires. It reports false when the core is closed already.
func (h *hold) begin() bool {
	h.expiry.fire = h.expire
	return h.core.holds.set(&h.expiry, h.until())
}

// expire runs at what was once the end of the validity, and on Close.
func (h *hold) expire(closing bool) {
	if closing {
		if h.end(ErrClosed) {
			startRelease(h, false)
		}
		return
	}
	if left := h.remaining(now()); left > 0 {
		h.core.holds.set(&h.expiry, time.Now().Add(left))
	}
}

// until returns the end of the validity, the zero time once h is over.
func (h *hold) until() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over {
		return time.Time{}
	}
	return h.validity.until()
}

// stood reports whether the validity had not ended at now, by time alone.
func (h *hold) stood(now instant) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.validity.held(now)
}

func (h *hold) remaining(now instant) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over {
		return 0
	}
	return h.validity.remaining(now)
}

// extending notes that an extend is about to be sent, which makes the keys run
// from start.
func (h *hold) extending(start instant) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.clear = start
}

// extended moves the validity to start, if the old one stands when q nodes have
// confirmed: else somebody may have held the lock in between.
func (h *hold) extended(start, confirmed instant) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.heldLocked(confirmed); err != nil {
		return err
	}
	if next := (validity{start: start, span: h.terms.span}); next.held(confirmed) &&
		start.since(h.validity.start) > 0 {
		h.validity = next
	}
	return nil
}

// cleared reports whether every key that h set has run out by the nodes'
// clocks.
func (h *hold) cleared(now instant) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return now.since(h.clear) > 2*h.terms.ttl-h.terms.span
}

// sent, unsent and answered keep the footprint of a command that may set the
// value on node i.

func (h *hold) sending(i int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.nodes[i].unanswered++
	h.nodes[i].reached = true
}

func (h *hold) unsent(i int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.nodes[i].unanswered--
}

func (h *hold) answered(i int, fate pool.Fate) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.nodes[i].unanswered--
	if fate == pool.Unknown {
		h.nodes[i].unknown = true
		h.clear = now() // it may have been executed this late
	}
}

// footprint returns what h may have left on node i.
func (h *hold) footprint(i int) footprint {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.nodes[i]
}

// settled reports whether nothing on its way can set the value on the node.
func (f footprint) settled() bool { return f.unanswered == 0 && !f.unknown }

// An acquire is the round that sets a hold's value.
type acquire struct{ *hold }

func (a acquire) command() script.Command {
	return script.Acquire(a.name, a.value, a.terms.ttl.Milliseconds())
}

func (a acquire) judge(i int, reply pool.Reply) (vote, error) {
	a.answered(i, reply.Fate)
	switch {
	case reply.Err != nil:
		return failed, &RedisError{Node: i, Err: reply.Err}
	case reply.Value == nil:
		// Whose value the node holds is not said: even one's own counts as
		// another's, or a value used twice would admit two holders.
		return refused, &ErrNodeTaken{Node: i}
	}
	return granted, nil
}

// An extension is the round that prolongs a hold.
type extension struct {
	*hold
	heals bool // sets missing keys again (WithSetNXOnExtend)
}

func (e extension) command() script.Command {
	ttl := e.terms.ttl.Milliseconds()
	if e.heals {
		return script.Heal(e.name, e.value, ttl)
	}
	return script.Extend(e.name, e.value, ttl)
}

// Only an extension that heals can set the value.

func (e extension) sending(i int) {
	if e.heals {
		e.hold.sending(i)
	}
}

func (e extension) unsent(i int) {
	if e.heals {
		e.hold.unsent(i)
	}
}

func (e extension) judge(i int, reply pool.Reply) (vote, error) {
	if e.heals {
		e.answered(i, reply.Fate)
	}
	return found(i, reply)
}

// found reads the reply of a script that looks for a hold's value.
func found(i int, reply pool.Reply) (vote, error) {
	if reply.Err != nil {
		return failed, &RedisError{Node: i, Err: reply.Err}
	}
	switch what, _ := reply.Value.(int64); what {
	case script.Mine:
		return granted, nil
	case script.Other:
		return refused, &ErrNodeTaken{Node: i}
	default: // missing, or set again by this very round, which proves nothing
		return refused, &nodeMissing{node: i}
	}
}

// A check is the round that looks whether the nodes hold a hold's value.
type check struct{ *hold }

func (c check) command() script.Command { return script.Get(c.name) }

// A check leaves nothing behind.

func (check) sending(int) {}
func (check) unsent(int)  {}

func (c check) judge(i int, reply pool.Reply) (vote, error) {
	switch {
	case reply.Err != nil:
		return failed, &RedisError{Node: i, Err: reply.Err}
	case reply.Value == nil:
		return refused, &nodeMissing{node: i}
	case reply.Value != c.value:
		return refused, &ErrNodeTaken{Node: i}
	}
	return granted, nil
}
