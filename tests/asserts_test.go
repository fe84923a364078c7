package redsync_test

import (
	"context"
	"iter"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/pool"
)

// This file has steps and checks that many tests make.

// playAs, playMetAs, kitAs and kitMetAs are these as subtests.
var (
	playAs, playMetAs = asSubtest(play), asSubtest(playMet)
	kitAs, kitMetAs   = asSubtest(onKit), asSubtest(kitMet)
)

func asSubtest[On any](run func(*testing.T, func(On))) func(*testing.T, string, func(On)) {
	return func(t *testing.T, name string, f func(On)) {
		t.Run(name, func(t *testing.T) { run(t, f) })
	}
}

// sorted yields what m has, in the order of its keys.
func sorted[V any](m map[string]V) iter.Seq2[string, V] {
	return func(yield func(string, V) bool) {
		for _, key := range slices.Sorted(maps.Keys(m)) {
			if !yield(key, m[key]) {
				return
			}
		}
	}
}

// playMet is play with a Redsync that has met all nodes.
func playMet(t *testing.T, f func(f field)) {
	play(t, func(met field) { met.meet(); f(met) })
}

// kitMet is onKit with a Redsync that has met all nodes.
func kitMet(t *testing.T, f func(k kit)) {
	onKit(t, func(met kit) { met.meet(); f(met) })
}

// locked locks m, and returns it.
func locked[M interface{ Lock() error }](tb testing.TB, m M) M {
	tb.Helper()
	require.NoError(tb, m.Lock())
	return m
}

// obtained locks m with TryLock, and returns it.
func obtained[M interface{ TryLock() error }](tb testing.TB, m M) M {
	tb.Helper()
	require.NoError(tb, m.TryLock())
	return m
}

// shut closes a Redsync.
func shut(tb testing.TB, rs *redsync.Redsync) {
	tb.Helper()
	require.NoError(tb, rs.Close(tb.Context()))
}

// alive checks that m, a lock or a context, has no error.
func alive(tb testing.TB, m interface{ Err() error }) {
	tb.Helper()
	require.NoError(tb, m.Err())
}

// isOver checks that m, a lock or a context, has ended for that reason.
func isOver(tb testing.TB, m interface{ Err() error }, reason error) {
	tb.Helper()
	require.ErrorIs(tb, m.Err(), reason)
}

// failsWith checks that an operation fails, and that its error matches each target.
func failsWith(tb testing.TB, operation func() (bool, error), targets ...error) {
	tb.Helper()
	ok, err := operation()
	assert.False(tb, ok)
	errorIs(tb, err, targets...)
}

// keysOn checks on how many nodes the lock's key is, once no command is on its way.
func (f field) keysOn(nodes int) {
	synctest.Wait()
	require.Equal(f, nodes, f.nodes.Keys("lock"))
}

// downgrades makes the hold of m shared.
func (u user) downgrades(m *redsync.Mutex) {
	require.NoError(u, m.Downgrade(u.Context()))
}

// detaches gives the hold of m away.
func (u user) detaches(m *redsync.Mutex) redsync.Sequencer {
	s, err := m.Detach(u.Context())
	require.NoError(u, err)
	return s
}

// releases releases the lock of a holder by force, with a Mutex of an operator.
func (u user) releases(operator *redsync.Mutex, h redsync.Holder) {
	require.NoError(u, operator.ForceUnlock(u.Context(), h))
}

// hasSent checks how many commands of locks the nodes were sent.
func (f field) hasSent(want int, why ...any) {
	assert.Equal(f, want, f.traffic(), why...)
}

// sleepToTheSecond sleeps until the next second of the clock begins.
func sleepToTheSecond() { sleep(time.Until(time.Now().Truncate(sec).Add(sec))) }

const (
	ms     = time.Millisecond
	sec    = time.Second
	minute = time.Minute
	hour   = time.Hour
)

// confirmed checks that an operation returns true and no error.
func confirmed(tb testing.TB, operation func() (bool, error)) {
	tb.Helper()
	ok, err := operation()
	require.NoError(tb, err)
	require.True(tb, ok)
}

// panicked checks that do panics with what functions of the user panic with.
func panicked(tb testing.TB, do func()) {
	tb.Helper()
	assert.PanicsWithValue(tb, "the user's", do)
}

// sleep is time.Sleep. In a bubble it takes no time.
var sleep = time.Sleep

// opts are options of a lock.
type opts = []redsync.Option

// Options that many locks have.
var (
	withTries         = redsync.WithTries
	forever           = withTries(0)
	hearsAll          = redsync.WithFailFast(false) // calls wait for all nodes, not for a quorum
	withWatchdog      = redsync.WithWatchdog()
	withFair          = redsync.WithFair()
	withShared        = redsync.WithShared()
	withFencing       = redsync.WithFencing()
	withSetNXOnExtend = redsync.WithSetNXOnExtend()

	withExpiry       = redsync.WithExpiry
	withOwner        = redsync.WithOwner
	withValue        = redsync.WithValue
	withSequencer    = redsync.WithSequencer
	withPermits      = redsync.WithPermits
	withHooks        = redsync.WithHooks
	withNodeTimeout  = redsync.WithNodeTimeout
	withRetryDelay   = redsync.WithRetryDelay
	withMaxHold      = redsync.WithMaxHold
	withLockDelay    = redsync.WithLockDelay
	withMinHold      = redsync.WithMinHold
	withGenValueFunc = redsync.WithGenValueFunc
)

// errorIs checks that err matches each target.
func errorIs(tb testing.TB, err error, targets ...error) {
	tb.Helper()
	for _, target := range targets {
		require.ErrorIs(tb, err, target)
	}
}

// isTaken checks that err says that others have the lock, and returns what it says.
func isTaken(tb testing.TB, err error) (taken *redsync.ErrTaken) {
	tb.Helper()
	require.ErrorAs(tb, err, &taken)
	return taken
}

// took checks how much time has passed since start.
func took(tb testing.TB, start time.Time, want time.Duration, why ...any) {
	tb.Helper()
	assert.Equal(tb, want, time.Since(start), why...)
}

// limited returns a context that ends after d.
func limited(tb testing.TB, d time.Duration) context.Context {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), d)
	tb.Cleanup(cancel)
	return ctx
}

// poolsOf returns a pool of each client.
func poolsOf(clients []*redis.Client) (pools []pool.Pool) {
	for _, c := range clients {
		pools = append(pools, pool.New(c))
	}
	return pools
}

// isIdle checks that m holds nothing, and says so.
func (u user) isIdle(m *redsync.Mutex) {
	for _, operation := range operations(m) {
		failsWith(u, operation, redsync.ErrNotHeld)
	}
	isOver(u, m, redsync.ErrNotHeld)
	assert.Zero(u, m.Until())
	assert.Zero(u, m.Remaining())
	assert.Zero(u, m.Fence())
	assert.Zero(u, m.Sequencer())
	assert.Empty(u, m.Value())
}

// theirs returns a lock that another process holds.
func (f field) theirs(name string, options ...redsync.Option) *redsync.Mutex {
	return locked(f, f.another().NewMutex(name, options...))
}

// isValidFrom checks that m is valid for as long as a lock that was asked for at start.
func (u user) isValidFrom(m *redsync.Mutex, start time.Time) {
	assert.Equal(u, start.Add(validity).UnixNano(), m.Until().UnixNano())
}
