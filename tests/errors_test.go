package redsync_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-multierror"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/embedded"
	"github.com/seed14bd9ef4/redsync/observe"
	"github.com/seed14bd9ef4/redsync/redsynctest"
)

// This file tests that errors can be compared, and are equal as long as they say the same.

func TestEveryErrorCanBeComparedAndIsAKey(t *testing.T) {
	onKit(t, func(k kit) {
		var all []error
		note := func(_ any, err error) {
			k.Helper()
			require.Error(k, err)
			all = append(all, err)
		}
		m := k.held(redsync.WithMaxHold(3 * time.Second))
		note(nil, k.NewMutex("lock").TryLock())
		time.Sleep(4 * time.Second)
		note(nil, m.Err())
		for _, do := range operations(m) {
			note(do())
		}
		m = k.held(redsync.WithExpiry(time.Second))
		k.lose(0, 1, 2)
		note(m.Extend())
		note(nil, m.Err())
		time.Sleep(2 * time.Second)
		m = k.held()
		note(nil, k.Do(k.Context(), "lock", nil))
		note(nil, k.Do(k.Context(), "lock", func(context.Context) error { return nil }, redsync.WithTries(2)))
		k.freeze(0, 1, 2)
		note(m.Extend())
		note(m.Unlock())
		note(nil, k.NewMutex("lock").TryLock())
		note(nil, k.Current(k.Context(), redsync.Sequencer{Name: "lock", Value: "v"}))
		ctx, cancel := context.WithCancelCause(k.Context())
		cancel(errors.New("enough"))
		note(nil, k.NewMutex("lock").LockContext(ctx))
		k.thaw(0, 1, 2)
		_ = k.Close(k.Context())
		note(nil, k.NewMutex("lock").Lock())
		for _, err := range all {
			assert.NotPanics(k, func() {
				_ = map[error]int{err: 1}
				for each := err; each != nil; each = errors.Unwrap(each) {
					_ = map[error]int{each: 1}
				}
			}, "%v", err)
		}
	})
}

func TestErrIsTheSameErrorEachTime(t *testing.T) {
	for name, lose := range map[string]func(k kit) *redsync.Mutex{
		"expired": func(k kit) *redsync.Mutex {
			m := k.held(redsync.WithExpiry(time.Second))
			time.Sleep(time.Second)
			return m
		},
		"held for the longest time": func(k kit) *redsync.Mutex {
			m := k.held(redsync.WithMaxHold(time.Second))
			time.Sleep(time.Second)
			return m
		},
		"proven": func(k kit) *redsync.Mutex {
			m := k.held()
			k.lose(0, 1, 2)
			_, _ = m.Valid()
			return m
		},
		"closed": func(k kit) *redsync.Mutex {
			m := k.held()
			_ = k.Close(k.Context())
			return m
		},
	} {
		t.Run(name, func(t *testing.T) {
			observingKit(t, func(k kit, r *redsynctest.Recorder) {
				m := lose(k)
				err := m.Err()
				require.ErrorIs(t, err, redsync.ErrLockLost)
				_, _ = m.Valid()
				_, _ = m.Extend()
				assert.Same(t, err, m.Err())
				_, told := only[observe.Lost](t, r)
				assert.Same(t, err, told)
				_, _ = m.Unlock()
			})
		})
	}
}

// A program for redsync v4 looks for ErrLockAlreadyExpired after a second Unlock.
func TestErrNotHeldMatchesWhatRedsyncReturns(t *testing.T) {
	onKit(t, func(k kit) {
		m := k.held()
		_, err := m.Unlock()
		require.NoError(t, err)
		ok, err := m.Unlock()
		assert.False(t, ok)
		require.ErrorIs(t, err, redsync.ErrLockAlreadyExpired)
		require.ErrorIs(t, err, redsync.ErrNotHeld)
		require.NotErrorIs(t, err, redsync.ErrLockLost)
		assert.EqualError(t, err, `redsync: unlock "lock": lock not held`)
		assert.Equal(t, redsync.ErrNotHeld, m.Err())  //nolint:testifylint // it is the very same
		assert.True(t, m.Err() == redsync.ErrNotHeld) //nolint:errorlint // as programs for redsync v4 compare
		require.NotErrorIs(t, redsync.ErrLockAlreadyExpired, redsync.ErrNotHeld)
		require.NotErrorIs(t, redsync.ErrNotHeld, redsync.ErrClosed)
	})
}

// The errors of two calls are different errors, although both say the same of their locks.
func TestTheErrorOfACallIsNotThatOfAnother(t *testing.T) {
	onKit(t, func(k kit) {
		_, one := k.NewMutex("one").Unlock()
		_, other := k.NewMutex("other").Unlock()
		for _, err := range []error{one, other} {
			require.ErrorIs(t, err, redsync.ErrNotHeld)
			require.ErrorIs(t, err, err)
		}
		assert.NotErrorIs(t, one, other)
	})
}

