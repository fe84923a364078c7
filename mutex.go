package redsync

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/journal"
	"github.com/seed14bd9ef4/redsync/internal/lease"
	"github.com/seed14bd9ef4/redsync/internal/queue"
	"github.com/seed14bd9ef4/redsync/internal/quorum"
	"github.com/seed14bd9ef4/redsync/observe"
)

// A Mutex is a lock on a name. It excludes every other client that locks the same name on the same nodes. Make one with
// Redsync.NewMutex or Redsync.NewMultiMutex.
//
// Many goroutines may use a Mutex at once. No goroutine owns a lock: one may lock it and another may unlock it. A nil
// context stands for context.Background().
//
// The zero Mutex is a stub for tests, as in redsync v4: Unlock and Valid return true, Extend returns ErrExtendFailed,
// Lock panics, and all other operations return ErrNoPools.
type Mutex struct {
	core  *core
	keyed claim.Keyed // the names, and the claim of an exclusive lock
	set   *settings   // shared unless changed; nil in the zero Mutex
	terms lease.Terms // derived from set; unused if an option was applied after NewMutex

	mu       sync.Mutex    // guards hold, unlocks, nest, adopts and usedByDo
	hold     *lease.Lease  // nil before the first, and after Unlock and Detach
	unlocks  lease.Unlocks // the last Unlock, until the next Lock
	nest     *nest         // of the last Do or Downgrade, whose hold may be over
	adopts   *adoption     // of WithValue or WithSequencer, until there is a hold
	usedByDo bool          // see forDo
	changed  bool          // set is m's own: see change
}

func (m *Mutex) termsBy(p *lease.Policy) lease.Terms {
	t := lease.Terms{Policy: p, Keeper: &m.core.keeper, Claim: m.set.kind().claim(&m.set.options, &m.keyed)}
	if m.set.observers != nil {
		e := &events{to: m.set.observers, notices: m.core.notices, name: m.label(), mode: m.set.kind().mode}
		if from := m.set.adopts; from != nil && from.mode != "" {
			e.mode = from.mode
		}
		t.Events = e
	}
	return t
}

func (m *Mutex) isZero() bool {
	return m.core == nil && m.set == nil && m.keyed.Name() == ""
}

// Name returns the name of the lock, its Redis key, with the prefix of WithPrefix. Several names are joined with ", ".
func (m *Mutex) Name() string {
	if label := m.label(); label != "" {
		return label
	}
	return joinNames(m.names())
}

// label is empty for several names if there are none or too many.
func (m *Mutex) label() string { return m.keyed.Name() }

// Names returns the names of the lock, its Redis keys, sorted and without duplicates, even if no lock can have them.
func (m *Mutex) Names() []string { return slices.Clone(m.names()) }

func (m *Mutex) names() []string {
	if m.isZero() {
		return nil
	}
	return m.keyed.Lines()
}

// Lock is LockContext without a context. By default it gives up after about 4.7 s.
func (m *Mutex) Lock() error { return m.LockContext(context.Background()) }

// LockContext acquires m. It tries until the tries of WithTries are used up, the time of WithWait is over, or ctx is
// done.
//
// BY DEFAULT LOCK GIVES UP AFTER ABOUT 4.7 S, before the lock of a crashed holder expires (8 s). WithWait sets how long
// it waits. With WithTries(0) it waits until ctx is done.
//
// On success m is held until Until, which counts from before the first request of the attempt that won, minus drift.
// After that another process may hold the name, even without an Unlock. If m is held already, Lock waits as for any
// holder: only Do is reentrant. On failure nothing was acquired, and keys already set are released in the background.
//
// Errors:
//
//   - ErrFailed, if others have the lock. *ErrTaken comes with it unless only callers of this process are ahead, and a
//     *RedisError for each node that failed.
//   - ErrNoQuorum, if too few nodes answered in time.
//   - The error of ctx, and its cause, with ErrFailed or ErrNoQuorum if the last complete attempt before says so.
//   - ErrNested, if ctx comes from a Do that holds the name: call Do instead.
//   - ErrClosed, ErrDuplicateNode or ErrNoPools.
//   - The error of the function of WithGenValueFunc, or one that names an option or a name that cannot be used.
func (m *Mutex) LockContext(ctx context.Context) error {
	_, err := m.lock(ctx, false, false)
	return err
}

