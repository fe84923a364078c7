package redsync

import (
	"context"
	"errors"
	"slices"
)

// Do locks name, calls fn, and unlocks. Meanwhile the lock extends itself, as with
// WithWatchdog. fn's context is done when ctx is, or when the lock is lost, no
// later than Until: context.Cause then matches ErrLockLost. The options configure
// this lock alone; WithWatchdog is implied.
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
	m.inDo.Store(true)
	defer m.inDo.Store(false)
	ctx = orBackground(ctx)
	if err := m.LockContext(ctx); err != nil {
		return err
	}
	working, cancel := context.WithCancelCause(context.WithValue(ctx, mutexKey{}, m))
	defer func() {
		lost := m.Err() // asked before Unlock, after which it is ErrNotHeld
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

// FromContext returns the Mutex that Do holds for the function whose context ctx is,
// or is derived from; nil if there is none. The function may ask it (Remaining,
// Valid, Until), and leaves Unlock to Do; Detach fails.
func FromContext(ctx context.Context) *Mutex {
	m, _ := ctx.Value(mutexKey{}).(*Mutex)
	return m
}
