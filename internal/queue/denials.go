package queue

import (
	"slices"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/lease"
	"github.com/seed14bd9ef4/redsync/internal/quorum"
	"github.com/seed14bd9ef4/redsync/internal/wire"
)

// This file finds out when a call waits for a lock that the nodes deny it. To wait is of no use if they have a key of
// another type in the lock's place: it stays there until somebody deletes it. A call with lease.Policy.EndsIfDenied ends for
// other denials, too.

// after reports whether the nodes deny the lock of t after an attempt with the outcome o, and notes that. For queued see
// hear. Without EndsIfDenied only keys of another type count.
func (d *denials) after(t *lease.Terms, o lease.Outcome, queued bool) bool {
	if !t.EndsIfDenied {
		o.Result.Votes = slices.Clone(o.Result.Votes)
		for i, v := range o.Result.Votes {
			if v.Choice == claim.Failed && !wire.IsWrongType(v.Err) {
				o.Result.Votes[i] = claim.Vote{Choice: claim.Failed}
			}
		}
	}
	return d.note(o, queued)
}

// denials are those denials of nodes that a call has heard. A node's denial counts until the node gives another answer,
// or has given none for denialLasts. The denials of several attempts add up, because other nodes may decide an attempt
// before a node's denial arrives.
type denials struct {
	nodes claim.Nodes
	votes []claim.Vote // by node; as long as needed
	at    []time.Time  // by node
}

// denialLasts is how long a denial counts while the node does not answer. A node may break the connection after a
// denial.
const denialLasts = 5 * time.Second

// note notes the votes of a failed attempt. It reports whether the nodes that deny the lock leave no quorum. For
// queued see hear.
func (d *denials) note(o lease.Outcome, queued bool) bool {
	switch {
	case o.Result.Rule == nil: // no node was asked
		return false
	case o.Result.Won: // too late; then it has no votes
		*d = denials{}
		return false
	}
	for i, v := range o.Result.Votes {
		d.hear(i, v, queued)
	}
	return d.nodes != 0 && o.Result.Rule.Blocks(d.nodes)
}

// hear notes the vote of node i. queued says that the attempt has used queues without which the waiter can go on.
// Then a node that forbids a key may forbid only the queue, which says nothing of the lock: the next attempt uses no
// queue.
func (d *denials) hear(i int, v claim.Vote, queued bool) {
	for len(d.votes) <= i {
		d.votes, d.at = append(d.votes, claim.Vote{}), append(d.at, time.Time{})
	}
	now := time.Now()
	switch {
	case queued && quorum.IsForbidden(v.Err):
	case v.Choice == claim.Failed && wire.IsPermanent(v.Err):
		d.nodes, d.votes[i], d.at[i] = d.nodes.With(i), v, now
	case v.Choice == claim.Granted || v.Choice == claim.Refused || now.Sub(d.at[i]) > denialLasts:
		d.nodes, d.votes[i] = d.nodes.Without(i), claim.Vote{}
	}
}
