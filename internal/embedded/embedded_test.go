package embedded_test

import (
	"context"
	"os"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/embedded"
)

// on runs f with a node and a client of it. A message takes the time each to the node or back.
func on(t *testing.T, each time.Duration, f func(t *testing.T, n *embedded.Node, c *redis.Client)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := embedded.Start(1)[0]
		opt := *n.Client().Options()
		opt.MaxRetries = -1
		opt.Dialer = n.DialVia(func(bool) time.Duration { return each })
		c := redis.NewClient(&opt)
		defer func() {
			_ = c.Close()
			embedded.Nodes{n}.Close()
			time.Sleep(time.Minute)
		}()
		require.NoError(t, c.Ping(t.Context()).Err())
		f(t, n, c)
	})
}

func TestKillLosesWhatIsOnItsWayAndDisconnectDoesNot(t *testing.T) {
	for name, cut := range map[string]func(n *embedded.Node){
		"": (*embedded.Node).Disconnect,
		"kill": func(n *embedded.Node) {
			n.Kill()
			n.Restart(false)
		},
	} {
		t.Run(name, func(t *testing.T) {
			on(t, time.Millisecond, func(t *testing.T, n *embedded.Node, c *redis.Client) {
				go func() { assert.Error(t, c.Set(context.Background(), "k", "v", time.Hour).Err()) }()
				time.Sleep(time.Millisecond / 2)
				cut(n)
				time.Sleep(time.Second)
				assert.Equal(t, name == "", n.Exists("k"))
			})
		})
	}
}

func TestRestartDoesNotExecuteWhatWasFrozenBefore(t *testing.T) {
	on(t, time.Millisecond, func(t *testing.T, n *embedded.Node, c *redis.Client) {
		n.Freeze()
		go func() { assert.Error(t, c.Set(context.Background(), "k", "v", time.Hour).Err()) }()
		time.Sleep(10 * time.Millisecond)
		n.Kill()
		n.Restart(false)
		time.Sleep(time.Second)
		assert.False(t, n.Exists("k"))
	})
}

func TestForgetSilencesTheConnectionsThatThereAre(t *testing.T) {
	on(t, time.Millisecond, func(t *testing.T, n *embedded.Node, c *redis.Client) {
		old, err := n.Dial(t.Context(), "", "")
		require.NoError(t, err)
		n.Forget()
		_, err = old.Write([]byte("*1\r\n$4\r\nPING\r\n"))
		require.NoError(t, err)
		require.NoError(t, old.SetReadDeadline(time.Now().Add(time.Minute)))
		_, err = old.Read(make([]byte, 1))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		n.Disconnect()
		n.Heal()
		require.NoError(t, old.SetReadDeadline(time.Now().Add(time.Minute)))
		_, err = old.Read(make([]byte, 1))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded, "the end of the connection does not arrive either")
		require.NoError(t, old.Close())
		_, err = old.Write([]byte("x"))
		require.ErrorIs(t, err, syscall.EPIPE)

		start := time.Now()
		require.Error(t, c.Ping(t.Context()).Err(), "on the connection that it has")
		assert.Greater(t, time.Since(start), time.Second, "it waits for its read deadline")
		require.NoError(t, c.Ping(t.Context()).Err(), "on a new connection")
	})
}

func TestKeysLastByTheNodesClock(t *testing.T) {
	on(t, 0, func(t *testing.T, n *embedded.Node, c *redis.Client) {
		n.SetClock(0, 2)
		require.NoError(t, c.Set(t.Context(), "k", "v", 4*time.Second).Err())
		time.Sleep(2*time.Second - 1)
		n.Follow()
		assert.True(t, n.Exists("k"))
		time.Sleep(time.Nanosecond)
		n.Follow()
		assert.False(t, n.Exists("k"))
		require.NoError(t, c.Set(t.Context(), "k", "v", 4*time.Second).Err())
		n.SetClock(4*time.Second, 1)
		assert.False(t, n.Exists("k"))
	})
}

