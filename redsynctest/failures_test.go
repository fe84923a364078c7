package redsynctest_test

import (
	"crypto/rand"
	"fmt"
	"regexp"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/observe"
	"github.com/seed14bd9ef4/redsync/redsynctest"
)

// What a test of a user's prints. The kit says what each node has, and takes neither a node that is frozen for a free one, nor an
// expiry for a release.
func TestFailuresSayWhatEachNodeHas(t *testing.T) {
	for want, test := range map[string]func(tb *fakeTB){
		`
	Error:      	lock "orders:17" is not held: 2 of 5 nodes have the same value, a quorum is 3
	            	node #0 (127.0.0.1:7001): free
	            	node #1 (127.0.0.1:7002): frozen
	            	node #2 (127.0.0.1:7003): down
	            	node #3 (127.0.0.1:7004): value "ABCDEFGH"..., expires in 7s
	            	node #4 (127.0.0.1:7005): value "ABCDEFGH"..., expires in 7s
	Test:       	TestOfUser
`: func(tb *fakeTB) {
			nodes := redsynctest.Start(tb, 5)
			locked(tb, nodes.Redsync().NewMutex(name, redsync.WithExpiry(8*time.Second)))
			synctest.Wait()
			nodes.RequireHeld(name)
			nodes.Node(0).Restart(true)
			nodes.Node(1).Freeze()
			nodes.Node(2).Down()
			time.Sleep(time.Second)
			nodes.RequireHeld(name)
		},
		`
	Error:      	lock "orders:17" is not free: it is free on 0 of 3 nodes, a quorum is 2
	            	node #0 (127.0.0.1:7001): held by somebody else, whom Steal or HoldBySomebody made up
	            	node #1 (127.0.0.1:7002): held by somebody else, whom Steal or HoldBySomebody made up
	            	node #2 (127.0.0.1:7003): down
	Test:       	TestOfUser
`: func(tb *fakeTB) {
			nodes := redsynctest.Start(tb, 3)
			nodes.HoldBySomebody(name)
			nodes.Node(2).Down()
			nodes.RequireFree(name)
		},
		`
	Error:      	node #0 (127.0.0.1:7001): "orders:17" is left: value "ABCDE", expires in 1m20s
	            	node #1 (127.0.0.1:7002): "orders:17" is left: value "ABCDE", expires in 1m20s
	            	the code under test must unlock each Mutex, and close each Redsync that it makes itself
	Test:       	TestOfUser
`: func(tb *fakeTB) {
			nodes := redsynctest.Start(tb, 2)
			value := func() (string, error) { return rand.Text()[:5], nil }
			locked(tb, nodes.Redsync().NewMutex(name, redsync.WithGenValueFunc(value), redsync.WithExpiry(90*time.Second)))
			synctest.Wait()
			nodes.RequireNothingLeft()
		},
		`
	Error:      	node #0 (127.0.0.1:7001): "orders:17" is left: value "ABCDEFGH"..., expires in 500ms
	            	the code under test must unlock each Mutex, and close each Redsync that it makes itself
	Test:       	TestOfUser
`: func(tb *fakeTB) {
			nodes := redsynctest.Start(tb, 1)
			locked(tb, nodes.Redsync().NewMutex(name, redsync.WithExpiry(time.Second)))
			nodes.RequireNothingLeft()
		},
		`
	Error:      	node #0 (127.0.0.1:7001): 1 connections are left open
	Test:       	TestOfUser
`: func(tb *fakeTB) {
			_, err := redsynctest.Start(tb, 1).Node(0).Dial(tb.Context())
			require.NoError(tb, err)
		},
		"redsynctest: AwaitEvents: 0 events of observe.Lost after 10s, want 1": func(tb *fakeTB) {
			redsynctest.AwaitEvents[observe.Lost](tb, &redsynctest.Recorder{}, 1)
		},
	} {
		synctest.Test(t, func(t *testing.T) { assert.Equal(t, want, masked(fails(t, test))) })
	}
}

// masked returns the failure with the random values of locks replaced by letters in alphabetical
// order, so that a test can compare the whole text.
func masked(failure string) string {
	return regexp.MustCompile(`value "[A-Z2-7]+"`).ReplaceAllStringFunc(failure, func(value string) string {
		return `value "` + "ABCDEFGH"[:len(value)-len(`value ""`)] + `"`
	})
}

func TestRequireFreeDoesNotTakeANodeThatFreezesForAFreeOne(t *testing.T) {
	nodes := redsynctest.New(1)
	defer nodes.Close()
	nodes.HoldBySomebody(name)
	var wg sync.WaitGroup
	defer wg.Wait()
	end := make(chan struct{})
	defer close(end)
	wg.Go(func() {
		for {
			select {
			case <-end:
				return
			default:
				nodes.Node(0).Freeze()
				nodes.Node(0).Thaw()
			}
		}
	})
	for range 1000 {
		require.Panics(t, func() { nodes.RequireFree(name) })
	}
}

