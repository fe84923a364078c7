package lease

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
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
	k.extensions.InARow = extensionsInARow
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

// unsettled is the list of the releases that some node has not settled. Close waits for them, and says which are left.
type unsettled struct {
	mu    sync.Mutex // guards what follows, and the links of the releases
	first *Release
	n     int

	// While Close counts them:
	counts  bool
	open    int           // releases that no quorum has confirmed, and that have not ended
	partial int           // releases that some node has not confirmed, and that have not ended
	changed chan struct{} // has an element when open or partial may have become 0
	left    []left        // releases that have ended, although not all nodes have confirmed them
	errs    []error       // by node: why its last release failed
}

// A left is a release that has ended, with the nodes that have not confirmed it.
type left struct {
	release   *Release
	nodes     claim.Nodes
	confirmed bool // by a quorum
}

func (u *unsettled) add(rel *Release) {
	u.mu.Lock()
	defer u.mu.Unlock()
	rel.next = u.first
	if u.first != nil {
		u.first.previous = rel
	}
	u.first = rel
	u.n++
	if u.counts {
		u.open++
		u.partial++
	}
}

// remove takes off rel, which every node has settled, or which has given up the others.
func (u *unsettled) remove(rel *Release) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if rel.previous != nil {
		rel.previous.next = rel.next
	} else {
		u.first = rel.next
	}
	if rel.next != nil {
		rel.next.previous = rel.previous
	}
	rel.next, rel.previous = nil, nil
	u.n--
	if !u.counts {
		return
	}
	if nodes := rel.unconfirmed(); nodes != 0 {
		u.left = append(u.left, left{rel, nodes, rel.isConfirmed()})
	}
	u.noteLocked(rel, true, true)
}

// noteLocked notes that Close need not wait any more for a quorum to confirm rel, or for all nodes.
func (u *unsettled) noteLocked(rel *Release, won, complete bool) {
	if won && !rel.won {
		rel.won = true
		u.open--
	}
	if complete && !rel.complete {
		rel.complete = true
		u.partial--
	}
	if u.open == 0 || u.partial == 0 {
		select {
		case u.changed <- struct{}{}:
		default:
		}
	}
}

// begin begins to count for what Close waits.
func (u *unsettled) begin(nodes int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.counts, u.changed, u.errs = true, make(chan struct{}, 1), make([]error, nodes)
	for rel := u.first; rel != nil; rel = rel.next {
		u.open++
		u.partial++
		u.noteLocked(rel, rel.isConfirmed(), rel.unconfirmed() == 0)
	}
}

// progressed notes that one more node may have confirmed rel.
func (u *unsettled) progressed(rel *Release) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.counts {
		u.noteLocked(rel, rel.isConfirmed(), rel.unconfirmed() == 0)
	}
}

// failed notes why a release has failed on node i.
func (u *unsettled) failed(i int, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.counts && err != nil {
		u.errs[i] = err
	}
}

// count returns how many releases some node has not settled.
func (u *unsettled) count() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.n
}

// missing returns for how many releases Close waits: for a quorum, and for all nodes.
func (u *unsettled) missing() (open, partial int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.open, u.partial
}

// keepTimes begins to keep the times that say when the keys of all releases have run out.
func (u *unsettled) keepTimes() {
	u.mu.Lock()
	defer u.mu.Unlock()
	for rel := u.first; rel != nil; rel = rel.next {
		rel.lease.writes.keepTime()
	}
}

// lasts returns for how much longer a key may last of a release that no quorum has confirmed. It is negative if all of
// them must have run out.
func (u *unsettled) lasts(now clock.Instant) time.Duration {
	longest := time.Duration(-1)
	u.mu.Lock()
	defer u.mu.Unlock()
	for rel := u.first; rel != nil; rel = rel.next {
		if !rel.won {
			rel.lease.writes.keepTime()
			longest = max(longest, rel.lasts(now))
		}
	}
	return longest
}

// rest returns what is left of all releases: those that have ended without all nodes, and those that go on.
func (u *unsettled) rest() (all []left, errs []error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.counts = false // what ends now has its place in all
	all = u.left
	for rel := u.first; rel != nil; rel = rel.next {
		if nodes := rel.unconfirmed(); nodes != 0 {
			all = append(all, left{rel, nodes, rel.isConfirmed()})
		}
	}
	u.left = nil
	return all, u.errs
}

// unconfirmed returns the nodes that have not executed rel, of those that may have the value.
func (rel *Release) unconfirmed() claim.Nodes {
	settled := claim.Nodes(rel.done.Load() &^ rel.givenUp.Load())
	return claim.FirstNodes(len(rel.progress)) &^ settled &^ claim.Nodes(rel.answered.Load())
}

// isConfirmed reports whether a quorum has executed rel: no key that it releases is left there.
func (rel *Release) isConfirmed() bool {
	rule := rel.round.Rule()
	return rule.Quorum(rule.All() &^ rel.unconfirmed())
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
