package lease

import (
	"time"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/quorum"
	"github.com/seed14bd9ef4/redsync/pool"
)

// This file fills up a lease that was won while nodes refused it. Those nodes had the value of a rival, who has rolled
// back since. Nothing else would set the key there, so the lease would stand on a bare quorum: one node that forgets
// its keys would admit a second holder.
//
// A fill sets the key on such a node if nothing else is there. It is noted like an acquire, and goes out in the order
// of the node's commands, so that the release undoes it. It proves nothing: somebody else may have counted a grant of
// the node that the node has forgotten. So no vote counts before the node has confirmed that the fill has set the key.
// After that the votes for extensions count like those of a healed key if the node has a restart guard, or if the lease
// heals. Without a guard they count once the TTL has passed since: then no attempt with such a grant can still win.
//
// A key that is there although nothing has set it after the refusal does not count. Then two addresses lead to one
// server, which has granted the lease at the other one.

const (
	fillDelay = 20 * time.Millisecond // from the win to the first fill; it doubles with each
	maxFills  = 6
)

// lacks returns the nodes that have refused the value, and have not confirmed since then that they have it.
func (w *writes) lacks() (nodes claim.Nodes) { return w.marked(lacking) }

// marked returns the nodes with a mark.
func (w *writes) marked(mark nodeWrites) (nodes claim.Nodes) {
	for i := range w.nodes {
		if w.onNode(i)&mark != 0 {
			nodes = nodes.With(i)
		}
	}
	return nodes
}

// confirms notes what a command that came after the acquire has found on node i: whether the node has the value, and
// whether that command has set it.
func (w *writes) confirms(i int, found claim.Found) {
	if w.onNode(i)&refused == 0 {
		return
	}
	switch found {
	case claim.Created:
		r := w.needRare()
		r.mu.Lock()
		r.filled = clock.Now().Mono
		r.mu.Unlock()
		w.nodes[i].Or(setLater)
	case claim.Mine, claim.PartCreated:
	case claim.Unknown, claim.Other, claim.Missing, claim.PartMissing:
		return
	}
	w.nodes[i].And(^int64(lacking))
}

// sendingFill counts a fill to node i, and reports true, unless the node has the value by now or has not answered an earlier
// command that sets it. Leases that share a hold may fill it up at once.
func (w *writes) sendingFill(i int) bool {
	r := w.needRare()
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := w.onNode(i); n&lacking == 0 || n.awaits() {
		return false
	}
	w.sending(i)
	return true
}

// lastFilled returns the monotonic time at which a node last confirmed a fill.
func (w *writes) lastFilled() time.Duration {
	r := w.needRare()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.filled
}

// grants notes that node i has granted an acquire of the value, perhaps after it had refused one.
func (w *writes) grants(i int) {
	if w.onNode(i)&refused != 0 {
		w.nodes[i].And(^int64(lacking | refused | setLater))
	}
}

// refusedBy notes that node i has refused l. If l is held already, or has even ended and left its keys for a minimal
// hold, refusedBy sets the alarm for a fill.
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

// setAlarm sets the alarm of l for the time at, or for the next fill if that comes first. It reports false if Close has
// begun.
func (l *Lease) setAlarm(at time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state == Held && l.fillsLocked() {
		at = l.nextFillLocked(at)
	}
	return l.terms.Keeper.expiries.Set(&l.expiry, at)
}

// fillsLocked reports whether nodes lack the value of l, or may do so. If l was handed over, a node may refuse the acquire
// after l has begun, and refusedBy is not called for l.
func (l *Lease) fillsLocked() bool {
	var nodes nodeWrites // of all nodes
	for i := range l.writes.nodes {
		nodes |= l.writes.onNode(i)
	}
	return nodes&lacking != 0 || l.writes != &l.ownWrites && nodes.awaits()
}

// nextFillLocked returns the time of the next fill, or the time at if that comes first or enough fills were sent.
func (l *Lease) nextFillLocked(at time.Time) time.Time {
	if l.fills >= maxFills {
		return at
	}
	if next := time.Now().Add(fillDelay << l.fills); next.Before(at) {
		return next
	}
	return at
}