// The test has made a Redsync of its own and does not close it, so nobody unlocks its lock. The end
// of the test must find the keys, unless the nodes have had a fault or the test has failed already.
func TestTheEndFindsWhatNobodyUnlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		held := func(fault func(n *redsynctest.Node)) string {
			return fails(t, func(tb *fakeTB) {
				nodes := redsynctest.Start(tb, 3)
				locked(t, redsync.New(nodes.Pools()...).NewMutex(name, redsync.WithExpiry(time.Hour))) // nobody closes the Redsync
				for i := range 3 {
					fault(nodes.Node(i))
				}
			})
		}
		got := held(func(*redsynctest.Node) {})
		assert.Contains(t, got, `node #2 (127.0.0.1:7003): "orders:17" is left: value `)
		assert.Contains(t, got, "Test:       \tTestOfUser")
		assert.Empty(t, held(func(n *redsynctest.Node) { n.Restart(false) }), "nodes that have had a fault are not looked at")
		assert.Contains(t, held(func(n *redsynctest.Node) {
			n.Up()
			n.Thaw()
			n.Delay(0)
		}), "is left", "what does nothing is no fault")
		got = held(func(n *redsynctest.Node) { n.Delay(-1) })
		assert.Contains(t, got, "must be 0 or more")
		assert.NotContains(t, got, "is left", "a test that has failed")
	})
}

// The keys of a minimal hold that is not over are not left behind, in any mode, whoever has made the Redsync, and whether the test
// unlocks or the end does. Another value under the same name is left behind.
func TestTheRestOfAMinimalHoldIsNotLeftBehind(t *testing.T) {
	lasts := redsync.WithMinHold(time.Hour)
	inEachForm(t, func(s *scene) {
		for mode, lock := range map[string]func(rs *redsync.Redsync) *redsync.Mutex{
			"one name": func(rs *redsync.Redsync) *redsync.Mutex { return rs.NewMutex(name, lasts) },
			"several names": func(rs *redsync.Redsync) *redsync.Mutex {
				return rs.NewMultiMutex([]string{name, "b"}, lasts, redsync.WithFencing())
			},
			"a permit": func(rs *redsync.Redsync) *redsync.Mutex { return rs.NewMutex(name, lasts, redsync.WithPermits(2)) },
			"permits": func(rs *redsync.Redsync) *redsync.Mutex {
				return rs.NewMutex(name, lasts, redsync.WithPermits(3), redsync.WithFair(), redsync.WithWeight(2))
			},
		} {
			if s.form != bubble && mode != "several names" { // it takes real time
				continue
			}
			assert.Empty(s, fails(s, func(tb *fakeTB) {
				nodes := redsynctest.Start(tb, 3)
				unlock(s, locked(s, lock(nodes.Redsync())))
				nodes.RequireNothingLeft()
			}), mode)
			assert.Empty(s, fails(s, func(tb *fakeTB) {
				rs := redsync.New(redsynctest.Start(tb, 3).Pools()...)
				locked(s, lock(rs))
				require.NoError(s, rs.Close(s.Context()))
			}), mode)
			assert.Empty(s, fails(s, func(tb *fakeTB) { locked(s, lock(redsynctest.Start(tb, 3).Redsync())) }), mode)
		}
		assert.Contains(s, fails(s, func(tb *fakeTB) {
			nodes := redsynctest.Start(tb, 1)
			unlock(s, locked(s, nodes.Redsync().NewMutex(name, redsync.WithMinHold(50*time.Millisecond))))
			locked(s, redsync.New(nodes.Pools()...).NewMutex(name, redsync.WithExpiry(time.Hour))) // nobody closes it
		}), `"orders:17" is left`)
	})
}

