package redsync_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"strings"
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

// Who the nodes are: restarted ones under the guard, and two that are one. Times
// are exact: a bubble begins on a whole second, so that an uptime is the truth where
// a node starts on one.

const (
	guard      = 8 * time.Second // the default expiry
	quarantine = guard + 82*time.Millisecond + time.Second
	validity   = guard - 82*time.Millisecond
)

// process is a Redsync with connections of its own, which has not met any node.
func (f field) process(options ...pool.Option) *redsync.Redsync {
	var pools []pool.Pool
	for _, n := range f.nodes {
		pools = append(pools, pool.New(n.Client(), options...))
	}
	return redsync.New(pools...)
}

// patient is a process that waits for replies longer than others.
func (f field) patient(options ...pool.Option) *redsync.Redsync {
	var pools []pool.Pool
	for _, n := range f.nodes {
		opt := *n.Client().Options()
		opt.ReadTimeout = 5 * time.Second
		pools = append(pools, pool.New(redis.NewClient(&opt), options...))
	}
	return redsync.New(pools...)
}

// veteran is a process that has met every node. With the guard the nodes count from
// now on.
func (f field) veteran(options ...pool.Option) *redsync.Redsync {
	f.Helper()
	rs := f.process(append(options, pool.WithNewNodes())...)
	m := rs.NewMutex("meet", redsync.WithExpiry(time.Second))
	require.NoError(f, m.Lock())
	_, err := m.Unlock()
	require.NoError(f, err)
	time.Sleep(time.Millisecond)
	return rs
}

// reboot kills nodes and starts them again at once, without data if empty.
func (f field) reboot(empty bool, nodes ...int) {
	for _, i := range nodes {
		f.nodes[i].Kill()
		f.nodes[i].Restart(empty)
	}
}

// wake lets rs find that its connections are gone, and open new ones.
func wake(rs *redsync.Redsync) {
	_ = rs.NewMutex("wake").TryLock()
	time.Sleep(100 * time.Millisecond)
}

// guards are the options of a pool with the guard, and without.
var guards = map[bool][]pool.Option{
	true:  {pool.WithRestartGuard(guard)},
	false: nil,
}

// withAndWithout runs f under the guard and, as a control that it matters, without.
func withAndWithout(t *testing.T, f func(f field, guarded bool)) {
	t.Helper()
	for _, guarded := range []bool{true, false} {
		t.Run(fmt.Sprintf("guarded=%v", guarded), func(t *testing.T) {
			play(t, func(pl field) { f(pl, guarded) })
		})
	}
}

// A fresh deployment.

func TestRestartGuardFreshDeploymentWaitsForItsQuarantine(t *testing.T) {
	for name, c := range map[string]struct {
		option redsync.Option
		want   time.Duration // the longest expiry + drift + 1 s
	}{
		"default drift": {redsync.WithDriftFactor(0.01), 9082 * time.Millisecond},
		"no drift":      {redsync.WithDriftFactor(0), 9002 * time.Millisecond},
		"much drift":    {redsync.WithDriftFactor(0.5), 13002 * time.Millisecond},
		// The longest expiry of anyone counts, not one's own.
		"short expiry": {redsync.WithExpiry(time.Second), 9082 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(f field) {
				m := f.process(pool.WithRestartGuard(guard)).NewMutex("lock", c.option)
				err := m.TryLock()
				require.ErrorIs(t, err, redsync.ErrFailed)
				var node *redsync.RedisError
				require.ErrorAs(t, err, &node)
				for i := range f.nodes {
					assert.ErrorContains(t, err, named(i)+fmt.Sprintf("restarted 0s before: it counts from %v on", c.want))
				}
				time.Sleep(c.want - time.Nanosecond)
				require.ErrorIs(t, m.TryLock(), redsync.ErrFailed)
				time.Sleep(time.Nanosecond)
				require.NoError(t, m.TryLock())
			})
		})
	}
}

func TestRestartGuardIsWaivedByWithNewNodes(t *testing.T) {
	play(t, func(f field) {
		rs := f.process(pool.WithRestartGuard(guard), pool.WithNewNodes())
		m := rs.NewMutex("lock")
		start := time.Now()
		require.NoError(t, m.TryLock())
		ok, err := m.Extend()
		require.NoError(t, err)
		assert.True(t, ok)
		_, err = m.Unlock()
		require.NoError(t, err)
		assert.Zero(t, time.Since(start))
		f.reboot(true, 0, 1, 2)
		wake(rs)
		require.ErrorContains(t, m.TryLock(), "restarted", "its follower is not new")
	})
}

func TestRestartGuardOfTheLongestTimeNeverCounts(t *testing.T) {
	play(t, func(f field) {
		m := f.process(pool.WithRestartGuard(math.MaxInt64)).NewMutex("lock")
		require.ErrorContains(t, m.TryLock(), "restarted", "nothing overflows")
	})
}

// Restarts while the lock is held.

// The worst case: the nodes start at the very end of a second of their clocks, and
// say a millisecond later that it was a second before.
func TestRestartGuardKeepsOthersOutUntilTheHolderIsOver(t *testing.T) {
	withAndWithout(t, func(f field, guarded bool) {
		time.Sleep(time.Minute - 2*time.Millisecond) // all nodes count
		m := f.process(guards[guarded]...).NewMutex("lock")
		require.NoError(t, m.TryLock())
		time.Sleep(time.Millisecond)
		f.reboot(true, 0, 1, 2)
		time.Sleep(time.Millisecond)

		start := time.Now()
		other := f.process(guards[guarded]...).NewMutex("lock", redsync.WithTries(0), redsync.WithRetryDelay(18*time.Millisecond)) // 449 times 18 ms is 8.082 s
		require.NoError(t, other.Lock())
		if !guarded {
			assert.Zero(t, time.Since(start))
			assert.Positive(t, m.Remaining(), "two holders")
			return
		}
		assert.Equal(t, quarantine-time.Second, time.Since(start))
		assert.Zero(t, m.Remaining())
	})
}

