package redsync

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/pool"
)

// Votes of one node that come late, out of order or not at all.

// The node confirms the younger of two extensions first. The older one must not take back
// what the younger one has won.
func TestExtendConfirmedOutOfOrderShortensNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked []pool.Request
		m := New(&puppet{answer: func(req pool.Request) (*pool.Reply, error) {
			if isExtend(req) {
				asked = append(asked, req)
				return nil, nil
			}
			return yes(req)
		}}).NewMutex("lock", WithExpiry(9*time.Second))
		require.NoError(t, m.Lock())
		var wg sync.WaitGroup
		for range 2 {
			time.Sleep(time.Second)
			wg.Go(func() {
				ok, err := m.Extend()
				assert.NoError(t, err)
				assert.True(t, ok)
			})
			synctest.Wait()
		}
		require.Len(t, asked, 2)
		want := time.Now().Add(9*time.Second - 92*time.Millisecond)
		for _, req := range []pool.Request{asked[1], asked[0]} {
			reply, _ := yes(req)
			req.To.Receive(req.Tag, *reply)
			synctest.Wait()
			assert.Equal(t, want, m.Until())
		}
		wg.Wait()
		_, err := m.Unlock()
		require.NoError(t, err)
	})
}

// The node does not have the script, and its pool refuses to send that in full: Extend does
// not wait for an answer, and says why there is none.
func TestExtendWhoseScriptThePoolRefusesSaysSo(t *testing.T) {
	for name, options := range map[string][]Option{"plain": nil, "healing": {WithSetNXOnExtend()}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var refusing atomic.Bool
				m := New(&puppet{answer: func(req pool.Request) (*pool.Reply, error) {
					switch {
					case !refusing.Load():
						return yes(req)
					case req.Args[0] == "eval":
						return nil, errPuppet
					}
					return &pool.Reply{Err: noScript{}, Fate: pool.Answered, Conn: 1}, nil
				}}).NewMutex("lock", options...)
				require.NoError(t, m.Lock())
				refusing.Store(true)
				start := time.Now()
				ok, err := m.Extend()
				assert.False(t, ok)
				require.ErrorIs(t, err, ErrExtendFailed)
				require.ErrorIs(t, err, errPuppet)
				assert.Zero(t, time.Since(start))
				require.NoError(t, m.Err(), "it is held as before")
				refusing.Store(false)
				_, err = m.Unlock()
				require.NoError(t, err)
			})
		})
	}
}

// Two rounds in turn use the same timer. It fires at the deadline of the first while the second is
// still being sent. That must not end the second, whose own deadline is later.
func TestRoundIsNotGivenUpAtTheDeadlineOfThePreviousRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rs := New(&puppet{answer: func(req pool.Request) (*pool.Reply, error) {
			if isExtend(req) {
				time.Sleep(2 * time.Millisecond)
			}
			return yes(req)
		}})
		shared := &sleeper{decided: make(chan struct{}, 1)}
		rs.core.sleepers.New = func() any { return shared }
		m := rs.NewMutex("lock", WithNodeTimeout(400*time.Millisecond))
		require.NoError(t, m.Lock())
		time.Sleep(399 * time.Millisecond)
		ok, err := m.Extend()
		require.NoError(t, err)
		assert.True(t, ok)
		_, err = m.Unlock()
		require.NoError(t, err)
	})
}

// A waiter that has won the lock on the nodes stays in its line for a moment. If another holder
// unlocks in that moment (the nodes had lost that holder's key), its lock must not be handed to
// this waiter.
func TestWaiterThatHasWonIsHandedNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rs := New(&puppet{answer: yes})
		giver, m := rs.NewMutex("lock"), rs.NewMutex("lock")
		require.NoError(t, giver.Lock())
		timing, err := m.enter()
		require.NoError(t, err)
		defer m.core.exit()
		w := m.newWaiter(timing, clock.Now())
		m.core.lines.join(w, &ErrTaken{})
		e := w.begin(true, false)
		require.NotNil(t, e)
		e.hold = m.newHold("v", timing, clock.Now())
		w.end(e, nil)
		_, err = giver.Unlock()
		require.NoError(t, err)
		assert.Nil(t, w.given)
		m.core.lines.leave(w, e.hold)
		assert.Zero(t, m.core.lines.count.Load())
	})
}
