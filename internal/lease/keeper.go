package lease

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/alarm"
	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/quorum"
	"github.com/seed14bd9ef4/redsync/internal/script"
)

// A Keeper is what all leases of one Redsync share: the nodes, and the alarms that end leases, extend them
// and repeat their releases.
type Keeper struct {
	Set     *quorum.Set
	Errors  *Errors
	Tokens  *Tokens
	Process script.Process // identifies the waiters of this process to the nodes
	Waiters Waiters

	expiries   alarm.Schedule // the ends of the leases
	extensions alarm.Schedule // the rounds of the watchdogs, and their verdicts
	repeats    alarm.Schedule // releases to be sent again
	drains     []drain        // by node; for Close

	operations inFlight // calls of the user under way
	unsettled  unsettled

	closed      atomic.Bool
	closing     chan struct{} // closed when Close begins
	lastSettled atomic.Int64  // monotonic time when Close began, or when a node last settled a release since
}

// extensionsInARow spreads the extensions of many locks that are due at once. The schedule pauses for 1 ms
// after that many alarms. Each extension takes two alarms, so that at most 64,000 begin in a second.
// More would pile up at the nodes, and the limit of outstanding requests would refuse some.
const extensionsInARow = 128

// Init makes k ready. Its exported fields must be set before.
func (k *Keeper) Init() {
	k.extensions.InARow = extensionsInARow
	k.drains = make([]drain, len(k.Set.Nodes))
	k.closing = make(chan struct{})
}

// BeginCall begins an operation and reports true. If Close has begun, it reports false. EndCall ends the
// operation.
func (k *Keeper) BeginCall() bool {
	k.operations.add(1)
	if k.closed.Load() {
		k.EndCall()
		return false
	}
	return true
}

// EndCall ends an operation.
func (k *Keeper) EndCall() { k.operations.add(-1) }

// CountAlarms returns how many alarms the leases of k have set, and how many they wait for now. It is for tests.
func (k *Keeper) CountAlarms() (set, now int) {
	for _, s := range []*alarm.Schedule{&k.expiries, &k.extensions, &k.repeats} {
		more, on := s.Count()
		set, now = set+more, now+on
	}
	return set, now
}

// IsClosed reports whether Close has begun.
func (k *Keeper) IsClosed() bool { return k.closed.Load() }

// Closing returns a channel that is closed when Close begins.
func (k *Keeper) Closing() <-chan struct{} { return k.closing }

// Pause waits for d, or until early is closed. early may be nil. It returns false at once if ctx is done or Close has
// begun.
func (k *Keeper) Pause(ctx context.Context, d time.Duration, early <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-early:
	case <-ctx.Done():
	case <-k.closing:
	}
	return ctx.Err() == nil && !k.closed.Load()
}

// BeginClose reports whether the caller is the first to close k. That caller must call Close.
func (k *Keeper) BeginClose() (first bool) { return k.closed.CompareAndSwap(false, true) }

// Close ends every lease and releases it. It calls leave once no operation is under way, or once it has given up
// waiting for that. Then it waits until a quorum has confirmed each release, until ctx is done, or until the keys have
// run out. It waits for the other nodes as long as some node settles a release within timeout.
func (k *Keeper) Close(ctx context.Context, timeout time.Duration, leave func()) Rest {
	k.unsettled.begin(len(k.Set.Nodes))
	k.lastSettled.Store(int64(clock.Now().Mono))
	close(k.closing)
	k.extensions.Close() // no watchdog starts a round any more
	k.expiries.Close()   // every lease that is held has its alarm here, which ends and releases it
	// Operations under way give up at their next step, or have a deadline.
	_ = k.awaitProgress(ctx, k.operations.zero(), timeout)
	leave()
	k.repeats.Hurry()
	reason := k.awaitQuorums(ctx)
	if reason == nil {
		k.awaitOthers(ctx, timeout)
	}
	k.repeats.Close()
	return k.rest(timeout, reason)
}

// awaitQuorums waits until a quorum has confirmed each release, or the release has ended. It returns an error when ctx
// is done, or when the keys have run out.
func (k *Keeper) awaitQuorums(ctx context.Context) error {
	for {
		open, _ := k.unsettled.missing()
		if open == 0 {
			return nil
		}
		lasts := k.unsettled.lasts(clock.Now())
		if lasts < 0 {
			return errLeft
		}
		if !k.awaitChange(ctx, min(lasts, time.Hour)+1) && ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// awaitOthers waits until all nodes have confirmed all releases, until none has settled one for the length of timeout, or
// until ctx is done.
func (k *Keeper) awaitOthers(ctx context.Context, timeout time.Duration) {
	for {
		last := time.Duration(k.lastSettled.Load())
		if _, partial := k.unsettled.missing(); partial == 0 || clock.Now().Mono-last >= timeout || ctx.Err() != nil {
			return
		}
		k.awaitChange(ctx, timeout-(clock.Now().Mono-last))
	}
}

// awaitChange waits until the unsettled releases have changed. It reports false if they have not after d, or when ctx is
// done.
func (k *Keeper) awaitChange(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-k.unsettled.changed:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// awaitProgress waits until done is closed, or returns an error: when ctx is done, or once
// no node has settled a release for the length of timeout.
func (k *Keeper) awaitProgress(ctx context.Context, done <-chan struct{}, timeout time.Duration) error {
	for {
		last := k.lastSettled.Load()
		step, cancel := context.WithTimeout(ctx, timeout-(clock.Now().Mono-time.Duration(last)))
		ended := Await(step, done)
		cancel()
		switch {
		case ended:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case k.lastSettled.Load() == last:
			return quorum.NoAnswerWithin(timeout)
		}
	}
}

// Await waits until done is closed, or reports false when ctx is done first.
func Await(ctx context.Context, done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
	}
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}
