package redsync_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/go-multierror"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
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
				require.NotContains(k, err.Error(), "): lock already taken", "ErrTaken says where")
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

// v4Ways are the ways in which programs for redsync v4 match an error.
var v4Ways = map[string]func(err error) bool{
	"(ErrTaken)": func(err error) bool { _, is := err.(*redsync.ErrTaken); return is }, //nolint:errorlint // as they do
	"switch": func(err error) bool {
		switch err.(type) { //nolint:errorlint // as they do
		case *redsync.ErrTaken, *redsync.ErrNodeTaken:
			return true
		}
		return false
	},
	"As(ErrTaken)":     func(err error) bool { return errors.As(err, new(*redsync.ErrTaken)) },
	"As(ErrNodeTaken)": func(err error) bool { return errors.As(err, new(*redsync.ErrNodeTaken)) },
	"As(RedisError)":   func(err error) bool { return errors.As(err, new(*redsync.RedisError)) },
	"Is(expired)":      func(err error) bool { return errors.Is(err, redsync.ErrLockAlreadyExpired) },
	"taken":            inText("lock already taken, locked nodes: ["),
	"failed":           inText(redsync.ErrFailed.Error()),
	"extend":           inText(redsync.ErrExtendFailed.Error()),
	"unlock":           inText("redsync: failed to unlock, lock was already expired"),
	"node":             inText("node #0"),
	"node taken":       inText("lock already taken"),
	"cause":            inText("connection refused"),
	"Unwrap": func(err error) bool {
		_, is := err.(interface{ Unwrap() []error }) //nolint:errorlint // as they do
		return is && len(joinedNodes(err)) > 0
	},
	"Errors": func(err error) bool {
		var many *multierror.Error
		if !errors.As(err, &many) {
			return false
		}
		_, is := many.Errors[0].(*redsync.RedisError) //nolint:errorlint // as they do
		return is
	},
}

func inText(words string) func(error) bool {
	return func(err error) bool { return strings.Contains(err.Error(), words) }
}

// Each row has a call, and how the error that redsync v4 returns there is matched: see v4Ways. ErrFailed and ErrExtendFailed
// mean something else here, so their rows have their words alone. Where redsync v4 says "taken" although nobody else has
// the lock, this library does not.
func TestErrorsMatchAsThoseOfRedsyncV4(t *testing.T) {
	parallelComputing(t)
	testlength.NotShort(t)
	const (
		taken   = "(ErrTaken), switch, As(ErrTaken), taken"
		nodes   = "As(RedisError), Unwrap, Errors, node, cause"
		expired = "Is(expired), unlock"
	)
	others := func(nodes ...int) func(field) {
		return func(f field) { f.sets("lock", "another's", minute, nodes...) }
	}
	gone, anothers, down := hit(field.lose, allNodes...), others(allNodes...), hit(field.kill, 0, 1, 2)
	late := func(f field) { onEach(f.nodes, "evalsha", 1<<20, embedded.Fault{Delay: minute}) }
	for _, row := range []struct {
		call  string
		given func(f field) // nil: without a lock
		want  string
	}{
		{"Lock", anothers, taken},
		{"Unlock", anothers, taken},
		{"Extend", anothers, taken},
		{"Valid", anothers, taken},
		{"Lock", down, nodes},
		{"Unlock", down, nodes},
		{"Extend", down, nodes},
		{"Valid", down, nodes},
		{"Unlock", gone, expired},
		{"Unlock", nil, expired},
		{"Lock for a second", anothers, "failed"},
		{"Lock for a second", down, "failed"},
		{"Lock for a second", hit(field.freeze, allNodes...), "failed"},
		{"Lock without pools", nil, "failed"},
		{"Extend", late, "extend"},
		{"Lock", func(f field) { others(1, 2)(f); f.kill(0) }, "As(ErrNodeTaken), As(RedisError), Unwrap, node taken"},
	} {
		playMetAs(t, row.call, func(f field) {
			m := f.NewMutex("lock", withTries(2))
			calls := operations(m)
			calls["Lock"] = func() (bool, error) { return false, m.Lock() }
			calls["Lock for a second"] = func() (bool, error) { return false, f.NewMutex("lock").LockContext(limited(f, sec)) }
			calls["Lock without pools"] = func() (bool, error) { return false, redsync.New().NewMutex("lock").Lock() }
			if row.given != nil {
				if !strings.HasPrefix(row.call, "Lock") {
					locked(f, m)
				}
				sleep(ms)
				row.given(f)
				sleep(ms)
			}
			ok, err := calls[row.call]()
			require.False(f, ok)
			for way := range strings.SplitSeq(row.want, ", ") {
				assert.True(f, v4Ways[way](err), "%s: %v", way, err)
			}
		})
	}
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
