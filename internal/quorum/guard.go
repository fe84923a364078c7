package quorum

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/seed14bd9ef4/redsync/pool"
)

// This file is the restart guard: a node that has restarted may have forgotten what it granted.

// A Drift is how much clocks that run at different rates may differ after a time. The root of the
// library hands it down (drift.go there).
type Drift interface {
	Of(d time.Duration) time.Duration
}

// Guard returns the node whose restart guard allows least, and the longest TTL that it allows; nil
// where no node is guarded.
func (s *Set) Guard() (n *Node, longest time.Duration) {
	if s.guarded == nil {
		return nil, 0
	}
	return s.guarded, s.guarded.guard
}

// uptimeGranularity is what an uptime may be too much: INFO reports whole seconds.
const uptimeGranularity = time.Second

// Distrust returns why what a node granted or confirmed does not count, nil if it
// does. sent is a time before the request was. A node that has restarted may have forgotten
// locks, until the longest-lived of them has run out everywhere, and for a margin its
// fencing registers.
func (n *Node) Distrust(s *pool.Server, sent time.Time, drift Drift, margin time.Duration) error {
	switch {
	case n.guard == 0:
		return nil
	case s == nil:
		return errUnknownServer
	case s.New && s.Age(sent) >= 0: // less: it started after the request, which another one answered
		return nil
	}
	quarantine := n.quarantine(drift, margin)
	if age := s.Age(sent); age < quarantine {
		return &restarted{max(age, 0).Round(time.Millisecond), quarantine}
	}
	return nil
}

var errUnknownServer = errors.New("it is not known how long the server has been running (INFO)")

// A restarted is why a node that has restarted does not count yet.
type restarted struct{ age, quarantine time.Duration }

func (e *restarted) Error() string {
	return fmt.Sprintf("restarted %v before: it counts from %v on", e.age, e.quarantine)
}

// isDistrust reports whether err is of a node that answers, but whose grants do not count.
func isDistrust(err error) bool {
	e, ok := err.(*restarted)                        //nolint:errorlint // it is not wrapped
	return ok && e != nil || err == errUnknownServer //nolint:errorlint // a sentinel
}

// quarantine returns for how long a node does not count after its start.
func (n *Node) quarantine(drift Drift, margin time.Duration) time.Duration {
	margin += drift.Of(n.guard)
	if n.guard > math.MaxInt64-uptimeGranularity-margin { // it overflows
		return math.MaxInt64
	}
	return n.guard + margin + uptimeGranularity
}
