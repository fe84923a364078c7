package redsync_test

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/realredis"
	"github.com/seed14bd9ef4/redsync/pool"
)

// The machine of the only node stops, so no connection ends, and its name leads to the replica from then on. The watchdogs
// must extend their locks there before these expire, which is sooner than a silent connection is given up.
func TestWatchdogsFollowTheNameOfAStoppedMachine(t *testing.T) {
	t.Parallel()
	primary := realredis.Start(t, 1, "--repl-diskless-sync-delay", "0")[0]
	host, port, _ := net.SplitHostPort(primary.Addr())
	replica := realredis.Start(t, 1, "--replicaof", host, port)[0]
	var at atomic.Value
	at.Store(primary.Addr())
	client := redis.NewClient(&redis.Options{Addr: "redis.example:6379", Dialer: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, at.Load().(string))
	}})
	t.Cleanup(func() { _ = client.Close() })
	rs := redsync.New(pool.New(client)).With(redsync.WithExpiry(5*time.Second), redsync.WithWatchdog())
	var held []*redsync.Mutex
	for i := range 10 {
		m := rs.NewMutex(fmt.Sprint("job:", i))
		require.NoError(t, m.Lock())
		held = append(held, m)
	}
	require.Eventually(t, func() bool { n, err := replica.Do("dbsize"); return err == nil && n == int64(len(held)) }, 30*time.Second, 10*time.Millisecond)
	primary.Freeze()
	realredis.Must(t, replica, "replicaof", "no", "one")
	at.Store(replica.Addr())
	time.Sleep(6 * time.Second) //nolint:forbidigo // servers do not signal
	for _, m := range held {
		assert.NoError(t, m.Err(), m.Name())
		ok, err := m.Unlock()
		assert.True(t, ok, "%s: %v", m.Name(), err)
	}
	primary.Thaw()
	require.NoError(t, rs.Close(t.Context()))
}
