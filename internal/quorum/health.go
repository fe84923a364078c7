package quorum

import (
	"sync"
	"sync/atomic"
	"time"
)

// This file tells which nodes are down, as far as the traffic of locks shows. Nothing is sent to find out.

// healthPause is the least time between two NodeDown events of one node. A failure of the node that observers
// were not told of has no NodeUp either.
const healthPause = time.Second

// A Health is what is known of one node. All Redsyncs with the same clients share it, so that observers are
// told of a change once.
type Health struct {
	state atomic.Int32 // one of the constants below; read for every vote, changed with mu held

	mu         sync.Mutex // guards what follows
	since      time.Time  // when the node was seen to go down
	told       time.Time  // when observers were last told that it was down
	omitted    int        // how often the node has been down since told, without a NodeDown
	distrusted bool       // it answers, but its grants do not count

	tellUp observation // the observation that caused the last NodeDown: NodeUp goes to the same tracer
}

const (
	healthy  int32 = iota
	downTold       // the node is down, and observers have been told
	down           // the node is down, and observers are told later: the last NodeDown is too recent
)

// An observation is what a vote says of a node's health.
type observation struct {
	to       Tracer
	node     *Node
	err      error // why it is down; nil if it is up
	distrust bool  // it has answered, but its grant does not count
	granted  bool  // it has granted, and the grant counts
}

// see notes an observation, and tells the observers if it is news.
func (h *Health) see(s observation) {
	switch state := h.state.Load(); {
	case s.err == nil && state == healthy, s.err != nil && state == downTold:
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
	if h.state.Load() == downTold {
		return
	}
	if h.state.Load() == healthy {
		h.since = now
		h.distrusted = s.distrust
	}
	if !h.told.IsZero() && now.Sub(h.told) < healthPause {
		h.state.Store(down) // the first failure after the pause is told, unless the node is back by then
		return
	}
	h.state.Store(downTold)
	s.to.NodeDown(s.node, h.omitted, s.err)
	h.told, h.omitted, h.tellUp = now, 0, s
}

// upLocked notes that the node has answered. A node that was down because its grants did not count is up
// again only when it gives a grant that counts.
func (h *Health) upLocked(s observation, now time.Time) {
	state := h.state.Load()
	if state == healthy || h.distrusted && !s.granted {
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

// A Purpose says what the answer to a command tells of the health of a node.
type Purpose uint8

// What a command can be for.
const (
	Looking  Purpose = iota // it says nothing of grants
	Granting                // its grant counts for the lock
	Queueing                // as Granting, but a node may deny access to the keys beside the lock's own
)
