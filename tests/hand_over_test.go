package redsync_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/fortests"
	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
)

// This file shows how a lock is handed over within a process, and when it is not.

func TestHandOver(t *testing.T) {
	play(t, func(f field) {
		giver, m, until := f.handed(nil, nil)
		assert.NotEmpty(f, m.Value())
		assert.Equal(f, 5, f.on(m.Mutex, "lock"))
		assert.Equal(f, until, m.Until())
		assert.Equal(f, time.Until(until), m.Remaining())
		alive(f, m)
		f.confirms(m.Valid())
		f.isIdle(giver)
		f.keysOn(5)

		sleep(sec)
		f.confirms(m.Extend())
		assert.Equal(f, validity, time.Until(m.Until()))
		f.unlocks(m.Mutex)
		f.nobodyWaits()
	})
}

// The giver's extension arrives while the receiver holds the lock, or after the receiver's Unlock.
func TestHandOverWithAnExtensionOnTheWay(t *testing.T) {
	for _, unlockFirst := range []bool{false, true} {
		playMet(t, func(f field) {
			giver := locked(f, f.NewMutex("lock", withSetNXOnExtend))
			m := f.calls(f.Redsync, patient()...)
			until := giver.Until()
			sleep(ms)
			f.slowly(1, 50*ms, allNodes...)
			var wg sync.WaitGroup
			wg.Go(func() { assert.ErrorIs(f, second(giver.Extend()), redsync.ErrNotHeld) })
			synctest.Wait()
			f.atOnce(giver, m)
			if !unlockFirst {
				sleep(60 * ms)
				f.confirms(m.Valid())
			}
			assert.Equal(f, until, m.Until())
			f.unlocks(m.Mutex)
			wg.Wait()
		})
	}
}

// A chain of hand-overs ends at its time limit. The release at its end tells the process whether other processes wait.
// The next release lets them in. Meanwhile the lock is handed over about once per millisecond.
func TestHandOverLetsOtherProcessesIn(t *testing.T) {
	testlength.NotShort(t)
	for expiry, limit := range map[time.Duration]time.Duration{guard: 20 * ms, 100 * ms: 10 * ms} {
		playMetAs(t, expiry.String(), func(f field) {
			other := f.another()
			ctx, cancel := context.WithCancel(f.Context())
			var wg sync.WaitGroup
			var rounds atomic.Int64
			for range 10 {
				wg.Go(func() {
					m := f.NewMutex("lock", patient(withExpiry(expiry), withNodeTimeout(40*ms))...)
					for m.LockContext(ctx) == nil {
						rounds.Add(1)
						sleep(ms)
						assert.NoError(f, second(m.Unlock()))
					}
				})
			}
			sleep(111 * ms)
			for range 5 {
				before := rounds.Load()
				c := f.calls(other, patient()...)
				took := f.within(c, 2*limit+3*ms)
				assert.GreaterOrEqual(f, rounds.Load()-before, took.Milliseconds()-2)
				sleep(2 * ms)
				f.unlock(c.Mutex)
				sleep(23 * ms)
			}
			before := f.commands("set", "evalsha")
			sleep(100 * ms)
			chains := 100*ms/limit + 1
			assert.LessOrEqual(f, f.commands("set", "evalsha")-before, int(chains)*10)
			cancel()
			wg.Wait()
			sleep(sec)
			f.nobodyWaits()
			f.keysOn(0)
		})
	}
}

