package redsync

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/script"
)

// A Mutex is a lock on a name, shared by everybody who uses the same name on the
// same nodes. Make one with Redsync.NewMutex.
//
// It may be used by many goroutines at once. As with sync.Mutex a lock belongs
// to no goroutine: whoever has the Mutex may unlock it. A nil context is
// context.Background().
type Mutex struct {
	core *core
	name string
	set  *settings // shared, unless changed; nil in the zero Mutex

	changed bool // see change

	inDo atomic.Bool // Do unlocks it

	mu      sync.Mutex
	hold    *hold  // the current term; nil before the first, and after Unlock and Detach
	adopted string // the value of WithValue, until there is a hold
}

// Name returns the name of the lock, its Redis key.
func (m *Mutex) Name() string { return m.name }

// Value returns the value that the nodes hold for the current lock: "" before the
// first Lock, and after Unlock or Detach. It is kept when the lock expires or is lost,
// until the next Lock or Unlock.
//
// The value belongs to this hold alone. Once Value or Sequencer has returned it, another
// process may use it: Unlock then releases the lock instead of handing it to the next
// waiter (see WithHandOver), and no later Lock of m releases it. To give the lock away
// use Detach.
//
// Lock returns at a quorum, when the slowest nodes may not have their key yet.
// This library bears that. One that releases each node only once may leave such
// a key to its expiry: to hand a lock over to it at once, acquire with
// WithFailFast(false).
func (m *Mutex) Value() string {
	h, adopted := m.term()
	if h != nil {
		return h.show()
	}
	return adopted
}

// Until returns when the lock ends unless it is extended, or ended if nothing
// but time ended it; the zero time when m is not held, or was found to be lost.
// It is for display, and of one clock only; Remaining goes by both.
func (m *Mutex) Until() time.Time {
	if h := m.current(); h != nil {
		return h.until()
	}
	return time.Time{}
}

// Remaining returns how long the lock may still be relied upon, by the clock on
// which more time has passed; 0 when m is not held. It sends nothing: it is the
// check to make before a step that needs the lock.
func (m *Mutex) Remaining() time.Duration {
	if h := m.current(); h != nil {
		return h.remaining(clock.Now())
	}
	return 0
}

// Lost returns a channel that is closed when the current hold can no longer be
// proven: at Until by the clock on which more time has passed (and the lateness of
// a timer), whether or not the network answers, or at once when an extension or a
// Valid proves that the nodes do not hold the lock any more, or on Close. Err says
// why. Unlock and Detach do not close it. Without a hold Lost returns nil.
//
// A machine that is suspended tells when it runs again; a wall clock that is set
// forward is noticed within a tenth of the expiry, and within 1 s.
func (m *Mutex) Lost() <-chan struct{} {
	if h := m.current(); h != nil {
		return h.gone(clock.Now())
	}
	return nil
}

// Err returns nil while m is held, and otherwise why it is not: ErrNotHeld before
// the first Lock, and after Unlock or Detach; else ErrLockLost with its cause, which is
// ErrLockAlreadyExpired (Until has passed, or the nodes proved the loss and how),
// ErrMaxHold or ErrClosed. It sends nothing.
func (m *Mutex) Err() error {
	if h := m.current(); h != nil {
		return h.err(clock.Now())
	}
	return ErrNotHeld
}

// Lock is LockContext without a context.
func (m *Mutex) Lock() error {
	return m.LockContext(context.Background())
}

// LockContext acquires m, retrying until it succeeds, the attempts of WithTries
// are used up, or ctx is done.
//
// On success m is held until the time that Until reports. That is counted from
// before the first request of the attempt that won, minus drift. Past it another
// process may hold the same name even if Unlock was never called.
//
// A Mutex that is held is not locked again: its own keys stand in the way like
// anybody's, so that the error matches *ErrTaken once the attempts are used up, and
// the hold it has goes on.
//
// On failure nothing was acquired. The error matches ErrFailed and the reason:
// *ErrTaken; *RedisError, one for each node that failed; an error which says that other
// waiters of this process stand in front, if no node has been asked for those either;
// ErrLockAlreadyExpired (the nodes answered too late); ctx's error and its cause; ErrClosed; ErrDuplicateNode;
// ErrNoPools; or it names an option or a name that cannot be used. Keys already set
// are released in the background, even when ctx is done; any left behind vanish
// within the expiry.
func (m *Mutex) LockContext(ctx context.Context) error {
	return m.lock(ctx, false)
}

