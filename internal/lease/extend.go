package lease

import (
	"context"
	"errors"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/quorum"
	"github.com/seed14bd9ef4/redsync/internal/script"
	"github.com/seed14bd9ef4/redsync/internal/wire"
)

// An Extension is the operation that prolongs a lease.
type Extension struct {
	lease    *Lease
	claim    claim.Claim
	heals    bool // sets missing keys again (WithSetNXOnExtend)
	start    clock.Instant
	ttl      time.Duration // of the keys
	validity time.Duration // its length, from start
}

// Extend makes one round that prolongs l. It returns what the nodes said, and why l is not held afterwards,
// or cannot be extended. When it returns, nothing more is sent for the round.
func (l *Lease) Extend(ctx context.Context) (res quorum.Result, over error) {
	x := l.extensions()
	x.RLock()
	defer x.RUnlock()
	for asked := false; ; {
		e, err := l.extension(clock.Now())
		if err != nil {
			return res, err
		}
		var lost bool
		if res, lost = e.round(ctx); lost && !asked && ctx.Err() == nil { // a round of its own counts the keys that this one has set again
			asked = true
			continue
		}
		if res.Won || l.Claim() == e.claim || ctx.Err() != nil { // otherwise a Downgrade came between: extend again, as a reader
			return res, l.NotHeld(clock.Now())
		}
	}
}

// round makes one round of e. The votes count until the old Until, not only for one node deadline. lost reports that e heals,
// and that connections were lost, so another round may succeed: see Repeat.
func (e Extension) round(ctx context.Context) (res quorum.Result, lost bool) { //nolint:contextcheck // see overdue
	l := e.lease
	limits := quorum.Limits{Decide: l.Remaining(e.start), Node: l.terms.Timing.NodeTimeout, Over: l.Done()}
	op, filled := quorum.Operation(e), false
	if b := e.behindFill(); l.writes.marked(refused) != 0 {
		op, filled = b, true
	}
	round := l.terms.Keeper.Set.Start(ctx, op, l.terms.WaitAll)
	select {
	case <-limits.Over: // the process has paused since before it sent the requests: no silent node is to blame
		ctx, limits.Over = overdue(), nil
	default:
	}
	res = round.Wait(ctx, limits)
	return res, e.heals && !filled && !res.Won && round.Lost() // the fill must not count in another round that follows at once
}

// overdue returns a context that has ended.
func overdue() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// A behindFill is an extension that leaves out the votes of nodes that have refused the lease, unless a vote comes long
// after the fill. Only a fill has set the key there. A node may refuse as late as during the round, and be filled then.
type behindFill struct {
	Extension
	counted claim.Nodes // nodes that have refused, whose votes count all the same
}

// behindFill fills up the lease of e, and returns the operation for a round of e.
func (e Extension) behindFill() behindFill {
	l := e.lease
	counted := l.writes.marked(setLater) // before the fill, which the extension follows
	for i, n := range l.terms.Keeper.Set.Nodes {
		if counted.Has(i) && !l.terms.Heals && !n.IsGuarded() {
			counted = counted.Without(i)
		}
	}
	l.fill()
	return behindFill{e, counted}
}

// Confirm asks the nodes to prolong l, which is adopted, from its start on. It sets no missing key again,
// because the lock may be another's by now. If another lease with the same value has begun meanwhile, the
// caller passes the Extension to the Prolong of that lease. token is the fencing token of the former holder, 0
// if it had none. If a quorum prolongs l, l takes that token.
func (l *Lease) Confirm(ctx context.Context, token uint64) (quorum.Result, Extension) {
	l.mu.Lock()
	e := l.extensionFromLocked(l.First)
	l.mu.Unlock()
	usedValues.join(l)
	res := l.terms.Keeper.Set.Start(ctx, confirming{e}, l.terms.WaitAll).Wait(ctx, l.terms.Timing.limits())
	if !res.Won {
		usedValues.leave(l)
	} else if token != 0 {
		l.takeToken(token)
	}
	return res, e
}

// A confirming is the extension by which a lease is adopted. It also shows which nodes refuse the value.
type confirming struct{ Extension }

// extension returns the operation that prolongs l, which has begun, from start on. The error says why l is not
// held. Or it is Errors.Spent: then l is held, but MaxHold does not allow a longer validity.
func (l *Lease) extension(start clock.Instant) (Extension, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.notHeldLocked(start); err != nil {
		return Extension{}, err
	}
	e := l.extensionFromLocked(start)
	if e.validity <= l.validity.Remaining(start) && l.spentLocked() {
		return Extension{}, l.terms.Keeper.Errors.Spent
	}
	if e.heals = l.terms.Heals; e.heals {
		e.ttl = max(e.ttl, l.terms.Timing.rest(l.First, start)) // of a key that is set again
	}
	return e, nil
}

// extensionFromLocked returns the operation that prolongs l from start on, and sets no missing key.
func (l *Lease) extensionFromLocked(start clock.Instant) Extension {
	ttl, validity := l.terms.Timing.AtAge(start.Since(l.First))
	return Extension{lease: l, claim: l.claim, start: start, ttl: ttl, validity: validity}
}

// Prolong gives l the validity of e if that lasts longer. confirmed is when a quorum was seen to have
// confirmed e. If the old validity had ended by then, Prolong does not change it, because somebody may have
// held the lock in between. e may belong to another lease with the same value.
func (l *Lease) Prolong(e Extension, confirmed clock.Instant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	validity := e.validity
	if limit := l.terms.Timing.MaxHold; limit != 0 { // e may be of a lease that began later
		validity = min(validity, limit-e.start.Since(l.First))
	}
	if l.notHeldLocked(confirmed) == nil && validity > l.validity.Remaining(e.start) {
		l.validity = Validity{Start: e.start, Length: validity}
	}
}

