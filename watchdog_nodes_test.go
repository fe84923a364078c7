package redsync_test

import (
	"context"
	"math"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/embedded"
	"github.com/seed14bd9ef4/redsync/internal/realredis"
	"github.com/seed14bd9ef4/redsync/pool"
)

// Locks that extend themselves on whole sets of nodes, their end, and how one learns of
// it, from outside.

// open reports whether c has not been closed.
func open(c <-chan struct{}) bool {
	synctest.Wait()
	select {
	case <-c:
		return false
	default:
		return true
	}
}

func (f field) thaw(nodes ...int) {
	for _, i := range nodes {
		f.nodes[i].Thaw()
	}
}

func (f field) kill(nodes ...int) {
	for _, i := range nodes {
		f.nodes[i].Kill()
	}
}

// restart brings nodes back with their data.
func (f field) restart(nodes ...int) {
	for _, i := range nodes {
		f.nodes[i].Restart(false)
	}
}

// unlocks unlocks m, which holds, and looks that no key is left.
func (f field) unlocks(m *redsync.Mutex) {
	f.Helper()
	ok, err := m.Unlock()
	require.NoError(f, err)
	assert.True(f, ok)
	time.Sleep(3 * time.Second)
	assert.Zero(f, f.nodes.Keys("lock"))
}

const drift = 82 * time.Millisecond // of the default expiry, 8 s

func TestWatchdogUnlockedWithAnExtensionOnTheWayLeavesNoKey(t *testing.T) {
	for name, healing := range map[string][]redsync.Option{"healing": {redsync.WithSetNXOnExtend()}, "not healing": nil} {
		t.Run(name, func(t *testing.T) {
			play(t, func(f field) {
				m := f.held(append(healing, redsync.WithWatchdog())...)
				f.freeze(0, 1, 2)
				time.Sleep(3 * time.Second)
				f.lose(0, 1, 2) // a healing extension would set them
				_, err := m.Unlock()
				require.Error(t, err)
				f.thaw(0, 1, 2)
				for range 100 {
					time.Sleep(100 * time.Millisecond)
					assert.Zero(t, f.nodes.Keys("lock"))
				}
			})
		})
	}
}

func TestWatchdogUnlockedWithANoScriptReplyOnTheWayLeavesNoKey(t *testing.T) {
	play(t, func(f field) {
		m := f.held(redsync.WithSetNXOnExtend(), redsync.WithWatchdog())
		for _, n := range f.nodes {
			n.On("evalsha", 1, embedded.Fault{Delay: 100 * time.Millisecond, Err: "NOSCRIPT No matching script. Please use EVAL."})
		}
		time.Sleep(8*time.Second/3 + 50*time.Millisecond)
		f.lose(0, 1, 2, 3, 4)
		_, err := m.Unlock()
		require.ErrorIs(t, err, redsync.ErrLockAlreadyExpired)
		time.Sleep(time.Minute)
		assert.Zero(t, f.commands("eval"))
		assert.Zero(t, f.nodes.Keys("lock"))
	})
}

// What a watched lock survives.

func TestWatchdogSurvives(t *testing.T) {
	for name, c := range map[string]struct{ begin, end func(f field) }{
		"three nodes dead for 4 s": {
			func(f field) { f.kill(0, 2, 4) },
			func(f field) { f.restart(0, 2, 4) },
		},
		"three nodes frozen for 4 s": {
			func(f field) { f.freeze(0, 2, 4) },
			func(f field) { f.thaw(0, 2, 4) },
		},
		"all nodes frozen for 4 s": {
			func(f field) { f.freeze(0, 1, 2, 3, 4) },
			func(f field) { f.thaw(0, 1, 2, 3, 4) },
		},
		"two dead, one frozen": {
			func(f field) { f.kill(0, 2); f.freeze(4) },
			func(f field) { f.restart(0, 2) },
		},
		"three nodes lose the next command": {
			func(f field) {
				for _, n := range f.nodes[:3] {
					n.On("evalsha", 1, embedded.Fault{LoseCommand: true})
				}
			},
			func(field) {},
		},
		"all nodes lose a few replies": {
			func(f field) {
				for _, n := range f.nodes {
					n.On("evalsha", 3, embedded.Fault{LoseReply: true})
				}
			},
			func(field) {},
		},
		"nodes that need a second": {
			func(f field) {
				for _, n := range f.nodes {
					n.On("evalsha", 3, embedded.Fault{Delay: time.Second})
				}
			},
			func(field) {},
		},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(f field) {
				m := f.held(redsync.WithWatchdog())
				lost, until := m.Lost(), m.Until()
				time.Sleep(2 * time.Second)
				c.begin(f)
				time.Sleep(4 * time.Second)
				c.end(f)
				time.Sleep(time.Until(until))
				assert.True(t, open(lost))
				assert.Greater(t, m.Until(), until.Add(2*time.Second))
				time.Sleep(time.Minute)
				assert.True(t, open(lost))
				require.NoError(t, m.Err())
				f.thaw(0, 1, 2, 3, 4)
				f.unlocks(m)
			})
		})
	}
}