// TryLock is TryLockContext without a context.
func (m *Mutex) TryLock() error { return m.TryLockContext(context.Background()) }

// TryLockContext makes one attempt to acquire m. Its errors are those of LockContext.
//
// If nodes granted the lock and others had another value, it repeats the attempt up to three times, after a few
// milliseconds or round trips: otherwise calls at the same moment could all fail although the lock was free. It begins
// no repetition when ctx is done, or after the node deadline, unless a permit was seen free.
//
// By default it fails at once if a quorum refuses before any node grants: see WithFailFast.
func (m *Mutex) TryLockContext(ctx context.Context) error {
	_, err := m.lock(ctx, true, false)
	return err
}

// lock acquires m for a new term (a Do's if inDo is set, with one attempt if once is set) and tells the observers.
func (m *Mutex) lock(ctx context.Context, once, inDo bool) (*lease.Lease, error) {
	ctx = orBackground(ctx)
	t, err := m.beginCall()
	if err != nil {
		return nil, m.failure("lock", err)
	}
	defer m.core.keeper.EndCall()
	if ctx.Value(scopeKey{}) != nil {
		if err := m.checkNested(ctx, t); err != nil {
			return nil, m.failure("lock", err)
		}
	}
	if inDo {
		t = termsInDo(t)
	}
	m.dropOver()
	start := clock.Now()
	var waits queue.Wait
	returned := false
	if t.Events != nil {
		defer eventsOf(t).panicked(ctx, start, &waits, &returned)
	}
	h, err := m.acquire(ctx, t, start, once, &waits)
	returned = true
	if err != nil {
		tryDo := once && inDo // which returns no error
		if m.set.owner != "" && !m.set.leads && !tryDo && !m.core.keeper.IsClosed() {
			err = takenBy(t, err) //nolint:contextcheck // the context of the call may have ended
		}
		err = m.failure("lock", err)
		if t.Events != nil {
			eventsOf(t).notAcquired(ctx, start, waits, err)
		}
		return nil, err
	}
	if t.Events != nil {
		m.acquired(ctx, h, start, waits, nil)
	}
	return h, nil
}

func termsInDo(t *lease.Terms) *lease.Terms {
	own := *t
	own.Policy = t.OfDo
	return &own
}

func (m *Mutex) acquire(ctx context.Context, t *lease.Terms, start clock.Instant, once bool, waits *queue.Wait) (*lease.Lease, error) {
	limit := m.set.tries
	switch {
	case t.EndsIfDenied: // Lead's
		limit = 0
	case once:
		limit = 1
	}
	if wait := m.set.wait; wait > 0 && !once {
		waiting, stop := context.WithTimeoutCause(ctx, wait, quorum.Waited{For: wait})
		defer stop()
		ctx, limit = waiting, 0
	}
	for {
		if m.set.kind().sharesName {
			var err error
			if limit, err = m.awaitOwn(ctx, t, start, limit, waits); err != nil {
				return nil, err
			}
		}
		h, why := m.core.member.Group.Lock(ctx, t, start, limit, waits)
		if why != nil {
			err := m.notAcquired(ctx, t, why)
			if notes := m.gaveUp(t, why, start); notes != nil {
				err = fail("", "", err, notes)
			}
			return nil, err
		}
		switch err := m.begin(h); {
		case err == nil:
			return h, nil
		case errors.Is(err, errHeldByItself): // another call has locked m: wait for the end of that hold
		case errors.Is(err, ErrLockAlreadyExpired):
			return nil, errTooLate
		default:
			return nil, err
		}
	}
}