// TryLock is TryLockContext without a context.
func (m *Mutex) TryLock() error {
	return m.TryLockContext(context.Background())
}

// TryLockContext makes one attempt to acquire m, as LockContext does.
func (m *Mutex) TryLockContext(ctx context.Context) error {
	return m.lock(ctx, true)
}

// lock acquires m for a new term, in one attempt if once is set.
func (m *Mutex) lock(ctx context.Context, once bool) error {
	ctx = orBackground(ctx)
	t, err := m.enter()
	if err != nil {
		return m.failure("lock", err, ErrFailed)
	}
	defer m.core.exit()
	m.dropOver()
	start, limit := clock.Now(), m.set.tries
	if once {
		limit = 1
	}
	h, err := m.acquire(ctx, t, start, limit)
	if err == nil {
		err = m.begin(h)
	}
	if err != nil {
		return m.failure("lock", err, ErrFailed)
	}
	m.acquired(h, start, "")
	return nil
}

// acquired tells that m holds h, after a call that began at start. If an observer
// panics the caller learns nothing of the hold, so that m gives it up: it is released,
// or adopted as before if that is what the call found.
func (m *Mutex) acquired(h *hold, start clock.Instant, adopted string) {
	if m.set.observers == nil {
		return
	}
	told := false
	defer func() {
		if !told {
			m.giveUp(h, adopted)
		}
	}()
	now := clock.Now()
	tell(m.set.observers, AcquiredObserver.ObserveAcquired,
		Acquired{Name: m.name, Waited: now.Since(start), Tries: h.try, Left: h.remaining(now)})
	told = true
}

// giveUp ends h, unless another call has ended it meanwhile, and makes m what it was
// before: not held, or the holder of an adopted value, which stays on the nodes.
func (m *Mutex) giveUp(h *hold, adopted string) {
	m.mu.Lock()
	mine := m.hold == h
	if mine {
		m.hold, m.adopted = nil, adopted
	}
	m.mu.Unlock()
	if mine {
		h.end(nil)
	}
	if mine && adopted == "" {
		h.letGo(releasing{})
	}
}

// acquire makes one attempt, and if that fails waits until the lock is free: see
// wait.go. Limit 0 is no limit. Its error is that of the last attempt, with what ended
// the trying.
func (m *Mutex) acquire(ctx context.Context, t timing, start clock.Instant, limit int) (*hold, error) {
	if ctx.Err() != nil {
		return nil, m.withInterruption(ctx, nil)
	}
	var h *hold
	var err error
	switch {
	case limit == 1 && m.set.fair:
		h, err = m.tryFairly(ctx, t, start)
	case limit == 1 || !m.set.fair && m.core.lines.mayBarge(m.name):
		h, err = m.attempt(ctx, t, start, 1, nil)
	default:
		return m.waitFrom(ctx, t, start, limit, nil)
	}
	switch {
	case err == nil || !mends(err):
		return h, err
	case limit == 1 || ctx.Err() != nil:
		return nil, m.withInterruption(ctx, err)
	}
	return m.waitFrom(ctx, t, start, limit, err)
}

// tryFairly makes one attempt that comes before nobody who waits.
func (m *Mutex) tryFairly(ctx context.Context, t timing, start clock.Instant) (*hold, error) {
	if why := m.core.lines.waits(m.name); why != nil {
		return nil, why
	}
	w := m.newWaiter(t, start) // in no line: nobody else knows it
	return w.try(ctx, 1, &entry{waiter: w, ticket: w.placeLocked(), strict: true, leaves: true})
}

