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
