package redsync_test

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/embedded"
	"github.com/seed14bd9ef4/redsync/observe"
	"github.com/seed14bd9ef4/redsync/pool"
)

// A: a guard on the pools of after only, at other addresses, is obeyed.
func TestAttackGuardTwoAddresses(t *testing.T) {
	for name, guardOf := range map[string][2][]pool.Option{
		"both":   {guards[true], guards[true]},
		"before": {guards[true], nil},
		"after":  {nil, guards[true]},
	} {
		t.Run(name, func(t *testing.T) {
			changing(t, 3, func(s change) {
				time.Sleep(time.Minute) // the nodes have run for a while
				var before, after []pool.Pool
				for i, c := range s.clients {
					before, after = append(before, pool.New(c, guardOf[0]...)), append(after, pool.New(s.nodes[i].Client(), guardOf[1]...))
				}
				rs := s.joint(before, after)
				m := rs.NewMutex("lock")
				s.nodes[2].Freeze()
				require.NoError(s, m.Lock())
				s.nodes[0].Kill()
				s.nodes[0].Restart(true)
				s.nodes[2].Thaw()
				time.Sleep(time.Millisecond)
				s.nodes[2].Del("lock") // it was late
				other := s.joint(before, after)
				for i := range 6 {
					err := other.NewMutex("lock", redsync.WithFailFast(false)).TryLock()
					fmt.Println(i, err)
					require.Error(s, err, "two holders, try %d", i)
					time.Sleep(100 * time.Millisecond)
				}
			})
		})
	}
}

// B: one caller with a long node deadline and a frozen node delays all the others.
func TestAttackIdentifyDelaysOthers(t *testing.T) {
	changing(t, 6, func(s change) {
		rs := s.joint(s.at(0, 1, 2), s.at(3, 4, 5))
		s.nodes[5].Freeze()
		done := make(chan struct{})
		go func() {
			defer close(done)
			m := rs.NewMutex("batch", redsync.WithExpiry(10*time.Hour))
			assert.NoError(t, m.TryLock())
			_, _ = m.Unlock()
		}()
		time.Sleep(time.Millisecond)
		start := time.Now()
		m := rs.NewMutex("lock")
		assert.NoError(t, m.TryLock())
		assert.Less(t, time.Since(start), time.Second)
		_, _ = m.Unlock()
		<-done
		s.nodes[5].Thaw()
	})
}

// C: a first call with a short context.
func TestAttackShortContextFirst(t *testing.T) {
	changing(t, 5, func(s change) {
		slow := func(bool) time.Duration { return 5 * time.Millisecond }
		on := func() (pools []pool.Pool) {
			for _, n := range s.nodes {
				pools = append(pools, pool.New(n.Client(func(o *redis.Options) { o.Dialer = n.DialVia(slow) })))
			}
			return pools
		}
		rs := s.joint(on(), on())
		ctx, cancel := context.WithTimeout(s.Context(), time.Millisecond)
		defer cancel()
		require.Error(s, rs.NewMutex("first").TryLockContext(ctx))
		time.Sleep(time.Microsecond)
		m := rs.NewMutex("second")
		err := m.TryLock()
		assert.NoError(s, err, "nobody has it")
		if err == nil {
			s.unlock(m)
		}
	})
}

// D: all servers restart with their keys.
func TestAttackAllRestart(t *testing.T) {
	changing(t, 5, func(s change) {
		rs := s.joint(s.at(0, 1, 2, 3, 4), s.elsewhere(0, 1, 2, 3, 4))
		control := s.alone(s.elsewhere(0, 1, 2, 3, 4))
		require.NoError(s, rs.NewMutex("meet").TryLock())
		require.NoError(s, control.NewMutex("meet too").TryLock())
		held := rs.NewMutex("held", redsync.WithExpiry(time.Hour))
		require.NoError(s, held.TryLock())
		for _, n := range s.nodes {
			n.Kill()
			n.Restart(false)
			time.Sleep(time.Minute)
		}
		m := control.NewMutex("control")
		assert.NoError(s, m.TryLock())
		s.unlock(m)
		ok, err := held.Valid()
		assert.True(s, ok, "valid: %v", err)
		for i := range 3 {
			m := rs.NewMutex(fmt.Sprint("lock", i))
			err := m.TryLock()
			assert.NoError(s, err, "try %d", i)
			if err == nil {
				s.unlock(m)
			}
			time.Sleep(time.Second)
		}
		s.unlock(held)
	})
}