// waitFrom waits for the lock, after a first attempt that failed, if err is not nil.
func (m *Mutex) waitFrom(ctx context.Context, t timing, start clock.Instant, limit int, err error) (*hold, error) {
	w := m.newWaiter(t, start)
	w.pace = pace{delay: m.set.delay, mean: m.set.meanDelay, limit: limit, try: 1}
	if unusable := w.pace.begin(0); unusable != nil {
		return nil, unusable
	}
	m.core.lines.join(w, err)
	return w.wait(ctx)
}

// attempt makes one round for the lock, which counts from start, and tells the
// observers. e is the acquire of a waiter, nil of one who does not wait.
func (m *Mutex) attempt(ctx context.Context, t timing, start clock.Instant, try int, e *entry) (*hold, error) {
	value, err := m.newValue()
	if err != nil {
		return nil, &hopelessError{err}
	}
	if m.core.duplicate() != nil {
		if err := m.core.stillDuplicate(ctx, t); err != nil {
			return nil, err
		}
		start = clock.Now() // it has taken a while, and nothing has been sent for the lock
	}
	h := m.newHold(value, t, start)
	h.try = try
	if m.set.fencing {
		h.tokens = m.newTokens(t, h.first)
	}
	var op operation = acquire{hold: h}
	if e != nil {
		e.hold, op = h, e
	}
	waitAll, limits := m.set.waitAll, h.bounds()
	if m.core.introduces() && !waitAll {
		waitAll, limits.node = true, introduction(ctx, limits.node)
	}
	res := startRound(m.core, op, waitAll).wait(ctx, limits)
	if h.tokens != nil {
		res = m.catchUp(ctx, h, op, res)
	}
	err = h.whyNotWon(res)
	switch {
	case err == nil:
		h.tokens.win()
	case e != nil:
		e.rollBack(res, ctx.Err() != nil)
	default:
		startRelease(h, releasing{})
		if res.tally.granted > 0 || h.tokens.tookLock() {
			m.core.lines.tryFirst(m.name)
		}
	}
	if m.set.observers != nil {
		h.tellAttempt(e, res, err)
	}
	if err != nil {
		return nil, err
	}
	return h, nil
}

// catchUp repeats the round of op, which came to res, while only the token is in the way.
func (m *Mutex) catchUp(ctx context.Context, h *hold, op operation, res result) result {
	for range maxCatchUps {
		if ctx.Err() != nil || h.whyNotHeld(clock.Now()) != nil || !h.tokens.behind(res) {
			break
		}
		res = startRound(m.core, op, m.set.waitAll).wait(ctx, h.bounds())
	}
	return res
}

// tellAttempt tells what the attempt for h has come to. e is as in attempt. If an
// observer panics what was acquired is released, and the waiter leaves the queues.
func (h *hold) tellAttempt(e *entry, res result, err error) {
	told := false
	defer func() {
		if told || err != nil {
			return
		}
		if e != nil && !e.plain {
			h.leaveQueues(e.ticket)
		}
		h.abandon(ErrFailed)
	}()
	tell(h.set.observers, AttemptObserver.ObserveAttempt, Attempt{
		Name: h.claim.Name(), Try: h.try, Took: clock.Now().Since(h.first), Err: err,
		Granted: res.tally.granted, Refused: res.tally.refused, Failed: res.tally.failed,
	})
	told = true
}

func (m *Mutex) newValue() (string, error) {
	value, err := m.set.genValue()
	switch {
	case err != nil:
		return "", err
	case value == "":
		return "", errors.New("redsync: WithGenValueFunc returned an empty value")
	case m.set.customValues:
		return value, usedValues.claim(value)
	}
	return value, nil
}

// begin makes h, which has won, the current term of m. If m has one already, this grant
// proves that it is over. Where h cannot begin, because the caller was held up until
// its validity was over, or because of Close, it is released, and m's term goes on.
func (m *Mutex) begin(h *hold) error {
	former, err := m.replaceBy(h)
	if err != nil {
		h.abandon(err)
		return err
	}
	if former != nil {
		former.end(lost(nil))
		former.clearAway()
	}
	return nil
}

