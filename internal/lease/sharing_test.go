package lease

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/testkit/claimtest"
	"github.com/seed14bd9ef4/redsync/internal/testkit/scripted"
	"github.com/seed14bd9ef4/redsync/internal/wire"
)

// This file shows who may share the hold of a reader, and which of those who share it extends it.

// reading returns the terms of readers that share their hold, on a node on which everything succeeds.
func reading(t *testing.T) *Terms {
	t.Helper()
	const granted = int64(0)
	acquired := false
	terms := newTerms(t, on(func(req wire.Request) (*wire.Reply, error) {
		if !acquired {
			acquired = true
			return answered(granted), nil
		}
		return scripted.Yes(req)
	}))
	terms.Claim = claimtest.Shared("lock")
	terms.Joins = true
	return terms
}

// opens returns a lease that others may join.
func opens(t *testing.T, terms *Terms) *Lease {
	t.Helper()
	l := begun(t, terms)
	require.True(t, l.BeginSharing())
	return l
}

// joins returns a lease that has joined the hold of l.
func joins(t *testing.T, l *Lease) *Lease {
	t.Helper()
	other := l.Join(l.terms, time.Hour)
	require.NotNil(t, other)
	require.NoError(t, other.Begin())
	return other
}

// Nobody joins a hold that came to an end for one of those who share it, or that somebody has found too old.
func TestNobodyJoinsAHoldThatIsClosed(t *testing.T) {
	for name, close := range map[string]func(l, other *Lease){
		"one was lost":                       func(_, other *Lease) { other.End(errCause) },
		"somebody came after the window":     func(l, _ *Lease) { time.Sleep(ms); l.Join(l.terms, ms) },
		"somebody came too late for the age": func(l, _ *Lease) { time.Sleep(l.terms.Timing.Validity / 5); l.Join(l.terms, time.Hour) },
		"one stays alone":                    func(l, other *Lease) { other.End(nil); other.Leave(); l.IsAlone(true) },
	} {
		synctest.Test(t, func(t *testing.T) {
			l := opens(t, reading(t))
			other := joins(t, l)
			assert.True(t, l.IsJoinable(time.Hour))
			close(l, other)
			_, _ = l.Extend(t.Context()) // which opens it for nobody
			assert.False(t, l.IsJoinable(time.Hour), name)
			assert.Nil(t, l.Join(l.terms, time.Hour), name)
		})
	}
}

// One of those who share a hold extends it for all. Another does so instead when the first has lost the lock.
func TestAnotherExtendsForOneThatHasLostTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := opens(t, reading(t))
		other, third := joins(t, l), joins(t, l)
		assert.Equal(t, extendNow, l.duty(clock.Now()))
		time.Sleep(l.terms.Timing.Expiry / 6)
		assert.Equal(t, extendNow, other.duty(clock.Now()), "the round of l takes too long")
		assert.Equal(t, lookAgain, third.duty(clock.Now()))
		assert.True(t, other.End(errCause))
		assert.Equal(t, extendNow, third.duty(clock.Now()))
		third.End(nil)
		assert.False(t, third.Leave())
		l.End(nil)
		assert.True(t, l.Leave(), "the one that has lost the lock need not leave")
	})
}

// The next round of those who share a hold is due a third after the start of the last one, and not after its end: the
// validity counts from the start.
func TestExtensionOfASharedHoldCountsFromItsStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		terms := reading(t)
		l := opens(t, terms)
		other, third := joins(t, l), joins(t, l)
		sixth := l.terms.Timing.Expiry / 6
		_, err := other.Extend(t.Context())
		require.NoError(t, err)
		start := clock.Now()
		e, err := l.extension(start)
		require.NoError(t, err)
		assert.Equal(t, extendNow, l.duty(start))
		time.Sleep(sixth - ms)
		e.OnWon()
		assert.Equal(t, extendLater, third.duty(clock.Now()))
		time.Sleep(ms)
		assert.Equal(t, extendNow, third.duty(clock.Now()))
	})
}
