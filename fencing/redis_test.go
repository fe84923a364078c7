package fencing_test

import (
	"context"
	"math"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/seed14bd9ef4/redsync/fencing"
	"github.com/seed14bd9ef4/redsync/internal/embedded"
	"github.com/seed14bd9ef4/redsync/internal/realredis"
)

// onRedis runs f with a Redis in virtual time, and with a real one where there is one.
func onRedis(t *testing.T, f func(t *testing.T, client *redis.Client)) {
	t.Helper()
	t.Run("embedded", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			nodes := embedded.Start(1)
			defer func() {
				nodes.Close()
				time.Sleep(time.Minute) // what ends by itself has ended
			}()
			client := nodes[0].Client()
			defer client.Close()
			f(t, client)
		})
	})
	t.Run("real", func(t *testing.T) {
		f(t, realredis.Start(t, 1)[0].Client())
	})
}

func requireValue(t require.TestingT, r *fencing.Redis, key, value string, token uint64) {
	if h, ok := t.(interface{ Helper() }); ok {
		h.Helper()
	}
	gotValue, gotToken, err := r.Get(context.Background(), key)
	require.NoError(t, err)
	require.Equal(t, value, gotValue)
	require.Equal(t, token, gotToken)
}

func TestRedisOlderEqualNewer(t *testing.T) {
	onRedis(t, func(t *testing.T, client *redis.Client) {
		r, ctx := fencing.NewRedis(client), t.Context()
		for i, p := range pairs {
			key := strconv.Itoa(i)
			require.NoError(t, r.Set(ctx, key, "older", p.older, 0))
			requireValue(t, r, key, "older", p.older)
			require.NoError(t, r.Set(ctx, key, "newer", p.newer, 0))
			require.NoError(t, r.Set(ctx, key, "newer again", p.newer, 0))
			requireStale(t, r.Set(ctx, key, "paused", p.older, 0), p.older, p.newer)
			requireStale(t, r.Delete(ctx, key, p.older, 0), p.older, p.newer)
			requireStale(t, r.Check(ctx, key, p.older), p.older, p.newer)
			requireValue(t, r, key, "newer again", p.newer)
		}
	})
}

func TestRedisGetNothing(t *testing.T) {
	onRedis(t, func(t *testing.T, client *redis.Client) {
		_, token, err := fencing.NewRedis(client).Get(t.Context(), "none")
		require.ErrorIs(t, err, redis.Nil)
		assert.Zero(t, token)
	})
}

func TestRedisTokenZeroSendsNothing(t *testing.T) {
	r, ctx := fencing.NewRedis(nil), t.Context()
	require.ErrorIs(t, r.Set(ctx, "key", "value", 0, 0), fencing.ErrNoToken)
	require.ErrorIs(t, r.Delete(ctx, "key", 0, 0), fencing.ErrNoToken)
	require.ErrorIs(t, r.Check(ctx, "key", 0), fencing.ErrNoToken)
}

func TestRedisKeepOutOfRange(t *testing.T) {
	r := fencing.NewRedis(nil)
	require.ErrorContains(t, r.Set(t.Context(), "key", "value", 1, -1), "keep -1ns is out of range: 0")
}

func TestRedisValues(t *testing.T) {
	onRedis(t, func(t *testing.T, client *redis.Client) {
		r, ctx := fencing.NewRedis(client), t.Context()
		for value, want := range map[any]string{"": "", "\x00\r\n\xff": "\x00\r\n\xff", 17: "17", true: "1"} {
			require.NoError(t, r.Set(ctx, "key", value, 1, 0))
			requireValue(t, r, "key", want, 1)
		}
		require.NoError(t, r.Set(ctx, "key", []byte("bytes"), 1, 0))
		requireValue(t, r, "key", "bytes", 1)
		require.Error(t, r.Set(ctx, "key", struct{}{}, 1, 0), "go-redis cannot encode that")
	})
}