func TestRestartGuardErrorSaysWhen(t *testing.T) {
	play(t, func(f field) {
		time.Sleep(time.Minute)
		f.reboot(true, 0, 1, 2)
		m := f.process(guards[true]...).NewMutex("lock", redsync.WithFailFast(false))
		require.Error(t, m.TryLock())
		time.Sleep(1001 * time.Millisecond)
		err := m.TryLock()
		for i := range 3 {
			assert.ErrorContains(t, err, named(i)+"restarted 1.001s before: it counts from 9.082s on")
		}
		for i := 3; i < 5; i++ {
			assert.NotContains(t, err.Error(), fmt.Sprintf("node #%d", i))
		}
	})
}

// An extend is answered with "missing" by nodes that lost the key, which proves that
// the lock is lost. A node that has it still, or again, is not believed.
func TestRestartGuardDoesNotCountExtends(t *testing.T) {
	type outcome [2]error // of the first Extend and the second
	heals := redsync.WithSetNXOnExtend()
	lost, failed := redsync.ErrLockLost, redsync.ErrExtendFailed
	for name, c := range map[string]struct {
		options            []redsync.Option
		empty              bool
		guarded, unguarded outcome
	}{
		"without data":              {nil, true, outcome{lost, lost}, outcome{lost, lost}},
		"without data, healing":     {[]redsync.Option{heals}, true, outcome{failed, failed}, outcome{failed, nil}},
		"with their data":           {nil, false, outcome{failed, failed}, outcome{nil, nil}},
		"with their data, healing":  {[]redsync.Option{heals}, false, outcome{failed, failed}, outcome{nil, nil}},
		"with their data, wait all": {[]redsync.Option{redsync.WithFailFast(false)}, false, outcome{failed, failed}, outcome{nil, nil}},
	} {
		t.Run(name, func(t *testing.T) {
			withAndWithout(t, func(f field, guarded bool) {
				rs := f.veteran(guards[guarded]...)
				m := rs.NewMutex("lock", c.options...)
				require.NoError(t, m.TryLock())
				until := m.Until()
				time.Sleep(2 * time.Second)
				f.reboot(c.empty, 0, 1, 2)
				wake(rs)
				extend := func(want error) {
					t.Helper()
					ok, err := m.Extend()
					time.Sleep(time.Millisecond)
					assert.Equal(t, want == nil, ok)
					require.ErrorIs(t, err, want)
				}
				first, want := c.unguarded[0], c.unguarded[1]
				if guarded {
					first, want = c.guarded[0], c.guarded[1]
				}
				extend(first)
				extend(want)
				switch {
				case errors.Is(want, redsync.ErrLockLost):
					assert.Zero(t, m.Until())
				case want != nil:
					assert.Equal(t, until, m.Until())
					time.Sleep(m.Remaining())
					_, err := m.Extend()
					require.ErrorIs(t, err, redsync.ErrLockAlreadyExpired)
				default:
					assert.True(t, m.Until().After(until))
				}
			})
		})
	}
}

func TestRestartGuardDoesNotCountTheExtendThatAdopts(t *testing.T) {
	withAndWithout(t, func(f field, guarded bool) {
		rs := f.veteran(guards[guarded]...)
		m := rs.NewMutex("lock")
		require.NoError(t, m.TryLock())
		time.Sleep(time.Millisecond)
		f.reboot(false, 0, 1, 2)
		wake(rs)
		ok, err := rs.NewMutex("lock", redsync.WithValue(m.Value())).Extend()
		assert.Equal(t, !guarded, ok)
		if guarded {
			require.ErrorIs(t, err, redsync.ErrExtendFailed)
			require.ErrorContains(t, err, "restarted")
		}
	})
}

func TestRestartGuardEndsAWatchedHoldAtUntil(t *testing.T) {
	for name, options := range map[string][]redsync.Option{
		"nodes with their data":  {redsync.WithWatchdog()},
		"nodes without, healing": {redsync.WithWatchdog(), redsync.WithSetNXOnExtend()},
	} {
		t.Run(name, func(t *testing.T) {
			withAndWithout(t, func(f field, guarded bool) {
				m := f.veteran(guards[guarded]...).NewMutex("lock", options...)
				require.NoError(t, m.TryLock())
				until := m.Until()
				time.Sleep(time.Second)
				f.reboot(len(options) == 2, 0, 1, 2)
				time.Sleep(time.Until(until) - time.Nanosecond)
				assert.Positive(t, m.Remaining())
				time.Sleep(time.Nanosecond)
				if !guarded {
					time.Sleep(20 * time.Second)
					assert.Positive(t, m.Remaining())
					return
				}
				<-m.Lost()
				assert.Equal(t, until.UnixNano(), time.Now().UnixNano())
				require.ErrorIs(t, m.Err(), redsync.ErrLockAlreadyExpired)
			})
		})
	}
}

