package wire

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
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

	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
)

// replies is a Receiver that a test reads from.
type replies chan Reply

func (r replies) Receive(_ int, reply Reply) { r <- reply }

// request is what the tests send most often.
func request(to Receiver, args ...any) Request { return Request{Args: args, To: to} }

func send(tb testing.TB, p Pool, to Receiver, args ...any) {
	tb.Helper()
	require.NoError(tb, p.Send(request(to, args...)))
}

// sent sends one request, whose reply can be awaited.
func sent(tb testing.TB, p Pool, args ...any) replies {
	tb.Helper()
	in := make(replies, 1)
	send(tb, p, in, args...)
	return in
}

// ask sends one request and waits for the reply.
func ask(tb testing.TB, p Pool, args ...any) Reply {
	tb.Helper()
	return sent(tb, p, args...).wait(tb)
}

func (r replies) wait(tb testing.TB) Reply {
	tb.Helper()
	select {
	case reply := <-r:
		return reply
	case <-time.After(2 * time.Minute): //nolint:forbidigo // a failing test only
		tb.Fatal("the pool delivered no reply within 2 minutes")
		return Reply{}
	}
}

func answer(tb testing.TB, p Pool, args ...any) Reply {
	tb.Helper()
	r := ask(tb, p, args...)
	require.NoError(tb, r.Err)
	require.Equal(tb, Answered, r.Fate)
	return r
}

// unsent asks for a key, and returns the error by which the request was not sent.
func unsent(tb testing.TB, p Pool) error {
	tb.Helper()
	r := ask(tb, p, "get", "key")
	require.Equal(tb, NotSent, r.Fate)
	require.Nil(tb, r.Server)
	return r.Err
}

// A scene is a test in virtual time, with an embedded node of its own.
type scene struct {
	*testing.T
	*embedded.Node

	of func(*redis.Client, Config) Pool
}

// pool returns a Pool of a new client of the node.
func (s *scene) pool(with ...Config) Pool { return s.of(s.client(), only(with)) }

// with returns a Pool of a client with other options.
func (s *scene) with(change func(*redis.Options)) Pool { return New(s.client(change), Config{}) }

// opened counts the connections that have been opened to the node so far.
func (s *scene) opened() int {
	return s.TotalConnectionCount() - 1 // without the one that the node opened itself when it started
}

// refuses makes the node answer a command with an error, that often.
func (s *scene) refuses(command string, times int, text string) {
	s.On(command, times, embedded.Fault{Err: text})
}

// settle sleeps, and then waits until nobody has anything to do.
func settle(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// connected fails unless so many connections to the node are open.
func (s *scene) connected(n int) {
	s.Helper()
	synctest.Wait()
	require.Equal(s, n, s.CurrentConnectionCount())
}

// client returns a client of the node; change edits its options.
func (s *scene) client(changes ...func(*redis.Options)) *redis.Client {
	options := &redis.Options{Addr: "127.0.0.1:7001", Dialer: s.Dial, MaintNotificationsConfig: noNotifications}
	for _, change := range changes {
		change(options)
	}
	return unused(s, options)
}

// unused returns a client that the end of the test closes.
func unused(tb testing.TB, o *redis.Options) *redis.Client {
	tb.Helper()
	client := redis.NewClient(o)
	tb.Cleanup(func() { _ = client.Close() })
	return client
}

var noNotifications = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}

// hangs is a Dialer that waits for the end of its context.
func hangs(ctx context.Context, _, _ string) (net.Conn, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// dialing returns a change of a client's options: the Dialer calls before, and returns what after returns. Both may be nil.
func dialing(before func(), after func(net.Conn) net.Conn) func(*redis.Options) {
	return func(o *redis.Options) {
		dial := o.Dialer
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if before != nil {
				before()
			}
			conn, err := dial(ctx, network, addr)
			if err == nil && after != nil {
				conn = after(conn)
			}
			return conn, err
		}
	}
}

