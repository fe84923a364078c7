package redsync_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/pool"
)

// This file shows options, names and pools that every operation refuses, and what the error says.

func TestMutexBadInputIsAnErrorThatNamesIt(t *testing.T) {
	for want, option := range map[string]redsync.Option{
		"WithExpiry(-1s) is out of range": withExpiry(-sec),

		"so that it is longer than its drift, and at most 100 years": withExpiry(260 * 365 * 24 * hour),
		"WithTries(-1) is out of range: 0 (no limit)":                withTries(-1),
		"WithRetryDelay(-1ns) is out of range: 0 or":                 withRetryDelay(-1),
		"WithRetryDelayFunc(nil)":                                    redsync.WithRetryDelayFunc(nil),
		"WithGenValueFunc(nil)":                                      withGenValueFunc(nil),
		"WithDriftFactor(1) is out of range: 0 <= fac":               redsync.WithDriftFactor(1),

		"WithTimeoutFactor(0) is out of range: 0 < fact": redsync.WithTimeoutFactor(0),

		"WithNodeTimeout(0s) is out of range":            withNodeTimeout(0),
		"WithNodeTimeout(8s) is out of range: 0 < time":  withNodeTimeout(8 * sec),
		`WithPrefix("{app:") is out of range: no braces`: redsync.WithPrefix("{app:"),
		`WithPrefix("app}:") is out of range`:            redsync.WithPrefix("app}:"),
		`WithPrefix("{}app:") is out of range`:           redsync.WithPrefix("{}app:"),
		"option #0 is nil":                               nil,
		"nil OptionFunc":                                 redsync.OptionFunc(nil),
		"WithMaxHold(0s) is out of range: more than 0":   withMaxHold(0),
		"WithMaxHold(-1s) is out of range: more than 0":  withMaxHold(-sec),
		"WithLockDelay(-1ns) is out of range: 0 or more": withLockDelay(-1),
		"WithLockDelay(2562047h47m16.854775807s) is out": withLockDelay(math.MaxInt64),
		"WithLockDelay(2562047h47m9.8":                   withLockDelay(math.MaxInt64 - 7*sec),
	} {
		playAs(t, want, func(f field) {
			for _, m := range []*redsync.Mutex{f.NewMutex("lock", option), f.With(option).NewMutex("lock")} {
				refuses(t, m, want)
			}
			require.ErrorContains(f, f.Do(f.Context(), "lock", never, option), want)
			f.hasSent(0)
		})
	}
	play(t, func(f field) {
		f.unlocks(f.held(withMaxHold(1), withMaxHold(math.MaxInt64), withWatchdog))
	})
}

func TestZeroAndPoollessValuesFailWithoutPanic(t *testing.T) {
	stub := &redsync.Mutex{} // as redsync v4's, but its Lock panics
	require.ErrorIs(t, stub.Lock(), redsync.ErrNoPools)
	require.ErrorIs(t, stub.TryLock(), redsync.ErrNoPools)
	for _, want := range []struct {
		call func() (bool, error)
		ok   bool
		err  error
	}{{stub.Unlock, true, nil}, {stub.Valid, true, nil}, {stub.Extend, false, redsync.ErrExtendFailed}} {
		ok, err := want.call()
		assert.Equal(t, want.ok, ok)
		assert.Equal(t, want.err, err)
	}
	assert.Empty(t, stub.Name()+stub.Value())
	assert.Zero(t, stub.Until())
	for _, rs := range []*redsync.Redsync{nil, {}, redsync.New()} { // nil is that of an Open that failed
		refuses(t, rs.NewMutex("lock"), "no pools")
		for _, err := range []error{
			rs.NewMutex("lock").Lock(), rs.With(withFair).NewMutex("lock").TryLock(), rs.Do(t.Context(), "lock", never),
			rs.Current(t.Context(), redsync.Sequencer{Name: "lock", Value: "value"}),
		} {
			errorIs(t, err, redsync.ErrNoPools)
		}
		shut(t, rs)
	}
	refuses(t, redsync.New(pool.New(nil)).NewMutex("lock", withValue("v")), "nil client")
	rs := redsync.New(nil)
	refuses(t, rs.NewMutex("lock"), "pool #0: it is nil")
	shut(t, rs)
}