// Each message says everything once, and always in one order: what failed, why, and on which nodes.
func TestErrorsReadAsOneSentence(t *testing.T) {
	onNodes := func(f field, do func(n *embedded.Node)) {
		for _, n := range f.nodes[:3] {
			do(n)
		}
	}
	take := func(f field) {
		onNodes(f, func(n *embedded.Node) { require.NoError(f, n.Set("lock", "another's")) })
	}
	failure := func(_ bool, err error) error { return err }
	for want, fail := range map[string]func(f field, m *redsync.Mutex) error{
		`redsync: failed to acquire lock "lock": it is taken on nodes #0 #1 #2 #3 #4`: func(f field, _ *redsync.Mutex) error {
			return f.NewMutex("lock", redsync.WithFailFast(false)).TryLock()
		},
		`redsync: unlock "lock": lock was already expired: another value on nodes #0 #1 #2`: func(f field, m *redsync.Mutex) error {
			take(f)
			return failure(m.Unlock())
		},
		`redsync: extend "lock": lock was already expired`: func(_ field, m *redsync.Mutex) error {
			time.Sleep(8 * time.Second)
			return failure(m.Extend())
		},
		`redsync: unlock "a, b": lock was already expired: node #0 (127.0.0.1:7001): not all keys of the lock were there; ` +
			`node #1 (127.0.0.1:7002): not all keys of the lock were there; ` +
			`node #2 (127.0.0.1:7003): not all keys of the lock were there`: func(f field, _ *redsync.Mutex) error {
			return failure(f.lostKeys([]string{"a", "b"}, "b").Unlock())
		},
		`redsync: failed to acquire lock "new": it is taken on nodes #2 #3 #4: ` +
			`node #0 (127.0.0.1:7001): dial 127.0.0.1:7001: connection refused; ` +
			`node #1 (127.0.0.1:7002): dial 127.0.0.1:7002: connection refused`: func(f field, _ *redsync.Mutex) error {
			f.nodes[0].Kill()
			f.nodes[1].Kill()
			synctest.Wait()                 // the ends of the connections have been noticed
			for _, n := range f.nodes[2:] { // if some granted, the call would not wait until the dials have failed
				require.NoError(f, n.Set("new", "another's"))
			}
			return f.NewMutex("new", redsync.WithFailFast(false)).TryLock()
		},
	} {
		t.Run(want, func(t *testing.T) {
			play(t, func(f field) { assert.EqualError(t, fail(f, f.held()), want) })
		})
	}
}

// lostKeys returns a lock on several names that has lost the key of one name on the first three nodes.
func (f field) lostKeys(names []string, name string, options ...redsync.Option) *redsync.Mutex {
	f.Helper()
	m := f.locked(names, append(options, redsync.WithFailFast(false))...)
	for _, n := range f.nodes[:3] {
		n.Del(name)
	}
	return m
}

// TestErrorsOfNodesMatchInBothWaysOfRedsync matches the errors of nodes as programs do that were written for
// redsync v4: as a *multierror.Error (up to v4.16.0) and by walking what errors.Join returned (since v4.17.0).
func TestErrorsOfNodesMatchInBothWaysOfRedsync(t *testing.T) {
	onKit(t, func(k kit) {
		m := k.held()
		k.freeze(0, 1, 2)
		_, extended := m.Extend()
		_, valid := m.Valid()
		_, unlocked := m.Unlock()
		locked := k.NewMutex("other", redsync.WithFailFast(false)).TryLock()
		for _, err := range []error{locked, extended, valid, unlocked} {
			var many *multierror.Error
			require.ErrorAs(k, err, &many)
			require.GreaterOrEqual(k, len(many.WrappedErrors()), 3)
			found := joinedNodes(err)
			require.Len(k, found, len(many.Errors))
			for i, each := range many.Errors {
				require.Same(k, each, found[i])
			}
			var one *redsync.RedisError
			require.ErrorAs(k, many, &one)
			many.Errors[0] = nil // the slice is the caller's
			require.NotNil(k, joinedNodes(err)[0])
		}
		k.thaw(0, 1, 2)
	})
}

// TestErrorsOfNodesThatAreTakenOrDownMatchEachByEach has two nodes down and the others taken: redsync v4
// joins an error for each.
func TestErrorsOfNodesThatAreTakenOrDownMatchEachByEach(t *testing.T) {
	onKit(t, func(k kit) {
		k.held()
		k.down(0, 1)
		err := k.NewMutex("lock", redsync.WithFailFast(false)).TryLock()
		var many *multierror.Error
		require.ErrorAs(k, err, &many)
		require.Len(k, many.Errors, 5)
		require.Equal(k, many.Errors, joinedNodes(err))
		for i, each := range many.Errors {
			var down *redsync.RedisError
			var taken *redsync.ErrNodeTaken
			require.Equal(k, i < 2, errors.As(each, &down))
			require.Equal(k, i >= 2, errors.As(each, &taken))
		}
		require.NotContains(k, err.Error(), "it holds another value", "ErrTaken says where")
		before := err.Error()
		for each := []error{err}; len(each) > 0; each = each[1:] {
			if joined, ok := each[0].(interface{ Unwrap() []error }); ok { //nolint:errorlint // a walk
				all := joined.Unwrap()
				each = append(each, slices.Clone(all)...)
				clear(all) // the slice is the caller's
			}
		}
		require.Equal(k, before, err.Error())
	})
}

// joinedNodes collects the errors of nodes from errors that were joined.
func joinedNodes(err error) (all []error) {
	switch err.(type) { //nolint:errorlint // what it wraps is no node
	case *redsync.RedisError, *redsync.ErrNodeTaken:
		return []error{err}
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, each := range joined.Unwrap() {
			all = append(all, joinedNodes(each)...)
		}
	}
	return all
}

func TestErrorsOfNodesMatchInOpenToo(t *testing.T) {
	_, err := redsync.Open(t.Context(), []string{"127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"})
	require.Len(t, joinedNodes(err), 3)
	var many *multierror.Error
	require.ErrorAs(t, err, &many)
	require.Len(t, many.Errors, 3)
}