// bubble plays a scene with pools of a *redis.Client.
func bubble(t *testing.T, play func(s *scene)) {
	t.Helper()
	bubbleOf(t, func(c *redis.Client, cfg Config) Pool { return New(c, cfg) }, play)
}

func bubbleOf(t *testing.T, of func(*redis.Client, Config) Pool, play func(s *scene)) {
	t.Helper()
	virtual(t, func(t *testing.T) { // which waits until go-redis stops looking for dead nodes, too
		nodes := embedded.Start(1)
		t.Cleanup(nodes.Close)
		play(&scene{t, nodes[0], of})
	})
}

// notAClient is a client that is not a *redis.Client.
type notAClient struct{ redis.UniversalClient }

// bothPools plays a scene twice, with pools of a *redis.Client and with pools of another client.
func bothPools(t *testing.T, play func(s *scene)) {
	t.Helper()
	t.Run("client", func(t *testing.T) { bubble(t, play) })
	t.Run("other client", func(t *testing.T) {
		bubbleOf(t, func(c *redis.Client, cfg Config) Pool { return New(notAClient{c}, cfg) }, play)
	})
}

// only returns what a test has given, or what pool.New has without options.
func only(with []Config) Config { return append(with, Config{})[0] }

// named plays a scene as a subtest.
func named(t *testing.T, name string, play func(s *scene)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { bubble(t, play) })
}

func TestNewBadArgumentIsTheErrorOfSend(t *testing.T) {
	good := unused(t, &redis.Options{})
	for name, c := range map[string]struct {
		client redis.UniversalClient
		cfg    Config
		want   string
	}{
		"nil client":         {nil, Config{}, "nil client"},
		"nil *redis.Client":  {(*redis.Client)(nil), Config{}, "nil client (*redis.Client)"},
		"nil cluster client": {(*redis.ClusterClient)(nil), Config{}, "nil client (*redis.ClusterClient)"},
		"wrong option":       {good, Config{Wrong: errors.New("wrong")}, "wrong"},
		"other, guard":       {notAClient{good}, Config{Guard: 1}, "WithRestartGuard(1ns) needs a *redis.Client"},
	} {
		t.Run(name, func(t *testing.T) {
			p := New(c.client, c.cfg)
			in := make(replies, 1)
			for range 2 {
				require.ErrorContains(t, p.Send(request(in, "ping")), c.want)
			}
			_, err := p.(Subscriber).Subscribe("channel", NewEar(t))
			require.ErrorContains(t, err, c.want)
			require.NotEmpty(t, p.String())
			p.CloseIdle()
			require.NoError(t, p.Close())
			require.Empty(t, in)
		})
	}
}