func TestWatchdogHealsNodesThatRestartEmpty(t *testing.T) {
	play(t, func(f field) {
		m := f.held(redsync.WithSetNXOnExtend(), redsync.WithWatchdog(), redsync.WithExpiry(9*time.Second))
		lost := m.Lost()
		for _, i := range []int{1, 3, 2, 0, 4} { // all of them, in the end
			time.Sleep(time.Second)
			f.nodes[i].Kill()
			f.nodes[i].Restart(true)
			require.Equal(t, 4, f.nodes.Keys("lock"))
			// The next third meets the connection that is dead, the one after
			// that a new one.
			time.Sleep(5 * time.Second)
			require.Equal(t, 5, f.nodes.Keys("lock"))
		}
		assert.True(t, open(lost))
		f.unlocks(m)
		time.Sleep(time.Minute)
		assert.Zero(t, f.nodes.Keys("lock"))
	})
}

func TestWatchdogHealsAMajorityByExtendingTwice(t *testing.T) {
	play(t, func(f field) {
		m := f.held(redsync.WithSetNXOnExtend(), redsync.WithWatchdog(), redsync.WithExpiry(9*time.Second))
		until := m.Until()
		f.lose(0, 1, 2)
		time.Sleep(3 * time.Second)
		assert.Equal(t, until, m.Until(), "what was set again does not count")
		time.Sleep(time.Second)
		assert.Greater(t, m.Until(), until)
		f.unlocks(m)
	})
}

func TestWatchdogHealsNothingAfterALoss(t *testing.T) {
	play(t, func(f field) {
		m := f.held(redsync.WithSetNXOnExtend(), redsync.WithWatchdog())
		for _, n := range f.nodes[:3] {
			require.NoError(t, n.Set("lock", "another"))
		}
		<-m.Lost()
		f.lose(0, 1, 2, 3, 4)
		for range 100 {
			time.Sleep(100 * time.Millisecond)
			assert.Zero(t, f.nodes.Keys("lock"))
		}
	})
}

func TestWatchdogHealsNothingAfterUntil(t *testing.T) {
	play(t, func(f field) {
		m := f.held(redsync.WithSetNXOnExtend(), redsync.WithWatchdog())
		f.kill(0, 1, 2)
		<-m.Lost()
		f.lose(0, 1, 2, 3, 4)
		f.restart(0, 1, 2)
		time.Sleep(time.Minute)
		assert.Zero(t, f.nodes.Keys("lock"))
	})
}

// Lost and Err.

// A wire is a connection that can be cut where nobody sees it: what is written
// vanishes.
type wire struct {
	net.Conn
	hole *atomic.Bool
}

func (w wire) Write(p []byte) (int, error) {
	if w.hole.Load() {
		return len(p), nil
	}
	return w.Conn.Write(p)
}

// partitioned is a process whose connections go into a hole on request.
func partitioned(nodes embedded.Nodes, hole *atomic.Bool) *redsync.Redsync {
	var pools []pool.Pool
	for _, n := range nodes {
		pools = append(pools, pool.New(redis.NewClient(&redis.Options{
			Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
				conn, err := n.Dial(ctx, network, addr)
				return wire{conn, hole}, err
			},
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		})))
	}
	return redsync.New(pools...)
}

// waiting tries every 100 ms at first and every millisecond from then on.
func waiting(then time.Time) redsync.Option {
	return redsync.WithRetryDelayFunc(func(int) time.Duration {
		if time.Now().Before(then) {
			return 100 * time.Millisecond
		}
		return time.Millisecond
	})
}

