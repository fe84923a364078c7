package redsynctest_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/observe"
	"github.com/seed14bd9ef4/redsync/pool"
	"github.com/seed14bd9ef4/redsync/redsynctest"
)

const name = "orders:17"

func TestRequireFollowsALock(t *testing.T) {
	inEachForm(t, func(t *testing.T, _ form, nodes *redsynctest.Nodes, rs *redsync.Redsync) {
		nodes.RequireFree(name)
		mutex := rs.NewMutex(name, redsync.WithFencing())
		require.NoError(t, mutex.Lock())
		nodes.RequireHeld(name)
		var taken *redsync.ErrTaken
		require.ErrorAs(t, nodes.Process(redsync.WithTimeoutFactor(0.4)).NewMutex(name).TryLock(), &taken)
		_, err := mutex.Unlock()
		require.NoError(t, err)
		nodes.RequireFree(name)
		nodes.RequireNothingLeft()
	})
}

func TestRedsyncIsTheSameEachTime(t *testing.T) {
	nodes := redsynctest.Start(t, 1)
	assert.Same(t, nodes.Redsync(), nodes.Redsync())
	assert.NotSame(t, nodes.Redsync(), nodes.Process())
}

func TestStartEndsALockThatIsStillHeld(t *testing.T) {
	var mutex *redsync.Mutex
	inEachForm(t, func(t *testing.T, _ form, nodes *redsynctest.Nodes, rs *redsync.Redsync) {
		mutex = rs.NewMutex(name, redsync.WithWatchdog())
		require.NoError(t, mutex.Lock())
		t.Cleanup(func() { nodes.RequireHeld(name) })
	})
	require.ErrorIs(t, mutex.Err(), redsync.ErrClosed)
}

func TestNodeDownIsOutvotedAndComesBackWithItsKeys(t *testing.T) {
	inEachForm(t, func(t *testing.T, _ form, nodes *redsynctest.Nodes, rs *redsync.Redsync) {
		nodes.Node(0).Down()
		nodes.Node(0).Down()
		nodes.Node(1).Down()
		mutex := rs.NewMutex(name, redsync.WithExpiry(time.Minute))
		require.NoError(t, mutex.Lock())
		nodes.Settle(name)
		nodes.RequireHeld(name)

		nodes.Node(2).Down()
		var failed *redsync.RedisError
		require.ErrorAs(t, rs.NewMutex("other").TryLock(), &failed)

		for i := range 3 {
			nodes.Node(i).Up()
			nodes.Node(i).Up()
		}
		nodes.RequireHeld(name) // node 2 has kept its key
	})
}

func TestNodeFreezeAndThaw(t *testing.T) {
	inEachForm(t, func(t *testing.T, _ form, nodes *redsynctest.Nodes, rs *redsync.Redsync) {
		mutex := rs.NewMutex(name, redsync.WithExpiry(time.Minute))
		require.NoError(t, mutex.Lock())
		nodes.Settle(name)
		for i := range 3 {
			nodes.Node(i).Freeze()
			nodes.Node(i).Freeze()
		}
		other := rs.NewMutex("other", redsync.WithNodeTimeout(50*time.Millisecond))
		require.Error(t, other.TryLock())
		for i := range 3 {
			nodes.Node(i).Thaw()
			nodes.Node(i).Thaw()
		}
		nodes.RequireHeld(name)
		_, err := mutex.Unlock()
		require.NoError(t, err)
	})
}

func TestNodeRestart(t *testing.T) {
	inEachForm(t, func(t *testing.T, _ form, nodes *redsynctest.Nodes, rs *redsync.Redsync) {
		mutex := rs.NewMutex(name, redsync.WithExpiry(time.Minute))
		require.NoError(t, mutex.Lock())
		nodes.Settle(name)
		for i := range 5 {
			nodes.Node(i).Restart(false)
		}
		nodes.RequireHeld(name)
		nodes.Node(0).Freeze()
		nodes.Node(1).Down()
		for i := range 3 {
			nodes.Node(i).Restart(true)
		}
		nodes.RequireFree(name)
	})
}

