package redsync_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/clock/clocktest"
	"github.com/seed14bd9ef4/redsync/internal/puppet"
	"github.com/seed14bd9ef4/redsync/pool"
)

// This file tests what happens when the wall clock is set while a lock is held. For steps of both clocks see
// clock_test.go.

// clocks runs f in a bubble with a lock of 9 s, unless options say otherwise, and a wall clock to step.
func clocks(t *testing.T, f func(t *testing.T, s *clocktest.Wall, j *journal, m *redsync.Mutex), options ...redsync.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, j := clocktest.StepWall(t), newJournal(nil)
		rs := redsync.New(j)
		m := rs.NewMutex("lock", append([]redsync.Option{redsync.WithExpiry(9 * time.Second)}, options...)...)
		require.NoError(t, m.Lock())
		f(t, s, j, m)
		require.NoError(t, rs.Close(t.Context()))
		synctest.Wait()
	})
}

func TestClockSetForwardEndsTheHold(t *testing.T) {
	for _, expiry := range []time.Duration{100 * time.Millisecond, 9 * time.Second, time.Hour} {
		t.Run(expiry.String(), func(t *testing.T) {
			clocks(t, func(t *testing.T, s *clocktest.Wall, j *journal, m *redsync.Mutex) {
				lost, ctx := m.Lost(), m.Context(t.Context())
				time.Sleep(expiry / 8)
				require.True(t, open(lost))
				require.NoError(t, ctx.Err())
				s.Step(2 * time.Hour)
				start := time.Now()
				<-lost
				assert.LessOrEqual(t, time.Since(start), min(expiry/10, time.Second))
				assert.Zero(t, m.Remaining())
				require.ErrorIs(t, m.Err(), redsync.ErrLockLost)
				require.ErrorIs(t, m.Err(), redsync.ErrLockAlreadyExpired)
				synctest.Wait()
				assert.Equal(t, m.Err(), context.Cause(ctx))
				time.Sleep(time.Minute)
				assert.Empty(t, j.extended())
				s.Step(-2 * time.Hour)
				assert.Zero(t, m.Remaining(), "a validity that is over stays over")
				require.ErrorIs(t, m.Err(), redsync.ErrLockLost)
				ok, err := m.Extend()
				assert.False(t, ok)
				require.ErrorIs(t, err, redsync.ErrLockAlreadyExpired)
				assert.Empty(t, j.extended())
			}, redsync.WithExpiry(expiry), redsync.WithWatchdog())
		})
	}
}

func TestClockSetForwardIsNoticedByEveryMethod(t *testing.T) {
	for name, notice := range map[string]func(*redsync.Mutex) bool{
		"Remaining": func(m *redsync.Mutex) bool { return m.Remaining() == 0 },
		"Err":       func(m *redsync.Mutex) bool { return errors.Is(m.Err(), redsync.ErrLockLost) },
		"Lost":      func(m *redsync.Mutex) bool { return !open(m.Lost()) },
		"Context":   func(m *redsync.Mutex) bool { return m.Context(context.Background()).Err() != nil },
		"Extend": func(m *redsync.Mutex) bool {
			_, err := m.Extend()
			return errors.Is(err, redsync.ErrLockAlreadyExpired)
		},
		"Valid": func(m *redsync.Mutex) bool { _, err := m.Valid(); return errors.Is(err, redsync.ErrLockAlreadyExpired) },
	} {
		t.Run(name, func(t *testing.T) {
			clocks(t, func(t *testing.T, s *clocktest.Wall, j *journal, m *redsync.Mutex) {
				lost, ctx := m.Lost(), m.Context(t.Context())
				s.Step(time.Hour)
				assert.True(t, notice(m))
				assert.False(t, open(lost), "the call that notices the step closes Lost")
				assert.ErrorIs(t, context.Cause(ctx), redsync.ErrLockLost, "and ends the context")
				assert.Len(t, j.Sent(), 1, "the loss was noticed without another request")
			})
		})
	}
}

// Unlock finds out that the hold was over. So its work was not in time, although Unlock ends it.
func TestContextOfAHoldThatUnlockFindsOver(t *testing.T) {
	clocks(t, func(t *testing.T, s *clocktest.Wall, _ *journal, m *redsync.Mutex) {
		ctx := m.Context(t.Context())
		s.Step(time.Hour)
		_, err := m.Unlock()
		require.ErrorIs(t, err, redsync.ErrLockAlreadyExpired)
		require.ErrorIs(t, ctx.Err(), context.Canceled)
		assert.ErrorIs(t, context.Cause(ctx), redsync.ErrLockLost)
	})
}

func TestClockSetBackChangesNothing(t *testing.T) {
	clocks(t, func(t *testing.T, s *clocktest.Wall, j *journal, m *redsync.Mutex) {
		lost, left := m.Lost(), m.Remaining()
		s.Step(-time.Hour)
		assert.Equal(t, left, m.Remaining())
		<-lost
		assert.Equal(t, 9*time.Second-92*time.Millisecond, time.Since(j.start))
	})
}

