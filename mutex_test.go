package redsync

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/lease"
	"github.com/seed14bd9ef4/redsync/internal/script"
	"github.com/seed14bd9ef4/redsync/internal/testkit/scripted"
	"github.com/seed14bd9ef4/redsync/internal/wire"
)

// This file shows, step by step, how a Mutex gets its term, takes one over and loses it. For what a user sees of that
// see lock_test.go, adopt_test.go and close_test.go in tests.

// onYes returns a Redsync on a node that grants everything, and the node. The end of the test closes it.
func onYes(t *testing.T) (*Redsync, *scripted.Node) {
	p := &scripted.Node{Answer: scripted.Yes}
	rs := New(p)
	t.Cleanup(func() { require.NoError(t, rs.Close(context.WithoutCancel(t.Context()))) })
	return rs, p
}

// Either Unlock or Close ends a hold, never both, and Unlock knows which of them did.
func TestUnlockThatACloseForestallsSaysSo(t *testing.T) {
	rs, _ := onYes(t)
	for i := range 1000 {
		m := rs.NewMutex(strconv.Itoa(i), WithExpiry(time.Hour))
		require.NoError(t, m.Lock())
		h, _, _ := m.take(nil)
		var wg sync.WaitGroup
		var unlocked, closed bool
		var err error
		wg.Go(func() {
			start := clock.Now()
			unlocked, err = m.unlock(t.Context(), h, h.EndHeld(start), start)
		})
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
		rs, p := onYes(t)
		m := rs.NewMutex("lock")
		terms, err := m.beginCall()
		require.NoError(t, err)
		stale, o := lease.Acquire(t.Context(), terms, clock.Now(), 1, script.Place{}, nil)
		require.Equal(t, lease.Won, o.Kind)
		time.Sleep(10 * time.Second)
		require.NoError(t, m.Lock())
		lost, until := m.Lost(), m.Until()
		handed := stale.Pass(terms)
		for i, h := range []*lease.Lease{stale, handed} {
			require.ErrorIs(t, m.begin(h), ErrLockAlreadyExpired)
			synctest.Wait()
			assert.Equal(t, i+1, p.Count("evalsha")) // the hold that came too late is released
			assert.False(t, h.Begun())
		}
		select {
		case <-lost:
			assert.Fail(t, "the hold that stands was ended")
		default:
		}
		assert.Equal(t, until, m.Until())
		m.core.keeper.EndCall()
	})
}

// The hold of a Do is lost, and the Mutex has another one before the Do ends. It keeps nothing of the Do's context.
func TestMutexKeepsNothingOfADoThatHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rs, _ := onYes(t)
		m := rs.NewMutex("lock")
		err := m.Do(t.Context(), func(context.Context) error {
			m.current().End(lost(nil))
			return m.Lock()
		})
		require.ErrorIs(t, err, ErrLockLost)
		assert.Nil(t, m.nest)
		assert.NotNil(t, m.current()) // the other hold stands
	})
}

// Another call has unlocked the hold of a Downgrade. Exclusive calls may join the Do that has the Mutex next.
func TestDowngradeOfAFormerHoldLeavesTheNextAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rs, _ := onYes(t)
		m := rs.NewMutex("lock")
		require.NoError(t, m.Lock())
		former := m.current()
		_, err := m.Unlock()
		require.NoError(t, err)
		require.NoError(t, m.Do(t.Context(), func(ctx context.Context) error {
			current := m.nest
			require.NoError(t, m.shareNest(former))
			assert.Same(t, current, m.nest)
			return rs.Do(ctx, "lock", func(context.Context) error { return nil })
		}))
	})
}

// A Do ends while Close has begun, and has not ended its hold yet.
func TestDoThatEndsAsCloseBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rs, _ := onYes(t)
		err := rs.Do(t.Context(), "lock", func(context.Context) error {
			require.True(t, rs.core.keeper.BeginClose())
			return nil
		})
		require.NoError(t, rs.core.shutDown(t.Context(), time.Second))
		close(rs.core.closed)
		require.ErrorIs(t, err, ErrLockLost)
		require.ErrorIs(t, err, ErrClosed)
	})
}

// An option that is out of its range is applied to a Mutex that is held. The hold can be ended, and Do ends it.
func TestHoldEndsAfterABadOption(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rs, p := onYes(t)
		m := rs.NewMutex("lock")
		require.NoError(t, m.Lock())
		WithTries(-1).Apply(m)
		ok, err := m.Unlock()
		require.NoError(t, err)
		assert.True(t, ok)
		require.ErrorContains(t, m.Lock(), "WithTries(-1) is out of range")
		_, err = m.Unlock()
		require.ErrorContains(t, err, "WithTries(-1) is out of range") // nothing is held

		m = rs.NewMutex("other")
		require.NoError(t, m.Do(t.Context(), func(context.Context) error {
			WithTries(-1).Apply(m)
			return nil
		}))
		synctest.Wait()
		assert.Nil(t, m.current())
		assert.Equal(t, 2, p.Count("evalsha")) // both are released
	})
}