// A step back prolongs the keys that are there, by as much. It does not prolong those that are set afterwards.
func TestKeysLastLongerWhenTheNodesClockIsSetBack(t *testing.T) {
	on(t, 0, func(t *testing.T, n *embedded.Node, c *redis.Client) {
		left := func(key string) time.Duration { return c.PTTL(t.Context(), key).Val() }
		require.NoError(t, c.Set(t.Context(), "before", "v", 4*time.Second).Err())
		time.Sleep(time.Second)
		n.SetClock(-time.Minute, 1)
		require.NoError(t, c.Set(t.Context(), "after", "v", 4*time.Second).Err())
		assert.Equal(t, []time.Duration{63 * time.Second, 4 * time.Second}, []time.Duration{left("before"), left("after")})
		time.Sleep(4 * time.Second)
		assert.Equal(t, []time.Duration{59 * time.Second, -2}, []time.Duration{left("before"), left("after")})
		n.SetClock(58*time.Second, 1)
		assert.Equal(t, time.Second, left("before"))
		time.Sleep(time.Second)
		assert.Equal(t, time.Duration(-2), left("before"))
	})
}

func TestThawInTurnIsInTheOrderOfTheConnections(t *testing.T) {
	on(t, time.Millisecond, func(t *testing.T, n *embedded.Node, first *redis.Client) {
		second := n.Client()
		defer second.Close()
		require.NoError(t, second.Ping(t.Context()).Err())
		n.Freeze()
		go func() { assert.NoError(t, second.Append(context.Background(), "k", "2").Err()) }()
		synctest.Wait() // the second is frozen before the first is
		go func() { assert.NoError(t, first.Append(context.Background(), "k", "1").Err()) }()
		time.Sleep(10 * time.Millisecond)
		n.ThawInTurn()
		time.Sleep(10 * time.Millisecond)
		got, err := n.Get("k")
		require.NoError(t, err)
		assert.Equal(t, "12", got)
	})
}

// Scripts answer as in Redis.
func TestScripts(t *testing.T) {
	on(t, 0, func(t *testing.T, n *embedded.Node, c *redis.Client) {
		require.NoError(t, n.Set("text", "v"))
		for script, want := range map[string]any{
			`return 3.9`:                           int64(3),
			`return 'a'`:                           "a",
			`return {1, 'a', {2}}`:                 []any{int64(1), "a", []any{int64(2)}},
			`return redis.call('GET', KEYS[1])`:    "v",
			`return redis.call('GET', ARGV[1])`:    nil,
			`return redis.call('GET', KEYS[2])`:    "command arguments must be strings or integers",
			`return redis.pcall('GET', true)`:      "ERR Lua redis lib command arguments must be strings or integers",
			`return redis.call('STRLEN', 'text')`:  int64(1),
			`return redis.pcall('INCR', 'text')`:   "ERR value is not an integer or out of range",
			`return redis.call('INCR', 'text')`:    "value is not an integer or out of range",
			`return redis.call('SET', 'x', 7).ok`:  "OK",
			`return redis.call('TIME')[1] + 0 > 1`: int64(1),
		} {
			got, err := c.Eval(t.Context(), script, []string{"text"}, "none").Result()
			switch {
			case err == nil || want == nil:
				assert.Equal(t, want, got, script)
			default:
				assert.ErrorContains(t, err, want.(string), script)
			}
		}
		sha, err := c.ScriptLoad(t.Context(), "return ARGV[1]").Result()
		require.NoError(t, err)
		got, err := c.EvalSha(t.Context(), sha, nil, "x").Result()
		require.NoError(t, err)
		assert.Equal(t, "x", got)
		assert.ErrorContains(t, c.EvalSha(t.Context(), "0000", nil).Err(), "NOSCRIPT")
		assert.Error(t, c.Eval(t.Context(), "return (", nil).Err())
	})
}

// A test that changes the data does not come between two commands of a script.
func TestSetWaitsForTheScript(t *testing.T) {
	on(t, 0, func(t *testing.T, n *embedded.Node, c *redis.Client) {
		require.NoError(t, n.Set("k", "0"))
		const script = `
			local first = redis.call('GET', 'k')
			for i = 1, 100 do redis.call('PING') end
			return first == redis.call('GET', 'k') and 1 or 0`
		var all sync.WaitGroup
		defer all.Wait()
		end := make(chan struct{})
		defer close(end)
		all.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-end:
					return
				default:
					assert.NoError(t, n.Set("k", strconv.Itoa(i)))
				}
			}
		})
		for range 20 {
			same, err := c.Eval(t.Context(), script, nil).Int()
			require.NoError(t, err)
			require.Equal(t, 1, same)
		}
	})
}