// notAcquired returns why the last attempt failed, and what prevented another. Once ctx has ended, callers who were
// ahead prove nothing.
func (m *Mutex) notAcquired(ctx context.Context, t *lease.Terms, why *queue.Failure) error {
	if why.Last.IsCut() && quorum.HasWaited(ctx) { // then silent nodes have failed
		why.Last.Result.Cut, why.Last.Told = false, nil
	}
	switch {
	case why.Delay < 0:
		return outOfRange("WithRetryDelayFunc", why.Delay, "0 or more")
	case why.Denied != nil:
		return deniedBy(m.core.keeper.Set, why.Denied)
	case why.Last.Kind == lease.Waiting && ctx.Err() != nil && !quorum.HasWaited(ctx):
		return m.interrupted(ctx, nil)
	case why.Interrupted:
		return m.interrupted(ctx, verdict(m.label(), t.Claim.Lines(), why.Last))
	}
	return verdict(m.label(), t.Claim.Lines(), why.Last)
}

// gaveUp returns notes for a person: how long a call tried, which Mutex here has the lock, and when its keys run out.
func (m *Mutex) gaveUp(t *lease.Terms, why *queue.Failure, start clock.Instant) error {
	if o := why.Last; why.Tries == 0 || o.Kind == lease.NotAsked || o.Kind == lease.Waiting || o.IsCut() {
		return nil
	}
	now, tries := clock.Now(), "1 try"
	if why.Tries > 1 {
		tries = fmt.Sprintf("%d tries", why.Tries)
	}
	tried := notef("gave up after %s in %v", tries, journal.Rounded(now.Since(start)))
	if why.Last.Kind != lease.NotWon || !why.Last.Heard() {
		return fail("", "", tried)
	}
	var holder, ends error
	switch h := m.core.keeper.HeldOn(t.Claim.Lines()); {
	case h == nil:
	case h == m.current():
		holder = notef("this Mutex has had it for %v: is an Unlock missing? Use one Mutex for each caller", journal.Rounded(now.Since(h.First)))
	default:
		holder = notef("another Mutex of this process has had it for %v", journal.Rounded(now.Since(h.First)))
	}
	if left, ok := why.Last.Result.Ends(now); ok {
		ends = notef("its key expires in %v at the latest, unless it is extended", journal.Rounded(left))
	}
	return fail("", "", tried, holder, ends)
}

// interrupted returns the error of a call that waits for the lock. why, the reason so far, does not matter after Close,
// and alone matters after WithWait.
func (m *Mutex) interrupted(ctx context.Context, why error) error {
	if m.core.keeper.IsClosed() {
		return fail("", "", ErrClosed, contextErrors(ctx))
	}
	if quorum.HasWaited(ctx) {
		return cmp.Or(why, fail("", "", ErrFailed, errWaiting))
	}
	return fail("", "", contextErrors(ctx), why)
}

// acquired tells the observers of h. If one panics, m gives h up, because the caller does not learn of it.
func (m *Mutex) acquired(ctx context.Context, h *lease.Lease, start clock.Instant, waits queue.Wait, adopted *adoption) {
	told, e := false, eventsOf(h.Terms())
	defer func() {
		if !told {
			m.giveUp(h, adopted)
		}
	}()
	now := clock.Now()
	e.heldSince(ctx, h, now)
	took := now.Since(start)
	tell(ctx, e.to.now.Acquired, observe.Acquired{
		Name: e.name, Mode: e.mode, Start: start.Wall, Took: took, Waited: min(h.First.Since(start), took), Tries: int(h.Try),
		Left: h.Remaining(now), Call: waits.Number,
	})
	told = true
}

// giveUp ends h, unless another call has, and restores m. An adopted value stays on the nodes.
func (m *Mutex) giveUp(h *lease.Lease, adopted *adoption) {
	m.mu.Lock()
	mine := m.hold == h
	if mine {
		m.hold, m.adopts = nil, adopted
	}
	m.mu.Unlock()
	switch {
	case !mine:
	case adopted == nil:
		h.Abandon(errPanicked)
	default:
		h.End(errPanicked)
	}
}