// The shortest trace in which an extend that counts on a restarted node admits a
// second holder. A holds 0, 1 and 2. B's acquire is granted by 3 and 4 at once and
// reaches 0 late. Meanwhile 3 restarts, A heals it, and extends on 1, 2 and 3: that
// must not move A's Until, because A's key on 0 runs out at the old one, when 0
// grants to B as well.
func TestRestartGuardOfExtendsKeepsASecondQuorumFromForming(t *testing.T) {
	for name, options := range map[string][]redsync.Option{
		"extended by hand":  {redsync.WithSetNXOnExtend()},
		"by its watchdog":   {redsync.WithSetNXOnExtend(), redsync.WithWatchdog()},
		"waiting for nodes": {redsync.WithSetNXOnExtend(), redsync.WithFailFast(false)},
	} {
		t.Run(name, func(t *testing.T) {
			withAndWithout(t, func(f field, guarded bool) {
				time.Sleep(time.Minute) // all nodes count
				a, b := f.process(guards[guarded]...), f.patient(guards[guarded]...)
				for _, i := range []int{3, 4} {
					f.nodes[i].On("set", 1, embedded.Fault{LoseCommand: true})
				}
				m := a.NewMutex("lock", append(options, redsync.WithExpiry(4*time.Second))...)
				start := time.Now()
				require.NoError(t, m.TryLock())
				until := m.Until()
				time.Sleep(500 * time.Millisecond)
				f.nodes[0].On("set", 1, embedded.Fault{Delay: 3600 * time.Millisecond})
				f.nodes[0].On("evalsha", 1000, embedded.Fault{LoseCommand: true})
				var wg sync.WaitGroup
				defer wg.Wait()
				wg.Go(func() {
					other := b.NewMutex("lock", redsync.WithNodeTimeout(3900*time.Millisecond))
					if assert.NoError(t, other.TryLock()) {
						assert.Equal(t, 4100*time.Millisecond, time.Since(start))
						assert.Equal(t, !guarded, m.Remaining() > 0, "A believes to hold what B has")
					}
				})
				time.Sleep(300 * time.Millisecond)
				f.reboot(true, 3)
				for range 30 {
					time.Sleep(100 * time.Millisecond)
					if name != "by its watchdog" {
						_, _ = m.Extend() // the first heals, those behind it may count
					}
				}
				assert.Equal(t, !guarded, m.Until().After(until))
			})
		})
	}
}

func TestRestartGuardBearsAMinority(t *testing.T) {
	play(t, func(f field) {
		rs := f.veteran(guards[true]...)
		for _, options := range [][]redsync.Option{nil, {redsync.WithSetNXOnExtend()}} {
			m := rs.NewMutex("lock", options...)
			require.NoError(t, m.TryLock())
			time.Sleep(time.Second)
			f.reboot(true, 0, 1)
			wake(rs)
			until := m.Until()
			ok, err := m.Extend()
			require.NoError(t, err)
			assert.True(t, ok)
			assert.True(t, m.Until().After(until))
			ok, err = m.Unlock()
			require.NoError(t, err)
			assert.True(t, ok)
			require.NoError(t, rs.NewMutex("lock2").Lock())
			time.Sleep(time.Minute)
			wake(rs) // streams were idle
		}
	})
}

// A restart while a Lock is under way: what died with its requests counts for
// nothing, and its follower not before its time.
func TestRestartGuardWhileALockIsUnderWay(t *testing.T) {
	withAndWithout(t, func(f field, guarded bool) {
		rs := f.veteran(guards[guarded]...)
		time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(1900 * time.Millisecond)))
		for _, n := range f.nodes[:3] {
			n.On("set", 1, embedded.Fault{Delay: 200 * time.Millisecond})
		}
		start := time.Now()
		var wg sync.WaitGroup
		wg.Go(func() {
			m := rs.NewMutex("lock", redsync.WithTries(0), redsync.WithRetryDelay(20*time.Millisecond))
			assert.NoError(t, m.Lock())
			if guarded {
				// Connections are opened again after a while.
				assert.InDelta(t, 100*time.Millisecond+quarantine, time.Since(start), float64(200*time.Millisecond))
				assert.GreaterOrEqual(t, time.Since(start), 100*time.Millisecond+quarantine)
			} else {
				assert.Less(t, time.Since(start), time.Second)
			}
		})
		time.Sleep(100 * time.Millisecond)
		f.reboot(true, 0, 1, 2)
		wg.Wait()
	})
}

// A grant counts although its node dies right after it: it was right when given,
// and nobody else is granted there until the guard has passed.
func TestRestartGuardCountsWhatWasGrantedBeforeTheRestart(t *testing.T) {
	play(t, func(f field) {
		a, b := f.veteran(guards[true]...), f.veteran(guards[true]...)
		f.nodes[0].On("set", 1, embedded.Fault{Delay: 200 * time.Millisecond})
		f.freeze(1)
		m := a.NewMutex("lock")
		var wg sync.WaitGroup
		wg.Go(func() { assert.NoError(t, m.TryLock()) })
		time.Sleep(100 * time.Millisecond)
		f.nodes[4].Kill() // it had granted, as 2 and 3
		f.nodes[4].Restart(true)
		f.nodes[3].Kill()
		f.nodes[3].Restart(true)
		wg.Wait()
		f.nodes[1].Kill()
		f.nodes[1].Restart(true)
		wake(b)
		other := b.NewMutex("lock", redsync.WithTries(0), redsync.WithRetryDelay(20*time.Millisecond))
		require.NoError(t, other.Lock())
		assert.Zero(t, m.Remaining())
	})
}

// The age counts when the request was sent: the reply may be that of a process
// which has died since.
func TestRestartGuardGoesByTheTimeOfTheRequest(t *testing.T) {
	for name, c := range map[string]struct {
		option     redsync.Option
		command    string
		quarantine time.Duration
		extends    bool // a lock that the nodes have already
	}{
		"plain":   {redsync.WithTries(1), "set", quarantine, false},
		"fencing": {redsync.WithFencing(), "evalsha", fencedQuarantine, false},
		"fair":    {redsync.WithFair(), "evalsha", quarantine, false},
		"extend":  {redsync.WithValue("v"), "evalsha", quarantine, true},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(f field) {
				m := f.process(guards[true]...).NewMutex("lock", c.option)
				ask := m.TryLock
				if c.extends {
					ask = func() error {
						_, err := m.Extend()
						return err
					}
					for _, n := range f.nodes {
						require.NoError(t, n.Set("lock", "v"))
						n.SetTTL("lock", time.Minute)
					}
				}
				require.Error(t, ask())
				age := c.quarantine - 100*time.Millisecond
				time.Sleep(age)
				for _, n := range f.nodes {
					n.On(c.command, 1, embedded.Fault{Delay: 200 * time.Millisecond})
				}
				require.ErrorContains(t, ask(), fmt.Sprintf("restarted %v before", age))
				require.NoError(t, ask())
			})
		})
	}
}

