package redsync_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/embedded"
	"github.com/seed14bd9ef4/redsync/pool"
)

// Waiting where two things happen at once.

// An errHook is a context whose Err runs a function first: it stands for a goroutine that is
// preempted there.
type errHook struct {
	context.Context //nolint:containedctx // it is one
	hook            func()
}

func (c errHook) Err() error {
	c.hook()
	return c.Context.Err()
}

// A waiter is handed the lock between the end of its retry delay and what it does then: it
// has left its line by that time.
func TestWaiterIsHandedTheLockAtTheEndOfItsRetryDelay(t *testing.T) {
	const delay = 10 * time.Millisecond
	for name, option := range map[string]redsync.Option{
		"WithRetryDelay":     redsync.WithRetryDelay(delay),
		"WithRetryDelayFunc": redsync.WithRetryDelayFunc(func(int) time.Duration { return delay }),
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(f field) {
				f.meet()
				giver := f.NewMutex("lock")
				require.NoError(f, giver.Lock())
				m := f.NewMutex("lock", redsync.WithTries(0), option)
				start, unlocked := time.Now(), false
				ctx := errHook{f.Context(), func() {
					if time.Since(start) >= delay && !unlocked {
						unlocked = true
						f.unlock(giver)
					}
				}}
				require.NoError(f, m.LockContext(ctx))
				require.True(f, unlocked)
				f.unlock(m)
			})
		})
	}
}

// Close unlocks what its Redsync holds. Waiters of other Redsyncs on the same clients hear
// of it although they have never asked a node.
func TestCloseOfAHolderLetsTheNextOneIn(t *testing.T) {
	inEachMode(t, func(f field, mode []redsync.Option) {
		x := f.held(mode...)
		clients := f.clients()
		a, b := on(clients), on(clients)
		f.closes(a, b)
		first := f.calls(a, patient(mode...)...)
		second := f.calls(b, patient(mode...)...)
		time.Sleep(10 * time.Millisecond)
		f.unlock(x)
		<-first.done
		require.NoError(f, first.err)
		time.Sleep(100 * time.Millisecond)
		start := time.Now()
		require.NoError(f, a.Close(f.Context()))
		<-second.done
		require.NoError(f, second.err)
		assert.Less(f, second.at.Sub(start), 100*time.Millisecond)
		f.unlock(second.Mutex)
	})
}

// A holder that learns that its lock is lost lets the next one of its process try.
func TestALossLetsTheNextOneIn(t *testing.T) {
	play(t, func(f field) {
		f.meet()
		m := f.held()
		w := f.calls(f.Redsync, patient()...)
		time.Sleep(100 * time.Millisecond)
		for _, n := range f.nodes {
			n.Del("lock")
		}
		start := time.Now()
		_, err := m.Extend()
		require.ErrorIs(f, err, redsync.ErrLockLost)
		<-w.done
		require.NoError(f, w.err)
		assert.Less(f, w.at.Sub(start), 100*time.Millisecond)
		f.unlock(w.Mutex)
	})
}

// hooked is a pool that runs a function before it sends, once.
type hooked struct {
	pool.Pool
	hook *atomic.Pointer[func()]
}

func (h hooked) Send(req pool.Request) error {
	if f := h.hook.Swap(nil); f != nil {
		(*f)()
	}
	return h.Pool.Send(req)
}

// A waiter gives up while the release that enters its ticket into the queues is on its way:
// the ticket does not stay there.
func TestWaiterThatGivesUpAsItEntersTheQueuesLeavesThem(t *testing.T) {
	play(t, func(f field) {
		fair := redsync.WithFair()
		var hook atomic.Pointer[func()]
		var pools []pool.Pool
		for _, c := range f.clients() {
			pools = append(pools, hooked{pool.New(c), &hook})
		}
		rs := redsync.New(pools...)
		f.closes(rs)
		other := f.another(fair)
		f.closes(other)
		holder := rs.NewMutex("lock", fair, redsync.WithExpiry(time.Minute))
		require.NoError(f, holder.Lock())
		w := f.calls(rs, patient(fair)...)
		time.Sleep(10 * time.Millisecond)
		next := f.calls(other, patient(fair)...)
		time.Sleep(10 * time.Millisecond)
		givesUp := func() { w.cancel(); <-w.done; synctest.Wait() }
		hook.Store(&givesUp)
		start := time.Now()
		f.unlock(holder)
		<-next.done
		require.NoError(f, next.err)
		assert.Less(f, next.at.Sub(start), 100*time.Millisecond)
		f.unlock(next.Mutex)
	})
}

// The last attempt of the first in line fails because no quorum answers, as the one before
// did. The next in line goes on at once, and not with its retry delay.
func TestTheLastAttemptThatHearsNobodyLetsTheNextOneTry(t *testing.T) {
	play(t, func(f field) {
		f.meet()
		f.freeze(0, 1, 2)
		a := f.calls(f.Redsync, redsync.WithTries(2), redsync.WithRetryDelay(10*time.Second))
		time.Sleep(10500 * time.Millisecond) // its last attempt is under way
		b := f.calls(f.Redsync, redsync.WithTries(0), redsync.WithRetryDelay(9*time.Second), redsync.WithExpiry(2*time.Minute))
		<-a.done
		start := time.Now()
		time.Sleep(100 * time.Millisecond)
		for i := range 3 {
			f.nodes[i].Thaw()
		}
		<-b.done
		require.NoError(f, b.err)
		assert.Less(f, b.at.Sub(start), time.Second)
		f.unlock(b.Mutex)
	})
}

// A node that never had the value loses its reply to the release, which is not repeated
// there: Unlock does not wait for it.
func TestUnlockDoesNotWaitForANodeThatHadNothing(t *testing.T) {
	play(t, func(f field) {
		f.meet()
		f.kill(0)
		m := f.NewMutex("lock", redsync.WithExpiry(2*time.Minute))
		require.NoError(f, m.Lock())
		time.Sleep(200 * time.Millisecond)
		f.restart(0)
		f.kill(3, 4)
		time.Sleep(200 * time.Millisecond)
		f.nodes[0].On("evalsha", 1, embedded.Fault{LoseReply: true})
		start := time.Now()
		_, err := m.Unlock()
		require.Error(f, err)
		assert.Less(f, time.Since(start), time.Second)
	})
}
