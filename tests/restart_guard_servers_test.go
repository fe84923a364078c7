package redsync_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/realredis"
	"github.com/seed14bd9ef4/redsync/internal/testlength"
	"github.com/seed14bd9ef4/redsync/pool"
)

// This file shows the restart guard on real servers.

// guardedOn returns a Redsync with the restart guard on real servers that it has not met.
func guardedOn(t *testing.T, servers []*realredis.Server, guard time.Duration, more ...pool.Option) *redsync.Redsync {
	t.Helper()
	var pools []pool.Pool
	for _, s := range servers {
		pools = append(pools, pool.New(s.Client(), append(more, pool.WithRestartGuard(guard))...))
	}
	rs := redsync.New(pools...).With(redsync.WithExpiry(guard), redsync.WithNodeTimeout(guard/4))
	closesSoon(t, rs)
	return rs
}

func reboot(servers ...*realredis.Server) {
	for _, s := range servers {
		s.Kill()
		s.Restart()
	}
}

// declaredNew returns pool.WithNoLocksBefore for servers that have just been started. It waits until they are so old
// that they all count. A server that restarts from now on does not count.
func declaredNew(t *testing.T, servers []*realredis.Server) pool.Option {
	t.Helper()
	for _, s := range servers {
		require.Eventually(t, func() bool { return uptime(t, s) >= 3 }, time.Minute, 100*time.Millisecond)
	}
	return pool.WithNoLocksBefore(time.Now().Round(0))
}

func TestRestartGuardOnRealServers(t *testing.T) {
	t.Parallel()
	for guarded, expiry := range map[bool]time.Duration{true: 8 * time.Second, false: time.Minute} {
		t.Run(fmt.Sprintf("guarded=%v", guarded), func(t *testing.T) {
			t.Parallel()
			servers := realredis.Start(t, 5)
			fresh := declaredNew(t, servers)
			process := func() *redsync.Redsync {
				var pools []pool.Pool
				for _, s := range servers {
					of := []pool.Option{fresh}
					if guarded {
						of = append(of, pool.WithRestartGuard(expiry))
					}
					pools = append(pools, pool.New(s.Client(), of...))
				}
				rs := redsync.New(pools...).With(redsync.WithExpiry(expiry), redsync.WithTimeoutFactor(0.25))
				closesSoon(t, rs)
				return rs
			}
			veteran := func() *redsync.Redsync {
				rs := process()
				meet := rs.NewMutex("meet")
				require.NoError(t, meet.Lock())
				_, err := meet.Unlock()
				require.NoError(t, err)
				return rs
			}
			a, others := veteran(), []*redsync.Redsync{veteran()}
			m := a.NewMutex("lock")
			require.NoError(t, m.Lock())
			until := m.Until()
			for _, s := range servers[:3] {
				s.Kill()
				s.Restart()
			}
			if m.Remaining() < expiry/2 {
				t.Skip("the servers restarted too slowly: most of the hold's time is over")
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			others = append(others, process()) // it starts now, and has the same options
			entered := make(chan time.Time)
			for _, rs := range others {
				go func() {
					other := rs.NewMutex("lock", redsync.WithTries(0), redsync.WithRetryDelay(5*time.Millisecond))
					assert.NoError(t, other.LockContext(ctx))
					entered <- time.Now()
					_, _ = other.Unlock()
				}()
			}
			for range others {
				at := <-entered
				if guarded {
					assert.True(t, at.After(until), "another process got the lock %v before the first hold ended", until.Sub(at))
				} else {
					assert.True(t, at.Before(until), "without the guard, another process gets the lock before the first hold ends")
				}
			}
		})
	}
}

func TestRestartGuardOnRealServersAFreshDeploymentWaits(t *testing.T) {
	t.Parallel()
	servers := realredis.Start(t, 3)
	const guard = 8 * time.Second
	started := time.Now()
	reboot(servers...) // an uptime of 0, however long the start took
	waiting := guardedOn(t, servers, guard)
	err := waiting.NewMutex("lock").TryLock()
	for err != nil && !strings.Contains(err.Error(), "the restart guard (") { // a slow machine may answer too late
		require.ErrorContains(t, err, "no answer within")
		err = waiting.NewMutex("lock").TryLock()
	}
	require.Error(t, err)
	told := guardedOn(t, servers, guard, pool.WithNoLocksBefore(time.Now().Round(0).Add(3*time.Second))).NewMutex("lock")
	require.NoError(t, told.Lock())
	_, err = told.Unlock()
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, waiting.NewMutex("lock", redsync.WithTries(0)).LockContext(ctx))
	assert.Greater(t, time.Since(started), guard)
}

// A process holds one lock while all five servers restart, one after another. Between two of them is the time of the
// guard and the longest TTL, as docs/operating.md says. If the machine stalls, the lock may be lost. Then the scene is
// played once more, with a longer expiry.
func TestRestartGuardOnRealServersALockLivesThroughARollingRestart(t *testing.T) {
	testlength.NotShort(t)
	for name, c := range map[string]struct {
		server []string
		option redsync.Option
	}{
		"with their keys":  {[]string{"--appendonly", "yes", "--appendfsync", "always"}, redsync.WithWatchdog()},
		"without, healing": {nil, redsync.WithSetNXOnExtend()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, expiry := range []time.Duration{4 * time.Second, 8 * time.Second} {
				servers := realredis.Start(t, 5, c.server...)
				stalled := stallsOf(t, servers)
				err := rollingRestart(t, servers, expiry, c.option)
				if err == nil {
					return
				}
				require.Greater(t, stalled(), time.Second, err)
			}
			t.Error("the machine stalled in each play")
		})
	}
}

// rollingRestart returns an error if the lock does not outlive the restarts.
func rollingRestart(t *testing.T, servers []*realredis.Server, expiry time.Duration, option redsync.Option) error {
	t.Helper()
	wait := int(2*expiry/time.Second) + 2 // the guard, with a drift of 1 % and 1 s, and the TTL, in whole seconds
	fresh := declaredNew(t, servers)
	m := guardedOn(t, servers, expiry, fresh).NewMutex("lock", redsync.WithWatchdog(), option)
	require.NoError(t, m.Lock())
	other := guardedOn(t, servers, expiry, fresh).NewMutex("lock")
	for i, s := range servers {
		reboot(s)
		require.Eventually(t, func() bool { return uptime(t, s) >= wait }, time.Minute, 100*time.Millisecond)
		if err := m.Err(); err != nil {
			return err
		}
		if other.TryLock() == nil {
			return fmt.Errorf("after restart %d another process got the lock", i+1)
		}
	}
	ok, err := m.Unlock()
	if err != nil || !ok {
		return fmt.Errorf("unlock: %v, %w", ok, err)
	}
	return other.Lock()
}

// uptime returns how long a server has run, in seconds.
func uptime(t *testing.T, s *realredis.Server) int {
	t.Helper()
	_, text, found := strings.Cut(fmt.Sprint(realredis.Must(t, s, "info", "server")), "uptime_in_seconds:")
	require.True(t, found)
	text, _, _ = strings.Cut(text, "\r\n")
	seconds, err := strconv.Atoi(text)
	require.NoError(t, err)
	return seconds
}
