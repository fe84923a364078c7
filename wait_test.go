package redsync_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/embedded"
)

// Waiting, from outside: who is woken when, in which order, and what is left.

// patient are the options of one whom no retry delay helps.
func patient(more ...redsync.Option) []redsync.Option {
	return append([]redsync.Option{redsync.WithTries(0), redsync.WithRetryDelay(time.Hour)}, more...)
}

// another returns a further process, whose locks have these defaults, and which has
// met the nodes.
func (f field) another(options ...redsync.Option) *redsync.Redsync {
	f.Helper()
	rs := process(f.nodes)
	field{f.T, rs, f.nodes, f.last}.meet()
	return rs.With(options...)
}

// A call is a Lock under way.
type call struct {
	*redsync.Mutex
	cancel context.CancelFunc
	done   chan struct{}
	err    error
	at     time.Time // when it returned
}

// calls calls Lock, and returns when that waits or has returned.
func (f field) calls(rs *redsync.Redsync, options ...redsync.Option) *call {
	c := &call{Mutex: rs.NewMutex("lock", options...), done: make(chan struct{})}
	ctx, cancel := context.WithCancel(f.Context())
	c.cancel = cancel
	*f.last = append(*f.last, cancel)
	go func() {
		defer cancel()
		c.err = c.LockContext(ctx)
		c.at = time.Now()
		close(c.done)
	}()
	synctest.Wait()
	return c
}

func (c *call) isDone() bool {
	synctest.Wait()
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// within waits until c has the lock, at the latest after so long, and returns after
// how long.
func (f field) within(c *call, limit time.Duration) time.Duration {
	f.Helper()
	start := time.Now()
	<-c.done
	require.NoError(f, c.err)
	took := c.at.Sub(start)
	assert.LessOrEqual(f, took, limit)
	return took
}

func (f field) unlock(m *redsync.Mutex) {
	f.Helper()
	ok, err := m.Unlock()
	require.NoError(f, err)
	assert.True(f, ok)
}

// atOnce unlocks m and looks that c has the lock at the same moment.
func (f field) atOnce(m *redsync.Mutex, c *call) {
	f.Helper()
	require.False(f, c.isDone())
	start := time.Now()
	_, _ = m.Unlock() // faults may lie to it
	<-c.done
	require.NoError(f, c.err)
	assert.Equal(f, time.Duration(0), c.at.Sub(start))
}

// nobodyWaits looks that all queues are empty.
func (f field) nobodyWaits() {
	f.Helper()
	synctest.Wait()
	for i, n := range f.nodes {
		for _, key := range n.Keys() {
			assert.False(f, strings.HasSuffix(key, ":queue"), "%s on node %d", key, i)
		}
	}
}

// stranger puts a waiter of a process that does nothing in the queue of some nodes,
// which counts as alive for so long, before or behind all others.
func (f field) stranger(alive time.Duration, first bool, nodes ...int) string {
	class := 999
	if first {
		class = 0
	}
	ticket := fmt.Sprintf("%04d:%016d:%s:%010d", class, time.Now().UnixMicro(), "9999999999999999", 1)
	for _, i := range nodes {
		n := f.nodes[i]
		queue, _ := n.Get("{lock}:queue")
		records := append(slices.Collect(strings.Lines(queue)), fmt.Sprintf("%s %013d\n", ticket, time.Now().Add(alive).UnixMilli()))
		slices.Sort(records)
		_ = n.Set("{lock}:queue", strings.Join(records, ""))
		n.SetTTL("{lock}:queue", 2*alive)
	}
	return ticket
}

// inQueue returns who waits at a node.
func (f field) inQueue(node int) (tickets []string) {
	queue, _ := f.nodes[node].Get("{lock}:queue")
	for record := range strings.Lines(queue) {
		tickets = append(tickets, strings.Fields(record)[0])
	}
	return tickets
}

var modes = map[string][]redsync.Option{
	"default": nil,
	"fair":    {redsync.WithFair()},
}

func inEachMode(t *testing.T, test func(f field, mode []redsync.Option)) {
	t.Helper()
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			play(t, func(f field) { test(f, mode) })
		})
	}
}

