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

// Do calls Mutex.Do of a new Mutex with this name and these options.
func (r *Redsync) Do(ctx context.Context, name string, fn func(context.Context) error, options ...Option) error {
	return r.NewMutex(name, options...).Do(ctx, fn)
}

// TryDo calls Mutex.TryDo of a new Mutex with this name and these options.
func (r *Redsync) TryDo(
	ctx context.Context, name string, fn func(context.Context) error, options ...Option,
) (ran bool, err error) {
	return r.NewMutex(name, options...).TryDo(ctx, fn)
}

// Do locks m as LockContext does, calls fn, and unlocks m. A watchdog extends the lock meanwhile. The context of fn
// ends with ctx, or when the lock is lost, at Until at the latest: fn must return soon then, because Do waits for it.
// If fn panics, Do unlocks and the panic goes on.
//
// If ctx comes from a Do on the same name, Do joins that lock and sends nothing: see docs/nesting.md. If m is locked
// otherwise, Do waits. With WithShared or WithPermits, many goroutines may call Do of one Mutex at once. With
// WithSequencer or WithValue, Do extends the adopted lock.
//
// Errors:
//
//   - That of LockContext, or of ExtendContext for an adopted lock: fn was not called.
//   - ErrNested, if the call conflicts with a Do around it.
//   - ErrLockLost after a loss, joined with the error of fn: the context of fn has that cause. It may match *ErrTaken,
//     and never ErrFailed.
//   - That of Unlock, joined with that of fn: ErrNotHeld if fn has unlocked m, which does not end its context.
//   - Otherwise that of fn. If ctx has ended, the text says that the lock had been acquired.
func (m *Mutex) Do(ctx context.Context, fn func(context.Context) error) error {
	_, err := m.do(ctx, fn, false)
	return err
}

// TryDo is Do that does not wait: it locks m as TryLockContext does. For a job once per tick see docs/cron.md.
//
//   - false, nil: others have the lock, or are ahead (WithFair, WithShared).
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

// isContention reports whether err says that others have the lock, and nothing else.
func isContention(err error) bool {
	return errors.Is(err, ErrFailed) && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded)
}

var errNilFunc = errors.New("redsync: the function is nil")

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

// forDo returns the Mutex that a Do of m uses: for kinds with sharesName a twin if m is in use.
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

