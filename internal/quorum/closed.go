package quorum

import (
	"errors"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/wire"
)

// Severed reports whether the user has closed so many clients that no quorum is left. If so, res is what an operation
// would find.
func (s *Set) Severed() (res Result, severed bool) {
	rule := s.Rule()
	var closed claim.Nodes
	for i, n := range s.Nodes {
		if n.IsClosed() {
			closed = closed.With(i)
		}
	}
	if closed == 0 || !rule.Blocks(closed) {
		return Result{}, false
	}
	res = Result{Set: s, Rule: rule, Votes: make([]claim.Vote, len(s.Nodes))}
	for i := range s.Nodes {
		if closed.Has(i) {
			res.Votes[i] = claim.Failure(wire.ErrClientClosed)
			res.Count = res.Count.With(i, claim.Failed)
		}
	}
	res.Standing = rule.Standing(res.Count)
	return res, true
}

// Severed reports whether so many pools or clients are closed that no quorum is left.
func (res Result) Severed() bool {
	var closed claim.Nodes
	for i, v := range res.Votes {
		if v.Choice == claim.Failed && errors.Is(v.Err, wire.ErrClosed) {
			closed = closed.With(i)
		}
	}
	return closed != 0 && res.Rule.Blocks(closed)
}
