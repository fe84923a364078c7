package lease

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/alarm"
	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/quorum"
	"github.com/seed14bd9ef4/redsync/internal/script"
	"github.com/seed14bd9ef4/redsync/pool"
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
	pacer      pacer          // of the extensions
	drains     []drain        // by node; for Close
	unreached  atomic.Uint64  // the claim.Nodes on which a release has failed, and which have not answered since

	operations inFlight // calls of the user under way
	unsettled  unsettled

	looked  time.Time             // only look uses it
	severed atomic.Pointer[error] // why every lease is lost, because the user has closed the clients; nil if not

	closed      atomic.Bool
	closing     chan struct{} // closed when Close begins
	lastSettled atomic.Int64  // monotonic time when Close began, or when a node last settled a release since
}

// Init makes k ready. Its exported fields must be set before.
func (k *Keeper) Init() {
	k.extensions.InARow, k.repeats.InARow = extensionsInARow, repeatsInARow
	k.pacer.init(&k.extensions, k.Set.IsBehind)
	k.expiries.Look = k.look
	k.drains = make([]drain, len(k.Set.Nodes))
	k.closing = make(chan struct{})
}

// lookPause is how long the Keeper waits at least before it looks again whether the user has closed the clients.
const lookPause = 500 * time.Millisecond

// look reports whether the user has closed so many clients that every lease is lost. It is called from time to time
// while a lease is held.
func (k *Keeper) look() bool {
	if time.Since(k.looked) < lookPause {
		return false
	}
	k.looked = time.Now()
	if k.severed.Load() == nil {
		res, severed := k.Set.Severed()
		if !severed {
			return false
		}
		err := k.Errors.Severed(res)
		k.severed.Store(&err)
	}
	return true
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

// answered notes that node i has answered. If releases have failed there, they are repeated at once: the keys that they
// have not deleted keep everybody from the node.
func (k *Keeper) answered(i int) {
	if bit := uint64(1) << i; k.unreached.And(^bit)&bit != 0 {
		k.repeats.Hurry(func(f alarm.Firer) bool { r, is := f.(repetition); return is && r.node == i })
	}
}

// CountAlarms returns how many alarms the leases of k have set, and how many they wait for now. It is for tests.
func (k *Keeper) CountAlarms() (set, now int) {
	for _, s := range []*alarm.Schedule{&k.expiries, &k.extensions, &k.repeats} {
		more, on := s.Count()
		set, now = set+more, now+on
	}
	return set, now
}

// maxSearched is how many leases HeldOn looks at.
const maxSearched = 10_000

// HeldOn returns a lease of k that is held on one of these lines, nil if it finds none. It is for texts: it looks at a
// bounded number of leases.
func (k *Keeper) HeldOn(lines []string) *Lease {
	for _, f := range k.expiries.First(maxSearched) {
		l, ok := f.(*Lease)
		on := func(line string) bool { return slices.Contains(lines, line) }
		if ok && l.NotHeld(clock.Now()) == nil && slices.ContainsFunc(l.Claim().Lines(), on) {
			return l
		}
	}
	return nil
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
	k.unsettled.keepTimes()
	k.repeats.Hurry(func(alarm.Firer) bool { return true })
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

// A Rest is what Close has left on the nodes.
type Rest struct {
	Names  []string    // the locks whose release no quorum has confirmed; sorted, each once
	Nodes  claim.Nodes // the nodes that have not confirmed it
	Errs   []error     // by node: why it has not confirmed
	Reason error       // why Close has not waited for them; nil if there are none
}

// rest returns what is left, and tells the observers of each node on which something is. reason says why Close waits no
// longer, nil if it need not.
func (k *Keeper) rest(timeout time.Duration, reason error) (r Rest) {
	all, errs := k.unsettled.rest()
	for i, n := range k.Set.Nodes {
		switch {
		case n.IsClosed():
			errs[i] = pool.ErrClientClosed
		case errs[i] == nil:
			errs[i] = quorum.NoAnswerWithin(timeout)
		}
		k.tellLeft(n, all, errs[i])
	}
	for _, l := range all {
		if !l.confirmed {
			r.Nodes |= l.nodes
			r.Names = append(r.Names, l.release.claim.Name())
		}
	}
	slices.Sort(r.Names)
	r.Names, r.Errs = slices.Compact(r.Names), errs
	if len(r.Names) > 0 {
		r.Reason = cmp.Or(reason, errLeft)
	}
	return r
}

// errLeft says that releases have ended without a quorum, because their keys have run out, or a pool sends nothing.
var errLeft = errors.New("the keys are left to their expiry")

// tellLeft tells the observers what node n has not confirmed.
func (k *Keeper) tellLeft(n *quorum.Node, all []left, err error) {
	type sum struct {
		tell   Events
		count  int
		within time.Duration
	}
	sums, now := map[any]sum{}, clock.Now() // by audience
	for _, l := range all {
		if e := l.release.lease.terms.Events; e != nil && l.nodes.Has(n.Index) {
			s := sums[e.Audience()]
			l.release.lease.writes.keepTime()
			sums[e.Audience()] = sum{e, s.count + 1, max(s.within, l.release.lasts(now))}
		}
	}
	for _, s := range sums {
		s.tell.Left(n, s.count, s.within, err)
	}
}
