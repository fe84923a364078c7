package lease

import (
	"math"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/quorum"
)

// A Timing holds the durations of a lease. The root of the library derives them from the settings (drift.go
// there).
type Timing struct {
	Expiry      time.Duration // in whole milliseconds
	TTL         time.Duration // of the keys: expiry + lock delay; an acquire sets the longer of TTL and MinHold
	Validity    time.Duration // the length of the holder's validity: expiry - drift
	NodeTimeout time.Duration // how long a round waits for one node
	Reach       time.Duration // how long a round waits for one step of a node whose connection is being opened
	Far         time.Duration // the longest node deadline of a node that is known to be far
	MaxHold     time.Duration // the longest that a lease may be held in all; 0: no limit
	MinHold     time.Duration // how long the keys stay at least, from the acquire on: the minimal hold + drift; 0: no minimum
	Drift       quorum.Drift  // of the nodes' clocks
}

// LastsAs reports whether leases with t and u last equally long, and wait equally long for a node.
func (t Timing) LastsAs(u Timing) bool {
	t.Drift, u.Drift = nil, nil
	return t == u
}

// AtAge returns the TTL of the keys and the length of the validity for an extension that starts when the lock
// has been held for that time. For an attempt, held is 0. MaxHold may shorten both.
func (t Timing) AtAge(held time.Duration) (ttl, validity time.Duration) {
	if t.MaxHold == 0 || t.Validity <= t.MaxHold-held {
		return t.TTL, t.Validity
	}
	validity = max(t.MaxHold-held, 0)
	return t.TTL - (t.Validity - validity).Truncate(time.Millisecond), validity
}

// rest returns how much of MinHold is left at now, for a lease whose acquire began at first: in whole
// milliseconds, rounded up, and 0 if nothing is left. It goes by the monotonic clock alone, because a step of the
// wall clock must not shorten the rest. After a suspension of the machine the result is too long. That does no
// harm: a release never makes a key last longer.
func (t Timing) rest(first, now clock.Instant) time.Duration {
	left := t.MinHold - (now.Mono - first.Mono)
	if t.MinHold == 0 || left <= 0 {
		return 0
	}
	return (left + time.Millisecond - 1).Truncate(time.Millisecond)
}

// lasts returns for how much longer a key may last by the nodes' clocks, if no node can have set its TTL later than at
// the monotonic time renewed. It is negative if the key must have run out. It goes by the monotonic clock alone, because
// a step of the wall clock must not end the repetitions of a release.
func (t Timing) lasts(renewed time.Duration, now clock.Instant) time.Duration {
	age := now.Mono - renewed
	left := sum(t.TTL-age, t.Expiry-t.Validity)
	if t.MinHold > 0 {
		left = max(left, sum(t.MinHold-age, t.Drift.Of(t.MinHold)))
	}
	return left
}

// sum returns a + b, or the longest duration if that is less. b must not be negative.
func sum(a, b time.Duration) time.Duration {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// limits is how long a round may take: the node deadline, and longer while connections are being opened.
func (t Timing) limits() quorum.Limits {
	return quorum.Limits{Decide: t.NodeTimeout, Node: t.NodeTimeout, Open: t.Expiry / 2, Reach: t.Reach, Far: t.Far}
}

// A Validity says how long a lease may be relied upon: for Length from Start. Start is taken before the
// first byte of the winning round is sent.
type Validity struct {
	Start  clock.Instant
	Length time.Duration
}

// Remaining returns how much of v is left at now, 0 when it is over.
func (v Validity) Remaining(now clock.Instant) time.Duration {
	return max(v.Length-now.Since(v.Start), 0)
}

// Holds reports whether v has not ended at now.
func (v Validity) Holds(now clock.Instant) bool { return v.Remaining(now) > 0 }

// Until returns the end of v, for display. To decide whether v has ended, use Remaining, which goes by both clocks.
func (v Validity) Until() time.Time { return v.Start.Wall.Add(v.Length) }
