package main

import (
	"context"
	"testing"
	"time"

	rival "github.com/go-redsync/redsync/v4"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/realredis"
	"github.com/seed14bd9ef4/redsync/internal/safety"
	"github.com/seed14bd9ef4/redsync/pool"
)

// A fleet has processes with redsync v4 and processes with this library, which share
// locks on the same five servers. A program has such processes while it moves from one
// library to the other.
type fleet struct {
	t       *testing.T
	servers []*realredis.Server
}

// newFleet starts the servers. At the end of the test it fails t if a key is left on
// them or a goroutine still runs.
func newFleet(t *testing.T) *fleet {
	t.Helper()
	// Cleanups run in reverse order, so the check for goroutines comes last.
	t.Cleanup(func() { goleak.VerifyNone(t) })
	f := &fleet{t: t, servers: realredis.Start(t, safety.N)}
	t.Cleanup(f.requireNoKeys)
	return f
}

// process returns a library with connections of its own.
func (f *fleet) process(open safety.Open) safety.Library {
	clients := make([]*redis.Client, len(f.servers))
	for i, s := range f.servers {
		clients[i] = s.Client()
	}
	lib := open(clients)
	f.t.Cleanup(lib.Close)
	return lib
}

// holding counts the nodes that hold value under name.
func (f *fleet) holding(name, value string) int {
	f.t.Helper()
	count := 0
	for _, s := range f.servers {
		if got, err := s.Do("get", name); err == nil && got == value {
			count++
		}
	}
	return count
}

func (f *fleet) keys() int64 {
	f.t.Helper()
	var count int64
	for _, s := range f.servers {
		n, err := s.Do("dbsize")
		require.NoError(f.t, err)
		count += n.(int64)
	}
	return count
}

// requireNoKeys requires that all keys are gone within a minute. That is enough for releases in the background on a
// busy machine, and less than the expiry, after which all keys would be gone anyway.
func (f *fleet) requireNoKeys() {
	f.t.Helper()
	f.requireSoon(func() bool { return f.keys() == 0 }, "some keys are still on the nodes")
}

func (f *fleet) requireSoon(condition func() bool, message string) {
	f.t.Helper()
	require.Eventually(f.t, condition, time.Minute, 10*time.Millisecond, message)
}

// lasting is longer than requireSoon waits, so that a key that is never released is found.
const lasting = 3 * time.Minute

// patientFactor makes an operation wait for its nodes for 72 s with a lasting lock, and for 3.2 s with the default
// expiry, because the machine may be busy. The default of both libraries is 0.05.
const patientFactor = 0.4

// patient opens this library for a busy machine.
func patient(options ...redsync.Option) safety.Open {
	return safety.Ours(append(options, redsync.WithTimeoutFactor(patientFactor))...)
}

// patientRival opens redsync v4 for a busy machine.
func patientRival(clients []*redis.Client) safety.Library {
	return openRivalWith(rival.WithTimeoutFactor(patientFactor))(clients)
}

// directions calls f for each order of the two libraries. The options are for this library.
func directions(t *testing.T, f func(t *testing.T, first, second safety.Open), options ...redsync.Option) {
	t.Helper()
	t.Run("ours, then redsync", func(t *testing.T) { f(t, patient(options...), patientRival) })
	t.Run("redsync, then ours", func(t *testing.T) { f(t, patientRival, patient(options...)) })
}

// several returns a function that makes locks of this library on several names. These locks have their own connections.
func (f *fleet) several() func(names ...string) *redsync.Mutex {
	pools := make([]pool.Pool, len(f.servers))
	for i, s := range f.servers {
		pools[i] = pool.New(s.Client())
	}
	rs := redsync.New(pools...).With(redsync.WithTimeoutFactor(patientFactor))
	f.t.Cleanup(func() { _ = rs.Close(context.Background()) })
	return func(names ...string) *redsync.Mutex {
		return rs.NewMultiMutex(names, redsync.WithExpiry(lasting),
			redsync.WithTries(20), redsync.WithRetryDelay(5*time.Millisecond))
	}
}

func TestMixedFleetLockIsTakenForTheOtherUntilUnlock(t *testing.T) {
	ctx := t.Context()
	directions(t, func(t *testing.T, first, second safety.Open) {
		f := newFleet(t)
		a, b := f.process(first), f.process(second)
		for range 300 {
			for _, libs := range [][2]safety.Library{{a, b}, {b, a}} {
				m := libs[0].NewMutex("lock", safety.Options{Expiry: lasting})
				require.NoError(t, m.TryLockContext(ctx))
				require.Error(t, libs[1].NewMutex("lock", safety.Options{Expiry: lasting}).TryLockContext(ctx))
				ok, err := m.UnlockContext(ctx)
				require.NoError(t, err)
				require.True(t, ok)
			}
		}
		f.requireNoKeys()
	})
}

