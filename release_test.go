package redsync_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/puppet"
	"github.com/seed14bd9ef4/redsync/internal/script"
	"github.com/seed14bd9ef4/redsync/pool"
)

// This file tests which commands nodes are sent to delete a key, and for how long. internal/lease tests the same from
// inside.

func TestReleaseReservesNoRoomWhereTheAcquireWasRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &puppet.Puppet{Answer: func(req pool.Request) (*pool.Reply, error) {
			if !req.Reserved {
				return nil, &pool.OutstandingError{Limit: 1}
			}
			return nil, nil
		}}
		require.Error(t, redsync.New(p).NewMutex("lock").TryLock())
		synctest.Wait()
		for _, req := range p.Sent() {
			assert.False(t, req.Reserved, "%v", req.Args)
		}
	})
}

func TestReleaseIsNotRepeatedWhereNothingWasSent(t *testing.T) {
	for name, answer := range map[string]func(pool.Request) (*pool.Reply, error){
		"refused by the limit": func(pool.Request) (*pool.Reply, error) {
			return nil, &pool.OutstandingError{Limit: 1}
		},
		"no connection": func(pool.Request) (*pool.Reply, error) {
			return &pool.Reply{Err: errPuppet, Fate: pool.NotSent, Conn: 1}, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &puppet.Puppet{Answer: answer}
				require.Error(t, redsync.New(p).NewMutex("lock").TryLock())
				time.Sleep(20 * time.Second)
				assert.Equal(t, 1, p.Count("evalsha"))
			})
		})
	}
}

func TestReleaseRepeatsUntilALateKeyHasRunOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var last time.Duration
		p := &puppet.Puppet{}
		p.Answer = func(req pool.Request) (*pool.Reply, error) {
			if req.Args[0] == "set" { // executed after 3 s: the key lives for 11 s
				time.AfterFunc(3*time.Second, func() {
					req.To.Receive(req.Tag, pool.Reply{Value: "OK", Fate: pool.Answered, Conn: 1})
				})
				return nil, nil
			}
			last = time.Since(start)
			return &pool.Reply{Err: errPuppet, Conn: 1}, nil // the node is cut off by then
		}
		rs := redsync.New(p)
		require.Error(t, rs.NewMutex("lock").TryLock())
		time.Sleep(20 * time.Second)
		synctest.Wait()
		assert.Greater(t, last, 10*time.Second)
		assert.Less(t, last, 12*time.Second)
		assert.LessOrEqual(t, p.Count("evalsha"), 20, "with growing delays")
		require.NoError(t, rs.Close(t.Context()))
	})
}

// While nodes are away, releases are repeated there with growing delays. Once they are back, nobody waits for the end of
// these delays: the keys that are left there keep everybody from the nodes.
func TestReleasesAreRepeatedAtOnceWhenNodesAreBack(t *testing.T) {
	play(t, func(f field) {
		m := f.held(redsync.WithExpiry(time.Minute))
		f.kill(1, 2)
		f.unlock(m)
		time.Sleep(2600 * time.Millisecond) // until 50 ms after a repetition, and 950 ms before the next
		f.restart(1, 2)
		wake(f.Redsync) // opens connections
		require.Equal(f, 2, f.nodes.Keys("lock"))
		wake(f.Redsync)
		assert.Zero(f, f.nodes.Keys("lock"))
	})
}

// On a pool that keeps no order of execution, a release settles nothing if it was sent before the acquire was answered.
func TestReleaseOnAPoolWithoutOrderIsRepeatedBehindTheAcquire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var held atomic.Bool // the node has the key
		p := &puppet.Puppet{}
		p.Answer = func(req pool.Request) (*pool.Reply, error) {
			if req.Args[0] == "set" { // overtaken by the release
				time.AfterFunc(time.Second, func() {
					held.Store(true)
					req.To.Receive(req.Tag, pool.Reply{Value: "OK", Fate: pool.Answered})
				})
				return nil, nil
			}
			found := script.Missing
			if held.Swap(false) {
				found = script.Mine
			}
			return &pool.Reply{Value: found, Fate: pool.Answered}, nil
		}
		require.Error(t, redsync.New(p).NewMutex("lock").TryLock())
		time.Sleep(5 * time.Second)
		synctest.Wait()
		assert.False(t, held.Load())
	})
}
