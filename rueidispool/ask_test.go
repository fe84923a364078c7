package rueidispool

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/wire"
	"github.com/seed14bd9ef4/redsync/pool"
)

// inbox is a Receiver.
type inbox chan wire.Reply

func (in inbox) Receive(_ int, reply wire.Reply) { in <- reply }

// ask sends one request and waits for its reply.
func ask(t *testing.T, p pool.Pool, args ...any) wire.Reply {
	t.Helper()
	in := make(inbox, 1)
	require.NoError(t, p.Send(wire.Request{Args: args, To: in}))
	return in.wait(t)
}

// wait returns the next reply. In a bubble of testing/synctest the minute is virtual.
func (in inbox) wait(t *testing.T) wire.Reply {
	t.Helper()
	limit := time.NewTimer(time.Minute)
	defer limit.Stop()
	select {
	case reply := <-in:
		return reply
	case <-limit.C:
		t.Fatal("no reply within a minute")
		return wire.Reply{}
	}
}

// answer is ask for requests that the node must answer without an error.
func answer(t *testing.T, p pool.Pool, args ...any) wire.Reply {
	t.Helper()
	reply := ask(t, p, args...)
	require.NoError(t, reply.Err)
	require.Equal(t, wire.Answered, reply.Fate)
	return reply
}

// answered is answer for a server. It repeats the request while a slow machine needs longer than a timeout.
func answered(t *testing.T, p pool.Pool, args ...any) (reply wire.Reply) {
	t.Helper()
	require.Eventually(t, func() bool {
		reply = ask(t, p, args...)
		return reply.Err == nil
	}, time.Minute, 10*time.Millisecond)
	return reply
}

// refusedWith repeats a request until its error is as it should be. The request must never be sent.
func refusedWith(t *testing.T, p pool.Pool, as func(err error) bool) {
	t.Helper()
	require.Eventually(t, func() bool {
		reply := ask(t, p, "ping")
		require.Equal(t, wire.NotSent, reply.Fate)
		return as(reply.Err)
	}, time.Minute, 10*time.Millisecond)
}

// saying returns a condition for refusedWith.
func saying(text string) func(error) bool {
	return func(err error) bool { return strings.Contains(err.Error(), text) }
}

// poolOf returns a pool of the node that option describes. The end of the test closes it, and its client.
func poolOf(t *testing.T, option rueidis.ClientOption, options ...pool.Option) pool.Pool {
	t.Helper()
	opt, err := Options(option)
	require.NoError(t, err)
	client := redis.NewClient(opt)
	p := pool.New(client, options...)
	t.Cleanup(func() {
		require.NoError(t, p.Close())
		require.NoError(t, client.Close())
	})
	return p
}