// prolongOthers gives the validity of e, which a quorum has confirmed, to the other leases that share the
// hold.
func (e Extension) prolongOthers(confirmed clock.Instant) {
	s := e.lease.sharing()
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.extended = e.start
	for _, other := range s.leases {
		if other != e.lease {
			other.Prolong(e, confirmed)
		}
	}
}

// noteGone notes that the claim was missing on node i, for all leases that share the hold: see endIfGone.
func (e Extension) noteGone(i int) {
	s := e.lease.sharing()
	if s == nil {
		e.lease.noteGone(i)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.leases {
		l.noteGone(i)
	}
}

// Disproved reports whether the votes prove that no quorum holds the claim. If extensions set missing keys
// again, only nodes that hold something else prove it.
func (l *Lease) Disproved(res quorum.Result) bool {
	if l.terms.Heals {
		return res.Rule != nil && res.Rule.Blocks(res.InTheWay())
	}
	return res.Rejected
}

// Brief implements quorum.Operation.
func (e Extension) Brief() quorum.Brief {
	b := e.lease.terms.brief(quorum.Extend, e.claim.Extend(e.ttl, e.heals))
	b.Purpose = quorum.Granting
	b.Disproves, b.Heals = true, e.lease.terms.Heals
	return b
}

// Repeat implements quorum.Repeater. If e heals, the lost command may have set the key again, and the round would count it.
func (e Extension) Repeat() (claim.Call, bool) { return e.claim.Extend(e.ttl, false), !e.heals }

// CanDoWithout implements quorum.Fallback. Only the command of a downgrade names the queue.
func (e Extension) CanDoWithout() bool {
	_, ok := e.claim.(*claim.Downgraded)
	return ok
}

// Lacks implements quorum.Fallback.
func (e Extension) Lacks(i int) bool { return e.lease.terms.lacksQueue(i) }

// Without implements quorum.Fallback.
func (e Extension) Without() claim.Call {
	return e.claim.(*claim.Downgraded).Blindly().Extend(e.ttl, e.heals) //nolint:forcetypeassert // see CanDoWithout
}

// needsUndoing reports whether the release must follow the command on each node. It must if the command can set the
// value. It also must with a minimal hold: the value then stays there after the release, and a command that executes
// later could prolong the keys again.
func (e Extension) needsUndoing() bool { return e.heals || e.lease.terms.Timing.MinHold > 0 }

// Sending implements quorum.Recorder.
func (e Extension) Sending(i int) {
	e.lease.rare.use.sending(i)
	if e.needsUndoing() {
		e.lease.writes.sending(i)
	} else {
		e.lease.writes.prolongs()
	}
}

// Unsent implements quorum.Recorder.
func (e Extension) Unsent(i int) {
	e.lease.rare.use.ended(i, wire.NotSent)
	if e.needsUndoing() {
		e.lease.writes.unsent(i)
	} else {
		e.lease.writes.prolonged()
	}
}

// OnWon implements quorum.Winner. The lease is prolonged at the moment of the decision, however late the
// waiting goroutine runs.
func (e Extension) OnWon() {
	now := clock.Now()
	e.lease.Prolong(e, now)
	e.prolongOthers(now)
}

// Open implements quorum.Gate. Nothing may set the value again once the lease has ended.
func (e Extension) Open() bool { return e.lease.NotHeld(clock.Now()) == nil }

// errNotExclusive is the error of Downgrade for a claim that is not exclusive.
var errNotExclusive = errors.New("the lock is not exclusive")

// Downgrade makes l, which is exclusive, shared. Then it makes one round, which tells the nodes and prolongs
// l. l is shared before the first byte is sent, and stays so whatever comes of the round, because a node that
// has executed the command lets readers in. Later extensions tell the nodes that the round has not reached.
// If an earlier Downgrade has made l shared, the round repeats it.
//
// Downgrade returns what the nodes said, and why l is not held afterwards.
func (l *Lease) Downgrade(ctx context.Context) (res quorum.Result, over error) {
	x := l.extensions()
	x.RLock()
	defer x.RUnlock()
	e, err := l.downgrading(clock.Now())
	if err != nil {
		return quorum.Result{}, err
	}
	if l.watchdog != nil {
		l.watchdog.restart() // its open round is about the exclusive claim
	}
	res, _ = e.round(ctx)
	// A reader of this process that is not in the queues may go on now.
	l.terms.Keeper.Waiters.Nudge(l.Claim().Lines())
	return res, l.NotHeld(clock.Now())
}

// downgrading makes l shared, and returns the operation that tells the nodes.
func (l *Lease) downgrading(start clock.Instant) (Extension, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.notHeldLocked(start); err != nil {
		return Extension{}, err
	}
	switch c := l.claim.(type) {
	case *claim.Exclusive:
		l.claim = c.Downgraded(l.downgradeCommand())
	case *claim.Downgraded:
	default:
		return Extension{}, errNotExclusive
	}
	e := l.extensionFromLocked(start)
	e.heals = l.terms.Heals
	return e, nil
}

// downgradeCommand returns what the nodes must know to make l shared: which tickets leave the queue. If
// somebody in this process waits, it also names this process. The reply then tells whether readers of this
// process may go on.
func (l *Lease) downgradeCommand() script.Downgrade {
	t := l.writes.turnover(1, nil)
	d := script.Downgrade{Leave: t.Leave}
	if k := l.terms.Keeper; k.Waiters.Any() {
		d.Process = k.Process
	}
	return d
}
