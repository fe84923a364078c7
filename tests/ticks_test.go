package redsync_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/embedded"
	"github.com/seed14bd9ef4/redsync/internal/testlength"
)

// This file shows jobs that several processes start at each tick of a schedule, with TryDo and WithMinHold.

// A schedule is three processes that start a job at each tick by their own clocks.
type schedule struct {
	testing.TB
	job     string // the name of the lock
	every   time.Duration
	skews   []time.Duration // by process: how far its clock is behind
	begin   time.Time       // the first tick, by a clock that is right
	process func(i int) *redsync.Redsync
	ticks   int

	mu   sync.Mutex
	runs []int // by tick
}

// play lets all processes go through all ticks.
func (s *schedule) play(options ...redsync.Option) {
	s.runs = make([]int, s.ticks)
	var all sync.WaitGroup
	for i, skew := range s.skews {
		all.Go(func() {
			rs := s.process(i)
			for tick := range s.ticks {
				time.Sleep(time.Until(s.begin.Add(time.Duration(tick)*s.every + skew)))
				s.try(rs, tick, options...)
			}
			_ = rs.Close(context.Background())
		})
	}
	all.Wait()
}

// try starts the job of a tick.
func (s *schedule) try(rs *redsync.Redsync, tick int, options ...redsync.Option) {
	ran := false
	told, err := rs.NewMutex(s.job, options...).TryDo(s.Context(), func(context.Context) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.runs[tick]++
		ran = true
		return nil
	})
	assert.Equal(s, ran, told)
	assert.NoError(s, err, "tick %d", tick)
}

// jittery returns a process whose messages take a random time of less than most, each way.
func (f field) jittery(r *rand.Rand, most time.Duration) *redsync.Redsync {
	var mu sync.Mutex
	return f.newcomer(0, func(int, int) time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return time.Duration(r.Int64N(int64(most)))
	})
}

// Processes that start at the same moment split the votes of the nodes. TryDo tries again, so that nearly each tick has
// a winner. Without repetitions, 4 to 7 of 10 ticks have none.
func TestScheduledJobRunsIfAllStartAtOnce(t *testing.T) {
	testlength.NotShort(t)
	parallelComputing(t)
	ticks := testlength.InGate(0, 30, 60, 4000)
	for most, processes := range map[time.Duration]int{ms: 5, 20 * ms: 3} {
		playAs(t, fmt.Sprint(processes, " processes, latency below ", most), func(f field) {
			s := &schedule{
				TB: f.T, job: "job", every: 10 * time.Second, ticks: ticks, begin: time.Now().Add(time.Second),
				skews: make([]time.Duration, processes),
				process: func(i int) *redsync.Redsync {
					return f.jittery(rand.New(rand.NewPCG(uint64(i), uint64(processes))), most)
				},
			}
			s.play(redsync.WithMinHold(5 * time.Second))
			without := 0
			for _, runs := range s.runs {
				assert.LessOrEqual(f, runs, 1)
				if runs == 0 {
					without++
				}
			}
			f.Logf("%d of %d ticks had no winner", without, ticks)
			assert.LessOrEqual(f, without, ticks/10, "more than a tenth of the ticks had no winner (without repetitions it is 4 to 7 of 10)")
		})
	}
}

// The tests below show what TryLock does after a split vote.

// splits sets another client's value on the given nodes only.
func (f field) splits(nodes ...int) {
	for _, i := range nodes {
		require.NoError(f, f.nodes[i].Set("lock", "another's"))
		f.nodes[i].SetTTL("lock", time.Hour)
	}
}

// If another client holds the lock on all nodes, TryLock makes one attempt: no node grants, so the votes are not split.
func TestTryLockOfATakenLockMakesOneAttempt(t *testing.T) {
	inEachMode(t, playMet, func(f field, mode opts) {
		f.splits(0, 1, 2, 3, 4)
		for name, try := range map[string]func(m *redsync.Mutex) error{
			"TryLock":      (*redsync.Mutex).TryLock,
			"TryDo":        func(m *redsync.Mutex) error { return f.notRun(m.TryDo(f.Context(), nothing)) },
			"WithTries(1)": (*redsync.Mutex).Lock,
		} {
			before, start := f.traffic(), time.Now()
			err := try(f.NewMutex("lock", append(mode, redsync.WithTries(1))...))
			assert.True(f, errors.Is(err, errOthers) || errors.As(err, new(*redsync.ErrTaken)), "%s: %v", name, err)
			assert.Equal(f, before+10, f.traffic(), "%s: each node is sent one attempt and its release", name)
			assert.Zero(f, time.Since(start), name)
		}
	})
}

// After a split vote TryLock wins if the other client gives up meanwhile. This holds for each kind of lock.
func TestTryLockWinsAfterASplitVote(t *testing.T) {
	for _, kind := range lockKinds {
		t.Run(kind.column, func(t *testing.T) {
			inEachMode(t, playMet, func(f field, mode opts) {
				for _, n := range f.nodes[:3] {
					require.NoError(f, n.Set(kind.keys[0], "another's"))
					time.AfterFunc(1, func() { n.Del(kind.keys[0]) })
				}
				m := kind.lock(f.Redsync, append(mode, hearsAll)...)
				start := time.Now()
				obtained(f, m)
				assert.LessOrEqual(f, time.Since(start), (16+32+64)*ms)
				f.unlock(m)
				time.Sleep(2 * time.Second)
				f.nobodyWaits()
			})
		})
	}
}

// The minimal hold counts from the attempt that has won, and not from the call.
func TestMinHoldCountsFromTheAttemptThatWon(t *testing.T) {
	playMet(t, func(f field) {
		f.splits(0, 1, 2)
		time.AfterFunc(time.Nanosecond, func() { f.lose(0, 1, 2) })
		m := obtained(f, f.NewMutex("lock", hearsAll, redsync.WithMinHold(minHold), redsync.WithExpiry(time.Minute)))
		f.unlock(m)
		f.rests(withDrift)
	})
}

// When its context ends or Close is called, TryLock ends without another attempt.
func TestTryLockEndsBetweenItsAttempts(t *testing.T) {
	playMet(t, func(f field) {
		f.splits(0, 1, 2)
		for _, n := range f.nodes {
			n.On("set", 1000, embedded.Fault{Delay: 50 * ms}) // so the pauses between attempts are long
		}
		ctx, cancel := context.WithTimeout(f.Context(), 50*ms+1)
		defer cancel()
		start := time.Now()
		require.ErrorIs(f, f.NewMutex("lock", hearsAll).TryLockContext(ctx), context.DeadlineExceeded)
		took(f, start, 50*ms+1)
		time.AfterFunc(50*ms+1, func() { _ = f.Close(f.Context()) })
		start = time.Now()
		require.ErrorIs(f, f.NewMutex("lock", hearsAll).TryLock(), redsync.ErrClosed)
		took(f, start, 50*ms+1)
	})
}

// Nodes that answer late make the delays long. Nevertheless TryLock begins no repetition after the node deadline.
func TestTryLockTakesLessThanTwoNodeDeadlines(t *testing.T) {
	playMet(t, func(f field) {
		f.splits(0, 1, 2)
		f.slow(patience - 30*ms)
		for range 10 {
			start := time.Now()
			require.Error(f, f.NewMutex("lock", hearsAll).TryLock())
			assert.Less(f, time.Since(start), 2*patience)
		}
	})
}
