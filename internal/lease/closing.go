package lease

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/alarm"
	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/quorum"
	"github.com/seed14bd9ef4/redsync/internal/wire"
)

// BeginClose reports whether the caller is the first, and so must call Close.
func (k *Keeper) BeginClose() (first bool) { return k.closed.CompareAndSwap(false, true) }

// maxGrace bounds by how much a Close or an Unlock outlasts its context.
const maxGrace = 500 * time.Millisecond

// Grace returns a context that outlasts ctx by deadline, at most by maxGrace, for the confirmation of a release. The
// caller must call stop.
func Grace(ctx context.Context, deadline time.Duration) (later context.Context, stop func()) {
	at := time.Now().Add(min(deadline, maxGrace))
	later, _, stop = Outlasting(ctx, func(later context.Context) error {
		Linger(later, at)
		return context.Cause(ctx)
	})
	return later, stop
}

// Outlasting returns a context with the values of ctx that outlasts it. When ctx ends, a goroutine calls ended, whose
// cause ends the context unless it is nil. So does end. The caller must call stop.
func Outlasting(ctx context.Context, ended func(later context.Context) error) (later context.Context, end context.CancelCauseFunc, stop func()) {
	later, end = context.WithCancelCause(context.WithoutCancel(ctx))
	forget := context.AfterFunc(ctx, func() {
		if cause := ended(later); cause != nil {
			end(cause)
		}
	})
	return later, end, func() {
		forget()
		end(nil)
	}
}

// Linger waits until ctx ends, or until at. It returns a context that has ended for the same reason.
func Linger(ctx context.Context, at time.Time) context.Context {
	ctx, stop := context.WithDeadline(ctx, at)
	defer stop()
	<-ctx.Done()
	return ctx
}

// Close ends and releases every lease. It calls leave when no operation is under way, or it no longer waits for that.
// Then it waits until a quorum has confirmed each release, ctx is done, or the keys have run out; and for the other
// nodes as long as one settles a release within timeout. After ctx, operations and then releases get a Grace each.
func (k *Keeper) Close(ctx context.Context, timeout time.Duration, leave func()) Rest {
	k.unsettled.begin(len(k.Set.Nodes))
	k.lastSettled.Store(int64(clock.Now().Mono))
	close(k.closing)
	k.extensions.Close()
	k.expiries.Close() // ends and releases every held lease
	k.recall()
	// They give up at their next step, or have a deadline.
	k.awaitOperations(ctx, timeout)
	k.recall()
	leave()
	k.unsettled.keepTimes()
	asked := clock.Now().Mono
	k.repeats.Hurry(func(alarm.Firer) bool { return true })
	later, stop := Grace(ctx, timeout)
	settled, reason := k.awaitQuorums(later)
	if settled {
		k.awaitOthers(later, timeout)
	}
	stop()
	k.repeats.Close()
	silent := errUnconfirmed
	if clock.Now().Mono-asked >= timeout {
		silent = quorum.NoAnswerWithin(timeout)
	}
	return k.rest(silent, reason)
}

// recall takes back what waits for a connection, so that Close need not wait for it: first what may set a value, then
// the releases.
func (k *Keeper) recall() {
	k.Set.Recall(func(to wire.Receiver, _ int) bool {
		f, is := to.(filling)
		return is && f.lease.terms.Keeper == k
	})
	k.Set.Recall(func(to wire.Receiver, i int) bool {
		rel, is := to.(*Release)
		return is && rel.lease.terms.Keeper == k && !rel.lease.writes.onNode(i).reached()
	})
}

// awaitQuorums waits until a quorum has confirmed each release that goes on. It reports false if the keys run out
// before, or ctx is done.
func (k *Keeper) awaitQuorums(ctx context.Context) (settled bool, cut error) {
	for {
		open, lasts := k.unsettled.opens(clock.Now())
		switch {
		case open == 0:
			return true, nil
		case lasts < 0:
			return false, nil
		}
		if !k.awaitChange(ctx, min(lasts, time.Hour)+1) && ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
	}
}