func TestTakeOverOfAHoldFoundLostFails(t *testing.T) {
	rs, _ := onYes(t)
	m := rs.NewMutex("lock", WithValue("v"))
	terms := &m.terms
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
}

// An Unlock under way has taken the hold from the Mutex, and is about to end it. No call may join the hold any more.
func TestNoCallJoinsAHoldThatUnlockHasTaken(t *testing.T) {
	rs, _ := onYes(t)
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
		require.False(t, m.newNest(t.Context(), h).isLive()) // Unlock has come before Do began to call its function
		return nil
	}), ErrNotHeld)
}

// Mutexes with the same options share their settings. An option that is applied later changes one Mutex alone.
func TestMutexesWithTheSameOptionsShareSettings(t *testing.T) {
	rs, _ := onYes(t)
	expiryOf := func(m *Mutex) time.Duration {
		terms, err := m.ready()
		require.NoError(t, err)
		return terms.Timing.Expiry
	}
	a, b := rs.NewMutex("a", WithExpiry(time.Minute)), rs.NewMutex("b", WithExpiry(time.Minute))
	assert.Same(t, a.set, b.set)
	other := rs.NewMutex("c", WithExpiry(time.Hour))
	assert.NotSame(t, a.set, other.set)
	require.NoError(t, a.Lock())
	WithExpiry(time.Second).Apply(a)
	assert.Equal(t, time.Second, expiryOf(a))
	assert.Equal(t, time.Minute, a.hold.Terms().Timing.Expiry) // the hold has the terms that it began with
	assert.Equal(t, time.Minute, expiryOf(b))
	assert.Equal(t, time.Minute, expiryOf(rs.NewMutex("d", WithExpiry(time.Minute))))
	assert.Equal(t, time.Second, expiryOf(rs.NewMutex("e", WithExpiry(time.Second))))
	require.ErrorContains(t, rs.NewMutex("f", WithExpiry(0)).TryLock(), "WithExpiry(0s) is out of range")
	assert.Equal(t, time.Hour, expiryOf(other))

	// What only one Mutex has is not kept for others: they would not find it, and it may be a secret, or large.
	for _, own := range []Option{
		WithValue("secret"), WithSequencer(Sequencer{Name: "g", Value: "secret"}), WithHooks(hooksThat(func(string) {})),
		WithRetryDelayFunc(func(int) time.Duration { return 0 }), WithGenValueFunc(randomValue),
	} {
		set := rs.NewMutex("g", own).set
		for i := range rs.core.recents.list {
			assert.NotSame(t, set, rs.core.recents.list[i].Load())
		}
		assert.Same(t, a.hold.Terms().Policy, rs.NewMutex("h", WithExpiry(time.Minute)).terms.Policy) // the others stay
	}
	logged := rs.With(WithHooks(hooksThat(func(string) {})))
	assert.Same(t, logged.NewMutex("i", WithTries(1)).set, logged.NewMutex("j", WithTries(1)).set)
}

// Settings that no Mutex needs any more are used again for others, and their room is, while many goroutines make
// Mutexes, and while replies to earlier rounds are still to come. Each lock keeps its own terms.
func TestSettingsAreUsedAgainBesideLateReplies(t *testing.T) {
	var mu sync.Mutex
	var late []wire.Request // the requests to one node
	answers := false        // the node answers at once
	slow := &scripted.Node{Answer: func(req wire.Request) (*wire.Reply, error) {
		mu.Lock()
		defer mu.Unlock()
		if answers {
			return scripted.Yes(req)
		}
		late = append(late, req)
		return nil, nil
	}}
	answered := func(late []wire.Request) {
		for _, req := range late {
			reply, _ := scripted.Yes(req)
			req.To.Receive(req.Tag, *reply)
		}
	}
	rs := New(&scripted.Node{Answer: scripted.Yes}, &scripted.Node{Answer: scripted.Yes}, slow)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 200 {
				expiry := time.Duration(1+(g+i)%6) * time.Hour // two more than are kept
				m := rs.NewMutex(fmt.Sprint(g, i), WithExpiry(expiry), WithFailFast(true))
				if !assert.NoError(t, m.Lock()) {
					return
				}
				assert.Equal(t, expiry, m.hold.Terms().Timing.Expiry)
				mu.Lock()
				answer := late
				late = nil
				mu.Unlock()
				answered(answer)
				_, err := m.Unlock()
				assert.NoError(t, err)
			}
		})
	}
	wg.Wait()
	mu.Lock()
	answers = true
	mu.Unlock()
	answered(late)
	require.NoError(t, rs.Close(t.Context()))
}
