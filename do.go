package redsync

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/lease"
)

// Do calls Mutex.Do of a new Mutex with this name. The options configure this Mutex alone.
func (r *Redsync) Do(ctx context.Context, name string, fn func(context.Context) error, options ...Option) error {
	return r.NewMutex(name, options...).Do(ctx, fn)
}

// TryDo calls Mutex.TryDo of a new Mutex with this name. The options configure this Mutex alone.
func (r *Redsync) TryDo(
	ctx context.Context, name string, fn func(context.Context) error, options ...Option,
) (ran bool, err error) {
	return r.NewMutex(name, options...).TryDo(ctx, fn)
}

// Do locks m as LockContext does, calls fn, and unlocks m. A watchdog extends the lock while fn runs. The context of
// fn ends with ctx, or when the lock is lost, at Until at the latest. fn must return soon then, because Do waits for
// it. If fn panics, Do unlocks and the panic goes on. WithWait bounds the wait alone.
//
// If ctx is that of the function of a Do on the same name, Do joins that lock and sends nothing: see docs/nesting.md.
// If m is locked in another way, Do waits. With WithShared or WithPermits, many goroutines may call Do of one Mutex
// at once.
//
// With WithSequencer or WithValue, Do extends the adopted lock instead of locking.
//
// Errors:
//
//   - That of LockContext, or of ExtendContext for an adopted lock: fn was not called.
//   - ErrNested, if the call conflicts with a Do around it.
//   - ErrLockLost, joined with the error of fn, after a loss: the context of fn has that cause. It may match
//     *ErrTaken, and never ErrFailed.
//   - That of Unlock, joined with that of fn: ErrNotHeld if fn has unlocked m, which does not end its context.
//   - Otherwise that of fn. If ctx has ended, the text says that this was after the lock was acquired.
func (m *Mutex) Do(ctx context.Context, fn func(context.Context) error) error {
	_, err := m.do(ctx, fn, false)
	return err
}

// TryDo does what Do does, but does not wait for the lock: it locks m as TryLockContext does. ran says whether it has
// called fn. With WithMinHold, TryDo runs a scheduled job once per tick: see docs/cron.md.
//
//   - false, nil: others have the lock, or are ahead (WithFair, WithShared). That is no failure.
//   - true, err: err is that of Do, also if fn has returned that another lock is taken.
//   - false, err: fn was not called for another reason: too few nodes answered, ctx is done, an option or the name
//     cannot be used, the call conflicts with a Do around it, or an adopted lock could not be extended.
func (m *Mutex) TryDo(ctx context.Context, fn func(context.Context) error) (ran bool, err error) {
	ran, err = m.do(ctx, fn, true)
	if !ran && isContention(err) {
		return false, nil
	}
	return ran, err
}

// isContention reports whether err, with which m could not be acquired, says that others have the lock, and nothing else.
func isContention(err error) bool {
	return errors.Is(err, ErrFailed) && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded)
}

var errNilFunc = errors.New("redsync: the function is nil")

// do reports whether it has called fn. If it has not, the error says why m was not acquired.
func (m *Mutex) do(ctx context.Context, fn func(context.Context) error, once bool) (ran bool, err error) {
	if fn == nil {
		return false, m.failure("do", errNilFunc)
	}
	ctx = orBackground(ctx)
	joined, err := m.join(ctx)
	if err != nil {
		return false, err
	}
	if len(joined) > 0 {
		return true, m.whileJoined(joined, fn) //nolint:contextcheck // the scopes have ctx
	}
	m, done := m.forDo()
	defer done()
	h, err := m.lockInDo(ctx, once)
	if err != nil {
		return false, err
	}
	_, err = m.whileHeld(ctx, h, fn)
	return true, err
}

// forDo returns the Mutex that a Do of m uses. With WithShared or WithPermits, many goroutines may call Do of
// m at once: forDo returns m itself if it is not in use, and otherwise a new Mutex with the same settings. In
// any other case it returns m. The caller must call done when the Do has ended.
func (m *Mutex) forDo() (mine *Mutex, done func()) {
	if m.set == nil || !m.set.kind().sharesName {
		return m, func() {}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.usedByDo || m.hold != nil && m.hold.NotHeld(clock.Now()) == nil {
		return m.twin(), func() {}
	}
	m.usedByDo = true
	return m, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.usedByDo = false
	}
}

