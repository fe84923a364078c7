package redsync

import (
	"context"
	"fmt"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/quorum"
	"github.com/seed14bd9ef4/redsync/pool"
)

// This file joins two sets of nodes, for the time in which a fleet changes from one to the other.

// NewJoint returns a Redsync for a fleet whose nodes are about to change from those of before to those of
// after. Every decision needs a quorum of each set: with three and five nodes, two of the three and
// three of the five. So its locks exclude those of processes that have only the nodes of before, and those of
// processes that have only the nodes of after.
//
// Never change the nodes of a fleet without it. While processes with the nodes 1, 2, 3, 4, 5 and processes with
// 1, 2, 3, 4, 6 run at once, {1, 2, 5} and {3, 4, 6} are both quorums, and two of them may hold one lock.
// Instead deploy twice, and begin no deployment before the former one is complete:
//
//  1. Processes with New(before...) run. Replace them by processes with NewJoint(before, after).
//  2. Wait for the longest time for which a lock of an ended process may be left on the nodes: the longest
//     expiry in use, with its lock delay. It counts from the end of the last process with New(before...).
//  3. Replace the processes by such with New(after...).
//  4. Wait as long again. Then the nodes that are only in before can be switched off.
//
// A node that is in both sets counts in both and is asked once. Two pools lead to one node if their addresses
// are equal and they use one database. Two addresses of one server are found out when it answers, by its run
// id. That needs the permission for INFO; without it the server is asked twice and grants only once. It works
// for a *redis.Client alone: for a Cluster or a Ring that is in both sets, give both a pool of the same client.
// Of two pools for one node NewJoint uses the one with the longer pool.WithRestartGuard, or that of after if
// they are equal.
//
// Errors and events number the nodes: first those of before, then those that are in after only.
// Tokens of WithFencing keep rising through the change for every name that was locked with fencing in step 2, and
// else as far as the clocks of the clients agree.
//
// NewJoint starts nothing and never fails, as New does. Every operation fails if one of the sets cannot be used
// by itself, or if they have more than 64 nodes together.
func NewJoint(before, after []pool.Pool) *Redsync {
	pools, rule := union(before, after)
	return newRedsync(newCore(pools, rule, unusableSets(before, after, pools)))
}

// OpenJoint connects to the nodes of both sets as Open does, and returns what NewJoint would once a quorum of
// each has answered. An address may be in both sets.
func OpenJoint(ctx context.Context, before, after []string, options ...Option) (*Redsync, error) {
	was, err := dial(before)
	if err != nil {
		return nil, &within{"OpenJoint: before", err}
	}
	is, err := dial(after)
	if err != nil {
		return nil, &within{"OpenJoint: after", err}
	}
	return NewJoint(was, is).open(ctx, "OpenJoint", options)
}

// union returns the pools of both sets, with one pool for a node of both, and the rule of the sets.
func union(before, after []pool.Pool) (pools []pool.Pool, rule joint) {
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

// sameNode returns the index of the pool that is known to lead to p's node and to the same keys, -1 if there is
// none.
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

// guardOf returns how long a restart guard p has.
func guardOf(p pool.Pool) time.Duration {
	if guarded, ok := p.(interface{ RestartGuard() time.Duration }); ok {
		return guarded.RestartGuard()
	}
	return 0
}

// unusableSets returns why no lock can be had on joint sets, if that is known. all are the nodes of both.
func unusableSets(before, after, all []pool.Pool) error {
	if err := unusable(before); err != nil {
		return &within{"before", err}
	}
	if err := unusable(after); err != nil {
		return &within{"after", err}
	}
	if len(all) > claim.MaxNodes {
		return fmt.Errorf("redsync: before and after have %d nodes together: at most %d", len(all), claim.MaxNodes)
	}
	return nil
}
