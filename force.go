package redsync

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/lease"
	"github.com/seed14bd9ef4/redsync/internal/script"
)

// ForceUnlock releases the lock of another: it deletes what Inspect or Watch has found of holder, never the lock of the
// next holder. m need not be held.
//
// FORCE ENDS EXCLUSION: the former holder may work on beside the next one until it learns of it, and only fencing
// refuses its writes (WithFencing). First make sure that it has stopped. See docs/operating.md.
//
// It returns nil when a quorum has deleted the value. The release goes on in the background until every node has
// confirmed it, also after an error.
//
// Errors:
//
//   - *ErrTaken: the holder does not have the lock any more, and another has it.
//   - ErrNotHeld: the holder does not have it any more, and no other is seen that excludes it.
//   - ErrNoQuorum: too few nodes have answered. Inspect shows what has become of it.
//   - The error of ctx, and its cause. If ctx had ended before the call, nothing was sent.
//   - Any other, without any traffic, says why m cannot release holder: Inspect or Watch has not made it, it has a name
//     that m lacks, or only one of the two has permits.
func (m *Mutex) ForceUnlock(ctx context.Context, holder Holder) error {
	ctx = orBackground(ctx)
	t, err := m.beginCall()
	if err != nil {
		return m.failure("force unlock", err)
	}
	defer m.core.keeper.EndCall()
	c, err := m.claimOf(t.Claim, holder)
	if err == nil {
		err = contextErrors(ctx)
	}
	if err != nil {
		return m.failure("force unlock", err)
	}
	waiting, stop := apart(ctx, func(h *lease.Lease) bool { return h.Value() == *holder.value }) // the holder may force itself
	defer stop()
	m.core.keeper.Set.Identify(waiting, t.Timing.NodeTimeout) // see unlock
	// It carries the release, as for an Unlock of an adopted value.
	h := lease.Adopt(termsToForce(t, c, holder.TTL), *holder.value, clock.Now())
	h.End(nil)
	rel := m.core.member.Group.ReleaseAwaited(ctx, h)
	m.tellForced(holder)
	res := rel.Wait(waiting)
	m.core.member.Group.Unlocked(h, rel)
	switch {
	case res.Won:
		return nil
	case res.IsTaken():
		return m.failure("force unlock", unconfirmed(m.label(), res))
	case res.Rejected:
		return m.failure("force unlock", m.whyNotHeld(waiting, t, holder))
	}
	return m.failure("force unlock", m.interruption(waiting), unconfirmed(m.label(), res))
}

// whyNotHeld returns *ErrTaken if another has the lock of holder, otherwise ErrNotHeld. The replies to the release do
// not tell, because it was rejected once a quorum lacked the value.
func (m *Mutex) whyNotHeld(ctx context.Context, t *lease.Terms, holder Holder) error {
	if holder.Permits > 0 {
		return ErrNotHeld // others may have permits beside it
	}
	excludes := func(other Holder) bool {
		return other.ID != holder.ID && !(other.Shared && holder.Shared) &&
			slices.ContainsFunc(other.Names, func(name string) bool { return slices.Contains(holder.Names, name) })
	}
	i := lease.NewInspection(t)
	s, _ := m.statusOf(i.Run(ctx, false, i.Limits()))
	if !slices.ContainsFunc(s.Holders, excludes) {
		return ErrNotHeld
	}
	taken := &ErrTaken{Name: m.label()}
	for _, n := range s.Nodes {
		if slices.ContainsFunc(n.Holders, excludes) {
			taken.Nodes = append(taken.Nodes, n.Node)
		}
	}
	return taken
}

var (
	errNoHolder  = errors.New("redsync: this is no Holder that Inspect or Watch has returned")
	errOfPermits = errors.New("redsync: the holder has permits, and this Mutex is a lock: use one with WithPermits")
	errOfLock    = errors.New("redsync: the holder has a lock, and this Mutex has permits: use one without WithPermits")
)

func (m *Mutex) claimOf(own claim.Claim, holder Holder) (claim.Claim, error) {
	switch {
	case holder.value == nil:
		return nil, errNoHolder
	case holder.Permits > 0 && m.set.permits == 0:
		return nil, errOfPermits
	case holder.Permits == 0 && m.set.permits > 0:
		return nil, errOfLock
	}
	for _, name := range holder.Names {
		if !slices.Contains(m.names(), name) {
			return nil, fmt.Errorf("redsync: the holder also has %s, which this Mutex lacks: use one of NewMultiMutex with all of its names", quoted(name))
		}
	}
	if holder.Permits > 0 {
		return own, nil
	}
	room := &claim.Keyed{}
	room.Init(holder.Names...)
	if holder.Shared {
		return room.Shared(), nil
	}
	return &room.Exclusive, nil
}

// termsToForce returns the terms of a lease that is released by force: repeatedly for ttl, at least as long as one of
// m, without what t says of other locks.
func termsToForce(t *lease.Terms, c claim.Claim, ttl time.Duration) *lease.Terms {
	p := *t.Policy
	p.Fencing, p.Joins, p.Passes, p.Timing.MinHold = false, false, false, 0
	p.Timing.TTL = max(p.Timing.TTL, ttl)
	own := *t
	own.Policy, own.Claim = &p, c
	return &own
}

// tellForced tells the holder's process, if the value names it, after the release on each node.
func (m *Mutex) tellForced(holder Holder) {
	if holder.Process == 0 {
		return
	}
	process := script.ProcessOf(fmt.Sprintf("%016d", holder.Process))
	m.core.keeper.Set.Publish(process.Channel(), script.Forced+holder.ID)
}