// Waking up.

func TestWaiterIsWokenByUnlockInAnotherProcess(t *testing.T) {
	inEachMode(t, func(f field, mode []redsync.Option) {
		m := f.held(mode...)
		c := f.calls(f.another(mode...), patient()...)
		time.Sleep(1234 * time.Millisecond)
		f.atOnce(m, c)
		f.unlock(c.Mutex)
		f.nobodyWaits()
	})
}

func TestWaitersAreWokenOneByOne(t *testing.T) {
	inEachMode(t, func(f field, mode []redsync.Option) {
		m := f.held(mode...)
		var calls []*call
		for range 6 {
			calls = append(calls, f.calls(f.another(mode...), patient()...))
			time.Sleep(time.Millisecond)
		}
		for _, c := range calls {
			f.atOnce(m, c)
			m = c.Mutex
			time.Sleep(7 * time.Millisecond)
		}
		f.unlock(m)
		f.nobodyWaits()
	})
}

// C has two nodes and waits for two others; B has these, and waits for C.
func TestWaiterIsWokenByTheRollBackOfAnAttempt(t *testing.T) {
	inEachMode(t, func(f field, mode []redsync.Option) {
		b, c := f.another(mode...), f.another()
		f.kill(2)
		for _, i := range []int{3, 4} {
			f.nodes[i].On("set", 1, embedded.Fault{Delay: 300 * time.Millisecond, Err: "ERR no"})
		}
		start := time.Now()
		var wg sync.WaitGroup
		wg.Go(func() { assert.Error(f, c.NewMutex("lock").TryLock()) })
		synctest.Wait()
		w := f.calls(b, patient()...)
		require.False(f, w.isDone())
		<-w.done
		require.NoError(f, w.err)
		assert.Equal(f, 300*time.Millisecond, w.at.Sub(start))
		wg.Wait()
		f.unlock(w.Mutex)
		f.nobodyWaits()
	})
}

// The first waiter does not hear that the lock is free. It gives up.
func TestWaiterIsWokenByOneBeforeItThatGivesUp(t *testing.T) {
	inEachMode(t, func(f field, mode []redsync.Option) {
		m := f.held(mode...)
		first := f.calls(f.another(mode...), patient()...)
		time.Sleep(time.Millisecond)
		second := f.calls(f.another(mode...), patient()...)
		time.Sleep(600 * time.Millisecond)
		for _, n := range f.nodes {
			n.LoseMessages(1)
		}
		f.unlock(m)
		time.Sleep(100 * time.Millisecond)
		require.False(f, first.isDone())
		require.False(f, second.isDone(), "it comes after the first")
		first.cancel()
		assert.Zero(f, f.within(second, 0))
		<-first.done
		require.ErrorIs(f, first.err, context.Canceled)
		require.ErrorIs(f, first.err, redsync.ErrFailed)
		f.unlock(second.Mutex)
		f.nobodyWaits()
	})
}

func TestWaiterThatIsNotWokenGoesByTheTime(t *testing.T) {
	for name, c := range map[string]struct {
		delay, after, within time.Duration
	}{
		"refresh":     {time.Hour, 600 * time.Millisecond, 400 * time.Millisecond},
		"retry delay": {70 * time.Millisecond, 600 * time.Millisecond, 70 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			inEachMode(t, func(f field, mode []redsync.Option) {
				m := f.held(mode...)
				w := f.calls(f.another(mode...), redsync.WithTries(0), redsync.WithRetryDelay(c.delay))
				for _, n := range f.nodes {
					n.LoseMessages(100)
				}
				time.Sleep(c.after)
				f.unlock(m)
				assert.Positive(f, f.within(w, c.within))
			})
		})
	}
}