// The holder must know before anybody else can have the lock: by the drift, and
// by what is between its start and the nodes' execution of its last command.
func TestLostIsClosedAtUntilBeforeAnotherAcquires(t *testing.T) {
	var hole *atomic.Bool
	for name, fault := range map[string]func(f field){
		"a majority frozen": func(f field) {
			f.freeze(0, 1, 2)
			time.AfterFunc(9*time.Second, func() { f.thaw(0, 1, 2) })
		},
		"a majority dead": func(f field) {
			f.kill(0, 1, 2)
			time.AfterFunc(9*time.Second, func() { f.restart(0, 1, 2) })
		},
		"every connection black-holed": func(field) { hole.Store(true) },
	} {
		for _, watched := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				play(t, func(f field) {
					hole = &atomic.Bool{}
					var options []redsync.Option
					if watched {
						options = append(options, redsync.WithWatchdog())
					}
					a := partitioned(f.nodes, hole)
					m := a.NewMutex("lock", options...)
					start := time.Now()
					require.NoError(t, m.Lock())
					lost, until := m.Lost(), m.Until()
					require.Equal(t, 8*time.Second-drift, until.Sub(start))
					time.Sleep(time.Second)
					fault(f)
					other := f.NewMutex("lock", redsync.WithTries(0), waiting(start.Add(7900*time.Millisecond)))
					var wg sync.WaitGroup
					var acquired time.Duration
					wg.Go(func() {
						assert.NoError(t, other.Lock())
						acquired = time.Since(start)
					})
					<-lost
					assert.Equal(t, 8*time.Second-drift, time.Since(start), "exactly at Until")
					assert.Zero(t, m.Remaining())
					require.ErrorIs(t, m.Err(), redsync.ErrLockLost)
					require.ErrorIs(t, m.Err(), redsync.ErrLockAlreadyExpired)
					require.NotErrorIs(t, m.Err(), redsync.ErrMaxHold)
					wg.Wait()
					assert.GreaterOrEqual(t, acquired, 8*time.Second, "the drift later at the earliest")
					if name == "every connection black-holed" {
						assert.Less(t, acquired, 8*time.Second+2*time.Millisecond)
					}
					_ = a.Close(f.Context())
				})
			})
		}
	}
}

func TestLostAtOnceWhenAnExtensionOfTheWatchdogProvesTheLoss(t *testing.T) {
	for _, healing := range []bool{false, true} {
		play(t, func(f field) {
			options := []redsync.Option{redsync.WithWatchdog(), redsync.WithExpiry(9 * time.Second)}
			if healing {
				options = append(options, redsync.WithSetNXOnExtend())
			}
			m := f.held(options...)
			start := m.Until().Add(92*time.Millisecond - 9*time.Second)
			lost := m.Lost()
			for _, n := range f.nodes[1:4] {
				require.NoError(t, n.Set("lock", "another"))
			}
			<-lost
			assert.Equal(t, 3*time.Second, time.Since(start), "at the next third")
			require.ErrorIs(t, m.Err(), redsync.ErrLockLost)
			require.ErrorIs(t, m.Err(), redsync.ErrLockAlreadyExpired)
			var taken *redsync.ErrTaken
			require.ErrorAs(t, m.Err(), &taken)
			assert.Equal(t, []int{1, 2, 3}, taken.Nodes)
			assert.Zero(t, m.Until())
			before := f.traffic()
			_, err := m.Extend()
			require.ErrorIs(t, err, redsync.ErrLockLost)
			time.Sleep(time.Minute)
			assert.Equal(t, before, f.traffic())
			_, err = m.Unlock()
			require.ErrorIs(t, err, redsync.ErrLockLost)
		})
	}
}

func TestLostAtOnceWhenKeysAreGone(t *testing.T) {
	play(t, func(f field) {
		m := f.held(redsync.WithWatchdog(), redsync.WithExpiry(9*time.Second))
		start := m.Until().Add(92*time.Millisecond - 9*time.Second)
		lost := m.Lost()
		time.Sleep(4 * time.Second)
		f.lose(0, 2, 4)
		<-lost
		assert.Equal(t, 6*time.Second, time.Since(start))
		require.ErrorIs(t, m.Err(), redsync.ErrLockLost)
		require.ErrorIs(t, m.Err(), redsync.ErrLockAlreadyExpired)
		var taken *redsync.ErrTaken
		require.NotErrorAs(t, m.Err(), &taken)
	})
}

