package redsync

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// This file is automatic extension: the watchdog of a hold, which runs on the
// core's schedule and keeps no goroutine, and Do.

// A watchdog extends its hold every third of the expiry, counted from the hold's
// start: a late timer shifts nothing. One round is open at a time. If it is not
// decided in time, or decided against, another follows, so that a quorum of nodes
// that answers again before the end of the validity is enough.
type watchdog struct {
	hold  *hold
	event event // when there is something to do

	mu      sync.Mutex
	stopped bool
	round   *round        // the open one, nil between extensions
	start   instant       // when it began
	left    time.Duration // of the validity then
	backoff time.Duration // after the last one, if it failed
}

// firstBackoff is the part of the patience after which a round that failed is
// followed by another; it doubles.
const firstBackoff = 8

// startWatchdog watches over h, which has just begun.
func startWatchdog(h *hold) *watchdog {
	w := &watchdog{hold: h}
	w.event.what = w
	w.schedule(w.next(now()))
	return w
}

// stop lets go of the hold, which is over. Nothing that the watchdog has begun
// sends anything after it.
func (w *watchdog) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	w.hold.core.extends.drop(&w.event)
	if w.round != nil {
		w.round.close()
	}
}

// schedule makes the watchdog act in a while. It need not succeed: the schedule
// is closed only with the core, which ends all holds.
func (w *watchdog) schedule(after time.Duration) {
	w.hold.core.extends.set(&w.event, time.Now().Add(after))
}

// next returns how long it is to the next third of the expiry.
func (w *watchdog) next(now instant) time.Duration {
	third := w.hold.timing.expiry / 3
	return third - (now.mono-w.hold.first.mono)%third
}

// patience is how long a round may be undecided before another is tried, which
// goes behind it and is answered right after it.
func (w *watchdog) patience() time.Duration {
	return max(w.hold.timing.nodeTimeout, w.hold.timing.expiry/10)
}

// decided wakes the watchdog for the outcome of its round.
func (w *watchdog) decided() { w.schedule(0) }

// fire acts: on the outcome of the round, or by starting one. It runs on the
// schedule's goroutine.
func (w *watchdog) fire(closing bool) {
	if closing {
		return
	}
	if lost := w.act(); lost != nil {
		_ = w.hold.lose(lost)
	}
}

// act returns why the lock is lost, if the nodes prove that it is.
func (w *watchdog) act() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		return nil
	}
	if w.round == nil {
		w.extend()
		return nil
	}
	res := w.round.result(errNoAnswer)
	w.round = nil
	w.tell(res)
	switch {
	case res.tally.won():
		w.backoff = 0
		w.schedule(w.next(now()))
	case w.hold.lostBy(res):
		return res.err()
	case !res.decided():
		w.extend()
	default:
		patience := w.patience()
		w.backoff = min(max(2*w.backoff, patience/firstBackoff), patience)
		w.schedule(w.backoff)
	}
	return nil
}

// extend starts a round. It does nothing when the hold is over, or lasts as long
// as WithMaxHold allows already.
func (w *watchdog) extend() {
	e, err := w.hold.extension(now())
	if err != nil {
		return
	}
	w.start, w.left = e.start, w.hold.remaining(e.start)
	w.round = &round{then: w}
	w.round.init(w.hold.core, false)
	w.schedule(w.patience()) // before the start, which may decide
	w.round.start(e)
}

// tell tells what the round has come to.
func (w *watchdog) tell(res result) {
	if w.hold.set.observers == nil {
		return
	}
	var err error
	if !res.tally.won() {
		err = because(ErrExtendFailed, res.err())
	}
	event := w.hold.extendedEvent(w.start, w.left, err)
	event.Watchdog = true
	later(w.hold.core, w.hold.set.observers, ExtendedObserver.ObserveExtended, event)
}

// Lost returns a channel that is closed when the current hold can no longer be
// proven: at Until by the clock on which more time has passed (and the lateness of
// a timer), whether or not the network answers, or at once when an extension or a
// Valid proves that the nodes do not hold the lock any more, or on Close. Err says
// why. Unlock does not close it. Without a hold Lost returns nil.
//
// A machine that is suspended tells when it runs again; a wall clock that is set
// forward is noticed within a tenth of the expiry, and within 1 s.
func (m *Mutex) Lost() <-chan struct{} {
	if h := m.current(); h != nil {
		return h.gone()
	}
	return nil
}

// Err returns nil while m is held, and otherwise why it is not: ErrNotHeld before
// the first Lock and after Unlock; else ErrLockLost with its cause, which is
// ErrLockAlreadyExpired (Until has passed, or the nodes proved the loss and how),
// ErrMaxHold or ErrClosed. It sends nothing.
func (m *Mutex) Err() error {
	if h := m.current(); h != nil {
		return h.err(now())
	}
	return ErrNotHeld
}

// Do locks name, calls fn, and unlocks. Meanwhile the lock extends itself, as with
// WithWatchdog. fn's context is done when ctx is, or when the lock is lost, no
// later than Until: context.Cause then matches ErrLockLost.
//
// Do returns the error of Lock, without having called fn; else what fn returned,
// joined with why the lock was lost or could not be unlocked, so that neither hides
// the other. It returns after fn, which must heed its context. A panic in fn goes
// on when the lock is unlocked.
func (r *Redsync) Do(ctx context.Context, name string, fn func(context.Context) error, options ...Option) (err error) {
	if fn == nil {
		return errors.New("redsync: Do: the function is nil")
	}
	m := r.NewMutex(name, append(slices.Clone(options), WithWatchdog())...)
	ctx = orBackground(ctx)
	if err := m.LockContext(ctx); err != nil {
		return err
	}
	working, cancel := context.WithCancelCause(ctx)
	defer func() {
		lost := m.Err()
		cancel(nil)
		_, unlocked := m.UnlockContext(context.WithoutCancel(ctx))
		if lost != nil {
			unlocked = m.failure("do", lost)
		}
		err = errors.Join(err, unlocked)
	}()
	go func() {
		select {
		case <-m.Lost():
			cancel(m.Err())
		case <-working.Done():
		}
	}()
	return fn(working)
}
