package redsync_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
	"github.com/seed14bd9ef4/redsync/observe"
	"github.com/seed14bd9ef4/redsync/redsynctest"
)

// This file tests what a Downgrade must not break, and what it must tell the nodes.

// Nodes execute an Extend or a Valid only after a Downgrade, because they lacked its script. They find a reader there,
// which proves no loss, even if the caller gives up at any moment.
func TestANodeThatLacksTheScriptExecutesItAfterTheDowngrade(t *testing.T) {
	for _, operation := range []func(*redsync.Mutex, context.Context) (bool, error){
		(*redsync.Mutex).ExtendContext, (*redsync.Mutex).ValidContext,
	} {
		succeeded := 0
		atEachTurn(t, func(f field, turning turner) {
			m := f.held()
			ctx, cancel := context.WithCancel(f.Context())
			defer cancel()
			f.hasNoScript(10*ms, allNodes...)
			var wg sync.WaitGroup
			wg.Go(func() {
				ok, err := operation(m, turning(ctx, cancel))
				assert.NotErrorIs(f, err, redsync.ErrLockLost)
				if ok {
					succeeded++
				}
			})
			sleep(ms)
			f.downgrades(m)
			wg.Wait()
			alive(f, m)
			f.confirms(m.Valid())
			f.unlocks(m)
		})
		assert.Positive(t, succeeded)
	}
}

// A Downgrade ends a round of the watchdog that is under way, so no observer is told that the round has failed: nodes
// that execute its commands only after the Downgrade refuse them.
func TestDowngradeEndsTheRoundOfTheWatchdog(t *testing.T) {
	observing(t, func(f field, r *redsynctest.Recorder) {
		m := f.held(withWatchdog)
		f.hasNoScript(10*ms, allNodes...)
		sleep(guard / 3)
		f.downgrades(m)
		sleep(20 * sec)
		alive(f, m)
		_, errs := of[observe.Extended](r)
		assert.Greater(f, len(errs), 5)
		require.NoError(f, errors.Join(errs...))
		f.unlocks(m)
	})
}

// With WithSetNXOnExtend, a Downgrade sets missing keys again, as an extension does.
func TestDowngradeSetsMissingKeys(t *testing.T) {
	for keys, option := range map[int]redsync.Option{5: withSetNXOnExtend, 3: forever} {
		play(t, func(f field) {
			m := f.held(option)
			f.lose(3, 4)
			f.downgrades(m)
			f.keysOn(keys)
			f.unlocks(m)
		})
	}
}

// A writer has got the lock after it has waited in the line of its process. The line knows at once that its Downgrade
// excludes no reader any more.
func TestDowngradeOfAWriterThatHasWaitedLetsInTheNextOfItsLine(t *testing.T) {
	playMet(t, func(f field) {
		other := f.another()
		taken := f.as(other).held()
		writer := f.calls(f.Redsync, patient()...)
		sleep(10 * ms)
		reader := f.calls(f.Redsync, patient(withShared)...)
		sleep(10 * ms)
		f.unlock(taken)
		f.within(writer, 10*ms)
		sleep(100 * ms)
		require.False(f, reader.isDone())
		f.downgrades(writer.Mutex)
		f.within(reader, 10*ms)
		f.unlock(reader.Mutex)
		f.unlocks(writer.Mutex)
		f.nobodyWaits()
	})
}

// The queues are gone, so that no node can say that a reader of this process may go on. It tries right after the
// Downgrade.
func TestDowngradeWakesAReaderOfThisProcessThatNoQueueHas(t *testing.T) {
	play(t, func(f field) {
		m := f.held()
		r := f.calls(f.Redsync, patient(withShared)...)
		sleep(10 * ms)
		for i, n := range f.nodes {
			require.Len(f, f.inQueue(i), 1)
			n.Del("{lock}:queue")
		}
		f.downgrades(m)
		assert.Zero(f, f.within(r, sec))
		f.unlock(r.Mutex)
		f.unlocks(m)
		f.nobodyWaits()
	})
}

// A goroutine outside of a Do may call Downgrade just as the function begins. Either an exclusive call has joined, and Downgrade
// fails, or Downgrade comes first, and no exclusive call joins.
func TestDowngradeJustAsADoBegins(t *testing.T) {
	testlength.NotShort(t)
	playMet(t, func(f field) {
		for range testlength.InGate(20, 50, 150, 500) {
			m := f.NewMutex("lock")
			var shared error
			var ended atomic.Bool
			var downgrading sync.WaitGroup
			downgrading.Go(func() {
				for range 100_000 {
					if shared = m.Downgrade(f.Context()); !errors.Is(shared, redsync.ErrNotHeld) || ended.Load() {
						return
					}
				}
			})
			joined := false
			err := m.Do(f.Context(), func(ctx context.Context) error {
				return f.Do(ctx, "lock", func(context.Context) error {
					joined = true
					downgrading.Wait()
					return nil
				})
			})
			ended.Store(true)
			downgrading.Wait()
			if joined {
				require.NoError(f, err)
				require.Error(f, shared, "a reader may come in beside the function")
			} else {
				errorIs(f, err, redsync.ErrNested)
			}
		}
	})
}