func TestOutstanding(t *testing.T) {
	for _, c := range []struct {
		asked, limit int
	}{
		{0, 4096},
		{16384, 16384},
	} {
		bothPools(t, func(s *scene) {
			p := s.pool(Config{Outstanding: c.asked})
			answer(s, p, "ping")
			s.Freeze()
			in, start := make(replies, 4*MaxOutstanding), time.Now()
			send := func(reserved bool) (accepted int) {
				for accepted < 40000 && p.Send(Request{Args: []any{"ping"}, To: in, Reserved: reserved}) == nil {
					accepted++
				}
				return accepted
			}
			require.Equal(s, c.limit, send(false))
			require.Equal(s, 32768-c.limit, send(true), "how many reserved requests Send accepts beyond the limit")
			require.Zero(s, time.Since(start), "time that 32,768 requests to a frozen node took")
			var full *OutstandingError
			require.ErrorAs(s, p.Send(request(in, "ping")), &full)
			require.Equal(s, c.limit, full.Limit)
			s.Kill()
			for range 32768 {
				require.NotEqual(s, Answered, in.wait(s).Fate)
			}
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
		bubble(t, func(s *scene) {
			p := s.with(func(o *redis.Options) { o.ReadTimeout, o.MaxRetries = user, 10 })
			answer(s, p, "ping")
			s.Freeze()
			start := time.Now()
			lost := ask(s, p, "incr", "n")
			require.Equal(s, Unknown, lost.Fate)
			require.ErrorIs(s, lost.Err, os.ErrDeadlineExceeded)
			require.Equal(s, want, time.Since(start), "ReadTimeout %d", user)

			require.ErrorIs(s, unsent(s, p), os.ErrDeadlineExceeded) // it waits for the greeting on a new connection
			require.Equal(s, 2*want, time.Since(start))
			s.Thaw()
			answer(s, p, "ping")
			time.Sleep(time.Hour)
			require.LessOrEqual(s, s.Commands("incr"), 1)
			require.Zero(s, s.Commands("get"))
		})
	}
}

// A request that cannot be sent takes no room.
func TestSendOfABadRequestIsAnError(t *testing.T) {
	bothPools(t, func(s *scene) {
		p, in := s.pool(Config{Outstanding: 1}), make(replies, 1)
		require.ErrorContains(s, p.Send(Request{To: in}), "needs Args and To")
		require.ErrorContains(s, p.Send(Request{Args: []any{"ping"}}), "needs Args and To")
		if _, encodes := p.(*streamPool); encodes {
			for _, odd := range []any{nil, 1.5, []byte("a"), time.Second, true} {
				require.ErrorContains(s, p.Send(request(in, "set", "a", odd)), fmt.Sprintf("%T", odd))
			}
		}
		require.Equal(s, "a", answer(s, p, "echo", "a").Value)
		require.Empty(s, in)
		require.NoError(s, p.Close())
	})
}

func TestTexts(t *testing.T) {
	require.Equal(t, "not sent, answered, unknown", strings.Join([]string{NotSent.String(), Answered.String(), Fate(0).String()}, ", "))
	require.EqualError(t, &OutstandingError{Limit: 5}, "pool: not sent: 5 replies are outstanding, the limit")
}

func TestNewLeavesTheUsersClientAlone(t *testing.T) {
	bubble(t, func(s *scene) {
		client := s.client()
		client.AddHook(forbidding{tb: s})
		before := *client.PoolStats()
		p := New(client, Config{})
		require.Equal(s, "127.0.0.1:7001", p.String())
		answer(s, p, "ping")
		require.Equal(s, before, *client.PoolStats(), "the pool must not use the connections of the user's client")
		s.connected(1)
		require.NoError(s, p.Close())
		s.connected(0)
	})
}

// forbidding is a hook of the user's client. It fails the test if a request of a pool goes through that
// client.
type forbidding struct {
	hook
	tb testing.TB
}

func (h forbidding) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error {
		h.tb.Errorf("the pool sent %v through the user's client", cmd)
		return nil
	}
}

func (h forbidding) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(_ context.Context, cmds []redis.Cmder) error {
		h.tb.Errorf("the pool sent %v through the user's client", cmds)
		return nil
	}
}

func TestCloseLeavesTheUsersClientUsable(t *testing.T) {
	bothPools(t, func(s *scene) {
		client := s.client()
		p, q := s.of(client, Config{}), s.of(client, Config{})
		answer(s, p, "ping")
		answer(s, q, "ping")
		require.NoError(s, p.Close())
		require.NoError(s, client.Ping(s.Context()).Err())
		require.Equal(s, "PONG", answer(s, q, "ping").Value, "another pool of the same client must still work")
		require.NoError(s, q.Close())
		require.NoError(s, client.Ping(s.Context()).Err())
	})
}

func TestNewSharesOneStreamPerClient(t *testing.T) {
	bubble(t, func(s *scene) {
		client := s.client()
		conn := answer(s, New(client, Config{}), "ping").Conn
		for range 9 { // like a program that makes new pools for every operation
			require.Equal(s, conn, answer(s, New(client, Config{}), "ping").Conn)
		}
		s.connected(1)
		answer(s, s.pool(), "ping")
		s.connected(2)
	})
}