// begin makes h, which has won, the current term. A former term is over: the grant proves it, or replaceBy has checked
// it. If h can no longer begin, the former stays, and h is released.
func (m *Mutex) begin(h *lease.Lease) error {
	former, err := m.replaceBy(h)
	if err != nil {
		h.Abandon(err)
		return err
	}
	switch {
	case former == nil:
	case !h.Claim().HoldsAlone(): // the former's keys were not in its way: they may be kept on purpose
		former.End(lost(nil))
		former.ClearUnlessDelayed()
	default:
		former.End(lost(nil))
		former.ClearAway()
	}
	return nil
}

// replaceBy makes h the current term, and returns the former. m.mu stays locked since the check: otherwise h could end,
// and then replace a later term.
func (m *Mutex) replaceBy(h *lease.Lease) (former *lease.Lease, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.set.kind().sharesName && m.hold != nil && m.hold.NotHeld(clock.Now()) == nil {
		return nil, errHeldByItself // h does not prove that the former is over
	}
	if err := h.Begin(); err != nil {
		return nil, err
	}
	former = m.hold
	m.hold, m.adopts = h, nil
	m.unlocks.Forget()
	return former, nil
}

// dropOver ends a current term that is over, and releases its keys for the next, unless there is a lock delay or the
// user has seen the value.
func (m *Mutex) dropOver() {
	m.mu.Lock()
	h := m.hold
	if h == nil || h.NotHeld(clock.Now()) == nil {
		m.mu.Unlock()
		return
	}
	m.hold = nil
	m.mu.Unlock()
	h.End(ErrLockAlreadyExpired)
	h.ClearUnlessDelayed()
}

// Unlock is UnlockContext without a context.
func (m *Mutex) Unlock() (bool, error) { return m.UnlockContext(context.Background()) }

// UnlockContext releases m. It returns true once a quorum has deleted the keys before Until, once it has handed the
// lock to the next waiter (WithHandOver), or if other readers of the process go on with it (WithShared).
//
// AFTER UNLOCKCONTEXT m IS NOT HELD, whatever it has returned, except for ErrNested. The release goes on in the
// background until every node has confirmed it or the keys have run out. If ctx was done before, the call still waits
// for the nodes, at most 500 ms. A second call waits for the first, and returns true if a quorum has confirmed in time
// by then.
//
// Errors:
//
//   - ErrLockAlreadyExpired: the lock was over before a quorum confirmed the release. Another client may have held it.
//   - ErrNoQuorum: too few nodes have answered. It is unknown whether the lock was released in time.
//   - ErrNotHeld, which matches ErrLockAlreadyExpired too: there was no Lock, Unlock has returned true already, or the
//     lock had ended before the first Unlock.
//   - ErrNested: other calls of Do have joined the lock, which goes on.
//   - The error of ctx, if ctx was done before the call.
func (m *Mutex) UnlockContext(ctx context.Context) (bool, error) {
	return m.unlockOnly(orBackground(ctx), nil)
}

// unlockOnly unlocks m: if only is not nil, only that term.
func (m *Mutex) unlockOnly(ctx context.Context, only *lease.Lease) (ok bool, err error) {
	if m.isZero() && only == nil {
		return true, nil
	}
	t, err := m.beginUnlock()
	if err != nil {
		return false, m.failure("unlock", err)
	}
	defer m.core.keeper.EndCall()
	start := clock.Now()
	h, adopted, err := m.take(only)
	if err != nil {
		return false, m.failure("unlock", err)
	}
	switch {
	case h == nil && adopted == nil && only == nil:
		return m.unlockAgain(ctx)
	case h == nil && adopted == nil:
		return false, m.failure("unlock", ErrNotHeld)
	}
	defer func() { m.unlocked(h, adopted, ok, err) }()
	if h == nil {
		h = m.adoptLease(t, adopted, start)
	}
	if h.Terms().Events == nil {
		return m.unlock(ctx, h, h.EndHeld(start), start)
	}
	e := eventsOf(h.Terms())
	e.over(h)
	event := observe.Released{Name: e.name, Mode: e.mode, Start: start.Wall}
	if h.Begun() {
		event.Held, event.Left = start.Since(h.First), h.Remaining(start)
	}
	over := h.EndHeld(start)
	event.Ended = over == nil && h.Begun()
	ok, err = m.unlock(ctx, h, over, start)
	event.Took, event.Err = clock.Now().Since(start), err
	tell(ctx, e.to.now.Released, event)
	return ok, err
}