// E: server 0 dies. Its address in before is given to server 3, which denies INFO, and that in after to server 4.
func TestAttackMovedWithoutInfo(t *testing.T) {
	for _, denied := range []bool{false, true} {
		t.Run(fmt.Sprint(denied), func(t *testing.T) {
			changing(t, 5, func(s change) {
				leads := s.nodes[0]
				moving := pool.New(s.nodes[0].Client(func(o *redis.Options) {
					o.Dialer = func(ctx context.Context, network, address string) (net.Conn, error) {
						return leads.Dial(ctx, network, address)
					}
				}))
				rs := s.joint(append([]pool.Pool{moving}, s.at(1, 2)...), s.elsewhere(0, 1, 2))
				m := rs.NewMutex("meet")
				require.NoError(s, m.TryLock())
				s.unlock(m)
				if denied {
					s.nodes[3].On("info", 1000, embedded.Fault{Err: "NOPERM User has no permissions to run the 'info' command"})
				}
				leads = s.nodes[3]
				s.nodes[0].Kill()
				time.Sleep(time.Minute)
				latter := s.alone(s.elsewhere(4, 1, 2))
				s.nodes[2].Freeze()
				joint := rs.NewMutex("lock")
				var err error
				for range 5 {
					if err = joint.TryLock(); err == nil {
						break
					}
					time.Sleep(time.Second)
				}
				if err == nil {
					s.nodes[1].Freeze()
					s.nodes[2].Thaw()
					time.Sleep(time.Millisecond)
					s.nodes[2].Del("lock") // it is late
					assert.Error(s, latter.NewMutex("lock").TryLock(), "two holders")
					ok, _ := joint.Valid()
					fmt.Println(ok, joint.Until().Sub(time.Now()))
					s.nodes[1].Thaw()
					s.unlock(joint)
				}
				s.nodes[2].Thaw()
				s.nodes[0].Restart(true)
			})
		})
	}
}

// F: WithNewNodes in deployment 1, as the runbook says. During deployment 2 a new node restarts, and a process of
// deployment 1 starts again.
func TestAttackNewNodesInDeployment2(t *testing.T) {
	changing(t, 6, func(s change) {
		time.Sleep(time.Minute)
		guarded := func(more []pool.Option, nodes ...int) (pools []pool.Pool) {
			for _, i := range nodes {
				pools = append(pools, pool.New(s.nodes[i].Client(), append(more, pool.WithRestartGuard(8*time.Second))...))
			}
			return pools
		}
		latter := s.alone(guarded(nil, 3, 4, 5)).NewMutex("lock")
		s.nodes[5].Freeze()
		require.NoError(s, latter.Lock())
		s.nodes[3].Kill()
		s.nodes[3].Restart(true)
		s.nodes[5].Thaw()
		time.Sleep(time.Millisecond)
		s.nodes[5].Del("lock") // it was late
		joint := s.joint(guarded(nil, 0, 1, 2), guarded([]pool.Option{pool.WithNewNodes()}, 3, 4, 5))
		require.Error(s, joint.NewMutex("lock").TryLock(), "two holders")
	})
}

type healthLog struct{ down, up []int }

func (h *healthLog) ObserveNodeDown(_ context.Context, e observe.NodeDown) { h.down = append(h.down, e.Node) }
func (h *healthLog) ObserveNodeUp(_ context.Context, e observe.NodeUp)     { h.up = append(h.up, e.Node) }

// G: each node that is told down is told up again.
func TestAttackHealth(t *testing.T) {
	changing(t, 3, func(s change) {
		time.Sleep(time.Minute)
		var before, after []pool.Pool
		for i := range s.nodes {
			before = append(before, pool.New(s.nodes[i].Client(), pool.WithRestartGuard(8*time.Second)))
			after = append(after, pool.New(s.nodes[i].Client(), pool.WithRestartGuard(8*time.Second)))
		}
		log := &healthLog{}
		rs := s.joint(before, after).With(redsync.WithObserver(log), redsync.WithFailFast(false))
		require.NoError(s, rs.NewMutex("meet").TryLock())
		s.nodes[0].Kill()
		s.nodes[0].Restart(true)
		for i := range 60 {
			_ = rs.NewMutex(fmt.Sprint("lock", i)).TryLock()
			time.Sleep(time.Second)
		}
		fmt.Println(log.down, log.up)
		assert.ElementsMatch(s, log.down, log.up)
	})
}
