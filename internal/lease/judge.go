package lease

import (
	"errors"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/quorum"
	"github.com/seed14bd9ef4/redsync/internal/wire"
)

// This file decides how the reply of a node counts. A late one is still noted: its command is no longer in flight.

func (a *acquire) Judge(i int, reply wire.Reply, v claim.Vote) claim.Vote {
	judged := v
	counts := a.judge(i, &reply, &judged)
	if !a.rare.place.Ticket.IsZero() {
		if judged.Answer.Found != claim.Mine {
			v = judged
		}
		a.tellWaiter(i, reply, v.FreeIn(), counts)
	}
	return judged
}

// judge makes v count as it should, and returns whether a grant of the node would count.
func (a *acquire) judge(i int, reply *wire.Reply, v *claim.Vote) (counts bool) {
	l := (*Lease)(a)
	if k := a.terms.Keeper; k.unreached.Load() != 0 && reply.Fate == wire.Answered {
		k.answered(i)
	}
	if a.rare.surplus != nil {
		defer l.returnSurplus(i, reply, v.Answer) // after what writes notes below
	}
	if a.terms.Claim.Shares() {
		a.noteBlind(i, reply.Err, *v)
		if reply.Err == nil {
			a.terms.allows(i)
		}
	}
	if a.rare.turn != nil && v.Choice == claim.Failed && wire.IsPermanent(reply.Err) {
		a.rare.turn.Barred(i, reply.Err)
	}
	if !a.rare.place.Ticket.IsZero() {
		if d := v.Answer.Detail; d != nil {
			d.At = clock.Now().Mono
		}
	}
	if reply.Err != nil && (wire.WasNotRun(reply.Err) || wire.IsWrongType(reply.Err)) { // nothing was set
		a.writes.unsent(i)
	} else {
		a.writes.answered(i, reply)
	}
	if u := a.rare.use; u != nil {
		if reply.Conn != 0 && reply.Fate == wire.Answered {
			u.heardInOrder(i) // first: u may be over once all have replied
		}
		u.replied(i, *reply)
	}
	switch {
	case v.Choice == claim.Refused && v.Taken():
		l.refusedBy(i)
		// If an address leads to another server, its guard begins for a process that only waits, too.
		return l.distrust(i, reply.Server, a.First) == nil
	case v.Choice != claim.Granted:
		return v.Choice == claim.Refused
	case v.Answer.Detail != nil && v.Answer.Detail.WasThere && !a.wasOurs(i):
		l.refusedBy(i)
		*v = claim.Vote{Choice: claim.Refused, Answer: claim.Answer{Found: claim.Other, Detail: v.Answer.Detail}}
		return true
	}
	if a.terms.Fencing {
		a.writes.grants(i) // perhaps after a refusal
		if *v = a.judgeRegister(i, *v); v.Choice != claim.Granted {
			return v.Choice == claim.Refused
		}
	}
	l.failIfRestarted(v, i, reply.Server, a.First)
	if l.rare.use != nil {
		l.failIfDoubted(v, i)
	}
	return v.Choice == claim.Granted
}

// wasOurs reports whether an earlier command to node i has set the value there. If its reply was lost, a value that a
// user has made may be another lease's, too.
func (a *acquire) wasOurs(i int) bool {
	n := a.writes.onNode(i)
	return n.sent() >= 2 && !(a.terms.UserValues && n.lost())
}

func (a *acquire) judgeRegister(i int, v claim.Vote) claim.Vote {
	d, terms := v.Answer.Details(), a.terms
	if !d.Stored && isFar(d.Register, a.First) {
		if d.Register < endOfTokens {
			a.rare.far.Or(uint64(claim.Nodes(0).With(i)))
		}
		err := &farRegister{terms.Claim.Lines(), d.Register}
		if terms.Events != nil && terms.Keeper.Tokens.ignores(err.lines[0], i) {
			terms.Events.Ignored(terms.Keeper.Set.Nodes[i], err)
		}
		return v.Fails(err)
	}
	terms.Keeper.Tokens.Raise(terms.Claim.Lines(), d.Register)
	if err := notStored(d); err != nil {
		v.Choice, v.Err = claim.Refused, err
	}
	return v
}

// noteBlind notes that node i denies the queue to a reader without a ticket, who does not see writers that wait there.
func (a *acquire) noteBlind(i int, err error, v claim.Vote) {
	switch {
	case a.rare.place.Ticket.IsZero() && quorum.IsForbidden(err):
		a.terms.deny(i, err, quorum.IsDenial(err))
	case v.Answer.Details().Blind:
		a.terms.deny(i, errBlind, true)
	}
}

func (a *acquire) tellWaiter(i int, reply wire.Reply, free claim.Lines, counts bool) {
	denied := quorum.IsForbidden(reply.Err)
	if denied {
		a.terms.deny(i, reply.Err, quorum.IsDenial(reply.Err))
	}
	turn := a.rare.turn
	switch {
	case turn == nil:
		return
	case denied && quorum.IsNoQueue(reply.Err):
		turn.NoQueue()
	case denied:
		turn.Denied()
	}
	// A node that has not answered may be free. One without the script is asked again.
	if reply.Fate == wire.Answered && !wire.IsNoScript(reply.Err) {
		turn.Heard(i, free, counts)
	}
}

