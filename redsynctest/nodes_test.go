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
	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
	"github.com/seed14bd9ef4/redsync/observe"
	"github.com/seed14bd9ef4/redsync/pool"
	"github.com/seed14bd9ef4/redsync/redsynctest"
)

const name = "orders:17"

func TestRedsyncIsTheSameEachTime(t *testing.T) {
	nodes := redsynctest.Start(t, 1)
	assert.Same(t, nodes.Redsync(), nodes.Redsync())
	assert.NotSame(t, nodes.Redsync(), nodes.Process())
}

func TestStartEndsALockThatIsStillHeld(t *testing.T) {
	var mutex *redsync.Mutex
	inEachForm(t, func(s *scene) {
		mutex = s.locked(redsync.WithWatchdog())
		s.Cleanup(func() { s.RequireHeld(name) })
	})
	require.ErrorIs(t, mutex.Err(), redsync.ErrClosed)
}

func TestNodeDownIsOutvotedAndComesBackWithItsKeys(t *testing.T) {
	inEachForm(t, func(s *scene) {
		s.Node(0).Down()
		s.Node(0).Down()
		s.Node(1).Down()
		s.settled()
		s.RequireHeld(name)

		s.Node(2).Down()
		var failed *redsync.RedisError
		require.ErrorAs(s, s.rs.NewMutex("other").TryLock(), &failed)

		for i := range 3 {
			s.Node(i).Up()
			s.Node(i).Up()
		}
		s.RequireHeld(name) // node 2 has kept its key
	})
}

func TestNodeFreezeAndThaw(t *testing.T) {
	inEachForm(t, func(s *scene) {
		mutex := s.settled()
		for i := range 3 {
			s.Node(i).Freeze()
			s.Node(i).Freeze()
		}
		other := s.rs.NewMutex("other", redsync.WithNodeTimeout(50*time.Millisecond))
		require.Error(s, other.TryLock())
		for i := range 3 {
			s.Node(i).Thaw()
			s.Node(i).Thaw()
		}
		s.RequireHeld(name)
		unlock(s, mutex)
	})
}

func TestNodeRestart(t *testing.T) {
	inEachForm(t, func(s *scene) {
		s.settled()
		for i := range 5 {
			s.Node(i).Restart(false)
		}
		s.RequireHeld(name)
		s.Node(0).Freeze()
		s.Node(1).Down()
		for i := range 3 {
			s.Node(i).Restart(true)
		}
		s.RequireFree(name)
	})
}

func TestNodeDelay(t *testing.T) {
	const late = 60 * time.Millisecond
	inEachForm(t, func(s *scene) {
		warm(s, s.rs)
		for i := range 3 {
			s.Node(i).Delay(late)
		}
		start := time.Now()
		mutex := s.locked()
		assert.GreaterOrEqual(s, time.Since(start), late)
		if s.form == bubble {
			assert.Equal(s, late, time.Since(start))
		}
		for i := range 3 {
			s.Node(i).Delay(0)
		}
		start = time.Now()
		unlock(s, mutex)
		if s.form == bubble {
			assert.Zero(s, time.Since(start))
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
	inEachForm(t, func(s *scene) {
		warm(s, s.rs)
		for i := range 5 {
			s.Node(i).Delay(time.Hour)
		}
		start := time.Now()
		got := make(chan error, 1)
		go func() { got <- s.rs.NewMutex(name).TryLock() }()
		time.Sleep(10 * time.Millisecond)
		for i := range 5 {
			s.Node(i).Delay(0)
		}
		require.NoError(s, <-got)
		if s.form == bubble {
			assert.Equal(s, 10*time.Millisecond, time.Since(start))
		}
	})
}

func TestNodeDownLosesAnswersThatAreLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := redsynctest.Start(t, 1)
		warm(t, nodes.Redsync())
		nodes.Node(0).Delay(time.Hour)
		got := make(chan error, 1)
		go func() { got <- nodes.Redsync().NewMutex(name).TryLock() }()
		time.Sleep(10 * time.Millisecond)
		nodes.Node(0).Down()
		start := time.Now()
		require.Error(t, <-got)
		assert.Zero(t, time.Since(start), "the call does not wait, because the connection breaks")
	})
}

func TestNodeLoseReplyExecutesTheRequest(t *testing.T) {
	inEachForm(t, func(s *scene) {
		warm(s, s.rs)
		for i := range 3 {
			s.Node(i).LoseReply()
			s.Node(i).LoseReply() // it is asked twice
		}
		r := &redsynctest.Recorder{}
		mutex := s.locked(redsync.WithHooks(r.Hooks()))
		attempts := redsynctest.Events[observe.Attempt](r)
		require.Greater(s, len(attempts), 1, "the first attempt has no quorum of answers")
		require.Error(s, attempts[0].Err)
		lost := map[int]bool{}
		for _, v := range redsynctest.AwaitEvents[observe.Vote](s, r, 3) {
			if v.Op == "lock" && v.Err != nil { // a slow process shows its ticket again, by a release
				lost[v.Node] = true
			}
		}
		assert.Equal(s, map[int]bool{0: true, 1: true, 2: true}, lost)
		unlock(s, mutex)
		s.RequireNothingLeft()
	})
}