// replaceBy makes h the current term, if it can begin, and returns the former. It looks
// and replaces with m locked: a hold that is over cannot displace one that began later.
func (m *Mutex) replaceBy(h *hold) (former *hold, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := h.begin(); err != nil {
		return nil, err
	}
	former = m.hold
	m.hold, m.adopted = h, ""
	return former, nil
}

// dropOver ends a term that is over, and clears away what it left on the nodes, which
// would stand in the way of the next.
func (m *Mutex) dropOver() {
	m.mu.Lock()
	h := m.hold
	if h == nil || h.whyNotHeld(clock.Now()) == nil {
		m.mu.Unlock()
		return
	}
	m.hold = nil
	m.mu.Unlock()
	h.end(ErrLockAlreadyExpired)
	h.clearUnlessDelayed()
}

// clearAway releases what h, which has ended, left on the nodes, if nobody else can know
// of it. Where the user has seen the value another Mutex may hold the lock by it: then
// only an Unlock releases it.
func (h *hold) clearAway() {
	if h.withdraw() {
		h.letGo(releasing{})
	}
}

// clearUnlessDelayed is clearAway for a hold that time has ended. With a lock delay its
// keys are meant to stay.
func (h *hold) clearUnlessDelayed() {
	if h.timing.ttl == h.timing.expiry {
		h.clearAway()
	}
}

// Unlock is UnlockContext without a context.
func (m *Mutex) Unlock() (bool, error) {
	return m.UnlockContext(context.Background())
}

// UnlockContext releases m. It returns true once a quorum has deleted the keys
// before Until; the release goes on in the background, on all nodes, until each
// has settled it, whatever happens to ctx.
//
// ErrLockAlreadyExpired means that the lock was over before: somebody else may
// have held it. An error for too few nodes means that nobody can tell. In each
// case m is not held afterwards; a second Unlock returns ErrNotHeld, which matches
// ErrLockAlreadyExpired too.
//
// If the connection to a node breaks, the release is sent again, and Unlock waits for that
// reply, at most for the node deadline. If the key is missing then, nobody can tell whether
// the first release deleted it, and the node counts as one that has not answered.
func (m *Mutex) UnlockContext(ctx context.Context) (bool, error) {
	ctx = orBackground(ctx)
	t, err := m.enter()
	if err != nil {
		return false, m.failure("unlock", err)
	}
	defer m.core.exit()
	start := clock.Now()
	h, adopted := m.take()
	event := Released{Name: m.name}
	switch {
	case h == nil && adopted == "":
		return false, m.failure("unlock", ErrNotHeld)
	case h == nil:
		h = m.adoptedHold(adopted, t, start)
	case m.set.observers != nil:
		event.Held, event.Left = start.Since(h.first), h.remaining(start)
	}
	ok, err := m.unlock(ctx, h, start)
	if m.set.observers != nil {
		event.Took, event.Err = clock.Now().Since(start), err
		tell(m.set.observers, ReleasedObserver.ObserveReleased, event)
	}
	return ok, err
}

// unlock ends h at start, and releases it.
func (m *Mutex) unlock(ctx context.Context, h *hold, start clock.Instant) (bool, error) {
	over := h.endHeld(start)
	h.end(nil)
	if over != nil {
		h.letGo(releasing{})
		return false, m.failure("unlock", over)
	}
	if m.core.lines.handOver(h) {
		return true, nil
	}
	return m.release(ctx, h)
}

// release sends the release of h, which has ended, and reports what the nodes
// say. An adopted hold, which has not begun, has no Until that could have passed.
func (m *Mutex) release(ctx context.Context, h *hold) (bool, error) {
	rel := h.letGo(releasing{awaited: true, waitAll: m.set.waitAll})
	res := rel.round.wait(ctx, h.bounds())
	m.core.lines.tellRivals(m.name, rel.rivals.Load())
	switch {
	case res.tally.won() && (!h.begun() || h.stood(rel.wonAt)):
		return true, nil
	case res.tally.won(), res.tally.refuted():
		return false, m.failure("unlock", res.err(), ErrLockAlreadyExpired)
	}
	return false, m.failure("unlock", m.withInterruption(ctx, nodeErrors(res.errs)))
}

