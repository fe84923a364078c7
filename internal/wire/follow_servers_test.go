package wire_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/testkit/realredis"
	"github.com/seed14bd9ef4/redsync/internal/testkit/stall"
	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
	"github.com/seed14bd9ef4/redsync/internal/wire"
)

// This file shows that a stream and a subscription follow a client of Sentinel to the new master.

func TestSentinelFailover(t *testing.T) {
	t.Parallel()
	for _, f := range realredis.Failovers {
		for _, size := range []int{0, 1} {
			t.Run(fmt.Sprintf("%s, PoolSize %d", f.Name, size), func(t *testing.T) {
				if size > 0 {
					testlength.NotWhileAPersonWaits(t)
				}
				t.Parallel()
				set := realredis.StartSentinelSet(t)
				of := func(user string) (*redis.Client, wire.Pool) {
					client := redis.NewFailoverClient(&redis.FailoverOptions{
						MasterName: set.Name, SentinelAddrs: []string{set.Sentinel.Addr()}, PoolSize: size, Username: user, Password: user,
					})
					t.Cleanup(func() { _ = client.Close() })
					return client, poolOf(t, client)
				}
				_, stranger := of("nobody")
				require.Equal(t, wire.NotSent, wire.Ask(t, stranger, "set", "k", "v").Fate, "the pool checks the greeting")
				client, p := of("")
				e, _ := listenTo(t, p, "channel")
				e.Again()
				hearsFrom(t, set.Master, e, "channel", "x")
				lockOnce(t, p, "lock")
				before := wire.Answer(t, p, "ping")
				require.Equal(t, set.Master.Addr(), p.String())
				require.NotZero(t, before.Conn, "a failover client has an ordered stream")
				require.Equal(t, runID(t, set.Master), before.Server.RunID)
				require.NoError(t, client.Ping(t.Context()).Err()) // so that go-redis has a connection to close

				machine := stall.Begin(t)
				require.NoError(t, f.Fail(set))
				owed := make(replies, 1)
				require.NoError(t, p.Send(wire.Request{Args: []any{"get", "k"}, To: owed}))
				set.Promoted(t)
				first := e.Hears("unsubscribed")
				eventually(t, "the stream leaves the old master", func() bool {
					r := wire.Ask(t, p, "set", "k", "v")
					return r.Err == nil && r.Server.RunID != before.Server.RunID
				})
				// On a machine that stands still, the old master may be found silent first, or be demoted soon.
				if r := <-owed; machine.Longest() < 200*time.Millisecond && !f.Cuts {
					require.ErrorContains(t, first.Err, "the client has moved to another node")
					if f.Name == "stall" {
						require.Equal(t, wire.Unknown, r.Fate)
						require.EqualError(t, r.Err, "pool: connection lost: the client has moved to another node")
						set.Master.Thaw()
					}
					require.Contains(t, fmt.Sprint(realredis.Must(t, set.Master, "role")), "master", "the Sentinel has not demoted the old master yet")
				}
				lockOnce(t, p, "lock")
				require.Equal(t, runID(t, set.Replica), wire.Answer(t, p, "ping").Server.RunID)
				require.Equal(t, set.Replica.Addr(), p.String())
				require.Equal(t, "v", realredis.Must(t, set.Replica, "get", "k"))
				e.Again()
				hearsFrom(t, set.Replica, e, "channel", "y")
			})
		}
	}
}

// replies receives replies.
type replies chan wire.Reply

func (r replies) Receive(_ int, reply wire.Reply) { r <- reply }

// runID returns the run_id of the server, asked without any pool.
func runID(t *testing.T, s *realredis.Server) string {
	t.Helper()
	info := realredis.Must(t, s, "info", "server")
	_, rest, found := strings.Cut(info.(string), "run_id:")
	require.True(t, found, info)
	id, _, _ := strings.Cut(rest, "\r\n")
	return id
}
