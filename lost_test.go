package redsync_test

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
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

// This file tests how a holder learns that its lock is over: Lost and Err.

// A wire is a connection that can be cut without an error: what is written vanishes.
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

// partitioned returns a process whose connections lose everything that is written while hole is set.
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

// The holder must learn of the loss before anybody else can have the lock. It learns earlier by the drift, and by the
// time between the start of its last command and the nodes' execution of that command.
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
					require.Equal(t, validity, until.Sub(start))
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
					assert.Equal(t, validity, time.Since(start), "Lost is closed exactly at Until")
					assert.Zero(t, m.Remaining())
					require.ErrorIs(t, m.Err(), redsync.ErrLockLost)
					require.ErrorIs(t, m.Err(), redsync.ErrLockAlreadyExpired)
					require.NotErrorIs(t, m.Err(), redsync.ErrMaxHold)
					wg.Wait()
					assert.GreaterOrEqual(t, acquired, 8*time.Second, "another process acquires the lock no earlier than the drift after Until")
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
			assert.Equal(t, 3*time.Second, time.Since(start), "the watchdog finds the loss at the next third of the expiry")
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
	onKit(t, func(k kit) {
		m := k.held(redsync.WithWatchdog(), redsync.WithExpiry(9*time.Second))
		start := m.Until().Add(92*time.Millisecond - 9*time.Second)
		lost := m.Lost()
		time.Sleep(4 * time.Second)
		k.lose(0, 2, 4)
		<-lost
		assert.Equal(t, 6*time.Second, time.Since(start))
		require.ErrorIs(t, m.Err(), redsync.ErrLockLost)
		require.ErrorIs(t, m.Err(), redsync.ErrLockAlreadyExpired)
		var taken *redsync.ErrTaken
		require.NotErrorAs(t, m.Err(), &taken)
		_, _ = m.Unlock()
	})
}

func TestLostAtOnceWhenACallProvesTheLoss(t *testing.T) {
	for _, name := range []string{"Extend", "Valid"} {
		onKit(t, func(k kit) {
			m := k.held()
			lost := m.Lost()
			k.lose(0, 1, 2)
			require.True(t, open(lost))
			_, err := operations(m)[name]()
			require.ErrorIs(t, err, redsync.ErrLockLost)
			assert.False(t, open(lost))
			assert.False(t, open(m.Lost()))
			require.ErrorIs(t, m.Err(), redsync.ErrLockLost)
			_, _ = m.Unlock()
		})
	}
}

func TestLostBelongsToOneHold(t *testing.T) {
	onKit(t, func(k kit) {
		m := k.NewMutex("lock")
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
		onKit(t, func(k kit) {
			m := k.held(redsync.WithWatchdog())
			var lost <-chan struct{}
			if asked {
				lost = m.Lost()
			}
			require.NoError(t, k.Close(k.Context()))
			if !asked {
				lost = m.Lost()
			}
			assert.False(t, open(lost))
			require.ErrorIs(t, m.Err(), redsync.ErrLockLost)
			require.ErrorIs(t, m.Err(), redsync.ErrClosed)
			k.nothingLeft()
		})
	}
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
		t.Fatal("Lost was not closed within a minute")
	}
	known := time.Now()
	assert.GreaterOrEqual(t, known, until)
	assert.Less(t, known.Sub(until), 10*time.Second, "Lost is closed late after Until, by more than a timer can be late")
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
