package quorum

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/seed14bd9ef4/redsync/pool"
)

// This file is the restart guard: a node that has restarted may have forgotten what it granted, so its
// grants do not count for a while.

// A Drift tells by how much two clocks that run at different rates may differ once they have run for the
// time d. The root of the library hands it down (drift.go there).
type Drift interface {
	Of(d time.Duration) time.Duration
}

// A guard is the restart guard of a node: every Node embeds one.
type guard struct {
	covers time.Duration // the longest TTL that the node may have forgotten by a restart; 0: no guard
	tenant *tenant
}

// IsGuarded reports whether a restart of the node makes its grants not count for a while.
func (g *guard) IsGuarded() bool { return g.covers != 0 }

// uptimeGranularity bounds the error of the uptime in INFO. Redis subtracts two clock readings, each cut to
// whole seconds, so the uptime may be up to a second too long.
const uptimeGranularity = time.Second

// Distrust returns why the node's grants and confirmations do not count, nil if they do. sent is a time
// before the request was sent. A node that has restarted may have forgotten locks. Its votes do not count
// until every lock that it may have forgotten has expired on the other nodes too, and margin has passed
// after that. The margin keeps fencing tokens in order (see margin in internal/lease).
func (g *guard) Distrust(s *pool.Server, sent time.Time, drift Drift, margin time.Duration) error {
	switch {
	case g.covers == 0:
		return nil
	case s == nil:
		return errUnknownServer
	}
	age, quarantine := s.Age(sent), g.quarantine(drift, margin)
	if here, moved := g.tenant.meet(s, sent); moved && here < quarantine {
		return &restarted{true, here.Round(time.Millisecond), quarantine}
	}
	if s.New || age >= quarantine {
		return nil
	}
	return &restarted{false, max(age, 0).Round(time.Millisecond), quarantine}
}

// A tenant is the server behind the address of a guarded node, as far as grants have shown.
type tenant struct {
	mu    sync.Mutex
	runID string
	alive time.Time // it has answered a request that was sent then
	since time.Time // the address has led to it since then; zero if no other server was there before
}

// meet notes that s has answered a request sent at that time. If the address led to another server before, meet reports
// so, and for how long it has led to s. A server that began to run after the other one had last answered may be the
// other one, restarted: then its age alone tells when it counts.
func (t *tenant) meet(s *pool.Server, sent time.Time) (here time.Duration, moved bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.runID != s.RunID {
		began := sent.Add(uptimeGranularity - s.Age(sent))
		if t.since = (time.Time{}); t.runID != "" && began.Before(t.alive) {
			t.since = sent
		}
		t.runID, t.alive = s.RunID, sent
	}
	if sent.After(t.alive) {
		t.alive = sent
	}
	return max(sent.Sub(t.since), 0), !t.since.IsZero()
}

var errUnknownServer = errors.New("it is not known how long the server has been running (INFO)")

// A restarted says why a node that has restarted, or whose address has moved, does not count yet.
type restarted struct {
	moved           bool
	age, quarantine time.Duration
}

func (e *restarted) Error() string {
	if e.moved {
		return fmt.Sprintf("its address has led to another server since %v: it counts from %v on", e.age, e.quarantine)
	}
	return fmt.Sprintf("restarted %v before: it counts from %v on", e.age, e.quarantine)
}

// isDistrust reports whether err comes from a node that answers, but whose grants do not count.
func isDistrust(err error) bool {
	e, ok := err.(*restarted)                        //nolint:errorlint // it is not wrapped
	return ok && e != nil || err == errUnknownServer //nolint:errorlint // a sentinel
}

// quarantine returns how long after its start a node does not count.
func (g *guard) quarantine(drift Drift, margin time.Duration) time.Duration {
	margin += drift.Of(g.covers)
	if g.covers > math.MaxInt64-uptimeGranularity-margin { // the sum would overflow
		return math.MaxInt64
	}
	return g.covers + margin + uptimeGranularity
}
