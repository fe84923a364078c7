package quorum

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/wire"
)

// This file tells which nodes are down, as far as the traffic of locks shows. Nothing is sent to find out.

// healthPause is the least time between two NodeDown events of one node. A failure of the node that observers
// were not told of has no NodeUp either.
const healthPause = time.Second

// deniedPause is for how long a node that denies the names of some locks, and has granted another one since, is not down for
// that reason again. Otherwise it would be down and up with each of them. But a node that has granted no lock for
// healthPause, and has denied other names since, seems to deny all: it is down at once.
const deniedPause = time.Hour

// maxDeniedNames is how many names that were denied a Health remembers. A name that it does not remember is a new one.
const maxDeniedNames = 100

// A Health is what is known of one node. All Redsyncs with the same clients share it, so that observers are
// told of a change once.
type Health struct {
	state atomic.Int32 // one of the constants below; read for every vote, changed with mu held

	needs atomic.Int32 // the proof that the node is up again; changed with mu held, only raised while it is down
	lacks atomic.Int32 // the kinds of commands that it has refused, see kind; changed with mu held
	next  atomic.Int64 // when observers may be told again that the node is still down, by the monotonic clock; changed with mu held
	picky atomic.Bool  // it has denied the names of some locks: names is not empty; changed with mu held

	mu      sync.Mutex // guards what follows
	since   time.Time  // when the node was seen to go down
	told    time.Time  // when observers were last told that it was down
	omitted int        // how often the node has been down since told, without a NodeDown

	denied time.Time            // when it last went down because it denies the name of a lock
	names  map[string]time.Time // when it first denied them, and it has not granted them since
	barren time.Time            // when it first denied a name that is new in names, and it has granted no lock since; or zero

	tellUp observation // of the Redsync that was told of NodeDown: NodeUp goes to the same tracer
	asks   *Set        // has seen that the node does not do what needs and lacks say, and asks that of it

	// The longest restart guard that has made votes of the node not count since it went down, and when that ends. Both are
	// zero if there was none.
	quarantine time.Duration
	ends       time.Time
}

const (
	healthy  int32 = iota
	downTold       // the node is down, and observers have been told
	down           // the node is down, and observers are told later: the last NodeDown is too recent
)

// An observation is what a vote says of a node's health.
type observation struct {
	of    *Set
	to    Tracer
	node  *Node
	err   error  // why it is down; nil if it is up
	proof int32  // of a node that is up: what it has done. Of one that is down: what it must do to be up again
	name  string // of the lock that it denies, while it may grant other locks, or that it has granted; or ""
	kind  int32  // of the command that it has answered, or has denied; 0 for neither
}

// The kinds of commands. A node or a proxy may execute one kind and deny the other one. If it has denied a kind, it is up
// again only when it has executed a command of that kind.
const (
	plainCommands int32 = 1 << iota
	scripts
)

// IsNameDenied reports whether a node's user may not access the keys of a lock. Locks with other names may be allowed.
func IsNameDenied(err error) bool {
	if err == nil || !wire.IsDenied(err) {
		return false
	}
	text := err.Error()
	return strings.Contains(text, "permissions to access a key") || strings.Contains(text, "access one of the keys") ||
		strings.Contains(text, "access at least one of the keys")
}

// What a node can do, the least first. A node whose votes do not count because of the restart guard answers. A node that
// refuses to write still answers, for example to a release that finds nothing, and a node without memory still prolongs
// keys. So a node that has refused is up again only when it does what it has refused.
const (
	answers  int32 = iota // it answers
	counts                // it answers, and the restart guard does not ignore it: whatever shows that a node is up shows that
	grants                // it grants an acquire or an extension, and the grant counts
	acquires              // it grants an acquire, and the grant counts
)

// isDown reports whether the node is down, whether or not observers know.
func (h *Health) isDown() bool { return h.state.Load() != healthy }

// longest returns the longer of a quarantine and the longest one that has made votes of the node not count since it went
// down. So the node is up again for all locks at once, those with and those without fencing.
func (h *Health) longest(quarantine time.Duration) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.state.Load() == healthy {
		return quarantine
	}
	return max(quarantine, h.quarantine)
}

// see notes an observation, and tells the observers if it is news.
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
			to.to.NodeStillDown(to.node, s.err) // the reason of now: an earlier one may be over
		}
		return
	}
	if !h.told.IsZero() && now.Sub(h.told) < healthPause {
		h.state.Store(down) // the first failure after the pause is told, unless the node is back by then
		return
	}
	h.state.Store(downTold)
	s.to.NodeDown(s.node, h.omitted, s.err)
	h.told, h.omitted, h.tellUp = now, 0, s
	h.repeatLater()
}

// deniesSomeLocked notes that a node which is up denies the name of a lock. It reports whether the node is up all the same,
// because it denies some names only, as observers have been told.
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

// repeatLater notes that observers were told just now that the node is down. The log repeats that while the node fails, so
// it is told again at most once in healthPause.
func (h *Health) repeatLater() { h.next.Store(int64(clock.Now().Mono + healthPause)) }

// reasonLocked notes why the node is down, and what it needs to prove. It reports whether that is another reason than
// before. One reason may be over in no time, and the next one last for hours. Of a node that has restarted, another
// restart is a new reason, and so is a longer guard.
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

// upLocked notes that the node has answered. It is up again only if that proves what it needs to prove, and never
// during a restart guard: an answer may be older than the restart, and another Redsync may have no guard.
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

// toldLocked returns an observation of the Redsync that was told of the last NodeDown, because its tracer is told of the
// NodeUp, too. If that Redsync has been closed since, s takes its place: somebody must hear that the node is up.
func (h *Health) toldLocked(s observation) observation {
	if h.tellUp.of.retired.Load() {
		h.tellUp = s
	}
	return h.tellUp
}

// proof returns what a node proves that has granted the command.
func (b *Brief) proof() int32 {
	switch {
	case b.Purpose == Looking:
		return counts
	case b.Op == Lock:
		return acquires
	}
	return grants
}

// missing returns what a node must prove that has failed the command with err.
func (b *Brief) missing(err error) int32 {
	switch {
	case isDistrust(err):
		return counts // it answers, but its grants do not count
	case b.Op == Lock && (wire.IsOutOfMemory(err) || IsDenial(err)):
		return acquires // it may still prolong keys
	case b.Purpose == Looking && IsDenial(err):
		return answers // the user lacks a right that no grant needs
	case wire.IsRefusal(err):
		return grants // also after a refused release: the next one may find nothing to write
	}
	return answers
}
