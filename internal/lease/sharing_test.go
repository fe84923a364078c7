package lease

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/claim/claimtest"
	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/puppet"
	"github.com/seed14bd9ef4/redsync/pool"
)

// This file shows who may share the hold of a reader, and which of those who share it extends it.

// reading returns the terms of readers that share their hold, on a node on which everything succeeds.
func reading() *Terms {
	const granted = int64(0)
	acquired := false
	terms := newTerms(timingOf(8*time.Second), on(func(req pool.Request) (*pool.Reply, error) {
		if !acquired {
			acquired = true
			return &pool.Reply{Value: granted, Fate: pool.Answered, Conn: 1}, nil
		}
		return puppet.Yes(req)
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

func TestNobodyJoinsAHoldThatIsClosed(t *testing.T) {
	for name, closing := range map[string]struct {
		do   func(t *testing.T, l, other *Lease)
		open bool
	}{
		"nothing has happened": {func(*testing.T, *Lease, *Lease) {}, true},
		"one has left":         {func(t *testing.T, _, other *Lease) { assert.True(t, other.End(nil)); assert.False(t, other.Leave()) }, true},
		"the user has seen the value": {func(t *testing.T, l, _ *Lease) {
			assert.Equal(t, l.Value(), l.Show())
		}, false},
		"one was lost": {func(t *testing.T, _, other *Lease) { assert.True(t, other.End(errCause)) }, false},
		"one is to be detached": {func(t *testing.T, l, other *Lease) {
			assert.True(t, other.End(nil))
			assert.False(t, other.Leave())
			assert.True(t, l.StayAlone())
		}, false},
		"somebody came too late, although it was extended since": {func(t *testing.T, l, _ *Lease) {
			time.Sleep(l.terms.Timing.Validity / 5)
			assert.Nil(t, l.Join(l.terms, time.Hour))
			_, err := l.Extend(t.Context())
			assert.NoError(t, err)
		}, false},
		"somebody came after the window": {func(t *testing.T, l, _ *Lease) {
			time.Sleep(time.Millisecond)
			assert.Nil(t, l.Join(l.terms, time.Millisecond))
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := opens(t, reading())
				other := joins(t, l)
				closing.do(t, l, other)
				assert.Equal(t, closing.open, l.IsJoinable(time.Hour))
				third := l.Join(l.terms, time.Hour)
				assert.Equal(t, closing.open, third != nil)
				if third != nil {
					require.NoError(t, third.Begin())
				}
				require.NoError(t, closes(t.Context(), l.terms.Keeper))
			})
		})
	}
}

// The last lease that leaves releases the hold. A second Leave reports the same, and takes out no other lease.
func TestTheLastOfThoseWhoShareAHoldReleasesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := opens(t, reading())
		other := joins(t, l)
		assert.True(t, other.End(nil))
		for range 2 {
			assert.False(t, other.Leave())
		}
		assert.True(t, l.End(nil))
		for range 2 {
			assert.True(t, l.Leave())
			assert.True(t, other.Leave())
		}
		require.NoError(t, closes(t.Context(), l.terms.Keeper))
	})
}

// One of those who share a hold extends it for all. Another does so instead when the first has lost the lock, or its round
// has taken a sixth of the expiry.
func TestOneExtendsForAllThatShareAHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := opens(t, reading())
		other, third := joins(t, l), joins(t, l)
		duty := func(l *Lease) duty { return l.duty(clock.Now()) }
		sixth := l.terms.Timing.Expiry / 6
		assert.Equal(t, extendNow, duty(l))
		assert.Equal(t, lookAgain, duty(other))
		time.Sleep(sixth - time.Nanosecond)
		assert.Equal(t, lookAgain, duty(other))
		time.Sleep(time.Nanosecond)
		assert.Equal(t, extendNow, duty(other), "the round of l takes too long")
		assert.Equal(t, lookAgain, duty(third))
		assert.True(t, other.End(errCause))
		assert.Equal(t, extendNow, duty(third), "the other has lost the lock")
		_, err := third.Extend(t.Context())
		require.NoError(t, err)
		assert.Equal(t, extendLater, duty(l))
		time.Sleep(sixth)
		assert.True(t, third.End(nil))
		assert.False(t, third.Leave())
		assert.Equal(t, extendNow, duty(l), "the third has left")
		require.NoError(t, closes(t.Context(), l.terms.Keeper))
	})
}

// The next round of those who share a hold is due a third after the start of the last one, and not after its end: the
// validity counts from the start.
func TestExtensionOfASharedHoldCountsFromItsStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		terms := reading()
		l := opens(t, terms)
		other, third := joins(t, l), joins(t, l)
		sixth := l.terms.Timing.Expiry / 6
		_, err := other.Extend(t.Context())
		require.NoError(t, err)
		start := clock.Now()
		e, err := l.extension(start)
		require.NoError(t, err)
		assert.Equal(t, extendNow, l.duty(start))
		time.Sleep(sixth - time.Millisecond)
		e.OnWon()
		assert.Equal(t, extendLater, third.duty(clock.Now()))
		time.Sleep(time.Millisecond)
		assert.Equal(t, extendNow, third.duty(clock.Now()))
		require.NoError(t, closes(t.Context(), l.terms.Keeper))
	})
}

func TestHoldIsJoinableForAWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := opens(t, reading())
		assert.False(t, New(l.terms, "v", clock.Now()).IsJoinable(time.Hour), "nobody else can have its hold")
		time.Sleep(time.Second)
		for window, open := range map[time.Duration]bool{time.Second + 1: true, time.Second: false} {
			assert.Equal(t, open, l.IsJoinable(window), window)
		}
		assert.Nil(t, l.Join(l.terms, time.Second))
		require.NoError(t, closes(t.Context(), l.terms.Keeper))
	})
}
