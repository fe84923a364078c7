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
	"github.com/seed14bd9ef4/redsync/internal/queue"
	"github.com/seed14bd9ef4/redsync/internal/script"
)

// This file lets an operator break a lock.

// ForceUnlock releases the lock of another holder: it deletes what Inspect has found of it, and nothing else. On each node
// it compares the value first, so it never deletes the lock of somebody who has it by then. Of readers or holders of
// permits it releases the one that was given. Then the first waiter is woken, as by Unlock. m need not be held.
//
//	st, err := m.Inspect(ctx)
//	if err == nil && st.State == redsync.StateHeld && st.Holders[0].Owner == "worker-7@host" {
//		err = m.ForceUnlock(ctx, st.Holders[0])
//	}
//
// Force ends exclusion: the former holder may work on, until it learns that the lock is gone, while the next one works
// already. Only fencing protects the resource then (WithFencing). So make sure first that the holder does nothing any more,
// or end its process.
//
// # Results
//
// It returns nil when a quorum of nodes has deleted the value. The release goes on in the background, as that of Unlock,
// until every node has confirmed it or the keys have run out; for keys without an end it gives up after the expiry.
// Otherwise the error matches
//
//   - *ErrTaken, if the holder does not have the lock any more, and another has it;
//   - ErrNotHeld, if the holder does not have it any more, and no other is seen that excludes it: other readers beside a
//     reader, and others with permits, do not count. A second ForceUnlock of the same holder returns it, too. So may the
//     first one, if the holder hears of it early, and releases the rest itself: with joint sets, with an even number of
//     nodes, or if it did not have the lock on all nodes. The error of the holder matches ErrForced all the same;
//   - ErrNoQuorum, if too few nodes have answered. The release goes on nevertheless. Inspect shows what has become of it.
//   - the error of ctx, and its cause, if ctx has ended first. If it had ended before the call, nothing was sent; otherwise
//     the release goes on, too.
//
// An error that names the reason, without any traffic, says that m cannot release this holder: the Holder was not made by
// Inspect or Watch, it has a name that m lacks, or m is a lock and it has permits, or the other way round. Through a Mutex
// of NewMultiMutex that has all names of the holder, all of them are released. Inspect of a Mutex on one name cannot see that
// the holder has other names, too: then only that name is released, and the holder loses its lock on all.
//
// # When the holder learns
//
//   - With WithOwner, if it can hear the nodes, and if it has held the lock for at least a second: as soon as it has heard
//     and asked the nodes, within two round trips. If it has held the lock for less: within a second. Lost is closed, and
//     its cause matches ErrForced, unless an extension that was under way has found out first.
//   - Without WithOwner, or if it has adopted the lock of another process: a watchdog at its next extension, after expiry / 3
//     at the latest. Its cause does not match ErrForced.
//   - Without a watchdog: at its own Extend, Valid or Unlock, or else at Until.
//   - redsync v4: at its own Extend.
//
// A holder with WithSetNXOnExtend that does not hear of the force (it has no WithOwner, its connections were down, or it may
// not subscribe) takes the lock back when it extends next, unless another has it by then. Then call ForceUnlock again, or
// end its process. A holder that hears of it loses the lock.
func (m *Mutex) ForceUnlock(ctx context.Context, holder Holder) error {
	ctx = orBackground(ctx)
	t, err := m.beginCall()
	if err != nil {
		return m.failure("force unlock", err)
	}
	defer m.core.endCall()
	c, err := m.claimOf(t.Claim, holder)
	if err == nil {
		err = contextErrors(ctx)
	}
	if err != nil {
		return m.failure("force unlock", err)
	}
	waiting, stop := apart(ctx, func(h *lease.Lease) bool { return h.Value() == *holder.value }) // the holder may force itself
	defer stop()
	set := m.core.keeper.Set
	set.Identify(waiting, t.Timing.NodeTimeout) // before Adopt, which notes which nodes may have the value
	// h was never held here. It carries the release, as for an Unlock of an adopted value.
	h := lease.Adopt(termsToForce(&t.Terms, c, holder.TTL), *holder.value, clock.Now())
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

// whyNotHeld returns *ErrTaken if another has the lock of holder, otherwise ErrNotHeld, also if too few nodes answer. The
// release was rejected once a quorum lacked the value, so its replies do not say who else has the lock.
func (m *Mutex) whyNotHeld(ctx context.Context, t *queue.Terms, holder Holder) error {
	if holder.Permits > 0 {
		return ErrNotHeld // others may have permits beside it
	}
	excludes := func(other Holder) bool {
		return other.ID != holder.ID && !(other.Shared && holder.Shared) &&
			slices.ContainsFunc(other.Names, func(name string) bool { return slices.Contains(holder.Names, name) })
	}
	i := lease.NewInspection(&t.Terms)
	s, _ := m.statusOf(i.Run(ctx, false, i.Limits())) // what was not seen does not count
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

// claimOf returns the claim that holder has, without its value. own is the claim of m.
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
	switch {
	case holder.Permits > 0:
		return own, nil
	case len(holder.Names) > 1:
		return claim.NewMulti(holder.Names), nil
	}
	room := &claim.Keyed{}
	room.Init(holder.Names[0])
	if holder.Shared {
		return room.Shared(), nil
	}
	return &room.Exclusive, nil
}

// termsToForce returns the terms of a lease with a claim that is released by force. The release is repeated until ttl is
// over, or, for keys without an end, as long as that of a lock of m. What t says of fencing, joining, direct hand-off and a
// minimal hold is for locks of m, and is off.
func termsToForce(t *lease.Terms, c claim.Claim, ttl time.Duration) *lease.Terms {
	p := *t.Policy
	p.Fencing, p.Joins, p.Passes, p.Timing.MinHold = false, false, false, 0
	p.Timing.TTL = max(p.Timing.TTL, ttl)
	own := *t
	own.Policy, own.Claim = &p, c
	return &own
}

// tellForced tells the process of the holder, if the value names it, that its lock was released by force. The message
// follows the release on each node.
func (m *Mutex) tellForced(holder Holder) {
	if holder.Process == 0 {
		return
	}
	process := script.ProcessOf(fmt.Sprintf("%016d", holder.Process))
	m.core.keeper.Set.Publish(process.Channel(), script.Forced+holder.ID)
}
