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
	heals    bool // WithSetNXOnExtend
	start    clock.Instant
	ttl      time.Duration
	validity time.Duration
}

// Extend makes one round that prolongs l. It returns what the nodes said, and why l is not held or cannot be extended.
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
		if res, lost = e.round(ctx); lost && !asked && ctx.Err() == nil { // another round counts keys set again
			asked = true
			continue
		}
		if res.Won || l.Claim() == e.claim || ctx.Err() != nil { // otherwise a Downgrade came between: extend as a reader
			return res, l.NotHeld(clock.Now())
		}
	}
}

// round lets votes count until the old validity ends. lost reports that e heals, and lost connections: another round
// may succeed, see Repeat.
func (e Extension) round(ctx context.Context) (res quorum.Result, lost bool) { //nolint:contextcheck // see overdue
	l := e.lease
	// Over is not Keeper.Closing: one channel for all rounds would make them contend.
	limits := quorum.Limits{Decide: l.Remaining(e.start), Node: l.terms.Timing.NodeTimeout, Over: l.Done()}
	op, filled := quorum.Operation(e), false
	if b := e.behindFill(); l.writes.marked(refused) != 0 {
		op, filled = b, true
	}
	round := l.terms.Keeper.Set.Start(ctx, op, l.terms.WaitAll)
	select {
	case <-limits.Over: // a pause of the process came first: no silent node is to blame
		ctx, limits.Over = overdue(), nil
	default:
	}
	res = round.Wait(ctx, limits)
	return res, e.heals && !filled && !res.Won && round.Lost() // a fill must not count in a round right after it
}

func overdue() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// A behindFill is an Extension without the votes of nodes that have refused the lease: only a fill has set the key
// there.
type behindFill struct {
	Extension
	counted claim.Nodes // whose votes count all the same
}

func (e Extension) behindFill() behindFill {
	l := e.lease
	counted := l.writes.marked(setLater) // before the fill
	for i, n := range l.terms.Keeper.Set.Nodes {
		if counted.Has(i) && !l.terms.Heals && !n.IsGuarded() {
			counted = counted.Without(i)
		}
	}
	l.fill()
	return behindFill{e, counted}
}

// Confirm asks the nodes to prolong l, which is adopted, from its start on. If another lease with the value has begun
// meanwhile, its Prolong gets the Extension. l takes the token of the former holder, if not 0, once a quorum prolongs
// l. No missing key is set again: the lock may be another's.
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

// A confirming adopts a lease. It also shows which nodes refuse the value.
type confirming struct{ Extension }

// extension returns the operation that prolongs l from start on, or why not: Errors.Spent if MaxHold allows no more.
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

func (l *Lease) extensionFromLocked(start clock.Instant) Extension {
	ttl, validity := l.terms.Timing.AtAge(start.Since(l.First))
	return Extension{lease: l, claim: l.claim, start: start, ttl: ttl, validity: validity}
}

// Prolong gives l the validity of e, which a quorum has confirmed, if that is longer and the old one has not ended:
// otherwise somebody may have held the lock since. e may belong to another lease with the value.
func (l *Lease) Prolong(e Extension, confirmed clock.Instant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	validity := e.validity
	if limit := l.terms.Timing.MaxHold; limit != 0 { // e may be of a later lease
		validity = min(validity, limit-e.start.Since(l.First))
	}
	if l.notHeldLocked(confirmed) == nil && validity > l.validity.Remaining(e.start) {
		l.validity = Validity{Start: e.start, Length: validity}
	}
}

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

// noteGone notes that the claim was missing on node i, for all leases that share the hold.
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

// Disproved reports whether the votes prove that no quorum holds the claim. If l heals, missing keys prove nothing.
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

// Repeat implements quorum.Repeater. If e heals, a lost command may have set the key again: the repetition proves
// nothing.
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

// needsUndoing reports whether the release must follow the command on each node: it may set the value, or prolong keys
// that a minimal hold keeps.
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

// OnWon prolongs the lease at once, however late the waiting goroutine runs.
func (e Extension) OnWon() {
	now := clock.Now()
	e.lease.Prolong(e, now)
	e.prolongOthers(now)
}

// Open keeps the value from being set again once the lease has ended.
func (e Extension) Open() bool { return e.lease.NotHeld(clock.Now()) == nil }

var errFixed = errors.New("the lock cannot become shared")

// Downgrade makes l, which is exclusive, shared. Then one round tells the nodes and prolongs l; a second Downgrade
// repeats it. l stays shared whatever comes of the round: a node may let readers in. Later extensions tell the other
// nodes. Downgrade returns what the nodes said, and why l is not held.
func (l *Lease) Downgrade(ctx context.Context) (res quorum.Result, over error) {
	x := l.extensions()
	x.RLock()
	defer x.RUnlock()
	e, err := l.downgrading(clock.Now())
	if err != nil {
		return quorum.Result{}, err
	}
	if l.watchdog != nil {
		l.watchdog.restart() // about the exclusive claim
	}
	res, _ = e.round(ctx)
	// A reader outside the queues may go on.
	l.terms.Keeper.Waiters.Nudge(l.Claim().Lines())
	return res, l.NotHeld(clock.Now())
}

func (l *Lease) downgrading(start clock.Instant) (Extension, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.notHeldLocked(start); err != nil {
		return Extension{}, err
	}
	switch c := l.claim.(type) {
	case *claim.Exclusive:
		if len(c.Lines()) > 1 {
			return Extension{}, errFixed
		}
		l.claim = c.Downgraded(l.downgradeCommand())
	case *claim.Downgraded:
	default:
		return Extension{}, errFixed
	}
	e := l.extensionFromLocked(start)
	e.heals = l.terms.Heals
	return e, nil
}

// downgradeCommand names the tickets that leave, and this process if somebody waits: the reply tells whether its
// readers may go on.
func (l *Lease) downgradeCommand() script.Downgrade {
	t := l.writes.turnover(1, nil)
	d := script.Downgrade{Leave: t.Leave}
	if k := l.terms.Keeper; k.Waiters.Any() {
		d.Process = k.Process
	}
	return d
}
