package redsync_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/testkit/scripted"
	"github.com/seed14bd9ef4/redsync/internal/wire"
)

// This file tests what Extend and Valid return, and what WithSetNXOnExtend changes.

func TestMutexExtendWaitsForSlowNodesUntilTheOldUntil(t *testing.T) {
	onKit(t, func(k kit) {
		m := k.held()
		k.freeze(allNodes...) // as a whole: a single connection that is slow would be replaced
		time.AfterFunc(3*sec, func() { k.thaw(allNodes...) })
		start := time.Now()
		k.confirms(m.Extend())
		took(k, start, 3*sec)
		assert.Equal(k, validity, m.Until().Sub(start))
	})
}

func TestMutexExtendHealsWithoutCountingWhatItHealed(t *testing.T) {
	onKit(t, func(k kit) {
		m := k.held(withSetNXOnExtend)
		k.lose(majority...)
		until := m.Until()
		sleep(sec)
		failsWith(k, m.Extend, redsync.ErrExtendFailed)
		assert.Equal(k, until, m.Until())
		sleep(ms)
		assert.Equal(k, 5, k.keys("lock"))
		k.confirms(m.Extend())
	})
}

func TestMutexHealingProvesALossByAnotherValueOnly(t *testing.T) {
	play(t, func(f field) {
		m := f.held(withSetNXOnExtend)
		f.lose(majority...)
		ok, err := m.Valid()
		assert.False(f, ok)
		require.NotErrorIs(f, err, redsync.ErrLockLost)
		f.occupy("lock")
		failsWith(f, m.Valid, redsync.ErrLockLost)
	})
}

// lacksScript is the reply of a node that does not have a script.
type lacksScript struct{}

func (lacksScript) Error() string { return "NOSCRIPT No matching script. Please use EVAL." }
func (lacksScript) RedisError()   {}

// The node confirms the younger of two extensions first. The older one must not take back
// what the younger one has won.
func TestExtendConfirmedOutOfOrderShortensNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked []wire.Request
		m := locked(t, redsync.New(&scripted.Node{Answer: func(req wire.Request) (*wire.Reply, error) {
			if isExtend(req) {
				asked = append(asked, req)
				return nil, nil
			}
			return scripted.Yes(req)
		}}).NewMutex("lock", withExpiry(9*sec)))
		var wg sync.WaitGroup
		for range 2 {
			sleep(sec)
			wg.Go(func() { confirmed(t, m.Extend) })
			synctest.Wait()
		}
		want := time.Now().Add(9*sec - 92*ms)
		for _, i := range []int{1, 0} {
			reply, _ := scripted.Yes(asked[i])
			asked[i].To.Receive(asked[i].Tag, *reply)
			synctest.Wait()
			assert.Equal(t, want, m.Until())
		}
		wg.Wait()
		confirmed(t, m.Unlock)
	})
}

// The node does not have the script, and its pool refuses to send the script in full. Extend does not wait for an
// answer, and says why there is none. The lock is still held.
func TestExtendWhoseScriptThePoolRefusesSaysSo(t *testing.T) {
	for _, option := range []redsync.Option{forever, withSetNXOnExtend} {
		synctest.Test(t, func(t *testing.T) {
			var refusing atomic.Bool
			m := locked(t, redsync.New(&scripted.Node{Answer: func(req wire.Request) (*wire.Reply, error) {
				switch {
				case !refusing.Load():
					return scripted.Yes(req)
				case req.Args[0] == "eval":
					return nil, errBroken
				}
				return &wire.Reply{Err: lacksScript{}, Fate: wire.Answered, Conn: 1}, nil
			}}).NewMutex("lock", option))
			refusing.Store(true)
			start := time.Now()
			failsWith(t, m.Extend, redsync.ErrExtendFailed, errBroken)
			took(t, start, 0)
			alive(t, m)
			refusing.Store(false)
			confirmed(t, m.Unlock)
		})
	}
}
