package pool

import (
	"context"
	"errors"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/embedded"
)

// replies is a Receiver that a test reads from.
type replies chan Reply

func (r replies) Receive(_ int, reply Reply) { r <- reply }

// ask sends one request and waits for the reply.
func ask(t *testing.T, p Pool, args ...any) Reply {
	t.Helper()
	in := make(replies, 1)
	require.NoError(t, p.Send(Request{Args: args, To: in}))
	return in.wait(t)
}

func (r replies) wait(t *testing.T) Reply {
	t.Helper()
	select {
	case reply := <-r:
		return reply
	case <-time.After(2 * time.Minute): //nolint:forbidigo // a failing test only
		t.Fatal("the pool delivered no reply within 2 minutes")
		return Reply{}
	}
}

func answer(t *testing.T, p Pool, args ...any) Reply {
	t.Helper()
	r := ask(t, p, args...)
	require.NoError(t, r.Err)
	require.Equal(t, Answered, r.Fate)
	return r
}

// bubble runs f in virtual time with one embedded node.
func bubble(t *testing.T, f func(t *testing.T, node *embedded.Node)) {
	t.Helper()
	virtual(t, func(t *testing.T) { // which waits until go-redis stops looking for dead nodes, too
		nodes := embedded.Start(1)
		t.Cleanup(nodes.Close)
		f(t, nodes[0])
	})
}