func TestNodeDelay(t *testing.T) {
	const late = 60 * time.Millisecond
	inEachForm(t, func(t *testing.T, f form, nodes *redsynctest.Nodes, rs *redsync.Redsync) {
		warm(t, rs)
		for i := range 3 {
			nodes.Node(i).Delay(late)
		}
		start := time.Now()
		mutex := rs.NewMutex(name)
		require.NoError(t, mutex.Lock())
		assert.GreaterOrEqual(t, time.Since(start), late)
		if f == bubble {
			assert.Equal(t, late, time.Since(start))
		}
		for i := range 3 {
			nodes.Node(i).Delay(0)
		}
		start = time.Now()
		_, err := mutex.Unlock()
		require.NoError(t, err)
		if f == bubble {
			assert.Zero(t, time.Since(start))
		}
	})
}

func TestNodeDelayIsTheSameForAnswersBehindOthers(t *testing.T) {
	const late = 100 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		nodes := redsynctest.Start(t, 1)
		warm(t, nodes.Redsync())
		nodes.Node(0).Delay(late)
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * 10 * time.Millisecond)
				start := time.Now()
				assert.NoError(t, nodes.Redsync().NewMutex(fmt.Sprint("orders:", i)).TryLock())
				assert.Equal(t, late, time.Since(start))
			})
		}
		wg.Wait()
	})
}

func TestNodeDelayMovesAnswersThatAreUnderWay(t *testing.T) {
	inEachForm(t, func(t *testing.T, f form, nodes *redsynctest.Nodes, rs *redsync.Redsync) {
		warm(t, rs)
		for i := range 5 {
			nodes.Node(i).Delay(time.Hour)
		}
		start := time.Now()
		locked := make(chan error, 1)
		go func() { locked <- rs.NewMutex(name).TryLock() }()
		time.Sleep(10 * time.Millisecond)
		for i := range 5 {
			nodes.Node(i).Delay(0)
		}
		require.NoError(t, <-locked)
		if f == bubble {
			assert.Equal(t, 10*time.Millisecond, time.Since(start))
		}
	})
}

func TestNodeDownLosesAnswersThatAreLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := redsynctest.Start(t, 1)
		warm(t, nodes.Redsync())
		nodes.Node(0).Delay(time.Hour)
		locked := make(chan error, 1)
		go func() { locked <- nodes.Redsync().NewMutex(name).TryLock() }()
		time.Sleep(10 * time.Millisecond)
		nodes.Node(0).Down()
		start := time.Now()
		require.Error(t, <-locked)
		assert.Zero(t, time.Since(start), "the call does not wait, because the connection breaks")
	})
}

func TestNodeLoseReplyExecutesTheRequest(t *testing.T) {
	inEachForm(t, func(t *testing.T, _ form, nodes *redsynctest.Nodes, rs *redsync.Redsync) {
		warm(t, rs)
		for i := range 3 {
			nodes.Node(i).LoseReply()
			nodes.Node(i).LoseReply() // it is asked twice
		}
		r := &redsynctest.Recorder{}
		mutex := rs.NewMutex(name, redsync.WithObserver(r))
		require.NoError(t, mutex.Lock())
		attempts := redsynctest.Events[observe.Attempt](r)
		require.Greater(t, len(attempts), 1, "the first attempt has no quorum of answers")
		require.Error(t, attempts[0].Err)
		lost := map[int]bool{}
		for _, v := range redsynctest.AwaitEvents[observe.Vote](t, r, 3) {
			if v.Err != nil {
				lost[v.Node] = true
			}
		}
		assert.Equal(t, map[int]bool{0: true, 1: true, 2: true}, lost)
		_, err := mutex.Unlock()
		require.NoError(t, err)
		nodes.RequireNothingLeft()
	})
}