// A hold that goes on for long enough counts on nodes that restarted during it.
func TestRestartGuardExtendCountsHealedNodesAfterTheirQuarantine(t *testing.T) {
	play(t, func(f field) {
		rs := f.veteran(guards[true]...)
		m := rs.NewMutex("lock", redsync.WithSetNXOnExtend())
		require.NoError(t, m.TryLock())
		f.reboot(true, 0, 1)
		restarted := time.Now()
		for time.Since(restarted) < quarantine+time.Second {
			time.Sleep(time.Second)
			ok, err := m.Extend()
			require.NoError(t, err)
			require.True(t, ok)
		}
		f.freeze(3, 4)
		ok, err := m.Extend()
		require.NoError(t, err)
		assert.True(t, ok)
	})
}

func TestRestartGuardReleasesGoToQuarantinedNodes(t *testing.T) {
	play(t, func(f field) {
		// An attempt that does not count leaves nothing behind.
		before := f.commands("set")
		require.Error(t, f.process(guards[true]...).NewMutex("lock").TryLock())
		time.Sleep(time.Millisecond)
		assert.Equal(t, before+5, f.commands("set"))
		assert.Zero(t, f.nodes.Keys("lock"))

		// What was healed on such nodes goes with Unlock, which they may confirm.
		rs := f.veteran(guards[true]...)
		m := rs.NewMutex("lock", redsync.WithSetNXOnExtend())
		require.NoError(t, m.TryLock())
		time.Sleep(time.Millisecond)
		f.reboot(true, 0, 1, 2)
		wake(rs)
		_, err := m.Extend()
		require.ErrorIs(t, err, redsync.ErrExtendFailed)
		time.Sleep(time.Millisecond)
		assert.Equal(t, 5, f.nodes.Keys("lock"))
		f.freeze(3, 4)
		ok, err := m.Unlock()
		require.NoError(t, err)
		assert.True(t, ok)
		f.nodes[3].Thaw()
		f.nodes[4].Thaw()
		time.Sleep(time.Millisecond)
		assert.Zero(t, f.nodes.Keys("lock"))
	})
}

// Never two holders.

// A siege is processes that contend for a lock while the nodes restart one after
// another.
type siege struct {
	field
	rand *rand.Rand
	end  time.Time

	mu      sync.Mutex
	holders map[*redsync.Mutex]bool // from Lock's return to the call of Unlock
	grants  int
	overlap int
}

// enter notes that m has the lock. Who had it before and has not called Unlock must
// not believe so now: a belief that has ended never comes back.
func (s *siege) enter(m *redsync.Mutex) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m.Remaining() == 0 {
		return
	}
	s.grants++
	for other := range s.holders {
		if other != m && other.Remaining() > 0 {
			s.overlap++
		}
	}
	s.holders[m] = true
}

func (s *siege) leave(m *redsync.Mutex) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.holders, m)
}

// contend locks, extends and unlocks until the end. r is its own.
func (s *siege) contend(rs *redsync.Redsync, r *rand.Rand, options ...redsync.Option) {
	for time.Now().Before(s.end) {
		m := rs.NewMutex("lock", options...)
		if m.Lock() != nil {
			continue
		}
		s.enter(m)
		for range r.IntN(6) {
			time.Sleep(time.Duration(r.IntN(500)) * time.Millisecond)
			_, _ = m.Extend()
		}
		if r.IntN(4) > 0 {
			s.leave(m)
			_, _ = m.Unlock()
			time.Sleep(time.Duration(r.IntN(300)) * time.Millisecond)
		}
	}
}

// besiege lets bursts of restarts come, with time to recover between.
func (s *siege) besiege() {
	ms := func(n int) time.Duration { return time.Duration(s.rand.IntN(n)) * time.Millisecond }
	for time.Now().Before(s.end) {
		time.Sleep(3*time.Second + ms(2000))
		for _, i := range s.rand.Perm(5)[:2+s.rand.IntN(4)] {
			time.Sleep(ms(300))
			f := s.nodes[i]
			f.Kill()
			time.Sleep(ms(50))
			f.Restart(true)
			switch s.rand.IntN(4) {
			case 0:
				f.On("set", 1, embedded.Fault{Delay: ms(400)})
			case 1:
				f.On("set", 1, embedded.Fault{LoseReply: true})
			case 2:
				f.On("evalsha", 1, embedded.Fault{LoseReply: true})
			}
		}
	}
}

// run plays a siege and returns how often the lock was granted, and how often to a
// second holder.
func (s *siege) run(heals bool, of ...pool.Option) (grants, overlap int) {
	options := []redsync.Option{redsync.WithExpiry(time.Second), redsync.WithNodeTimeout(450 * time.Millisecond)}
	if heals {
		options = append(options, redsync.WithSetNXOnExtend())
	}
	s.holders = make(map[*redsync.Mutex]bool)
	processes := make([]*redsync.Redsync, 4)
	for i := range processes {
		processes[i] = s.veteran(of...)
	}
	s.end = time.Now().Add(20 * time.Second)
	var wg sync.WaitGroup
	for i, rs := range processes {
		mine := options[:len(options):len(options)]
		if i%2 == 0 {
			mine = append(mine, redsync.WithWatchdog())
		}
		r := rand.New(rand.NewPCG(s.rand.Uint64(), uint64(i))) //nolint:gosec // a repeatable schedule
		wg.Go(func() { s.contend(rs, r, mine...) })
	}
	s.besiege()
	wg.Wait()
	for _, rs := range processes {
		_ = rs.Close(s.Context())
	}
	return s.grants, s.overlap
}

