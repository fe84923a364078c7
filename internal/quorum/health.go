package quorum

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/wire"
)

// This file tells which nodes are down, as far as the traffic of locks shows.

// healthPause is the least time between two NodeDown events of a node. A failure that is not told has no NodeUp either.
const healthPause = time.Second

// deniedPause is for how long a node that denies some names, and grants others, is not down for that again: it would go
// down and up with each name. But one that grants nothing for healthPause, and denies new names, seems to deny all.
const deniedPause = time.Hour

const maxDeniedNames = 100

// A Health is what is known of one node, shared by all Redsyncs with the same clients. Fields above mu are read without
// it, and changed with mu held.
type Health struct {
	state atomic.Int32

	needs atomic.Int32 // the proof to be up again
	lacks atomic.Int32 // the kinds that it has refused
	next  atomic.Int64 // monotonic time of the next NodeStillDown
	picky atomic.Bool  // names is not empty

	mu      sync.Mutex // guards what follows
	since   time.Time  // when it went down
	told    time.Time  // when the last NodeDown was told
	omitted int        // how often it has gone down since, untold

	denied time.Time            // when it last went down for denying a name
	names  map[string]time.Time // when it first denied each that it has not granted since
	barren time.Time            // when it first denied a new name since it granted a lock

	tellUp observation // of the Redsync that was told of NodeDown
	asks   *Set        // has seen it fail to do what needs and lacks say

	// The longest restart guard that has ignored it since it went down, and its end.
	quarantine time.Duration
	ends       time.Time
}

const (
	healthy  int32 = iota
	downTold       // down, and observers know
	down           // down, but too soon for another NodeDown
)

// An observation is what a vote says of a node's health.
type observation struct {
	of    *Set
	to    Tracer
	node  *Node
	err   error  // why it is down; nil if it is up
	proof int32  // what it has done, or must do to be up again
	name  string // of the lock that it has granted, or whose name it denies; or ""
	kind  int32  // of the command that it has answered or denied; or 0
}

// The kinds of commands. A node or a proxy may deny one kind only. It is up again once it has executed that kind.
const (
	plainCommands int32 = 1 << iota
	scripts
)

// IsNameDenied reports whether the client's user may not access the keys of this lock, but perhaps those of others.
func IsNameDenied(err error) bool {
	if err == nil || !wire.IsDenied(err) {
		return false
	}
	text := err.Error()
	return strings.Contains(text, "permissions to access a key") || strings.Contains(text, "access one of the keys") ||
		strings.Contains(text, "access at least one of the keys")
}

// What a node can do, the least first. It is up again only when it does what it has refused: without writing, it may
// answer a release that finds nothing, and without memory prolong keys.
const (
	answers  int32 = iota // it answers
	counts                // and the restart guard does not ignore it
	grants                // a grant of an acquire or an extension counts
	acquires              // a grant of an acquire counts
)

func (h *Health) isDown() bool { return h.state.Load() != healthy }

// longest returns the longest quarantine since the node went down. So it is up for all locks at once, with and without
// fencing.
func (h *Health) longest(quarantine time.Duration) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.state.Load() == healthy {
		return quarantine
	}
	return max(quarantine, h.quarantine)
}