// whileHeld calls fn while m has h, waits for calls that have joined h, and unlocks h. For a Lead, isLost says that h
// was lost before fn returned.
func (m *Mutex) whileHeld(ctx context.Context, h *lease.Lease, fn func(context.Context) error) (isLost bool, err error) {
	s := m.newNest(ctx, h)
	working, cancel := context.WithCancelCause(s)
	defer func() {
		if m.set.leads {
			isLost = errors.Is(h.Err(clock.Now()), ErrLockLost) // false if fn has unlocked m
		}
		cancel(nil)
		s.nest.finish(s)
		over := overSince(h) // before the release: then Err returns ErrNotHeld
		// The end of ctx must not cut the release.
		if ctx.Done() != nil {
			ctx = context.WithoutCancel(ctx)
		}
		// fn may have unlocked m, and another call locked it.
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

// overSince returns why h is over. A loss counts even if h was then unlocked.
func overSince(h *lease.Lease) error {
	over := h.Err(clock.Now())
	if loss := h.Loss(); loss != nil {
		return loss
	}
	return over
}

// lossSince returns why h was lost. Often only the release, which returned unlocked, finds out.
func (m *Mutex) lossSince(h *lease.Lease, unlocked error) error {
	loss := h.Loss()
	if loss == nil && unlocked != nil && m.current() == h {
		return asLost(ErrClosed, nil) // Close is about to end h
	}
	return loss
}

// withLoss joins told, which says that the hold of a Do was lost, with err, the function's error, unless that says so
// already: as the cause of its context, or from a Do that has joined.
func withLoss(told, loss, err error) error {
	if tells(err, told) {
		return err
	}
	if err == loss { //nolint:errorlint // an error that wraps it says more
		err = nil
	}
	return errors.Join(told, err)
}

// tells reports whether err, or an error joined to it, tells of the same loss as told.
func tells(err, told error) bool {
	if tellsOfOne(err, told) {
		return true
	}
	joined, ok := err.(interface{ Unwrap() []error }) //nolint:errorlint // see withLoss
	return ok && slices.ContainsFunc(joined.Unwrap(), func(one error) bool { return tells(one, told) })
}

// tellsOfOne reports whether a and b are failures of one operation on one lock by one loss: they share the list of
// causes (see add). Equal causes may be of another loss.
func tellsOfOne(a, b error) bool {
	f, isOne := a.(*failure)   //nolint:errorlint // a wrapper has a text of its own
	g, isOther := b.(*failure) //nolint:errorlint // see above
	return isOne && isOther && f.op == g.op && f.name == g.name &&
		len(f.causes) > 0 && len(g.causes) > 0 && &f.causes[0] == &g.causes[0]
}

// endedBy returns err, the error of a function. If the caller's ctx has ended it, it says that the lock was acquired: a
// bare "context deadline exceeded" reads as if it was not.
func (m *Mutex) endedBy(ctx, working context.Context, err error) error {
	if err == nil || ctx.Err() == nil || errors.Is(context.Cause(working), ErrLockLost) {
		return err
	}
	var told *afterLock
	if errors.As(err, &told) || !errors.Is(err, ctx.Err()) && !errors.Is(err, context.Cause(ctx)) {
		return err // an inner Do has said so, or another reason
	}
	return &afterLock{fmt.Sprintf("redsync: %s %s", m.set.doing(), quoted(m.label())), err}
}

type afterLock struct {
	what string
	err  error
}

func (e *afterLock) Error() string {
	return fmt.Sprintf("%s: the caller's context ended after the lock was acquired: %v", e.what, e.err)
}

func (e *afterLock) Unwrap() error { return e.err }

func (s *settings) doing() string {
	if s.leads {
		return "lead"
	}
	return "do"
}

func (m *Mutex) lockInDo(ctx context.Context, once bool) (*lease.Lease, error) {
	if _, from := m.holdOrAdopted(); from != nil {
		if h, err := m.adoptInDo(ctx); h != nil || err != nil {
			return h, err
		}
	}
	return m.lock(ctx, once, true)
}

// adoptInDo makes the adopted value of m a hold of Do. It returns nil if another call has done so.
func (m *Mutex) adoptInDo(ctx context.Context) (*lease.Lease, error) {
	t, err := m.beginCall()
	if err != nil {
		return nil, m.failure("lock", err)
	}
	defer m.core.keeper.EndCall()
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

// Context returns a context, derived from parent, that ends with the current lock of m: before Unlock, Detach or Close
// sends anything, or when the lock is lost, at Until at the latest. If m is not held, it is over at once. After a loss
// context.Cause matches ErrLockLost. After Unlock or Detach it is context.Canceled.
//
// Call Context once after each Lock: each call uses memory until its context ends. Unlock, Detach and Close may have
// it: the end of the lock does not cut them short.
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
	context.AfterFunc(ctx, func() { h.Forget(to) }) // parent may end long before the hold
	return ctx
}

// An ending is the parent of a context of Mutex.Context, which it ends with the hold.
type ending struct {
	context.Context //nolint:containedctx // the parent

	hold atomic.Pointer[lease.Lease] // nil after the hold: the context may outlive it
	end  context.CancelCauseFunc
}

// Ended implements lease.Listener. loss is nil after Unlock and Detach.
func (e *ending) Ended(loss error) {
	e.hold.Store(nil) // before the context ends: see apart
	e.end(loss)
}

func (e *ending) Value(key any) any {
	if key == (bondKey{}) {
		return e
	}
	return e.Context.Value(key)
}

func (e *ending) parent() context.Context { return e.Context }

func (e *ending) held() *lease.Lease { return e.hold.Load() }

// FromContext returns the Mutex that a Do or Lead holds, if ctx is the context of its function or derived from it, else
// nil. The function may call its Remaining, Valid, Until, Fence and Downgrade. Unlock is for Do or Lead, and Detach
// fails. With WithShared, WithPermits, or if the Do has joined a hold, it may be another Mutex than that of the Do.
func FromContext(ctx context.Context) *Mutex {
	if s := scopeOf(orBackground(ctx)); s != nil {
		return s.nest.mutex
	}
	return nil
}
