package fencing_test

import (
	"context"
	"errors"
	"math"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/seed14bd9ef4/redsync/fencing"
	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
	"github.com/seed14bd9ef4/redsync/internal/testkit/realredis"
)

// onRedis runs f with an embedded Redis in virtual time, and with a real server if there is one.
func onRedis(t *testing.T, f func(t *testing.T, client *redis.Client)) {
	t.Run("embedded", func(t *testing.T) { inBubble(t, f) })
	t.Run("real", func(t *testing.T) { f(t, realredis.Start(t, 1)[0].Client()) })
}

// inBubble runs f with an embedded Redis in virtual time.
func inBubble(t *testing.T, f func(t *testing.T, client *redis.Client)) {
	synctest.Test(t, func(t *testing.T) {
		nodes := embedded.Start(1)
		defer func() {
			nodes.Close()
			time.Sleep(time.Minute) // goroutines that end by themselves have ended then
		}()
		client := nodes[0].Client()
		defer client.Close()
		f(t, client)
	})
}

func requireValue(t require.TestingT, r *fencing.Redis, key, value string, token uint64) {
	gotValue, gotToken, err := r.Get(context.Background(), key)
	require.NoError(t, err)
	require.Equal(t, value, gotValue)
	require.Equal(t, token, gotToken)
}

// sets requires that a write succeeds.
func sets(t *testing.T, r *fencing.Redis, value any, token uint64, keep time.Duration) {
	require.NoError(t, r.Set(t.Context(), "key", value, token, keep))
}

// A hash that nobody reads through the guard has two fields. A read adds what it needs.
func TestRedisFields(t *testing.T) {
	onRedis(t, func(t *testing.T, client *redis.Client) {
		r, ctx := fencing.NewRedis(client), t.Context()
		for range 2 {
			sets(t, r, "value", 7, 0)
			require.Equal(t, map[string]string{"fence": "7", "value": "value"}, client.HGetAll(ctx, "key").Val())
		}
		_, err := r.Read(ctx, "key", 7, 0)
		require.NoError(t, err)
		require.Equal(t, map[string]string{"fence": "7", "value": "value"}, client.HGetAll(ctx, "key").Val()) // the token is known
		_, err = r.Read(ctx, "key", 8, 0)
		require.NoError(t, err)
		require.Equal(t, map[string]string{"fence": "8", "value": "value", "read": "8", "written": "7"}, client.HGetAll(ctx, "key").Val())
	})
}

func TestRedisSendsNothingThatIsOutOfRange(t *testing.T) {
	r, ctx := fencing.NewRedis(nil), t.Context()
	read := func(token uint64, keep time.Duration) error {
		_, err := r.Read(ctx, "key", token, keep)
		return err
	}
	for _, err := range []error{r.Set(ctx, "key", "value", 0, 0), r.Delete(ctx, "key", 0, 0), r.Check(ctx, "key", 0), read(0, 0)} {
		require.ErrorIs(t, err, fencing.ErrNoToken)
	}
	for _, err := range []error{r.Set(ctx, "key", "value", 1, -1), read(1, -1)} {
		require.ErrorContains(t, err, "keep -1ns is out of range: 0")
	}
}

func TestRedisValues(t *testing.T) {
	onRedis(t, func(t *testing.T, client *redis.Client) {
		r, ctx := fencing.NewRedis(client), t.Context()
		for value, want := range map[any]string{"": "", "\x00\r\n\xff": "\x00\r\n\xff", 17: "17", true: "1"} {
			sets(t, r, value, 1, 0)
			requireValue(t, r, "key", want, 1)
		}
		sets(t, r, []byte("bytes"), 1, 0)
		requireValue(t, r, "key", "bytes", 1)
		require.Error(t, r.Set(ctx, "key", struct{}{}, 1, 0)) // go-redis cannot encode that
	})
}

func TestRedisCheckShutsOlderHoldersOut(t *testing.T) {
	onRedis(t, func(t *testing.T, client *redis.Client) {
		r, ctx := fencing.NewRedis(client), t.Context()
		sets(t, r, "value", 5, time.Hour)
		require.NoError(t, r.Check(ctx, "key", 7))
		requireStale(t, r.Set(ctx, "key", "paused", 5, 0), 5, 7)
		requireValue(t, r, "key", "value", 7)
		ttl := client.PTTL(ctx, "key").Val()
		assert.Greater(t, ttl, 50*time.Minute) // as it was
		require.NoError(t, r.Check(ctx, "nothing yet", 7))
		requireStale(t, r.Set(ctx, "nothing yet", "paused", 5, 0), 5, 7)
		assert.EqualValues(t, -1, client.PTTL(ctx, "nothing yet").Val()) // for ever
	})
}