func TestRestartGuardNeverTwoHoldersWhileNodesRestartOneAfterAnother(t *testing.T) {
	t.Parallel()
	for _, heals := range []bool{false, true} {
		t.Run(fmt.Sprintf("heals=%v guarded", heals), func(t *testing.T) {
			grants, sieges := 0, 6
			if testing.Short() {
				sieges = 2
			}
			for seed := range sieges {
				g, overlaps := besieged(t, seed, heals, pool.WithRestartGuard(time.Second))
				assert.Zero(t, overlaps, "seed %d", seed)
				grants += g
			}
			assert.Greater(t, grants, 5*sieges, "the schedule leaves nobody in")
		})
		t.Run(fmt.Sprintf("heals=%v, without the guard some siege has two holders", heals), func(t *testing.T) {
			for seed := range 60 { // about half of them have
				if _, overlaps := besieged(t, seed, heals); overlaps > 0 {
					return
				}
			}
			t.Error("none has")
		})
	}
}

// besieged plays the siege of seed on nodes of its own.
func besieged(t *testing.T, seed int, heals bool, of ...pool.Option) (grants, overlaps int) {
	t.Helper()
	play(t, func(f field) {
		s := &siege{field: f, rand: rand.New(rand.NewPCG(uint64(seed), 7))} //nolint:gosec // a repeatable schedule
		grants, overlaps = s.run(heals, of...)
	})
	return grants, overlaps
}

// Mutexes and pools that do not fit.

func TestRestartGuardRefusesALongerExpiry(t *testing.T) {
	play(t, func(f field) {
		var pools []pool.Pool
		for i, g := range []time.Duration{0, 10 * time.Second, guard, 0, 20 * time.Second} {
			var options []pool.Option
			if g != 0 {
				options = []pool.Option{pool.WithRestartGuard(g), pool.WithNewNodes()}
			}
			pools = append(pools, pool.New(f.nodes[i].Client(), options...))
		}
		rs := redsync.New(pools...)
		for _, c := range []struct {
			options []redsync.Option
			text    string
		}{
			{[]redsync.Option{redsync.WithExpiry(guard + time.Millisecond)}, "8.001s"},
			{[]redsync.Option{redsync.WithLockDelay(time.Nanosecond)}, "8.001s"}, // rounded up
			{[]redsync.Option{redsync.WithLockDelay(time.Hour)}, "1h0m8s"},
		} {
			options := append(c.options, redsync.WithValue("v"))
			text := fmt.Sprintf("WithExpiry and WithLockDelay(%s) is out of range: together at most 8s, which pool #2 guards (pool.WithRestartGuard)", c.text)
			refuses(t, rs.NewMutex("lock", options...), text)
			require.ErrorIs(t, rs.NewMutex("lock", options...).Lock(), redsync.ErrFailed)
		}
		assert.Zero(t, f.traffic())
		require.NoError(t, rs.NewMutex("lock", redsync.WithExpiry(guard)).Lock())
		require.NoError(t, rs.NewMutex("lock2", redsync.WithExpiry(guard-time.Second), redsync.WithLockDelay(time.Second)).Lock())
		require.ErrorContains(t, rs.NewMutex("", redsync.WithExpiry(time.Hour)).Lock(), "must not be empty")
		require.NoError(t, rs.Close(f.Context()), "no operation is left under way")
	})
}

func TestRestartGuardOnSomePools(t *testing.T) {
	for unguarded := range 6 {
		t.Run(fmt.Sprintf("all but %d", unguarded), func(t *testing.T) {
			play(t, func(f field) {
				var pools []pool.Pool
				for i, n := range f.nodes {
					pools = append(pools, pool.New(n.Client(), guards[i >= unguarded]...))
				}
				m := redsync.New(pools...).NewMutex("lock")
				err := m.TryLock()
				if unguarded >= 3 {
					require.NoError(t, err)
					return
				}
				require.ErrorContains(t, err, named(4)+"restarted")
				assert.NotContains(t, err.Error(), fmt.Sprintf("node #%d:", unguarded-1))
				time.Sleep(quarantine)
				require.NoError(t, m.TryLock())
			})
		})
	}
}

func TestRestartGuardNeverCountsANodeThatRefusesInfo(t *testing.T) {
	withAndWithout(t, func(f field, guarded bool) {
		for _, i := range []int{0, 2, 4} {
			f.nodes[i].On("info", 1000, embedded.Fault{Err: "NOPERM User has no permissions to run the 'info' command"})
		}
		time.Sleep(time.Hour)
		m := f.process(guards[guarded]...).NewMutex("lock", redsync.WithFailFast(false))
		err := m.Lock()
		if !guarded {
			require.NoError(t, err)
			return
		}
		require.ErrorIs(t, err, redsync.ErrFailed)
		for _, i := range []int{0, 2, 4} {
			assert.ErrorContains(t, err, named(i)+"it is not known how long the server has been running (INFO)")
		}
		assert.NotContains(t, err.Error(), "node #1")
		assert.NotContains(t, err.Error(), "node #3")
	})
}

// Two nodes that are one.

// A movable is an address that leads to one node or another.
type movable struct{ to atomic.Pointer[embedded.Node] }

func (a *movable) client() *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: "movable",
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			return a.to.Load().Dial(ctx, network, addr)
		},
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