// fillUp fills l up if nodes lack its value. Its caller is the alarm of l.
func (l *Lease) fillUp() {
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

// fill sends the fill to the nodes that lack the value of l, if l is held. End must not return meanwhile.
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

// keysLeftLocked returns how long the keys of l last from now on, by the clock on which less time has passed: the keys
// that are set now must not run out before the others.
func (l *Lease) keysLeftLocked(now clock.Instant) time.Duration {
	t := &l.terms.Timing
	ttl, _ := t.AtAge(max(l.validity.Start.Since(l.First), 0))
	return max(ttl-now.LeastSince(l.validity.Start), t.MinHold-now.LeastSince(l.First)).Truncate(time.Millisecond)
}

// sendFill sends a fill to some nodes: see sendingFill.
func (l *Lease) sendFill(call claim.Call, to claim.Nodes) {
	set := l.terms.Keeper.Set
	to &= set.Rule().All()
	for i, n := range set.Nodes {
		if !to.Has(i) || !l.writes.sendingFill(i) {
			continue
		}
		// The node may lack the script, and fills are rare.
		err := n.Send(pool.Request{
			Args: call.Command.InFull(), Within: l.terms.Timing.NodeTimeout, To: filling{l, call}, Tag: i,
		})
		if err != nil {
			l.writes.unsent(i)
		}
	}
}

// A filling takes the replies to a fill.
type filling struct {
	lease *Lease
	call  claim.Call
}

// Receive implements pool.Receiver. A refusal of a plain lock does not say whose value is there, so it confirms
// nothing.
func (f filling) Receive(i int, reply pool.Reply) {
	w, set := f.lease.writes, f.lease.terms.Keeper.Set
	set.NoteReply(i, reply)
	if reply.Err == nil {
		a, _ := f.call.Read(reply.Value)
		w.confirms(i, a.Found)
		if a.Found == claim.Created {
			f.lease.extendSoon(set.Nodes[i])
		}
	}
	w.answered(i, reply.Fate)
}

// extendSoon makes the watchdog extend l a little later than n was filled, instead of after a third of the expiry. Without
// a guard the fill does not count for the TTL. If a node that has granted l goes down meanwhile, only what is left of the
// validity then saves l: long enough to send an open round once more.
func (l *Lease) extendSoon(n *quorum.Node) {
	if w := l.watchdog; w != nil && !l.terms.Heals && !n.IsGuarded() {
		t := &l.terms.Timing
		w.startWithin(w.patience() + 2*(t.Expiry-t.Validity) + fillDelay)
	}
}

// fillRest sends a fill to those of some nodes that lack the value of l, if l has ended by Unlock. The key lasts for
// the rest of the minimal hold. fillRest returns these nodes, and sets the alarm for the next fill. The caller sends a
// release next, which keeps the keys for the rest, too.
func (l *Lease) fillRest(on claim.Nodes) (filled claim.Nodes) {
	l.mu.Lock()
	c, outlived, lacks := l.claim, l.outlived, l.writes.lacks()&on
	if outlived && lacks != 0 && l.fills < maxFills {
		l.terms.Keeper.expiries.Set(&l.expiry, time.Now().Add(fillDelay<<l.fills))
		l.fills++
	}
	l.mu.Unlock()
	rest := l.terms.Timing.rest(l.First, clock.Now())
	if !outlived || lacks == 0 || rest == 0 {
		return 0
	}
	l.sendFill(c.Fill(rest), lacks)
	return lacks
}

// fillOutlived fills up the keys of a minimal hold that Unlock has ended. A release follows to the same nodes, and
// settles what the fill leaves there.
func (l *Lease) fillOutlived() {
	l.mu.Lock()
	outlived := l.outlived
	l.mu.Unlock()
	if !outlived || l.terms.Timing.rest(l.First, clock.Now()) == 0 {
		return
	}
	if lacks := l.writes.lacks(); lacks != 0 {
		l.Release(Releasing{nodes: lacks})
	}
}

// behindFill fills up the lease of e, and returns the operation for a round of e.
func (e Extension) behindFill() behindFill {
	l := e.lease
	uncounted := l.writes.marked(refused)
	if uncounted == 0 {
		return behindFill{e, 0}
	}
	later := l.writes.marked(setLater)
	for i, n := range l.terms.Keeper.Set.Nodes {
		if later.Has(i) && (l.terms.Heals || n.IsGuarded()) {
			uncounted = uncounted.Without(i)
		}
	}
	l.fill()
	return behindFill{e, uncounted}
}

// isOldFill reports whether a fill has set the key on node i so long ago that its vote counts without a guard.
func (l *Lease) isOldFill(i int) bool {
	return l.writes.onNode(i)&setLater != 0 && l.terms.Timing.lasts(l.writes.lastFilled(), clock.Now()) < 0
}

// A behindFill is an extension that leaves out the votes of some nodes, unless they come long after the fill. Only a fill
// has set the key there.
type behindFill struct {
	Extension
	uncounted claim.Nodes
}

// Judge implements quorum.Operation.
func (b behindFill) Judge(i int, reply pool.Reply, v claim.Vote) claim.Vote {
	v = b.Extension.Judge(i, reply, v)
	if v.Choice == claim.Granted && b.uncounted.Has(i) && !b.lease.isOldFill(i) {
		return v.Fails(quorum.ErrFilled)
	}
	return v
}

// A confirming is the extension by which a lease is adopted. It also shows which nodes refuse the value.
type confirming struct{ Extension }

// Judge implements quorum.Operation.
func (c confirming) Judge(i int, reply pool.Reply, v claim.Vote) claim.Vote {
	v = c.Extension.Judge(i, reply, v)
	if v.Choice == claim.Refused {
		c.lease.refusedBy(i)
	}
	return v
}
