package redsync_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/embedded"
	"github.com/seed14bd9ef4/redsync/internal/peek"
)

// This file shows how a lock is handed over within a process, and when it is not.

func TestHandOver(t *testing.T) {
	play(t, func(f field) {
		giver, m, until := f.handed(nil, nil)
		assert.NotEmpty(t, m.Value())
		for i, n := range f.nodes {
			value, err := n.Get("lock")
			require.NoError(t, err)
			assert.Equal(t, m.Value(), value, "node %d", i)
		}
		assert.Equal(t, until, m.Until())
		assert.Equal(t, time.Until(until), m.Remaining())
		require.NoError(t, m.Err())
		ok, err := m.Valid()
		require.NoError(t, err)
		assert.True(t, ok)

		assert.Zero(t, giver.Until())
		assert.Empty(t, giver.Value())
		for name, operation := range operations(giver) {
			ok, err := operation()
			assert.False(t, ok, name)
			require.ErrorIs(t, err, redsync.ErrNotHeld, name)
		}
		synctest.Wait()
		assert.Equal(t, 5, f.nodes.Keys("lock"))

		time.Sleep(time.Second)
		ok, err = m.Extend()
		require.NoError(t, err)
		assert.True(t, ok)
		assert.Equal(t, validity, time.Until(m.Until()))
		f.unlock(m.Mutex)
		time.Sleep(time.Second)
		assert.Zero(t, f.nodes.Keys("lock"))
		f.nobodyWaits()
	})
}

func TestHandOverTellsTheGiver(t *testing.T) {
	play(t, func(f field) {
		f.meet()
		giver := f.NewMutex("lock")
		require.NoError(t, giver.Lock())
		f.calls(f.Redsync, patient()...)
		before := f.traffic()
		f.unlock(giver)
		assert.Equal(t, before, f.traffic())
	})
}

func TestHandOverFromAWatchdogExtendsNoMore(t *testing.T) {
	play(t, func(f field) {
		_, m, until := f.handed([]redsync.Option{redsync.WithWatchdog()}, nil)
		before := f.traffic()
		time.Sleep(time.Until(until) + time.Second)
		assert.Equal(t, before, f.traffic())
		require.ErrorIs(t, m.Err(), redsync.ErrLockLost)
		assert.Zero(t, f.nodes.Keys("lock"))
	})
}

func TestHandOverToAWatchdogIsExtended(t *testing.T) {
	for name, giving := range map[string][]redsync.Option{"from none": nil, "from another": {redsync.WithWatchdog()}} {
		t.Run(name, func(t *testing.T) {
			play(t, func(f field) {
				_, m, _ := f.handed(giving, []redsync.Option{redsync.WithWatchdog()})
				before := f.traffic()
				time.Sleep(time.Minute)
				require.NoError(f, m.Err())
				assert.LessOrEqual(f, f.traffic()-before, 5*23, "the nodes are sent an extension every third of the expiry, and little else")
				f.unlocks(m.Mutex)
			})
		})
	}
}

// The giver's extension arrives while the receiver holds the lock, or after the receiver's Unlock.
func TestHandOverWithAnExtensionOnTheWay(t *testing.T) {
	for name, unlockFirst := range map[string]bool{"arrives before the receiver's Unlock": false, "arrives after it": true} {
		for _, options := range [][]redsync.Option{nil, {redsync.WithSetNXOnExtend()}} {
			t.Run(fmt.Sprint(name, len(options)), func(t *testing.T) {
				play(t, func(f field) {
					f.meet()
					giver := f.NewMutex("lock", options...)
					require.NoError(f, giver.Lock())
					m := f.calls(f.Redsync, patient()...)
					until := giver.Until()
					time.Sleep(time.Millisecond)
					for _, n := range f.nodes {
						n.On("evalsha", 1, embedded.Fault{Delay: 50 * time.Millisecond})
					}
					var wg sync.WaitGroup
					wg.Go(func() {
						ok, err := giver.Extend()
						assert.False(f, ok)
						assert.ErrorIs(f, err, redsync.ErrNotHeld)
					})
					synctest.Wait()
					f.atOnce(giver, m)
					assert.Equal(f, until, m.Until())
					if !unlockFirst {
						time.Sleep(60 * time.Millisecond)
						assert.Equal(f, until, m.Until())
						ok, err := m.Valid()
						require.NoError(f, err)
						assert.True(f, ok)
					}
					f.unlocks(m.Mutex)
					wg.Wait()
				})
			})
		}
	}
}

