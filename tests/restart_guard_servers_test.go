package redsync_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/testkit/realredis"
	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
	"github.com/seed14bd9ef4/redsync/pool"
)

// This file shows the restart guard on real servers.

// declaredNew returns pool.WithNoLocksBefore for servers that have just been started. It waits until they are so old
// that they all count. A server that restarts from now on does not count.
func declaredNew(t *testing.T, servers []*realredis.Server) pool.Option {
	t.Helper()
	for _, s := range servers {
		require.Eventually(t, func() bool { return uptime(t, s) >= 3 }, minute, 100*ms)
	}
	return pool.WithNoLocksBefore(time.Now().Round(0))
}

func TestRestartGuardOnRealServers(t *testing.T) {
	testlength.NotWhileAPersonWaits(t)
	t.Parallel()
	for guarded, expiry := range map[bool]time.Duration{true: 8 * sec, false: minute} {
		t.Run(fmt.Sprintf("guarded=%v", guarded), func(t *testing.T) {
			t.Parallel()
			servers := realredis.Start(t, 5)
			fresh := declaredNew(t, servers)
			options := []pool.Option{fresh}
			if guarded {
				options = append(options, pool.WithRestartGuard(expiry))
			}
			process := func() *redsync.Redsync {
				var clients []*redis.Client
				for _, s := range servers {
					clients = append(clients, s.Client())
				}
				rs := on(clients, options...).With(withExpiry(expiry), redsync.WithTimeoutFactor(0.25))
				closesSoon(t, rs)
				return rs
			}
			veteran := func() *redsync.Redsync {
				rs := process()
				meet := locked(t, rs.NewMutex("meet"))
				confirmed(t, meet.Unlock)
				return rs
			}
			a, others := veteran(), []*redsync.Redsync{veteran()}
			m := locked(t, a.NewMutex("lock"))
			until := m.Until()
			for _, s := range servers[:3] {
				s.Kill()
				s.Restart()
			}
			if m.Remaining() < expiry/2 {
				t.Skip("the servers restarted too slowly: most of the hold's time is over")
			}
			ctx := limited(t, minute)
			others = append(others, process()) // it starts now, and has the same options
			entered := make(chan time.Time)
			for _, rs := range others {
				go func() {
					other := rs.NewMutex("lock", forever, withRetryDelay(5*ms))
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
					assert.True(t, at.Before(until)) // without the guard, another process gets the lock before the first hold ends
				}
			}
		})
	}
}

// uptime returns how long a server has run, in seconds.
func uptime(t *testing.T, s *realredis.Server) int {
	t.Helper()
	_, text, found := strings.Cut(fmt.Sprint(realredis.Must(t, s, "info", "server")), "uptime_in_seconds:")
	require.True(t, found)
	text, _, _ = strings.Cut(text, "\r\n")
	seconds, err := strconv.Atoi(text)
	noError(t, err)
	return seconds
}
