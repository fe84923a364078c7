package fencing_test

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/seed14bd9ef4/redsync/fencing"
)

func TestGuardOlderEqualNewer(t *testing.T) {
	for _, p := range pairs {
		var g fencing.Guard
		assert.Zero(t, g.Newest())
		require.NoError(t, g.Check(p.older))
		require.NoError(t, g.Check(p.newer))
		require.NoError(t, g.Check(p.newer))
		requireStale(t, g.Check(p.older), p.older, p.newer)
		require.NoError(t, g.Check(p.newer), "a refusal changes nothing")
		assert.Equal(t, p.newer, g.Newest())
	}
}

func TestGuardTokenZero(t *testing.T) {
	var g fencing.Guard
	require.ErrorIs(t, g.Check(0), fencing.ErrNoToken)
	called := false
	require.ErrorIs(t, g.Do(0, func() error { called = true; return nil }), fencing.ErrNoToken)
	assert.False(t, called)
	assert.Zero(t, g.Newest())
}

func TestGuardDoWritesOnlyWhatIsNotOlder(t *testing.T) {
	var g fencing.Guard
	written := ""
	write := func(s string) func() error { return func() error { written = s; return nil } }
	require.NoError(t, g.Do(2, write("b")))
	requireStale(t, g.Do(1, write("a")), 1, 2)
	assert.Equal(t, "b", written)
	require.NoError(t, g.Do(2, write("b again")))
	assert.Equal(t, "b again", written)
}

func TestGuardDoFailedWriteCountsAsSeen(t *testing.T) {
	var g fencing.Guard
	require.ErrorIs(t, g.Do(2, func() error { return errWrite }), errWrite)
	requireStale(t, g.Check(1), 1, 2)
}

func TestGuardDoPanicLeavesItUsable(t *testing.T) {
	var g fencing.Guard
	require.Panics(t, func() { _ = g.Do(2, func() error { panic("write") }) })
	requireStale(t, g.Check(1), 1, 2)
	require.NoError(t, g.Check(3))
}

// TestGuardManyGoroutines lets many goroutines write at once. Do must run one write at a time, and
// none after a write with a newer token.
func TestGuardManyGoroutines(t *testing.T) {
	var g fencing.Guard
	var inside atomic.Int32
	var written []uint64 // no mutex: only Do appends, one call at a time
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 300 {
				token := rand.Uint64N(500) + 1
				err := g.Do(token, func() error {
					assert.EqualValues(t, 1, inside.Add(1))
					runtime.Gosched()
					written = append(written, token)
					inside.Add(-1)
					return nil
				})
				if err != nil {
					assert.ErrorIs(t, err, fencing.ErrStale)
				}
				assert.GreaterOrEqual(t, g.Newest(), token)
			}
		})
	}
	all.Wait()
	assert.IsNonDecreasing(t, written)
	assert.Equal(t, g.Newest(), written[len(written)-1])
}

func TestGuardsAreSeparateByName(t *testing.T) {
	var g fencing.Guards
	require.NoError(t, g.For("a").Check(5))
	require.NoError(t, g.For("b").Check(3))
	requireStale(t, g.For("a").Check(4), 4, 5)
	require.NoError(t, g.For("b").Check(4))
	assert.Same(t, g.For("a"), g.For("a"))
}

func TestGuardsForTheSameToAll(t *testing.T) {
	for range 2000 {
		var g fencing.Guards
		var found sync.Map
		var all sync.WaitGroup
		begin := make(chan struct{})
		for range 8 {
			all.Go(func() {
				<-begin
				found.Store(g.For("a"), true)
			})
		}
		close(begin)
		all.Wait()
		count := 0
		found.Range(func(any, any) bool { count++; return true })
		require.Equal(t, 1, count)
	}
}

func TestGuardLikeTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var g fencing.Guards
		models := map[string]*model{"a": {}, "b": {}}
		for range rapid.IntRange(1, 40).Draw(t, "calls") {
			name := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "name")
			guard, m := g.For(name), models[name]
			token := m.drawToken(t)
			call := rapid.SampledFrom([]string{"check", "do", "read"}).Draw(t, "call")
			if call == "check" {
				m.requireErr(t, token, guard.Check(token))
			} else {
				fails := rapid.SampledFrom([]error{nil, errWrite}).Draw(t, "fails")
				called := false
				do, requireErr := guard.Do, m.requireErr
				if call == "read" {
					do, requireErr = guard.Read, m.requireReadErr
				}
				err := do(token, func() error { called = true; return fails })
				require.Equal(t, requireErr(t, token, err), called)
				if called {
					require.Equal(t, fails, err)
				}
			}
			require.Equal(t, m.newest(), guard.Newest())
		}
	})
}

// The cases are those in which a guard needs two marks: a late reader after a newer write, a late
// writer after a newer read, readers in any order, and one hold that reads and writes.
func TestGuardReadersAndWriters(t *testing.T) {
	nothing := func() error { return nil }
	for _, p := range pairs {
		var g fencing.Guard
		require.NoError(t, g.Read(p.newer, nothing))
		require.NoError(t, g.Read(p.older, nothing), "readers do not refuse each other")
		requireStale(t, g.Do(p.older, nothing), p.older, p.newer)
		requireStale(t, g.Check(p.older), p.older, p.newer)
		assert.Equal(t, p.newer, g.Newest())
		require.NoError(t, g.Read(p.older, nothing), "a refusal changes nothing")

		require.NoError(t, g.Do(p.newer, nothing), "it has read, and writes")
		require.NoError(t, g.Read(p.newer, nothing), "and reads, as after Downgrade")
		require.NoError(t, g.Do(p.newer, nothing))
		requireStale(t, g.Read(p.older, func() error { t.Error("called"); return nil }), p.older, p.newer)
	}
}

func TestGuardReadAfterDowngrade(t *testing.T) {
	var g fencing.Guard
	nothing := func() error { return nil }
	require.NoError(t, g.Do(5, nothing))
	require.NoError(t, g.Read(5, nothing))
	require.NoError(t, g.Read(6, nothing), "another reader")
	require.NoError(t, g.Read(5, nothing), "still a reader")
	requireStale(t, g.Do(5, nothing), 5, 6)
	requireStale(t, g.Read(4, nothing), 4, 5)
}

func TestGuardReadTokenZero(t *testing.T) {
	var g fencing.Guard
	require.ErrorIs(t, g.Read(0, func() error { t.Error("called"); return nil }), fencing.ErrNoToken)
	assert.Zero(t, g.Newest())
}

func TestGuardFailedReadCountsAsSeen(t *testing.T) {
	var g fencing.Guard
	require.ErrorIs(t, g.Read(2, func() error { return errWrite }), errWrite)
	requireStale(t, g.Check(1), 1, 2)
	require.Panics(t, func() { _ = g.Read(4, func() error { panic("read") }) })
	requireStale(t, g.Check(3), 3, 4)
	require.NoError(t, g.Check(5))
}

func TestGuardReadsRunAtTheSameTime(t *testing.T) {
	var g fencing.Guard
	var inside, all sync.WaitGroup
	inside.Add(8)
	for token := range uint64(8) {
		all.Go(func() {
			enter := sync.OnceFunc(inside.Done)
			defer enter() // if this read is refused, the others must not wait for it forever
			assert.NoError(t, g.Read(token+1, func() error {
				enter()
				inside.Wait()
				return nil
			}))
		})
	}
	all.Wait()
	assert.EqualValues(t, 8, g.Newest())
}

// TestGuardManyReadersAndWriters writes data in two places, one after the other. No read may see half a write.
func TestGuardManyReadersAndWriters(t *testing.T) {
	var g fencing.Guard
	var here, there uint64
	var h history
	manyCalls(&h, 300, func(token uint64) error {
		return g.Do(token, func() error {
			here = token
			runtime.Gosched()
			there = token
			return nil
		})
	}, func(token uint64) (found uint64, err error) {
		err = g.Read(token, func() error {
			found = here
			runtime.Gosched()
			assert.Equal(t, found, there)
			return nil
		})
		return found, err
	})
	h.check(t)
}
