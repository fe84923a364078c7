package fencing_test

import (
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/seed14bd9ef4/redsync/fencing"
)

func TestGuardPanicLeavesItUsable(t *testing.T) {
	var g fencing.Guard
	require.Panics(t, func() { _ = g.Do(2, func() error { panic("write") }) })
	requireStale(t, g.Check(1), 1, 2)
	require.Panics(t, func() { _ = g.Read(4, func() error { panic("read") }) })
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