func TestLostAtOnceWhenACallProvesTheLoss(t *testing.T) {
	for _, name := range []string{"Extend", "Valid"} {
		play(t, func(f field) {
			m := f.held()
			lost := m.Lost()
			f.lose(0, 1, 2)
			require.True(t, open(lost))
			_, err := operations(m)[name]()
			require.ErrorIs(t, err, redsync.ErrLockLost)
			assert.False(t, open(lost))
			assert.False(t, open(m.Lost()))
			require.ErrorIs(t, m.Err(), redsync.ErrLockLost)
		})
	}
}

func TestLostBelongsToOneHold(t *testing.T) {
	play(t, func(f field) {
		m := f.NewMutex("lock")
		assert.Nil(t, m.Lost())
		require.ErrorIs(t, m.Err(), redsync.ErrNotHeld)
		require.NoError(t, m.Lock())
		first := m.Lost()
		assert.Equal(t, first, m.Lost())
		require.NoError(t, m.Err())
		_, err := m.Unlock()
		require.NoError(t, err)
		assert.Nil(t, m.Lost())
		require.ErrorIs(t, m.Err(), redsync.ErrNotHeld)
		require.NoError(t, m.Lock())
		second := m.Lost()
		assert.NotEqual(t, first, second)
		<-second
		assert.True(t, open(first), "a clean Unlock does not close it")
		require.NoError(t, m.Lock())
		assert.True(t, open(m.Lost()))
		require.NoError(t, m.Err())
		_, err = m.Unlock()
		require.NoError(t, err)
		time.Sleep(time.Minute)
		assert.True(t, open(first))
	})
}

func TestLostIsClosedByClose(t *testing.T) {
	for _, asked := range []bool{false, true} {
		play(t, func(f field) {
			m := f.held(redsync.WithWatchdog())
			var lost <-chan struct{}
			if asked {
				lost = m.Lost()
			}
			require.NoError(t, f.Close(f.Context()))
			if !asked {
				lost = m.Lost()
			}
			assert.False(t, open(lost))
			require.ErrorIs(t, m.Err(), redsync.ErrLockLost)
			require.ErrorIs(t, m.Err(), redsync.ErrClosed)
			assert.Zero(t, f.nodes.Keys("lock"))
		})
	}
}

// WithMaxHold.

func TestMaxHoldEndsAWatchedLockExactly(t *testing.T) {
	play(t, func(f field) {
		limit := 20 * time.Second
		m := f.NewMutex("lock", redsync.WithMaxHold(limit), redsync.WithWatchdog())
		start := time.Now()
		require.NoError(t, m.Lock())
		lost := m.Lost()
		for range 19 {
			time.Sleep(time.Second)
			require.NoError(t, m.Err())
			assert.LessOrEqual(t, m.Until().Sub(start), limit)
		}
		assert.Equal(t, limit, m.Until().Sub(start), "the last extension is shortened, not left out")
		before := f.traffic()
		ok, err := m.Extend()
		assert.False(t, ok)
		require.ErrorIs(t, err, redsync.ErrExtendFailed)
		require.ErrorIs(t, err, redsync.ErrMaxHold)
		require.NotErrorIs(t, err, redsync.ErrLockLost)
		require.NoError(t, m.Err(), "held still")
		assert.Equal(t, before, f.traffic(), "there is nothing to send")
		<-lost
		assert.Equal(t, limit, time.Since(start))
		require.ErrorIs(t, m.Err(), redsync.ErrLockLost)
		require.ErrorIs(t, m.Err(), redsync.ErrMaxHold)
		require.ErrorIs(t, m.Err(), redsync.ErrLockAlreadyExpired)
		_, err = m.Extend()
		require.ErrorIs(t, err, redsync.ErrLockAlreadyExpired)
		require.ErrorIs(t, err, redsync.ErrMaxHold)
		time.Sleep(drift + time.Millisecond)
		assert.Zero(t, f.nodes.Keys("lock"), "the drift later the keys have run out")
		assert.Equal(t, before, f.traffic())
	})
}

