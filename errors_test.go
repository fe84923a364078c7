package redsync_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
)

// Errors can be compared, and are the same as long as they say the same.

func TestEveryErrorCanBeComparedAndIsAKey(t *testing.T) {
	play(t, func(f field) {
		var all []error
		note := func(_ any, err error) {
			f.Helper()
			require.Error(f, err)
			all = append(all, err)
		}
		m := f.held(redsync.WithMaxHold(3 * time.Second))
		note(nil, f.NewMutex("lock").TryLock())
		time.Sleep(4 * time.Second)
		note(nil, m.Err())
		for _, do := range operations(m) {
			note(do())
		}
		m = f.held(redsync.WithExpiry(time.Second))
		f.lose(0, 1, 2)
		note(m.Extend())
		note(nil, m.Err())
		time.Sleep(2 * time.Second)
		m = f.held()
		note(nil, f.Do(f.Context(), "lock", nil))
		note(nil, f.Do(f.Context(), "lock", func(context.Context) error { return nil }, redsync.WithTries(2)))
		f.freeze(0, 1, 2)
		note(m.Extend())
		note(m.Unlock())
		note(nil, f.NewMutex("lock").TryLock())
		note(nil, f.Current(f.Context(), redsync.Sequencer{Name: "lock", Value: "v"}))
		ctx, cancel := context.WithCancelCause(f.Context())
		cancel(errors.New("enough"))
		note(nil, f.NewMutex("lock").LockContext(ctx))
		f.thaw(0, 1, 2)
		_ = f.Close(f.Context())
		note(nil, f.NewMutex("lock").Lock())
		for _, err := range all {
			assert.NotPanics(f, func() {
				_ = map[error]int{err: 1}
				for each := err; each != nil; each = errors.Unwrap(each) {
					_ = map[error]int{each: 1}
				}
			}, "%v", err)
		}
	})
}

func TestErrIsTheSameErrorEachTime(t *testing.T) {
	for name, lose := range map[string]func(f field) *redsync.Mutex{
		"expired": func(f field) *redsync.Mutex {
			m := f.held(redsync.WithExpiry(time.Second))
			time.Sleep(time.Second)
			return m
		},
		"held for the longest time": func(f field) *redsync.Mutex {
			m := f.held(redsync.WithMaxHold(time.Second))
			time.Sleep(time.Second)
			return m
		},
		"proven": func(f field) *redsync.Mutex {
			m := f.held()
			f.lose(0, 1, 2)
			_, _ = m.Valid()
			return m
		},
		"closed": func(f field) *redsync.Mutex {
			m := f.held()
			_ = f.Close(f.Context())
			return m
		},
	} {
		t.Run(name, func(t *testing.T) {
			observe(t, func(f field, r *recorder) {
				m := lose(f)
				err := m.Err()
				require.ErrorIs(t, err, redsync.ErrLockLost)
				_, _ = m.Valid()
				_, _ = m.Extend()
				assert.Same(t, err, m.Err())
				_, told := only[redsync.Lost](t, r)
				assert.Same(t, err, told)
			})
		})
	}
}

// A program for redsync v4 looks for ErrLockAlreadyExpired after a second Unlock.
func TestErrNotHeldMatchesWhatRedsyncReturns(t *testing.T) {
	play(t, func(f field) {
		m := f.held()
		_, err := m.Unlock()
		require.NoError(t, err)
		ok, err := m.Unlock()
		assert.False(t, ok)
		require.ErrorIs(t, err, redsync.ErrLockAlreadyExpired)
		require.ErrorIs(t, err, redsync.ErrNotHeld)
		require.NotErrorIs(t, err, redsync.ErrLockLost)
		assert.EqualError(t, err, `redsync: unlock "lock": lock not held`)
		assert.Equal(t, redsync.ErrNotHeld, m.Err()) //nolint:testifylint // it is the very same
		assert.True(t, m.Err() == redsync.ErrNotHeld)
		require.NotErrorIs(t, redsync.ErrLockAlreadyExpired, redsync.ErrNotHeld)
		require.NotErrorIs(t, redsync.ErrNotHeld, redsync.ErrClosed)
	})
}

// Unlock and Detach end an Extend that is under way. The lock is not lost by that.
func TestExtendThatIsInterruptedIsNotALoss(t *testing.T) {
	for name, end := range map[string]func(f field, m *redsync.Mutex){
		"Unlock": func(_ field, m *redsync.Mutex) { _, _ = m.Unlock() },
		"Detach": func(f field, m *redsync.Mutex) { _, _ = m.Detach(f.Context()) },
	} {
		for kind, options := range map[string][]redsync.Option{"": nil, ", healing": {redsync.WithSetNXOnExtend()}} {
			t.Run(name+kind, func(t *testing.T) {
				play(t, func(f field) {
					m := f.held(options...)
					f.freeze(0, 1, 2)
					var wg sync.WaitGroup
					wg.Go(func() {
						ok, err := m.Extend()
						assert.False(f, ok)
						assert.ErrorIs(f, err, redsync.ErrNotHeld)
						assert.NotErrorIs(f, err, redsync.ErrLockLost)
						assert.NotErrorIs(f, err, redsync.ErrExtendFailed)
					})
					time.Sleep(10 * time.Millisecond)
					end(f, m)
					wg.Wait()
					f.thaw(0, 1, 2)
				})
			})
		}
	}
}
