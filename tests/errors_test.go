package redsync_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/hashicorp/go-multierror"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/observe"
	"github.com/seed14bd9ef4/redsync/redsynctest"
)

// This file tests that errors can be compared, and are equal as long as they say the same.

func TestErrIsTheSameErrorEachTime(t *testing.T) {
	for _, lose := range []func(k kit, m *redsync.Mutex){
		func(kit, *redsync.Mutex) { sleep(guard) },
		func(k kit, m *redsync.Mutex) { k.lose(majority...) }, // Valid proves it
		func(k kit, _ *redsync.Mutex) { shut(k, k.Redsync) },
	} {
		observingKit(t, func(k kit, r *redsynctest.Recorder) {
			m := k.held()
			lose(k, m)
			_, _ = m.Valid()
			err := m.Err()
			errorIs(k, err, redsync.ErrLockLost)
			_, _ = m.Valid()
			_, _ = m.Extend()
			assert.Same(k, err, m.Err())
			_, told := only[observe.Lost](k.T, r)
			assert.Same(k, err, told)
			_, _ = m.Unlock()
		})
	}
}

// A program for redsync v4 looks for ErrLockAlreadyExpired after a second Unlock.
func TestErrNotHeldMatchesWhatRedsyncReturns(t *testing.T) {
	onKit(t, func(k kit) {
		m := k.held()
		k.unlock(m)
		failsWith(k, m.Unlock, redsync.ErrLockAlreadyExpired, redsync.ErrNotHeld)
		_, err := m.Unlock()
		require.NotErrorIs(k, err, redsync.ErrLockLost)
		assert.EqualError(k, err, `redsync: unlock "lock": lock not held`)
		assert.True(k, m.Err() == redsync.ErrNotHeld) //nolint:errorlint // as programs for redsync v4 compare
		require.NotErrorIs(k, redsync.ErrLockAlreadyExpired, redsync.ErrNotHeld)
		require.NotErrorIs(k, redsync.ErrNotHeld, redsync.ErrClosed)
		require.NotErrorIs(k, err, second(k.NewMutex("other").Unlock()), "another call has another error")
	})
}

// lostKeys returns a lock on several names that has lost the key of one name on the first three nodes.
func (f field) lostKeys(names []string, name string, options ...redsync.Option) *redsync.Mutex {
	m := f.locked(names, append(options, hearsAll)...)
	for _, n := range f.nodes[:3] {
		n.Del(name)
	}
	return m
}

// TestErrorsOfNodesMatchInBothWaysOfRedsync matches the errors of nodes as programs do that were written for redsync v4:
// as a *multierror.Error (up to v4.16.0) and by walking what errors.Join returned (since v4.17.0). Redsync v4 joins an
// error for each node.
func TestErrorsOfNodesMatchInBothWaysOfRedsync(t *testing.T) {
	onKit(t, func(k kit) {
		m := k.held()
		k.down(0, 1)
		errs := []error{k.NewMutex("lock", hearsAll).TryLock()} // the others are taken
		k.freeze(2)
		for _, operation := range []func() (bool, error){m.Extend, m.Valid, m.Unlock} {
			errs = append(errs, second(operation()))
		}
		for i, err := range errs {
			var many *multierror.Error
			require.ErrorAs(k, err, &many)
			require.GreaterOrEqual(k, len(many.Errors), 3)
			require.Equal(k, many.Errors, joinedNodes(err))
			require.ErrorAs(k, many, new(*redsync.RedisError))
			if i == 0 {
				require.Len(k, many.Errors, 5)
				for node, each := range many.Errors {
					require.Equal(k, node < 2, errors.As(each, new(*redsync.RedisError)))
					require.Equal(k, node >= 2, errors.As(each, new(*redsync.ErrNodeTaken)))
				}
				require.NotContains(k, err.Error(), "it holds another value", "ErrTaken says where")
			}
			many.Errors[0] = nil // the slice is the caller's
			require.NotNil(k, joinedNodes(err)[0])
			before := err.Error()
			for each := []error{err}; len(each) > 0; each = each[1:] {
				if joined, ok := each[0].(interface{ Unwrap() []error }); ok { //nolint:errorlint // a walk
					all := joined.Unwrap()
					each = append(each, slices.Clone(all)...)
					clear(all) // the slice is the caller's
				}
			}
			require.Equal(k, before, err.Error())
		}
		k.thaw(2)
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