func TestWaiterIsServedWhenTheLockRunsOut(t *testing.T) {
	inEachMode(t, func(f field, mode []redsync.Option) {
		b := f.another(mode...)
		start := time.Now()
		require.NoError(f, f.NewMutex("lock", append(mode, redsync.WithExpiry(2300*time.Millisecond))...).Lock())
		w := f.calls(b, patient()...)
		<-w.done
		require.NoError(f, w.err)
		assert.GreaterOrEqual(f, w.at.Sub(start), 2300*time.Millisecond)
		assert.LessOrEqual(f, w.at.Sub(start), 2315*time.Millisecond)
	})
}

func TestWaiterIsServedWhenTheLockRunsOutOnAQuorum(t *testing.T) {
	inEachMode(t, func(f field, mode []redsync.Option) {
		b := f.another(mode...)
		for i, n := range f.nodes {
			require.NoError(f, n.Set("lock", "another's"))
			n.SetTTL("lock", time.Duration(4-i)*time.Second+300*time.Millisecond)
		}
		w := f.calls(b, patient()...)
		// The attempt that finds out when goes by the first three answers: at the latest
		// the next one tries in time.
		assert.GreaterOrEqual(f, f.within(w, 2500*time.Millisecond), 2300*time.Millisecond)
	})
}

// A node on which it is free already is one of them.
func TestWaiterIsServedWhenTheLockHasRunOutOnTheRestOfAQuorum(t *testing.T) {
	inEachMode(t, func(f field, mode []redsync.Option) {
		b := f.another(mode...)
		for i, n := range f.nodes[:3] {
			require.NoError(f, n.Set("lock", "another's"))
			n.SetTTL("lock", []time.Duration{300 * time.Millisecond, time.Hour, time.Hour}[i])
		}
		for _, n := range f.nodes[1:3] { // the last to answer
			n.On("evalsha", 9, embedded.Fault{Delay: time.Millisecond})
		}
		w := f.calls(b, patient()...)
		assert.GreaterOrEqual(f, f.within(w, 315*time.Millisecond), 300*time.Millisecond)
	})
}

func TestWaiterBehindADeadProcessIsServedWithinASecond(t *testing.T) {
	inEachMode(t, func(f field, mode []redsync.Option) {
		m := f.held(mode...)
		w := f.calls(f.another(mode...), patient()...)
		time.Sleep(777 * time.Millisecond)
		f.stranger(time.Second, true, 0, 1, 2, 3, 4)
		f.unlock(m)
		took := f.within(w, 1015*time.Millisecond)
		assert.GreaterOrEqual(f, took, time.Second)
		f.unlock(w.Mutex)
		f.nobodyWaits()
	})
}

// Who has waited for long lives all the time.
func TestWaiterKeepsItsPlaceWhileItLives(t *testing.T) {
	inEachMode(t, func(f field, mode []redsync.Option) {
		m := f.held(append(mode, redsync.WithExpiry(time.Minute))...)
		first := f.calls(f.another(mode...), patient()...)
		time.Sleep(10*time.Second + 499*time.Millisecond)
		second := f.calls(f.another(mode...), patient()...)
		f.atOnce(m, first)
		assert.False(f, second.isDone())
		for range 20 {
			time.Sleep(97 * time.Millisecond)
			ttl := f.nodes[0].TTL("{lock}:queue")
			assert.GreaterOrEqual(f, ttl, time.Second)
			assert.LessOrEqual(f, ttl, 2*time.Second)
		}
		f.atOnce(first.Mutex, second)
	})
}

func TestWaiterIsWokenByAQuorum(t *testing.T) {
	for name, fault := range map[string]func(f field){
		"one frozen":           func(f field) { f.freeze(1) },
		"two frozen":           func(f field) { f.freeze(1, 3) },
		"two dead":             func(f field) { f.kill(0, 4) },
		"one frozen, one dead": func(f field) { f.freeze(1); f.kill(4) },
		"two messages lost":    func(f field) { f.nodes[0].LoseMessages(1); f.nodes[3].LoseMessages(1) },
	} {
		for _, when := range []string{"before it waits", "while it waits"} {
			t.Run(name+" "+when, func(t *testing.T) {
				inEachMode(t, func(f field, mode []redsync.Option) {
					m := f.held(mode...)
					b := f.another(mode...)
					if when == "before it waits" {
						fault(f)
					}
					w := f.calls(b, patient()...)
					time.Sleep(1100 * time.Millisecond)
					if when != "before it waits" {
						fault(f)
					}
					f.atOnce(m, w)
					f.thaw(0, 1, 2, 3, 4)
					f.restart(0, 4)
				})
			})
		}
	}
}