func TestRedisKeepCountsFromTheLastWrite(t *testing.T) {
	inBubble(t, func(t *testing.T, client *redis.Client) {
		r, ctx := fencing.NewRedis(client), t.Context()
		set := func(value string, token uint64, keep, want time.Duration) {
			sets(t, r, value, token, keep)
			assert.Equal(t, want, client.PTTL(ctx, "key").Val())
		}
		set("a", 1, time.Hour, time.Hour)
		time.Sleep(59 * time.Minute)
		set("b", 2, time.Hour, time.Hour)
		time.Sleep(30 * time.Minute)
		requireStale(t, r.Set(ctx, "key", "a", 1, 9*time.Hour), 1, 2)
		assert.Equal(t, 30*time.Minute, client.PTTL(ctx, "key").Val()) // a refusal changes nothing
		time.Sleep(29 * time.Minute)
		requireValue(t, r, "key", "b", 2)
		require.NoError(t, r.Delete(ctx, "key", 2, 2*time.Hour))
		assert.Equal(t, 2*time.Hour, client.PTTL(ctx, "key").Val())
		set("c", 2, time.Microsecond, time.Millisecond) // rounded up
		set("c", 2, time.Millisecond+1, 2*time.Millisecond)
		set("d", 2, 0, -1) // for ever
		set("e", 2, time.Second, time.Second)
		time.Sleep(time.Second)
		sets(t, r, "a", 1, 0) // forgotten with its token
	})
}

func TestRedisLongestKeep(t *testing.T) {
	r := fencing.NewRedis(realredis.Start(t, 1)[0].Client()) // the embedded Redis cannot keep a key for so long
	require.NoError(t, r.Set(t.Context(), "key", "value", 1, math.MaxInt64))
	requireValue(t, r, "key", "value", 1)
}

func TestRedisScriptForgotten(t *testing.T) {
	onRedis(t, func(t *testing.T, client *redis.Client) {
		r, ctx := fencing.NewRedis(client), t.Context()
		sets(t, r, "a", 1, 0)
		require.NoError(t, client.ScriptFlush(ctx).Err())
		sets(t, r, "b", 2, 0)
		requireValue(t, r, "key", "b", 2)
	})
}

