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

// NewJoint returns a Redsync for processes whose nodes change from the set before to the set after. Every decision
// needs a quorum of each set, so its locks exclude those of New(before...) and those of New(after...).
//
// NEVER CHANGE THE NODES OF A FLEET WITHOUT NEWJOINT: two processes may then hold one lock. docs/replacing-nodes.md has
// the steps.
//
// A node in both sets counts in both, if it has one client in both, or one address that go-redis itself dials: otherwise
// in neither. Errors and events number the nodes of before first, then those only in after.
//
// NewJoint never fails. Every operation fails if one set cannot be used by itself, or with more than 64 nodes together.
func NewJoint(before, after []pool.Pool) *Redsync {
	pools, rule := union(before, after)
	return newRedsync(newCore(pools, rule, unusableSets(before, after, pools)))
}

// OpenJoint is Open for NewJoint: it returns once a quorum of each set has answered. An address may be in both sets.
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

// sameNode returns the index of the pool with the node and the keys of p, -1 if none is known. A user's Dialers may
// lead from equal texts to different servers.
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

func guardOf(p pool.Pool) time.Duration {
	if guarded, ok := p.(wire.Guarded); ok {
		return guarded.RestartGuard()
	}
	return 0
}

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