// Fewer than a quorum of wake-ups serve as well, a few milliseconds later.
func TestWaiterIsWokenByOneMessage(t *testing.T) {
	inEachMode(t, func(f field, mode []redsync.Option) {
		m := f.held(mode...)
		w := f.calls(f.another(mode...), patient()...)
		time.Sleep(time.Millisecond)
		for _, n := range f.nodes[1:] {
			n.LoseMessages(1)
		}
		f.unlock(m)
		assert.GreaterOrEqual(f, f.within(w, 4*time.Millisecond), 2*time.Millisecond)
	})
}

// A few milliseconds count from the first message.
func TestWaiterIsWokenByTwoMessagesOneAfterTheOther(t *testing.T) {
	inEachMode(t, func(f field, mode []redsync.Option) {
		m := f.held(mode...)
		w := f.calls(f.another(mode...), patient()...)
		time.Sleep(time.Millisecond)
		f.nodes[1].On("evalsha", 1, embedded.Fault{Delay: 2 * time.Millisecond})
		for _, n := range f.nodes[2:] {
			n.LoseMessages(1)
		}
		f.unlock(m)
		assert.GreaterOrEqual(f, f.within(w, 4*time.Millisecond), 2*time.Millisecond)
	})
}

// Where its last attempt was granted the lock is free as well.
func TestWaiterCountsTheNodesThatItFreed(t *testing.T) {
	inEachMode(t, func(f field, mode []redsync.Option) {
		m := f.held()
		f.lose(3, 4)
		w := f.calls(f.another(mode...), patient()...)
		time.Sleep(time.Millisecond)
		for _, n := range f.nodes[1:] {
			n.LoseMessages(1)
		}
		f.atOnce(m, w)
	})
}

// Two nodes grant the attempt when a third one has woken the waiter.
func TestWaiterCountsTheNodesThatItFreesAfterItWasWoken(t *testing.T) {
	inEachMode(t, func(f field, mode []redsync.Option) {
		m := f.held()
		f.lose(3, 4)
		w := f.calls(f.another(mode...), patient()...)
		time.Sleep(400 * time.Millisecond)
		for _, n := range f.nodes[3:] { // the attempt half a second after the last one
			n.On("evalsha", 1, embedded.Fault{Delay: 50 * time.Millisecond})
		}
		time.Sleep(149 * time.Millisecond)
		for _, n := range f.nodes[1:] {
			n.LoseMessages(1)
		}
		f.unlock(m)
		assert.Equal(f, time.Millisecond, f.within(w, time.Second))
	})
}

func TestWaiterIsWokenAlthoughTheReplyToTheReleaseIsLost(t *testing.T) {
	inEachMode(t, func(f field, mode []redsync.Option) {
		m := f.held(mode...)
		w := f.calls(f.another(mode...), patient()...)
		time.Sleep(time.Millisecond)
		for _, n := range f.nodes {
			n.On("evalsha", 1, embedded.Fault{LoseReply: true})
		}
		f.atOnce(m, w)
	})
}

// What was published while nobody could hear it is made up for.
func TestWaiterLooksWhenItCanHearAgain(t *testing.T) {
	inEachMode(t, func(f field, mode []redsync.Option) {
		m := f.held(mode...)
		w := f.calls(f.another(mode...), patient()...)
		time.Sleep(10 * time.Millisecond)
		for _, n := range f.nodes {
			n.Disconnect()
		}
		time.Sleep(time.Millisecond)
		_, _ = m.Unlock()
		require.False(f, w.isDone())
		f.within(w, 150*time.Millisecond)
	})
}

