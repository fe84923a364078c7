package redsync_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/testkit/clocktest"
)

// This file tests what happens when the wall clock is set while a lock is held. For steps of both clocks see
// clock_test.go.

// clocks runs f in a bubble with a lock of 9 s, unless options say otherwise, and a wall clock to step.
func clocks(t *testing.T, f func(t *testing.T, s *clocktest.Wall, j *journal, m *redsync.Mutex), options ...redsync.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, j := clocktest.StepWall(t), newJournal(nil)
		rs := redsync.New(j)
		m := locked(t, rs.NewMutex("lock", append(opts{nineSeconds}, options...)...))
		f(t, s, j, m)
		shut(t, rs)
		synctest.Wait()
	})
}

func TestClockSetForwardEndsTheHold(t *testing.T) {
	for _, expiry := range []time.Duration{100 * ms, 9 * sec, hour} {
		t.Run(expiry.String(), func(t *testing.T) {
			clocks(t, func(t *testing.T, s *clocktest.Wall, j *journal, m *redsync.Mutex) {
				lost, ctx := m.Lost(), m.Context(t.Context())
				time.Sleep(expiry / 8)
				require.True(t, open(lost))
				s.Step(2 * hour)
				start := time.Now()
				<-lost
				assert.LessOrEqual(t, time.Since(start), min(expiry/10, sec))
				isOver(t, m, redsync.ErrLockLost)
				synctest.Wait()
				assert.Equal(t, m.Err(), context.Cause(ctx))
				time.Sleep(minute)
				s.Step(-2 * hour)
				assert.Zero(t, m.Remaining()) // a validity that is over stays over
				isOver(t, m, redsync.ErrLockLost)
				failsWith(t, m.Extend, redsync.ErrLockAlreadyExpired)
				assert.Empty(t, j.extended())
			}, withExpiry(expiry), withWatchdog)
		})
	}
}

func TestClockSetForwardIsNoticedByEveryMethod(t *testing.T) {
	for name, notice := range map[string]func(*redsync.Mutex) bool{
		"Remaining": func(m *redsync.Mutex) bool { return m.Remaining() == 0 },
		"Err":       func(m *redsync.Mutex) bool { return errors.Is(m.Err(), redsync.ErrLockLost) },
		"Lost":      func(m *redsync.Mutex) bool { return !open(m.Lost()) },
		"Context":   func(m *redsync.Mutex) bool { return m.Context(context.Background()).Err() != nil },
		"Extend":    nil,
		"Valid":     nil,
		"Unlock":    nil,
	} {
		t.Run(name, func(t *testing.T) {
			clocks(t, func(t *testing.T, s *clocktest.Wall, j *journal, m *redsync.Mutex) {
				lost, ctx := m.Lost(), m.Context(t.Context())
				s.Step(hour)
				if notice != nil {
					assert.True(t, notice(m))
				} else {
					failsWith(t, operations(m)[name], redsync.ErrLockAlreadyExpired)
				}
				assert.False(t, open(lost))                                // the call that notices the step closes Lost
				assert.ErrorIs(t, context.Cause(ctx), redsync.ErrLockLost) // and ends the context
				if name != "Unlock" {
					assert.Len(t, j.Sent(), 1) // the loss was noticed without another request
				}
			})
		})
	}
}

func TestClockSetForwardEndsWhatWaitsForTheNodes(t *testing.T) {
	for _, operation := range []func(*redsync.Mutex) (bool, error){(*redsync.Mutex).Extend, (*redsync.Mutex).Valid} {
		synctest.Test(t, func(t *testing.T) {
			s := clocktest.StepWall(t)
			rs := redsync.New(newJournal(deafToExtensions))
			m := locked(t, rs.NewMutex("lock", withExpiry(hour), withNodeTimeout(4*sec)))
			start := time.Now()
			time.AfterFunc(1500*ms, func() { s.Step(2 * hour) })
			failsWith(t, func() (bool, error) { return operation(m) }, redsync.ErrLockAlreadyExpired)
			took(t, start, 2*sec) // the clocks are compared each second
			shut(t, rs)
		})
	}
}

// The hold ends earlier if the clock is set forward, by that, and no later if it is set back.
func TestClockSetBackChangesNothing(t *testing.T) {
	const end = 9*sec - 92*ms
	for name, c := range map[string]struct {
		steps []time.Duration // one second after the other
		want  time.Duration
	}{
		"back":             {[]time.Duration{-hour}, end},
		"back and forward": {[]time.Duration{-hour, hour}, end},
		"forward a little": {[]time.Duration{3 * sec}, end - 3*sec},
	} {
		for _, watched := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", watched ", watched), func(t *testing.T) {
				var options opts
				if watched {
					options = append(options, withWatchdog)
				}
				clocks(t, func(t *testing.T, s *clocktest.Wall, j *journal, m *redsync.Mutex) {
					lost := m.Lost()
					for _, by := range c.steps {
						s.Step(by)
						time.Sleep(sec)
					}
					if !watched {
						<-lost
						assert.Equal(t, c.want, time.Since(j.start))
						return
					}
					time.Sleep(10*sec - time.Since(j.start))
					assert.Equal(t, []time.Duration{3 * sec, 6 * sec, 9 * sec}, j.extended())
					assert.True(t, open(lost))
				}, options...)
			})
		}
	}
	clocks(t, func(t *testing.T, s *clocktest.Wall, j *journal, m *redsync.Mutex) {
		s.Step(7 * sec) // so that the watchdog is late
		time.Sleep(10 * sec)
		assert.Equal(t, []time.Duration{900 * ms, 3 * sec, 6 * sec, 9 * sec}, j.extended())
		alive(t, m)
	}, withWatchdog)
}