// take detaches from m what it holds: the current term, or an adopted value.
func (m *Mutex) take() (h *hold, adopted string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h, adopted = m.hold, m.adopted
	m.hold, m.adopted = nil, ""
	return h, adopted
}

// Detach gives the lock away without releasing it. It returns a Sequencer s: another
// Mutex, in this process or another one, takes the lock over by WithValue(s.Value). The
// receiver should call Extend before Until has passed.
//
// After success m is not held, and nothing that m or its Redsync does later touches the
// lock: the watchdog has stopped, Close does not unlock it, and Lost is not closed.
// Detach first ends the rounds under way, and then waits until the nodes have answered
// each command that could set or prolong a key: at most for the node deadline, or until
// ctx is done. A node that has not answered by then may run such a command after the
// receiver has unlocked. An Unlock of this library deletes that key as well, because it
// repeats its release; with another library the key stays for up to an expiry.
//
// These errors leave m as it was: ErrNotHeld, also for an adopted value that has not been
// extended; ErrLockAlreadyExpired or ErrLockLost, as Extend returns them; ctx's error and
// its cause, if ctx is already done; ErrClosed; and an error for a Mutex that Do unlocks.
// If Until passes while Detach waits, the error matches ErrLockLost and
// ErrLockAlreadyExpired, and m is no longer held. If two calls detach at once, one of them
// gets ErrNotHeld.
func (m *Mutex) Detach(ctx context.Context) (Sequencer, error) {
	ctx = orBackground(ctx)
	if _, err := m.enter(); err != nil {
		return Sequencer{}, m.failure("detach", err)
	}
	defer m.core.exit()
	h, err := m.cutOff(ctx)
	if err != nil {
		return Sequencer{}, m.failure("detach", err)
	}
	start := clock.Now()
	h.end(nil) // from here on nothing more is sent for it
	h.awaitReplies(ctx)
	left, err := h.detachLate(clock.Now())
	m.core.lines.tryFirst(m.name) // it has waited for an Unlock here; now the nodes tell it
	if err != nil {
		h.clearUnlessDelayed()
		return Sequencer{}, m.failure("detach", err)
	}
	if m.set.observers != nil {
		told := false
		defer func() {
			if !told { // by a panic: the caller gets no Sequencer
				h.clearAway()
			}
		}()
		tell(m.set.observers, DetachedObserver.ObserveDetached, Detached{Name: m.name, Held: start.Since(h.first), Left: left})
		told = true
	}
	return h.sequencer(), nil
}

// cutOff takes from m the current term, ended for Detach, unless it may not be detached.
func (m *Mutex) cutOff(ctx context.Context) (*hold, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h, now := m.hold, clock.Now()
	if h == nil {
		return nil, ErrNotHeld
	}
	if err := h.whyNotHeld(now); err != nil {
		return nil, err
	}
	if m.inDo.Load() {
		return nil, errInDo
	}
	if ctx.Err() != nil {
		return nil, m.withInterruption(ctx, nil)
	}
	if err := h.endHeld(now); err != nil {
		return nil, err // Close came between
	}
	m.hold = nil
	return h, nil
}

var errInDo = errors.New("redsync: Do unlocks it when its function returns")

// awaitReplies waits until every command that can set or prolong a key of h, which has
// ended, has been answered, for the node deadline at most.
func (h *hold) awaitReplies(ctx context.Context) {
	timer := time.NewTimer(h.timing.nodeTimeout)
	defer timer.Stop()
	select {
	case <-h.awaitQuiet():
	case <-timer.C:
	case <-ctx.Done():
	}
}

// Extend is ExtendContext without a context.
func (m *Mutex) Extend() (bool, error) {
	return m.ExtendContext(context.Background())
}