// The giver's SET is late on one node. The receiver's Unlock must leave no key there either.
func TestHandOverWithALateAcquire(t *testing.T) {
	for name, fault := range map[string]embedded.Fault{
		"late":                   {Delay: time.Second},
		"late, its reply lost":   {Delay: time.Second, LoseReply: true},
		"its reply lost":         {LoseReply: true},
		"lost":                   {LoseCommand: true},
		"after the node's error": {Delay: 300 * time.Millisecond, Err: "ERR"},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(f field) {
				f.meet()
				f.nodes[4].On("set", 1, fault)
				_, m, _ := f.handed(nil, nil)
				time.Sleep(5 * time.Millisecond)
				second := f.calls(f.Redsync, patient()...)
				f.atOnce(m.Mutex, second)
				time.Sleep(5 * time.Millisecond)
				f.unlock(second.Mutex)
				time.Sleep(1500 * time.Millisecond)
				assert.Zero(f, f.nodes.Keys("lock"))
				f.nobodyWaits()
			})
		})
	}
}

// The receiver's release knows what the replies to the giver prove.
func TestHandOverSharesWhatTheRepliesProve(t *testing.T) {
	play(t, func(f field) {
		f.meet()
		f.nodes[4].On("set", 1, embedded.Fault{Delay: 30 * time.Millisecond})
		_, m, _ := f.handed(nil, nil)
		time.Sleep(100 * time.Millisecond)
		before := f.traffic()
		f.unlocks(m.Mutex)
		assert.Equal(t, before+5, f.traffic(), "the nodes are sent one release each, and no repetition")
	})
}

// A chain of hand-overs ends at its time limit. The release at its end tells the process whether other processes wait.
// The next release lets them in.
func TestHandOverLetsOtherProcessesIn(t *testing.T) {
	for expiry, limit := range map[time.Duration]time.Duration{
		8 * time.Second:        20 * time.Millisecond,
		100 * time.Millisecond: 10 * time.Millisecond,
	} {
		t.Run(fmt.Sprint(expiry), func(t *testing.T) {
			play(t, func(f field) {
				f.meet()
				other := f.another()
				ctx, cancel := context.WithCancel(f.Context())
				var wg sync.WaitGroup
				var rounds atomic.Int64
				for range 10 {
					wg.Go(func() {
						m := f.NewMutex("lock", patient(redsync.WithExpiry(expiry), redsync.WithNodeTimeout(40*time.Millisecond))...)
						for ctx.Err() == nil {
							if m.LockContext(ctx) != nil {
								return
							}
							rounds.Add(1)
							time.Sleep(time.Millisecond)
							_, err := m.Unlock()
							assert.NoError(f, err)
						}
					})
				}
				time.Sleep(111 * time.Millisecond)
				for range 5 {
					before := rounds.Load()
					c := f.calls(other, patient()...)
					took := f.within(c, 2*limit+3*time.Millisecond)
					assert.GreaterOrEqual(f, rounds.Load()-before, took.Milliseconds()-2, "the lock was handed over about once per millisecond meanwhile")
					time.Sleep(2 * time.Millisecond)
					f.unlock(c.Mutex)
					time.Sleep(23 * time.Millisecond)
				}
				before, start := f.commands("set")+f.commands("evalsha"), time.Now()
				time.Sleep(100 * time.Millisecond)
				chains := 100*time.Millisecond/limit + 1
				assert.LessOrEqual(f, f.commands("set")+f.commands("evalsha")-before, int(chains)*10, "%v", time.Since(start))
				cancel()
				wg.Wait()
				time.Sleep(time.Second)
				f.nobodyWaits()
				assert.Zero(f, f.nodes.Keys("lock"))
			})
		})
	}
}

