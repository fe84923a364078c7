package main

import (
	"context"
	"time"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/pool"
)

// A kind is the list of nodes that a process was deployed with.
type kind int

const (
	oldKind   kind = iota // New(before)
	jointKind             // NewJoint(before, after)
	newKind               // New(after)
)

var kinds = [...]kind{oldKind, jointKind, newKind}

func (k kind) String() string { return [...]string{"old", "joint", "new"}[k] }

// connect makes the Redsync of a process. This is all that the deployments change in a program. A node in both lists gets
// two pools.
func connect(k kind, before, after list, pools func(list) []pool.Pool) *redsync.Redsync {
	switch k {
	case oldKind:
		return redsync.New(pools(before)...)
	case newKind:
		return redsync.New(pools(after)...)
	}
	return redsync.NewJoint(pools(before), pools(after))
}

// An operator changes a fleet.
type operator interface {
	deploy(ctx context.Context, title string, k kind) error // replaces one process after the other
	wait(ctx context.Context, d time.Duration)
	switchOff(ctx context.Context) error // ends the nodes that are only in the list before
}

// rightWay changes the nodes in two deployments, with a wait after each.
func rightWay(ctx context.Context, o operator, expiry time.Duration) error {
	// For so long a lock of a process that has ended can last: the longest expiry, the lock delay (there is none here),
	// and the drift.
	lock := expiry + expiry/100 + 2*time.Millisecond
	if err := o.deploy(ctx, "deployment 1 of 2", jointKind); err != nil {
		return err
	}
	o.wait(ctx, lock)
	if err := o.deploy(ctx, "deployment 2 of 2", newKind); err != nil {
		return err
	}
	o.wait(ctx, lock)
	return o.switchOff(ctx)
}
