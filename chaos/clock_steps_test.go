package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/realredis"
	"github.com/seed14bd9ef4/redsync/observe"
	"github.com/seed14bd9ef4/redsync/pool"
)

// countsExtensions is an observer that counts the extensions that have succeeded.
type countsExtensions struct{ n atomic.Int64 }

func (c *countsExtensions) ObserveExtended(_ context.Context, e observe.Extended) {
	if e.Err == nil {
		c.n.Add(1)
	}
}

// While one client holds a lock and another one waits for it, the clocks of two of five servers step by a minute. The
// holder keeps the lock for as long as it wants. After that, or after the TTL if the holder never unlocks, the waiter
// gets it, although servers that were set back would keep the key for another minute. For all modes see
// TestSimulationWhileClocksStep in internal/simulation.
func TestClocksOfServersStepWhileALockIsHeldAndWaitedFor(t *testing.T) {
	realredis.Start(t, 0) // skips the test where there is no redis-server
	library := needFakeTime(t)
	const expiry, stepped = 9 * time.Second, 2
	for _, by := range []time.Duration{time.Minute, -time.Minute} {
		for name, unlocks := range map[string]bool{"and unlocked": true, "and never unlocked": false} {
			t.Run(fmt.Sprintf("by %v, %s", by, name), func(t *testing.T) {
				t.Parallel()
				s := &stage{t: t}
				for range 5 {
					s.startWithClock(library)
				}
				process := func() *redsync.Redsync {
					var pools []pool.Pool
					for _, server := range s.servers {
						pools = append(pools, pool.New(server.Client()))
					}
					rs := redsync.New(pools...).With(redsync.WithTimeoutFactor(0.4)) // a slow machine may answer late
					t.Cleanup(func() { _ = rs.Close(context.Background()) })         //nolint:usetesting // the context of t has ended by then
					return rs
				}
				keys := func() (n int) {
					for i := range s.servers {
						n += int(s.do(i, "exists", "lock").(int64))
					}
					return n
				}
				extensions := &countsExtensions{}
				options := []redsync.Option{redsync.WithExpiry(expiry), redsync.WithTries(0), redsync.WithObserver(extensions)}
				if unlocks {
					options = append(options, redsync.WithWatchdog())
				}
				first := process().NewMutex("lock", options...)
				require.NoError(t, first.Lock())
				s.until("all servers have the key", func() bool { return keys() == len(s.servers) })

				ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second) // less than a minute
				defer cancel()
				second, served := process().NewMutex("lock", options[:2]...), make(chan error, 1)
				go func() {
					err := second.LockContext(ctx)
					if first.Remaining() > 0 {
						err = errors.Join(err, errors.New("two clients hold the lock"))
					}
					served <- err
				}()
				s.jump(0, stepped, by)
				if by > 0 {
					s.until("the key has expired on two servers", func() bool { return keys() == len(s.servers)-stepped })
				} else {
					assert.Greater(t, s.do(0, "pttl", "lock").(int64), (-by).Milliseconds(), "the server keeps the key for longer")
				}
				if unlocks {
					before := extensions.n.Load()
					s.until("the lock was extended", func() bool { return extensions.n.Load() >= before+3 }) // beyond the first expiry
					assert.Empty(t, served)
					require.NoError(t, first.Err())
					_, err := first.Unlock()
					require.NoError(t, err)
				}
				require.NoError(t, <-served)
				assert.Positive(t, second.Remaining())
				if !unlocks {
					require.ErrorIs(t, first.Err(), redsync.ErrLockLost)
				}
				_, err := second.Unlock()
				require.NoError(t, err)
			})
		}
	}
}