func TestMixedFleetSeesEachOfSeveralNames(t *testing.T) {
	ctx := t.Context()
	f := newFleet(t)
	several, theirs := f.several(), f.process(patientRival)
	release := func(m safety.Mutex) {
		ok, err := m.UnlockContext(ctx)
		require.NoError(t, err)
		require.True(t, ok)
	}
	for i := range 100 {
		both := several("other", "lock")
		require.NoError(t, both.TryLockContext(ctx), "round %d", i)
		for _, name := range []string{"lock", "other"} {
			require.Error(t, theirs.NewMutex(name, safety.Options{Expiry: lasting}).TryLockContext(ctx), "round %d, %s", i, name)
		}
		release(both)
		for _, name := range []string{"lock", "other"} {
			single := theirs.NewMutex(name, safety.Options{Expiry: lasting})
			require.NoError(t, single.TryLockContext(ctx), "round %d, %s", i, name)
			var taken *redsync.ErrTaken
			require.ErrorAs(t, several("other", "lock").TryLockContext(ctx), &taken)
			release(single)
		}
	}
	f.requireNoKeys()
}

// requireRefused requires that m can neither be extended nor unlocked.
func requireRefused(t *testing.T, m safety.Mutex) {
	t.Helper()
	ok, err := m.ExtendContext(t.Context())
	require.Error(t, err)
	require.False(t, ok)
	ok, err = m.UnlockContext(t.Context())
	require.Error(t, err)
	require.False(t, ok)
}

// requireUntouched requires that all nodes hold m, and that m is valid.
func requireUntouched(t *testing.T, f *fleet, m safety.Mutex) {
	t.Helper()
	f.requireSoon(func() bool { return f.holding("lock", m.Value()) == safety.N }, "nodes lack the key of the holder")
	ok, err := m.ValidContext(t.Context())
	require.NoError(t, err)
	require.True(t, ok)
}

func TestMixedFleetLocksOfTheOtherAreLeftAlone(t *testing.T) {
	others := []struct {
		name string
		make func(t *testing.T, f *fleet, lib safety.Library) safety.Mutex
	}{
		{"never locked", func(_ *testing.T, _ *fleet, lib safety.Library) safety.Mutex {
			return lib.NewMutex("lock", safety.Options{Expiry: lasting})
		}},
		{"another value", func(_ *testing.T, _ *fleet, lib safety.Library) safety.Mutex {
			return lib.NewMutex("lock", safety.Options{Expiry: lasting, Value: "another"})
		}},
		{"expired", func(t *testing.T, f *fleet, lib safety.Library) safety.Mutex {
			m := lib.NewMutex("lock", safety.Options{Expiry: 2 * time.Second})
			// On a busy machine a lock as short as this may expire before it is acquired, so try again.
			f.requireSoon(func() bool { return m.TryLockContext(t.Context()) == nil }, "a free lock could not be acquired")
			f.requireSoon(func() bool { return f.keys() == 0 }, "some keys have not expired")
			return m
		}},
	}
	directions(t, func(t *testing.T, first, second safety.Open) {
		f := newFleet(t)
		a, b := f.process(first), f.process(second)
		for _, other := range others {
			t.Run(other.name, func(t *testing.T) {
				stranger := other.make(t, f, b)
				m := a.NewMutex("lock", safety.Options{Expiry: lasting})
				require.NoError(t, m.TryLockContext(t.Context()))
				requireUntouched(t, f, m)
				requireRefused(t, stranger)
				requireUntouched(t, f, m)
				ok, err := m.UnlockContext(t.Context())
				require.NoError(t, err)
				require.True(t, ok)
				f.requireNoKeys()
			})
		}
	})
}

func TestMixedFleetHandsOffByValue(t *testing.T) {
	ctx := t.Context()
	directions(t, func(t *testing.T, first, second safety.Open) {
		f := newFleet(t)
		a, b := f.process(first), f.process(second)
		for range 100 {
			from := a.NewMutex("lock", safety.Options{Expiry: lasting})
			require.NoError(t, from.TryLockContext(ctx))
			to := b.NewMutex("lock", safety.Options{Expiry: lasting, Value: from.Value()})
			for _, operation := range []func(context.Context) (bool, error){
				to.ExtendContext, to.ValidContext, to.UnlockContext,
			} {
				// Valid of redsync may return true together with the error of a minority of nodes.
				ok, err := operation(ctx)
				require.True(t, ok, "%v", err)
			}
			requireRefused(t, from)
		}
		f.requireNoKeys()
	})
}

// TestMixedFleetUnlocksByValueAlone lets one process lock, and another one unlock at once
// by the value. This library must then wait for all nodes in Lock (WithFailFast(false)).
// Otherwise a delete, which the other process sends on another connection, may overtake a
// set that is still on its way to a slow node.
func TestMixedFleetUnlocksByValueAlone(t *testing.T) {
	ctx := t.Context()
	directions(t, func(t *testing.T, first, second safety.Open) {
		f := newFleet(t)
		a, b := f.process(first), f.process(second)
		for range 100 {
			from := a.NewMutex("lock", safety.Options{Expiry: lasting})
			require.NoError(t, from.TryLockContext(ctx))
			ok, err := b.NewMutex("lock", safety.Options{Expiry: lasting, Value: from.Value()}).UnlockContext(ctx)
			require.NoError(t, err)
			require.True(t, ok)
			next := a.NewMutex("lock", safety.Options{Expiry: lasting})
			require.NoError(t, next.TryLockContext(ctx))
			ok, err = next.UnlockContext(ctx)
			require.NoError(t, err)
			require.True(t, ok)
		}
		f.requireNoKeys()
	}, redsync.WithFailFast(false))
}