func TestNoHandOver(t *testing.T) {
	parallelComputing(t)
	testlength.NotShort(t)
	value := withGenValueFunc(func() (string, error) { return fmt.Sprint(rand.Uint64()), nil }) //nolint:gosec // no secret
	short := withExpiry(100 * ms)
	for name, c := range map[string]struct {
		giving, receiving redsync.Option
		after             time.Duration // from the acquire to Unlock
	}{
		"WithFair":                          {withFair, withFair, 0},
		"WithFair of the receiver":          {forever, withFair, 0},
		"WithMaxHold":                       {withMaxHold(hour), forever, 0},
		"WithMaxHold of the receiver":       {forever, withMaxHold(hour), 0},
		"WithValue":                         {withValue("v"), forever, 0},
		"WithValue of the receiver":         {forever, withValue("v"), 0},
		"WithSequencer":                     {withSequencer(redsync.Sequencer{Name: "lock", Value: "v"}), forever, 0},
		"WithFencing":                       {withFencing, withFencing, 0},
		"WithFencing of the giver":          {withFencing, forever, 0},
		"WithFencing of the receiver":       {forever, withFencing, 0},
		"WithGenValueFunc":                  {value, forever, 0},
		"WithGenValueFunc of the receiver":  {forever, value, 0},
		"WithHandOver(false)":               {redsync.WithHandOver(false), forever, 0},
		"WithHandOver(false), receiver":     {forever, redsync.WithHandOver(false), 0},
		"another expiry":                    {forever, withExpiry(9 * sec), 0},
		"another lock delay":                {forever, withLockDelay(sec), 0},
		"another drift":                     {forever, redsync.WithDriftFactor(0.02), 0},
		"another owner":                     {withOwner("a"), withOwner("b"), 0},
		"20 ms after the acquire":           {forever, forever, 20 * ms},
		"a tenth of the expiry after":       {short, short, 10 * ms},
		"much later, although it extended ": {withWatchdog, forever, 10 * sec},
		"handed over within 20 ms":          {forever, forever, 19 * ms},
		"handed over within a tenth":        {short, short, 9 * ms},
	} {
		playMetAs(t, name, func(f field) {
			giver := locked(f, f.NewMutex("lock", c.giving))
			value := fortests.Value(giver)
			m := f.calls(f.Redsync, patient(c.receiving)...)
			sleep(c.after)
			before := f.traffic()
			f.atOnce(giver, m)
			handed := strings.HasPrefix(name, "handed over")
			assert.Equal(f, handed, value == fortests.Value(m.Mutex))
			assert.Equal(f, handed, f.traffic() == before)
			f.unlocks(m.Mutex)
		})
	}
}

// A waiter gives up at the moment of the hand-over. Whichever comes first, no key is left.
func TestHandOverToOneThatGivesUpAtTheSameMoment(t *testing.T) {
	kitMet(t, func(k kit) {
		for i := range testlength.InGate(20, 50, 100, 200) {
			giver := locked(k, k.NewMutex("lock"))
			c, next := k.calls(k.Redsync, patient()...), k.calls(k.Redsync, patient()...)
			var wg sync.WaitGroup
			steps := []func(){c.cancel, func() { k.unlock(giver) }}
			wg.Go(steps[i%2])
			wg.Go(steps[1-i%2])
			wg.Wait()
			<-c.done
			if c.err == nil {
				k.unlock(c.Mutex)
			} else {
				errorIs(k, c.err, context.Canceled)
			}
			k.within(next, 0)
			k.unlock(next.Mutex)
			k.nothingLeft()
		}
	})
}

// A waiter is handed the lock right after its retry delay has ended: it is preempted where it asks for the error of its
// context. It has already left its line by that time, and must not miss the lock.
func TestWaiterIsHandedTheLockAtTheEndOfItsRetryDelay(t *testing.T) {
	const delay = 10 * ms
	for _, option := range []redsync.Option{
		withRetryDelay(delay), redsync.WithRetryDelayFunc(func(int) time.Duration { return delay }),
	} {
		kitMet(t, func(k kit) {
			giver := locked(k, k.NewMutex("lock"))
			m := k.NewMutex("lock", forever, option)
			start, unlocked := time.Now(), false
			require.NoError(k, m.LockContext(turning{k.Context(), func() {
				if time.Since(start) >= delay && !unlocked {
					unlocked = true
					k.unlock(giver)
				}
			}}))
			require.True(k, unlocked)
			k.unlock(m)
		})
	}
}
