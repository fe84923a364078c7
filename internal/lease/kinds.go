package lease

import (
	"context"
	"sync"

	"github.com/seed14bd9ef4/redsync/internal/claim"
)

// This file finds out what is in the way of a plain lock. A node answers a SET NX in the same way whether the key has
// another value or is a list. A list is no lock: it never runs out, and nobody releases it. So the caller must not learn
// that the lock is taken. The release that rolls the attempt back reads the key, and shows it at no further command.

// kinds are what the release of a refused attempt finds on the nodes.
type kinds struct {
	rule   claim.Rule
	failed claim.Nodes   // the nodes that have failed the attempt
	known  chan struct{} // closed once it is clear whether keys of another type leave no quorum

	mu      sync.Mutex  // guards what follows
	asked   claim.Nodes // the nodes that have refused, and have not said more
	foreign claim.Nodes // the nodes that have a key of another type
	errs    []error     // by node: the error that says so
}

// RollBack releases what the attempt that made l may have left, and returns the outcome of the attempt, o, as it is known
// then. If a plain SET has asked the nodes, RollBack waits for what the release finds, for one round trip: a node with a
// key of another type has then failed the attempt, and has not refused it.
func (l *Lease) RollBack(ctx context.Context, how Releasing, o Outcome) Outcome {
	how.kinds = l.kindsFor(o)
	l.Release(how)
	if how.kinds != nil {
		l.terms.Keeper.Pause(ctx, l.terms.Timing.NodeTimeout, how.kinds.known)
		how.kinds.correct(&o)
	}
	return o
}

// kindsFor returns nil if the answers to the attempt show what is in the way, or if that does not matter.
func (l *Lease) kindsFor(o Outcome) *kinds {
	res := &o.Result
	_, exclusive := l.terms.Claim.(*claim.Exclusive)
	if !exclusive || l.terms.Fencing || !l.special.place.Ticket.IsZero() || o.Kind != NotWon || res.Taken == 0 {
		return nil
	}
	k := &kinds{rule: res.Rule, failed: res.Count.Failed, asked: res.Taken, known: make(chan struct{}), errs: make([]error, len(res.Votes))}
	if k.isKnownLocked() {
		return nil
	}
	return k
}

func (k *kinds) isKnownLocked() bool {
	return k.rule.Blocks(k.failed|k.foreign) || !k.rule.Blocks(k.failed|k.foreign|k.asked)
}

// hear takes what the release has found on node i. A nil k takes nothing.
func (k *kinds) hear(i int, v claim.Vote) {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.asked.Has(i) {
		return
	}
	wasKnown := k.isKnownLocked()
	k.asked = k.asked.Without(i)
	if v.Answer.Found == claim.Foreign {
		k.foreign, k.errs[i] = k.foreign.With(i), v.Err
	}
	if !wasKnown && k.isKnownLocked() {
		close(k.known)
	}
}

// correct makes the votes of nodes with a key of another type failures.
func (k *kinds) correct(o *Outcome) {
	k.mu.Lock()
	defer k.mu.Unlock()
	res := &o.Result
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
