package lease

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/quorum"
	"github.com/seed14bd9ef4/redsync/internal/script"
	"github.com/seed14bd9ef4/redsync/internal/wire"
)

// An Inspection asks the nodes what keys a lock has there, and of which holder. It is for one goroutine at a time.
type Inspection struct {
	terms *Terms
	lacks atomic.Uint64 // nodes where the client may use only the lock's own key
}

// NewInspection returns an Inspection of the locks of t.
func NewInspection(t *Terms) *Inspection { return &Inspection{terms: t} }

// An Inspected is what an Inspection has seen.
type Inspected struct {
	*claim.Sighting
	quorum.Result
	Votes []claim.Vote // by node, also if the round was won
	Lacks claim.Nodes  // where only the lock itself is known
}

type look struct {
	*Inspection
	start clock.Instant
}

var errNotAwaited = errors.New("it was not waited for, because the others were enough")

// Run asks the nodes. With waitAll it waits for all, otherwise until it is certain who holds the lock.
func (i *Inspection) Run(ctx context.Context, waitAll bool, limits quorum.Limits) Inspected {
	start := clock.Now()
	round := i.terms.Keeper.Set.Start(ctx, look{i, start}, waitAll)
	res, silent := round.Wait(ctx, limits), quorum.ErrNoAnswer
	switch {
	case clock.Now().Mono-start.Mono >= limits.Node:
		silent = quorum.NoAnswerWithin(limits.Node)
	case !waitAll && res.Won:
		silent = errNotAwaited
	}
	return Inspected{
		Sighting: res.Tally.(*claim.Sighting), Result: res, //nolint:forcetypeassert // see Tally
		Votes: round.Votes(silent), Lacks: claim.Nodes(i.lacks.Load()),
	}
}

// ownerTimeout bounds AskOwner.
const ownerTimeout = 50 * time.Millisecond

// AskOwner asks the nodes briefly who holds a line of t's claim. It reports false if no value says so, or too few nodes
// answer.
func AskOwner(t *Terms, line string) (owner script.Owner, known bool) {
	ctx, cancel := context.WithTimeout(quorum.NoCall, ownerTimeout) // no limit of the round: a node that is too slow for it is not late
	defer cancel()
	i := NewInspection(t)
	at, lines := slices.Index(t.Claim.Lines(), line), len(t.Claim.Lines())
	for _, h := range i.Run(ctx, false, i.Limits()).Holdings() {
		if lines > 1 && !slices.Contains(h.Keys, at) {
			continue
		}
		if owner, known = script.OwnerOf(h.Value); known {
			return owner, true
		}
	}
	return owner, false
}

// Limits returns the limits of an Inspection that nothing hurries.
func (i *Inspection) Limits() quorum.Limits {
	limits := i.terms.Timing.limits()
	limits.Over = i.terms.Keeper.Closing()
	return limits
}

// Brief implements quorum.Operation.
func (i *Inspection) Brief() quorum.Brief {
	return quorum.Brief{Call: i.terms.Claim.Inspect(false), Within: i.terms.Timing.NodeTimeout, Tallies: true}
}

// Repeat implements quorum.Repeater.
func (i *Inspection) Repeat() (claim.Call, bool) { return i.Brief().Call, true }

// Judge ignores a server that may have forgotten what it granted.
func (l look) Judge(node int, reply wire.Reply, v claim.Vote) claim.Vote {
	if quorum.IsForbidden(reply.Err) {
		l.lacks.Or(1 << node)
	}
	if t := l.terms; v.Choice == claim.Granted {
		if err := t.Keeper.Set.Nodes[node].Distrust(reply.Server, l.start.Wall, t.Timing.Drift, t.margin()); err != nil {
			return v.Fails(err)
		}
	}
	return v
}

// Tally implements claim.Tallier.
func (i *Inspection) Tally(rule claim.Rule) claim.Tally { return claim.NewSighting(rule) }

// CanDoWithout implements quorum.Fallback.
func (i *Inspection) CanDoWithout() bool { return true }

// Lacks implements quorum.Fallback.
func (i *Inspection) Lacks(node int) bool { return claim.Nodes(i.lacks.Load()).Has(node) }

// Without implements quorum.Fallback.
func (i *Inspection) Without() claim.Call { return i.terms.Claim.Inspect(true) }
