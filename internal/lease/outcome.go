package lease

import (
	"time"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/quorum"
)

// An Outcome is how an attempt has ended. The zero Outcome says that no attempt was made.
type Outcome struct {
	Kind      Kind
	Result    quorum.Result     // of the last round; zero if there was none
	Duplicate *quorum.Duplicate // for Duplicates
	Err       error             // for Unusable
	Told      error             // the error that observers were told; nil if nobody listens
	Validity  time.Duration     // for Late: the length of the validity that had ended
	Lines     []string          // of the claim
	Touched   bool              // in some round a node has granted the lock, even if not the fencing token
}

// A Kind is how an attempt can end.
type Kind uint8

// The kinds of outcomes.
const (
	NotAsked   Kind = iota // no attempt was made
	Waiting                // no attempt was made, because others of this process wait for the claim
	Won                    // the lease can begin
	NotWon                 // no quorum granted
	Late                   // a quorum granted, after the validity had ended
	Duplicates             // two nodes are one server, and too few servers are left
	Unusable               // the generator made no usable value
)

// Mends reports whether another attempt can end otherwise. It reports false if the nodes, or the generator
// of values, are set up wrongly, if the clients are closed, or if so many nodes have a key of another type in the place
// of the lock that the others are no quorum.
func (o Outcome) Mends() bool {
	failed := o.Result.Count.Failed
	return o.Kind != Duplicates && o.Kind != Unusable &&
		(failed == 0 || !o.Result.Severed() && !o.Result.Rule.Blocks(failed&o.Result.InTheWay()))
}

// Taken reports whether the attempt failed because something else is in the way, and not because too many
// nodes failed: see quorum.Result.NotFree.
func (o Outcome) Taken() bool { return o.Kind == NotWon && o.Result.NotFree() }

// MayWinAtOnce reports whether a new attempt may win although nothing has been released: see claim.LateTally.
func (o Outcome) MayWinAtOnce() bool {
	t, ok := o.Result.Tally.(claim.LateTally)
	return ok && o.Kind == NotWon && t.MayWinAtOnce()
}

// IsSplit reports whether the votes were split: some nodes have granted, and something else is in the way on others.
// Several attempts may have been made at the same moment, and none of them has won. Or another lease may hold the lock
// on just a quorum of the nodes. The answers do not tell which, because they do not say whose value is there.
func (o Outcome) IsSplit() bool { return o.Touched && o.Taken() }

// MayMix reports whether nodes may grant different things: see claim.LateTally.
func (o Outcome) MayMix() bool {
	_, ok := o.Result.Tally.(claim.LateTally)
	return ok
}

// IsMixed reports whether a quorum of nodes has granted, but not the same thing: see claim.LateTally.
func (o Outcome) IsMixed() bool {
	return o.MayMix() && o.Kind == NotWon && o.Result.Rule.Quorum(o.Result.Count.Granted)
}

// IsCut reports whether the caller's context has ended the attempt before a quorum of nodes had answered. Such an attempt
// proves nothing.
func (o Outcome) IsCut() bool { return o.Kind == NotWon && o.Result.Cut && !o.Heard() }

// IsUnopened reports whether IsCut does, and connections to nodes were being opened then. The Result names them.
func (o Outcome) IsUnopened() bool { return o.IsCut() && o.Result.Count.Failed != 0 }

// Heard reports whether a quorum of nodes has granted or refused.
func (o Outcome) Heard() bool {
	return o.Result.Rule != nil && o.Result.Rule.Quorum(o.Result.Count.Answered())
}