func TestStealAndExpireEndAHoldUnnoticed(t *testing.T) {
	inEachForm(t, func(s *scene) {
		for method, take := range map[string]func(string){"Steal": s.Steal, "Expire": s.Expire} {
			mutex := s.settled()
			until := mutex.Until()
			take(name)
			assert.Equal(s, until, mutex.Until(), method)
			require.NoError(s, mutex.Err(), method)
			_, err := mutex.Valid()
			require.ErrorIs(s, err, redsync.ErrLockLost, method)
			if method == "Steal" {
				s.RequireHeld(name)
				s.Steal(name) // also a lock that somebody holds can be stolen
				s.Expire(name)
			}
			s.RequireFree(name)
			if s.form == bubble {
				synctest.Wait()
			}
		}
	})
}

func TestHoldBySomebodyKeepsOthersOutUntilExpire(t *testing.T) {
	inEachForm(t, func(s *scene) {
		s.HoldBySomebody(name)
		s.RequireHeld(name)
		s.RequireNothingLeft()
		mutex := s.rs.NewMutex(name, redsync.WithTries(0))
		var taken *redsync.ErrTaken
		require.ErrorAs(s, mutex.TryLock(), &taken)
		got := make(chan error, 1)
		go func() { got <- mutex.Lock() }()
		s.Expire(name)
		require.NoError(s, <-got)
	})
}

// Unlock returns as soon as a quorum has confirmed the release. HoldBySomebody must not fail
// because another node still has the key.
func TestHoldBySomebodyWaitsForReleasesThatAreUnderWay(t *testing.T) {
	inEachForm(t, func(s *scene) {
		for i := range 10 {
			name := fmt.Sprint("orders:", i)
			unlock(s, locked(s, s.rs.NewMutex(name)))
			s.HoldBySomebody(name)
		}
	})
}

func TestAdvanceMovesTheNodesAlone(t *testing.T) {
	nodes := redsynctest.Start(t, 5)
	mutex := locked(t, nodes.Redsync().NewMutex(name, redsync.WithExpiry(time.Hour)))
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
	testlength.NotShort(t)
	nodes := redsynctest.Start(t, 9)
	rs := nodes.Redsync().With(redsync.WithTimeoutFactor(0.4))
	for range 50 {
		unlock(t, locked(t, rs.NewMutex(name)))
		nodes.RequireNothingLeft()
	}
}

func TestNodesServeManyGoroutines(t *testing.T) {
	inEachForm(t, func(s *scene) {
		var wg sync.WaitGroup
		for i := range 2 {
			wg.Go(func() {
				n := s.Node(i)
				n.Restart(true)
				n.Freeze()
				n.Thaw()
				n.LoseReply()
				n.Delay(time.Millisecond)
			})
			wg.Go(func() {
				rs := s.Process(redsync.WithTimeoutFactor(0.4), redsync.WithTries(0))
				mutex := rs.NewMutex(name)
				assert.NoError(s, mutex.Lock())
				_, err := mutex.Unlock()
				assert.NoError(s, err)
				other := "other" + string(rune('0'+i))
				s.HoldBySomebody(other)
				s.RequireHeld(other)
				s.Steal(other)
				s.Expire(other)
			})
		}
		wg.Wait()
		s.RequireFree(name)
	})
}

func TestNewIsEndedByClose(t *testing.T) {
	inEachForm(t, func(s *scene) {
		nodes := redsynctest.New(3)
		mutex := locked(s, nodes.Redsync().NewMutex(name, redsync.WithTimeoutFactor(0.4)))
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				assert.NoError(s, nodes.Close())
				assert.ErrorIs(s, mutex.Err(), redsync.ErrClosed)
			})
		}
		all.Wait()
	})
}

// warm lets rs connect to every node.
func warm(tb testing.TB, rs *redsync.Redsync) {
	tb.Helper()
	unlock(tb, locked(tb, rs.NewMutex("warm", redsync.WithFailFast(false))))
}

// A process that is cut off can neither extend nor release. Its lock is lost at Until, and somebody else gets it.
func TestCutOffEndsTheLocksOfAProcess(t *testing.T) {
	inEachForm(t, func(s *scene) {
		process := s.Process(redsync.WithExpiry(time.Second), redsync.WithTimeoutFactor(0.4))
		mutex := locked(s, process.NewMutex(name, redsync.WithWatchdog()))
		lost := mutex.Lost()
		s.CutOff(process)
		s.CutOff(process)
		require.Error(s, process.NewMutex("other").TryLock())
		require.NoError(s, s.rs.NewMutex("another").Lock(), "another process, which is not cut off, can lock")
		<-lost
		require.ErrorIs(s, mutex.Err(), redsync.ErrLockLost)
		s.AwaitFree(name)
		s.locked()

		s.Reconnect(process)
		s.Reconnect(process)
		require.Eventually(s, func() bool {
			return process.NewMutex("other").TryLock() == nil
		}, 10*time.Second, 10*time.Millisecond)
	})
}