// awaitOthers waits until all nodes have confirmed all releases, none has settled one for timeout, or ctx is done.
func (k *Keeper) awaitOthers(ctx context.Context, timeout time.Duration) {
	for {
		last := time.Duration(k.lastSettled.Load())
		if k.unsettled.partials() == 0 || clock.Now().Mono-last >= timeout || ctx.Err() != nil {
			return
		}
		k.awaitChange(ctx, timeout-(clock.Now().Mono-last))
	}
}

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

// awaitOperations waits until no operation is under way, no node has settled a release for timeout, or ctx is done.
func (k *Keeper) awaitOperations(ctx context.Context, timeout time.Duration) {
	done := k.operations.zero()
	ctx, stop := Grace(ctx, timeout)
	defer stop()
	for {
		last := k.lastSettled.Load()
		step, cancel := context.WithTimeout(ctx, timeout-(clock.Now().Mono-time.Duration(last)))
		ended := Await(step, done)
		cancel()
		if ended || k.lastSettled.Load() == last { // also if ctx is done
			return
		}
	}
}

// Await waits until done is closed. It reports false when ctx is done first.
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
	Names    []string      // whose release no quorum has confirmed; sorted, each once
	Attempts int           // how many of Names nobody has held
	Within   time.Duration // how much longer a key may last; negative if none can
	Nodes    claim.Nodes   // that have not confirmed
	Errs     []error       // by node: why not
	Reason   error         // why ctx has ended, if that has cut the wait
}

// rest also tells the observers.
func (k *Keeper) rest(silent, reason error) (r Rest) {
	all, errs := k.unsettled.rest()
	for i, n := range k.Set.Nodes {
		switch {
		case n.IsClosed():
			errs[i] = wire.ErrClientClosed
		case errs[i] == nil:
			errs[i] = silent
		}
		k.tellLeft(n, all, errs[i])
	}
	held, now := map[string]bool{}, clock.Now()
	r.Within, r.Errs, r.Reason = -1, errs, reason
	for _, l := range all {
		if !l.confirmed {
			r.Nodes |= l.nodes
			name := l.claim.Name()
			held[name] = held[name] || !l.isAttempt()
			r.Within = max(r.Within, l.lasts(now))
		}
	}
	r.Names = slices.Sorted(maps.Keys(held))
	for _, was := range held {
		if !was {
			r.Attempts++
		}
	}
	return r
}

var errUnconfirmed = errors.New("it has not confirmed the release")

func (k *Keeper) tellLeft(n *quorum.Node, all []left, err error) {
	type sum struct {
		tell   Events
		count  int
		within time.Duration
	}
	sums, now := map[any]sum{}, clock.Now() // by audience
	for _, l := range all {
		if e := l.lease.terms.Events; e != nil && l.nodes.Has(n.Index) {
			s := sums[e.Audience()]
			sums[e.Audience()] = sum{e, s.count + 1, max(s.within, l.lasts(now))}
		}
	}
	for _, s := range sums {
		s.tell.Left(n, s.count, s.within, err)
	}
}

// unsettled are the releases that some node has not settled.
type unsettled struct {
	mu  sync.Mutex // guards what follows, and the seats of the releases
	all []unended

	// While Close counts them:
	counts  bool
	open    int           // not ended, and not confirmed by a quorum
	partial int           // not ended, and not confirmed by all nodes
	changed chan struct{} // has an element when open or partial may be 0
	left    []left        // ended, not confirmed by all nodes
	errs    []error       // by node: of its last failed release
}

type unended struct {
	*Release
	won, complete bool // confirmed by a quorum, by all nodes
}

// A seat is an index in unsettled.all, which guards it.
type seat int32

const noSeat seat = -1

// A left has ended without the confirmation of nodes.
type left struct {
	*Release
	nodes     claim.Nodes
	confirmed bool // by a quorum
}

func (u *unsettled) add(rel *Release) {
	u.mu.Lock()
	defer u.mu.Unlock()
	rel.seat = seat(len(u.all)) //nolint:gosec // so many do not fit into the memory
	u.all = append(u.all, unended{Release: rel})
	if u.counts {
		u.open++
		u.partial++
		u.countLocked(&u.all[rel.seat])
	}
}