// clientOf returns a client of the node; change edits its options.
func clientOf(t *testing.T, node *embedded.Node, change func(*redis.Options)) *redis.Client {
	t.Helper()
	options := &redis.Options{
		Addr:                     "127.0.0.1:7001",
		Dialer:                   node.Dial,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	if change != nil {
		change(options)
	}
	client := redis.NewClient(options)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// notAClient is a client that is not a *redis.Client.
type notAClient struct{ redis.UniversalClient }

// bothPools runs f twice, with pools of a *redis.Client and with pools of another client.
func bothPools(t *testing.T, f func(t *testing.T, node *embedded.Node, of func(*redis.Client, ...Option) Pool)) {
	t.Helper()
	t.Run("client", func(t *testing.T) {
		bubble(t, func(t *testing.T, node *embedded.Node) {
			f(t, node, func(c *redis.Client, options ...Option) Pool { return New(c, options...) })
		})
	})
	t.Run("other client", func(t *testing.T) {
		bubble(t, func(t *testing.T, node *embedded.Node) {
			f(t, node, func(c *redis.Client, options ...Option) Pool { return New(notAClient{c}, options...) })
		})
	})
}

func TestNewBadArgumentIsTheErrorOfSend(t *testing.T) {
	good := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { _ = good.Close() })
	for name, c := range map[string]struct {
		client  redis.UniversalClient
		options []Option
		want    []string
	}{
		"nil client":         {nil, nil, []string{"nil client"}},
		"nil *redis.Client":  {(*redis.Client)(nil), nil, []string{"nil client", "*redis.Client"}},
		"nil cluster client": {(*redis.ClusterClient)(nil), nil, []string{"nil client", "*redis.ClusterClient"}},
		"limit 0":            {good, []Option{WithOutstanding(0)}, []string{"WithOutstanding(0)", "1 to 16384"}},
		"limit 16385":        {good, []Option{WithOutstanding(16385)}, []string{"WithOutstanding(16385)", "1 to 16384"}},
		"nil option":         {good, []Option{nil}, []string{"nil Option"}},
		"other, guard":       {notAClient{good}, []Option{WithRestartGuard(1)}, []string{"WithRestartGuard(1ns) needs a *redis.Client"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := New(c.client, c.options...)
			in := make(replies, 1)
			for range 2 {
				err := p.Send(Request{Args: []any{"ping"}, To: in})
				require.Error(t, err)
				for _, want := range c.want {
					require.ErrorContains(t, err, want)
				}
			}
			_, err := p.(Subscriber).Subscribe("channel", NewEar())
			require.ErrorContains(t, err, c.want[0])
			require.NotEmpty(t, p.String())
			p.CloseIdle()
			require.NoError(t, p.Close())
			require.Empty(t, in)
		})
	}
}

func TestWithOutstandingRange(t *testing.T) {
	for _, c := range []struct {
		options []Option
		limit   int
	}{
		{nil, 4096},
		{[]Option{WithOutstanding(16384)}, 16384},
	} {
		bothPools(t, func(t *testing.T, node *embedded.Node, of func(*redis.Client, ...Option) Pool) {
			p := of(clientOf(t, node, nil), c.options...)
			answer(t, p, "ping")
			node.Freeze()
			in, start := make(replies, 4*maxOutstanding), time.Now()
			send := func(reserved bool) (accepted int) {
				for accepted < 40000 && p.Send(Request{Args: []any{"ping"}, To: in, Reserved: reserved}) == nil {
					accepted++
				}
				return accepted
			}
			require.Equal(t, c.limit, send(false))
			require.Equal(t, 32768-c.limit, send(true), "how many reserved requests Send accepts beyond the limit")
			require.Zero(t, time.Since(start), "time that 32,768 requests to a frozen node took")
			var full *OutstandingError
			require.ErrorAs(t, p.Send(Request{Args: []any{"ping"}, To: in}), &full)
			require.Equal(t, c.limit, full.Limit)
			node.Kill()
			for range 32768 {
				require.NotEqual(t, Answered, in.wait(t).Fate)
			}
			require.NoError(t, p.Close())
		})
	}
}

// Requests to a frozen node fail after the ReadTimeout of the user's client. If that is longer than
// 5 s or unlimited, they fail after 5 s.
func TestSendToFrozenNodeFailsInTime(t *testing.T) {
	for user, want := range map[time.Duration]time.Duration{
		-1:          5 * time.Second,
		-2:          5 * time.Second,
		time.Minute: 5 * time.Second,
		time.Second: time.Second,
	} {
		bubble(t, func(t *testing.T, node *embedded.Node) {
			client := clientOf(t, node, func(o *redis.Options) { o.ReadTimeout, o.MaxRetries = user, 10 })
			p := New(client)
			answer(t, p, "ping")
			node.Freeze()
			start := time.Now()
			lost := ask(t, p, "incr", "n")
			require.Equal(t, Unknown, lost.Fate)
			require.ErrorIs(t, lost.Err, os.ErrDeadlineExceeded)
			require.Equal(t, want, time.Since(start), "ReadTimeout %d", user)

			r := ask(t, p, "incr", "m") // waits for the greeting on a new connection
			require.ErrorIs(t, r.Err, os.ErrDeadlineExceeded)
			require.Equal(t, NotSent, r.Fate)
			require.Equal(t, 2*want, time.Since(start))
			node.Thaw()
			answer(t, p, "ping")
			time.Sleep(time.Hour)
			require.LessOrEqual(t, node.Commands("incr"), 1)
			require.NoError(t, p.Close())
		})
	}
}

func TestSendOfAnIncompleteRequestIsAnError(t *testing.T) {
	bubble(t, func(t *testing.T, node *embedded.Node) {
		client := clientOf(t, node, nil)
		for _, p := range []Pool{New(client), New(struct{ redis.UniversalClient }{client})} {
			require.ErrorContains(t, p.Send(Request{To: make(replies, 1)}), "needs Args and To")
			require.ErrorContains(t, p.Send(Request{Args: []any{"ping"}}), "needs Args and To")
			require.NoError(t, p.Close())
		}
	})
}

func TestFateString(t *testing.T) {
	require.Equal(t, "not sent, answered, unknown", strings.Join([]string{NotSent.String(), Answered.String(), Fate(0).String()}, ", "))
}

func TestNewLeavesTheUsersClientAlone(t *testing.T) {
	bubble(t, func(t *testing.T, node *embedded.Node) {
		client := clientOf(t, node, nil)
		client.AddHook(forbidding{t})
		before, options := *client.PoolStats(), *client.Options()
		p := New(client)
		require.Equal(t, "127.0.0.1:7001", p.String())
		answer(t, p, "ping")
		require.Equal(t, before, *client.PoolStats(), "the pool must not use the connections of the user's client")
		synctest.Wait()
		require.Equal(t, 1, node.CurrentConnectionCount())
		require.NoError(t, p.Close())
		synctest.Wait()
		require.Zero(t, node.CurrentConnectionCount())
		require.True(t, same(reflect.ValueOf(options.Dialer), reflect.ValueOf(client.Options().Dialer)))
		require.True(t, same(reflect.ValueOf(options.PushNotificationProcessor), reflect.ValueOf(client.Options().PushNotificationProcessor)))
		require.Equal(t, options.MaxRetries, client.Options().MaxRetries)
	})
}

// forbidding is a hook of the user's client. It fails the test if a request of a pool goes through that
// client.
type forbidding struct{ t *testing.T }

func (h forbidding) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h forbidding) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error {
		h.t.Errorf("the pool sent %v through the user's client", cmd)
		return nil
	}
}

func (h forbidding) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(_ context.Context, cmds []redis.Cmder) error {
		h.t.Errorf("the pool sent %v through the user's client", cmds)
		return nil
	}
}

func TestCloseLeavesTheUsersClientUsable(t *testing.T) {
	bothPools(t, func(t *testing.T, node *embedded.Node, of func(*redis.Client, ...Option) Pool) {
		client := clientOf(t, node, nil)
		p, q := of(client), of(client)
		answer(t, p, "ping")
		answer(t, q, "ping")
		require.NoError(t, p.Close())
		require.NoError(t, client.Ping(t.Context()).Err())
		require.Equal(t, "PONG", answer(t, q, "ping").Value, "another pool of the same client must still work")
		require.NoError(t, q.Close())
		require.NoError(t, client.Ping(t.Context()).Err())
	})
}