// A wake-up that comes while an attempt is under way counts. This attempt fails: two
// nodes refuse to answer, and one has said no before the lock is free.
func TestWakeUpDuringAnAttemptIsNotLost(t *testing.T) {
	inEachMode(t, func(f field, mode []redsync.Option) {
		m := f.held(mode...)
		w := f.calls(f.another(mode...), patient()...)
		time.Sleep(499 * time.Millisecond) // the next attempt is at 500 ms
		for i, n := range f.nodes {
			n.On("evalsha", 1, []embedded.Fault{
				{}, {Delay: 20 * time.Millisecond}, {Delay: 20 * time.Millisecond}, {Err: "ERR"}, {Err: "ERR"},
			}[i])
		}
		time.Sleep(11 * time.Millisecond)
		f.unlock(m)
		assert.Equal(f, 10*time.Millisecond, f.within(w, 10*time.Millisecond))
	})
}

// Who is in a queue can hear: what is published before is not missed.
func TestWaiterCanHearBeforeItIsInAQueue(t *testing.T) {
	inEachMode(t, func(f field, mode []redsync.Option) {
		m := f.held(mode...)
		b := f.another(mode...)
		for _, n := range f.nodes {
			n.On("subscribe", 1, embedded.Fault{Delay: 100 * time.Millisecond})
		}
		w := f.calls(b, patient()...)
		time.Sleep(50 * time.Millisecond)
		f.unlock(m)
		assert.Equal(f, 50*time.Millisecond, f.within(w, time.Second))
	})
}

// Nodes that cannot be heard hold nobody up for longer than the node deadline, once.
func TestWaiterDoesWithoutNodesThatCannotBeHeard(t *testing.T) {
	inEachMode(t, func(f field, mode []redsync.Option) {
		m := f.held(append(mode, redsync.WithExpiry(time.Minute))...)
		b := f.another(mode...)
		for _, n := range f.nodes[:2] {
			n.On("subscribe", 1, embedded.Fault{Delay: 4 * time.Second})
		}
		w := f.calls(b, patient()...)
		time.Sleep(800 * time.Millisecond)
		f.atOnce(m, w)
	})
}

// Other programs publish nothing.
func TestHolderOfAnotherLibraryIsSeenByTheRetryDelay(t *testing.T) {
	inEachMode(t, func(f field, mode []redsync.Option) {
		b := f.another(mode...)
		for _, n := range f.nodes {
			require.NoError(f, n.Set("lock", "another's"))
			n.SetTTL("lock", time.Minute)
		}
		w := f.calls(b, redsync.WithTries(0), redsync.WithRetryDelay(200*time.Millisecond))
		time.Sleep(610 * time.Millisecond)
		f.lose(0, 1, 2, 3, 4)
		assert.Equal(f, 190*time.Millisecond, f.within(w, 200*time.Millisecond))
	})
}

func TestPollTakesAFreeLockExceptInFairMode(t *testing.T) {
	inEachMode(t, func(f field, mode []redsync.Option) {
		m := f.held(mode...)
		w := f.calls(f.another(mode...), redsync.WithTries(0), redsync.WithRetryDelay(200*time.Millisecond))
		f.stranger(900*time.Millisecond, true, 0, 1, 2, 3, 4)
		time.Sleep(10 * time.Millisecond)
		f.unlock(m)
		if mode == nil {
			assert.Equal(f, 190*time.Millisecond, f.within(w, time.Second))
		} else {
			assert.GreaterOrEqual(f, f.within(w, time.Second), 890*time.Millisecond)
		}
	})
}

// Waiting costs the nodes little: an attempt per half a second.
func TestWaitingIsNoPolling(t *testing.T) {
	inEachMode(t, func(f field, mode []redsync.Option) {
		m := f.held(append(mode, redsync.WithExpiry(time.Minute))...)
		w := f.calls(f.another(mode...), patient()...)
		before := f.traffic()
		time.Sleep(10*time.Second + time.Millisecond)
		assert.Equal(f, 5*2*20, f.traffic()-before, "an attempt and its release each time")
		w.cancel()
		<-w.done
		f.unlock(m)
		f.nobodyWaits()
	})
}