func TestStealAndExpireEndAHoldUnnoticed(t *testing.T) {
	inEachForm(t, func(t *testing.T, f form, nodes *redsynctest.Nodes, rs *redsync.Redsync) {
		for method, take := range map[string]func(string){"Steal": nodes.Steal, "Expire": nodes.Expire} {
			mutex := rs.NewMutex(name, redsync.WithExpiry(time.Minute))
			require.NoError(t, mutex.Lock())
			nodes.Settle(name)
			until := mutex.Until()
			take(name)
			assert.Equal(t, until, mutex.Until(), method)
			require.NoError(t, mutex.Err(), method)
			_, err := mutex.Valid()
			require.ErrorIs(t, err, redsync.ErrLockLost, method)
			if method == "Steal" {
				nodes.RequireHeld(name)
				nodes.Steal(name) // also a lock that somebody holds can be stolen
				nodes.Expire(name)
			}
			nodes.RequireFree(name)
			if f == bubble {
				synctest.Wait()
			}
		}
	})
}

func TestHoldBySomebodyKeepsOthersOutUntilExpire(t *testing.T) {
	inEachForm(t, func(t *testing.T, _ form, nodes *redsynctest.Nodes, rs *redsync.Redsync) {
		nodes.HoldBySomebody(name)
		nodes.RequireHeld(name)
		nodes.RequireNothingLeft()
		mutex := rs.NewMutex(name, redsync.WithTries(0))
		var taken *redsync.ErrTaken
		require.ErrorAs(t, mutex.TryLock(), &taken)
		locked := make(chan error, 1)
		go func() { locked <- mutex.Lock() }()
		nodes.Expire(name)
		require.NoError(t, <-locked)
	})
}

// Unlock returns as soon as a quorum has confirmed the release. HoldBySomebody must not fail
// because another node still has the key.
func TestHoldBySomebodyWaitsForReleasesThatAreUnderWay(t *testing.T) {
	inEachForm(t, func(t *testing.T, _ form, nodes *redsynctest.Nodes, rs *redsync.Redsync) {
		for i := range 30 {
			name := fmt.Sprint("orders:", i)
			mutex := rs.NewMutex(name)
			require.NoError(t, mutex.Lock())
			_, err := mutex.Unlock()
			require.NoError(t, err)
			nodes.HoldBySomebody(name)
		}
	})
}

func TestAdvanceMovesTheNodesAlone(t *testing.T) {
	nodes := redsynctest.Start(t, 5)
	mutex := nodes.Redsync().NewMutex(name, redsync.WithExpiry(time.Hour))
	require.NoError(t, mutex.Lock())
	nodes.Settle(name)
	until := mutex.Until()
	nodes.Advance(59 * time.Minute)
	nodes.RequireHeld(name)
	nodes.Advance(time.Minute)
	nodes.RequireFree(name)
	assert.Equal(t, until, mutex.Until())
	assert.Positive(t, mutex.Remaining())
}

func TestRequireNothingLeftWaitsForReleasesThatAreUnderWay(t *testing.T) {
	nodes := redsynctest.Start(t, 9)
	rs := nodes.Redsync().With(redsync.WithTimeoutFactor(0.4))
	for range 300 {
		mutex := rs.NewMutex(name)
		require.NoError(t, mutex.Lock())
		_, err := mutex.Unlock()
		require.NoError(t, err)
		nodes.RequireNothingLeft()
	}
}

func TestNodesServeManyGoroutines(t *testing.T) {
	inEachForm(t, func(t *testing.T, _ form, nodes *redsynctest.Nodes, _ *redsync.Redsync) {
		var wg sync.WaitGroup
		for i := range 2 {
			wg.Go(func() {
				n := nodes.Node(i)
				n.Restart(true)
				n.Freeze()
				n.Thaw()
				n.LoseReply()
				n.Delay(time.Millisecond)
			})
			wg.Go(func() {
				rs := nodes.Process(redsync.WithTimeoutFactor(0.4), redsync.WithTries(0))
				mutex := rs.NewMutex(name)
				assert.NoError(t, mutex.Lock())
				_, err := mutex.Unlock()
				assert.NoError(t, err)
				other := "other" + string(rune('0'+i))
				nodes.HoldBySomebody(other)
				nodes.RequireHeld(other)
				nodes.Steal(other)
				nodes.Expire(other)
			})
		}
		wg.Wait()
		nodes.RequireFree(name)
	})
}

