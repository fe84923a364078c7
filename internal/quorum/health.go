package quorum

import (
	"sync"
	"sync/atomic"
	"time"
)

// This file is which nodes are down, as far as the traffic of locks tells. Nothing is sent
// to find out.

// healthPause bounds how often the observers are told of one node: one NodeDown, and the
// NodeUp that follows it, per pause.
const healthPause = time.Second

// A Health is what is known of one node. It belongs to whoever shares the node's clients:
// two Redsyncs that share it tell of a change once.
type Health struct {
	state atomic.Int32 // see healthy; read for every vote, changed with mu held

	mu         sync.Mutex // guards what follows
	since      time.Time  // when the node was seen to go down
	told       time.Time  // when observers were last told that it did
	omitted    int        // how often they have not been told since
	distrusted bool       // it answers, but its grants do not count
}

const (
	healthy  int32 = iota
	downTold       // the node is down, and observers have been told
	down           // the node is down, and observers are told later: the last NodeDown is too recent
)

// A sight is what a vote says of a node.
type sight struct {
	to       Tracer
	node     *Node
	err      error // why it is down; nil if it is up
	distrust bool  // it has answered, but its grant does not count
	granted  bool  // it has granted, and the grant counts
}

// see notes a sight, and tells the observers if it is news.
func (h *Health) see(s sight) {
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

func (h *Health) downLocked(s sight, now time.Time) {
	if h.state.Load() == downTold {
		return
	}
	if h.state.Load() == healthy {
		h.since = now
		h.distrusted = s.distrust
	}
	if !h.told.IsZero() && now.Sub(h.told) < healthPause {
		h.state.Store(down) // the next failure after the pause tells, if the node is not back
		return
	}
	h.state.Store(downTold)
	s.to.NodeDown(s.node, h.omitted, s.err)
	h.told, h.omitted = now, 0
}

// upLocked notes that the node has answered. A node that was down because its grants did not count is up
// again only when it gives a grant that counts.
func (h *Health) upLocked(s sight, now time.Time) {
	state := h.state.Load()
	if state == healthy || h.distrusted && !s.granted {
		return
	}
	h.state.Store(healthy)
	if state == down {
		h.omitted++
		return
	}
	s.to.NodeUp(s.node, now.Sub(h.since))
}

// A Purpose is what a command is for, in regard to the health of a node.
type Purpose uint8

// What a command can be for.
const (
	Looking  Purpose = iota // it says nothing of grants
	Granting                // a grant of it counts for the lock
	Queueing                // as Granting, but a node may refuse the keys beside the lock's own
)