func TestMaxHoldBoundsExtendsByHand(t *testing.T) {
	play(t, func(f field) {
		limit := 10 * time.Second
		m := f.NewMutex("lock", redsync.WithMaxHold(limit))
		start := time.Now()
		require.NoError(t, m.Lock())
		for range 9 {
			time.Sleep(time.Second)
			held := time.Since(start)
			ok, err := m.Extend()
			if held <= 3*time.Second {
				require.NoError(t, err)
			}
			assert.Equal(t, err == nil, ok)
			want := min(held+8*time.Second-drift, limit)
			assert.Equal(t, want, m.Until().Sub(start))
			require.NoError(t, m.Err())
		}
		<-m.Lost()
		assert.Equal(t, limit, time.Since(start))
		require.ErrorIs(t, m.Err(), redsync.ErrMaxHold)
	})
}

func TestMaxHoldStartsAnewWithEachLock(t *testing.T) {
	play(t, func(f field) {
		m := f.NewMutex("lock", redsync.WithMaxHold(3*time.Second), redsync.WithWatchdog())
		for range 3 {
			start := time.Now()
			require.NoError(t, m.Lock())
			assert.Equal(t, 3*time.Second, m.Until().Sub(start))
			<-m.Lost()
			assert.Equal(t, 3*time.Second, time.Since(start))
			require.ErrorIs(t, m.Err(), redsync.ErrMaxHold)
		}
	})
}

func TestMaxHoldShorterThanTheExpiryShortensTheKeys(t *testing.T) {
	play(t, func(f field) {
		m := f.NewMutex("lock", redsync.WithMaxHold(time.Second), redsync.WithLockDelay(time.Minute))
		start := time.Now()
		require.NoError(t, m.Lock())
		synctest.Wait()
		assert.Equal(t, time.Second, m.Until().Sub(start))
		for _, n := range f.nodes {
			assert.Equal(t, time.Minute+time.Second+drift, n.TTL("lock"))
		}
	})
}

func TestMaxHoldThatIsNotReachedIsNoCause(t *testing.T) {
	play(t, func(f field) {
		m := f.held(redsync.WithMaxHold(time.Hour))
		<-m.Lost()
		require.NotErrorIs(t, m.Err(), redsync.ErrMaxHold)
		require.ErrorIs(t, m.Err(), redsync.ErrLockLost)
	})
}

func TestMaxHoldCutsAnAdoptedLock(t *testing.T) {
	for _, limit := range []time.Duration{5 * time.Second, 8*time.Second - drift} {
		play(t, func(f field) {
			m := f.NewMutex("lock", redsync.WithValue(f.held().Value()), redsync.WithMaxHold(limit))
			start := time.Now()
			ok, err := m.Extend()
			require.NoError(t, err)
			assert.True(t, ok)
			assert.Equal(t, limit, m.Until().Sub(start))
			<-m.Lost()
			assert.Equal(t, limit, time.Since(start))
			require.ErrorIs(t, m.Err(), redsync.ErrMaxHold)
		})
	}
}

func TestMaxHoldIsTheCauseThoughAnExtendLingers(t *testing.T) {
	play(t, func(f field) {
		m := f.NewMutex("lock", redsync.WithMaxHold(8*time.Second), redsync.WithFailFast(false))
		start := time.Now()
		require.NoError(t, m.Lock())
		f.freeze(4)
		time.Sleep(7800 * time.Millisecond)
		ok, err := m.Extend() // confirmed at once; waits for the frozen node
		assert.Equal(t, 8*time.Second, time.Since(start))
		assert.False(t, ok)
		for _, err := range []error{err, m.Err()} {
			require.ErrorIs(t, err, redsync.ErrLockLost)
			require.ErrorIs(t, err, redsync.ErrLockAlreadyExpired)
			require.ErrorIs(t, err, redsync.ErrMaxHold)
		}
	})
}

// WithLockDelay.

