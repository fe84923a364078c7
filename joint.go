package redsync

import (
	"context"
	"fmt"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/quorum"
	"github.com/seed14bd9ef4/redsync/internal/wire"
	"github.com/seed14bd9ef4/redsync/pool"
)

// This file joins two sets of nodes, for the time in which a fleet of processes changes from one
// set to the other.

// NewJoint returns a Redsync for a fleet of processes whose nodes change from the set before to the set
// after. Every decision needs a quorum of each set: with three and five nodes, two of the three and three
// of the five. So its locks exclude the locks of New(before...) and the locks of New(after...).
//
// Never change the nodes of a fleet without NewJoint. While processes with the nodes 1, 2, 3, 4, 5 and
// processes with 1, 2, 3, 4, 6 run at once, {1, 2, 5} and {3, 4, 6} are both quorums, and two processes may
// hold one lock. Instead deploy twice, and begin the second deployment only after the first one is complete:
//
//  1. Processes with New(before...) run. Replace them by processes with NewJoint(before, after).
//  2. Wait until no lock of an ended process can be left on the nodes. That is the longest expiry in use with its
//     lock delay, or the longest WithMinHold if that is longer, plus drift. The time counts from the end of the
//     last process with New(before...).
//  3. Replace the processes by processes with New(after...).
//  4. Wait as long again. Then the nodes that are only in before can be switched off.
//
// A node that is in both sets counts in both, but is asked only once. Two pools lead to one node if they have the
// same address and the same database; NewJoint then uses the pool with the longer pool.WithRestartGuard, or the
// pool in after if the guards are equal. If their clients have a Dialer, the run id in the server's answers shows that it
// is one server. That needs the permission for INFO; without it the server is asked twice and grants only once. It also
// works only with a *redis.Client. For a Cluster or a Ring that is in both sets, give each set a pool of the same client.
//
// Write the same address of a server into both sets. A server that two addresses lead to counts only in the sets that
// have both: one of the addresses may be wrong, and then two processes could hold one lock. So a server with one
// address in before and another one in after counts in neither set.
//
// Errors and events number the nodes of before first, and then those that are only in after. Tokens of
// WithFencing keep rising through the change for every name that was locked with fencing in step 2. For any other
// name they rise only if the clocks of the clients differ by less than the time between the last Lock with
// New(before...) and the first Lock with New(after...).
//
// Like New, NewJoint starts nothing and never fails. Every operation fails if one of the sets cannot be used
// by itself, or if they have more than 64 nodes together.
func NewJoint(before, after []pool.Pool) *Redsync {
	pools, rule := union(before, after)
	return newRedsync(newCore(pools, rule, unusableSets(before, after, pools)))
}

// OpenJoint connects to the nodes of both sets as Open does. It returns the Redsync of NewJoint once a quorum
// of each set has answered. An address may be in both sets.
func OpenJoint(ctx context.Context, before, after []string, options ...Option) (*Redsync, error) {
	was, err := dial(before)
	if err != nil {
		return nil, fail("OpenJoint: before", "", err)
	}
	is, err := dial(after)
	if err != nil {
		return nil, fail("OpenJoint: after", "", err)
	}
	return NewJoint(was, is).open(ctx, "OpenJoint", options)
}

// union returns the pools of both sets and the rule of the sets. For a node that is known to be in both sets, it
// returns one pool.
func union(before, after []pool.Pool) (pools []pool.Pool, rule form) {
	for i, p := range before {
		pools = append(pools, p)
		rule.before.nodes = rule.before.nodes.With(i)
	}
	for _, p := range after {
		at := sameNode(before, p)
		if at < 0 {
			at = len(pools)
			pools = append(pools, p)
		} else if guardOf(p) >= guardOf(pools[at]) {
			pools[at] = p
		}
		rule.after.nodes = rule.after.nodes.With(at)
	}
	return pools, rule
}

// sameNode returns the index of the pool that is known to lead to the same node as p and to the same keys, -1 if
// there is none.
func sameNode(pools []pool.Pool, p pool.Pool) int {
	if quorum.Unusable(p) != nil {
		return -1
	}
	where, keys := destination(p), quorum.Keyspace(p)
	for i, other := range pools {
		if where == nil || quorum.Unusable(other) != nil || destination(other) != where {
			continue
		}
		if others := quorum.Keyspace(other); keys == nil || others == nil || keys == others {
			return i
		}
	}
	return -1
}

// guardOf returns the length of p's restart guard, 0 if it has none.
func guardOf(p pool.Pool) time.Duration {
	if guarded, ok := p.(wire.Guarded); ok {
		return guarded.RestartGuard()
	}
	return 0
}

// unusableSets returns why no lock can be acquired on the joint sets, nil if no reason is known. all is the
// pools of their union.
func unusableSets(before, after, all []pool.Pool) error {
	if err := unusable(before); err != nil {
		return fail("before", "", err)
	}
	if err := unusable(after); err != nil {
		return fail("after", "", err)
	}
	if len(all) > claim.MaxNodes {
		return fmt.Errorf("redsync: before and after have %d nodes together: at most %d", len(all), claim.MaxNodes)
	}
	return nil
}