// ExtendContext makes the lock last for its expiry from now on. It returns true
// when a quorum has confirmed that before the old Until, and moves Until.
//
// It waits for the nodes until the old Until has passed or ctx is done (for an
// adopted lock: the node deadline). After ErrExtendFailed the lock is held until
// the old Until still, and Extend may be tried again, unless ErrMaxHold comes with
// it: WithMaxHold allows no more. After ErrLockAlreadyExpired the lock is over; see
// ErrLockLost.
func (m *Mutex) ExtendContext(ctx context.Context) (bool, error) {
	ctx = orBackground(ctx)
	h, err := m.open("extend")
	if err != nil {
		return false, err
	}
	defer m.core.exit()
	if !h.begun() {
		return m.adopt(ctx, h)
	}
	start := clock.Now()
	left := h.remaining(start)
	ok, err := m.extend(ctx, h)
	if m.set.observers != nil {
		tell(m.set.observers, ExtendedObserver.ObserveExtended, h.extendedEvent(start, left, err))
	}
	return ok, err
}

// open begins an operation on what m holds, which is held: the current term, or a
// new one for an adopted value. Without an error m.core.exit ends the operation.
func (m *Mutex) open(op string) (*hold, error) {
	t, err := m.enter()
	if err != nil {
		return nil, m.failure(op, err)
	}
	h, adopted := m.term()
	switch {
	case h != nil:
		err = h.whyNotHeld(clock.Now())
	case adopted != "":
		h = m.adoptedHold(adopted, t, clock.Now())
	default:
		err = ErrNotHeld
	}
	if err != nil {
		m.core.exit()
		return nil, m.failure(op, err)
	}
	return h, nil
}

// extend makes one round that prolongs h, and acts on what the nodes say.
func (m *Mutex) extend(ctx context.Context, h *hold) (bool, error) {
	res, over := m.askToExtend(ctx, h)
	switch {
	case over == nil && res.tally.won():
		return true, nil
	case errors.Is(over, ErrLockAlreadyExpired) && !errors.Is(over, ErrLockLost) && !errors.Is(over, ErrNotHeld):
		// Until passed meanwhile; what q nodes say now proves no continuity.
		err := because(ErrLockLost, over)
		h.end(err)
		return false, m.failure("extend", err)
	case over != nil: // unlocked, lost or closed meanwhile, or as long as WithMaxHold allows
		return false, m.failure("extend", over)
	case h.lostBy(res):
		return false, m.failure("extend", h.lose(res.err()))
	}
	return false, m.failure("extend", m.withInterruption(ctx, res.err()), ErrExtendFailed)
}

// askToExtend is the round of extend: it returns what the nodes said, and why h is
// not held afterwards, or cannot be extended. When it returns nothing more is sent
// for the round.
func (m *Mutex) askToExtend(ctx context.Context, h *hold) (res result, over error) {
	h.rounds.RLock()
	defer h.rounds.RUnlock()
	e, err := h.extension(clock.Now())
	if err != nil {
		return result{}, err
	}
	// The votes count until the old Until, not only for one node deadline.
	b := bounds{decide: h.remaining(e.start), node: h.timing.nodeTimeout, over: h.done()}
	res = startRound(h.core, e, m.set.waitAll).wait(ctx, b)
	return res, h.whyNotHeld(clock.Now())
}

// adopt extends a lock that was acquired elsewhere, and makes it m's own.
func (m *Mutex) adopt(ctx context.Context, h *hold) (bool, error) {
	e := h.extensionFrom(h.first) // it heals no node: the lock may be another's by now
	res := startRound(h.core, e, m.set.waitAll).wait(ctx, h.bounds())
	switch {
	case res.tally.won() && h.whyNotHeld(clock.Now()) == nil:
		ok, err := m.takeOver(h, e)
		if ok && h.begun() { // no other call was first
			m.acquired(h, h.first, h.value())
		}
		return ok, err
	case res.tally.refuted():
		return false, m.failure("extend", res.err(), ErrLockAlreadyExpired)
	}
	return false, m.failure("extend", m.withInterruption(ctx, res.err()), ErrExtendFailed)
}