func TestRedisKeyOfSomethingElse(t *testing.T) {
	onRedis(t, func(t *testing.T, client *redis.Client) {
		r, ctx := fencing.NewRedis(client), t.Context()
		read := func(key string, token uint64) error {
			_, err := r.Read(ctx, key, token, 0)
			return err
		}
		require.NoError(t, client.Set(ctx, "text", "value", 0).Err())
		require.NoError(t, client.HSet(ctx, "hash", "fence", "around the garden").Err())
		require.NoError(t, client.HSet(ctx, "marks", "fence", 7, "read", 7, "written", "by hand").Err())
		require.NoError(t, client.HSet(ctx, "half", "fence", 7, "read", 7).Err())
		require.ErrorContains(t, r.Set(ctx, "text", "a", 1, 0), "WRONGTYPE")
		require.ErrorContains(t, r.Set(ctx, "hash", "a", 1, 0), "the field fence is not a token")
		_, _, err := r.Get(ctx, "text")
		require.ErrorContains(t, err, `get "text": WRONGTYPE`)
		require.ErrorContains(t, read("text", 1), `fencing: read "text": `)
		require.ErrorContains(t, read("hash", 1), "the field fence or written is not a token")
		require.ErrorContains(t, read("marks", 8), "the field fence or written is not a token")
		requireUnread(t, r, "half", 6, 7)
		require.NoError(t, client.HSet(ctx, "zeros", "fence", fencing.Text(7)).Err()) // Redis keeps tokens without leading zeros
		for _, token := range []uint64{7, 8} {
			require.ErrorContains(t, r.Set(ctx, "zeros", "value", token, 0), `"00000000000000000007" in place of a token`)
		}
		require.ErrorIs(t, r.Set(ctx, "zeros", "value", 6, 0), fencing.ErrStale)
		require.False(t, client.HExists(ctx, "zeros", "value").Val())
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

// There is no bubble, because rapid asks for the deadline of the test.
func TestRedisLikeTheModel(t *testing.T) {
	t.Run("embedded", func(t *testing.T) {
		nodes := embedded.Start(1)
		defer nodes.Close()
		client := nodes[0].Client()
		defer client.Close()
		checkModel(t, client)
	})
	t.Run("real", func(t *testing.T) { checkModel(t, realredis.Start(t, 1)[0].Client()) })
}

func checkModel(t *testing.T, client *redis.Client) {
	r, ctx := fencing.NewRedis(client), t.Context()
	rapid.Check(t, func(t *rapid.T) {
		require.NoError(t, client.FlushDB(ctx).Err())
		var m model
		value := "" // none
		for i := range rapid.IntRange(1, 20).Draw(t, "calls") {
			token, want := m.drawToken(t), "value "+strconv.Itoa(i)
			switch rapid.SampledFrom([]string{"set", "delete", "check", "read", "read"}).Draw(t, "call") {
			case "set":
				if m.requireErr(t, token, r.Set(ctx, "key", want, token, 0)) {
					value = want
				}
			case "delete":
				if m.requireErr(t, token, r.Delete(ctx, "key", token, time.Hour)) {
					value = ""
				}
			case "check":
				m.requireErr(t, token, r.Check(ctx, "key", token))
			case "read":
				got, err := r.Read(ctx, "key", token, time.Hour)
				if errors.Is(err, redis.Nil) {
					require.Empty(t, value)
					err = nil
				} else if err == nil {
					require.Equal(t, value, got)
				}
				m.requireReadErr(t, token, err)
			}
			if value != "" {
				requireValue(t, r, "key", value, m.newest())
				continue
			}
			_, newest, err := r.Get(ctx, "key")
			require.ErrorIs(t, err, redis.Nil)
			require.Equal(t, m.newest(), newest)
		}
	})
}

func requireRead(t require.TestingT, r *fencing.Redis, key, value string, token uint64) {
	got, err := r.Read(context.Background(), key, token, 0)
	require.NoError(t, err)
	require.Equal(t, value, got)
}

// requireUnread requires that a read with token is refused, because a write had the token newest.
func requireUnread(t require.TestingT, r *fencing.Redis, key string, token, newest uint64) {
	value, err := r.Read(context.Background(), key, token, 0)
	requireStale(t, err, token, newest)
	require.Empty(t, value)
}

func TestRedisReadersAndWriters(t *testing.T) {
	onRedis(t, func(t *testing.T, client *redis.Client) {
		r, ctx := fencing.NewRedis(client), t.Context()
		for i, p := range pairs {
			key := strconv.Itoa(i)
			_, err := r.Read(ctx, key, p.newer, 0)
			require.ErrorIs(t, err, redis.Nil)
			requireStale(t, r.Set(ctx, key, "late", p.older, 0), p.older, p.newer)
			requireStale(t, r.Delete(ctx, key, p.older, 0), p.older, p.newer)
			requireStale(t, r.Check(ctx, key, p.older), p.older, p.newer)
			_, err = r.Read(ctx, key, p.older, 0)
			require.ErrorIs(t, err, redis.Nil) // readers do not refuse each other

			require.NoError(t, r.Set(ctx, key, "newer", p.newer, 0)) // it has read, and writes
			requireRead(t, r, key, "newer", p.newer)                 // and reads, as after Downgrade
			require.NoError(t, r.Set(ctx, key, "newer again", p.newer, 0))
			requireUnread(t, r, key, p.older, p.newer)
			requireStale(t, r.Set(ctx, key, "paused", p.older, 0), p.older, p.newer)
			requireValue(t, r, key, "newer again", p.newer)
		}
	})
}

func TestRedisReadKeepsAtLeast(t *testing.T) {
	onRedis(t, func(t *testing.T, client *redis.Client) {
		r, ctx := fencing.NewRedis(client), t.Context()
		ttl := func() time.Duration {
			return client.PTTL(ctx, "key").Val().Round(time.Minute)
		}
		read := func(token uint64, keep time.Duration) {
			if _, err := r.Read(ctx, "key", token, keep); err != nil {
				require.ErrorIs(t, err, redis.Nil)
			}
		}
		read(1, time.Hour)
		assert.Equal(t, time.Hour, ttl()) // only the token is there
		sets(t, r, "value", 2, time.Hour)
		read(3, 2*time.Hour)
		assert.Equal(t, 2*time.Hour, ttl())
		read(4, time.Hour)
		assert.Equal(t, 2*time.Hour, ttl()) // not shorter
		read(2, 3*time.Hour)
		assert.Equal(t, 3*time.Hour, ttl()) // an older reader
		_, err := r.Read(ctx, "key", 1, 4*time.Hour)
		requireStale(t, err, 1, 2)
		assert.Equal(t, 3*time.Hour, ttl()) // a refusal changes nothing
		read(4, 0)
		assert.EqualValues(t, -1, client.PTTL(ctx, "key").Val()) // for ever
		read(5, time.Hour)
		assert.EqualValues(t, -1, client.PTTL(ctx, "key").Val()) // not shorter
		require.NoError(t, client.Del(ctx, "key").Err())
		read(1, time.Microsecond)
		assert.LessOrEqual(t, client.PTTL(ctx, "key").Val(), time.Millisecond) // rounded up
	})
}