func TestBadInputIsNamed(t *testing.T) {
	for _, n := range []int{0, 65} {
		got := fails(t, func(tb *fakeTB) { redsynctest.Start(tb, n) })
		assert.Contains(t, got, fmt.Sprint("redsynctest: Start: the number of nodes must be 1 to 64, not ", n))
	}
	for want, test := range map[string]func(nodes kit){
		`Node(2): the index must be 0 to 1`:  func(nodes kit) { nodes.Node(2) },
		`Node(-1): the index must be 0 to 1`: func(nodes kit) { nodes.Node(-1) },

		`Node(1).Delay: the duration must be 0 or more, not -1s`: func(nodes kit) { nodes.Node(1).Delay(-time.Second) },
		`Advance: the duration must be 0 or more, not -1ns`:      func(nodes kit) { nodes.Advance(-1) },

		`Steal(""): the name of a lock must not be empty`: func(nodes kit) { nodes.Steal("") },
		`RequireHeld("{a}:queue"): the name is reserved`:  func(nodes kit) { nodes.RequireHeld("{a}:queue") },
		`Steal("nobody"): no node has this lock`:          func(nodes kit) { nodes.Steal("nobody") },
		`Expire("nobody"): no node has this lock`:         func(nodes kit) { nodes.Expire("nobody") },

		`HoldBySomebody("held"): the lock must be free on every node that is up`: func(nodes kit) {
			nodes.HoldBySomebody("held")
			nodes.HoldBySomebody("held")
		},
		`Node(1).Freeze: the node is down`: func(nodes kit) {
			nodes.Node(1).Down()
			nodes.Node(1).Freeze()
		},
		`CutOff: the Redsync must be one that Process or Redsync has returned`: func(nodes kit) {
			nodes.CutOff(nodes.Redsync().With(redsync.WithFair()))
		},
		`Reconnect: the Redsync must be one that Process or Redsync has returned`: func(nodes kit) {
			nodes.Reconnect(nil)
		},
	} {
		t.Run(want, func(t *testing.T) {
			got := fails(t, func(tb *fakeTB) { test(redsynctest.Start(tb, 2)) })
			assert.Contains(t, got, "redsynctest: "+want)
		})
	}
	for call, test := range map[string]func(nodes kit){
		"Node(0).Up":         func(nodes kit) { nodes.Node(0).Up() },
		`RequireFree("x")`:   func(nodes kit) { nodes.RequireFree("x") },
		"RequireNothingLeft": kit.RequireNothingLeft,
		"Process":            func(nodes kit) { nodes.Process() },
		"Pools":              func(nodes kit) { nodes.Pools() },
		"Clients":            func(nodes kit) { nodes.Clients() },
	} {
		got := fails(t, func(tb *fakeTB) {
			nodes := redsynctest.Start(tb, 2)
			require.NoError(tb, nodes.Close())
			test(nodes)
		})
		assert.Contains(t, got, "redsynctest: "+call+": the nodes are closed")
	}
}

func TestNewPanics(t *testing.T) {
	assert.PanicsWithValue(t, "redsynctest: New: the number of nodes must be 1 to 64, not 0", func() { redsynctest.New(0) })
	nodes := redsynctest.New(1)
	defer nodes.Close()
	assert.PanicsWithValue(t, "redsynctest: Node(1): the index must be 0 to 0", func() { nodes.Node(1) })
	assert.PanicsWithValue(t, "\n"+
		"\tError:      \tlock \"orders:17\" is not held\n"+
		"\t            \tnode #0 (127.0.0.1:7001): free\n", func() { nodes.RequireHeld(name) })
}

func TestAdvanceFailsWhereItMakesNoSense(t *testing.T) {
	advance := func(tb *fakeTB) {
		redsynctest.Start(tb, 1).Advance(time.Second)
	}
	synctest.Test(t, func(t *testing.T) {
		assert.Contains(t, fails(t, advance), "redsynctest: Advance: in a synctest bubble use time.Sleep(1s)")
	})
	onServers(t)
	assert.Contains(t, fails(t, advance), "redsynctest: Advance: the clocks of real servers (REDSYNCTEST_SERVERS) cannot be moved")
}

func TestStartKnowsTheBubbleWhileAnotherGoroutineWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 20 {
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() {
					got := fails(t, func(tb *fakeTB) { redsynctest.Start(tb, 1).Advance(time.Second) })
					assert.Contains(t, got, "in a synctest bubble use time.Sleep(1s)")
				})
			}
			wg.Wait()
		}
	})
}

func TestServersAreRefusedInABubble(t *testing.T) {
	t.Setenv(redsynctest.ServersEnv, "redis-server")
	synctest.Test(t, func(t *testing.T) {
		got := fails(t, func(tb *fakeTB) { redsynctest.Start(tb, 1) })
		assert.Contains(t, got, "redsynctest: Start: REDSYNCTEST_SERVERS=redis-server: real servers cannot run in a testing/synctest bubble")
	})
}

func TestAServerThatCannotBeStartedIsNamed(t *testing.T) {
	t.Setenv(redsynctest.ServersEnv, "no-such-program")
	got := fails(t, func(tb *fakeTB) { redsynctest.Start(tb, 1) })
	assert.Contains(t, got, "redsynctest: Start: REDSYNCTEST_SERVERS=no-such-program: ")
	assert.Contains(t, got, "executable file not found")
}