func (l *Lease) returnSurplus(i int, reply *wire.Reply, answer claim.Answer) {
	won, other := l.rare.surplus.heard(i, reply, answer)
	if won == nil {
		return
	}
	l.giveBack(won, claim.Nodes(0).With(i))
	if other {
		l.refusedBy(i)
	}
}

// Judge implements quorum.Operation. No node had refused the lease at the start: see round.
func (e Extension) Judge(i int, reply wire.Reply, v claim.Vote) claim.Vote {
	return behindFill{e, 0}.Judge(i, reply, v)
}

func (e Extension) judge(i int, reply wire.Reply, v claim.Vote) claim.Vote {
	v = v.Denies()
	e.lease.rare.use.replied(i, reply)
	if e.needsUndoing() { // also counts a node that ran nothing, for lack of the script: too many are safe
		e.lease.writes.answered(i, &reply)
	} else {
		e.lease.writes.prolonged()
		e.lease.writes.noteRenewal()
	}
	e.lease.writes.confirms(i, v.Answer.Found)
	if quorum.IsForbidden(reply.Err) { // of a downgrade
		e.lease.terms.deny(i, reply.Err, quorum.IsDenial(reply.Err))
	} else if reply.Err == nil {
		e.lease.terms.allows(i)
	}
	if first := v.Answer.FirstIn(); first != 0 {
		e.lease.terms.wake(e.claim, i, first, nil)
	}
	// If it does not heal, the next question finds the key missing.
	if e.heals && v.Choice == claim.Refused && !v.InTheWay() && e.lease.terms.Owner != "" {
		e.noteGone(i)
	}
	if v.Choice != claim.Granted { // set again in this round, a key proves nothing
		return e.lease.unlessReplaced(e.claim, v)
	}
	e.lease.failIfRestarted(&v, i, reply.Server, e.start)
	e.lease.failIfDoubted(&v, i)
	return v
}

func (b behindFill) Judge(i int, reply wire.Reply, v claim.Vote) claim.Vote {
	v = b.judge(i, reply, v)
	filled := b.lease.writes.onNode(i)&refused != 0
	if v.Choice == claim.Granted && filled && !b.counted.Has(i) && !b.lease.isOldFill(i) {
		return v.Fails(quorum.ErrFilled)
	}
	return v
}

// isOldFill reports whether node i's fill counts without a guard by now.
func (l *Lease) isOldFill(i int) bool {
	return l.writes.onNode(i)&setLater != 0 && l.terms.Timing.lasts(l.writes.lastFilled(), clock.Now()) < 0
}

func (c confirming) Judge(i int, reply wire.Reply, v claim.Vote) claim.Vote {
	v = c.judge(i, reply, v)
	if v.Choice == claim.Refused {
		c.lease.refusedBy(i)
	}
	return v
}

func (c check) Judge(i int, _ wire.Reply, v claim.Vote) claim.Vote {
	v = v.Denies()
	// A doubt's question: the next one may ask other nodes first.
	if !c.heals && v.Choice == claim.Refused && !v.InTheWay() && c.lease.terms.Owner != "" {
		c.lease.noteGone(i)
	}
	if v.Choice == claim.Granted {
		c.lease.failIfDoubted(&v, i)
	}
	return c.lease.unlessReplaced(c.claim, v)
}

var errReplaced = errors.New("redsync: the lock was downgraded meanwhile")

// unlessReplaced makes a refusal of claim c a failure if a Downgrade has replaced c: that a node refuses the exclusive
// claim then proves no loss.
func (l *Lease) unlessReplaced(c claim.Claim, v claim.Vote) claim.Vote {
	if v.Choice == claim.Refused && l.Claim() != c {
		return v.Fails(errReplaced)
	}
	return v
}

// failIfRestarted makes a grant a failure if the server may have forgotten what it granted.
func (l *Lease) failIfRestarted(v *claim.Vote, i int, s *wire.Server, start clock.Instant) {
	if err := l.distrust(i, s, start); err != nil {
		*v = v.Fails(err)
	}
}

// failIfDoubted makes a grant a failure if an earlier lease's command may still come.
func (l *Lease) failIfDoubted(v *claim.Vote, i int) {
	if u := l.rare.use; u != nil && u.isDoubted(i) {
		*v = v.Fails(quorum.ErrDoubted)
	}
}

func (l *Lease) distrust(i int, s *wire.Server, start clock.Instant) error {
	t := l.terms
	return t.Keeper.Set.Nodes[i].Distrust(s, start.Wall, t.Timing.Drift, t.margin())
}

func (a *acquire) Quarantine(n *quorum.Node) time.Duration { return a.terms.quarantine(n) }

// Quarantine implements quorum.Guarded.
func (e Extension) Quarantine(n *quorum.Node) time.Duration { return e.lease.terms.quarantine(n) }

func (c check) Quarantine(n *quorum.Node) time.Duration { return c.lease.terms.quarantine(n) }

func (t *Terms) quarantine(n *quorum.Node) time.Duration {
	return n.Quarantine(t.Timing.Drift, t.margin())
}

// margin is how much longer a restarted node is distrusted, to keep tokens in order. A proposal may be older than the
// grant: clients' clocks differ, and an attempt takes time.
func (t *Terms) margin() time.Duration {
	if !t.Fencing {
		return 0
	}
	return fenceSkew + (1+maxCatchUps)*t.Timing.NodeTimeout
}
