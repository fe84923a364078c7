package queue

import (
	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/lease"
	"github.com/seed14bd9ef4/redsync/internal/quorum"
	"github.com/seed14bd9ef4/redsync/pool"
)

// This file finds out that a call without a limit of tries waits in vain, because the nodes deny it the lock.

// denials are what the nodes have answered a call last, as far as these answers are denials. An attempt may be
// decided by other nodes before a node's denial arrives. So the denials of several attempts add up, until a node
// answers or fails in another way.
type denials struct {
	nodes claim.Nodes
	votes []claim.Vote // by node
}

// note notes the votes of a failed attempt. It reports whether the nodes that deny the lock leave no quorum. queued
// says that the attempt has used queues without which the waiter can go on. Then a node that forbids a key may forbid
// only the queue, which says nothing of the lock: the next attempt uses no queue.
func (d *denials) note(o lease.Outcome, queued bool) bool {
	if o.Result.Rule == nil {
		return false
	}
	if d.votes == nil {
		d.votes = make([]claim.Vote, len(o.Result.Votes))
	}
	for i, v := range o.Result.Votes {
		switch {
		case v.Choice == claim.Pending || quorum.IsUnheard(v.Err) || queued && quorum.IsForbidden(v.Err):
		case v.Choice == claim.Failed && pool.IsPermanent(v.Err):
			d.nodes, d.votes[i] = d.nodes.With(i), v
		default:
			d.nodes, d.votes[i] = d.nodes.Without(i), claim.Vote{}
		}
	}
	return o.Result.Rule.Blocks(d.nodes)
}
