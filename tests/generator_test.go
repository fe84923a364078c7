package redsync_test

import (
	"crypto/rand"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/embedded"
)

// This file shows what a generator of values must return.

// A value has at least 128 bits: 5 for each character of base 32.
func TestMutexLockGivesEachAttemptAFreshValue(t *testing.T) {
	play(t, func(f field) {
		var mu sync.Mutex
		values := map[string]int{}
		note := func(value string) {
			mu.Lock()
			defer mu.Unlock()
			values[value]++
		}
		for _, n := range f.nodes {
			n.On("set", 100, embedded.Fault{Then: func(args []string) { note(args[1]) }})
			n.On("evalsha", 100, embedded.Fault{Then: func(args []string) {
				if len(args) > 6 && strings.Contains(args[6], ":") { // a waiter's acquire, not a release
					note(args[4])
				}
			}})
		}
		f.occupy("lock")
		require.Error(f, f.NewMutex("lock", withTries(6), withRetryDelay(100*ms)).Lock())
		synctest.Wait()
		assert.GreaterOrEqual(f, len(values), 6)
		for value, nodes := range values {
			assert.Equal(f, 5, nodes, value)
			assert.GreaterOrEqual(f, len(value)*5, 128)
		}
	})
}

// repeating is a generator that always returns value.
func repeating(value string) redsync.Option {
	return withGenValueFunc(func() (string, error) { return value, nil })
}

// The error does not show the value, which is a secret.
func TestMutexLockRefusesAValueUsedBefore(t *testing.T) {
	onKit(t, func(k kit) {
		value := rand.Text()
		constant := repeating(value)
		k.unlock(locked(k, k.NewMutex("lock", constant)))
		err := k.NewMutex("other", constant).Lock()
		require.NotErrorIs(k, err, redsync.ErrFailed)
		assert.ErrorContains(k, err, "WithGenValueFunc returned a value that it has returned before")
		assert.NotContains(k, err.Error(), value)

		constant = repeating(rand.Text())
		k.held(constant)
		require.ErrorContains(k, k.another().NewMutex("lock", constant).TryLock(), "returned before")
		assert.Equal(k, 5, k.keys("lock"), "the holder's keys stay")
	})
}

func TestMutexLockRefusesAValueWhoseReleaseIsOnItsWay(t *testing.T) {
	play(t, func(f field) {
		constant := repeating(rand.Text())
		for _, n := range f.nodes[2:] {
			n.On("set", 1, embedded.Fault{Delay: 17 * sec})
		}
		a := f.NewMutex("lock", constant)
		require.Error(f, a.TryLock())
		sleep(16 * sec)
		require.ErrorContains(f, a.TryLock(), "returned before")
	})
}

func TestMutexLockReportsTheGeneratorsError(t *testing.T) {
	play(t, func(f field) {
		err := f.NewMutex("lock", withGenValueFunc(func() (string, error) { return "", errWork })).Lock()
		errorIs(f, err, errWork)
		require.NotErrorIs(f, err, redsync.ErrFailed)
		require.ErrorContains(f, f.NewMutex("lock", repeating("")).Lock(), "empty value")
		f.hasSent(0)
	})
}

// A generator of values that fails for a waiter ends its Lock, because it would fail again.
func TestWaiterEndsWithItsGenerator(t *testing.T) {
	play(t, func(f field) {
		f.held()
		calls := 0
		m := f.NewMutex("lock", withTries(100), withRetryDelay(10*ms),
			withGenValueFunc(func() (string, error) {
				if calls++; calls > 1 {
					return "", errWork
				}
				return rand.Text(), nil
			}))
		errorIs(f, m.Lock(), errWork)
		assert.Equal(f, 2, calls)
		f.nobodyWaits()
	})
}