func TestDuplicateNodeIsAnErrorOfTheFirstLock(t *testing.T) {
	for name, of := range map[string][]pool.Option{
		"plain":     nil,
		"guarded":   {pool.WithRestartGuard(guard)},
		"new nodes": {pool.WithRestartGuard(guard), pool.WithNewNodes()},
	} {
		for _, failFast := range []bool{true, false} {
			for _, tries := range []int{1, 0} {
				t.Run(fmt.Sprintf("%s failFast=%v tries=%d", name, failFast, tries), func(t *testing.T) {
					play(t, func(f field) {
						var pools []pool.Pool
						for _, i := range []int{0, 1, 2, 1, 4} {
							pools = append(pools, pool.New(f.nodes[i].Client(), of...))
						}
						m := redsync.New(pools...).NewMutex("lock", redsync.WithFailFast(failFast), redsync.WithTries(tries))
						start := time.Now()
						err := m.Lock()
						require.ErrorIs(t, err, redsync.ErrDuplicateNode)
						require.ErrorIs(t, err, redsync.ErrFailed)
						require.ErrorContains(t, err, "two pools lead to one server: #1 and #3")
						assert.Zero(t, time.Since(start), "waiting does not help")
						assert.Zero(t, m.Remaining())
						time.Sleep(time.Millisecond)
						assert.Zero(t, f.nodes.Keys("lock"))
						before := f.traffic()
						require.ErrorIs(t, m.TryLock(), redsync.ErrDuplicateNode)
						assert.Equal(t, before, f.traffic(), "it is known")
					})
				})
			}
		}
	}
}

func TestDuplicateNodeOfOneClient(t *testing.T) {
	play(t, func(f field) {
		client := f.nodes[0].Client()
		rs := redsync.New(pool.New(client), pool.New(f.nodes[1].Client()), pool.New(client, pool.WithNewNodes()))
		require.ErrorContains(t, rs.NewMutex("lock").Lock(), "#0 and #2")
		time.Sleep(time.Millisecond)
		assert.Zero(t, f.nodes.Keys("lock"))
	})
}

// The first to be slow, or to be heard only after the quorum, is waited for.
func TestDuplicateNodeIsFoundThoughItIsSlow(t *testing.T) {
	play(t, func(f field) {
		for _, i := range []int{3, 4} {
			f.nodes[i].On("set", 3, embedded.Fault{Delay: 300 * time.Millisecond})
		}
		var pools []pool.Pool
		for _, i := range []int{0, 1, 2, 4, 4} {
			pools = append(pools, pool.New(f.nodes[i].Client()))
		}
		start := time.Now()
		require.ErrorIs(t, redsync.New(pools...).NewMutex("lock").TryLock(), redsync.ErrDuplicateNode)
		assert.Equal(t, 300*time.Millisecond, time.Since(start))
	})
}

func TestDuplicateNodeUnknownIsNoError(t *testing.T) {
	play(t, func(f field) {
		f.nodes[1].On("info", 1000, embedded.Fault{Err: "NOPERM"})
		var pools []pool.Pool
		for _, i := range []int{0, 1, 2, 1, 4} {
			pools = append(pools, pool.New(f.nodes[i].Client()))
		}
		m := redsync.New(pools...).NewMutex("lock")
		require.NoError(t, m.TryLock())
		ok, err := m.Unlock()
		require.NoError(t, err)
		assert.True(t, ok)
	})
}

// An address moves to the server of another, and back.
func TestDuplicateNodeFoundLater(t *testing.T) {
	for _, guarded := range []bool{false, true} {
		t.Run(fmt.Sprintf("guarded=%v", guarded), func(t *testing.T) {
			play(t, func(f field) {
				var moving movable
				moving.to.Store(f.nodes[1])
				var of []pool.Option
				if guarded {
					of = []pool.Option{pool.WithRestartGuard(guard), pool.WithNewNodes()}
				}
				var pools []pool.Pool
				for i, n := range f.nodes {
					client := n.Client()
					if i == 1 {
						client = moving.client()
					}
					pools = append(pools, pool.New(client, of...))
				}
				rs := redsync.New(pools...)
				m := rs.NewMutex("lock")
				require.NoError(t, m.TryLock())

				moving.to.Store(f.nodes[0])
				f.nodes[1].Kill()
				time.Sleep(time.Millisecond)
				for range 2 { // the first finds that the connection is gone
					ok, err := m.Extend()
					require.NoError(t, err)
					assert.True(t, ok)
					time.Sleep(100 * time.Millisecond)
				}
				require.ErrorIs(t, rs.NewMutex("other").TryLock(), redsync.ErrDuplicateNode)
				ok, err := m.Valid()
				require.NoError(t, err)
				assert.True(t, ok)
				assert.Positive(t, m.Remaining())

				// Of 0 = 1, 2, 3 and 4 two are gone: the votes of 0, 1 and 2 are two.
				f.freeze(3, 4)
				until := m.Until()
				ctx, cancel := context.WithTimeout(f.Context(), time.Second)
				defer cancel()
				ok, err = m.ExtendContext(ctx)
				assert.False(t, ok)
				require.ErrorIs(t, err, redsync.ErrExtendFailed)
				assert.Equal(t, until, m.Until())
				f.nodes[3].Thaw()
				f.nodes[4].Thaw()
				ok, err = m.Unlock()
				require.NoError(t, err)
				assert.True(t, ok)

				time.Sleep(time.Minute) // no release is repeated any more
				moving.to.Store(f.nodes[1])
				f.nodes[1].Restart(true)
				f.nodes[0].Kill() // with the connections that led there
				f.nodes[0].Restart(true)
				time.Sleep(time.Second)
				wake(rs)
				time.Sleep(time.Second)
				require.NoError(t, rs.NewMutex("lock").TryLock())
			})
		})
	}
}

func TestDuplicateNodeThatIsDownByNowIsNone(t *testing.T) {
	play(t, func(f field) {
		var moving movable
		moving.to.Store(f.nodes[0])
		pools := []pool.Pool{pool.New(f.nodes[0].Client()), pool.New(moving.client())}
		for _, n := range f.nodes[2:] {
			pools = append(pools, pool.New(n.Client()))
		}
		rs := redsync.New(pools...)
		require.ErrorIs(t, rs.NewMutex("lock").TryLock(), redsync.ErrDuplicateNode)
		moving.to.Store(f.nodes[1])
		f.nodes[1].Kill()
		time.Sleep(time.Minute) // the connection to the wrong one has ended
		m := rs.NewMutex("lock")
		require.NoError(t, m.TryLock())
		_, err := m.Unlock()
		require.NoError(t, err)
		f.nodes[1].Restart(true)
		require.NoError(t, m.TryLock())
	})
}

