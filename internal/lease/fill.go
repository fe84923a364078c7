package lease

import (
	"time"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/quorum"
	"github.com/seed14bd9ef4/redsync/internal/wire"
)

// This file fills up a lease that was won while nodes refused it: they had the value of a rival, who has rolled back
// since. Without the key there, one node that forgets its keys would admit a second holder.
//
// A fill sets the key on such a node if nothing else is there. It is noted like an acquire, so that the release undoes
// it. It proves nothing: somebody else may have counted a grant that the node has forgotten. So votes count only after
// the node has confirmed the fill, and only if it has a restart guard, the lease heals, or the TTL has passed: then no
// attempt with such a grant can win. A key that nothing has set after the refusal does not count: two addresses lead to
// one server.

const (
	fillDelay = 20 * time.Millisecond // after the win; it doubles
	maxFills  = 6
)

// refusedBy notes that node i has refused l. It sets the alarm for a fill if l is held, or outlived.
func (l *Lease) refusedBy(i int) {
	l.writes.nodes[i].And(^int64(setLater))
	l.writes.nodes[i].Or(lacking | refused)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state == Held || l.outlived {
		l.fills = 0
		l.terms.Keeper.expiries.Set(&l.expiry, l.nextFillLocked(l.validity.Start.After(l.validity.Length)))
	}
}

// fillsLocked reports whether nodes may lack the value of l. After a hand-over a node may refuse later, without
// refusedBy.
func (l *Lease) fillsLocked() bool {
	var nodes nodeWrites
	for i := range l.writes.nodes {
		nodes |= l.writes.onNode(i)
	}
	return nodes&lacking != 0 || l.writes != &l.ownWrites && nodes.awaits()
}

func (l *Lease) nextFillLocked(at time.Time) time.Time {
	if l.fills >= maxFills {
		return at
	}
	if next := time.Now().Add(fillDelay << l.fills); next.Before(at) {
		return next
	}
	return at
}

func (l *Lease) fillUp() {
	l.mu.Lock()
	fills := l.fillsLocked()
	l.mu.Unlock()
	if !fills { // and so most leases never make the mutex of extensions
		return
	}
	x := l.extensions()
	if !x.TryRLock() {
		return // End waits for an extension
	}
	defer x.RUnlock()
	l.mu.Lock()
	if l.fillsLocked() && l.fills < maxFills {
		l.fills++
	}
	l.mu.Unlock()
	l.fill()
}

// fill sends the fill to the nodes that lack the value, if l is held. End must not return meanwhile.
func (l *Lease) fill() {
	lacks := l.writes.lacks()
	if lacks == 0 {
		return
	}
	l.mu.Lock()
	now := clock.Now()
	c, ttl, held := l.claim, l.keysLeftLocked(now), l.notHeldLocked(now) == nil
	l.mu.Unlock()
	if held && ttl >= time.Millisecond {
		l.sendFill(c.Fill(ttl), lacks)
	}
}

// keysLeftLocked goes by the slower clock: these keys must not run out before the others.
func (l *Lease) keysLeftLocked(now clock.Instant) time.Duration {
	t := &l.terms.Timing
	ttl, _ := t.AtAge(max(l.validity.Start.Since(l.First), 0))
	return max(ttl-now.LeastSince(l.validity.Start), t.MinHold-now.LeastSince(l.First)).Truncate(time.Millisecond)
}

func (l *Lease) sendFill(call claim.Call, to claim.Nodes) {
	for i, n := range l.terms.Keeper.Set.Nodes {
		if !to.Has(i) || !l.writes.sendingFill(i) {
			continue
		}
		l.rare.use.sending(i)
		// The node may lack the script.
		err := n.Send(wire.Request{
			Args: call.Command.InFull(), Within: l.terms.Timing.NodeTimeout, To: filling{l, call}, Tag: i,
		})
		if err != nil {
			l.writes.unsent(i)
			l.rare.use.ended(i, wire.NotSent)
		}
	}
}

type filling struct {
	lease *Lease
	call  claim.Call
}

// Receive takes the reply. A refusal of a plain lock confirms nothing: it does not say whose value is there.
func (f filling) Receive(i int, reply wire.Reply) {
	w, set := f.lease.writes, f.lease.terms.Keeper.Set
	set.NoteServer(i, reply.Server)
	if reply.Err == nil {
		a, _ := f.call.Read(reply.Value)
		w.confirms(i, a.Found)
		if a.Found == claim.Created {
			f.lease.extendSoon(set.Nodes[i])
		}
	}
	w.answered(i, &reply)
	f.lease.rare.use.replied(i, reply)
}

// extendSoon makes the watchdog extend l soon after the fill of n. Without a guard the fill does not count for the TTL:
// enough of the validity must be left for another round.
func (l *Lease) extendSoon(n *quorum.Node) {
	if w := l.watchdog; w != nil && !l.terms.Heals && !n.IsGuarded() {
		t := &l.terms.Timing
		w.extendSoon(2*(t.Expiry-t.Validity) + fillDelay)
	}
}

// fillRest fills up those of some nodes that lack the value after Unlock, for the rest of the minimal hold. It returns
// them, and sets the next alarm. A release follows.
func (l *Lease) fillRest(on claim.Nodes) (filled claim.Nodes) {
	l.mu.Lock()
	c, lacks, rest := l.claim, l.writes.lacks()&on, l.terms.Timing.rest(l.First, clock.Now())
	if !l.outlived || lacks == 0 || rest == 0 {
		l.mu.Unlock()
		return 0
	}
	if l.fills < maxFills {
		l.terms.Keeper.expiries.Set(&l.expiry, time.Now().Add(fillDelay<<l.fills))
		l.fills++
	}
	l.mu.Unlock()
	l.sendFill(c.Fill(rest), lacks)
	return lacks
}