func TestLockDelayKeepsOthersOutAfterAHolderThatVanished(t *testing.T) {
	for _, extended := range []bool{false, true} {
		play(t, func(f field) {
			gone := process(f.nodes)
			m := gone.NewMutex("lock", redsync.WithLockDelay(5*time.Second-time.Microsecond), redsync.WithSetNXOnExtend())
			start := time.Now()
			require.NoError(t, m.Lock())
			if extended {
				time.Sleep(6 * time.Second)
				start = time.Now()
				_, err := m.Extend()
				require.NoError(t, err)
			}
			assert.Equal(t, 8*time.Second-drift, m.Until().Sub(start), "the holder goes by the expiry")
			<-m.Lost()
			assert.Equal(t, 8*time.Second-drift, time.Since(start))
			other := f.NewMutex("lock", redsync.WithTries(0), waiting(start.Add(12900*time.Millisecond)))
			require.NoError(t, other.Lock())
			assert.GreaterOrEqual(t, time.Since(start), 13*time.Second)
			assert.LessOrEqual(t, time.Since(start), 13*time.Second+2*time.Millisecond)
			_ = gone.Close(f.Context())
		})
	}
}

func TestLockDelayOutlastsTheNextLockOfTheHolder(t *testing.T) {
	play(t, func(f field) {
		m := f.NewMutex("lock", redsync.WithLockDelay(5*time.Second))
		start := time.Now()
		require.NoError(t, m.Lock())
		<-m.Lost()
		var taken *redsync.ErrTaken
		require.ErrorAs(t, m.TryLock(), &taken)
		other := process(f.nodes).NewMutex("lock")
		time.Sleep(time.Until(start.Add(13*time.Second - time.Millisecond)))
		require.Equal(t, 5, f.nodes.Keys("lock"))
		require.ErrorAs(t, other.TryLock(), &taken)
		time.Sleep(time.Millisecond)
		require.NoError(t, other.TryLock())
	})
}

func TestWithoutLockDelayTheHolderLocksAgainAtOnce(t *testing.T) {
	play(t, func(f field) {
		m := f.held()
		<-m.Lost()
		require.Equal(t, 5, f.nodes.Keys("lock"), "the drift has not passed")
		require.NoError(t, m.TryLock())
	})
}

func TestLockDelayIsNoMatterAfterUnlock(t *testing.T) {
	play(t, func(f field) {
		m := f.held(redsync.WithLockDelay(time.Hour))
		_, err := m.Unlock()
		require.NoError(t, err)
		time.Sleep(time.Millisecond)
		require.NoError(t, process(f.nodes).NewMutex("lock").TryLock())
	})
}

// A node that was away while the lock was released keeps its key for the delay as
// well: the release goes on for so long.
func TestLockDelayIsReleasedToTheEnd(t *testing.T) {
	play(t, func(f field) {
		m := f.held(redsync.WithLockDelay(time.Minute))
		f.kill(0)
		_, err := m.Unlock()
		require.NoError(t, err)
		time.Sleep(50 * time.Second)
		require.Equal(t, 1, f.nodes.Keys("lock"))
		f.restart(0)
		time.Sleep(3 * time.Second)
		assert.Zero(t, f.nodes.Keys("lock"))
	})
}

func TestHoldOptionsOutOfRange(t *testing.T) {
	for want, options := range map[string][]redsync.Option{
		"WithMaxHold(0s) is out of range: more than 0":   {redsync.WithMaxHold(0)},
		"WithMaxHold(-1s) is out of range: more than 0":  {redsync.WithMaxHold(-time.Second)},
		"WithLockDelay(-1ns) is out of range: 0 or more": {redsync.WithLockDelay(-1)},
		"WithLockDelay(2562047h47m16.854775807s) is out": {redsync.WithLockDelay(math.MaxInt64)},
		"WithLockDelay(2562047h47m9.8":                   {redsync.WithLockDelay(math.MaxInt64 - 7*time.Second)},
	} {
		play(t, func(f field) {
			refuses(t, f.NewMutex("lock", options...), want)
			err := f.Do(f.Context(), "lock", func(context.Context) error { panic("called") }, options...)
			require.ErrorContains(t, err, want)
			assert.Zero(t, f.traffic())
		})
	}
	play(t, func(f field) {
		f.unlocks(f.held(redsync.WithMaxHold(1), redsync.WithMaxHold(math.MaxInt64), redsync.WithWatchdog()))
	})
}

// Many goroutines, with faults.