func TestClockSetBackLeavesTheWatchdogItsThirds(t *testing.T) {
	clocks(t, func(t *testing.T, s *clocktest.Wall, j *journal, m *redsync.Mutex) {
		lost := m.Lost()
		s.Step(-time.Hour)
		time.Sleep(10 * time.Second)
		assert.Equal(t, []time.Duration{3 * time.Second, 6 * time.Second, 9 * time.Second}, j.extended())
		assert.True(t, open(lost))
	}, redsync.WithWatchdog())
}

func TestClockSetForwardWakesTheWatchdog(t *testing.T) {
	clocks(t, func(t *testing.T, s *clocktest.Wall, j *journal, m *redsync.Mutex) {
		lost := m.Lost()
		s.Step(7 * time.Second)
		time.Sleep(10 * time.Second)
		assert.Equal(t, []time.Duration{900 * time.Millisecond, 3 * time.Second, 6 * time.Second, 9 * time.Second}, j.extended())
		assert.True(t, open(lost))
		require.NoError(t, m.Err())
	}, redsync.WithWatchdog())
}

func TestClockSetForwardEndsWhatWaitsForTheNodes(t *testing.T) {
	for name, operation := range map[string]func(*redsync.Mutex) (bool, error){"Extend": (*redsync.Mutex).Extend, "Valid": (*redsync.Mutex).Valid} {
		for expiry, compare := range map[time.Duration]time.Duration{
			9 * time.Second: 900 * time.Millisecond,
			time.Hour:       time.Second,
		} {
			t.Run(name+" "+expiry.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := clocktest.StepWall(t)
					rs := redsync.New(&puppet.Puppet{Answer: func(req pool.Request) (*pool.Reply, error) {
						if req.Args[0] == "set" {
							return puppet.Yes(req)
						}
						return nil, nil
					}})
					m := rs.NewMutex("lock", redsync.WithExpiry(expiry), redsync.WithNodeTimeout(4*time.Second))
					require.NoError(t, m.Lock())
					start := time.Now()
					time.AfterFunc(compare*3/2, func() { s.Step(2 * time.Hour) })
					ok, err := operation(m)
					assert.Equal(t, 2*compare, time.Since(start))
					assert.False(t, ok)
					require.ErrorIs(t, err, redsync.ErrLockAlreadyExpired)
					require.NoError(t, rs.Close(t.Context()))
				})
			})
		}
	}
}

func TestClockThatRunsFastEndsTheHoldEarlier(t *testing.T) {
	clocks(t, func(t *testing.T, s *clocktest.Wall, j *journal, m *redsync.Mutex) {
		lost := m.Lost()
		for range 8 {
			for range 10 { // each step is too small to be noticed
				time.Sleep(90 * time.Millisecond)
				s.Step(400 * time.Microsecond)
			}
		}
		require.True(t, open(lost))
		left := m.Remaining()
		start := time.Now()
		<-lost
		assert.InDelta(t, left, time.Since(start), float64(time.Millisecond))
		assert.Less(t, time.Since(j.start), 9*time.Second-92*time.Millisecond-30*time.Millisecond)
	})
}

func TestClockSetForwardDuringLockCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := clocktest.StepWall(t)
		j := newJournal(func(req pool.Request) (*pool.Reply, error) {
			s.Step(5 * time.Second)
			return puppet.Yes(req)
		})
		m := redsync.New(j).NewMutex("lock", redsync.WithExpiry(9*time.Second))
		require.NoError(t, m.Lock())
		<-m.Lost()
		assert.Equal(t, 4*time.Second-92*time.Millisecond, time.Since(j.start))
	})
}

// The clock is ahead while a quorum confirms a lock that is adopted, so the validity of the lock is over. It stays over
// when the clock is set back before Extend returns.
func TestExtendOfAnAdoptedLockThatWasOverWhenAQuorumConfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := clocktest.StepWall(t)
		quick := func(req pool.Request) (*pool.Reply, error) {
			s.Step(10 * time.Second)
			return puppet.Yes(req)
		}
		slow := func(req pool.Request) (*pool.Reply, error) {
			if !isExtend(req) {
				return puppet.Yes(req)
			}
			time.AfterFunc(100*time.Millisecond, func() {
				s.Step(-20 * time.Second)
				reply, _ := puppet.Yes(req)
				req.To.Receive(req.Tag, *reply)
			})
			return nil, nil
		}
		rs := redsync.New(newJournal(quick), newJournal(quick), newJournal(slow))
		m := rs.NewMutex("lock", redsync.WithValue("v"), redsync.WithFailFast(false))
		ok, err := m.Extend()
		assert.False(t, ok)
		require.ErrorIs(t, err, redsync.ErrExtendFailed)
		assert.Zero(t, m.Until())
		require.NoError(t, rs.Close(t.Context()))
		time.Sleep(time.Minute)
	})
}
