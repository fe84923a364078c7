package main

import (
	"context"
	"strings"
	"testing"
	"time"

	rival "github.com/go-redsync/redsync/v4"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/testkit/realredis"
	"github.com/seed14bd9ef4/redsync/internal/testkit/safety"
	"github.com/seed14bd9ef4/redsync/pool"
)

// A fleet has processes with redsync v4 and processes with this library, which share
// locks on the same five servers. A program has such processes while it moves from one
// library to the other.
type fleet struct {
	*testing.T
	servers []*realredis.Server
}

// newFleet starts the servers. At the end of the test it fails t if a key is left on
// them or a goroutine still runs.
func newFleet(t *testing.T) *fleet {
	// Cleanups run in reverse order, so the check for goroutines comes last.
	t.Cleanup(func() { goleak.VerifyNone(t) })
	f := &fleet{T: t, servers: realredis.Start(t, safety.N)}
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
	f.Cleanup(lib.Close)
	return lib
}

// answering counts the nodes that answer so to a command.
func (f *fleet) answering(want any, command ...any) (count int) {
	for _, s := range f.servers {
		if got, err := s.Do(command...); err == nil && got == want {
			count++
		}
	}
	return count
}

// requireNoKeys requires that all keys are gone within a minute. That is enough for releases in the background on a
// busy machine, and less than the expiry, after which all keys would be gone anyway.
func (f *fleet) requireNoKeys() {
	f.requireSoon(func() bool { return f.answering(int64(0), "dbsize") == safety.N })
}

func (f *fleet) requireSoon(condition func() bool) {
	require.Eventually(f, condition, time.Minute, 10*time.Millisecond)
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

// several returns a function that makes locks of this library on several names. These locks have their own connections.
func (f *fleet) several() func(names ...string) *redsync.Mutex {
	pools := make([]pool.Pool, len(f.servers))
	for i, s := range f.servers {
		pools[i] = pool.New(s.Client())
	}
	rs := redsync.New(pools...).With(redsync.WithTimeoutFactor(patientFactor))
	f.Cleanup(func() { rs.Close(context.Background()) })
	return func(names ...string) *redsync.Mutex {
		return rs.NewMultiMutex(names, redsync.WithExpiry(lasting),
			redsync.WithTries(20), redsync.WithRetryDelay(5*time.Millisecond))
	}
}

// A fleetLock is a lock of either library in a test.
type fleetLock struct {
	safety.Mutex
	f *fleet
}

func (f *fleet) lock(lib safety.Library, name, value string) fleetLock {
	return fleetLock{lib.NewMutex(name, safety.Options{Expiry: lasting, Value: value}), f}
}

// locked returns a lock that is held.
func (f *fleet) locked(lib safety.Library, name string) fleetLock {
	m := f.lock(lib, name, "")
	require.NoError(f, m.try())
	return m
}

func (m fleetLock) try() error { return m.TryLockContext(m.f.Context()) }

// does requires that operations of m succeed. Valid of redsync may return true together with the error of a minority of nodes.
func (m fleetLock) does(operations ...func(context.Context) (bool, error)) {
	for _, operation := range operations {
		ok, err := operation(m.f.Context())
		require.True(m.f, ok, err)
	}
}

// isRefused requires that m can neither be extended nor unlocked.
func (m fleetLock) isRefused() {
	for _, operation := range []func(context.Context) (bool, error){m.ExtendContext, m.UnlockContext} {
		ok, err := operation(m.f.Context())
		require.Error(m.f, err)
		require.False(m.f, ok)
	}
}

// isUntouched requires that all nodes have the key of m, and that m is valid.
func (m fleetLock) isUntouched() {
	m.f.requireSoon(func() bool { return m.f.answering(m.Value(), "get", "lock") == safety.N })
	m.does(m.ValidContext)
}

// leavesAlone requires that a lock of b does no harm to one of a that another process has.
func leavesAlone(f *fleet, stranger fleetLock, a safety.Library) {
	m := f.locked(a, "lock")
	m.isUntouched()
	stranger.isRefused()
	m.isUntouched()
	m.does(m.UnlockContext)
}

// Each play has processes of both libraries, in either order.
func TestMixedFleet(t *testing.T) {
	for name, play := range map[string]func(f *fleet, a, b safety.Library){
		"a Mutex that was never locked": func(f *fleet, a, b safety.Library) { leavesAlone(f, f.lock(b, "lock", ""), a) },
		"a Mutex whose lock has expired": func(f *fleet, a, b safety.Library) {
			m := fleetLock{b.NewMutex("lock", safety.Options{Expiry: 2 * time.Second}), f}
			// On a busy machine a lock as short as this may expire before it is acquired, so try again.
			f.requireSoon(func() bool { return m.try() == nil })
			f.requireNoKeys()
			leavesAlone(f, m, a)
		},
		"a lock is handed off by its value": func(f *fleet, a, b safety.Library) {
			for range 100 {
				from := f.locked(a, "lock")
				to := f.lock(b, "lock", from.Value())
				to.does(to.ExtendContext, to.ValidContext, to.UnlockContext)
				from.isRefused()
			}
		},
		// This library must wait for all nodes in Lock (WithFailFast(false)). Otherwise a delete, which the other process sends on
		// another connection, may overtake a set that is still on its way to a slow node.
		"a lock is unlocked at once by its value alone": func(f *fleet, a, b safety.Library) {
			for range 100 {
				from := f.locked(a, "lock")
				to := f.lock(b, "lock", from.Value())
				to.does(to.UnlockContext)
				next := f.locked(a, "lock")
				next.does(next.UnlockContext)
			}
		},
	} {
		ours := patient()
		if strings.HasSuffix(name, "alone") {
			ours = patient(redsync.WithFailFast(false))
		}
		for order, opens := range map[string][2]safety.Open{"ours, then redsync": {ours, patientRival}, "redsync, then ours": {patientRival, ours}} {
			t.Run(name+"/"+order, func(t *testing.T) {
				f := newFleet(t)
				play(f, f.process(opens[0]), f.process(opens[1]))
			})
		}
	}
}

func TestMixedFleetSeesEachOfSeveralNames(t *testing.T) {
	f := newFleet(t)
	several, theirs := f.several(), f.process(patientRival)
	for range 100 {
		both := fleetLock{several("other", "lock"), f}
		require.NoError(t, both.try())
		for _, name := range []string{"lock", "other"} {
			require.Error(t, f.lock(theirs, name, "").try())
		}
		both.does(both.UnlockContext)
		for _, name := range []string{"lock", "other"} {
			single := f.locked(theirs, name)
			require.ErrorAs(t, several("other", "lock").TryLockContext(t.Context()), new(*redsync.ErrTaken))
			single.does(single.UnlockContext)
		}
	}
}