func TestWatchdogOfAMutexUsedByManyGoroutinesAtOnce(t *testing.T) {
	play(t, func(f field) {
		m := f.NewMutex("lock", redsync.WithWatchdog(), redsync.WithSetNXOnExtend(), redsync.WithExpiry(2*time.Second),
			redsync.WithMaxHold(20*time.Second))
		ctx, cancel := context.WithTimeout(f.Context(), 90*time.Second)
		defer cancel()
		var wg sync.WaitGroup
		var locked atomic.Int32
		use := func(every time.Duration, do func()) {
			for range 2 {
				wg.Go(func() {
					for ctx.Err() == nil {
						do()
						time.Sleep(every + rand.N(every)) //nolint:gosec // a delay is no secret
					}
				})
			}
		}
		use(300*time.Millisecond, func() {
			if m.LockContext(ctx) == nil {
				locked.Add(1)
			}
		})
		use(2*time.Second, func() { _, _ = m.Unlock() })
		use(200*time.Millisecond, func() { _, _ = m.ExtendContext(ctx) })
		use(200*time.Millisecond, func() { _, _ = m.ValidContext(ctx) })
		use(100*time.Millisecond, func() { _, _, _ = m.Until(), m.Remaining(), m.Value() })
		use(time.Second, func() {
			if lost := m.Lost(); lost != nil {
				select {
				case <-lost:
					assert.Error(t, m.Err(), "unless it is locked anew")
				case <-time.After(time.Second): //nolint:forbidigo // in a bubble
				}
			}
		})
		wg.Go(func() {
			for ctx.Err() == nil {
				i, k := rand.IntN(5), rand.IntN(5) //nolint:gosec // faults are no secret
				f.freeze(i)
				f.kill(k)
				time.Sleep(time.Second)
				f.lose(i, k)
				f.thaw(i, k)
				f.restart(k)
				time.Sleep(time.Second)
			}
		})
		wg.Wait()
		assert.Greater(t, locked.Load(), int32(20))
		_, _ = m.Unlock()
		time.Sleep(5 * time.Second)
		assert.Zero(t, f.nodes.Keys("lock"))
		require.ErrorIs(t, m.Err(), redsync.ErrNotHeld)
	})
}

// Real servers.

func TestWatchdogOnRealServersSurvivesAMinority(t *testing.T) {
	t.Parallel()
	servers := realredis.Start(t, 5)
	rs := realProcess(servers)
	m := rs.NewMutex("lock", redsync.WithExpiry(6*time.Second), redsync.WithNodeTimeout(2500*time.Millisecond), redsync.WithWatchdog())
	require.NoError(t, m.Lock())
	lost := m.Lost()
	servers[0].Freeze()
	defer servers[0].Thaw()
	servers[4].Kill()
	select {
	case <-lost:
		t.Error(m.Err())
	case <-time.After(13 * time.Second): //nolint:forbidigo // real servers
	}
	require.NoError(t, m.Err())
	ok, err := m.Valid()
	require.NoError(t, err)
	assert.True(t, ok)
	ok, err = m.Unlock()
	require.NoError(t, err)
	assert.True(t, ok)
	servers[0].Thaw()
	_ = rs.Close(t.Context()) // one server is gone
}

func TestLostOnRealServersBeforeAnotherAcquires(t *testing.T) {
	t.Parallel()
	servers := realredis.Start(t, 5)
	rs, others := realProcess(servers), realProcess(servers)
	m := rs.NewMutex("lock", redsync.WithExpiry(2*time.Second), redsync.WithWatchdog())
	require.NoError(t, m.Lock())
	for _, s := range servers {
		s.Freeze()
		defer s.Thaw()
	}
	lost, until := m.Lost(), m.Until()
	select {
	case <-lost:
	case <-time.After(time.Minute): //nolint:forbidigo // real servers
		t.Fatal("not closed")
	}
	known := time.Now()
	assert.GreaterOrEqual(t, known, until)
	assert.Less(t, known.Sub(until), 10*time.Second, "a timer's lateness")
	require.ErrorIs(t, m.Err(), redsync.ErrLockLost)
	for _, s := range servers {
		s.Thaw()
	}
	other := others.NewMutex("lock", redsync.WithTries(0))
	require.NoError(t, other.Lock())
	assert.Greater(t, other.Until().Add(-8*time.Second+drift), known)
	_, err := other.Unlock()
	require.NoError(t, err)
	_ = rs.Close(t.Context()) // the servers may be busy with what they missed
	_ = others.Close(t.Context())
}
