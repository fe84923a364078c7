package queue

import (
	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/lease"
	"github.com/seed14bd9ef4/redsync/internal/quorum"
	"github.com/seed14bd9ef4/redsync/pool"
)

// This file tells when a call without a limit of tries waits in vain, because the nodes deny it the lock.

// denials are the nodes' denials that a call has heard. A node's denial counts until the node gives another answer or
// fails in another way. The denials of several attempts add up, because other nodes may decide an attempt before a
// node's denial arrives.
type denials struct {
	nodes claim.Nodes
	votes []claim.Vote // by node
}

// note notes the votes of a failed attempt. It reports whether the nodes that deny the lock leave no quorum. queued
// says that the attempt has used queues, and that the waiter can go on without them. Then a node that forbids a key may
// forbid only the queue. That does not count, because the next attempt uses no queue.
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
