package embedded_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
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

// The text of a script, and a script that nobody calls, make no difference. What a script changes does.
func TestTrafficKnowsWhatScriptsChange(t *testing.T) {
	traffic := func(source string, more ...any) (traffic uint64) {
		on(t, 0, func(t *testing.T, n *embedded.Node, c *redis.Client) {
			t.Helper()
			if len(more) > 0 {
				require.NoError(t, c.ScriptLoad(t.Context(), "return 1").Err())
			}
			require.NoError(t, c.Eval(t.Context(), source, []string{"key"}, more...).Err())
			traffic = n.Traffic()
		})
		return traffic
	}
	sets := traffic("return redis.call('SET', KEYS[1], 'v')")
	require.Equal(t, sets, traffic("local set = redis.call('SET', KEYS[1], 'v') return set", "an argument"))
	require.NotEqual(t, sets, traffic("return redis.call('SET', KEYS[1], 'w')"))
	require.NotEqual(t, sets, traffic("return redis.call('SET', KEYS[1], 'v', 'PX', 1000)"))
}