// whileHeld calls fn while m has h, then waits until the calls that have joined h have returned, and then unlocks h.
// For a Lead it reports whether h was lost before fn had returned. Its error is the reason why h was lost or could not be
// unlocked, joined with that of fn.
func (m *Mutex) whileHeld(ctx context.Context, h *lease.Lease, fn func(context.Context) error) (isLost bool, err error) {
	s := m.newNest(ctx, h)
	working, cancel := context.WithCancelCause(s)
	defer func() {
		if m.set.leads {
			isLost = errors.Is(h.Err(clock.Now()), ErrLockLost) // false if fn has unlocked m: then Err returns ErrNotHeld
		}
		cancel(nil)
		s.nest.finish(s)
		over := overSince(h) // before the release, because afterwards Err returns ErrNotHeld
		// The end of ctx must not cut the release. A ctx that cannot end needs no copy.
		if ctx.Done() != nil {
			ctx = context.WithoutCancel(ctx)
		}
		// Unlock only h: fn may have unlocked m, and another call may have locked m since.
		_, unlocked := m.unlockOnly(ctx, h)
		if loss := m.lossSince(h, unlocked); loss != nil {
			over = loss
		}
		if over != nil {
			err = withLoss(m.failure(m.set.doing(), over), over, err)
			return
		}
		err = errors.Join(unlocked, err)
	}()
	s.nest.begins(s, cancel)
	h.Listen(s.nest)
	return false, m.endedBy(ctx, working, fn(working)) //nolint:contextcheck // s has ctx
}

// whileJoined calls fn on the holds that the scopes have joined. Its error is the reasons why holds were lost, joined
// with that of fn.
func (m *Mutex) whileJoined(joined []*scope, fn func(context.Context) error) (err error) {
	working, cancel := context.WithCancelCause(joined[len(joined)-1])
	defer func() {
		for _, s := range slices.Backward(joined) {
			if lost := overSince(s.nest.hold); lost != nil {
				err = withLoss(m.failure("do", lost), lost, err)
			}
		}
		cancel(nil)
		leave(joined)
	}()
	for _, s := range joined {
		s.nest.begins(s, cancel)
	}
	return m.endedBy(joined[len(joined)-1].Context, working, fn(working))
}

// overSince returns why h is over, nil while it is held. A loss counts although the function has unlocked h after it.
func overSince(h *lease.Lease) error {
	over := h.Err(clock.Now())
	if loss := h.Loss(); loss != nil {
		return loss
	}
	return over
}

// lossSince returns why h, which m has just tried to unlock, was lost, nil if it was not. Often only the release finds that
// out. unlocked is the error of Unlock.
func (m *Mutex) lossSince(h *lease.Lease, unlocked error) error {
	loss := h.Loss()
	if loss == nil && unlocked != nil && m.current() == h {
		return asLost(ErrClosed, nil) // Close has begun meanwhile, and is about to end h
	}
	return loss
}

// withLoss returns the error of a Do whose hold was lost: told, which says that, joined with err, the error of the
// function. If err is the loss itself, which is the cause of the function's context, or the error of a Do that has joined
// the hold, the loss is not said again.
func withLoss(told, loss, err error) error {
	if tells(err, told) {
		return err
	}
	if err == loss { //nolint:errorlint // an error that wraps it says more
		err = nil
	}
	return errors.Join(told, err)
}

// tells reports whether err, or an error that is joined to it, tells of the loss that told tells of: a Do inside has lost
// the same lock.
func tells(err, told error) bool {
	if tellsOfOne(err, told) {
		return true
	}
	joined, ok := err.(interface{ Unwrap() []error }) //nolint:errorlint // see withLoss
	return ok && slices.ContainsFunc(joined.Unwrap(), func(one error) bool { return tells(one, told) })
}

// tellsOfOne reports whether a and b are failures of one operation on one lock because of one loss. They then have the
// very list of causes of that loss: see add. Another loss may have equal causes.
func tellsOfOne(a, b error) bool {
	f, isOne := a.(*failure)   //nolint:errorlint // a wrapper has a text of its own
	g, isOther := b.(*failure) //nolint:errorlint // see above
	return isOne && isOther && f.op == g.op && f.name == g.name &&
		len(f.causes) > 0 && len(g.causes) > 0 && &f.causes[0] == &g.causes[0]
}

// endedBy returns err, with which a function has returned that had the context working. If the end of ctx, the context
// that the caller gave, is the reason, it says that the lock was acquired: a bare "context deadline exceeded" reads as if it
// was not.
func (m *Mutex) endedBy(ctx, working context.Context, err error) error {
	if err == nil || ctx.Err() == nil || errors.Is(context.Cause(working), ErrLockLost) {
		return err
	}
	var told *afterLock // in this branch alone, because it is allocated
	if errors.As(err, &told) || !errors.Is(err, ctx.Err()) && !errors.Is(err, context.Cause(ctx)) {
		return err // a Do inside of this one has said so, or fn has failed for another reason
	}
	return &afterLock{fmt.Sprintf("redsync: %s %s", m.set.doing(), quoted(m.label())), err}
}