// The stream ends exactly half a minute after the last reply.
func TestStreamEndsWhenIdle(t *testing.T) {
	bubble(t, func(s *scene) {
		p := s.pool()
		var last uint64
		for range 2 {
			conn := answer(s, p, "ping").Conn
			require.Greater(s, conn, last, "the pool must open a new connection after the idle one has ended")
			time.Sleep(29 * time.Second)
			require.Equal(s, conn, answer(s, p, "ping").Conn, "the stream must keep its connection")
			time.Sleep(30*time.Second - time.Nanosecond)
			s.connected(1)
			time.Sleep(time.Nanosecond)
			s.connected(0)
			require.Zero(s, runningStreams())
			last = conn
		}
	})
}

var testScript = NewScript(func() string { return "-- goredis_test\nreturn redis.call('GET', KEYS[1])" })

func TestStreamLoadsScriptsOnConnect(t *testing.T) {
	bubble(t, func(s *scene) {
		p, other := s.pool(), s.client()
		for range 2 {
			require.Nil(s, answer(s, p, append(testScript.Append(nil, 1), "k")...).Value)
			s.Kill()
			s.Restart(true)
			require.NoError(s, other.ScriptFlush(s.Context()).Err())
			_ = ask(s, p, "ping") // may meet the end of the old connection
		}
	})
}

func TestStreamWithoutScriptLoadAnswersNoScript(t *testing.T) {
	bubble(t, func(s *scene) {
		s.refuses("script", 1000, "NOPERM this user has no permissions to run the 'script|load' command")
		p := s.pool()
		cmd := append(testScript.Append(nil, 1), "k")
		r := ask(s, p, cmd...)
		require.True(s, IsNoScript(r.Err), "%v", r.Err)
		require.Equal(s, Answered, r.Fate)
		require.Nil(s, answer(s, p, testScript.InFull(cmd)...).Value)
		require.Positive(s, s.Commands("script"), "the pool must try SCRIPT LOAD")
	})
}

// The pool reports the error of the user's OnConnect unchanged. go-redis would report only the error
// that is wrapped inside.
func TestStreamRunsTheUsersOnConnectFirst(t *testing.T) {
	bubble(t, func(s *scene) {
		var loaded []int
		fail := fmt.Errorf("no connection today: %w", errors.New("it is Sunday"))
		p := s.with(func(o *redis.Options) {
			o.OnConnect = func(ctx context.Context, cn *redis.Conn) error {
				loaded = append(loaded, s.Commands("script"))
				if len(loaded) == 1 {
					return fail
				}
				return cn.Ping(ctx).Err()
			}
		})
		err := unsent(s, p)
		require.ErrorIs(s, err, fail)
		require.EqualError(s, err, "pool: handshake: no connection today: it is Sunday")
		require.Zero(s, s.Commands("get"))
		require.Equal(s, int64(1), answer(s, p, "incr", "n").Value)
		require.Equal(s, []int{0, 0}, loaded, "how many scripts the pool had loaded at each call of OnConnect")
		require.Positive(s, s.Commands("script"))
	})
}

func TestScriptAppend(t *testing.T) {
	cmd := append(testScript.Append(nil, 2), "a", "b", "x", 1)
	require.Equal(t, []any{"evalsha", testScript.sha, 2, "a", "b", "x", 1}, cmd)
	require.Equal(t, []any{"eval", testScript.source, 2, "a", "b", "x", 1}, testScript.InFull(cmd))
	require.Equal(t, "evalsha", cmd[0], "InFull must not change the command that it is given")
	require.False(t, IsNoScript(nil))
	require.False(t, IsNoScript(errors.New("NOSCRIPT but not from a node")))
}

func TestNewScriptMakesTheSourceOnceAndLate(t *testing.T) {
	const source = "return 'late'"
	var made atomic.Int32
	late := NewScript(func() string { made.Add(1); return source })
	require.Zero(t, made.Load())
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			cmd := append(late.Append(nil, 1), "a")
			assert.Equal(t, []any{"evalsha", late.sha, 1, "a"}, cmd)
			assert.True(t, slices.Contains(knownScripts(), late)) // assert.Contains reads the scripts
			assert.Equal(t, []any{"eval", source, 1, "a"}, late.InFull(cmd))
		})
	}
	wg.Wait()
	require.EqualValues(t, 1, made.Load())
}