func TestNewIsEndedByClose(t *testing.T) {
	for form, run := range map[form]func(t *testing.T, f func(t *testing.T)){
		bubble:   synctest.Test,
		realTime: func(t *testing.T, f func(t *testing.T)) { t.Helper(); f(t) },
		servers:  func(t *testing.T, f func(t *testing.T)) { t.Helper(); onServers(t); f(t) },
	} {
		t.Run(string(form), func(t *testing.T) {
			run(t, func(t *testing.T) {
				nodes := redsynctest.New(3)
				mutex := nodes.Redsync().NewMutex(name, redsync.WithTimeoutFactor(0.4))
				require.NoError(t, mutex.Lock())
				var all sync.WaitGroup
				for range 5 {
					all.Go(func() {
						assert.NoError(t, nodes.Close())
						assert.ErrorIs(t, mutex.Err(), redsync.ErrClosed)
					})
				}
				all.Wait()
			})
		})
	}
}

// warm lets rs connect to every node.
func warm(t *testing.T, rs *redsync.Redsync) {
	t.Helper()
	mutex := rs.NewMutex("warm", redsync.WithFailFast(false))
	require.NoError(t, mutex.Lock())
	_, err := mutex.Unlock()
	require.NoError(t, err)
}

// A process that is cut off can neither extend nor release. Its lock is lost at Until, and somebody else gets it.
func TestCutOffEndsTheLocksOfAProcess(t *testing.T) {
	inEachForm(t, func(t *testing.T, _ form, nodes *redsynctest.Nodes, rs *redsync.Redsync) {
		process := nodes.Process(redsync.WithExpiry(time.Second), redsync.WithTimeoutFactor(0.4))
		mutex := process.NewMutex(name, redsync.WithWatchdog())
		require.NoError(t, mutex.Lock())
		lost := mutex.Lost()
		nodes.CutOff(process)
		nodes.CutOff(process)
		require.Error(t, process.NewMutex("other").TryLock())
		require.NoError(t, rs.NewMutex("another").Lock(), "another process, which is not cut off, can lock")
		<-lost
		require.ErrorIs(t, mutex.Err(), redsync.ErrLockLost)
		nodes.AwaitFree(name)
		require.NoError(t, rs.NewMutex(name).Lock())

		nodes.Reconnect(process)
		nodes.Reconnect(process)
		require.Eventually(t, func() bool {
			return process.NewMutex("other").TryLock() == nil
		}, 10*time.Second, 10*time.Millisecond)
	})
}

func TestAwaitFollowsALock(t *testing.T) {
	inEachForm(t, func(t *testing.T, _ form, nodes *redsynctest.Nodes, rs *redsync.Redsync) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			time.Sleep(30 * time.Millisecond)
			mutex := rs.NewMutex(name)
			assert.NoError(t, mutex.Lock())
			time.Sleep(200 * time.Millisecond)
			_, err := mutex.Unlock()
			assert.NoError(t, err)
		}()
		nodes.AwaitHeld(name)
		nodes.AwaitFree(name)
		<-done
	})
}

func TestAwaitEndsAfterTenSeconds(t *testing.T) {
	for want, wait := range map[string]func(nodes *redsynctest.Nodes){
		`lock "orders:17" is not held`: func(nodes *redsynctest.Nodes) { nodes.AwaitHeld(name) },
		`lock "orders:17" is not free`: func(nodes *redsynctest.Nodes) {
			nodes.HoldBySomebody(name)
			nodes.AwaitFree(name)
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			got := fails(t, func(tb *fakeTB) { wait(redsynctest.Start(tb, 3)) })
			assert.Contains(t, got, want)
			assert.GreaterOrEqual(t, time.Since(start), 10*time.Second)
		})
	}
}

// A program may use its own go-redis clients, for its data and for the pools of its locks.
func TestClientsAreForPoolsOfTheUsersOwn(t *testing.T) {
	inEachForm(t, func(t *testing.T, _ form, nodes *redsynctest.Nodes, _ *redsync.Redsync) {
		var pools []pool.Pool
		for _, c := range nodes.Clients() {
			require.NoError(t, c.Set(t.Context(), "data", "of the program", 0).Err())
			require.NoError(t, c.Del(t.Context(), "data").Err())
			pools = append(pools, pool.New(c))
		}
		rs := redsync.New(pools...).With(redsync.WithTimeoutFactor(0.4))
		require.NoError(t, rs.NewMutex(name).Lock())
		nodes.RequireHeld(name)
		require.NoError(t, rs.Close(t.Context()))
		nodes.RequireNothingLeft()
	})
}