func (h *Health) see(s observation) {
	switch state, needs := h.state.Load(), h.needs.Load(); {
	case s.err == nil && state == healthy && (s.proof < acquires || !h.picky.Load()):
		return
	case s.err != nil && state == downTold && s.kind&^h.lacks.Load() == 0 && s.proof <= needs && needs != counts && int64(clock.Now().Mono) < h.next.Load():
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
	if h.state.Load() == healthy {
		if s.name != "" && h.deniesSomeLocked(s.name, now) {
			return
		}
		h.since, h.quarantine, h.ends = now, 0, time.Time{}
		h.needs.Store(answers)
		h.lacks.Store(0)
	}
	h.lacks.Or(s.kind)
	news := h.reasonLocked(s, now)
	if s.kind != 0 || s.proof >= h.needs.Load() {
		h.asks = s.of
	}
	if h.state.Load() == downTold {
		if news || int64(clock.Now().Mono) >= h.next.Load() {
			h.repeatLater()
			to := h.toldLocked(s)
			to.to.NodeStillDown(to.node, s.err) // an earlier reason may be over
		}
		return
	}
	if !h.told.IsZero() && now.Sub(h.told) < healthPause {
		h.state.Store(down) // the first failure after the pause is told
		return
	}
	h.state.Store(downTold)
	s.to.NodeDown(s.node, h.omitted, s.err)
	h.told, h.omitted, h.tellUp = now, 0, s
	h.repeatLater()
}

// deniesSomeLocked notes that a node denies a name, and reports whether it stays up, because observers know that it
// denies some.
func (h *Health) deniesSomeLocked(name string, now time.Time) bool {
	muted := !h.denied.IsZero() && now.Sub(h.denied) < deniedPause
	switch first, known := h.names[name]; {
	case !muted:
		h.names, h.barren = nil, time.Time{}
	case known && (h.barren.IsZero() || first.Before(h.barren)):
		return true
	case h.barren.IsZero():
		h.barren = now
	}
	if h.names == nil {
		h.names = make(map[string]time.Time)
	}
	if _, known := h.names[name]; !known && len(h.names) < maxDeniedNames {
		h.names[name] = now
	}
	h.picky.Store(true)
	if muted && now.Sub(h.barren) < healthPause {
		return true
	}
	h.denied = now
	return false
}

func (h *Health) repeatLater() { h.next.Store(int64(clock.Now().Mono + healthPause)) }

// reasonLocked notes why the node is down, and what it must prove. It reports whether the reason is new: the old one
// may end soon, and the new one last for hours.
func (h *Health) reasonLocked(s observation, now time.Time) (news bool) {
	needs := h.needs.Load()
	if s.proof == answers && needs == counts && !h.ends.IsZero() && !now.Before(h.ends) {
		h.needs.Store(answers) // the guard has ended, and it does not answer
		return true
	}
	h.needs.Store(max(needs, s.proof))
	news = s.proof > needs && needs <= counts
	if e, ok := s.err.(*restarted); ok { //nolint:errorlint // it is not wrapped
		h.quarantine = max(h.quarantine, e.quarantine)
		if ends := e.CountsFrom(); ends.After(h.ends) {
			news = news || needs == counts && ends.Sub(h.ends) > uptimeGranularity
			h.ends = ends
		}
	}
	return news
}

// upLocked notes that the node has answered. It is not up again during a restart guard: the answer may be older than
// the restart, or come to a Redsync without a guard.
func (h *Health) upLocked(s observation, now time.Time) {
	state := h.state.Load()
	if s.proof == acquires && h.picky.Load() {
		h.barren = time.Time{}
		delete(h.names, s.name)
		h.picky.Store(len(h.names) != 0)
	}
	if h.asks != nil && h.asks.retired.Load() { // nobody may ask again for what it has seen refused
		h.needs.Store(answers)
		h.lacks.Store(0)
	}
	if h.lacks.And(^s.kind)&^s.kind != 0 || state == healthy || s.proof < h.needs.Load() || now.Before(h.ends) {
		return
	}
	h.state.Store(healthy)
	if state == down {
		h.omitted++
		return
	}
	to := h.toldLocked(s)
	to.to.NodeUp(to.node, now.Sub(h.since))
	h.tellUp, h.asks = observation{}, nil
}

// toldLocked returns an observation of the Redsync that hears NodeUp: the one that has heard NodeDown. If that one is
// closed, it is the Redsync of s.
func (h *Health) toldLocked(s observation) observation {
	if h.tellUp.of.retired.Load() {
		h.tellUp = s
	}
	return h.tellUp
}

func (b *Brief) proof() int32 {
	switch {
	case b.Purpose == Looking:
		return counts
	case b.Op == Lock:
		return acquires
	}
	return grants
}

// missing returns what a node must prove after the failure err.
func (b *Brief) missing(err error) int32 {
	switch {
	case isDistrust(err):
		return counts // it answers, but its grants do not count
	case b.Op == Lock && (wire.IsOutOfMemory(err) || IsDenial(err)):
		return acquires // it may still prolong keys
	case b.Purpose == Looking && IsDenial(err):
		return answers // the user lacks a right that no grant needs
	case wire.IsRefusal(err):
		return grants // also after a release: the next one may find nothing to write
	}
	return answers
}