// What the first Lock waits for.

func TestFirstLockWaitsForEveryNodeOnce(t *testing.T) {
	for name, c := range map[string]struct {
		fault func(f field)
		want  time.Duration
	}{
		"all answer":                       {func(field) {}, 0},
		"one is frozen: the node deadline": {func(f field) { f.freeze(4) }, 400 * time.Millisecond},
		"one is slow": {func(f field) {
			f.nodes[2].On("set", 1, embedded.Fault{Delay: 70 * time.Millisecond})
		}, 70 * time.Millisecond},
		"two are dead": {func(f field) {
			f.nodes[0].Kill()
			f.nodes[1].Kill()
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(f field) {
				c.fault(f)
				start := time.Now()
				m := f.NewMutex("lock")
				require.NoError(t, m.TryLock())
				assert.Equal(t, c.want, time.Since(start))
				assert.Equal(t, start.Add(validity).UnixNano(), m.Until().UnixNano())
				start = time.Now()
				require.NoError(t, f.NewMutex("other").TryLock())
				require.NoError(t, f.With(redsync.WithExpiry(time.Minute)).NewMutex("third").TryLock(), "a copy knows as much")
				assert.Zero(t, time.Since(start))
			})
		})
	}
}

func TestFirstLockThatFailsHasWaitedToo(t *testing.T) {
	play(t, func(f field) {
		for i := range 3 {
			require.NoError(t, f.nodes[i].Set("lock", "another"))
		}
		f.freeze(4)
		start := time.Now()
		require.ErrorIs(t, f.NewMutex("lock").TryLock(), redsync.ErrFailed)
		assert.Equal(t, 400*time.Millisecond, time.Since(start))
		require.NoError(t, f.NewMutex("free").TryLock())
		assert.Equal(t, 400*time.Millisecond, time.Since(start))
	})
}

// The caller keeps half of the time that its context has left.
func TestFirstLockLeavesTimeToItsContext(t *testing.T) {
	for name, c := range map[string]struct{ timeout, want time.Duration }{
		"shorter than the node deadline": {100 * time.Millisecond, 50 * time.Millisecond},
		"hardly longer":                  {500 * time.Millisecond, 250 * time.Millisecond},
		"long enough":                    {time.Second, 400 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(f field) {
				f.freeze(4)
				ctx, cancel := context.WithTimeout(f.Context(), c.timeout)
				defer cancel()
				start := time.Now()
				require.NoError(t, f.NewMutex("lock").LockContext(ctx))
				require.NoError(t, ctx.Err())
				assert.Equal(t, c.want, time.Since(start))
			})
		})
	}
}

func TestFirstLockThatIsInterruptedHasWaitedForAll(t *testing.T) {
	play(t, func(f field) {
		f.freeze(4)
		ctx, cancel := context.WithCancel(f.Context())
		time.AfterFunc(30*time.Millisecond, cancel)
		start := time.Now()
		_ = f.NewMutex("lock").LockContext(ctx)
		require.NoError(t, f.NewMutex("other").Lock())
		assert.Equal(t, 30*time.Millisecond, time.Since(start))
	})
}

// clients returns a client of each node.
func (f field) clients() (clients []*redis.Client) {
	for _, n := range f.nodes {
		clients = append(clients, n.Client())
	}
	return clients
}

// on returns a Redsync on pools of its own.
func on(clients []*redis.Client, options ...pool.Option) *redsync.Redsync {
	var pools []pool.Pool
	for _, c := range clients {
		pools = append(pools, pool.New(c, options...))
	}
	return redsync.New(pools...)
}

// A program may call New for every request: the process waits once.
func TestFirstLockOfAProcessWaitsForEveryNodeOnce(t *testing.T) {
	play(t, func(f field) {
		f.freeze(0)
		clients := f.clients()
		var took []time.Duration
		for range 3 {
			rs := on(clients)
			m, start := rs.NewMutex("lock"), time.Now()
			require.NoError(t, m.Lock())
			took = append(took, time.Since(start))
			_, _ = m.Unlock()
			_ = rs.Close(f.Context())
		}
		assert.Equal(t, []time.Duration{400 * time.Millisecond, 0, 0}, took)
	})
}

// A host that is off drops what it is sent: connecting to it takes until go-redis gives
// up.
func TestDoSucceedsInTimeWithOneHostOff(t *testing.T) {
	play(t, func(f field) {
		clients := f.clients()
		clients[0].Options().Dialer = func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		rs := on(clients)
		for range 30 {
			ctx, cancel := context.WithTimeout(f.Context(), 2*time.Second)
			// The node deadline is 3 s.
			err := rs.Do(ctx, "lock", func(ctx context.Context) error { return ctx.Err() }, redsync.WithExpiry(time.Minute))
			cancel()
			require.NoError(t, err)
			time.Sleep(10 * time.Second)
		}
		_ = rs.Close(f.Context())
		time.Sleep(time.Minute)
	})
}

// On real servers.

