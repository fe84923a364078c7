package lease

import (
	"context"
	"errors"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/quorum"
	"github.com/seed14bd9ef4/redsync/internal/script"
)

// This file is about an exclusive lease that becomes a shared one.

// errReplaced is the error of a vote about a claim that the lease no longer has.
var errReplaced = errors.New("redsync: the lock was downgraded meanwhile")

// ErrNotExclusive is the error of Downgrade for a claim that is not exclusive.
var ErrNotExclusive = errors.New("the lock is not exclusive")

// Downgrade makes l, which is exclusive, shared, and makes one round that says so to the nodes and prolongs l. l is
// shared from before the first byte is sent, whatever comes of the round: a node that has executed the command lets
// readers in. Later extensions tell the nodes that the round has not reached. If l is shared already because of an
// earlier Downgrade, the round repeats it.
//
// Downgrade returns what the nodes said, and why l is not held afterwards.
func (l *Lease) Downgrade(ctx context.Context) (res quorum.Result, over error) {
	l.extending.RLock()
	defer l.extending.RUnlock()
	e, err := l.downgrading(clock.Now())
	if err != nil {
		return quorum.Result{}, err
	}
	if l.watchdog != nil {
		l.watchdog.restart()
	}
	res = e.round(ctx)
	// A reader of this process may go on that is not in the queues.
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
		l.claim = c.Downgraded(l.leavingQueue())
	case *claim.Downgraded:
	default:
		return Extension{}, ErrNotExclusive
	}
	e := l.extensionFromLocked(start)
	e.heals = l.terms.Heals
	return e, nil
}

// leavingQueue returns what the nodes must know to make l shared.
func (l *Lease) leavingQueue() script.Downgrade {
	t, _ := l.writes.turnover(1)
	d := script.Downgrade{Leave: t.Leave}
	if k := l.terms.Keeper; k.Waiters.Any() {
		d.Process = k.Process
	}
	return d
}

// aboutClaim returns v, which is about a claim, as a failure if it refuses and l has another claim by now. A node
// that has executed a downgrade refuses commands for the exclusive claim.
func (l *Lease) aboutClaim(c claim.Claim, v claim.Vote) claim.Vote {
	if v.Choice == claim.Refused && l.Claim() != c {
		return v.Fails(errReplaced)
	}
	return v
}
