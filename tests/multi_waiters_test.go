package redsync_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/embedded"
)

// In fair mode, a free name is kept for a lock on several names that still waits for another of its names. It does not
// matter which process holds that other name.
func TestFairMultiIsNotOvertaken(t *testing.T) {
	for what, hold := range map[string]func(f field) *redsync.Mutex{
		"held by another process": func(f field) *redsync.Mutex {
			rs := f.another(redsync.WithFair())
			f.closes(rs)
			m := rs.NewMutex("b", redsync.WithExpiry(time.Minute))
			require.NoError(f, m.Lock())
			return m
		},
		"held by this process": func(f field) *redsync.Mutex {
			m := f.NewMutex("b", redsync.WithExpiry(time.Minute), redsync.WithFair())
			require.NoError(f, m.Lock())
			return m
		},
		"held by this process, behind a waiter": func(f field) *redsync.Mutex {
			rs := f.another(redsync.WithFair())
			f.closes(rs)
			m := rs.NewMutex("b", redsync.WithExpiry(time.Minute))
			require.NoError(f, m.Lock())
			_ = f.callsOn(f.Redsync, "b", patient(redsync.WithFair(), redsync.WithExpiry(time.Minute))...)
			return m
		},
		"held by a waiter of this process that was served": func(f field) *redsync.Mutex {
			rs := f.another(redsync.WithFair())
			f.closes(rs)
			m := rs.NewMutex("b", redsync.WithExpiry(time.Minute))
			require.NoError(f, m.Lock())
			w := f.callsOn(f.Redsync, "b", patient(redsync.WithFair(), redsync.WithExpiry(time.Minute))...)
			time.Sleep(time.Millisecond)
			_ = f.callsSeveral(f.Redsync, []string{"a", "b"}, patient(redsync.WithFair())...)
			time.Sleep(time.Millisecond)
			f.unlock(m)
			<-w.done
			require.NoError(f, w.err)
			return w.Mutex
		},
	} {
		t.Run(what, func(t *testing.T) {
			play(t, func(f field) {
				f.meet()
				other := f.another()
				f.closes(other)
				b := hold(f)
				time.Sleep(100 * time.Millisecond)
				multi := f.callsSeveral(f.Redsync, both, patient(redsync.WithFair())...)
				time.Sleep(100 * time.Millisecond)
				behind := f.callsOn(f.Redsync, "a", patient(redsync.WithFair())...)
				time.Sleep(100 * time.Millisecond)
				require.True(f, open(multi.done))
				require.True(f, open(behind.done))
				overtaken := 0
				for range 10 {
					ctx, cancel := context.WithTimeout(f.Context(), time.Second)
					m := other.NewMutex("a", patient(redsync.WithFair())...)
					if m.LockContext(ctx) == nil {
						overtaken++
						f.unlock(m)
					}
					cancel()
					time.Sleep(10 * time.Millisecond)
				}
				assert.Zero(f, overtaken, "callers of a that came later overtook the multi, and the caller of a behind it")
				multi.cancel()
				behind.cancel()
				_ = b
				synctest.Wait()
			})
		})
	}
}

// Another process gets the lock by Detach and unlocks it at once. Then the next waiter has the lock at once.
func TestUnlockAfterDetachWakesTheNextWaiter(t *testing.T) {
	inEachMode(t, play, func(f field, mode []redsync.Option) {
		f.meet()
		other := f.another()
		f.closes(other)
		before := f.held(mode...)
		m := f.calls(f.Redsync, patient(mode...)...)
		time.Sleep(10 * time.Millisecond)
		next := f.calls(other, patient(mode...)...)
		time.Sleep(10 * time.Millisecond)
		f.unlock(before)
		<-m.done
		require.NoError(f, m.err)
		s, err := m.Detach(f.Context())
		require.NoError(f, err)
		f.unlock(other.NewMutex("lock", redsync.WithSequencer(s)))
		f.within(next, 50*time.Millisecond)
		f.unlock(next.Mutex)
	})
}

// A lock on several names fails if a node keeps the names in different slots. After that, releases of other locks must
// still wake waiters.
func TestMultiOverTwoSlotsDoesNotSilenceOtherReleases(t *testing.T) {
	for _, apart := range []bool{false, true} {
		play(t, func(f field) {
			f.meet()
			other := f.another()
			f.closes(other)
			c := f.NewMutex("c")
			require.NoError(f, c.Lock())
			w := f.callsOn(other, "c", patient()...)
			time.Sleep(100 * time.Millisecond)
			if apart {
				for _, n := range f.nodes {
					n.On("evalsha", 2, embedded.Fault{Err: "CROSSSLOT Keys in request don't hash to the same slot"})
				}
				require.Error(f, f.NewMultiMutex(both).TryLock())
				time.Sleep(10 * time.Millisecond)
			}
			f.unlock(c)
			start := time.Now()
			<-w.done
			assert.Less(f, time.Since(start), 50*time.Millisecond, "the waiter is woken at once (slots apart: %v)", apart)
			f.unlock(w.Mutex)
		})
	}
}

// A waiter could not try because a call for several names was trying. The waiter goes on when that call gives up.
func TestWaiterGoesOnWhenTheLastTryOfAMultiEnds(t *testing.T) {
	play(t, func(f field) {
		f.meet()
		other := f.another()
		f.closes(other)
		b := other.NewMutex("b", redsync.WithExpiry(time.Minute))
		require.NoError(f, b.Lock())
		multi := f.callsSeveral(f.Redsync, both, redsync.WithTries(2), redsync.WithRetryDelay(200*time.Millisecond))
		for _, n := range f.nodes {
			n.On("evalsha", 1, embedded.Fault{Delay: 50 * time.Millisecond})
		}
		time.Sleep(220 * time.Millisecond) // its last try is under way
		require.True(f, open(multi.done))
		a := f.callsOn(f.Redsync, "a", patient(redsync.WithFair())...)
		require.True(f, open(a.done))
		<-multi.done
		require.Error(f, multi.err)
		f.within(a, time.Second)
		f.unlock(a.Mutex)
		f.unlock(b)
		time.Sleep(5 * time.Second)
		f.nobodyWaits()
	})
}

// A waiter goes on when a lock on several names runs out without an Unlock.
func TestWaiterGoesOnWhenTheHoldOfAMultiRunsOut(t *testing.T) {
	play(t, func(f field) {
		f.meet()
		other := f.another()
		f.closes(other)
		b := other.NewMutex("b", redsync.WithExpiry(time.Minute))
		require.NoError(f, b.Lock())
		multi := f.callsSeveral(f.Redsync, both, patient()...)
		time.Sleep(100 * time.Millisecond)
		for _, n := range f.nodes { // the release, and the next try
			n.On("evalsha", 2, embedded.Fault{Delay: 50 * time.Millisecond})
		}
		f.unlock(b)
		time.Sleep(20 * time.Millisecond) // its try is under way
		require.True(f, open(multi.done))
		a := f.callsOn(f.Redsync, "a", patient(redsync.WithFair())...)
		require.True(f, open(a.done))
		<-multi.done
		require.NoError(f, multi.err)
		f.within(a, 10*time.Second)
		f.unlock(a.Mutex)
	})
}