// takeOver makes h, an adopted hold that a quorum has confirmed, the current
// term, unless another call has done the same meanwhile.
func (m *Mutex) takeOver(h *hold, e extension) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.hold == nil && m.adopted == h.value():
		if err := h.begin(); err != nil {
			return false, m.failure("extend", err)
		}
		m.hold, m.adopted = h, ""
	case m.hold == nil || m.hold.value() != h.value():
		return false, m.failure("extend", ErrNotHeld)
	default:
		m.hold.prolong(e, clock.Now())
		if err := m.hold.whyNotHeld(clock.Now()); err != nil {
			return false, m.failure("extend", err)
		}
	}
	return true, nil
}

// Valid is ValidContext without a context.
func (m *Mutex) Valid() (bool, error) {
	return m.ValidContext(context.Background())
}

// ValidContext asks the nodes whether they hold the lock. It returns true only
// if a quorum does and Until has still not passed. When Until has passed it says
// so without asking. Remaining is the cheap local check.
//
// After ErrLockLost the lock is over: too few nodes still hold it. After any other
// error but ErrLockAlreadyExpired it is as it was, until Until.
func (m *Mutex) ValidContext(ctx context.Context) (bool, error) {
	ctx = orBackground(ctx)
	h, err := m.open("valid")
	if err != nil {
		return false, err
	}
	defer m.core.exit()
	b := h.bounds()
	b.decide = min(b.decide, h.remaining(clock.Now()))
	b.over = h.done()
	res := startRound(m.core, check{hold: h}, m.set.waitAll).wait(ctx, b)
	return m.checked(ctx, h, res)
}

// checked turns the outcome of a check into Valid's.
func (m *Mutex) checked(ctx context.Context, h *hold, res result) (bool, error) {
	over := h.whyNotHeld(clock.Now())
	switch {
	case over != nil:
		return false, m.failure("valid", over)
	case res.tally.won():
		return true, nil
	case !h.begun() && res.tally.refuted(): // adopted: there is no hold to lose
		return false, m.failure("valid", res.err(), ErrLockAlreadyExpired)
	case h.begun() && h.lostBy(res):
		return false, m.failure("valid", h.lose(res.err()))
	}
	return false, m.failure("valid", m.withInterruption(ctx, nodeErrors(res.errs)))
}

// enter begins an operation on m; m.core.exit ends it.
func (m *Mutex) enter() (timing, error) {
	if err := m.core.enter(); err != nil {
		return timing{}, err
	}
	t, err := m.set.timing()
	if err == nil {
		err = checkName(m.name)
	}
	if err == nil {
		err = m.core.allows(t.ttl)
	}
	if err != nil {
		m.core.exit()
	}
	return t, err
}

func checkName(name string) error {
	if name == "" {
		return errors.New("redsync: the name of a Mutex must not be empty")
	}
	if side := script.Reserved(name); side != "" {
		return fmt.Errorf("redsync: the name %q is reserved: {x}%s belongs to the lock x", name, side)
	}
	return nil
}

func (m *Mutex) current() *hold {
	h, _ := m.term()
	return h
}

// term returns the current term, or the adopted value before there is one.
func (m *Mutex) term() (*hold, string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.hold != nil {
		return m.hold, ""
	}
	return nil, m.adopted
}

// failure returns the error of an operation: how it failed, and why.
func (m *Mutex) failure(op string, why error, is ...error) error {
	if why != nil {
		is = append(is, why)
	}
	return &opError{op: op, name: m.name, causes: causes{is}}
}

// withInterruption adds to why what ended the operation early, if anything did: the
// context, by its error and its cause, or Close.
func (m *Mutex) withInterruption(ctx context.Context, why error) error {
	if m.core.isClosed.Load() {
		why = because(ErrClosed, why)
	}
	cause := context.Cause(ctx)
	if errors.Is(cause, ctx.Err()) { // also while ctx goes on: both are nil
		return because(cause, why)
	}
	return because(ctx.Err(), cause, why)
}

func orBackground(ctx context.Context) context.Context {
	if ctx == nil {
		return context.Background()
	}
	return ctx
}
