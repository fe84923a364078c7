package redsync_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
	"github.com/seed14bd9ef4/redsync/observe"
)

// This file tests what happens when clocks are stepped while the nodes answer.

// steps puts both clocks of the process ahead by the duration that the test stores in ahead. It moves no timer, so code
// that reads a clock notices the step before any timer fires.
func steps(t *testing.T) (ahead *atomic.Int64) {
	ahead = new(atomic.Int64)
	t.Cleanup(clock.Step(func(i clock.Instant) clock.Instant {
		by := time.Duration(ahead.Load())
		return clock.Instant{Mono: i.Mono + by, Wall: i.Wall.Round(0).Add(by)}
	}))
	return ahead
}

// stepsOn sets the clocks ahead by d as soon as a node receives the next command of that name.
func (f field) stepsOn(command string, ahead *atomic.Int64, d time.Duration) {
	synctest.Wait() // for commands that are on their way
	for _, n := range f.nodes {
		n.On(command, 1, embedded.Fault{Then: func([]string) { ahead.Store(int64(d)) }})
	}
}

func TestTryLockWhoseAnswersComeAfterItsValidityFails(t *testing.T) {
	for command, options := range map[string][]redsync.Option{"set": {forever}, "evalsha": {withFencing, withFair}} {
		for _, option := range options {
			t.Run(command, func(t *testing.T) {
				ahead := steps(t)
				playMet(t, func(f field) {
					var told []observe.Attempt
					m := f.NewMutex("lock", option, atAttempts(func(a observe.Attempt) { told = append(told, a) }))
					f.stepsOn(command, ahead, validity)
					err := m.TryLock()
					errorIs(f, err, redsync.ErrNoQuorum)
					require.NotErrorIs(f, err, redsync.ErrFailed)
					require.ErrorContains(f, err, "too few nodes answered in time")
					isOver(f, m, redsync.ErrNotHeld)
					require.Len(f, told, 1)
					assert.Equal(f, validity, told[0].Took)
					require.ErrorIs(f, told[0].Err, redsync.ErrNoQuorum, "the attempt has failed")
					f.noKeys()
					f.nobodyWaits()
				})
			})
		}
	}
}

// The old validity has ended when the nodes confirm the new one: somebody else may have held the lock in between,
// although no timer has fired yet.
func TestExtendWhoseAnswersComeAfterUntilBringsNothingBack(t *testing.T) {
	const left = validity - 4*sec - ms
	for by, held := range map[time.Duration]bool{left - time.Nanosecond: true, left: false, 5 * sec: false} {
		t.Run(by.String(), func(t *testing.T) {
			ahead := steps(t)
			playMet(t, func(f field) {
				m := f.held()
				sleep(4 * sec)
				f.stepsOn("evalsha", ahead, by)
				if held {
					f.confirms(m.Extend())
					assert.Equal(f, validity-by, m.Remaining())
					return
				}
				failsWith(f, m.Extend, redsync.ErrLockLost, redsync.ErrLockAlreadyExpired)
				assert.Zero(f, m.Remaining())
				assert.False(f, open(m.Lost()))
			})
		})
	}
}
