package main

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/examples/internal/rig/rigtest"
	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
	"github.com/seed14bd9ef4/redsync/redsynctest"
)

func TestMain(m *testing.M) { rigtest.Main(m, program) }

// parse runs the whole program, and returns the figures that it prints.
func parse(t *testing.T, args ...string) (calls, most int, back float64, err error) {
	out, err := rigtest.Play(t, program, args...)
	var workers, processes, again int
	_, scanErr := fmt.Sscanf(out, "%d calls of %d workers in %d processes, up to %d at once; %d at once again %f s",
		&calls, &workers, &processes, &most, &again, &back)
	require.NoError(t, scanErr, "%s, %v", out, err)
	return calls, most, back, err
}

func TestAtMostThreeCallTheServiceAlsoAfterAProcessIsKilled(t *testing.T) {
	testlength.NotWhileAPersonWaits(t)
	t.Parallel()
	calls, most, back, err := parse(t)
	require.NoError(t, err)
	assert.Equal(t, size, most)
	assert.Greater(t, calls, 20)
	// The process extended its part at most a third of the expiry before it died.
	assert.Greater(t, back, expiry.Seconds()/2) // until its expiry has passed, the dead process keeps its part
}

// The control: without the limiter more workers call the service at once.
func TestWithoutTheLimiterMoreThanThreeCallTheService(t *testing.T) {
	t.Parallel()
	_, most, _, err := parse(t, "-unlimited")
	require.ErrorIs(t, err, errTooMany)
	assert.Greater(t, most, size)
}

// inProcesses runs a test in a bubble, with a semaphore of a size in each of some processes.
func inProcesses(t *testing.T, processes, size int, test func(t *testing.T, all []*weighted)) {
	synctest.Test(t, func(t *testing.T) {
		nodes := redsynctest.Start(t, 5)
		var all []*weighted
		for range processes {
			all = append(all, newWeighted(nodes.Process(), "service", size, redsync.WithExpiry(expiry)))
		}
		test(t, all)
		nodes.RequireNothingLeft()
	})
}

func TestWeightedOfSeveralProcessesNeverExceedsItsSize(t *testing.T) {
	inProcesses(t, 3, size, func(t *testing.T, all []*weighted) {
		var now, most, served atomic.Int64
		var group sync.WaitGroup
		for i := range 9 {
			s, n := all[i%len(all)], int64(1+i%size)
			group.Go(func() {
				for range 3 {
					assert.NoError(t, s.Acquire(t.Context(), n))
					held := now.Add(n)
					assert.LessOrEqual(t, held, int64(size))
					for before := most.Load(); held > before && !most.CompareAndSwap(before, held); {
						before = most.Load()
					}
					time.Sleep(2 * expiry) // the watchdog extends the hold
					now.Add(-n)
					s.Release(n)
					served.Add(1)
				}
			})
		}
		group.Wait()
		assert.EqualValues(t, size, most.Load())
		assert.EqualValues(t, 27, served.Load())
	})
}

func TestAcquireIsServedInTheOrderOfTheCalls(t *testing.T) {
	inProcesses(t, 2, size, func(t *testing.T, all []*weighted) {
		a, b := all[0], all[1]
		require.NoError(t, a.Acquire(t.Context(), 1))
		large := make(chan time.Time, 1)
		go func() {
			assert.NoError(t, b.Acquire(t.Context(), size))
			large <- time.Now()
			b.Release(size)
		}()
		time.Sleep(time.Second)
		require.False(t, a.TryAcquire(1)) // 2 are free, but a large request waits for them
		small := make(chan time.Time, 1)
		go func() {
			assert.NoError(t, a.Acquire(t.Context(), 1))
			small <- time.Now()
			a.Release(1)
		}()
		time.Sleep(time.Second)
		a.Release(1)
		assert.False(t, (<-small).Before(<-large))
	})
}

func TestBadWeightsAreRefused(t *testing.T) {
	inProcesses(t, 1, size, func(t *testing.T, all []*weighted) {
		s := all[0]
		for _, n := range []int64{0, -1, size + 1, math.MinInt64, math.MaxInt64} {
			start := time.Now()
			require.ErrorContains(t, s.Acquire(t.Context(), n), "WithWeight", n)
			require.False(t, s.TryAcquire(n))
			require.Zero(t, time.Since(start)) // at once
			require.PanicsWithValue(t, fmt.Sprintf("limiter: Release(%d): nothing acquired with Acquire(%[1]d) is held", n), func() { s.Release(n) })
		}
		require.NoError(t, s.Acquire(t.Context(), 2))
		require.Panics(t, func() { s.Release(1) }) // Release must give back all that one Acquire took
		s.Release(2)
		require.Panics(t, func() { s.Release(2) })
	})
}

// A process that is cut off from the nodes loses its part. Do must end the context of its function before another
// process can acquire the part.
func TestDoTellsThatItsPartIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := redsynctest.Start(t, 1)
		a, b := nodes.Process(), nodes.Process()
		first := newWeighted(a, "service", 1, redsync.WithExpiry(expiry))
		second := newWeighted(b, "service", 1, redsync.WithExpiry(expiry))
		var ended time.Time
		err := first.Do(t.Context(), 1, func(ctx context.Context) error {
			nodes.CutOff(a)
			<-ctx.Done()
			ended = time.Now()
			return ctx.Err()
		})
		require.Error(t, err)
		require.NoError(t, second.Acquire(t.Context(), 1))
		require.False(t, time.Now().Before(ended))
		second.Release(1)
		nodes.Reconnect(a)
	})
}