func (m *Mutex) adoptLease(t *lease.Terms, from *adoption, start clock.Instant) *lease.Lease {
	h := lease.Adopt(t, from.valueOf(), start)
	if adopted := m.set.kind().adopted; adopted != nil {
		h.Replace(adopted(h.Claim(), from.slots))
	}
	return h
}

// unlock hands h over or releases it. over is what EndHeld returned.
func (m *Mutex) unlock(ctx context.Context, h *lease.Lease, over error, start clock.Instant) (bool, error) {
	group := m.core.member.Group
	if over != nil {
		late := endedEarly(h, over, start)
		h.End(nil)
		group.ReleaseAndAdmit(h)
		return false, m.failure("unlock", over, late)
	}
	waiting, ended, stop := unhurried(ctx, h)
	defer stop()
	h.End(nil)
	if !h.Leave() || group.HandOver(h) { // others of this process share the hold, or it has gone to a waiter
		return true, nil
	}
	// A server with two addresses would answer the second time that it has no such key.
	if set := m.core.keeper.Set; !set.IsIdentified() {
		set.Identify(waiting, h.Terms().Timing.NodeTimeout)
	}
	rel := group.ReleaseAwaited(ctx, h)
	res := rel.Wait(waiting)
	if !res.Won || ended {
		rel.Outlives(res)
	}
	res.Cut = res.Cut || ended // no deadline is the reason
	group.Unlocked(h, rel)
	switch {
	case res.Won && rel.WasInTime() && !ended:
		return true, nil
	case res.Won && !rel.WasInTime(), res.Rejected:
		nodes := unconfirmed(m.label(), res)
		h.NoteLoss(lost(nodes))
		return false, m.failure("unlock", ErrLockAlreadyExpired, nodes, goneEarly(h, res, start))
	case !ended:
		ctx = waiting
	}
	return false, m.failure("unlock", m.interruption(ctx), unconfirmed(m.label(), res),
		notef("the lock is no longer held; keys that are left go in %v at the latest", journal.Rounded(h.Terms().Timing.TTL)))
}

// unhurried returns the context for the wait for the release of h: if ctx has ended, its Grace, because the
// program may exit after the Unlock. Call it before h ends.
func unhurried(ctx context.Context, h *lease.Lease) (waiting context.Context, ended bool, stop func()) {
	switch {
	case ctx.Done() == nil:
		return ctx, false, func() {}
	case ctx.Err() == nil:
		waiting, stop = apartFrom(ctx, h)
		return waiting, false, stop
	}
	waiting, stop = lease.Grace(ctx, h.Terms().Timing.NodeTimeout)
	return waiting, true, stop
}

func endedEarly(h *lease.Lease, over error, now clock.Instant) error {
	if errors.Is(over, ErrLockLost) || errors.Is(over, ErrMaxHold) || !errors.Is(over, ErrLockAlreadyExpired) || errors.Is(over, ErrNotHeld) {
		return nil
	}
	expiry := h.Terms().Timing.Expiry
	return notef("it ended %v before Unlock (expiry %v, locked for %v), so another process may have worked meanwhile: "+
		"use Do or WithWatchdog, or a longer expiry", journal.Rounded(now.Wall.Sub(h.Until())), expiry, journal.Rounded(now.Since(h.First)))
}

