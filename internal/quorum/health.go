package quorum

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed14bd9ef4/redsync/pool"
)

// This file tells which nodes are down, as far as the traffic of locks shows. Nothing is sent to find out.

// healthPause is the least time between two NodeDown events of one node. A failure of the node that observers
// were not told of has no NodeUp either.
const healthPause = time.Second

// A Health is what is known of one node. All Redsyncs with the same clients share it, so that observers are
// told of a change once.
type Health struct {
	state atomic.Int32 // one of the constants below; read for every vote, changed with mu held

	needs atomic.Int32 // the proof that the node is up again; changed with mu held, only raised while it is down

	mu      sync.Mutex // guards what follows
	since   time.Time  // when the node was seen to go down
	told    time.Time  // when observers were last told that it was down
	omitted int        // how often the node has been down since told, without a NodeDown

	tellUp observation // the observation that caused the last NodeDown: NodeUp goes to the same tracer
}

const (
	healthy  int32 = iota
	downTold       // the node is down, and observers have been told
	down           // the node is down, and observers are told later: the last NodeDown is too recent
)

// An observation is what a vote says of a node's health.
type observation struct {
	to    Tracer
	node  *Node
	err   error // why it is down; nil if it is up
	proof int32 // of a node that is up: what it has done. Of one that is down: what it must do to be up again
}

// What a node can do, the least first. A node that refuses to write still answers, for example to a release that finds
// nothing, and a node without memory still prolongs keys. So a node that has refused is up again only when it does
// what it has refused.
const (
	answers  int32 = iota // it answers
	grants                // it grants an acquire or an extension, and the grant counts
	acquires              // it grants an acquire, and the grant counts
)

// see notes an observation, and tells the observers if it is news.
func (h *Health) see(s observation) {
	switch state := h.state.Load(); {
	case s.err == nil && state == healthy, s.err != nil && state == downTold && s.proof <= h.needs.Load():
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	if s.err == nil {
		h.upLocked(s, now)
	} else {
		h.downLocked(s, now)
	}
}

func (h *Health) downLocked(s observation, now time.Time) {
	if h.needs.Load() == answers && s.proof > answers {
		// It answers again, and is down for another reason. That is news: the first reason may be over in no time, and the
		// other one last for hours.
		h.upLocked(observation{proof: answers}, now)
	}
	if h.state.Load() == healthy {
		h.since = now
		h.needs.Store(answers)
	}
	h.needs.Store(max(h.needs.Load(), s.proof))
	if h.state.Load() == downTold {
		return
	}
	if !h.told.IsZero() && now.Sub(h.told) < healthPause {
		h.state.Store(down) // the first failure after the pause is told, unless the node is back by then
		return
	}
	h.state.Store(downTold)
	s.to.NodeDown(s.node, h.omitted, s.err)
	h.told, h.omitted, h.tellUp = now, 0, s
}

// upLocked notes that the node has answered. It is up again only if that proves what it needs to prove.
func (h *Health) upLocked(s observation, now time.Time) {
	state := h.state.Load()
	if state == healthy || s.proof < h.needs.Load() {
		return
	}
	h.state.Store(healthy)
	if state == down {
		h.omitted++
		return
	}
	h.tellUp.to.NodeUp(h.tellUp.node, now.Sub(h.since)) // to the tracer that was told NodeDown
	h.tellUp = observation{}
}

// proof returns what a node proves that has granted the command.
func (b *Brief) proof() int32 {
	switch {
	case b.Purpose == Looking:
		return answers
	case b.Op == Lock:
		return acquires
	}
	return grants
}

// missing returns what a node must prove that has failed the command with err.
func (b *Brief) missing(err error) int32 {
	switch {
	case isDistrust(err):
		return grants // it answers, but its grants do not count
	case b.Op == Lock && (pool.IsOutOfMemory(err) || pool.IsDenied(err)):
		return acquires // it may still prolong keys
	case b.Purpose == Looking && pool.IsDenied(err):
		return answers // the user lacks a right that no grant needs
	case pool.IsRefusal(err):
		return grants // also after a refused release: the next one may find nothing to write
	}
	return answers
}
