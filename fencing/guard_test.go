package fencing_test

import (
	"math"
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

func TestGuardPanicLeavesItUsable(t *testing.T) {
	var g fencing.Guard
	require.Panics(t, func() { g.Do(2, func() error { panic("write") }) })
	requireStale(t, g.Check(1), 1, 2)
	require.Panics(t, func() { g.Read(4, func() error { panic("read") }) })
	requireStale(t, g.Check(3), 3, 4)
	require.NoError(t, g.Check(5))
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

// A read finds what the newest write before its token has written, and no half of a write.
func TestGuardManyReadersAndWriters(t *testing.T) {
	var g fencing.Guard
	var here, there uint64
	var mu sync.Mutex
	var writes []uint64
	var reads [][2]uint64   // a reader's token, and the token that it found
	var clock atomic.Uint64 // tokens are near it
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 300 {
				token, found := math.MaxInt64+clock.Add(1)-rand.Uint64N(20), uint64(0)
				isWrite, do, call := rand.IntN(4) == 0, g.Read, func() error {
					found = here
					runtime.Gosched()
					assert.Equal(t, found, there)
					return nil
				}
				if isWrite {
					do, call = g.Do, func() error {
						here = token
						runtime.Gosched()
						there = token
						return nil
					}
				}
				if err := do(token, call); err != nil {
					assert.ErrorIs(t, err, fencing.ErrStale)
					continue
				}
				mu.Lock()
				if isWrite {
					writes = append(writes, token)
				} else {
					reads = append(reads, [2]uint64{token, found})
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	require.NotEmpty(t, writes)
	require.NotEmpty(t, reads)
	for _, r := range reads {
		require.LessOrEqual(t, r[1], r[0])
		for _, w := range writes {
			require.False(t, r[1] < w && w < r[0], w)
		}
	}
}
