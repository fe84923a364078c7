package redsync

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/lease"
	"github.com/seed14bd9ef4/redsync/internal/puppet"
	"github.com/seed14bd9ef4/redsync/internal/script"
)

// This file shows, step by step, how a Mutex gets its term, takes one over and loses it. For what a user sees of that
// see lock_test.go, adopt_test.go and close_test.go.

// Either Unlock or Close ends a hold, never both, and Unlock knows which of them did.
func TestUnlockThatACloseForestallsSaysSo(t *testing.T) {
	rs := New(&puppet.Puppet{Answer: puppet.Yes})
	defer func() { require.NoError(t, rs.Close(t.Context())) }()
	for i := range 1000 {
		m := rs.NewMutex(strconv.Itoa(i), WithExpiry(time.Hour))
		require.NoError(t, m.Lock())
		h, _, _ := m.take(nil)
		var wg sync.WaitGroup
		var unlocked, closed bool
		var err error
		wg.Go(func() { unlocked, err = m.unlock(t.Context(), h, clock.Now()) })
		wg.Go(func() { closed = h.End(fail("", "", ErrLockLost, ErrClosed)) })
		wg.Wait()
		assert.Equal(t, !closed, unlocked)
		assert.Equal(t, closed, errors.Is(err, ErrClosed))
	}
}

// A Lock is held up between its attempt and begin until its validity is over. Another
// call of the same Mutex has acquired the lock meanwhile.
func TestBeginRefusesAHoldThatIsPast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &puppet.Puppet{Answer: puppet.Yes}
		rs := New(p)
		m := rs.NewMutex("lock")
		terms, err := m.beginCall()
		require.NoError(t, err)
		stale, o := lease.Acquire(t.Context(), &terms.Terms, clock.Now(), 1, script.Place{}, nil)
		require.Equal(t, lease.Won, o.Kind)
		time.Sleep(10 * time.Second)
		require.NoError(t, m.Lock())
		lost, until := m.Lost(), m.Until()
		handed := stale.Pass(&terms.Terms)
		for i, h := range []*lease.Lease{stale, handed} {
			require.ErrorIs(t, m.begin(h), ErrLockAlreadyExpired)
			synctest.Wait()
			assert.Equal(t, i+1, p.Count("evalsha"), "the hold that came too late is released")
			assert.False(t, h.Begun())
		}
		select {
		case <-lost:
			assert.Fail(t, "the hold that stands was ended")
		default:
		}
		assert.Equal(t, until, m.Until())
		m.core.endCall()
		require.NoError(t, rs.Close(t.Context()))
	})
}

func TestTakeOverOfAHoldFoundLostFails(t *testing.T) {
	rs := New(&puppet.Puppet{Answer: puppet.Yes})
	m := rs.NewMutex("lock", WithValue("v"))
	terms := &m.terms.Terms
	h1 := lease.Adopt(terms, "v", clock.Now())
	h2 := lease.Adopt(terms, "v", clock.Now())
	res, e := h1.Confirm(t.Context(), 0)
	require.True(t, res.Won)
	ok, err := m.takeOver(h1, e)
	require.NoError(t, err)
	require.True(t, ok)
	h1.End(lost(nil)) // Valid found out
	ok, err = m.takeOver(h2, e)
	assert.False(t, ok)
	require.ErrorIs(t, err, ErrLockLost)
	require.NoError(t, rs.Close(t.Context()))
}

// An Unlock under way has taken the hold from the Mutex, and is about to end it. No call may join the hold any more.
func TestNoCallJoinsAHoldThatUnlockHasTaken(t *testing.T) {
	rs := New(&puppet.Puppet{Answer: puppet.Yes})
	defer func() { require.NoError(t, rs.Close(t.Context())) }()
	m := rs.NewMutex("lock")
	require.ErrorIs(t, m.Do(t.Context(), func(ctx context.Context) error {
		joined, err := m.join(ctx)
		require.NoError(t, err)
		require.Len(t, joined, 1)
		_, _, err = m.take(nil)
		require.ErrorIs(t, err, ErrNested)
		leave(joined)

		h, _, err := m.take(nil)
		require.NoError(t, err)
		require.NoError(t, h.NotHeld(clock.Now()))
		joined, err = m.join(ctx)
		require.NoError(t, err)
		require.Empty(t, joined)
		require.False(t, m.newNest(h, nil).isLive(), "Unlock has come before Do began to call its function")
		return nil
	}), ErrNotHeld)
}