func TestNoHandOver(t *testing.T) {
	value := func() (string, error) { return fmt.Sprint(rand.Uint64()), nil } //nolint:gosec // no secret
	for name, c := range map[string]struct {
		giving, receiving redsync.Option
		after             time.Duration // from the acquire to Unlock
	}{
		"WithFair":                          {redsync.WithFair(), redsync.WithFair(), 0},
		"WithFair of the receiver":          {nil, redsync.WithFair(), 0},
		"WithMaxHold":                       {redsync.WithMaxHold(time.Hour), nil, 0},
		"WithMaxHold of both":               {redsync.WithMaxHold(time.Hour), redsync.WithMaxHold(time.Hour), 0},
		"WithMaxHold of the receiver":       {nil, redsync.WithMaxHold(time.Hour), 0},
		"WithValue":                         {redsync.WithValue("v"), nil, 0},
		"WithValue of the receiver":         {nil, redsync.WithValue("v"), 0},
		"WithGenValueFunc":                  {redsync.WithGenValueFunc(value), nil, 0},
		"WithGenValueFunc of the receiver":  {nil, redsync.WithGenValueFunc(value), 0},
		"WithHandOver(false)":               {redsync.WithHandOver(false), nil, 0},
		"WithHandOver(false), receiver":     {nil, redsync.WithHandOver(false), 0},
		"another expiry":                    {nil, redsync.WithExpiry(9 * time.Second), 0},
		"a shorter expiry":                  {nil, redsync.WithExpiry(7 * time.Second), 0},
		"another lock delay":                {nil, redsync.WithLockDelay(time.Second), 0},
		"another drift":                     {nil, redsync.WithDriftFactor(0.02), 0},
		"another owner":                     {redsync.WithOwner("a"), redsync.WithOwner("b"), 0},
		"an owner of the giver":             {redsync.WithOwner("a"), nil, 0},
		"an owner of the receiver":          {nil, redsync.WithOwner("a"), 0},
		"20 ms after the acquire":           {nil, nil, 20 * time.Millisecond},
		"a tenth of the expiry after":       {redsync.WithExpiry(100 * time.Millisecond), redsync.WithExpiry(100 * time.Millisecond), 10 * time.Millisecond},
		"a tenth of the validity after":     {redsync.WithExpiry(100 * time.Millisecond), redsync.WithExpiry(100 * time.Millisecond), 9800 * time.Microsecond},
		"much later, although it extended ": {redsync.WithWatchdog(), nil, 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(f field) {
				f.meet()
				giver := f.NewMutex("lock")
				if c.giving != nil {
					giver = f.NewMutex("lock", c.giving)
				}
				require.NoError(t, giver.Lock())
				value := peek.Value(giver)
				receiver := patient()
				if c.receiving != nil {
					receiver = patient(c.receiving)
				}
				m := f.calls(f.Redsync, receiver...)
				time.Sleep(c.after)
				before := f.commands("set", "evalsha")
				f.atOnce(giver, m)
				assert.NotEqual(t, value, m.Value())
				assert.Greater(t, f.traffic(), before)
				f.unlocks(m.Mutex)
			})
		})
	}
}

func TestHandOverWithinTheCap(t *testing.T) {
	for expiry, after := range map[time.Duration]time.Duration{
		8 * time.Second:        19 * time.Millisecond,
		100 * time.Millisecond: 9 * time.Millisecond,
	} {
		onKit(t, func(k kit) {
			k.meet()
			giver := k.NewMutex("lock", redsync.WithExpiry(expiry))
			require.NoError(t, giver.Lock())
			m := k.calls(k.Redsync, patient(redsync.WithExpiry(expiry))...)
			time.Sleep(after)
			value := peek.Value(giver)
			k.atOnce(giver, m)
			assert.Equal(t, value, peek.Value(m.Mutex))
			k.unlocks(m.Mutex)
		})
	}
}

// A lock that was granted late has less validity left than a fresh one, so it is not handed over.
func TestNoHandOverOfALockThatWasGrantedLate(t *testing.T) {
	play(t, func(f field) {
		f.meet()
		option := redsync.WithExpiry(150 * time.Millisecond)
		for _, n := range f.nodes {
			n.On("set", 1, embedded.Fault{Delay: 16 * time.Millisecond})
		}
		giver := f.NewMutex("lock", option)
		require.NoError(t, giver.Lock())
		value := peek.Value(giver)
		m := f.calls(f.Redsync, patient(option)...)
		f.atOnce(giver, m)
		assert.NotEqual(t, value, m.Value())
		f.unlocks(m.Mutex)
	})
}

func TestHandOverOnlyAmongThoseWhoWaitForTheSameName(t *testing.T) {
	onKit(t, func(k kit) {
		m := k.held()
		other := k.another().NewMutex("other")
		require.NoError(t, other.Lock())
		c := &call{done: make(chan struct{})}
		ctx, cancel := context.WithCancel(k.Context())
		go func() { c.err = k.NewMutex("other", patient()...).LockContext(ctx); close(c.done) }()
		assert.False(t, c.isDone())
		k.unlock(m)
		assert.Zero(t, k.keys("lock"))
		cancel()
		<-c.done
	})
}

