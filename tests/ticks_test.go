package redsync_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
)

// This file shows what TryLock does after a split vote, as when several processes start a job at each tick.

// splits sets another client's value on the given nodes only.
func (f field) splits(nodes ...int) {
	f.sets("lock", "another's", hour, nodes...)
}

// If another client holds the lock on all nodes, TryLock makes one attempt: no node grants, so the votes are not split.
func TestTryLockOfATakenLockMakesOneAttempt(t *testing.T) {
	inEachMode(t, playMet, func(f field, mode opts) {
		f.splits(allNodes...)
		for name, try := range map[string]func(m *redsync.Mutex) error{
			"TryLock":      (*redsync.Mutex).TryLock,
			"TryDo":        func(m *redsync.Mutex) error { return f.notRun(m.TryDo(f.Context(), nothing)) },
			"WithTries(1)": (*redsync.Mutex).Lock,
		} {
			before, start := f.traffic(), time.Now()
			err := try(f.NewMutex("lock", append(mode, once)...))
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
					noError(f, n.Set(kind.keys[0], "another's"))
					time.AfterFunc(1, func() { n.Del(kind.keys[0]) })
				}
				m := kind.lock(f.Redsync, append(mode, hearsAll)...)
				start := time.Now()
				obtained(f, m)
				assert.LessOrEqual(f, time.Since(start), (16+32+64)*ms)
				f.unlock(m)
				time.Sleep(2 * sec)
				f.nobodyWaits()
			})
		})
	}
}

// The minimal hold counts from the attempt that has won, and not from the call.
func TestMinHoldCountsFromTheAttemptThatWon(t *testing.T) {
	playMet(t, func(f field) {
		f.splits(majority...)
		time.AfterFunc(time.Nanosecond, func() { f.lose(majority...) })
		m := f.obtains(hearsAll, resting, lasting)
		f.unlock(m)
		f.rests(withDrift)
	})
}

// When its context ends or Close is called, TryLock ends without another attempt.
func TestTryLockEndsBetweenItsAttempts(t *testing.T) {
	playMet(t, func(f field) {
		f.splits(majority...)
		onEach(f.nodes, "set", 1000, embedded.Fault{Delay: 50 * ms}) // so the pauses between attempts are long
		start := time.Now()
		errorIs(f, f.NewMutex("lock", hearsAll).TryLockContext(limited(f, 50*ms+1)), context.DeadlineExceeded)
		took(f, start, 50*ms+1)
		time.AfterFunc(50*ms+1, func() { _ = f.Close(f.Context()) })
		start = time.Now()
		errorIs(f, f.tries(hearsAll), redsync.ErrClosed)
		took(f, start, 50*ms+1)
	})
}

// Nodes that answer late make the delays long. Nevertheless TryLock begins no repetition after the node deadline.
func TestTryLockTakesLessThanTwoNodeDeadlines(t *testing.T) {
	playMet(t, func(f field) {
		f.splits(majority...)
		f.slow(patience - 30*ms)
		for range 10 {
			start := time.Now()
			erred(f, f.tries(hearsAll))
			assert.Less(f, time.Since(start), 2*patience)
		}
	})
}
