package redsync_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
	"github.com/seed14bd9ef4/redsync/observe"
	"github.com/seed14bd9ef4/redsync/redsynctest"
)

// This file shows that an error says who has the lock.

// waysToGiveUp are calls that acquire nothing, and ask who has the lock.
var waysToGiveUp = map[string]func(u user, m *redsync.Mutex) error{
	"Lock":                func(_ user, m *redsync.Mutex) error { return m.Lock() },
	"TryLock":             func(_ user, m *redsync.Mutex) error { return m.TryLock() },
	"Do":                  func(u user, m *redsync.Mutex) error { return m.Do(u.Context(), nothing) },
	"a context that ends": func(u user, m *redsync.Mutex) error { return m.LockContext(limited(u, 2*sec)) },
}

func TestErrTakenSaysTheOwner(t *testing.T) {
	parallelComputing(t)
	testlength.NotShort(t)
	for name, call := range waysToGiveUp {
		for _, kind := range lockKinds {
			playAs(t, name+", "+kind.column, func(f field) {
				holder := locked(f, kind.rival(f.another(withOwner("worker-7@host")), withWatchdog))
				time.Sleep(12 * sec)
				r := &redsynctest.Recorder{}
				m := kind.lock(f.another(withOwner("me"), withTries(3), recordsTo(r)))
				err := call(f.user, m)
				taken := isTaken(f, err)
				assert.Equal(f, "worker-7@host", taken.Owner)
				assert.Equal(f, "a", taken.Name)
				assert.Regexp(f, `: lock already taken, locked nodes: \[[\d ]+\], by worker-7@host for 1[2-4] s`, err.Error())
				assert.ErrorIs(f, err, redsync.ErrFailed)
				synctest.Wait()
				attempts := redsynctest.Events[observe.Attempt](r)
				require.NotEmpty(f, attempts)
				errorIs(f, err, attempts[len(attempts)-1].Err) // the error is that of the last attempt
				assert.Equal(f, err, redsynctest.Events[observe.NotAcquired](r)[0].Err)
				f.unlock(holder)
			})
		}
	}
}

// A holder that says no owner, and nodes that do not tell in time, change nothing of the error.
func TestErrTakenWithoutAnOwner(t *testing.T) {
	play(t, func(f field) {
		holder := locked(f, f.another().NewMutex("a", withWatchdog))
		m := f.NewMutex("a", withOwner("me"))
		assert.Empty(f, isTaken(f, m.TryLock()).Owner)
		f.unlock(holder)

		holder = f.another(withOwner("them")).NewMutex("a", withWatchdog)
		locked(f, holder)
		ctx := limited(f, sec)
		time.AfterFunc(900*ms, func() { f.freeze(majority...) })
		start := time.Now()
		err := f.NewMutex("a", withOwner("me"), forever).LockContext(ctx)
		errorIs(f, err, context.DeadlineExceeded)
		assert.LessOrEqual(f, time.Since(start), 1050*ms)
		assert.Empty(f, isTaken(f, err).Owner)
		f.thaw(majority...)
		f.unlock(holder)
	})
}