// subscribers counts the subscriptions on all nodes.
func (f field) subscribers() (count int) {
	for _, n := range f.nodes {
		for _, k := range n.PubSubNumSub(n.PubSubChannels("*")...) {
			count += k
		}
	}
	return count
}

func TestSubscriptionsOutlastTheLastWaiterByHalfAMinute(t *testing.T) {
	inEachMode(t, func(f field, mode []redsync.Option) {
		m := f.held(append(mode, redsync.WithExpiry(10*time.Minute))...)
		first := f.calls(f.another(mode...), patient()...)
		time.Sleep(2 * time.Minute)
		second := f.calls(f.another(mode...), patient()...)
		assert.Equal(f, 10, f.subscribers(), "one for each process and node")
		f.atOnce(m, first)    // and tells the second ...
		f.unlock(first.Mutex) // ... which its process remembers
		f.within(second, 0)
		f.unlock(second.Mutex)
		time.Sleep(29 * time.Second)
		assert.Equal(f, 10, f.subscribers())
		time.Sleep(31 * time.Second)
		assert.Zero(f, f.subscribers())

		m = f.held(mode...)
		third := f.calls(f.another(mode...), patient()...)
		assert.Equal(f, 5, f.subscribers())
		f.atOnce(m, third)
	})
}

func TestSubscriptionsOutlastEveryWaiterByHalfAMinute(t *testing.T) {
	play(t, func(f field) {
		b := f.another()
		for range 2 {
			m := f.held()
			c := f.calls(b, patient()...)
			f.atOnce(m, c)
			f.unlock(c.Mutex)
			time.Sleep(20 * time.Second)
		}
		time.Sleep(5 * time.Second) // 25 s after the last, 45 s after the first
		assert.Equal(t, 5, f.subscribers())
		time.Sleep(10 * time.Second)
		assert.Zero(t, f.subscribers())
	})
}

// Order.

// inOrder lets each call have the lock in turn, and returns the order.
func (f field) inOrder(calls []*call, hold time.Duration) (order []int) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i, c := range calls {
		wg.Go(func() {
			<-c.done
			if c.err != nil {
				return
			}
			mu.Lock()
			order = append(order, i)
			mu.Unlock()
			time.Sleep(hold)
			_, err := c.Unlock()
			assert.NoError(f, err)
		})
	}
	wg.Wait()
	return order
}

// ascending returns 0 to n-1.
func ascending(n int) []int {
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	return order
}

// Only the first waiter of a process is in the queues. When it leaves, the next one
// enters behind the release, and one of another process may come between.
func TestFairOrderOfManyInAProcessIsNearlyThatOfTheCalls(t *testing.T) {
	for _, seed := range []uint64{1, 2, 3, 4} {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			play(t, func(f field) {
				r := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a test repeats itself
				m := f.held(redsync.WithFair())
				all := []*redsync.Redsync{f.another(redsync.WithFair()), f.another(redsync.WithFair()), f.With(redsync.WithFair())}
				var calls []*call
				for range 15 {
					calls = append(calls, f.calls(all[r.IntN(3)], patient()...))
					time.Sleep(time.Millisecond)
				}
				f.unlock(m)
				for place, who := range f.inOrder(calls, time.Millisecond) {
					assert.InDelta(t, who, place, 2)
				}
				f.nobodyWaits()
			})
		})
	}
}