// goneEarly says what may have become of h, whose keys were gone: only time tells a released key from one that has run
// out.
func goneEarly(h *lease.Lease, res quorum.Result, now clock.Instant) error {
	switch {
	case !res.Rejected, res.IsTaken():
		return nil
	case !h.Begun():
		return note("its keys are gone: it was released already, or it has expired")
	}
	left, _ := h.EndLate(now) // more than 0: it was held
	return notef("its keys were gone %v before its end: it was released already, or somebody has deleted them",
		journal.Rounded(left))
}

var errInLead = errors.New("redsync: Lead releases it when its function returns")

// take removes the current term, or the adopted value, from m and returns it; nothing if only is another term. Without
// only, it fails for a Lead and for a term that calls have joined.
func (m *Mutex) take(only *lease.Lease) (h *lease.Lease, adopted *adoption, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if only != nil && m.hold != only {
		if m.nest != nil && m.nest.hold == only {
			m.nest = nil // it would keep the context of its Do
		}
		return nil, nil, nil
	}
	if only == nil && m.set.leads {
		return nil, nil, errInLead
	}
	if n := m.nest; only == nil && n != nil && n.hold == m.hold {
		if err := n.endByHand(); err != nil {
			return nil, nil, err
		}
	}
	h, adopted = m.hold, m.adopts
	m.hold, m.adopts, m.nest = nil, nil, nil
	if h != nil || adopted != nil {
		m.unlocks.Begin(h, adopted)
	}
	return h, adopted, nil
}

func (m *Mutex) unlocked(h *lease.Lease, from any, ok bool, err error) {
	if !ok && err == nil { // the call panics
		err = m.failure("unlock", errPanicked)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unlocks.End(h, from, ok, err)
}

// unlockAgain waits for an Unlock of the last term, or, if that has failed, for its release.
func (m *Mutex) unlockAgain(ctx context.Context) (bool, error) {
	m.mu.Lock()
	last := m.unlocks.Last()
	m.mu.Unlock()
	if last == nil {
		return false, m.failure("unlock", ErrNotHeld)
	}
	again := last.HasEnded()
	if !last.Wait(ctx) {
		return false, m.failure("unlock", m.interruption(ctx))
	}
	ok, err, known := last.Outcome()
	switch {
	case !known:
		return false, m.failure("unlock", ErrNotHeld)
	case ok || !again || !last.Retry(ctx):
		return ok, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unlocks.Settle(last)
	return true, nil
}

// beginCall begins an operation, and returns the terms of m's holds; m.core.keeper.EndCall ends it.
func (m *Mutex) beginCall() (*lease.Terms, error) {
	if err := m.core.beginCall(); err != nil {
		return nil, err
	}
	t, err := m.ready()
	if err == nil {
		err = m.core.allows(&t.Timing)
	}
	if err != nil {
		m.core.keeper.EndCall()
		return nil, err
	}
	return t, nil
}

// beginUnlock is beginCall for Unlock: no option keeps a hold from ending.
func (m *Mutex) beginUnlock() (*lease.Terms, error) {
	if m.current() == nil {
		return m.beginCall()
	}
	return &m.terms, m.core.beginCall()
}

func (m *Mutex) ready() (*lease.Terms, error) {
	if m.set.policy != nil {
		return &m.terms, nil
	}
	// An option was applied after NewMutex, or is out of its range.
	p, err := m.set.check()
	if err != nil {
		return nil, err
	}
	t := m.termsBy(p)
	return &t, nil
}

func (m *Mutex) current() *lease.Lease {
	h, _ := m.holdOrAdopted()
	return h
}

func (m *Mutex) holdOrAdopted() (*lease.Lease, *adoption) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.hold != nil {
		return m.hold, nil
	}
	return nil, m.adopts
}

func (m *Mutex) failure(op string, why ...error) error {
	f := &failure{op: op, name: m.label()}
	for _, err := range why {
		f.add(err)
	}
	return f.inV4()
}

func (m *Mutex) interruption(ctx context.Context) error {
	var closed error
	if m.core.keeper.IsClosed() {
		closed = ErrClosed
	}
	return fail("", "", contextErrors(ctx), closed)
}
