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
	core   *core
	value  string
	lock   script.Lock // the name and the value
	timing timing

	// rounds is held for reading while an extend sends and waits, for writing by
	// end: a release goes behind the last extension. An acquire needs none: its
	// release starts after its round is closed.
	rounds sync.RWMutex

	mu       sync.Mutex
	validity validity
	renewed  instant       // the latest time at which a node can have set a key's TTL to timing.ttl
	over     bool          // ended by Unlock, loss or Close
	cause    error         // why, nil after Unlock
	ended    chan struct{} // closed with over; made when somebody asks
	expiry   event         // at the end of validity, while core.holds has it
	nodes    []footprint
	few      [few]footprint // room for nodes
}

// A footprint is what a hold may have left on one node.
type footprint struct {
	// sent counts the commands that may have set the value, or still may.
	sent int32
	// unanswered counts those of them that have no reply yet.
	unanswered int32
	// unknown: one of them was lost. Nobody can tell when it is executed.
	unknown bool
}

// reached reports whether the node may hold the value, now or later.
func (f footprint) reached() bool { return f.sent > 0 }

// settled reports whether nothing that could set the value is on its way.
func (f footprint) settled() bool { return f.unanswered == 0 && !f.unknown }

// newHold starts a term with an attempt at start.
func newHold(c *core, name, value string, t timing, start instant) *hold {
	h := &hold{
		core:     c,
		value:    value,
		lock:     script.NewLock(name, value),
		timing:   t,
		validity: validity{start: start, span: t.span},
		renewed:  start,
	}
	h.nodes = room(h.few[:], len(c.nodes))
	return h
}

// adoptedHold is a term whose value was acquired elsewhere: any node may hold
// it, or be about to.
func adoptedHold(c *core, name, value string, t timing, start instant) *hold {
	h := newHold(c, name, value, t, start)
	for i := range h.nodes {
		h.nodes[i] = footprint{sent: 1, unknown: true}
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

// abandon ends the term for cause and releases what it left on the nodes.
func (h *hold) abandon(cause error) {
	h.end(cause)
	startRelease(h, false)
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
// when its time is up. It reports false when the core is closed already.
func (h *hold) begin() bool {
	h.expiry.what = h
	return h.core.holds.set(&h.expiry, h.until())
}

// fire runs at what was once the end of the validity, and on Close.
func (h *hold) fire(closing bool) {
	if closing {
		if h.end(ErrClosed) {
			startRelease(h, false)
		}
		return
	}
	left := h.remaining(now())
	if left > 0 && !h.core.holds.set(&h.expiry, time.Now().Add(left)) {
		h.fire(true) // Close came while this was firing
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

// extended moves the validity to start, if the old one stood at the time when a
// quorum was seen to have confirmed: else somebody may have held the lock in
// between.
func (h *hold) extended(start, confirmed instant) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.heldLocked(confirmed); err != nil {
		return err
	}
	if start.since(h.validity.start) > 0 {
		h.validity = validity{start: start, span: h.timing.span}
	}
	return h.heldLocked(now())
}

// cleared reports whether every key that h set has run out by the nodes' clocks,
// as far as anybody can tell. It goes by the monotonic clock alone: a step of the
// wall clock must not end what is still to be done.
func (h *hold) cleared(now instant) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	drift := h.timing.ttl - h.timing.span
	return now.mono-h.renewed.mono-h.timing.ttl > drift
}

// renewing notes that a command is about to be sent, or may have been executed,
// that makes the keys last for timing.ttl from now on.
func (h *hold) renewing() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.renewed = now()
}

// sending, unsent and answered keep the footprint of a command that may set the
// value on node i.

func (h *hold) sending(i int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.nodes[i].sent++
	h.nodes[i].unanswered++
}

func (h *hold) unsent(i int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.nodes[i].sent--
	h.nodes[i].unanswered--
}

func (h *hold) answered(i int, fate pool.Fate) {
	if fate == pool.NotSent {
		h.unsent(i)
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.nodes[i].unanswered--
	h.nodes[i].unknown = h.nodes[i].unknown || fate == pool.Unknown
	h.renewed = now() // it may have been executed as late as this
}

// bounds is how long a round for h may take: the node deadline.
func (h *hold) bounds() bounds {
	return bounds{decide: h.timing.nodeTimeout, node: h.timing.nodeTimeout}
}

// footprint returns what h may have left on node i.
func (h *hold) footprint(i int) footprint {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.nodes[i]
}

// An acquire is the round that sets a hold's value.
type acquire struct{ *hold }

func (a acquire) command() script.Command {
	return script.Acquire(a.lock, a.timing.ttl.Milliseconds())
}

// A lost lock must be told from nodes that are down.
func (acquire) explains() bool { return true }

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
	ttl := e.timing.ttl.Milliseconds()
	if e.heals {
		return script.Heal(e.lock, ttl)
	}
	return script.Extend(e.lock, ttl)
}

func (extension) explains() bool { return false }

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
	} else {
		e.renewing()
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
	case script.Created: // by this very round, which proves nothing
		return refused, &nodeMissing{node: i}
	default: // script.Missing
		return refused, &nodeMissing{node: i}
	}
}

// A check is the round that looks whether the nodes hold a hold's value.
type check struct{ *hold }

func (c check) command() script.Command { return script.Valid(c.lock) }

func (check) explains() bool { return false }

// A check leaves nothing behind.

func (check) sending(int) {}
func (check) unsent(int)  {}

func (check) judge(i int, reply pool.Reply) (vote, error) { return found(i, reply) }