func TestFairOrderIsThatOfTheCalls(t *testing.T) {
	for _, seed := range []uint64{1, 2, 3, 4} {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			play(t, func(f field) {
				r := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a test repeats itself
				m := f.held(redsync.WithFair())
				var calls []*call
				for range 8 {
					calls = append(calls, f.calls(f.another(redsync.WithFair()), patient()...))
					time.Sleep(time.Millisecond)
				}
				for _, n := range f.nodes {
					for range 200 {
						n.On("evalsha", 1, embedded.Fault{Delay: time.Duration(r.IntN(3000)) * time.Microsecond})
					}
				}
				f.unlock(m)
				assert.Equal(t, ascending(8), f.inOrder(calls, time.Millisecond))
				time.Sleep(time.Second)
				f.nobodyWaits()
			})
		})
	}
}

func TestFairFirstAttemptDoesNotBarge(t *testing.T) {
	play(t, func(f field) {
		f.stranger(301*time.Millisecond, false, 0, 1, 2)
		time.Sleep(time.Millisecond)
		w := f.calls(f.another(redsync.WithFair()), patient()...)
		assert.False(t, w.isDone())
		assert.GreaterOrEqual(t, f.within(w, 315*time.Millisecond), 300*time.Millisecond)
		assert.Zero(t, f.commands("set")-5, "but for another's first meeting")
	})
}

func TestFairTryLockIsBehindThoseWhoWait(t *testing.T) {
	for count, wins := range map[int]bool{1: true, 2: true, 3: false, 5: false} {
		t.Run(fmt.Sprint(count), func(t *testing.T) {
			play(t, func(f field) {
				f.meet()
				ticket := f.stranger(time.Second, false, ascending(count)...)
				time.Sleep(time.Millisecond)
				m := f.NewMutex("lock", redsync.WithFair())
				err := m.TryLock()
				if wins {
					require.NoError(t, err)
					f.unlock(m)
				} else {
					require.ErrorIs(t, err, redsync.ErrFailed)
					var taken *redsync.ErrTaken
					require.ErrorAs(t, err, &taken)
				}
				synctest.Wait()
				for i := range f.nodes {
					if i < count {
						assert.Equal(t, []string{ticket}, f.inQueue(i))
					} else {
						assert.Empty(t, f.inQueue(i))
					}
				}
				assert.Zero(t, f.nodes.Keys("lock"))
			})
		})
	}
}

func TestDefaultFirstAttemptMayBarge(t *testing.T) {
	play(t, func(f field) {
		f.stranger(time.Minute, false, 0, 1, 2, 3, 4)
		m := f.NewMutex("lock")
		require.NoError(t, m.Lock())
		f.unlock(m)
	})
}

// The other process is told, and does not hear it until our next attempt tells it again.
func TestProcessThatGaveWayDoesNotBarge(t *testing.T) {
	play(t, func(f field) {
		m := f.held()
		other := f.calls(f.another(), patient()...)
		for _, n := range f.nodes {
			n.LoseMessages(1)
		}
		time.Sleep(10 * time.Millisecond)
		f.unlock(m)
		ours := f.calls(f.Redsync, patient()...)
		require.False(t, ours.isDone())
		assert.Zero(t, f.within(other, 0))
		assert.False(t, ours.isDone())
		f.atOnce(other.Mutex, ours)
		f.unlock(ours.Mutex)

		require.NoError(t, m.TryLock(), "nobody waits")
		f.unlock(m)
		f.nobodyWaits()
	})
}

func TestPriorityInOneProcess(t *testing.T) {
	play(t, func(f field) {
		m := f.another().NewMutex("lock")
		require.NoError(t, m.Lock())
		var calls []*call
		for _, class := range []int{0, 5, -5, 5, 0, 999, -999} {
			calls = append(calls, f.calls(f.Redsync, patient(redsync.WithPriority(class))...))
		}
		f.unlock(m)
		assert.Equal(t, []int{5, 1, 3, 0, 4, 2, 6}, f.inOrder(calls, time.Millisecond))
		f.nobodyWaits()
	})
}

func TestPriorityAcrossProcesses(t *testing.T) {
	inEachMode(t, func(f field, mode []redsync.Option) {
		m := f.held(mode...)
		var calls []*call
		for _, class := range []int{0, 5, -5, 5, 0, 999, -999} {
			calls = append(calls, f.calls(f.another(mode...), patient(redsync.WithPriority(class))...))
			time.Sleep(time.Millisecond)
		}
		f.unlock(m)
		assert.Equal(f, []int{5, 1, 3, 0, 4, 2, 6}, f.inOrder(calls, time.Millisecond))
		f.nobodyWaits()
	})
}