func TestRedisDeleteKeepsTheToken(t *testing.T) {
	onRedis(t, func(t *testing.T, client *redis.Client) {
		r, ctx := fencing.NewRedis(client), t.Context()
		require.NoError(t, r.Set(ctx, "key", "value", 5, 0))
		require.NoError(t, r.Delete(ctx, "key", 6, 0))
		_, token, err := r.Get(ctx, "key")
		require.ErrorIs(t, err, redis.Nil)
		assert.EqualValues(t, 6, token)
		requireStale(t, r.Set(ctx, "key", "paused", 5, 0), 5, 6)
		require.NoError(t, r.Delete(ctx, "never there", 6, 0))
		requireStale(t, r.Set(ctx, "never there", "paused", 5, 0), 5, 6)
	})
}

func TestRedisCheckShutsOlderHoldersOut(t *testing.T) {
	onRedis(t, func(t *testing.T, client *redis.Client) {
		r, ctx := fencing.NewRedis(client), t.Context()
		require.NoError(t, r.Set(ctx, "key", "value", 5, time.Hour))
		require.NoError(t, r.Check(ctx, "key", 7))
		requireStale(t, r.Set(ctx, "key", "paused", 5, 0), 5, 7)
		requireValue(t, r, "key", "value", 7)
		ttl := client.PTTL(ctx, "key").Val()
		assert.Greater(t, ttl, 50*time.Minute, "as it was")
		require.NoError(t, r.Check(ctx, "nothing yet", 7))
		requireStale(t, r.Set(ctx, "nothing yet", "paused", 5, 0), 5, 7)
		assert.EqualValues(t, -1, client.PTTL(ctx, "nothing yet").Val(), "for ever")
	})
}

func TestRedisKeepCountsFromTheLastWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := embedded.Start(1)
		defer func() {
			nodes.Close()
			time.Sleep(time.Minute)
		}()
		client := nodes[0].Client()
		defer client.Close()
		r, ctx := fencing.NewRedis(client), t.Context()
		ttl := func() time.Duration { return client.PTTL(ctx, "key").Val() }

		require.NoError(t, r.Set(ctx, "key", "a", 1, time.Hour))
		assert.Equal(t, time.Hour, ttl())
		time.Sleep(59 * time.Minute)
		require.NoError(t, r.Set(ctx, "key", "b", 2, time.Hour))
		time.Sleep(30 * time.Minute)
		requireStale(t, r.Set(ctx, "key", "a", 1, 9*time.Hour), 1, 2)
		assert.Equal(t, 30*time.Minute, ttl(), "a refusal changes nothing")
		time.Sleep(29 * time.Minute)
		requireValue(t, r, "key", "b", 2)
		require.NoError(t, r.Delete(ctx, "key", 2, 2*time.Hour))
		assert.Equal(t, 2*time.Hour, ttl())
		require.NoError(t, r.Set(ctx, "key", "c", 2, time.Microsecond))
		assert.Equal(t, time.Millisecond, ttl(), "rounded up")
		require.NoError(t, r.Set(ctx, "key", "c", 2, time.Millisecond+1))
		assert.Equal(t, 2*time.Millisecond, ttl(), "rounded up")
		require.NoError(t, r.Set(ctx, "key", "d", 2, 0))
		assert.EqualValues(t, -1, ttl(), "for ever")
		require.NoError(t, r.Set(ctx, "key", "e", 2, time.Second))
		time.Sleep(time.Second)
		require.NoError(t, r.Set(ctx, "key", "a", 1, 0), "forgotten with its token")
	})
}

func TestRedisLongestKeep(t *testing.T) {
	r := fencing.NewRedis(realredis.Start(t, 1)[0].Client()) // the embedded one has shorter times
	require.NoError(t, r.Set(t.Context(), "key", "value", 1, math.MaxInt64))
	requireValue(t, r, "key", "value", 1)
}