func TestRestartGuardOnRealServers(t *testing.T) {
	const expiry = 8 * time.Second
	for _, guarded := range []bool{true, false} {
		t.Run(fmt.Sprintf("guarded=%v", guarded), func(t *testing.T) {
			t.Parallel()
			servers := realredis.Start(t, 5)
			veteran := func() *redsync.Redsync {
				var pools []pool.Pool
				for _, s := range servers {
					of := []pool.Option{pool.WithNewNodes()}
					if guarded {
						of = append(of, pool.WithRestartGuard(expiry))
					}
					pools = append(pools, pool.New(s.Client(), of...))
				}
				rs := redsync.New(pools...).With(redsync.WithExpiry(expiry), redsync.WithTimeoutFactor(0.25))
				meet := rs.NewMutex("meet")
				require.NoError(t, meet.Lock())
				_, err := meet.Unlock()
				require.NoError(t, err)
				t.Cleanup(func() { _ = rs.Close(context.Background()) }) //nolint:usetesting // t's is done then
				return rs
			}
			a, b := veteran(), veteran()
			m := a.NewMutex("lock")
			require.NoError(t, m.Lock())
			until := m.Until()
			for _, s := range servers[:3] {
				s.Kill()
				s.Restart()
			}
			if m.Remaining() < expiry/2 {
				t.Skip("the restarts took most of the hold's time")
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			other := b.NewMutex("lock", redsync.WithTries(0), redsync.WithRetryDelay(5*time.Millisecond))
			require.NoError(t, other.LockContext(ctx))
			entered := time.Now()
			if !guarded {
				assert.True(t, entered.Before(until), "two holders, without the guard")
				return
			}
			assert.True(t, entered.After(until), "entered %v before the holder was over", until.Sub(entered))
		})
	}
}

// guardedOn returns a Redsync under the guard on real servers, which are new.
func guardedOn(t *testing.T, servers []*realredis.Server, guard time.Duration, more ...pool.Option) *redsync.Redsync {
	t.Helper()
	var pools []pool.Pool
	for _, s := range servers {
		pools = append(pools, pool.New(s.Client(), append(more, pool.WithRestartGuard(guard))...))
	}
	rs := redsync.New(pools...).With(redsync.WithExpiry(guard), redsync.WithNodeTimeout(guard/4))
	t.Cleanup(func() { _ = rs.Close(context.Background()) }) //nolint:usetesting // t's is done then
	return rs
}

func reboot(servers ...*realredis.Server) {
	for _, s := range servers {
		s.Kill()
		s.Restart()
	}
}

func TestRestartGuardOnRealServersAFreshDeploymentWaits(t *testing.T) {
	t.Parallel()
	servers := realredis.Start(t, 3)
	const guard = 6 * time.Second
	started := time.Now()
	reboot(servers...) // an uptime of 0, however long the start took
	waiting := guardedOn(t, servers, guard)
	err := waiting.NewMutex("lock").TryLock()
	require.ErrorContains(t, err, "it counts from")
	told := guardedOn(t, servers, guard, pool.WithNewNodes()).NewMutex("lock")
	require.NoError(t, told.Lock())
	_, err = told.Unlock()
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, waiting.NewMutex("lock", redsync.WithTries(0)).LockContext(ctx))
	assert.Greater(t, time.Since(started), guard)
}

func TestRestartGuardOnRealServersOneAfterAnother(t *testing.T) {
	t.Parallel()
	servers := realredis.Start(t, 5)
	a := guardedOn(t, servers, 6*time.Second, pool.WithNewNodes())
	b := guardedOn(t, servers, 6*time.Second, pool.WithNewNodes())
	for _, rs := range []*redsync.Redsync{a, b} { // meet the nodes
		m := rs.NewMutex("meet")
		require.NoError(t, m.Lock())
		_, err := m.Unlock()
		require.NoError(t, err)
	}
	m := a.NewMutex("lock", redsync.WithSetNXOnExtend())
	require.NoError(t, m.Lock())
	other := b.NewMutex("lock")
	for _, s := range servers[:3] {
		reboot(s)
		require.Error(t, other.TryLock())
		time.Sleep(200 * time.Millisecond)
	}
	// The first two Extends may find connections gone and keys missing; whatever
	// they set again is on nodes that do not count.
	for range 4 {
		if m.Remaining() == 0 {
			t.Skip("the restarts took the hold's time")
		}
		ok, err := m.Extend()
		assert.False(t, ok)
		require.Error(t, err)
		require.Error(t, other.TryLock())
		time.Sleep(200 * time.Millisecond)
	}
	// Releases are for all nodes, young or not.
	_, _ = m.Unlock()
	assert.Eventually(t, func() bool {
		left := 0
		for _, s := range servers {
			if v, _ := s.Do("get", "lock"); v != nil {
				left++
			}
		}
		return left == 0
	}, 30*time.Second, 20*time.Millisecond)
}

func TestDuplicateNodeOnRealServers(t *testing.T) {
	t.Parallel()
	servers := realredis.Start(t, 2)
	one := servers[0].Addr()
	alias := strings.Replace(one, "127.0.0.1", "localhost", 1)
	addresses := []string{one, servers[1].Addr(), alias}

	rs, err := redsync.Open(t.Context(), addresses)
	if err == nil { // a quorum of different servers has answered first
		err = rs.NewMutex("lock", redsync.WithNodeTimeout(3*time.Second)).TryLock()
		_ = rs.Close(t.Context())
	}
	require.ErrorIs(t, err, redsync.ErrDuplicateNode)
	require.ErrorContains(t, err, fmt.Sprintf("two pools lead to one server: #0 (%s) and #2 (localhost:", servers[0].Addr()))

	var pools []pool.Pool
	for _, address := range addresses {
		client := redis.NewClient(&redis.Options{
			Addr:                     address,
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		})
		t.Cleanup(func() { _ = client.Close() })
		pools = append(pools, pool.New(client))
	}
	rs = redsync.New(pools...).With(redsync.WithNodeTimeout(3 * time.Second))
	require.ErrorIs(t, rs.NewMutex("lock").TryLock(), redsync.ErrDuplicateNode)
	require.NoError(t, rs.Close(t.Context()))
	for _, s := range servers {
		left, err := s.Do("dbsize")
		require.NoError(t, err)
		assert.Zero(t, left)
	}

	_, err = redsync.Open(t.Context(), []string{one, alias})
	require.ErrorIs(t, err, redsync.ErrDuplicateNode, "two votes of one server are no quorum of two")
}
