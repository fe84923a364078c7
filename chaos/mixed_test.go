package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
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

// Goroutines with either library lock one of two names, and others lock both names with this library. No name may have
// two holders.
func TestMixedFleetNeverHasTwoHolders(t *testing.T) {
	f := newFleet(t)
	names := []string{"a", "b"}
	registers := make([]register, len(names))
	start := time.Now()
	var shares [3]atomic.Int64
	goesOn := func() bool { // for 5 s, and on a slow machine until each of the three has acquired a lock
		each := shares[0].Load() > 0 && shares[1].Load() > 0 && shares[2].Load() > 0
		return time.Since(start) < 5*time.Second || !each && time.Since(start) < time.Minute
	}
	var wg sync.WaitGroup
	for i := range 8 {
		open := [...]safety.Open{patient(), patientRival}[i%2]
		lib := f.process(open)
		wg.Go(func() {
			c := contender{
				name: fmt.Sprintf("%s %d", [...]string{"ours", "redsync"}[i%2], i),
				rand: rand.New(rand.NewPCG(uint64(i), 1)), //nolint:gosec // a repeatable choice
			}
			for goesOn() {
				n := c.rand.IntN(len(names))
				// With equal delays the contenders would try again at the same moments, and collide again.
				m := lib.NewMutex(names[n], safety.Options{
					Expiry: lasting, Tries: 20, RetryDelay: time.Duration(3+i) * time.Millisecond,
				})
				if c.hold(t, m, &registers[n]) {
					shares[i%2].Add(1)
				}
			}
		})
	}
	for i := range 2 {
		locks := f.several()
		wg.Go(func() {
			c := contender{name: fmt.Sprintf("both names %d", i), rand: rand.New(rand.NewPCG(uint64(i), 2))} //nolint:gosec // a repeatable choice
			for goesOn() {
				first := c.rand.IntN(len(names))
				if c.hold(t, locks(names[first], names[1-first]), &registers[0], &registers[1]) {
					shares[2].Add(1)
				}
			}
		})
	}
	wg.Wait()
	f.requireNoKeys()
	for i := range registers {
		require.Empty(t, registers[i].violations)
	}
	t.Logf("acquisitions: ours %d, redsync %d, both names %d", shares[0].Load(), shares[1].Load(), shares[2].Load())
	require.Positive(t, shares[0].Load(), "this library acquired no lock")
	require.Positive(t, shares[1].Load(), "redsync v4 acquired no lock")
	require.Positive(t, shares[2].Load(), "nobody acquired a lock on both names")
}

// A contender is one goroutine of a mixed fleet.
type contender struct {
	name string
	rand *rand.Rand
}

// hold holds m, a lock on the names of these registers, for a moment. It reports whether m was acquired.
func (c *contender) hold(t *testing.T, m safety.Mutex, registers ...*register) bool {
	t.Helper()
	ctx := context.Background()
	if m.LockContext(ctx) != nil {
		return false // the lock was taken in all tries
	}
	mine := make([]*term, len(registers))
	for i, r := range registers {
		mine[i] = r.enter(c.name, m.Until())
	}
	c.work()
	if c.rand.IntN(4) == 0 {
		ok, err := m.ExtendContext(ctx)
		if !ok || err != nil {
			t.Errorf("%s: Extend of a held lock returned %v, %v", c.name, ok, err)
		}
		c.work()
	}
	for i, r := range registers {
		r.leave(mine[i])
	}
	if ok, err := m.UnlockContext(ctx); !ok {
		t.Errorf("%s: Unlock of a held lock returned %v, %v", c.name, ok, err)
	}
	return true
}

func (c *contender) work() {
	time.Sleep(time.Duration(c.rand.IntN(3000)) * time.Microsecond)
}

// A register notes who holds one lock. A contender that has entered counts as the holder
// until it leaves or its Until passes.
type register struct {
	holder     atomic.Pointer[term]
	mu         sync.Mutex
	violations []string
}

// A term is one hold. An extension only moves the true end of the hold to a later time.
// So a violation that judge finds by the first Until is a true one.
type term struct {
	who   string
	until time.Time
}

func (r *register) enter(who string, until time.Time) *term {
	mine := &term{who, until}
	now := time.Now() // taken before mine is in the register
	if other := r.holder.Swap(mine); other != nil {
		r.judge(now, mine, other)
	}
	return mine
}

func (r *register) leave(mine *term) {
	now := time.Now()
	if r.holder.CompareAndSwap(mine, nil) {
		return
	}
	if other := r.holder.Load(); other != nil {
		r.judge(now, mine, other)
	} else if now.Before(mine.until) {
		r.note(fmt.Sprintf("somebody held the lock while %s did", mine.who))
	}
}

// judge notes a violation if neither term has reached its Until at now.
func (r *register) judge(now time.Time, a, b *term) {
	if now.Before(a.until) && now.Before(b.until) {
		r.note(fmt.Sprintf("%s and %s held the lock at once", a.who, b.who))
	}
}

func (r *register) note(violation string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.violations = append(r.violations, violation)
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