func (u *unsettled) remove(rel *Release) {
	u.mu.Lock()
	defer u.mu.Unlock()
	end := len(u.all) - 1
	was := u.all[rel.seat]
	u.all[rel.seat] = u.all[end] // the last release gets its seat
	u.all[rel.seat].seat = rel.seat
	rel.seat = noSeat
	u.all[end] = unended{}
	u.all = u.all[:end]
	if !u.counts {
		return
	}
	if nodes := rel.unconfirmed(); nodes != 0 {
		u.left = append(u.left, left{rel, nodes, rel.isConfirmed()})
	}
	u.noteLocked(&was, true, true)
}

func (u *unsettled) noteLocked(rel *unended, won, complete bool) {
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

func (u *unsettled) begin(nodes int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.counts, u.changed, u.errs = true, make(chan struct{}, 1), make([]error, nodes)
	for i := range u.all {
		u.open++
		u.partial++
		u.countLocked(&u.all[i])
	}
}

func (u *unsettled) progressed(rel *Release) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.counts && rel.seat != noSeat {
		u.countLocked(&u.all[rel.seat])
	}
}

func (u *unsettled) countLocked(rel *unended) {
	u.noteLocked(rel, rel.isConfirmed(), rel.unconfirmed() == 0)
}

func (u *unsettled) failed(i int, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.counts && err != nil {
		u.errs[i] = err
	}
}

func (u *unsettled) count() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.all)
}

func (u *unsettled) partials() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.partial
}

func (u *unsettled) keepTimes() {
	u.mu.Lock()
	defer u.mu.Unlock()
	for i := range u.all {
		u.all[i].lease.writes.keepTime()
	}
}

// opens returns how many releases no quorum has confirmed. lasts is negative if all their keys have run out.
func (u *unsettled) opens(now clock.Instant) (open int, lasts time.Duration) {
	lasts = -1
	u.mu.Lock()
	defer u.mu.Unlock()
	for i := range u.all {
		if rel := &u.all[i]; !rel.won {
			lasts = max(lasts, rel.lasts(now))
		}
	}
	return u.open, lasts
}

func (u *unsettled) rest() (all []left, errs []error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.counts = false
	all = u.left
	for _, rel := range u.all {
		if nodes := rel.unconfirmed(); nodes != 0 {
			all = append(all, left{rel.Release, nodes, rel.isConfirmed()})
		}
	}
	u.left = nil
	return all, u.errs
}

// closeWindow keeps a connection busy, far below the limit for reserved requests: several Redsyncs may close at once.
const closeWindow = 1024

// A drain sends the releases of a closing Redsync to one node, at most closeWindow of them unanswered: the pool refuses
// too many.
type drain struct {
	mu      sync.Mutex // guards what follows
	sent    int
	waiting []*Release
}

// enter reports whether rel may be sent at once. If not, leave sends it.
func (d *drain) enter(rel *Release) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.sent >= closeWindow || len(d.waiting) > 0 {
		d.waiting = append(d.waiting, rel)
		return false
	}
	d.sent++
	return true
}

// leave frees a place and sends the next. The pool may refuse every one: a recursion would get too deep.
func (d *drain) leave(i int) {
	for rel := d.replace(); rel != nil; rel = d.replace() {
		if rel.transmit(i, nil, 0) {
			return
		}
	}
}

func (d *drain) replace() *Release {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.waiting) == 0 {
		d.sent--
		return nil
	}
	rel := d.waiting[0]
	d.waiting[0] = nil
	d.waiting = d.waiting[1:]
	return rel
}

// putBack makes a release wait that the pool has refused because too many replies are outstanding. The reply to another
// one must send it.
func (d *drain) putBack(rel *Release, refusal error) bool {
	if outstanding := (*wire.OutstandingError)(nil); !errors.As(refusal, &outstanding) {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.sent < 2 {
		return false
	}
	d.sent--
	d.waiting = append(d.waiting, rel)
	return true
}