// The keys of a lock that was lost or detached stay until they expire, also on a node that has had no fault. So do those that
// a process could not release while it was cut off. They must not fail the test. An event of a lock on several names has one
// name, which joins them all: the kit finds each of the keys in it, and no other key.
func TestTheEndLeavesOutLocksThatWereLostOrDetached(t *testing.T) {
	detaches := func(_ *redsynctest.Nodes, mutex *redsync.Mutex) {
		_, err := mutex.Detach(context.Background())
		require.NoError(t, err)
	}
	cutOff := func(nodes *redsynctest.Nodes, _ *redsync.Mutex) { nodes.CutOff(nodes.Redsync()) }
	unlocks := func(nodes *redsynctest.Nodes, mutex *redsync.Mutex) {
		cutOff(nodes, mutex)
		_, err := mutex.Unlock()
		require.Error(t, err)
	}
	one := []string{name}
	for what, c := range map[string]struct {
		names []string
		lose  func(nodes *redsynctest.Nodes, mutex *redsync.Mutex)
		left  string // what the kit says is left
	}{
		"proved by Valid": {one, func(nodes *redsynctest.Nodes, mutex *redsync.Mutex) {
			nodes.Node(0).Restart(true)
			nodes.Node(1).Restart(true)
			nodes.HoldBySomebody("other")
			_ = nodes.Process().NewMutex(name).Lock()
			_, _ = mutex.Valid()
		}, ""},
		"detached": {one, detaches, ""},
		"at Until, with a lock delay": {one, func(nodes *redsynctest.Nodes, mutex *redsync.Mutex) {
			cutOff(nodes, mutex)
			<-mutex.Lost()
		}, ""},
		"cut off":              {one, cutOff, ""},
		"cut off, and unlocks": {one, unlocks, ""},
		"cut off, and is back": {one, func(nodes *redsynctest.Nodes, mutex *redsync.Mutex) {
			unlocks(nodes, mutex)
			nodes.Reconnect(nodes.Redsync())
		}, ""},
		"several names, detached": {[]string{"a", "b, c", "d"}, detaches, ""},
		"several names, one is lost": {[]string{"a", "b, c", "d"}, func(nodes *redsynctest.Nodes, mutex *redsync.Mutex) {
			nodes.Expire("b, c")
			_, err := mutex.Valid()
			require.ErrorIs(t, err, redsync.ErrLockLost)
		}, ""},
		"a key of no such lock": {[]string{"a", "b, c"}, func(nodes *redsynctest.Nodes, mutex *redsync.Mutex) {
			require.NoError(t, nodes.Clients()[0].Set(context.Background(), "other", "left", time.Minute).Err())
			detaches(nodes, mutex)
		}, `"other" is left`},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				got := fails(t, func(tb *fakeTB) {
					nodes := redsynctest.Start(tb, 3)
					mutex := nodes.Redsync().NewMultiMutex(c.names, redsync.WithLockDelay(time.Minute))
					require.NoError(t, mutex.Lock())
					synctest.Wait()
					c.lose(nodes, mutex)
				})
				assert.Equal(t, c.left == "", got == "", got)
				assert.Contains(t, got, c.left)
			})
		})
	}
}

// Lock returns once a quorum has granted the lock. Expire must wait for the other nodes: if it did
// not, a later SET would bring a key back.
func TestExpireWaitsForTheKeysOfALock(t *testing.T) {
	inEachForm(t, func(t *testing.T, _ form, nodes *redsynctest.Nodes, rs *redsync.Redsync) {
		for i := range 30 {
			name := fmt.Sprint(name, i)
			require.NoError(t, rs.NewMutex(name).Lock())
			nodes.Expire(name)
		}
		time.Sleep(10 * time.Millisecond)
		for i := range 30 {
			for node, c := range nodes.Clients() {
				n, err := c.Exists(t.Context(), fmt.Sprint(name, i)).Result()
				require.NoError(t, err)
				assert.Zero(t, n, "node %d", node)
			}
		}
	})
}
