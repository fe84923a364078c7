package redsync

import (
	"context"
	"errors"
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

// Do locks m as LockContext does, calls fn, and unlocks m. While fn runs, a watchdog extends the hold,
// with or without WithWatchdog. The context of fn ends when ctx ends or when the lock is lost, at Until at the
// latest. After a loss context.Cause matches ErrLockLost.
//
// If Do cannot lock m, it does not call fn, and its error is that of LockContext. Otherwise Do returns the error of fn.
// If the lock was lost or could not be unlocked, the reason comes first, joined with that error, unless fn has returned
// this very reason, from context.Cause. After a loss it matches ErrLockLost, also if only the release has found the loss.
// The reason never matches ErrFailed, but it may match *ErrTaken: another client may have the lock by then. If fn stops
// because ctx has ended, the error says that this was after the lock was acquired. To bound the wait alone, use WithWait.
//
// If m has a lock to adopt (WithSequencer, WithValue), Do extends that lock instead of locking. If the extension
// fails, Do does not call fn, and its error is that of Extend. m then still has the lock to adopt, so a later Do
// extends again. Once m has been unlocked, a later Do locks.
//
// Do unlocks only the hold that it has acquired. If m is held already, by a Lock or by a Do that this call is not
// inside of, Do waits until that hold ends, as Lock does. With WithShared or WithPermits Do does not wait for the hold
// of m: it uses another Mutex for the same lock. If fn unlocks the Mutex of the Do, the context of fn does not end,
// and the error of Do matches ErrNotHeld.
//
// Do returns only after fn, so fn must return soon when its context ends. If fn panics, Do unlocks and the
// panic goes on.
//
// # A Do inside a Do
//
// The context shows which calls belong to a hold. If ctx is the context of the function of a Do on the same name,
// this Do joins the hold of that outer Do and sends nothing. It also joins if ctx is derived from that context, even
// by context.WithoutCancel. The call may come from another goroutine, and m may be another Mutex of the same New or
// Open. FromContext returns the outer Mutex. The context of fn also ends when the outer function has returned. The
// outer Do then waits until all joined functions have returned, and extends the hold meanwhile. After that it
// unlocks. A Lead counts as an outer Do, too.
//
// A lock on several names joins if the Dos around it hold all of its names, in one hold or in several. A lock on one
// name also joins a hold on several names that include it. Goroutines that join a hold do not exclude each other.
// Instead of joining, a call fails at once with an error that matches
//
//   - ErrNested, if m is exclusive and the hold is shared (WithShared, Downgrade);
//   - ErrNested, if its options ask for more than the hold has: a longer WithExpiry or WithLockDelay, a WithMaxHold
//     that differs from the hold's, any WithMinHold, or WithFencing if the hold has no token. These options count only
//     if they were set, on m or by Redsync.With. All other options have no effect on a joined call;
//   - ErrNested, if the limit of WithNesting is reached;
//   - ErrNested, if the Dos around the call hold some of the names of m but not all;
//   - ErrNested, if m wants a permit (WithPermits) and a Do around the call has a permit of the same semaphore.
//
// Hooks are not told of a call that joins.
//
// If the hold is over, or Unlock has ended it, there is nothing to join, and the call locks. After the outer function
// has returned, a call still joins if it comes from inside a joined function that is still running. The context of the
// call's own fn is then done from the start. Any other call locks, and so waits for the release: for example, a call
// in a goroutine that has outlived these functions. A Do that adopts a lock (WithSequencer, WithValue) never joins.
func (m *Mutex) Do(ctx context.Context, fn func(context.Context) error) error {
	_, err := m.do(ctx, fn, false)
	return err
}

// TryDo does what Do does, but does not wait for the lock: it locks m as TryLockContext does. ran says whether it has
// called fn.
//
//   - true, err: err is that of Do: the error of fn, or the reason why the lock was lost or could not be unlocked, or
//     both.
//   - false, nil: others have the lock, or are ahead (WithFair, WithShared). That is no failure: if several processes
//     call TryDo at the same moment, it is the normal outcome for all but one.
//   - false, err: fn was not called for another reason. Too few nodes have answered, ctx is done, an option or the name
//     cannot be used, the call conflicts with a Do around it, or m could not extend the lock that it adopts.
//
// If fn returns an error, ran is true, even if that error says that another lock is taken. With WithMinHold, TryDo runs
// a scheduled job once per tick.
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

// lossSince returns why h, which m has just tried to unlock, was lost, nil if it was not. Often only the release finds that
// out. unlocked is the error of Unlock.
func (m *Mutex) lossSince(h *lease.Lease, unlocked error) error {
	loss := h.Loss()
	if loss == nil && unlocked != nil && m.current() == h {
		return asLost(ErrClosed, nil) // Close has begun meanwhile, and is about to end h
	}
	return loss
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

// Context returns a context for work that needs the current hold of m. It ends when the hold ends: with Unlock, Detach
// or Close, when the lock is lost, and at Until at the latest. So a watchdog, or an Extend, makes it last longer. It
// also ends when parent ends, and has the values and the deadline of parent.
//
// context.Cause says what has ended it. For a loss that is ErrLockLost with its cause, as Err returns it, and for the
// end of parent the cause of parent. For Unlock and Detach it is context.Canceled, even if Unlock fails: the holder
// itself has ended the hold, which is no loss. Err then returns ErrNotHeld. The cause is not ErrNotHeld, because that
// error matches ErrLockAlreadyExpired, and the work would see a loss. If m is not held, the context is over at once,
// and its cause is what Err returns.
//
// The context ends before Unlock, Detach or Close sends anything, so before another client can acquire the lock. It
// belongs to one hold: a later Lock does not revive it. If time alone ends the hold, the context ends when Lost is
// closed, which may be late.
//
// Work that goes on after its context has ended is not protected: see Fence. Each call of Context uses memory until its
// context ends, so call it once for each hold, and not before each step. The function of Do has such a context already.
//
// Both kinds of context, and those derived from them, may be passed to the very call that ends the hold: UnlockContext,
// Detach, ForceUnlock, Close, or an Extend, a Downgrade or a Valid that finds the loss. The call does not give up because
// the hold has ended, but if parent ends, or at the deadline of its context.
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
func (e *ending) held() *lease.Lease      { return e.hold.Load() }

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