func TestRedisScriptForgotten(t *testing.T) {
	onRedis(t, func(t *testing.T, client *redis.Client) {
		r, ctx := fencing.NewRedis(client), t.Context()
		require.NoError(t, r.Set(ctx, "key", "a", 1, 0))
		require.NoError(t, client.ScriptFlush(ctx).Err())
		require.NoError(t, r.Set(ctx, "key", "b", 2, 0))
		requireValue(t, r, "key", "b", 2)
	})
}

func TestRedisKeyOfSomethingElse(t *testing.T) {
	onRedis(t, func(t *testing.T, client *redis.Client) {
		r, ctx := fencing.NewRedis(client), t.Context()
		require.NoError(t, client.Set(ctx, "text", "value", 0).Err())
		require.NoError(t, client.HSet(ctx, "hash", "fence", "around the garden").Err())
		require.ErrorContains(t, r.Set(ctx, "text", "a", 1, 0), "WRONGTYPE")
		require.ErrorContains(t, r.Set(ctx, "hash", "a", 1, 0), "the field fence is not a token")
		_, _, err := r.Get(ctx, "text")
		require.ErrorContains(t, err, `get "text": WRONGTYPE`)
		assert.Equal(t, "value", client.Get(ctx, "text").Val())
		assert.Equal(t, map[string]string{"fence": "around the garden"}, client.HGetAll(ctx, "hash").Val())
	})
}

func TestRedisOutOfReach(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
	defer client.Close()
	r, ctx := fencing.NewRedis(client), t.Context()
	err := r.Set(ctx, "key", "value", 1, 0)
	require.ErrorContains(t, err, `fencing: set "key": `)
	require.NotErrorIs(t, err, fencing.ErrStale)
}

// TestRedisManyWriters lets many write their tokens as the value: at the end the greatest
// that was let in is there.
func TestRedisManyWriters(t *testing.T) {
	client := realredis.Start(t, 1)[0].Client()
	r, ctx := fencing.NewRedis(client), t.Context()
	var mu sync.Mutex
	var greatest uint64
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 100 {
				token := math.MaxUint64 - rand.Uint64N(1000)
				if err := r.Set(ctx, "key", token, token, 0); err != nil {
					assert.ErrorIs(t, err, fencing.ErrStale)
					continue
				}
				mu.Lock()
				greatest = max(greatest, token)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	requireValue(t, r, "key", strconv.FormatUint(greatest, 10), greatest)
}

func TestRedisLikeTheModel(t *testing.T) {
	t.Run("embedded", func(t *testing.T) {
		nodes := embedded.Start(1) // in no bubble: rapid asks for the deadline of the test
		defer nodes.Close()
		client := nodes[0].Client()
		defer client.Close()
		checkModel(t, client)
	})
	t.Run("real", func(t *testing.T) {
		checkModel(t, realredis.Start(t, 1)[0].Client())
	})
}

func checkModel(t *testing.T, client *redis.Client) {
	t.Helper()
	r, ctx := fencing.NewRedis(client), t.Context()
	rapid.Check(t, func(t *rapid.T) {
		require.NoError(t, client.FlushDB(ctx).Err())
		var m model
		value := "" // none
		for i := range rapid.IntRange(1, 20).Draw(t, "calls") {
			token := m.drawToken(t)
			switch rapid.SampledFrom([]string{"set", "delete", "check"}).Draw(t, "call") {
			case "set":
				want := "value " + strconv.Itoa(i)
				if m.requireErr(t, token, r.Set(ctx, "key", want, token, 0)) {
					value = want
				}
			case "delete":
				if m.requireErr(t, token, r.Delete(ctx, "key", token, time.Hour)) {
					value = ""
				}
			case "check":
				m.requireErr(t, token, r.Check(ctx, "key", token))
			}
			if value != "" {
				requireValue(t, r, "key", value, m.newest)
				continue
			}
			_, newest, err := r.Get(ctx, "key")
			require.ErrorIs(t, err, redis.Nil)
			require.Equal(t, m.newest, newest)
		}
	})
}
