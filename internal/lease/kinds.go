package lease

import (
	"sync"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/quorum"
)

// This file finds out what is in the way of a plain lock. A node answers a SET NX in the same way whether the key has
// another value or is a list. A list is no lock: it never runs out, and nobody releases it. So the caller must not learn
// that the lock is taken. The release that rolls the attempt back reads the key, and shows it at no further command.

// kinds are what the release of a refused attempt finds on the nodes.
type kinds struct {
	failed claim.Nodes   // the nodes that have failed the attempt
	rule   claim.Rule    // of the attempt
	known  chan struct{} // closed once it is clear whether keys of another type leave no quorum

	mu      sync.Mutex  // guards what follows
	asked   claim.Nodes // the nodes that have refused, and have not said more
	foreign claim.Nodes // the nodes that have a key of another type
	errs    []error     // by node: the error that says so; nil if there is none
}

// correct makes the votes of nodes with a key of another type failures.
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

// hear takes what the release has found on node i.
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
