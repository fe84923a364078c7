package redsync

import (
	"context"
	"errors"
	"slices"
)

// Do locks name, calls fn, and unlocks. While fn runs the lock extends itself, as with
// WithWatchdog. The context of fn ends when ctx does, or when the lock is lost, which is at
// Until at the latest. After a loss context.Cause matches ErrLockLost. The options configure
// this lock alone; WithWatchdog is implied.
//
// If Lock fails, Do returns its error and does not call fn. If the lock was taken, that error matches
// ErrFailed and *ErrTaken. Otherwise Do returns the error of fn, joined with the reason why the lock was
// lost or could not be unlocked. That reason may match *ErrTaken, because another client has the lock by
// now, but not ErrFailed.
//
// Do returns only after fn, so fn must return soon when its context ends. If fn panics, Do unlocks and the
// panic goes on.
func (r *Redsync) Do(ctx context.Context, name string, fn func(context.Context) error, options ...Option) (err error) {
	if fn == nil {
		return errors.New("redsync: Do: the function is nil")
	}
	m := r.NewMutex(name, append(slices.Clone(options), WithWatchdog())...)
	m.inDo.Store(true)
	defer m.inDo.Store(false)
	ctx = orBackground(ctx)
	if err := m.LockContext(ctx); err != nil {
		return err
	}
	working, cancel := context.WithCancelCause(context.WithValue(ctx, mutexKey{}, m))
	defer func() {
		lost := m.Err() // before Unlock, because afterwards Err returns ErrNotHeld
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

type mutexKey struct{}

// FromContext returns the Mutex that Do holds, if ctx is the context of Do's function or is derived
// from it; otherwise nil. The function may call Remaining, Valid and Until of the Mutex. It must
// leave Unlock to Do. Detach fails.
func FromContext(ctx context.Context) *Mutex {
	m, _ := ctx.Value(mutexKey{}).(*Mutex)
	return m
}