// An afterLock is the error of a function that has stopped because the caller's context ended.
type afterLock struct {
	what string
	err  error
}

func (e *afterLock) Error() string {
	return fmt.Sprintf("%s: the caller's context ended after the lock was acquired: %v", e.what, e.err)
}

func (e *afterLock) Unwrap() error { return e.err }

// doing returns the operation that the error names if the lock was lost: "lead" or "do".
func (s *settings) doing() string {
	if s.leads {
		return "lead"
	}
	return "do"
}

// lockInDo returns the hold of a Do: the one that m adopts, or a new one.
func (m *Mutex) lockInDo(ctx context.Context, once bool) (*lease.Lease, error) {
	if _, from := m.holdOrAdopted(); from != nil {
		if h, err := m.adoptInDo(ctx); h != nil || err != nil {
			return h, err
		}
	}
	return m.lock(ctx, once, true)
}

// adoptInDo makes the adopted value of m a hold of Do. It returns nil if another call has done so
// first, because then the hold belongs to that call.
func (m *Mutex) adoptInDo(ctx context.Context) (*lease.Lease, error) {
	t, err := m.beginCall()
	if err != nil {
		return nil, m.failure("lock", err)
	}
	defer m.core.endCall()
	_, from := m.holdOrAdopted()
	if from == nil {
		return nil, nil
	}
	start := clock.Now()
	h := m.adoptLease(termsInDo(t), from, start)
	adopted, _, err := m.adopt(ctx, h, from)
	if adopted {
		return h, nil
	}
	m.tellExtended(ctx, h, start, 0, err)
	return nil, err
}

// Context returns a context for work that needs the current lock of m. It is derived from parent, and ends when the
// lock ends: before Unlock, Detach or Close sends anything, or when it is lost, at Until at the latest. A later Lock
// does not revive it.
//
// After a loss context.Cause is what Err returns, and matches ErrLockLost. After Unlock or Detach it is
// context.Canceled. If m is not held, the context is over at once.
//
// Call Context once after each Lock: each call uses memory until its context ends. Work that goes on is not
// protected: see Fence. The context may be passed to Unlock, Detach or Close: the end of the lock does not cut them
// short.
func (m *Mutex) Context(parent context.Context) context.Context {
	to := &ending{Context: orBackground(parent)}
	ctx, end := context.WithCancelCause(to)
	h := m.current()
	if h == nil {
		end(ErrNotHeld)
		return ctx
	}
	to.end = end
	to.hold.Store(h)
	h.Listen(to)
	context.AfterFunc(ctx, func() { h.Forget(to) }) // if parent ends, the hold may go on for long
	return ctx
}

// An ending is the context that a context of Mutex.Context is derived from. It ends that context with the hold.
type ending struct {
	context.Context //nolint:containedctx // the parent

	hold atomic.Pointer[lease.Lease] // nil once the hold has ended, which the context may outlive for long
	end  context.CancelCauseFunc
}

// Ended implements lease.Listener. After Unlock and Detach loss is nil, which makes the cause context.Canceled.
func (e *ending) Ended(loss error) {
	e.hold.Store(nil) // before the context ends: see apart
	e.end(loss)
}

// Value implements context.Context.
func (e *ending) Value(key any) any {
	if key == (bondKey{}) {
		return e
	}
	return e.Context.Value(key)
}

func (e *ending) parent() context.Context { return e.Context }

func (e *ending) held() *lease.Lease { return e.hold.Load() }

// FromContext returns the Mutex that a Do or Lead holds, if ctx is the context of its function or derived from it.
// Otherwise, and for a nil ctx, it returns nil. The function may call Remaining, Valid, Until, Fence and Downgrade
// of the Mutex. It must leave Unlock to Do or Lead. Detach fails. With WithShared or WithPermits, Do may use
// another Mutex for the same lock (see Mutex.Do). Then FromContext returns that Mutex. If a Do has joined a hold,
// FromContext returns the Mutex of the Do that acquired the hold. If a Do has joined several holds, FromContext
// returns the Mutex of the innermost one.
func FromContext(ctx context.Context) *Mutex {
	if s := scopeOf(orBackground(ctx)); s != nil {
		return s.nest.mutex
	}
	return nil
}