func TestNewSharesOneStreamPerClient(t *testing.T) {
	bubble(t, func(t *testing.T, node *embedded.Node) {
		client := clientOf(t, node, nil)
		var conn uint64
		for range 10 {
			p := New(client) // like a program that makes new pools for every operation
			r := answer(t, p, "ping")
			if conn == 0 {
				conn = r.Conn
			}
			require.Equal(t, conn, r.Conn)
		}
		synctest.Wait()
		require.Equal(t, 1, node.CurrentConnectionCount())
		answer(t, New(clientOf(t, node, nil)), "ping")
		synctest.Wait()
		require.Equal(t, 2, node.CurrentConnectionCount(), "another client has another stream")
	})
}

// The stream ends exactly half a minute after the last reply.
func TestStreamEndsWhenIdle(t *testing.T) {
	bubble(t, func(t *testing.T, node *embedded.Node) {
		p := New(clientOf(t, node, nil))
		var last uint64
		for range 2 {
			conn := answer(t, p, "ping").Conn
			require.Greater(t, conn, last, "the pool must open a new connection after the idle one has ended")
			time.Sleep(29 * time.Second)
			require.Equal(t, conn, answer(t, p, "ping").Conn, "the stream must keep its connection")
			time.Sleep(30*time.Second - time.Nanosecond)
			synctest.Wait()
			require.Equal(t, 1, node.CurrentConnectionCount())
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			require.Zero(t, node.CurrentConnectionCount())
			streams.Lock()
			require.Empty(t, streams.running)
			streams.Unlock()
			last = conn
		}
	})
}

var testScript = NewScript("-- goredis_test\nreturn redis.call('GET', KEYS[1])")

func TestStreamLoadsScriptsOnConnect(t *testing.T) {
	bubble(t, func(t *testing.T, node *embedded.Node) {
		p, other := New(clientOf(t, node, nil)), clientOf(t, node, nil)
		for range 2 {
			require.Nil(t, answer(t, p, testScript.Args(1, "k")...).Value)
			node.Kill()
			node.Restart(true)
			require.NoError(t, other.ScriptFlush(t.Context()).Err())
			_ = ask(t, p, "ping") // may meet the end of the old connection
		}
	})
}

func TestStreamWithoutScriptLoadAnswersNoScript(t *testing.T) {
	bubble(t, func(t *testing.T, node *embedded.Node) {
		node.On("script", 1000, embedded.Fault{Err: "NOPERM this user has no permissions to run the 'script|load' command"})
		p := New(clientOf(t, node, nil))
		cmd := testScript.Args(1, "k")
		r := ask(t, p, cmd...)
		require.True(t, IsNoScript(r.Err), "%v", r.Err)
		require.Equal(t, Answered, r.Fate)
		require.Nil(t, answer(t, p, testScript.InFull(cmd)...).Value)
		require.Positive(t, node.Commands("script"), "the pool must try SCRIPT LOAD")
	})
}

func TestStreamRunsTheUsersOnConnectFirst(t *testing.T) {
	bubble(t, func(t *testing.T, node *embedded.Node) {
		var loaded []int
		fail := errors.New("not now")
		p := New(clientOf(t, node, func(o *redis.Options) {
			o.OnConnect = func(ctx context.Context, cn *redis.Conn) error {
				loaded = append(loaded, node.Commands("script"))
				if len(loaded) == 1 {
					return fail
				}
				return cn.Ping(ctx).Err()
			}
		}))
		r := ask(t, p, "incr", "n")
		require.ErrorIs(t, r.Err, fail)
		require.Equal(t, NotSent, r.Fate)
		require.Equal(t, int64(1), answer(t, p, "incr", "n").Value)
		require.Equal(t, []int{0, 0}, loaded, "how many scripts the pool had loaded at each call of OnConnect")
		require.Positive(t, node.Commands("script"))
	})
}

func TestScriptArgs(t *testing.T) {
	cmd := testScript.Args(2, "a", "b", "x", 1)
	require.Equal(t, []any{"evalsha", testScript.sha, 2, "a", "b", "x", 1}, cmd)
	require.Equal(t, []any{"eval", testScript.source, 2, "a", "b", "x", 1}, testScript.InFull(cmd))
	require.Equal(t, "evalsha", cmd[0], "InFull must not change the command that it is given")
	require.False(t, IsNoScript(nil))
	require.False(t, IsNoScript(errors.New("NOSCRIPT but not from a node")))
}

func TestNewScriptOfMakesTheSourceOnceAndLate(t *testing.T) {
	const source = "return 'late'"
	var made atomic.Int32
	late := NewScriptOf(func() string { made.Add(1); return source })
	require.Zero(t, made.Load())
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			assert.Equal(t, NewScript(source).Args(1, "a"), late.Args(1, "a"))
			assert.True(t, slices.Contains(knownScripts(), late)) // assert.Contains reads the scripts
			assert.Equal(t, []any{"eval", source, 1, "a"}, late.InFull(late.Args(1, "a")))
		})
	}
	wg.Wait()
	require.Equal(t, int32(1), made.Load())
}

func TestOutstandingErrorNamesTheLimit(t *testing.T) {
	require.EqualError(t, &OutstandingError{Limit: 5}, "pool: not sent: 5 replies are outstanding, the limit")
}
