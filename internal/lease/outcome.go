package lease

import (
	"context"
	"sync"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/quorum"
)

// An Outcome is how an attempt has ended. The zero Outcome says that none was made.
type Outcome struct {
	Kind      Kind
	Result    quorum.Result     // of the last round
	Duplicate *quorum.Duplicate // for Duplicates
	Err       error             // for Unusable
	Told      error             // what observers were told; nil if nobody listens
	Validity  time.Duration     // for Late: the validity that had ended
	Lines     []string
	Touched   bool // a node has granted the lock in some round
}

// A Kind is how an attempt can end.
type Kind uint8

// The kinds of outcomes.
const (
	NotAsked Kind = iota
	Waiting       // others of this process wait for the claim
	Won
	NotWon     // no quorum granted
	Late       // a quorum granted, after the validity had ended
	Duplicates // two nodes are one server, and too few are left
	Unusable   // the generator made no usable value
)

// Mends reports whether another attempt can end otherwise: not with a wrong set-up, closed clients, or keys of another
// type that leave no quorum.
func (o Outcome) Mends() bool {
	failed := o.Result.Count.Failed
	return o.Kind != Duplicates && o.Kind != Unusable &&
		(failed == 0 || !o.Result.Severed() && !o.Result.Rule.Blocks(failed&o.Result.InTheWay()))
}

// Taken reports whether something else is in the way, and not failures: see quorum.Result.NotFree.
func (o Outcome) Taken() bool { return o.Kind == NotWon && o.Result.NotFree() }

// MayWinAtOnce reports whether a new attempt may win before anything is released: see claim.LateTally.
func (o Outcome) MayWinAtOnce() bool {
	t, ok := o.Result.Tally.(claim.LateTally)
	return ok && o.Kind == NotWon && t.MayWinAtOnce()
}

// IsSplit reports whether some nodes have granted, with something else in the way on others.
func (o Outcome) IsSplit() bool { return o.Touched && o.Taken() }

// MayMix reports whether nodes may grant different things: see claim.LateTally.
func (o Outcome) MayMix() bool {
	_, ok := o.Result.Tally.(claim.LateTally)
	return ok
}

// IsMixed reports whether a quorum has granted, but not the same thing: see claim.LateTally.
func (o Outcome) IsMixed() bool {
	return o.MayMix() && o.Kind == NotWon && o.Result.Rule.Quorum(o.Result.Count.Granted)
}

// IsCut reports whether the caller's context has ended before a quorum had answered. That proves nothing.
func (o Outcome) IsCut() bool { return o.Kind == NotWon && o.Result.Cut && !o.Heard() }

// IsUnopened reports whether IsCut does, while connections were being opened to nodes.
func (o Outcome) IsUnopened() bool { return o.IsCut() && o.Result.Count.Failed != 0 }

// Heard reports whether a quorum of nodes has granted or refused.
func (o Outcome) Heard() bool {
	return o.Result.Rule != nil && o.Result.Rule.Quorum(o.Result.Count.Answered())
}

// kinds are what the release of a refused attempt finds in the way of a plain lock. SET NX does not tell a list from
// another value. But nobody releases a list, so the caller must not learn that the lock is taken.
type kinds struct {
	failed claim.Nodes
	rule   claim.Rule
	known  chan struct{} // closed once it is clear whether foreign keys leave no quorum

	mu      sync.Mutex  // guards what follows
	asked   claim.Nodes // that have refused, and not said more
	foreign claim.Nodes // with a key of another type
	errs    []error     // by node
}

func (k *kinds) correct(res *quorum.Result) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := range res.Votes {
		if k.foreign.Has(i) {
			res.Votes[i] = claim.Vote{Choice: claim.Failed, Err: k.errs[i], Answer: claim.Answer{Found: claim.Foreign}}
		}
	}
	res.Taken &^= k.foreign
	res.Count.Refused &^= k.foreign
	res.Count.Failed |= k.foreign
	res.Standing = res.Rule.Standing(res.Count)
}

func (k *kinds) isKnownLocked() bool {
	return k.rule.Blocks(k.failed|k.foreign) || !k.rule.Blocks(k.failed|k.foreign|k.asked)
}

func (k *kinds) hear(i int, v claim.Vote) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.asked.Has(i) {
		return
	}
	wasKnown := k.isKnownLocked()
	k.asked = k.asked.Without(i)
	if v.Answer.Found == claim.Foreign {
		if k.errs == nil {
			k.errs = make([]error, claim.MaxNodes)
		}
		k.foreign, k.errs[i] = k.foreign.With(i), v.Err
	}
	if !wasKnown && k.isKnownLocked() {
		close(k.known)
	}
}

// AskKinds makes the next release of l find out what is in the way on nodes that have refused. It reports false if that
// is known, or does not matter.
func (l *Lease) AskKinds(o Outcome) bool {
	res := &o.Result
	_, exclusive := l.terms.Claim.(*claim.Exclusive)
	if !exclusive || len(l.terms.Claim.Lines()) > 1 || l.terms.Fencing || !l.rare.place.Ticket.IsZero() || o.Kind != NotWon || res.Taken == 0 {
		return false
	}
	k := &kinds{rule: res.Rule, failed: res.Count.Failed, asked: res.Taken, known: make(chan struct{})}
	if k.isKnownLocked() {
		return false
	}
	l.writes.needRare().asked.Store(k)
	return true
}

// Correct waits for AskKinds. In what it returns, nodes with a key of another type have failed, not refused.
func (l *Lease) Correct(ctx context.Context, o Outcome) Outcome {
	k := l.writes.needRare().asked.Load()
	l.terms.Keeper.Pause(ctx, l.terms.Timing.NodeTimeout, k.known)
	k.correct(&o.Result)
	return o
}