func TestAwaitFollowsALock(t *testing.T) {
	inEachForm(t, func(s *scene) {
		held, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			time.Sleep(30 * time.Millisecond)
			mutex := s.rs.NewMutex(name)
			assert.NoError(s, mutex.Lock())
			<-held
			time.Sleep(30 * time.Millisecond)
			_, err := mutex.Unlock()
			assert.NoError(s, err)
		}()
		s.AwaitHeld(name)
		close(held)
		s.AwaitFree(name)
		<-done
	})
}

func TestAwaitEndsAfterTenSeconds(t *testing.T) {
	for want, wait := range map[string]func(nodes kit){
		`lock "orders:17" is not held`: func(nodes kit) { nodes.AwaitHeld(name) },
		`lock "orders:17" is not free`: func(nodes kit) {
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
	inEachForm(t, func(s *scene) {
		var pools []pool.Pool
		for _, c := range s.Clients() {
			require.NoError(s, c.Set(s.Context(), "data", "of the program", 0).Err())
			require.NoError(s, c.Del(s.Context(), "data").Err())
			pools = append(pools, pool.New(c))
		}
		rs := redsync.New(pools...).With(redsync.WithTimeoutFactor(0.4))
		locked(s, rs.NewMutex(name))
		s.RequireHeld(name)
		require.NoError(s, rs.Close(s.Context()))
		s.RequireNothingLeft()
	})
}

// The keys of a lock that was lost or detached stay until they expire, also on a node that has had no fault. So do those that
// a process could not release while it was cut off. They must not fail the test. An event of a lock on several names has one
// name, which joins them all: the kit finds each of the keys in it, and no other key.
func TestTheEndLeavesOutLocksThatWereLostOrDetached(t *testing.T) {
	detaches := func(_ kit, mutex *redsync.Mutex) {
		_, err := mutex.Detach(context.Background())
		require.NoError(t, err)
	}
	cutOff := func(nodes kit, _ *redsync.Mutex) { nodes.CutOff(nodes.Redsync()) }
	unlocks := func(nodes kit, mutex *redsync.Mutex) {
		cutOff(nodes, mutex)
		_, err := mutex.Unlock()
		require.Error(t, err)
	}
	one := []string{name}
	for what, c := range map[string]struct {
		names []string
		lose  func(nodes kit, mutex *redsync.Mutex)
		left  string // what the kit says is left
	}{
		"proved by Valid": {one, func(nodes kit, mutex *redsync.Mutex) {
			nodes.Node(0).Restart(true)
			nodes.Node(1).Restart(true)
			nodes.HoldBySomebody("other")
			_ = nodes.Process().NewMutex(name).Lock()
			_, _ = mutex.Valid()
		}, ""},
		"detached": {one, detaches, ""},
		"at Until, with a lock delay": {one, func(nodes kit, mutex *redsync.Mutex) {
			cutOff(nodes, mutex)
			<-mutex.Lost()
		}, ""},
		"cut off":              {one, cutOff, ""},
		"cut off, and unlocks": {one, unlocks, ""},
		"cut off, and is back": {one, func(nodes kit, mutex *redsync.Mutex) {
			unlocks(nodes, mutex)
			nodes.Reconnect(nodes.Redsync())
		}, ""},
		"several names, detached": {[]string{"a", "b, c", "d"}, detaches, ""},
		"several names, one is lost": {[]string{"a", "b, c", "d"}, func(nodes kit, mutex *redsync.Mutex) {
			nodes.Expire("b, c")
			_, err := mutex.Valid()
			require.ErrorIs(t, err, redsync.ErrLockLost)
		}, ""},
		"a key of no such lock": {[]string{"a", "b, c"}, func(nodes kit, mutex *redsync.Mutex) {
			require.NoError(t, nodes.Clients()[0].Set(context.Background(), "other", "left", time.Minute).Err())
			detaches(nodes, mutex)
		}, `"other" is left`},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				got := fails(t, func(tb *fakeTB) {
					nodes := redsynctest.Start(tb, 3)
					mutex := locked(t, nodes.Redsync().NewMultiMutex(c.names, redsync.WithLockDelay(time.Minute)))
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
	inEachForm(t, func(s *scene) {
		for i := range 10 {
			name := fmt.Sprint(name, i)
			locked(s, s.rs.NewMutex(name))
			s.Expire(name)
		}
		time.Sleep(10 * time.Millisecond)
		for i := range 10 {
			for node, c := range s.Clients() {
				n, err := c.Exists(s.Context(), fmt.Sprint(name, i)).Result()
				require.NoError(s, err)
				assert.Zero(s, n, "node %d", node)
			}
		}
	})
}
