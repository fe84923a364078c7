package quorum

import (
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/wire"
)

// A Drift tells how far two clocks may differ once they have run for d.
type Drift interface {
	Of(d time.Duration) time.Duration
}

// A guard is the restart guard of a node, which may have forgotten its grants: after a restart new ones do not count
// for a while.
type guard struct {
	covers time.Duration // the longest TTL that a restart may make it forget; 0: no guard
	tenant *tenant
}

// IsGuarded reports whether the node has a restart guard.
func (g *guard) IsGuarded() bool { return g.covers != 0 }

// uptimeGranularity bounds the error of the uptime in INFO: Redis subtracts two clock readings, each cut to whole
// seconds.
const uptimeGranularity = time.Second

// Distrust returns why the node's votes do not count, nil if they do. sent is a time before the request was sent. A
// restarted node counts again once every lock that it may have forgotten has expired on the other nodes, and margin has
// passed (see margin in internal/lease). If the address led to another server before, the guard begins with this
// answer.
func (g *guard) Distrust(s *wire.Server, sent time.Time, drift Drift, margin time.Duration) error {
	switch {
	case g.covers == 0:
		return nil
	case s == nil:
		return wire.ErrUnknownServer
	}
	here, moved := g.tenant.meet(s, sent)
	return g.distrust(s, sent, g.Quarantine(drift, margin), here, moved)
}

// DistrustNow returns why grants of s, which has just answered, would not count. It notes nothing, and the node must
// have a guard.
func (g *guard) DistrustNow(s *wire.Server, quarantine time.Duration) error {
	now := time.Now()
	here, moved := g.tenant.peek(s, now)
	return g.distrust(s, now, quarantine, here, moved)
}

func (g *guard) distrust(s *wire.Server, at time.Time, quarantine, here time.Duration, moved bool) error {
	if moved && here < quarantine {
		return &restarted{true, at, here, g.covers, quarantine}
	}
	if age := s.Age(at); !s.New && age < quarantine {
		return &restarted{false, at, max(age, 0), g.covers, quarantine}
	}
	return nil
}

// A tenant is the server behind the address of a guarded node.
type tenant struct {
	mu    sync.Mutex
	last  *wire.Server // its last account of itself; or nil
	alive time.Time    // when the last request was sent that it answered
	since time.Time    // when the address began to lead to it; zero for the first
}

// maxStartError bounds how far two accounts of one server's start may differ: uptimes are whole seconds, and INFO may
// be slow.
const maxStartError = 5 * time.Second

// meet notes that s has answered. moved reports whether the address led to another server before, here for how long it
// has led to s. If s started after that one had last answered, it may be that one, restarted, and only its age counts.
func (t *tenant) meet(s *wire.Server, sent time.Time) (here time.Duration, moved bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	is := t.isLocked(s)
	if !is {
		t.since, t.alive = t.sinceLocked(s, sent), sent
	}
	if !is || s.RunID != "" || t.last.RunID == "" { // another pool of the client may be without identity
		t.last = s
	}
	if sent.After(t.alive) {
		t.alive = sent
	}
	return max(sent.Sub(t.since), 0), !t.since.IsZero()
}

// peek is meet, but notes nothing.
func (t *tenant) peek(s *wire.Server, sent time.Time) (here time.Duration, moved bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	since := t.sinceLocked(s, sent)
	return max(sent.Sub(since), 0), !since.IsZero()
}

func (t *tenant) sinceLocked(s *wire.Server, sent time.Time) time.Time {
	switch {
	case t.isLocked(s):
		return t.since
	case t.last != nil && s.StartedBy().Before(t.alive):
		return sent
	}
	return time.Time{}
}

// isLocked reports whether s is t. If one of them has no RunID, their starts must agree, by the wall clock if the client
// was suspended.
func (t *tenant) isLocked(s *wire.Server) bool {
	switch {
	case t.last == nil:
		return false
	case t.last == s:
		return true
	case t.last.RunID != "" && s.RunID != "":
		return t.last.RunID == s.RunID
	}
	now, then := clock.Of(s.At), clock.Of(t.last.At)
	ran := s.Uptime - t.last.Uptime
	return (now.Mono-then.Mono-ran).Abs() <= maxStartError ||
		(now.Wall.Round(0).Sub(then.Wall.Round(0))-ran).Abs() <= maxStartError
}

// A restarted is the error of a node that does not count yet after a restart, or because its address has moved.
type restarted struct {
	moved      bool
	at         time.Time     // when what follows was so
	age        time.Duration // of the server; if moved, how long it has been there
	covers     time.Duration // as the user has set it
	quarantine time.Duration // the node counts from this age on
}

func (e *restarted) Error() string {
	since := "its server started %v ago, and the restart guard (%v + %v) "
	if e.moved {
		since = "its address has led to another server for %v, and the restart guard (%v + %v) "
	}
	since = fmt.Sprintf(since, e.age.Round(time.Millisecond), e.covers, e.quarantine-e.covers)
	return since + fmt.Sprintf("ignores it for another %v", roundUp(e.quarantine-e.age))
}

func roundUp(d time.Duration) time.Duration {
	if rest := d % time.Millisecond; rest > 0 && d <= math.MaxInt64-time.Millisecond {
		d += time.Millisecond - rest
	}
	return d
}

// At returns e as it is at now, nil if the guard has ended.
func (e *restarted) At(now time.Time) error {
	if !now.Before(e.CountsFrom()) {
		return nil
	}
	then := *e
	then.age, then.at = max(e.age+now.Sub(e.at), 0), now
	return &then
}

// CountsFrom implements Guarding.
func (e *restarted) CountsFrom() time.Time { return e.at.Add(e.quarantine - e.age) }

// A Guarding is the error of a node whose restart guard makes its grants not count.
type Guarding interface {
	error
	CountsFrom() time.Time // when they count again
}

func isDistrust(err error) bool {
	e, ok := err.(*restarted)                             //nolint:errorlint // it is not wrapped
	return ok && e != nil || err == wire.ErrUnknownServer //nolint:errorlint // a sentinel
}

// Quarantine returns how long after its start a node does not count.
func (g *guard) Quarantine(drift Drift, margin time.Duration) time.Duration {
	margin += drift.Of(g.covers)
	if g.covers > math.MaxInt64-uptimeGranularity-margin { // the sum would overflow
		return math.MaxInt64
	}
	return g.covers + margin + uptimeGranularity
}