// A waiter gives up at the moment of the hand-over. Whichever comes first, no key is left.
func TestHandOverToOneThatGivesUpAtTheSameMoment(t *testing.T) {
	onKit(t, func(k kit) {
		k.meet()
		both := map[bool]int{}
		for i := range 200 {
			giver := k.NewMutex("lock")
			require.NoError(t, giver.Lock())
			c := k.calls(k.Redsync, patient()...)
			next := k.calls(k.Redsync, patient()...)
			var wg sync.WaitGroup
			steps := []func(){c.cancel, func() { k.unlock(giver) }}
			wg.Go(steps[i%2])
			wg.Go(steps[1-i%2])
			wg.Wait()
			<-c.done
			both[c.err == nil]++
			if c.err == nil {
				k.unlock(c.Mutex)
			} else {
				require.ErrorIs(t, c.err, context.Canceled)
			}
			k.within(next, 0)
			k.unlock(next.Mutex)
			k.nothingLeft()
		}
		t.Log(both)
		k.nothingLeft()
	})
}

func TestHandOverWhileTheRedsyncCloses(t *testing.T) {
	for i := range 20 {
		onKit(t, func(k kit) {
			k.meet()
			giver := k.NewMutex("lock")
			require.NoError(t, giver.Lock())
			var calls []*call
			for range 5 {
				calls = append(calls, k.calls(k.Redsync, patient()...))
			}
			var wg sync.WaitGroup
			steps := []func(){func() { _, _ = giver.Unlock() }, func() { assert.NoError(k, k.Close(k.Context())) }}
			wg.Go(steps[i%2])
			wg.Go(steps[1-i%2])
			wg.Wait()
			for _, c := range calls {
				<-c.done
				if c.err != nil {
					require.ErrorIs(k, c.err, redsync.ErrClosed)
				}
				assert.Zero(k, c.Until())
			}
			k.nothingLeft()
		})
	}
}

func TestFrozenNodeDelaysNoHandOver(t *testing.T) {
	for _, expiry := range frozenExpiries {
		t.Run(fmt.Sprint(expiry), func(t *testing.T) {
			play(t, func(f field) {
				rs := f.With(redsync.WithExpiry(expiry))
				f.meet()
				f.freeze(0, 1, 2) // the process cannot subscribe on a quorum
				f.thaw(1, 2)
				for _, n := range f.nodes {
					n.On("subscribe", 1, embedded.Fault{Delay: 4 * time.Second})
				}
				m := rs.NewMutex("lock")
				require.NoError(t, m.Lock())
				value := peek.Value(m)
				w := f.calls(rs, patient()...)
				time.Sleep(time.Millisecond)
				f.atOnce(m, w)
				assert.Equal(t, value, peek.Value(w.Mutex))
				f.unlock(w.Mutex)
				f.thaw(0)
			})
		})
	}
}

// An errHook is a context whose Err runs a function first. That simulates a goroutine that is preempted there.
type errHook struct {
	context.Context //nolint:containedctx // it is one
	hook            func()
}

func (c errHook) Err() error {
	c.hook()
	return c.Context.Err()
}

// A waiter is handed the lock right after its retry delay has ended. It has already left its line by that time, and
// must not miss the lock.
func TestWaiterIsHandedTheLockAtTheEndOfItsRetryDelay(t *testing.T) {
	const delay = 10 * time.Millisecond
	for name, option := range map[string]redsync.Option{
		"WithRetryDelay":     redsync.WithRetryDelay(delay),
		"WithRetryDelayFunc": redsync.WithRetryDelayFunc(func(int) time.Duration { return delay }),
	} {
		t.Run(name, func(t *testing.T) {
			onKit(t, func(k kit) {
				k.meet()
				giver := k.NewMutex("lock")
				require.NoError(k, giver.Lock())
				m := k.NewMutex("lock", redsync.WithTries(0), option)
				start, unlocked := time.Now(), false
				ctx := errHook{k.Context(), func() {
					if time.Since(start) >= delay && !unlocked {
						unlocked = true
						k.unlock(giver)
					}
				}}
				require.NoError(k, m.LockContext(ctx))
				require.True(k, unlocked)
				k.unlock(m)
			})
		})
	}
}

// Two drift factors may differ so little that all times come to the same. Then the lock is handed over.
func TestHandOverBetweenDriftFactorsThatComeToTheSame(t *testing.T) {
	play(t, func(f field) {
		giver, receiver := redsync.WithDriftFactor(0.01), redsync.WithDriftFactor(0.01-1e-12)
		_, m, until := f.handed([]redsync.Option{giver}, []redsync.Option{receiver})
		assert.Equal(t, until, m.Until())
		f.unlocks(m.Mutex)
	})
}