func TestWaiterThatReachesAMinorityIsInNoQueue(t *testing.T) {
	for name, fault := range map[string]func(f field){
		"dead":     func(f field) { f.kill(0, 1, 2) },
		"frozen":   func(f field) { f.freeze(0, 1, 2) },
		"refusing": func(f field) { f.refuse(0, 1, 2) },
	} {
		t.Run(name, func(t *testing.T) {
			inEachMode(t, func(f field, mode []redsync.Option) {
				b := f.another(mode...)
				f.held()
				fault(f)
				w := f.calls(b, redsync.WithTries(0), redsync.WithRetryDelay(time.Second))
				time.Sleep(450 * time.Millisecond) // the node deadline
				if name != "frozen" {              // else attempts take time, during which it is in queues
					for range 40 {
						require.False(f, w.isDone())
						assert.Empty(f, f.inQueue(3))
						assert.Empty(f, f.inQueue(4))
						time.Sleep(97 * time.Millisecond)
					}
				}
				w.cancel()
				<-w.done
				synctest.Wait()
				assert.Empty(f, f.inQueue(3))
				assert.Empty(f, f.inQueue(4))
				f.thaw(0, 1, 2)
			})
		})
	}
}

// refuse makes nodes answer scripts with errors.
func (f field) refuse(nodes ...int) {
	for _, i := range nodes {
		f.nodes[i].On("evalsha", 1<<20, embedded.Fault{Err: "LOADING Redis is loading the dataset in memory"})
	}
}

// keysLast looks at all keys every few milliseconds, until stop is called: each has a
// TTL.
func (f field) keysLast() (stop func()) {
	end := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			for i, n := range f.nodes {
				for _, key := range n.Keys() {
					if n.TTL(key) == 0 && n.Exists(key) {
						assert.Fail(f, "a key without a TTL", "%s on node %d", key, i)
					}
				}
			}
			select {
			case <-end:
				return
			case <-time.After(7 * time.Millisecond): //nolint:forbidigo // in a bubble
			}
		}
	})
	return func() { close(end); wg.Wait() }
}

func TestHalfOfTheWaitersGiveUpAndTheOthersAreServed(t *testing.T) {
	inEachMode(t, func(f field, mode []redsync.Option) {
		stop := f.keysLast()
		all := []*redsync.Redsync{f.another(mode...), f.another(mode...), f.With(mode...)}
		var wg sync.WaitGroup
		var mu sync.Mutex
		served, inside := 0, 0
		for i := range 120 {
			m := all[i%3].NewMutex("lock", patient()...)
			ctx, cancel := context.WithCancel(f.Context())
			if i%2 == 0 {
				time.AfterFunc(time.Duration(rand.IntN(500))*time.Millisecond, cancel) //nolint:gosec // no secret
			}
			wg.Go(func() {
				defer cancel()
				time.Sleep(time.Duration(rand.IntN(100)) * time.Millisecond) //nolint:gosec // no secret
				if err := m.LockContext(ctx); err != nil {
					assert.ErrorIs(f, err, context.Canceled)
					return
				}
				mu.Lock()
				served++
				inside++
				assert.Equal(f, 1, inside)
				mu.Unlock()
				time.Sleep(time.Duration(rand.IntN(10)) * time.Millisecond) //nolint:gosec // no secret
				mu.Lock()
				inside--
				mu.Unlock()
				_, err := m.Unlock()
				assert.NoError(f, err)
			})
		}
		start := time.Now()
		wg.Wait()
		assert.Less(f, time.Since(start), 3*time.Second)
		assert.GreaterOrEqual(f, served, 60)
		stop()
		f.nobodyWaits()
		assert.Zero(f, f.nodes.Keys("lock"))
	})
}
