package queue

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/lease"
)

// This file is what the root of the library gets back from Lock.

// A Wait is what observers know of the wait of one call of Lock. The zero Wait is of a call that has not waited.
type Wait struct {
	Number uint64 // no other call of this process has the same; 0 if observers have been told of no wait
}

// calls is how many calls of this process have told observers that they wait.
var calls atomic.Uint64

// Begin tells that the call that began at start waits. Only the first Begin has an effect.
func (w *Wait) Begin(ctx context.Context, to lease.Events, start clock.Instant) {
	if w.Number == 0 {
		w.Number = calls.Add(1)
		to.Waits(ctx, start, w.Number)
	}
}

// A Failure is why Lock has acquired nothing.
type Failure struct {
	// Last is the last attempt of this call that its context has not cut. If there was none, it is the last one of the
	// call's line, without what observers of that attempt were told.
	Last        lease.Outcome
	Interrupted bool          // the context, Close or the limit of tries has ended the call
	Tries       int           // how many tries the call has made while it waited in line; 0 if it did not wait
	Delay       time.Duration // the negative retry delay that has ended the call; 0 if none has
	Denied      []claim.Vote  // by node, the denials that have ended the call; nil if none have
}

// maxChain limits how long after its acquire a lock may be handed on within the process, before other
// processes have their turn. If a tenth of the expiry is shorter, that is the limit. maxChain is much longer
// than an acquire takes.
const maxChain = 20 * time.Millisecond

// chain returns how long after its acquire a lock may be handed on within the process, or readers may join its
// hold.
func chain(t *lease.Terms) time.Duration { return min(t.Timing.Expiry/10, maxChain) }
